"""The journal: its records, one frozen dataclass for each kind of transition, and their codec.

The journal is the one account of a run. The dashboard, ``status``, ``start`` and the recovery are
folds over these records, which hold all they need.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import MISSING, fields
from functools import partial
from json.encoder import encode_basestring_ascii as quoted
from typing import Any

from beads_workers.core.base.framing import is_deep, strict_loads
from beads_workers.core.base.model import Arguments, value
from beads_workers.core.base.night import NightSoFar
from beads_workers.core.base.plain import (
    BAD_VALUE,
    Reader,
    finite,
    from_plain,
    readers_of,
    to_plain,
)
from beads_workers.core.base.text import counted
from beads_workers.core.base.wire import Aside, Status
from beads_workers.core.records.landing import Add, GatedAhead, Mend, Pull
from beads_workers.core.records.money import Spend
from beads_workers.core.records.receipts import Receipt


@value
class Record:
    """Base of all records."""


# --- records -------------------------------------------------------------------------------------


@value
class RunStarted(Record):
    """The first line of a run."""

    run_id: str
    pid: int
    actor: str
    source: str
    project: str
    socket: str = ""
    control_socket: str = ""
    workers: int = 0
    version: str = ""
    budget: str = ""
    # Those that are understood, by their names.
    agents: tuple[str, ...] = ()
    # A success with a branch lands before it is closed.
    lands: bool = False
    # What was typed after the program's name; empty if that was very long.
    argv: tuple[str, ...] = ()
    # Epoch seconds from which on it begins nothing (``--until``); 0 for none.
    until: float = 0.0
    # What it goes on with.
    night: NightSoFar = NightSoFar()
    # A person approves each branch before it lands (``--approve``).
    approves: bool = False

    @property
    def night_id(self) -> str:
        """The id of the run that began its night."""
        return self.night.first or self.run_id


@value
class Checkpointed(Record):
    """Checkpoint: what earlier runs left to remember of one unfinished issue."""

    issue_id: str
    title: str = ""
    charged: int = 0
    free_in_a_row: int = 0
    # Epoch seconds; the end of ``delay_seconds``.
    not_before: float = 0.0
    quarantined: bool = False
    error: str = ""
    # The actor in whose name a done issue is still to be closed.
    claimed_by: str = ""
    delay_seconds: float = 0.0
    # ``path`` to ``enqueued_at``: see ``Claimed``.
    path: str = ""
    arguments: Arguments | None = None
    enqueued_at: float = 0.0
    # Of its last attempt, as ``receipt``: see ``Finished``.
    outcome: str = ""
    # Of its first attempt.
    traceparent: str = ""
    receipt: Receipt | None = None
    # Dollars and tokens of all attempts.
    money: float = 0.0
    tokens: int = 0
    # The request id of the last attempt that is in them.
    counted: str = ""
    # The branch that is to land, if its work is done.
    landing: Add | None = None
    # How often its branch came back to be mended.
    repairs: int = 0
    # Why it came back the last time, until there is work again.
    mend: Mend | None = None
    # See ``Finished``.
    unprepared: int = 0
    # The last that it asked of a person, until there is work again; with ``quarantined`` it waits
    # for the answer.
    question: str = ""
    # Epoch seconds.
    asked_at: float = 0.0
    # How many it has asked.
    questions: int = 0
    # A comment has answered it, so that it is opened even if it was closed.
    answered: bool = False
    # Who stands in its worktree, for people.
    occupied: str = ""
    # The gate's verdict on ``landing``, if that awaits approval.
    ahead: GatedAhead | None = None
    # Its pull request, until that is over.
    pull: Pull | None = None

    @property
    def in_review(self) -> Pull | None:
        """The pull request of ``landing``; None if it has none as it is, or somebody closed it."""
        is_of_it = self.landing is not None and self.pull and self.pull.of == self.landing.commit
        return self.pull if is_of_it and not self.quarantined else None


@value
class CheckpointEnded(Record):
    """Everything is checkpointed: older runs are disposable from here on."""


@value
class RunChanged(Record):
    """The orchestrator's state: a name of ``RunState``. ``reason``: a SHUTDOWN reason, or why.
    ``until``: epoch seconds at which the state ends by itself; 0 if it does not."""

    state: str
    reason: str = ""
    until: float = 0.0


@value
class BudgetSpent(Record):
    """The budget is spent, and nothing more begins.
    ``why``: the reason of the pause, or of the end, that follows."""

    why: str


@value
class WorkerStarted(Record):
    """We started a worker process."""

    worker_id: str
    pid: int


@value
class WorkerJoined(Record):
    """A worker said its first valid word."""

    worker_id: str
    pid: int
    # Its own name for itself.
    called: str = ""
    own: bool = True
    version: str = "1"
    # Of ``pid``.
    start_time: int = 0


@value
class WorkerLeft(Record):
    """A worker's connection is gone."""

    worker_id: str
    reason: str = ""


