"""Records about what a run depends on: the tracker that it asks, and the machine it runs on."""

from __future__ import annotations

from dataclasses import dataclass

from beads_workers.core.record import Record


@dataclass(frozen=True, slots=True)
class SourceTrouble(Record):
    """The tracker could not be asked; nothing was concluded from that."""

    error: str
    retry_in_seconds: float = 0.0
    hint: str = ""
    failures: int = 1


@dataclass(frozen=True, slots=True)
class SourceRecovered(Record):
    """The tracker answers again."""


@dataclass(frozen=True, slots=True)
class Hindrance(Record):
    """The machine stands in the way: no room, no descriptors, the project's folder gone.

    ``what`` names it until ``HindranceOver``; ``stops``: nothing new is taken meanwhile.
    """

    what: str
    text: str
    todo: str = ""
    stops: bool = False


@dataclass(frozen=True, slots=True)
class HindranceOver(Record):
    """It does not any more."""

    what: str


@dataclass(frozen=True, slots=True)
class TurnBegan(Record):
    """The tracker is asked: so many writes, leases, and new issues (None: no listing at all)."""

    settle: int = 0
    renew: int = 0
    take: int | None = None


@dataclass(frozen=True, slots=True)
class CallStarted(Record):
    """A process of the tracker was started; written before anything is read from it."""

    pid: int
    start_time: int
    argv: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CallEnded(Record):
    """That process has ended."""

    pid: int


@dataclass(frozen=True, slots=True)
class Spent(Record):
    """What asking the tracker has cost in this run so far."""

    calls: int
    seconds: float
