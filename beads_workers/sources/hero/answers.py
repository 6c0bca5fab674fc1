"""What an attempt means for its job, in Hero's words. Pure. Source: docs/PROTOCOL.md, "Hero over
Redis".
"""

from __future__ import annotations

import json
from typing import assert_never

from beads_workers.core.outcomes import Outcome, OutcomeKind
from beads_workers.core.values import value
from beads_workers.protocols.hero.jobs import LOST, STOPPED, TIMED_OUT, Status

RETRY_SECONDS = 1.0
"""Before the second attempt, unless it is said otherwise; then twice as long each time."""
RETRY_SECONDS_MAX = 60.0

NOT_WITH_US = "Redis has it with another orchestrator, or has forgotten it"
"""Why a settlement changes nothing."""


@value
class Ends:
    """The job is over: its ``output``, or its ``error``."""

    status: Status
    said: str


@value
class Again:
    """Another attempt, after so long; ``never``: this one was not begun, and does not count."""

    delay_seconds: float = 0.0
    never: bool = False


def judge(
    outcome: Outcome | None,
    attempts: int,
    attempts_max: int,
    *,
    stopped: bool = False,
    retry_seconds: float = RETRY_SECONDS,
) -> Ends | Again:
    """``outcome``: None where it was never begun. ``attempts``: begun so far, with this one.

    ``stopped``: somebody asked for that; work that was done all the same is done.
    """
    if outcome is not None and outcome.kind is OutcomeKind.SUCCESS:
        return Ends(Status.FINISHED, output_of(outcome))
    if stopped:
        return Ends(Status.ERROR, STOPPED)
    if outcome is None:
        return Again(never=True)
    if outcome.kind is OutcomeKind.NOT_FOUND or attempts >= attempts_max:
        return Ends(Status.ERROR, error_of(outcome))
    if outcome.kind in (OutcomeKind.CANCELLED, OutcomeKind.LOST):
        return Again()
    delay = outcome.retry_after_seconds
    if delay is None:
        delay = retry_seconds * 2.0 ** min(attempts - 1, 30)
    return Again(min(delay, RETRY_SECONDS_MAX))


def output_of(outcome: Outcome) -> str:
    """``output``: a text as it is, any other value as JSON."""
    if not outcome.result:
        return ""
    value = json.loads(outcome.result)
    return value if isinstance(value, str) else outcome.result


def error_of(outcome: Outcome) -> str:
    """``error`` of a job whose last attempt went so."""
    match outcome.kind:
        case OutcomeKind.TIMEOUT:
            return TIMED_OUT
        case OutcomeKind.LOST | OutcomeKind.CANCELLED:
            # Cut short by a crash, a stop, another orchestrator: it may have had effects.
            return LOST
        case OutcomeKind.ERROR | OutcomeKind.NOT_FOUND:
            return outcome.error or "failed without a word"
        case OutcomeKind.RETRY:
            return outcome.error or "it asked for another attempt, and has none left"
        case OutcomeKind.SUCCESS:
            raise AssertionError("a success is no error")
        case _:
            assert_never(outcome.kind)
