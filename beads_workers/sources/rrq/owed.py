"""What is known of a request that is owed an answer, and what is asked of the sockets for it."""

from __future__ import annotations

from dataclasses import dataclass, field

from beads_workers.core.events import ConnId
from beads_workers.core.jobs import IssueId
from beads_workers.core.values import value
from beads_workers.protocols.rrq import envelopes as wire
from beads_workers.sources.rrq.answers import Ids

UNANSWERED_MAX = 128
"""So many requests of one connection may be unanswered; then it is not read from. The real ones of
version 2 send 64."""
UNANSWERED_BYTES_MAX = 64 << 20
"""The same for all connections together: four requests of the largest size that there is."""
ID_CHARS_MAX = 500
"""Of ids and function names: they stand in every record, and real ones are UUIDs and paths."""


@value
class Reply:
    """Send these bytes, a whole frame."""

    conn_id: ConnId
    data: bytes


@value
class HangUp:
    """Close the connection; ``gone`` is to be said, as for any other end."""

    conn_id: ConnId
    reason: str


@value
class Offer:
    """There is something new to be taken."""


@value
class Withdraw:
    """What was taken is not wanted any more; its settlement is still awaited."""

    issue_id: IssueId
    why: str


Command = Reply | HangUp | Offer | Withdraw


@dataclass(slots=True, eq=False)
class Owed:
    """One request. ``conn_id`` is None once nobody is there to hear the answer.

    ``issue_id`` is set when its turn has come, ``answer``, a frame, when it is known.
    ``deadline``: as far as it has one.
    """

    number: int
    ids: Ids
    request: wire.Request | None
    conn_id: ConnId | None
    size: int
    in_turn: bool
    deadline: float | None = None
    issue_id: IssueId | None = None
    answer: bytes | None = None
    cancelled: bool = False


@dataclass(slots=True)
class Connection:
    """``line``: requests in turn, the first is under way. ``over``: nothing more is heard of it."""

    line: list[Owed] = field(default_factory=list)
    unanswered: dict[int, Owed] = field(default_factory=dict)
    over: bool = False
