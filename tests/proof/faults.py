"""The proof of errors: each system call of a fleet fails, once or for a while.

    scripts/faults [--tracker embedded|1.3.0|0.44.0] [--cases N] [--only CASE] [--json] [--progress]

A library that is loaded before all others (``faults.c``) counts the calls of each process of a
fleet, by role, call and kind of descriptor. Then the same fleet runs again for each legal error of
each of them: at the first of its calls, in the middle, at the last, and for a while from the middle
on. A fleet goes on, or it ends with a word; the next start puts everything right.
"""

from __future__ import annotations

import argparse
import ctypes
import errno
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from beads_workers.runtime import sessions
from tests.support.bd import NEW, OLD, BdProject
from tests.support.embedded import EmbeddedProject
from tests.support.fleet import PROGRAM

EMBEDDED = "embedded"
ISSUES = 20
RUNS_SECONDS = 60.0
LEAVES_SECONDS = 5.0
A_WHILE = 1000
"""Milliseconds, where an error lasts."""
FULL = ("ENOSPC", "EDQUOT", "EIO")
NO_DESCRIPTOR = ("EMFILE", "ENFILE")
ERRORS: Mapping[tuple[str, str], Sequence[str]] = {
    ("write", "file"): FULL,
    ("write", "output"): (*FULL, "EPIPE"),
    ("write", "pipe"): ("EPIPE", "EAGAIN"),
    ("write", "socket"): ("EPIPE", "ECONNRESET"),
    ("read", "file"): ("EIO",),
    ("send", "socket"): ("EPIPE", "ECONNRESET", "ENOBUFS"),
    ("receive", "socket"): ("ECONNRESET", "ENOMEM"),
    ("create", "file"): (*FULL, *NO_DESCRIPTOR),
    ("open", "file"): ("EIO", *NO_DESCRIPTOR),
    ("sync", "file"): FULL,
    ("truncate", "file"): ("EIO",),
    ("rename", "file"): FULL,
    ("mkdir", "file"): FULL,
    ("unlink", "file"): ("EIO",),
    ("accept", "socket"): (*NO_DESCRIPTOR, "ECONNABORTED", "ENOMEM"),
    ("socket", "socket"): (*NO_DESCRIPTOR, "ENOBUFS"),
    ("pipe", "pipe"): NO_DESCRIPTOR,
    ("fork", "file"): ("EAGAIN", "ENOMEM"),
    ("watch", "socket"): ("ENOSPC", "ENOMEM"),
    ("watch", "pipe"): ("ENOSPC", "ENOMEM"),
}
"""What each call on each kind of descriptor may fail with, by the manual pages."""


class Verdict(StrEnum):
    """What came of an error."""

    WENT_ON = "went on"
    SAID = "ended with a word"
    UNTOLD = "ended without a word"
    NOT_MET = "not met"


@dataclass(frozen=True, slots=True)
class Case:
    """The ``nth`` call of this role, call and kind fails, and all for ``lasts`` ms after it."""

    role: str
    call: str
    kind: str
    error: str
    nth: int
    lasts: int = 0

    def __str__(self) -> str:
        lasting = f" for {self.lasts}" if self.lasts else ""
        return f"{self.role}: {self.call} {self.kind} {self.error} at {self.nth}{lasting}"

    @staticmethod
    def read(text: str) -> Case:
        """The other way round: what ``--only`` is given."""
        role, _, rest = text.partition(": ")
        call, kind, error, _, nth, *lasting = rest.split()
        return Case(role, call, kind, error, int(nth), int(lasting[1]) if lasting else 0)


@dataclass(slots=True)
class Account:
    """What ``--json`` prints."""

    tracker: str
    cases: int = 0
    met: int = 0
    starts: int = 0
    issues: int = 0
    closed: int = 0
    seconds: float = 0.0
    verdicts: dict[str, dict[str, int]] = field(default_factory=dict)
    """By role, call and kind: how many went on, ended with a word, ..."""
    broken: list[str] = field(default_factory=list)

    @property
    def promises(self) -> list[dict[str, Any]]:
        """As ``scripts/prove`` reads them."""
        text = "a fleet goes on, or ends with a word, and the next start puts everything right"
        return [{"text": text, "broken": self.broken, "seconds": None}]


# --- shim ----------------------------------------------------------------------------------------


