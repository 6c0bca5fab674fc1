"""The execution of checks: slow ones run in threads, with a time limit."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from beads_workers.checks.condition import (
    PATIENCE_SECONDS,
    CheckedBy,
    Condition,
    Found,
    Stage,
    conditions,
    listed,
    skip,
)
from beads_workers.checks.plan import FleetPlan
from beads_workers.checks.rules import Check, Grade, warn


@dataclass(slots=True)
class ScheduledCheck:
    """A check to run."""

    # Shown while the check is waited for, or if it fails.
    name: str
    # Returns its findings.
    look: Callable[[], Found]
    # Its time limit.
    patience_seconds: float = PATIENCE_SECONDS
    checks: list[Check] = field(default_factory=list)
    done: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        """Run the check; an exception becomes a line of its own."""
        try:
            self.checks = listed(self.look())
        except Exception as error:  # A check must work even if everything else is broken.
            text = f"could not be checked: {type(error).__name__}: {error}"
            self.checks = [warn(self.name, text)]
        self.done.set()


def carry_out(
    jobs: Sequence[ScheduledCheck], waiting: Callable[[str], None] = lambda name: None
) -> Iterator[tuple[ScheduledCheck, Check]]:
    """Yield all findings, in the order of the jobs; ``waiting`` gets the name of a slow job.

    Threads that are stuck are abandoned: they end with the process.
    """
    began = time.monotonic()
    for job in jobs:
        threading.Thread(target=job.run, daemon=True).start()
    for job in jobs:
        if not job.done.wait(SHOWN_AFTER_SECONDS):
            waiting(job.name)
        if _is_through(job, began):
            yield from ((job, check) for check in job.checks)
        else:
            yield job, _late(job)


def _is_through(job: ScheduledCheck, began: float) -> bool:
    return job.done.wait(max(began + job.patience_seconds - time.monotonic(), 0))


def _late(job: ScheduledCheck) -> Check:
    text = f"not through after {job.patience_seconds:g} s, so it was not waited for"
    return warn(job.name, text)


SHOWN_AFTER_SECONDS = 0.1


# --- for doctor, and for start -------------------------------------------------------------------


def all_checks(
    plan: FleetPlan, waiting: Callable[[str], None]
) -> Iterator[tuple[Condition, Check]]:
    """Yield the lines of ``doctor``: all conditions except slow ones and those that write."""
    asked = [each for each in conditions() if each.asked not in _BY_START]
    jobs = {id(job): (job, each) for each in asked for job in [_job(each, plan)]}
    for job, check in carry_out([job for job, _ in jobs.values()], waiting):
        condition = jobs[id(job)][1]
        if condition.unsaid and check.status is Grade.FAIL:
            check = replace(check, status=Grade.WARN, pending=True)
        if check.status is Grade.FAIL and _is_lifted(condition, plan):
            text = f"{check.text} ({condition.lifted_by})"
            check = replace(check, status=Grade.WARN, text=text)
        yield condition, check


def start_checks(plan: FleetPlan, *, last: bool = True) -> Iterator[tuple[Condition, Check]]:
    """Yield the checks of ``start``, in the order in which it refuses.

    ``last``: include checks that take minutes, or write to a remote.

    Checks that wait for other programs begin at once. If the caller stops at a failure, no further
    check begins. Checks that an option lifts are skipped.
    """
    asked = [each for each in conditions() if each.asked is not CheckedBy.BY_DOCTOR]
    asked = [each for each in asked if not _is_lifted(each, plan)]
    for first in [each for each in asked if each.stage is Stage.TRUST]:
        yield from ((first, check) for check in listed(first.look(plan)))
        asked.remove(first)
    beside = {each: _job(each, plan) for each in asked if each.asked is CheckedBy.BESIDE}
    for job in beside.values():
        threading.Thread(target=job.run, daemon=True).start()
    began = time.monotonic()
    for condition in asked:
        if condition.asked in _BY_START and not last:
            continue
        job = beside.get(condition) or _job(condition, plan)
        if condition not in beside:
            job.run()
        elif not _is_through(job, began):
            yield condition, _late(job)
            continue
        yield from ((condition, each) for each in job.checks)


_BY_START = (CheckedBy.BY_START, CheckedBy.AT_THE_END)


def _job(condition: Condition, plan: FleetPlan) -> ScheduledCheck:
    return ScheduledCheck(condition.name, lambda: condition.look(plan), condition.patience_seconds)


def _is_lifted(condition: Condition, plan: FleetPlan) -> bool:
    if condition.asked is CheckedBy.AT_THE_END:
        return plan.options.skip_base_check
    by_name = condition.lifted_by == skip(condition.name)
    return by_name and condition.name in plan.options.skip_check
