"""Each call of git that we make fails once, is killed once, hangs once, by its position.

A scenario is run unbroken first, which counts its calls; then once for each position and each way
in which a call breaks. Nothing is closed or landed without its work, no branch is refused for it,
nobody dies, nothing lasts for ever, and no process is left. ``scripts/faults git``.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tests.proof.git_scenarios import SCENARIOS, Scenario
from tests.support.mortal_git import MortalGit, MortalProgram
from tests.support.repository import IDENTITY

TRIES_UNBROKEN = 2


@dataclass(frozen=True, slots=True)
class Suite:
    """``prog``: how it is called; ``mortal``: makes the program that breaks, in a folder."""

    prog: str
    doc: str
    scenarios: Mapping[str, type[Scenario]]
    mortal: Callable[[Path], MortalProgram]

    def ways(self) -> tuple[str, ...]:
        """In which a call breaks."""
        return tuple(dict.fromkeys(how for each in self.scenarios.values() for how in each.hows))


SUITE = Suite("scripts/faults git", str(__doc__), SCENARIOS, MortalGit)


@dataclass(frozen=True, slots=True)
class Case:
    """The call at this position of a scenario breaks so."""

    scenario: str
    position: int
    how: str

    def __str__(self) -> str:
        return f"{self.scenario}: {self.position} {self.how}"

    @staticmethod
    def read(text: str) -> Case:
        """The other way round: what ``--only`` is given."""
        scenario, _, rest = text.rpartition(": ")
        position, _, how = rest.partition(" ")
        return Case(scenario, int(position), how)


class Bench:
    """One process's place for scenarios; each is made once, and copied for each case.

    Until ``close`` its program is the first on PATH, and no configuration of git's takes part."""

    def __init__(self, folder: Path, suite: Suite = SUITE) -> None:
        self._folder, self._before, self.suite = folder, dict(os.environ), suite
        self.mortal = suite.mortal(folder / "mortal")
        for name in [name for name in os.environ if name.startswith("GIT_")]:
            del os.environ[name]
        os.environ.update(IDENTITY | self.mortal.variables())
        self._made: dict[str, Scenario] = {}

    def calls(self, name: str) -> list[str]:
        """Run it unbroken; what the program is called with. Raises ``AssertionError``."""
        scenario = self._ready(name)
        self.mortal.counts()
        try:
            seen = scenario.run()
        finally:
            self.mortal.rests()
        scenario.look(seen, None)
        return self.mortal.named()

    def try_it(self, case: Case) -> str:
        """What is wrong, "" for nothing."""
        how = case.how.removesuffix(" from there on")
        try:
            scenario = self._ready(case.scenario)
            self.mortal.dies(case.position, how, from_then_on=how != case.how)
            try:
                seen = scenario.run()
            finally:
                self.mortal.rests()
            scenario.look(seen, case.how)
        except AssertionError as error:
            return str(error) or traceback.format_exc()
        except Exception:
            # A mistake of the harness, or a surprise: the other cases go on.
            return traceback.format_exc()
        return ""

    def _ready(self, name: str) -> Scenario:
        if name not in self._made:
            made = self.suite.scenarios[name](
                self._folder / f"scenario-{len(self._made)}", self.mortal
            )
            made.make()
            self._made[name] = made
        else:
            self._made[name].restore()
        return self._made[name]

    def close(self) -> None:
        """Nothing of it is left."""
        os.environ.clear()
        os.environ.update(self._before)
        shutil.rmtree(self._folder, ignore_errors=True)


def cases_of(name: str, count: int, suite: Suite = SUITE) -> Iterator[Case]:
    """Each position, in each way that this scenario knows."""
    for position in range(1, count + 1):
        for how in suite.scenarios[name].hows:
            yield Case(name, position, how)


def sampled(cases: Sequence[Case], wanted: int, seed: int) -> list[Case]:
    """So many of them, of as many scenarios as there are; all if there are no more."""
    if wanted >= len(cases):
        return list(cases)
    by_name: dict[str, list[Case]] = {}
    for case in random.Random(seed).sample(cases, len(cases)):
        by_name.setdefault(case.scenario, []).append(case)
    chosen: list[Case] = []
    while len(chosen) < wanted:
        for left in by_name.values():
            chosen += [left.pop()] if left else []
    return chosen[:wanted]


# --- several processes ---------------------------------------------------------------------------