class Shim:
    """The library, compiled into ``folder``."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "faults.so"
        source = Path(__file__).with_name("faults.c")
        command = ["gcc", "-O2", "-shared", "-fPIC", "-o", str(self.path), str(source), "-ldl"]
        subprocess.run(command, check=True)
        library = ctypes.CDLL(str(self.path))
        self.size = int(library.fault_size())
        self.roles = _names(library, "fault_roles")
        self.calls = _names(library, "fault_calls")
        self.kinds = _names(library, "fault_kinds")

    def environment(self, table: Path, case: Case | None) -> dict[str, str]:
        """For a fleet; ``table`` is made anew."""
        table.write_bytes(bytes(self.size))
        variables = {"LD_PRELOAD": str(self.path), "FAULTS_TABLE": str(table)}
        variables["PYTHONDONTWRITEBYTECODE"] = "1"  # the interpreter's cache is no file of ours
        if case is not None:
            at = (
                *(self.roles.index(case.role), self.calls.index(case.call)),
                *(self.kinds.index(case.kind), getattr(errno, case.error), case.nth, case.lasts),
            )
            variables["FAULTS_AT"] = ",".join(map(str, at))
        return variables

    def read(self, table: Path) -> tuple[int, dict[tuple[str, str, str], int]]:
        """How many calls failed, and how many there were of each role, call and kind."""
        injected, _, *counts = memoryview(table.read_bytes()).cast("I")
        keys = ((r, c, k) for r in self.roles for c in self.calls for k in self.kinds)
        return injected, {key: count for key, count in zip(keys, counts, strict=True) if count}


def _names(library: ctypes.CDLL, name: str) -> list[str]:
    listed = ctypes.cast(getattr(library, name), ctypes.POINTER(ctypes.c_char_p))
    names: list[str] = []
    while (found := listed[len(names)]) is not None:
        names.append(found.decode("ascii"))
    return names


# --- trials --------------------------------------------------------------------------------------


class Trial:
    """A backlog, a fleet in which a case befalls, and the start after it. Read ``broken`` then."""

    def __init__(self, shim: Shim, folder: Path, tracker: str, case: Case | None) -> None:
        folder.mkdir()
        self._shim, self._case, self._folder = shim, case, folder
        self._project: Any = (
            EmbeddedProject(folder) if tracker == EMBEDDED else BdProject(folder, tracker)
        )
        self._project.create_many([{} for _ in range(ISSUES)])
        self._ran = folder / "ran"
        self._ran.touch()
        self.verdict = Verdict.WENT_ON
        self.broken: list[str] = []
        self.counts: dict[tuple[str, str, str], int] = {}
        self.closed = 0

    def run(self) -> Trial:
        """Both starts."""
        table = self._folder / "table"
        code = self._start(self._shim.environment(table, self._case))
        injected, self.counts = self._shim.read(table)
        if code is None:
            self.verdict = Verdict.UNTOLD
            self.broken.append("it hung")
        elif code != 0:
            heard = self._word() or self._is_deaf()
            self.verdict = Verdict.SAID if heard else Verdict.UNTOLD
        elif left := self._unclosed():
            self.verdict = Verdict.UNTOLD
            self.broken.append(f"it ended with 0, and {len(left)} issues are not closed")
        if self._case is not None and not injected:
            self.verdict = Verdict.NOT_MET
        if self.verdict is Verdict.UNTOLD and not self.broken:
            self.broken.append(f"it ended with {code} and no word but {self._last_line()!r}")
        again = self._start({})
        if again != 0 or (left := self._unclosed()):
            self.broken.append(f"the next start ended with {again}; {self._last_line()}")
        self.closed = ISSUES - len(self._unclosed())
        lines = Counter(self._ran.read_text().split())
        if never := [issue for issue in self._project.read_all() if not lines[str(issue)]]:
            self.broken.append(f"{len(never)} were closed and never done")
        return self

    def _start(self, variables: Mapping[str, str]) -> int | None:
        """Its exit code; None where it had to be killed."""
        mark = f"FAULTS_TRIAL={self._folder}"
        name, _, value = mark.partition("=")
        environment = self._project.environment | dict(variables) | {name: value}
        command = (*PROGRAM, "start", "-n", "2", "--until-empty", "--max-attempts", "9")
        work = ("--retry-delay", "0.1s", "--", "sh", "-c", f'echo "$BW_ISSUE_ID" >>{self._ran}')
        with (self._folder / "said").open("w") as said:
            process = subprocess.Popen(
                [*command, *work],
                cwd=self._project.folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                start_new_session=True,
            )
            code: int | None = None
            try:
                with suppress(subprocess.TimeoutExpired):
                    code = process.wait(RUNS_SECONDS)
            finally:
                self._end(mark, LEAVES_SECONDS if code is not None else 0.0)
                process.wait()
        return code

    def _end(self, mark: str, seconds: float) -> None:
        """Whatever has this in its environment, and has not left within so many seconds."""
        limit = time.monotonic() + seconds
        while left := sessions.with_variable(mark):
            if time.monotonic() > limit:
                self.broken += [f"{len(left)} processes were left"] if seconds else []
                break
            time.sleep(0.02)
        for each in left:
            with suppress(ProcessLookupError):
                os.kill(each.pid, 9)

    def _word(self) -> str:
        """What was said of the end: to whoever started it, or in the log of the orchestrator."""
        said = [line for line in self._said() if line.startswith(("error: ", "ended because: "))]
        said += [line for line in self._said() if line.startswith("next: start again")]
        told = [line for line in said if "without a word" not in line]
        if told:
            return told[-1]
        logs = sorted(self._project.folder.glob(".beads-workers/runs/*/orchestrator.log"))
        return logs[-1].read_text(errors="replace")[-300:].strip() if logs else ""

    def _is_deaf(self) -> bool:
        """Whether whoever started it has left: there is nobody to say a word to."""
        return self._case is not None and (self._case.kind, self._case.error) == ("output", "EPIPE")

    def _said(self) -> list[str]:
        return (self._folder / "said").read_text(errors="replace").splitlines()

    def _last_line(self) -> str:
        return (self._said() or ["it said nothing"])[-1][:200]

    def _unclosed(self) -> list[str]:
        return [str(i) for i, (status, _) in self._project.read_all().items() if status != "closed"]


def cases_of(counts: Mapping[tuple[str, str, str], int]) -> Iterator[Case]:
    """Every legal error of every call that was met: first, middle, last, and for a while."""
    for (role, call, kind), count in counts.items():
        for error in ERRORS.get((call, kind), ()):
            for nth in sorted({1, (count + 1) // 2, count}):
                yield Case(role, call, kind, error, nth)
            if count > 2:
                yield Case(role, call, kind, error, (count + 1) // 2, A_WHILE)


# --- main ----------------------------------------------------------------------------------------


def main(arguments: list[str]) -> int:
    """0 where nothing is broken."""
    said = _parsed(arguments)
    for each in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(each, lambda number, _: sys.exit(128 + number))
    began = time.monotonic()
    account = Account(said.tracker)
    with tempfile.TemporaryDirectory(prefix="beads-workers-faults-") as name:
        folder = Path(name)
        shim = Shim(folder)
        if said.only:
            cases = [Case.read(each) for each in said.only]
        else:
            counted = Trial(shim, folder / "counted", said.tracker, None).run()
            account.broken += [f"without an error: {each}" for each in counted.broken]
            cases = sampled(list(cases_of(counted.counts)), said.cases, said.seed)
        for number, case in enumerate(cases, 1):
            _try(account, shim, folder / str(number), case)
            if said.progress:
                print(f"{number} of {len(cases)} errors: {case}", file=sys.stderr, flush=True)
            if not said.keep:
                shutil.rmtree(folder / str(number), ignore_errors=True)
    account.seconds = round(time.monotonic() - began, 1)
    if said.json:
        print(json.dumps(asdict(account) | {"promises": account.promises}))
    else:
        print(table(account))
    return 1 if account.broken else 0


def sampled(cases: list[Case], wanted: int, seed: int) -> list[Case]:
    """So many of them, of as many calls as there are; all where there are no more."""
    if wanted >= len(cases):
        return cases
    rng = random.Random(seed)
    by_call: dict[tuple[str, str, str], list[Case]] = {}
    for case in rng.sample(cases, len(cases)):
        by_call.setdefault((case.role, case.call, case.kind), []).append(case)
    chosen: list[Case] = []
    while len(chosen) < wanted:
        for left in by_call.values():
            chosen += [left.pop()] if left else []
    return chosen[:wanted]


def _try(account: Account, shim: Shim, folder: Path, case: Case) -> None:
    trial = Trial(shim, folder, account.tracker, case).run()
    account.cases += 1
    account.met += trial.verdict is not Verdict.NOT_MET
    account.starts += 2
    account.issues += ISSUES
    account.closed += trial.closed
    of_call = account.verdicts.setdefault(f"{case.role}: {case.call} {case.kind}", {})
    of_call[trial.verdict.value] = of_call.get(trial.verdict.value, 0) + 1
    account.broken += [f"{case}: {each}" for each in trial.broken]


def table(account: Account) -> str:
    """For people: a row for each role, call and kind, and what is broken."""
    rows = [("", *(verdict.value for verdict in Verdict))]
    for name, found in sorted(account.verdicts.items()):
        rows.append((name, *(str(found.get(verdict.value, 0) or "-") for verdict in Verdict)))
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    lines = [
        "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True))
        for row in rows
    ]
    lines.append(
        f"{account.cases} cases, {account.met} met, {account.closed} of {account.issues} issues"
        f" closed, {account.seconds:.0f} s, {len(account.broken)} broken"
    )
    return "\n".join([*(line.rstrip() for line in lines), *account.broken])


def _parsed(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/faults", description=__doc__)
    add = parser.add_argument
    add("--tracker", choices=(EMBEDDED, OLD, NEW), default=EMBEDDED)
    add("--cases", type=int, default=1_000_000, help="a sample of so many (default: all)")
    add("--seed", type=int, default=1, help="of the sample")
    add("--only", action="append", metavar="CASE", help="one case, as --progress names it")
    add("--json", action="store_true", help="one JSON object")
    add("--progress", action="store_true", help="each case as it ends, on stderr")
    add("--keep", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