@value
class WorkerStopping(Record):
    """A worker has said with the end of its task that it takes no more, and will leave."""

    worker_id: str


@value
class WorkerPaused(Record):
    """A worker begins nothing new: a person has paused it, or it asks for nothing itself."""

    worker_id: str
    reason: str = ""


@value
class WorkerResumed(Record):
    """A worker is paused by nobody any more."""

    worker_id: str


@value
class WorkerExited(Record):
    """A worker process of ours ended; ``status`` is as in the shell (128+N for a signal)."""

    worker_id: str
    pid: int
    status: int


@value
class WorkerGone(Record):
    """A worker of ours is not started again: scaled down, or it crashed too often."""

    worker_id: str
    reason: str = ""


@value
class Listed(Record):
    """The tracker's last listing."""

    # Issues that may be taken, by priority (0 to 4).
    by_priority: tuple[int, ...] = (0, 0, 0, 0, 0)
    more: bool = False
    blocked: int = 0
    # Issues that agents filed and that wait for a person, the first of them.
    discovered: tuple[str, ...] = ()
    # Issues that other runs of ours hold, the first of them.
    held: tuple[str, ...] = ()
    # Those runs' actors, in the same order.
    holders: tuple[str, ...] = ()


@value
class Claimed(Record):
    """An issue is ours in the tracker."""

    issue_id: str
    title: str = ""
    priority: int = 2
    # ``path`` and ``arguments``: the function that it names, if any.
    path: str = ""
    arguments: Arguments | None = None
    # Epoch seconds at which the tracker got it; 0 if that is not known.
    enqueued_at: float = 0.0
    # ``issue_type`` and ``labels``: for the message of the commit that lands.
    issue_type: str = "task"
    labels: tuple[str, ...] = ()


@value
class ClaimDelegated(Record):
    """An issue that may be in progress in nobody's name from here on: its worker claims by
    itself."""

    issue_id: str
    worker_id: str


@value
class Started(Record):
    """An attempt begins: the TASK follows."""

    issue_id: str
    worker_id: str
    attempt: int
    request_id: str
    title: str = ""
    priority: int = 2
    # W3C headers, "" if there is no tracer, or no such header: of its span, of the span that it
    # continues, and ``tracestate``.
    traceparent: str = ""
    trace_parent: str = ""
    tracestate: str = ""
    # Who works on it; "" if no agent does.
    agent: str = ""
    # "" if the agent chooses it itself.
    model: str = ""
    # Whose last attempt it is, as in a receipt.
    instead_of: str = ""
    # Where it runs; "" for this machine.
    place: str = ""


@value
class Leased(Record):
    """An attempt may begin on a host of its place. It goes on there for ``seconds`` after the host
    has last heard of us, whatever becomes of its worker; on disk before the host is told."""

    issue_id: str
    attempt: int
    request_id: str
    place: str
    host: str
    # Id of the host's boot: with another one, nothing of the attempt lives.
    boot: str
    # Of its guard: no other attempt has it.
    nonce: str
    seconds: float


@value
class OwnerLost(Record):
    """The worker of a running attempt has lost its connection, and is not yet known to be dead; or
    the attempt is leased, and its host has not said that it is over (``pid`` is 0 then)."""

    issue_id: str
    worker_id: str
    pid: int
    # This field and those below are of a worker that is not ours. It had not left when its time was
    # over, so only the end of its process frees the issue.
    told_to_stop: bool = False
    # Its process had other connections, so a READY by another one says nothing of this issue.
    several: bool = False
    # After these the issue goes back although that process lives; 0 for never.
    grace_seconds: float = 0.0
    # Epoch seconds at which the lease ends unless its host answers; 0 without a lease.
    lease_until: float = 0.0


