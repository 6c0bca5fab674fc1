"""Events that the edge reports to the core, each with all that is known of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import TYPE_CHECKING, Any, NewType

from beads_workers.core.base.model import IssueId, value
from beads_workers.core.base.source import Conversation, Remark, Renewed, Settled, Taken
from beads_workers.core.base.wire import Done, Failed, FromWorker
from beads_workers.core.records.journal import Checkpointed, Inherited, Leased
from beads_workers.core.records.receipts import AccountId, Closed, Receipt

if TYPE_CHECKING:
    from beads_workers.core.records.landing import News


ConnId = NewType("ConnId", int)
"""Number that the edge gives to each connection; it is never used again."""

Ticket = NewType("Ticket", int)
"""The control request that an ``Answer`` belongs to."""


@value
class Connected:
    """A new connection to the worker socket; ``pid`` is the peer's, from the kernel.

    ``start_time``: clock ticks between boot and the peer's start, which tell it from a later
    process of the same pid; 0 if that is not known.
    """

    conn_id: ConnId
    pid: int
    start_time: int = 0


@value
class Received:
    """A valid message of a worker."""

    conn_id: ConnId
    message: FromWorker


@value
class Misread:
    """A line that is no message: ``reason`` and the start of the line, both fit for the log."""

    conn_id: ConnId
    reason: str
    head: str


@value
class Unknown:
    """A message of an unknown type: ``kind``, and the start of its line.
    Both are short, and ``head`` is fit for the log."""

    conn_id: ConnId
    kind: str
    head: str


@value
class Disconnected:
    """The connection is over, whoever closed it."""

    conn_id: ConnId
    reason: str = ""


@value
class WorkerSpawned:
    """A worker that we asked for has a process."""

    worker_id: str
    pid: int


@value
class WorkerNotStarted:
    """The machine had no process or no descriptor left for a worker that was asked for."""

    worker_id: str
    error: str


@value
class WorkerReaped:
    """A worker of ours has ended, and so has every process of its session."""

    worker_id: str
    pid: int
    status: int


@value
class OwnerGone:
    """A foreign process under watch has ended, and so has everything that it started for its
    issue."""

    pid: int


@value
class Placed:
    """The guard of an attempt waits on a host for the word to begin."""

    lease: Leased


@value
class GuardHeard:
    """The guard of a leased attempt has answered: its lease was renewed a moment ago."""

    issue_id: IssueId
    nonce: str


@value
class FoundEnded:
    """The guard of a leased attempt says that nothing of it lives any more. ``answer``: of the
    attempt, if nobody else waited for it; None if there is none."""

    lease: Leased
    answer: Done | Failed | None = None


@value
class PlaceSeen:
    """Which hosts of a place answer: ``why`` they do not, if none does; ``seen`` is for people."""

    place: str
    why: str
    seen: Mapping[str, Any]


@value
class WorktreeLeft:
    """Nobody stands in the worktree of this issue any more."""

    issue_id: IssueId


@value
class UsageRead:
    """The usage of an agent's attempt that could not report it: of an attempt of this run, after
    ``ReadUsage``, or of a crashed run. ``whole``: as in ``journal.UsageFound``."""

    issue_id: IssueId
    attempt: int
    request_id: str
    receipt: Receipt
    whole: bool = False


@value
class RecoveryFailed:
    """The source could not be asked about earlier runs; the tracker thread tries again."""

    error: str
    hint: str
    retry_in_seconds: float


@value
class Unreachable:
    """A source that maintains its queue by itself could not do so; it tries again by itself."""

    error: str
    hint: str
    retry_in_seconds: float


@value
class RecoveryEnded:
    """Earlier runs are settled: issues were closed or requeued, or could not be settled.

    ``late_entries``: what workers did at the end of these runs, which the journals lacked.
    ``inherited``: issues that were left alone, because a worker that was not ours lives on with
    them.
    """

    settled: tuple[Settled, ...] = ()
    late_entries: tuple[Checkpointed, ...] = ()
    inherited: tuple[Inherited, ...] = ()
    error: str = ""


@value
class RoundTripEnded:
    """The tracker thread has done a ``RoundTrip``; a part that it could not ask has an error and no
    answer."""

    seconds: float
    settled: tuple[Settled, ...] = ()
    # If there is one, nothing is known of the settlements, which stay pending.
    settle_error: str = ""
    # None if nothing was to be taken, or if taking failed (``take_error``).
    taken: Taken | None = None
    take_error: str = ""
    hint: str = ""
    # None if no lease was to be renewed, or if the tracker could not be asked.
    renewed: Renewed | None = None
    # This and ``call_seconds``: the source's cost in this run so far.
    calls: int = 0
    call_seconds: float = 0.0
    # The comments of issues that wait for an answer.
    conversations: tuple[Conversation, ...] = ()
    # Each with the error that kept it from being written, or "".
    remarks: tuple[tuple[Remark, str], ...] = ()
    # See ``RecoveryEnded``: of issues that were inherited, and are settled now.
    late_entries: tuple[Checkpointed, ...] = ()


@value
class Arrived:
    """Work has come to a push source, or may have come to a pull source, and can be taken now."""


@value
class Withdrawn:
    """The sender of these issues does not want them any more; ``why`` is for a worker's ears."""

    issue_ids: tuple[IssueId, ...]
    why: str


