"""The core's requests to the edge.
They are carried out in order; records are on file before the rest."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import TYPE_CHECKING, Any

from beads_workers.core.base.facts import Facts
from beads_workers.core.base.model import IssueId, value
from beads_workers.core.base.source import Remark, Settlement
from beads_workers.core.base.wire import ToWorker
from beads_workers.core.records.issues import Transition
from beads_workers.core.records.journal import Entry, Leased, Record
from beads_workers.core.schedule.events import ConnId, Ticket

if TYPE_CHECKING:
    from beads_workers.core.records.landing import Order


@value
class Write:
    """Append to the journal before anything after it is done. ``change``: made by the record."""

    entry: Entry
    change: Transition | None = None

    @property
    def record(self) -> Record:
        """The journal record."""
        return self.entry.record


@value
class Send:
    """Send a message to a worker, under the id that we gave it; ``v1``: without the additions."""

    conn_id: ConnId
    worker_id: str
    message: ToWorker
    v1: bool


@value
class HangUp:
    """Close a connection; what is queued for it may be lost. ``Disconnected`` follows."""

    conn_id: ConnId
    reason: str


@value
class RoundTrip:
    """One round trip: settle, then renew, then take; answered by one ``RoundTripEnded``.

    There is never more than one under way, so all that gathers meanwhile goes into the next: this
    is where groups come from.
    """

    settlements: tuple[Settlement, ...] = ()
    renew: tuple[IssueId, ...] = ()
    # None: do not ask; 0: only list.
    take: int | None = None
    skip: frozenset[IssueId] = frozenset()
    # Issues whose comments are read, after the ``remarks`` are written.
    listen: tuple[IssueId, ...] = ()
    remarks: tuple[Remark, ...] = ()


@value
class Spawn:
    """Start a worker of ours; ``WorkerSpawned`` follows, and one day ``WorkerReaped``."""

    worker_id: str


@value
class KillWorker:
    """Kill a worker of ours with SIGKILL, and its whole session; ``WorkerReaped`` follows."""

    worker_id: str
    pid: int


@value
class WatchOwner:
    """Watch a process that is not ours, and the processes it is known to have started for this
    issue. ``OwnerGone`` follows when all have ended. ``start_time``: it rules out a later process
    under the same pid; 0: the process lives, or has just ended."""

    pid: int
    start_time: int = 0
    issue_id: str = ""


class Word(Enum):
    """What the guard of an attempt on another machine is told, or whoever speaks to it."""

    GO = "begin"
    DROP = "it is not wanted any more: it has not begun, or is over"
    BYE = "what came of it is written here, so that its host may forget it"
    """This and ``GO`` only once the journal is on disk."""
    LOOK = "nobody waits for its answer: ``FoundEnded`` is to bring it"
    END = "likewise, and it is to end now"
    HEARD = "its end is known here: whoever waits for its answer may have it"


@value
class TellGuard:
    """Tell the guard of an attempt something."""

    word: Word
    lease: Leased


@value
class AwaitDeparture:
    """Watch the worktree of an issue, in which a person stands; ``WorktreeLeft`` follows when
    nobody does."""

    issue_id: IssueId
    folder: str


@value
class ReadUsage:
    """Read the usage of an ended attempt of an agent that did not report it.
    ``UsageRead`` follows if anything is found."""

    issue_id: IssueId
    attempt: int
    request_id: str


@value
class SyncJournal:
    """Bring what is written so far to disk soon, whatever the tracker is asked; nothing answers."""


@value
class StartLander:
    """Start the lander; ``LanderGone`` follows if the lander ends, however soon."""


@value
class TellLander:
    """Give an order to the lander; ``LanderSaid`` tells what comes of it."""

    order: Order


@value
class FoundTask:
    """A task that ``TasksAsked`` has matched."""

    # Of the job here.
    key: str
    # ``worker``, ``queued``, ``delayed`` or ``blocked``.
    place: str
    # The task, as its publisher would write it.
    message: Mapping[str, Any]
    # The worker if the task runs.
    worker_id: str = ""


@value
class FoundTasks:
    """``tasks``: in the order in which they are shown.
    ``cancelling``: workers whose task is to end."""

    tasks: tuple[FoundTask, ...] = ()
    cancelling: frozenset[str] = frozenset()


@value
class Answer:
    """The answer to a control request."""

    ticket: Ticket
    text: str = ""
    # Empty if all is well.
    error: str = ""
    not_found: bool = False
    # This and ``found``: what was asked for, if that is more than a line.
    facts: Facts | None = None
    found: FoundTasks | None = None


@value
class End:
    """The run is over: remove the sockets and exit.

    ``pending``: issues that are still ours in the tracker. ``settled``: the run is known to have
    nothing pending; otherwise the next start asks the tracker what this run still holds.
    """

    exit_code: int
    pending: tuple[IssueId, ...] = ()
    settled: bool = True


Command = (
    Write
    | Send
    | HangUp
    | RoundTrip
    | Spawn
    | KillWorker
    | WatchOwner
    | TellGuard
    | AwaitDeparture
    | ReadUsage
    | SyncJournal
    | StartLander
    | TellLander
    | Answer
    | End
)