@value
class Inherited(Record):
    """An issue that an earlier run holds is with a worker that was not ours, and lives on; or its
    attempt is leased, and may be at work on another machine (``pid`` is 0 then)."""

    issue_id: str
    # Of that run.
    run_id: str
    worker_id: str
    pid: int
    start_time: int
    title: str = ""
    priority: int = 2
    # Epoch seconds at which that run lost it; 0 if the run died first.
    lost_at: float = 0.0
    # This field and those below: see ``OwnerLost``.
    told_to_stop: bool = False
    several: bool = False
    # Counts from this record on.
    grace_seconds: float = 0.0
    lease: Leased | None = None
    # See ``OwnerLost``.
    lease_until: float = 0.0


@value
class Finished(Record):
    """The end of an attempt."""

    issue_id: str
    worker_id: str
    attempt: int
    request_id: str
    outcome: str
    # ``finish``, ``land``, ``requeue``, ``quarantined``, ``asked`` or ``hand_back``.
    verdict: str
    error: str = ""
    # As the worker measured it, or as we did if it said nothing.
    duration_ms: int = 0
    # ``charged`` and ``free_in_a_row`` are the history after it.
    charged: int = 0
    free_in_a_row: int = 0
    # Until the next try.
    delay_seconds: float = 0.0
    # ``note``, ``result`` (JSON, see ``model.kept``) and ``result_file``: what came of a success.
    note: str = ""
    result: str = ""
    result_file: str = ""
    # Of an agent.
    receipt: Receipt | None = None
    # See ``Started``.
    agent: str = ""
    # Its last PROGRESS, for people.
    reached: str = ""
    # Attempts in a row without a worktree, for the reason in ``error``.
    unprepared: int = 0
    # Asked so far.
    questions: int = 0
    # With ``land``, a person approves it first.
    awaits: bool = False
    # The worktree in which a person stands, so that nothing was begun.
    occupied: str = ""


@value
class BranchLanded(Record):
    """An issue's work is on the integration branch, as ``commit``; for the rest see
    ``landing.Landed``. A close is pending."""

    issue_id: str
    attempt: int
    commit: str
    branch: str = ""
    verified: str = ""
    train: tuple[str, ...] = ()
    contained: bool = False
    pull: int = 0


@value
class LandingEnded(Record):
    """An issue's work does not land as it is."""

    issue_id: str
    # ``mend`` (its agent goes on at once), ``requeue``, ``quarantined``, or ``shelve`` (the run
    # ends, or a person approves it first, as ``text`` says then).
    verdict: str
    # ``why`` to ``against``: see ``landing.Refused``; empty if the issue was shelved or is not
    # wanted any more.
    why: str = ""
    text: str = ""
    files: tuple[str, ...] = ()
    tip: str = ""
    against: tuple[str, ...] = ()
    # How often it has come back by now.
    repairs: int = 0


@value
class GateRan(Record):
    """A gate began, or has ended; see ``landing.Gate``."""

    lane: int
    state: str
    tree: str
    issues: tuple[str, ...] = ()
    seconds: float = 0.0
    why: str = ""
    flaky: bool = False
    kept: bool = False


@value
class LandingTip(Record):
    """A move of the integration branch, or of the user's branch; see ``landing.Tip`` and
    ``landing.Into``."""

    commit: str
    branch: str
    # The user's branch.
    into: str = ""
    why: str = ""
    command: str = ""
    url: str = ""


@value
class SettledRecord(Record):
    """The tracker answered: names of ``Action`` and ``Result``."""

    issue_id: str
    action: str
    result: str
    error: str = ""


@value
class Requeued(Record):
    """An issue on which nobody works, and nobody will: its release is pending.

    It was claimed and unsent, or reserved for a worker that has left. The end of an attempt needs
    no such record: ``Finished`` says what becomes of its issue.
    """

    issue_id: str


@value
class PutOnHold(Record):
    """A person put the issue on hold (``release``); this run leaves it alone until ``retry``."""

    issue_id: str


@value
class RetryAsked(Record):
    """A person wants the issue tried again, with a clean history."""

    issue_id: str


@value
class Answered(Record):
    """A person has answered the issue's question, or has opened the issue again.
    ``commented``: by a comment, so that it is opened even if it was closed."""

    issue_id: str
    commented: bool = False


@value
class Vacated(Record):
    """Nobody stands in the issue's worktree any more: it may be taken."""

    issue_id: str