@value
class StopAsked:
    """The run is to end."""

    # Running tasks may finish.
    drain: bool = False
    # Time for leaving; 0 kills at once.
    seconds: float | None = None
    reason: str = "user_requested"
    # What the run ends with if nothing else is worse.
    exit_code: int = 0
    why: str = ""


@value
class FatalError:
    """The run cannot go on. ``forgets``: its journal is gone; nothing is kept for a next start."""

    error: str
    forgets: bool = False


BY_HAND = "a person asked for it"
"""Reason of a pause that needs no explanation."""


@value
class PauseAsked:
    """A person pauses claiming; with ``worker_ids`` only these workers."""

    ticket: Ticket
    worker_ids: tuple[str, ...] = ()


@value
class ResumeAsked:
    """A person resumes claiming, and every worker; with ``worker_ids`` only these workers."""

    ticket: Ticket
    worker_ids: tuple[str, ...] = ()


FILTERABLE = ("task", "args", "kwargs", "uuid")
"""Keys of a task's message that a filter may name."""


@value
class TaskFilter:
    """A filter for tasks: every field that is set here must be equal, to the letter; none set means
    all."""

    fields: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> TaskFilter:
        """Return the filter that a request's ``control_data`` names; an empty value is ignored."""
        return cls({name: data[name] for name in FILTERABLE if data.get(name)})

    def matches(self, message: Mapping[str, Any]) -> bool:
        """Return whether a task's message matches."""
        return all(message.get(name) == value for name, value in self.fields.items())


@value
class TasksAsked:
    """A client of dispatcherd's protocol asks for the matching tasks, or has them cancelled."""

    ticket: Ticket
    wanted: TaskFilter
    cancel: bool = False


@value
class FleetRequest:
    """A request that is defined in a file of ``core.requests``, and answered there exactly once."""

    ticket: Ticket

    @classmethod
    def read(cls, data: Mapping[str, Any], ticket: Ticket) -> FleetRequest:
        """Read the request from ``control_data``; raise ``ProtocolError``."""
        return cls(ticket)

    def answer(self, fleet: Any) -> None:
        """Do what is asked, and answer with the result. ``fleet``: a ``control.Control``."""
        raise NotImplementedError


@value
class StatusWanted:
    """A person looks at the workers: those that answer STATUS are asked."""


@value
class Warned:
    """A warning from the edge for people; it changes nothing.

    ``refused``: number of a publisher's messages that were not taken since the last time.
    """

    text: str
    refused: int = 0


@value
class AccountTold:
    """News from other fleets of this user about an account of ours: all models for which it is
    closed now."""

    account: AccountId
    closed: tuple[Closed, ...] = ()


@value
class LanderSaid:
    """News from the lander."""

    news: News


@value
class LanderGone:
    """The lander has ended, or could not be started."""

    why: str


@value
class Degraded:
    """A condition of the machine that lasts until its ``ConditionRecovered``."""

    # The name of the condition.
    what: str
    # For people.
    text: str
    # What people can type.
    todo: str
    # Nothing new is taken meanwhile, and no worker is started; what runs goes on.
    stops: bool
    # A folder is not there, so that an end need not wait for it.
    gone: bool = False


@value
class ConditionRecovered:
    """A condition of the machine is over; ``what`` names it."""

    what: str


Asked = PauseAsked | ResumeAsked | TasksAsked | FleetRequest | StatusWanted
"""Requests of people, and of programs of theirs, to a running fleet."""

OfPlace = Placed | GuardHeard | FoundEnded | PlaceSeen
"""News of other machines."""

Event = (
    Connected
    | Received
    | Misread
    | Unknown
    | Disconnected
    | WorkerSpawned
    | WorkerNotStarted
    | WorkerReaped
    | OwnerGone
    | OfPlace
    | WorktreeLeft
    | UsageRead
    | RecoveryFailed
    | Unreachable
    | RecoveryEnded
    | RoundTripEnded
    | Arrived
    | Withdrawn
    | StopAsked
    | FatalError
    | LanderSaid
    | LanderGone
    | Warned
    | AccountTold
    | Degraded
    | ConditionRecovered
    | Asked
)
