"""How an attempt went, in RRQ's words. Source: docs/PROTOCOL.md, "Being an RRQ executor"."""

from __future__ import annotations

from typing import NamedTuple, assert_never

from beads_workers.core.outcomes import Outcome, OutcomeKind
from beads_workers.protocols.rrq import envelopes as wire
from beads_workers.protocols.rrq.frames import frame

TIMEOUT = "timeout"
LOST = "worker_lost"
"""``ErrorInfo.type``: the worker died with it. Whether it is tried again, the orchestrator says."""
ENDING = "the executor is ending"
DUPLICATE = "duplicate_request"
"""``ErrorInfo.code``: a request of that id is still unanswered."""


class Ids(NamedTuple):
    """What an answer names."""

    request_id: str
    job_id: str


def from_outcome(ids: Ids, outcome: Outcome | None) -> bytes:
    """The frame that answers a request whose attempt ended so; None: it was never begun."""
    if outcome is None:
        return failed(ids, "never started: " + ENDING, type=wire.CANCELLED)
    error = outcome.error
    match outcome.kind:
        case OutcomeKind.SUCCESS:
            return _succeeded(ids, outcome.result)
        case OutcomeKind.RETRY:
            info = wire.ErrorInfo(error or "not now")
            after = outcome.retry_after_seconds
            return _framed(wire.Outcome(wire.Status.RETRY, *ids, None, info, after))
        case OutcomeKind.TIMEOUT:
            return timed_out(ids, error or "timed out")
        case OutcomeKind.ERROR:
            return failed(ids, error or "failed without a word")
        case OutcomeKind.NOT_FOUND:
            return failed(ids, error, type=wire.HANDLER_NOT_FOUND)
        case OutcomeKind.CANCELLED:
            return failed(ids, error or "cancelled", type=wire.CANCELLED)
        case OutcomeKind.LOST:
            return failed(ids, error, type=LOST)
        case _:
            assert_never(outcome.kind)


def failed(ids: Ids, message: str, *, type: str | None = None, code: str | None = None) -> bytes:
    """An ``error``, framed."""
    info = wire.ErrorInfo(message, type, code)
    return _framed(wire.Outcome(wire.Status.ERROR, *ids, error=info))


def timed_out(ids: Ids, message: str) -> bytes:
    """A ``timeout``, framed."""
    info = wire.ErrorInfo(message, TIMEOUT)
    return _framed(wire.Outcome(wire.Status.TIMEOUT, *ids, error=info))


def _succeeded(ids: Ids, result: str) -> bytes:
    try:
        return frame(wire.encode_success(*ids, result))
    except ValueError as error:  # It is too long.
        return failed(ids, f"the result cannot be sent: {error}"[:500])


def _framed(answer: wire.Outcome) -> bytes:
    return frame(wire.encode(answer))