@value
class BranchGated(Record):
    """The gate has a verdict on a branch that awaits approval; see ``landing.GatedAhead``."""

    issue_id: str
    commit: str
    verdict: str
    tip: str
    why: str = ""


@value
class ApprovalNeeded(Record):
    """A branch is not proposed before a person has approved it; see ``landing.NeedsApproval``."""

    issue_id: str
    text: str


@value
class PullSeen(Record):
    """What a pull request of the issue is like now; see ``landing.InReview``."""

    issue_id: str
    pull: Pull


@value
class Approved(Record):
    """A person has approved the branch of the issue, at this commit: it may land."""

    issue_id: str
    commit: str


@value
class Refunded(Record):
    """An issue failed in a spawn storm, and is open for a next try.
    ``charged``: attempts that still count."""

    issue_id: str
    charged: int = 0


@value
class Noted(Record):
    """A note for people. ``level``: ``info``, ``warning`` or ``error``.

    ``refused``: number of publishers' messages that were not taken since the last note.
    """

    level: str
    text: str
    refused: int = 0


@value
class Recovered(Record):
    """Everything that an earlier run had left was settled."""

    run_id: str


@value
class RunEnded(Record):
    """The last line of a run that ended by itself."""

    exit_code: int
    reason: str = ""


# --- tracker records -----------------------------------------------------------------------------
# Records about what a run depends on: the tracker that it asks, and the machine it runs on.


@value
class SourceTrouble(Record):
    """The tracker could not be asked; nothing was concluded from that."""

    error: str
    retry_in_seconds: float = 0.0
    hint: str = ""
    failures: int = 1


@value
class SettlementFailed(Record):
    """A write that the tracker did not make is still pending."""

    issue_id: str
    # A name of ``Action``.
    action: str
    error: str = ""
    # How often it has failed by now.
    tries: int = 1
    # Until it is tried again.
    retry_in_seconds: float = 0.0


@value
class SourceRecovered(Record):
    """The tracker answers again."""


@value
class DegradedBegan(Record):
    """A condition of the machine: no room, no descriptors, the project's folder gone.

    ``what`` names it until ``DegradedEnded``; ``stops``: nothing new is taken meanwhile.
    """

    what: str
    text: str
    todo: str = ""
    stops: bool = False


@value
class DegradedEnded(Record):
    """A condition of the machine is over; ``what`` names it."""

    what: str


@value
class AccountClosed(Record):
    """The closure of an agent's account."""

    account: str
    agent: str
    # A value of ``receipts.AccountTrouble``.
    trouble: str
    why: str = ""
    # Only this model's window is used up.
    model: str = ""
    # The announced reset, in epoch seconds as the two below; 0 for unknown.
    until: float = 0.0
    # When a canary may try.
    probe_at: float = 0.0
    # When it closed first.
    since: float = 0.0
    # The command by which a person fixes it, if that is known.
    todo: str = ""
    # As in ``receipts.Closed``.
    refusals: int = 0


@value
class AccountOpened(Record):
    """An account takes work again; ``model`` as in ``AccountClosed``."""

    account: str
    agent: str
    model: str = ""


@value
class UsageFound(Record):
    """The usage of an attempt whose worker died before it could report: its ``receipt``.

    ``whole``: the receipt of a finished attempt, which reported it to the result spool because its
    orchestrator was gone.
    """

    issue_id: str
    attempt: int
    request_id: str
    receipt: Receipt | None = None
    whole: bool = False


@value
class RoundTripBegan(Record):
    """The tracker is asked for so many writes, leases, and new issues (None: no listing at all)."""

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
    """A process of the tracker has ended."""

    pid: int


@value
class Spent(Record):
    """Cost of asking the tracker in this run so far."""

    calls: int
    seconds: float


# --- live records --------------------------------------------------------------------------------


@value
class Live(Record):
    """Base of records that are told to the board, and not written: only a present reader sees them.

    Nothing may be decided by them, and nothing counted: a recovery, a report and a replay have
    none.
    """


@value
class AsideHeard(Live):
    """A worker said something of its running task, beside the conversation."""

    worker_id: str
    message: Aside


@value
class StatusHeard(Live):
    """A worker reported its status."""

    worker_id: str
    message: Status


