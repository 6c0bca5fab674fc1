"""How an attempt ended. A closed set: whatever a worker, a signal or a peer does becomes one."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class OutcomeKind(Enum):
    """The values are the wire names (``outcome`` in DONE and FAILED of version 1.1)."""

    SUCCESS = "success"
    ERROR = "error"
    RETRY = "retry"
    TIMEOUT = "timeout"
    CANCELLED = "cancelled"
    LOST = "lost"
    NOT_FOUND = "not_found"


@dataclass(frozen=True, slots=True)
class Outcome:
    """``error`` is one line for people; ``retry_after_seconds`` only goes with ``RETRY``."""

    kind: OutcomeKind
    error: str = ""
    retry_after_seconds: float | None = None
