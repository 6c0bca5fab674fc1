"""Every command, started in an odd place: it works, or a line or the log says why it does not.

    python -m tests.proof.odd_starts [--cases N] [--only WORD] [--json] [--progress]

A standard stream that is closed, full, or a pipe that nobody reads; a path that is no UTF-8; little
memory; no threads. No command ends with a traceback, or by a
signal, or without a word. Where nothing is missing that the command needs, it ends as ever.
``scripts/faults odd``.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from beads_workers.registry import COMMANDS
from tests.support.embedded import NAME, EmbeddedProject
from tests.support.fleet import PROGRAM
from tests.support.repository import IDENTITY, make_repository
from tests.support.trust import TRUSTED

ENDS_SECONDS = 100.0
NO_UTF8 = os.fsdecode(b"caf\xe9")
NO_THREADS = "no threads"
MEMORY_KB = (60_000, 90_000, 120_000, 160_000, 240_000)
"""From too little to load Python's own modules, to nearly enough for a fleet."""
NO_THREADS_C = "int pthread_create(void *a, void *b, void *c, void *d) { return 11; }\n"

ODD: Mapping[str, str] = {
    **{f"std{name} closed": f"{fd}>&-" for fd, name in enumerate(("in", "out", "err"))},
    "all closed": "0>&- 1>&- 2>&-",
    "stdout and stderr closed": "1>&- 2>&-",
    "stdout full": "1>/dev/full",
    "stderr full": "2>/dev/full",
    "both full": "1>/dev/full 2>&1",
    "stdout unread": "1> >(:)",
    "stderr unread": "2> >(:)",
}
"""Standard streams: what a shell says after the command."""
MUTE = frozenset(name for name in ODD if "unread" in name or ("full" in name and "out" not in name))
"""Nothing can be said there, or a reader has left."""
HARMLESS = frozenset(name for name in ODD if "closed" in name) | {NO_UTF8}
"""Nothing is missing that a command needs."""

DRAINS = ("-n", "1", "--until-empty", "--no-dashboard", "--max-attempts", "1")
MAKES_A_FILE = ("--", "sh", "-c", 'echo x >"$BW_ISSUE_ID"')
IN_WORKTREES = "start --worktree"
ARGUMENTS: Mapping[str, Sequence[str]] = {
    "start": (*DRAINS, "--", "true"),
    IN_WORKTREES: (*DRAINS, "--verify", "true", "--skip-base-check", *MAKES_A_FILE),
    "demo": ("--help",),
    "chaos": ("--kills", "1", "--seed", "1"),
    "add": ("a title",),
    "edit": ("bw-1", "--title", "another"),
    "comment": ("bw-1", "a comment"),
    "import": ("issues.jsonl",),
    "scale": ("2",),
    "worker": ("--help",),
    "rrq-executor": ("--help",),
    "hero": ("--help",),
    "conformance": ("orchestrator", "--socket", "none.sock"),
    "submit": ("jobs.jsonl",),
    "dep": ("add", "bw-1", "bw-2"),
    "delete": ("bw-1", "--force"),
    "config": ("show",),
    "doctor": (),
    "wait": (),
    "land": (),
    "report": (),
    "replay": ("--speed", "1000"),
    **dict.fromkeys(("show", "close", "reopen", "retry", "release", "why"), ("bw-1",)),
    **dict.fromkeys(("diff", "approve", "session", "undo"), ("bw-1",)),
    "reject": ("bw-1", "-m", "no"),
}
"""What a command is called with, if not with nothing. Those that take a minute, or need a server,
show their help."""


@dataclass(frozen=True, slots=True)
class Case:
    """``command`` under the condition ``odd``."""

    odd: str
    command: str

    def __str__(self) -> str:
        return f"{self.command}, {self.odd}".encode("utf-8", "backslashreplace").decode()


def cases() -> list[Case]:
    """One of each condition first, then the next of each; ``start`` and ``doctor`` first of all."""
    conditions = [*ODD, NO_UTF8, NO_THREADS, *(f"{size} KB" for size in MEMORY_KB)]
    known = [name for names in COMMANDS.values() for name in names]
    known.sort(key=lambda name: name not in ("start", "doctor", "logs"))
    return [Case(odd, each) for each in (IN_WORKTREES, "--help", *known) for odd in conditions]


