"""The orchestrator kit as a whole: runs the cases in threads, and collects their findings."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

from beads_workers.conformance import report
from beads_workers.conformance.bench import NotClaimed, Timing
from beads_workers.conformance.floor import Book, Floor
from beads_workers.conformance.lateness import ProcessorClock
from beads_workers.conformance.link import Breach
from beads_workers.conformance.orchestrator_cases import CASES, OrchestratorCase, Phase
from beads_workers.conformance.orchestrator_features import FEATURES
from beads_workers.conformance.requirements import ORCHESTRATOR

AT_ONCE = 8
"""Number of cases that run at the same time, each with one or two workers."""

ALL = [*CASES, *FEATURES]
SLOW = ("says_nothing", "silent_in_a_task", "heartbeat", "nothing_announced")


def try_orchestrator(
    path: str,
    timing: Timing,
    only: Sequence[str] = (),
    stop: Sequence[str] = (),
    without: Sequence[str] = (),
) -> report.Report:
    """Play all cases to the orchestrator at this socket; return the report.

    ``only``: play cases that could show these requirements. ``stop``: a command that stops the
    orchestrator, run at the end. ``without``: requirements that it does not claim; cases for
    nothing else are not played.
    """
    began, book = time.monotonic(), Book()
    chosen = [c for c in ALL if not only or set(only) & {*c.ids} or c.phase is Phase.LAST]
    slow_first = sorted(chosen, key=lambda case: case.name not in SLOW)

    def found_by(case: OrchestratorCase) -> list[report.Finding]:
        if case.ids and {*case.ids} <= {*without}:
            no, why = report.Judgement.NOT_CLAIMED, "left out with --without"
            return [report.Finding(requirement, no, case.name, why) for requirement in case.ids]
        return list(play(case, Floor(path, timing, book, stop)))

    found: list[report.Finding] = []
    for phase in Phase:
        cases = [case for case in slow_first if case.phase is phase]
        with ThreadPoolExecutor(AT_ONCE if phase is Phase.TOGETHER else 1) as threads:
            for findings in threads.map(found_by, cases):
                found += findings
    texts = {k: v for k, v in ORCHESTRATOR.items() if not only or k in only}
    broken = {each.requirement for each in found if each.verdict is report.Judgement.FAIL}
    texts |= {name: ORCHESTRATOR[name] for name in sorted(broken)}
    return report.Report(
        "orchestrator", report.settle(found, texts), texts, time.monotonic() - began
    )


def play(case: OrchestratorCase, floor: Floor) -> Iterator[report.Finding]:
    """Play one case; yield its findings about its own requirements, and about any broken one."""
    verdict, why, broken, clock = report.Judgement.PASS, "", "", ProcessorClock()
    clock.watch(floor.book.pid)
    with floor:
        try:
            case.play(floor)
        except NotClaimed as error:
            verdict, why = report.Judgement.NOT_CLAIMED, str(error)
        except (Breach, OSError, *report.UNFORESEEN) as error:
            breach = report.as_breach(error, case.ids)
            broken, late = breach.requirement, clock.excuses(breach.allowed, floor.book.pid)
            verdict, why = report.Judgement.NOT_REACHED, report.late_by(late) or f"see {broken}"
            yield report.of_breach(breach, case.name, floor.transcript, late)
    for requirement in case.ids:
        if requirement != broken:
            yield report.Finding(requirement, verdict, case.name, why)