@value
class PlaceHeard(Live):
    """Other machines were heard of: ``seen`` is what ``places.line`` tells of its hosts."""

    place: str
    seen: Mapping[str, Any]


# --- checkpoint records --------------------------------------------------------------------------
# Records at the beginning of a journal's further segments: a summary of what came before.
#
# They stand among records that are repeated because they still hold. A reader that has read the
# segment before skips all of them (``is_repeated``).


@value
class Resumed(Record):
    """The counts of the run up to here."""

    # Its number, from 2 on.
    segment: int
    claims: int = 0
    done: int = 0
    failed: int = 0
    retried: int = 0
    lost: int = 0
    quarantined: int = 0
    # Number of issues that were closed, those that an earlier run had done among them.
    closed: int = 0
    # ``spent`` and ``found``: what agents used, as in ``money.Ledger``; None in older journals.
    spent: Spend | None = None
    found: Spend | None = None

    @property
    def text(self) -> str:
        """A sentence for people who read the journal from here on."""
        return f"what was before this is no longer in the journal: {self.counts}"

    @property
    def counts(self) -> str:
        """The counts in words."""
        return (
            f"{counted(self.claims, 'claim')}, {self.done} done,"
            f" {counted(self.failed, 'failed attempt')}, {self.quarantined} quarantined"
        )


@value
class Unsettled(Record):
    """Facts about an issue that no other record of a checkpoint tells."""

    issue_id: str
    # In older journals: the tracker is to be told that it is quarantined.
    note: str = ""
    # The worker that was not ours and had it to the end must be gone.
    pid: int = 0
    start_time: int = 0
    # The tracker may still block it.
    reopened: bool = False
    # Nothing is pending from earlier runs.
    heard: bool = False


# --- journal lines -------------------------------------------------------------------------------
# The journal's lines: a record with its two times, as one JSON object, and back.
#
#     {"v": 1, "e": <kind>, "t": <epoch seconds>, "m": <seconds since the run began>, ...fields}
#
# ``m`` is monotonic; fields that hold their default are left out.


JOURNAL_VERSION = 1

LINE_START = b'{"v":'
"""Beginning of every line; never in one, where a quote is escaped and objects have no ``v``."""

_REPEATED = LINE_START + b'%d,"c":1,' % JOURNAL_VERSION

KINDS: dict[str, type[Record]] = {
    "run_started": RunStarted,
    "checkpointed": Checkpointed,
    "checkpoint_ended": CheckpointEnded,
    "run_changed": RunChanged,
    "budget_spent": BudgetSpent,
    "worker_started": WorkerStarted,
    "worker_joined": WorkerJoined,
    "worker_left": WorkerLeft,
    "worker_stopping": WorkerStopping,
    "worker_paused": WorkerPaused,
    "worker_resumed": WorkerResumed,
    "worker_exited": WorkerExited,
    "worker_gone": WorkerGone,
    "listed": Listed,
    "claimed": Claimed,
    "delegating": ClaimDelegated,
    "started": Started,
    "leased": Leased,
    "owner_lost": OwnerLost,
    "inherited": Inherited,
    "finished": Finished,
    "branch_landed": BranchLanded,
    "landing_ended": LandingEnded,
    "gate_ran": GateRan,
    "landing_tip": LandingTip,
    "settled": SettledRecord,
    "settlement_failed": SettlementFailed,
    "requeued": Requeued,
    "on_hold": PutOnHold,
    "retry_asked": RetryAsked,
    "answered": Answered,
    "vacated": Vacated,
    "branch_gated": BranchGated,
    "approval_needed": ApprovalNeeded,
    "pull_seen": PullSeen,
    "approved": Approved,
    "refunded": Refunded,
    "source_trouble": SourceTrouble,
    "source_recovered": SourceRecovered,
    "degraded_began": DegradedBegan,
    "degraded_ended": DegradedEnded,
    "account_closed": AccountClosed,
    "account_opened": AccountOpened,
    "usage_found": UsageFound,
    "round_trip_began": RoundTripBegan,
    "call_started": CallStarted,
    "call_ended": CallEnded,
    "spent": Spent,
    "noted": Noted,
    "recovered": Recovered,
    "run_ended": RunEnded,
    "resumed": Resumed,
    "unsettled": Unsettled,
}

# --- encoding ------------------------------------------------------------------------------------


_ENCODER = json.JSONEncoder(separators=(",", ":"), default=partial(to_plain, sparse=True))
"""Shared encoder: ``json.dumps`` with separators makes a new one for every call."""