@dataclass(slots=True)
class Account:
    """What ``--json`` prints. ``positions``: of each scenario."""

    cases: int = 0
    seconds: float = 0.0
    positions: dict[str, int] = field(default_factory=dict)
    tried: dict[str, int] = field(default_factory=dict)
    hows: dict[str, list[str]] = field(default_factory=dict)
    violations: list[str] = field(default_factory=list)


_bench: list[Bench] = []


def _begin(folder: str, suite: Suite) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    place = Path(folder, str(os.getpid()))
    place.mkdir()
    _bench.append(Bench(place, suite))


def _count(name: str) -> tuple[str, list[str], str]:
    why = ""
    for _ in range(TRIES_UNBROKEN):
        try:
            return name, _bench[0].calls(name), ""
        except AssertionError as error:
            why = str(error)
    return name, [], f"{name}: unbroken: {why}"


def _try(case: Case) -> tuple[Case, str]:
    return case, _bench[0].try_it(case)


def run(said: argparse.Namespace, suite: Suite) -> Account:
    """Try all that was asked for, in ``--jobs`` processes."""
    account, began = Account(), time.monotonic()
    with (
        tempfile.TemporaryDirectory(prefix="bw-git-", dir="/tmp") as folder,
        multiprocessing.get_context("fork").Pool(said.jobs, _begin, (folder, suite)) as pool,
    ):
        cases = [Case.read(each) for each in said.only or ()]
        named: dict[str, list[str]] = {}
        if not cases:
            for name, calls, why in pool.imap(_count, said.scenario or list(suite.scenarios)):
                account.violations += [why] if why else []
                account.positions[name], named[name] = len(calls), calls
                account.hows[name] = list(suite.scenarios[name].hows)
                cases += [
                    c for c in cases_of(name, len(calls), suite) if c.how in (said.way or (c.how,))
                ]
            if said.calls:
                print(
                    "\n".join(
                        f"{n}: {i} {c}" for n, cs in named.items() for i, c in enumerate(cs, 1)
                    )
                )
            cases = sampled(cases, said.cases, said.seed)
        for number, (case, why) in enumerate(pool.imap(_try, cases), 1):
            account.cases += 1
            account.tried[case.scenario] = account.tried.get(case.scenario, 0) + 1
            if why:
                call = (named.get(case.scenario) or [""] * case.position)[case.position - 1]
                account.violations.append(f"{case} ({call[:100]}): {why}"[:3000])
            if said.progress:
                broken = f" BROKEN: {why[:300]!r}" if why else ""
                print(f"{number} of {len(cases)} cases {case}{broken}", file=sys.stderr, flush=True)
    account.seconds = round(time.monotonic() - began, 1)
    return account


def table(account: Account) -> str:
    """For people: a row for each scenario, and what is broken."""
    rows = [("scenario", "positions", "cases", "ways", "broken")]
    for name, tried in account.tried.items():
        broken = sum(each.startswith(f"{name}: ") for each in account.violations)
        count = str(account.positions.get(name, "-"))
        rows.append((name, count, str(tried), ", ".join(account.hows.get(name, [])), str(broken)))
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    lines = ["  ".join(c.ljust(w) for c, w in zip(r, widths, strict=True)).rstrip() for r in rows]
    total = f"{account.cases} cases, {account.seconds:.0f} s, {len(account.violations)} broken"
    return "\n".join([*lines, total, *account.violations])


def main(arguments: Sequence[str], suite: Suite = SUITE) -> int:
    """0 if nothing is broken."""
    parser = argparse.ArgumentParser(prog=suite.prog, description=suite.doc)
    add: Any = parser.add_argument
    add("--cases", type=int, default=1_000_000, help="a sample of so many (default: all)")
    add("--seed", type=int, default=1, help="of the sample")
    add("--scenario", action="append", choices=list(suite.scenarios), help="only this one")
    add("--way", action="append", choices=suite.ways(), help="only calls that break so")
    add("--only", action="append", metavar="CASE", help="one case, as --progress names it")
    add("--calls", action="store_true", help="name each call")
    add("--jobs", type=int, default=os.cpu_count() or 1, help="processes (default: cores)")
    add("--json", action="store_true", help="one JSON object")
    add("--progress", action="store_true", help="each case as it ends, on stderr")
    account = run(parser.parse_args(arguments), suite)
    print(json.dumps(asdict(account)) if "--json" in arguments else table(account))
    return 1 if account.violations else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