class Place:
    """A folder, with a project where a run is over, and what all cases share."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        project = EmbeddedProject(folder)
        make_repository(project.folder)
        project.create_many([{"status": "closed"}, {}, {}])
        self.home, self.library = folder / "home", folder / "no_threads.so"
        self.home.mkdir()
        source = folder / "no_threads.c"
        source.write_text(NO_THREADS_C)
        subprocess.run(["gcc", "-shared", "-fPIC", "-o", self.library, source], check=True)
        self.project, self.count = project, 0
        self.usual: dict[str, int] = {}
        self.environment = {**project.environment, **TRUSTED, **IDENTITY, "HOME": str(self.home)}
        started = self.run(Case("", "start"), project.folder)
        assert started.returncode == 0, started
        project.create_many([{"id": "bw-4"}])

    def tried(self, case: Case) -> list[str]:
        """What is wrong."""
        if case.command not in self.usual:
            self.usual[case.command] = self._in_a_copy(Case("", case.command))[0].returncode
        done, log = self._in_a_copy(case)
        said = done.stdout + done.stderr + log
        return list(_judged(case, done.returncode, self.usual[case.command], said))

    def _in_a_copy(self, case: Case) -> tuple[subprocess.CompletedProcess[str], str]:
        self.count += 1
        own = self.folder / f"case-{self.count}" / (NO_UTF8 if case.odd == NO_UTF8 else NAME)
        shutil.copytree(self.project.folder, own, symlinks=True)
        before = {*own.rglob("*.log")}
        done = self.run(case, own)
        new = {*own.rglob("*.log")} - before
        log = "".join(each.read_text(errors="replace") for each in new)
        shutil.rmtree(own.parent)
        return done, log

    def run(self, case: Case, folder: Path) -> subprocess.CompletedProcess[str]:
        """The command, to its end; its whole group is ended if it takes too long."""
        limit = case.odd.removesuffix(" KB")
        before = f"ulimit -v {limit}; " if limit != case.odd else ""
        called = [*PROGRAM, *case.command.split(), *ARGUMENTS.get(case.command, ())]
        preload = {"LD_PRELOAD": str(self.library)} if case.odd == NO_THREADS else {}
        return subprocess.run(
            ["bash", "-c", f'{before}exec "$@" {ODD.get(case.odd, "")}', "bash", *called],
            cwd=folder,
            env={**self.environment, **preload},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=ENDS_SECONDS,
        )


def _judged(case: Case, code: int, usual: int, said: str) -> Iterator[str]:
    if "Traceback" in said or "Exception ignored" in said or "Fatal Python" in said:
        yield f"exit {code}, a traceback: {said}"
    elif code < 0 or code > 128:
        yield f"ended by a signal, {code}: {said}"
    elif code != usual and (case.odd in HARMLESS or not (said or case.odd in MUTE)):
        yield f"exit {code} instead of {usual}: {said or 'not a word'}"


def main(arguments: Sequence[str]) -> int:
    """0 when all held."""
    parser = argparse.ArgumentParser(prog="scripts/faults odd", description=__doc__)
    parser.add_argument("--cases", type=int, default=None, help="so many of them")
    parser.add_argument("--only", default="", metavar="WORD", help="those with this in their name")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--progress", action="store_true")
    asked = parser.parse_args(arguments)
    chosen = [each for each in cases() if asked.only in str(each)][: asked.cases]
    violations, began = list[str](), time.monotonic()
    with tempfile.TemporaryDirectory(prefix="bw-", dir="/tmp") as folder:
        place = Place(Path(folder))
        for number, case in enumerate(chosen):
            if asked.progress:
                print(f"{number} of {len(chosen)} cases ({case})", file=sys.stderr, flush=True)
            try:
                violations += [f"{case}: {each}" for each in place.tried(case)]
            except subprocess.TimeoutExpired:
                violations.append(f"{case}: it did not end")
    seconds = round(time.monotonic() - began, 1)
    told = {"cases": len(chosen), "seconds": seconds, "violations": violations}
    print(json.dumps(told) if asked.json else "\n".join(violations) or f"{len(chosen)} cases held")
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
