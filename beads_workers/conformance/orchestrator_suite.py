"""The orchestrator kit as a whole: every case in a thread, and what they found."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait

from beads_workers.conformance.bench import NotClaimed, Timing
from beads_workers.conformance.floor import Book, Floor
from beads_workers.conformance.link import Breach
from beads_workers.conformance.orchestrator_cases import CASES, LAST, OrchestratorCase
from beads_workers.conformance.report import Finding, Judgement, Report, settle
from beads_workers.conformance.requirements import ORCHESTRATOR

AT_ONCE = 8
"""Cases side by side, each with one or two workers."""

SLOW = ("says_nothing", LAST)


def try_orchestrator(path: str, timing: Timing, only: Sequence[str] = ()) -> Report:
    """Play every case to the orchestrator at this socket; ``only``: those that could show these
    requirements."""
    began, book = time.monotonic(), Book()
    chosen = [case for case in CASES if not only or set(only) & set(case.ids)]
    slow_first = sorted(chosen, key=lambda case: case.name not in SLOW)
    with ThreadPoolExecutor(AT_ONCE) as threads:
        played = {
            case.name: threads.submit(lambda case: list(play(case, path, timing, book)), case)
            for case in slow_first
        }
        wait(future for name, future in played.items() if name != LAST)
        book.is_alone.set()
        found = [finding for future in played.values() for finding in future.result()]
    texts = {k: v for k, v in ORCHESTRATOR.items() if not only or k in only}
    broken = {each.requirement for each in found if each.verdict is Judgement.FAIL}
    texts |= {name: ORCHESTRATOR[name] for name in sorted(broken)}
    return Report("orchestrator", settle(found, texts), texts, time.monotonic() - began)


def play(case: OrchestratorCase, path: str, timing: Timing, book: Book) -> Iterator[Finding]:
    """One case: what it says of its requirements, and of one that it did not look for."""
    verdict, why, broken = Judgement.PASS, "", ""
    with Floor(path, timing, book) as floor:
        try:
            case.play(floor)
        except NotClaimed as error:
            verdict, why = Judgement.NOT_CLAIMED, str(error)
        except Breach as error:
            broken = error.requirement
            verdict, why = Judgement.NOT_REACHED, f"see {broken}"
            yield Finding(broken, Judgement.FAIL, case.name, error.why, tuple(floor.transcript))
    for requirement in case.ids:
        if requirement != broken:
            yield Finding(requirement, verdict, case.name, why)