_NAMES = {record: name for name, record in KINDS.items()}

_HEADS = {
    record: f'{{"v":{JOURNAL_VERSION},"e":{quoted(name)},"t":' for record, name in _NAMES.items()
}
_FIELDS: dict[type[Record], tuple[tuple[str, str, Any], ...]] = {
    record: tuple((f.name, f",{quoted(f.name)}:", f.default) for f in fields(record))
    for record in _NAMES
}
"""The constant parts of lines: each issue has four lines, and most fields are text."""


@value
class Entry:
    """A record with its two times: ``at`` epoch seconds, ``elapsed`` seconds of the run."""

    record: Record
    at: float
    elapsed: float


def encode(entry: Entry) -> bytes:
    """Return an entry as one journal line with its end."""
    record = entry.record
    kind = type(record)
    line = f'{_HEADS[kind]}{entry.at:.3f},"m":{entry.elapsed:.6f}'
    for name, key, default in _FIELDS[kind]:
        value = getattr(record, name)
        if default is MISSING or value != default:
            line += key + (quoted(value) if type(value) is str else _json(value))
    return line.encode("ascii") + b"}\n"


def _json(value: Any) -> str:
    kind = type(value)
    return repr(value) if kind is int or kind is float else _ENCODER.encode(value)


def encode_repeated(entry: Entry) -> bytes:
    """Return a line of a checkpoint within a run, for readers that skipped what is before it."""
    line = encode(entry)
    return _REPEATED + line[line.index(b",") + 1 :]


def heads(kinds: Collection[str]) -> tuple[bytes, ...]:
    """Return the beginnings of the lines of these kinds; nothing else that is written holds them.

    A kind that is not known has no lines.
    """
    known = [KINDS[kind] for kind in sorted(kinds) if kind in KINDS]
    return tuple(_HEADS[kind].encode("ascii") for kind in known)


def is_repeated(line: bytes) -> bool:
    """Return whether ``encode_repeated`` wrote the line."""
    return line.startswith(_REPEATED)


def decode(line: bytes) -> Entry | None:
    """Read one line; return None if it is torn or damaged, or of a newer version's kind."""
    try:
        return from_json(json.loads(line))
    except (ValueError, RecursionError):
        return None


def from_json(values: Any) -> Entry | None:
    """Read one entry that is parsed already; return None if it is none that we know.

    Every field is of its type, so the folds of entries need not check again.
    """
    try:
        kind = KINDS[values["e"]]
        at, elapsed = finite(values["t"]), finite(values["m"])
        if elapsed < 0:
            return None
        known = {n: read(values[n]) for n, read in _READERS[kind].items() if n in values}
        return Entry(kind(**known), at, elapsed)
    except BAD_VALUE:
        return None


def _value_or_none(read: Reader) -> Reader:
    """Return a reader of values of which versions up to 0.2.0 wrote a text of JSON, "" for None.
    A damaged value is read as None: a record without the value says more than no record."""

    def read_value(found: Any) -> Any:
        try:
            return read((json.loads(found) if found else None) if type(found) is str else found)
        except (*BAD_VALUE, RecursionError):
            return None

    return read_value


def _arguments(found: Any) -> Arguments | None:
    """Read arguments, also of versions up to 0.2.0; damaged ones are omitted."""
    if not found:
        return None
    try:
        if type(found) is str:
            args, kwargs = strict_loads(found.encode("utf-8", "replace"))
            found = {"args": args, "kwargs": kwargs}
        given = from_plain(Arguments, found)
    except (*BAD_VALUE, RecursionError):
        return Arguments(None, None)
    return Arguments(None, None) if is_deep(found) else given


def _readers(record: type[Record]) -> dict[str, Reader]:
    types = {f.name: f.type for f in fields(record)}
    return {
        name: _VALUES[kind](read) if (kind := types[name]) in _VALUES else read
        for name, read in readers_of(record).items()
    }


_VALUES: Mapping[Any, Callable[[Reader], Reader]] = {
    **dict.fromkeys(
        ("Add | None", "GatedAhead | None", "Leased | None", "Mend | None", "Receipt | None"),
        _value_or_none,
    ),
    "Arguments | None": lambda read: _arguments,
}
_READERS = {record: _readers(record) for record in _NAMES}
