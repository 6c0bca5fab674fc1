"""The worker kit as a whole: runs the cases in threads, and collects their findings."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

from beads_workers.conformance import report
from beads_workers.conformance.bench import Bench, NotClaimed, Timing
from beads_workers.conformance.lateness import ProcessorClock
from beads_workers.conformance.link import Breach
from beads_workers.conformance.requirements import WORKER
from beads_workers.conformance.worker_cases import CASES, WorkerCase

AT_ONCE = 8
"""Number of cases that run at the same time; each of them mostly waits."""


def try_worker(
    command: Sequence[str],
    timing: Timing,
    only: Sequence[str] = (),
    at_once: int = AT_ONCE,
) -> report.Report:
    """Play all cases to the worker that ``command`` starts; return the report.

    ``only``: play cases that could show these requirements.
    """
    began, not_ours = time.monotonic(), Event()
    command = anchored(command)
    chosen = [case for case in CASES if not only or set(only) & set(case.ids)]
    with ThreadPoolExecutor(at_once) as threads:
        played = threads.map(
            lambda case: list(play(case, command, timing, not_ours)), _longest_first(chosen)
        )
        found = [finding for findings in played for finding in findings]
    texts = {k: v for k, v in WORKER.items() if not only or k in only}
    strays = [each for each in found if each.requirement not in texts]
    texts |= {
        s.requirement: WORKER[s.requirement] for s in strays if s.verdict is report.Judgement.FAIL
    }
    return report.Report("worker", report.settle(found, texts), texts, time.monotonic() - began)


def anchored(command: Sequence[str]) -> list[str]:
    """Return a command that can be run from any folder: paths of existing files become absolute."""
    found = [str(Path(word).absolute()) if "/" in word and Path(word).exists() else word
             for word in command]  # fmt: skip
    return [found[0], *(str(Path(w).absolute()) if Path(w).is_file() else w for w in found[1:])]


def play(
    case: WorkerCase, command: Sequence[str], timing: Timing, not_ours: Event
) -> Iterator[report.Finding]:
    """Play one case; yield its findings about its own requirements, and about any broken one."""
    clock = ProcessorClock()
    with Bench(command, timing, not_ours=not_ours) as bench:
        verdict, why, broken = report.Judgement.PASS, "", ""
        try:
            case.play(bench)
        except NotClaimed as error:
            verdict, why = report.Judgement.NOT_CLAIMED, _unclaimed(str(error))
        except (Breach, *report.UNFORESEEN) as error:
            breach = report.as_breach(error, case.ids)
            broken, late = breach.requirement, clock.excuses(breach.allowed, bench.pid)
            verdict, why = report.Judgement.NOT_REACHED, report.late_by(late) or f"see {broken}"
            yield report.of_breach(breach, case.name, bench.transcript, late)
        for requirement in case.ids:
            if requirement == broken:
                continue
            if verdict is report.Judgement.PASS or requirement in bench.proved:
                yield report.Finding(requirement, report.Judgement.PASS, case.name)
            else:
                yield report.Finding(requirement, verdict, case.name, why)


def _unclaimed(what: str) -> str:
    return f"it does not announce {what}" if " " not in what else what


def _longest_first(cases: Sequence[WorkerCase]) -> list[WorkerCase]:
    """Return the cases, those that wait for seconds first: they run beside all others."""
    slow = ("nobody_listens", "lost_while_busy", "lost_while_idle")
    return sorted(cases, key=lambda case: case.name not in slow)
