"""Records about what a run depends on: the tracker that it asks, and the machine it runs on."""

from __future__ import annotations

from beads_workers.core.record import Record
from beads_workers.core.values import value


@value
class SourceTrouble(Record):
    """The tracker could not be asked; nothing was concluded from that."""

    error: str
    retry_in_seconds: float = 0.0
    hint: str = ""
    failures: int = 1


@value
class SettlementFailed(Record):
    """The tracker did not write this one: ``action``, a name of ``Action``, is still owed.

    ``tries``: how often it has failed by now; it is tried again in ``retry_in_seconds``.
    """

    issue_id: str
    action: str
    error: str = ""
    tries: int = 1
    retry_in_seconds: float = 0.0


@value
class SourceRecovered(Record):
    """The tracker answers again."""


@value
class Hindrance(Record):
    """The machine stands in the way: no room, no descriptors, the project's folder gone.

    ``what`` names it until ``HindranceOver``; ``stops``: nothing new is taken meanwhile.
    """

    what: str
    text: str
    todo: str = ""
    stops: bool = False


@value
class HindranceOver(Record):
    """It does not any more."""

    what: str


@value
class TurnBegan(Record):
    """The tracker is asked: so many writes, leases, and new issues (None: no listing at all)."""

    settle: int = 0
    renew: int = 0
    take: int | None = None


@value
class CallStarted(Record):
    """A process of the tracker was started; written before anything is read from it."""

    pid: int
    start_time: int
    argv: tuple[str, ...] = ()


@value
class CallEnded(Record):
    """That process has ended."""

    pid: int


@value
class Spent(Record):
    """What asking the tracker has cost in this run so far."""

    calls: int
    seconds: float
