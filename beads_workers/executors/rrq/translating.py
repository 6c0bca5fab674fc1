"""What an executor answered, as the end of an attempt."""

from __future__ import annotations

import json

from beads_workers.core import limits
from beads_workers.core.outcomes import Outcome, OutcomeKind
from beads_workers.protocols.rrq import envelopes as wire

VERSION_REFUSED = "Unsupported protocol version"
"""All that the real executors say of a version that they do not speak: no type, and no code."""


def to_outcome(answer: wire.Outcome) -> Outcome:
    """The outcome of an attempt; retries and their limits are left to our own policy.

    A handler that nobody knows and a version that it does not speak are ``NOT_FOUND``: trying again
    would change neither.
    """
    error = _text(answer)
    match answer.status:
        case wire.Status.SUCCESS:
            return Outcome(OutcomeKind.SUCCESS, result=json.dumps(answer.result))
        case wire.Status.RETRY:
            return Outcome(OutcomeKind.RETRY, error, answer.retry_after_seconds)
        case wire.Status.TIMEOUT:
            return Outcome(OutcomeKind.TIMEOUT, error or "the executor timed out")
        case wire.Status.ERROR:
            return Outcome(OutcomeKind.NOT_FOUND if _is_fatal(answer) else OutcomeKind.ERROR, error)


def _is_fatal(answer: wire.Outcome) -> bool:
    error = answer.error
    return error is not None and (
        error.type == wire.HANDLER_NOT_FOUND
        or error.code == wire.UNSUPPORTED_VERSION
        or (error.type is None and error.message == VERSION_REFUSED)
    )


def _text(answer: wire.Outcome) -> str:
    error = answer.error
    if error is None:
        return "" if answer.status is not wire.Status.ERROR else "failed without a word"
    said = " ".join(error.message.split())
    return ": ".join(part for part in (error.type, said) if part)[: limits.ERROR_CHARS_MAX]
