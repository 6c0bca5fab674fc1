"""The interface of a source of work to the orchestrator. A tracker is one class of this shape.

A source is small, synchronous and blocking, and is only ever called from one thread. It keeps two
promises. A failure to ask is never an answer: the source raises ``SourceError`` or reports
``Result.FAILED``, and an error changes no issue. And it touches only what its own actor holds.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import Enum
from math import floor
from typing import Any, Protocol, runtime_checkable

from beads_workers.core.base import model
from beads_workers.core.base.ready import FINISHED


class SourceError(Exception):
    """A failure to ask the tracker. ``str()`` is one line; ``hint`` says what to do."""

    passing = False
    """Whether the failure may be over in a moment, so that a start asks again."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class Damaged(SourceError):
    """The tracker's data cannot be read as issues, by anybody."""


class NotDone(SourceError):
    """The tracker refuses what a person wants of it: nothing was written."""


class NoSuchIssue(NotDone):
    """The tracker has no such issue."""

    def __init__(self, issue_id: model.IssueId) -> None:
        super().__init__(f"no such issue: {issue_id}")
        self.issue_id = issue_id


class HeldByRun(NotDone):
    """A run of a fleet holds the issue (``run``: ``beads-workers/HOST/RUN``): nobody ends that
    behind its back."""

    def __init__(self, issue_id: model.IssueId, run: str) -> None:
        remedy = f"'beads-workers release {issue_id}' ends its task and opens it"
        super().__init__(
            f"{issue_id} is in the hands of a fleet ({run})", f"{remedy}; then do this again"
        )
        self.issue_id = issue_id
        self.run = run


class Action(Enum):
    """Requests to the tracker about a claimed issue."""

    CLOSE = "close"
    RELEASE = "release"
    """Open again and unassigned, for anybody to take."""
    QUARANTINE = "quarantined"
    """Out of the backlog until a person asks for it: ``blocked``, with a note, unassigned."""
    HAND_OVER = "hand_over"
    """Keep it reserved, but in nobody's name: the worker will claim and close by itself."""
    REOPEN = "reopen"
    """Take the quarantine mark away, for a person's ``retry`` or answer, or after a storm. With
    ``read_first``, for a crashed run, the run's claim is released as well."""
    SHELVE = "shelve"
    """As ``QUARANTINE``, until its branch has landed, which the next start sees to, or a person has
    approved that (``Settlement.awaits``)."""
    CONFIRM = "confirm"
    """Only read, but for the labels (``Settlement.mark``): ``APPLIED`` if it is ours still, or
    closed by the agent that worked on it; ``NOT_OURS`` if anybody else has closed, released or
    taken it. Never ``FOUND_CLOSED``."""
    ASK = "ask"
    """As ``QUARANTINE``, until a person has answered the question in the note."""


@model.value
class Settlement:
    """One pending write."""

    action: Action
    issue_id: model.IssueId
    # The reason of a close, or the comment that goes with a quarantine.
    note: str = ""
    # The worker, or the agent in it, may have changed the issue itself, so look before writing.
    read_first: bool = False
    # It is held without an assignee (after ``HAND_OVER``).
    handed_over: bool = False
    # ``result`` (JSON) and ``result_file`` go with a close: what came of the work, for a tracker
    # that keeps it.
    result: str = ""
    result_file: str = ""
    # How the attempt went, for a source that answers its own peer; None: there was none.
    outcome: model.Outcome | None = None
    # Somebody has cancelled it, for good.
    unwanted: bool = False
    # An agent worked on it, and may have closed it by itself, which does not count. If the attempt
    # failed, the issue is opened again; if it succeeded, the close gets our ``note``. An issue that
    # somebody else has closed stays as it is.
    by_agent: bool = False
    # Id of the crashed run that holds it; "" for our own.
    run_id: str = ""
    # It may be blocked in nobody's name since an earlier ``SHELVE``, and is ours all the same.
    shelved: bool = False
    # A person undoes what it has done, so that it is opened again, whoever closed it.
    taken_back: bool = False
    # Its branch waits for a person's approval, or is in review.
    awaits: bool = False
    in_review: bool = False

    @property
    def mark(self) -> str:
        """The one of ``MARKS`` that the issue has afterwards; "" for none. Others are taken off,
        unless the issue is blocked, and not ours: another fleet may have set them."""
        if self.action is Action.ASK:
            return NEEDS_ANSWER
        return NEEDS_APPROVAL if self.awaits else IN_REVIEW if self.in_review else ""


def reopening(issue_id: model.IssueId, is_answered: bool) -> Settlement:
    """Return the write for an issue that was out of the backlog. ``is_answered``: a comment has
    answered its question, and whoever wrote it may have closed it (``bd human respond``)."""
    return Settlement(Action.REOPEN, issue_id, read_first=is_answered, taken_back=is_answered)


DELETED = "deleted"
CLOSED_BY_OTHERS = "closed by somebody else"
"""``Settled.error`` of a ``CONFIRM`` that has found the issue closed."""

NEEDS_ANSWER, NEEDS_APPROVAL, IN_REVIEW = "needs-answer", "needs-approval", "in-review"
MARKS = (NEEDS_ANSWER, NEEDS_APPROVAL, IN_REVIEW)
"""Labels of an issue that waits for a person's answer, of one whose branch waits for a person's
approval, and of one whose pull request is open."""

BLOCKING = (Action.QUARANTINE, Action.SHELVE, Action.ASK)
"""Actions that leave an issue ``blocked``, in nobody's name, with a note."""


class Result(Enum):
    """Results of a settlement."""

    APPLIED = "applied"
    """The issue is now as asked, whether this call did it or it was so already."""
    FOUND_CLOSED = "found_closed"
    """The issue turned out to be closed: nothing was written, and its work counts as done."""
    NOT_OURS = "not_ours"
    """Somebody else holds, closed for another reason, or deleted it: left alone."""
    FAILED = "failed"
    """The tracker did not do it; ask again later."""


PAST_DEADLINE = "its deadline has passed"
"""``Settled.error`` of a job that is over because its sender wanted it by a deadline."""


@model.value
class Settled:
    """The answer to one settlement.
    ``error`` is one line, set with ``FAILED``/``NOT_OURS``, and if ``APPLIED`` says less than there
    is to know (``PAST_DEADLINE``)."""

    settlement: Settlement
    result: Result
    error: str = ""


@model.value
class Lease:
    """A claim that nobody else may take until ``ends``; ``began``: when we asked for it.

    Both on the boot clock, in seconds: it goes on while the machine sleeps, like everybody else's.
    Both were taken before the tracker was asked, so that the tracker's own end is never sooner.
    """

    issue_id: model.IssueId
    began: float
    ends: float


@model.value
class Lost:
    """A claim that is no longer ours. ``why``: whose it is now, or the like; one line."""

    issue_id: model.IssueId
    why: str = ""


@model.value
class Renewed:
    """The answer to ``renew``: leases that run on, and claims that are no longer ours.

    An issue in neither is ours still, but was not renewed: try again.
    """

    leases: tuple[Lease, ...] = ()
    lost: tuple[Lost, ...] = ()


@model.value
class HeldElsewhere:
    """An issue in progress that is not in this run's hands."""

    issue_id: model.IssueId
    # Holder: another run of ours, a person, or "" for nobody.
    actor: str
    # The issue comes back by itself if that run is over.
    leased: bool = False


@model.value
class Taken:
    """The answer to ``take``."""

    # Claimed for our actor just now, most urgent first.
    jobs: tuple[model.Job, ...] = ()
    # What else could be taken, bounded, most urgent first.
    listed: tuple[model.ListedIssue, ...] = ()
    # The bound cut the listing.
    more: bool = False
    # How many open issues wait for another one; None if the tracker was not asked.
    blocked: int | None = None
    # Leases of the jobs whose claim lapses unless it is renewed.
    leases: tuple[Lease, ...] = ()
    # Issues that another orchestrator had left, and that are open again.
    reclaimed: tuple[Lost, ...] = ()
    # How many more could be taken that are not ``listed``.
    waiting: int = 0
    # How many more can be taken later without anybody's help, beside the ``blocked`` ones.
    later: int = 0
    # Issues that only ``Filters.hold_discovered`` keeps from being taken.
    discovered: tuple[model.IssueId, ...] = ()
    # Issues in progress elsewhere; None if the tracker was not asked.
    held: tuple[HeldElsewhere, ...] | None = None
    # More may be claimed in our name than was ever told, until another take, which may be of 0,
    # says otherwise.
    unsure: bool = False


_UNKNOWN = model.Outcome(model.OutcomeKind.SUCCESS)


@model.value
class CrashedRun:
    """The writes that an earlier, crashed run left, as its journal tells."""

    actor: str
    unclosed: tuple[model.IssueId, ...] = ()
    handed_over: tuple[model.IssueId, ...] = ()
    # Issues that have had their last attempt, each with the note that says so.
    quarantined: tuple[tuple[model.IssueId, str], ...] = ()
    # Issues that are not ``quarantined`` any more; the tracker may still block them.
    reopened: tuple[model.IssueId, ...] = ()
    # Last attempts of which the source was not told.
    outcomes: tuple[tuple[model.IssueId, model.Outcome], ...] = ()
    # Issues that were claimed, and given to nobody.
    unstarted: tuple[model.IssueId, ...] = ()
    # Attempts of which nobody has heard the end.
    begun: tuple[model.IssueId, ...] = ()
    # Those of ``outcomes`` that were to go back to their senders.
    handed_back: tuple[model.IssueId, ...] = ()
    # Issues not to be touched, because a worker that was not ours may be at work on them.
    kept: tuple[model.IssueId, ...] = ()
    # Those of ``begun`` and of ``outcomes`` on which an agent worked, see ``Settlement.by_agent``.
    by_agents: tuple[model.IssueId, ...] = ()
    # Issues that are done, and whose branches have not landed, each with the note that says so.
    to_land: tuple[tuple[model.IssueId, str], ...] = ()
    # Issues that are ours although they may be blocked in nobody's name.
    shelved: tuple[model.IssueId, ...] = ()
    # This is a later run's journal of it, which knows only its closes. The other issues may be with
    # a worker that lives on; the run's own journal settles them.
    closes_only: bool = False
    # Those of ``quarantined`` that wait for an answer, with the question as their note.
    asked: tuple[model.IssueId, ...] = ()
    # Those of ``reopened`` that are opened even if they are closed.
    answered: tuple[model.IssueId, ...] = ()
    # Those of ``to_land`` whose branches wait for a person's approval, and those in review.
    awaiting: tuple[model.IssueId, ...] = ()
    in_review: tuple[model.IssueId, ...] = ()

    def closes(self, issue_ids: Iterable[model.IssueId]) -> list[Settlement]:
        """Return the writes for issues that are done, with the result of each, if known."""
        outcomes, handed_over = dict(self.outcomes), frozenset(self.handed_over)
        pending: list[Settlement] = []
        for key in issue_ids:
            came = outcomes.get(key, _UNKNOWN)
            result = came.result, came.result_file
            close = Settlement(Action.CLOSE, key, came.note, True, key in handed_over, *result)
            by_agent, shelved = key in self.by_agents, key in self.shelved
            pending.append(replace(close, by_agent=by_agent, shelved=shelved))
        return pending

    def back(self, issue_id: model.IssueId) -> Settlement:
        """Return the write for an issue that the run still holds, and that is not done."""
        note = dict(self.quarantined).get(issue_id)
        blocks = Action.ASK if issue_id in self.asked else Action.QUARANTINE
        action = Action.RELEASE if note is None else blocks
        if issue_id in self.reopened:
            # The quarantine may have reached the tracker before it was taken back, or may not.
            action, note = Action.REOPEN, None
        if (branch := dict(self.to_land).get(issue_id)) is not None:
            action, note = Action.SHELVE, branch
        return Settlement(
            action,
            issue_id,
            note or "",
            read_first=True,
            handed_over=issue_id in self.handed_over,
            by_agent=issue_id in self.by_agents,
            awaits=action is Action.SHELVE and issue_id in self.awaiting,
            in_review=action is Action.SHELVE and issue_id in self.in_review,
        )


@model.value
class TrackedIssue:
    """An issue as the tracker shows it; only read. Times are texts as the tracker has them."""

    issue_id: model.IssueId
    title: str
    status: str
    assignee: str = ""
    priority: int = model.PRIORITY_DEFAULT
    issue_type: str = "task"
    labels: tuple[str, ...] = ()
    # Issues that must be finished before it, finished or not.
    waits_for: tuple[model.IssueId, ...] = ()
    # The issues above it, directly; what holds one back holds it back too.
    parents: tuple[model.IssueId, ...] = ()
    deferred_until: str = ""
    closed_at: str = ""
    close_reason: str = ""
    # The path of the function that it names, if any.
    calls: str = ""
    # It brings a command.
    has_command: bool = False
    # The key that keeps it out of the backlog (``pinned``, ``ephemeral``), if any.
    hidden_by: str = ""
    # Why the source gives it to nobody, for people: "it has no label ready".
    refused: str = ""


def brought(seen: TrackedIssue) -> frozenset[str]:
    """Return the kinds of work that an issue brings with it, as in ``Filters.bring``."""
    found = ((model.FUNCTION, bool(seen.calls)), (model.COMMAND, seen.has_command))
    return frozenset(what for what, holds in found if holds)


@dataclass(slots=True)
class Calls:
    """Cost of the source so far; read by the tracker thread after each round trip.
    For ``bd``, processes."""

    count: int = 0
    seconds: float = 0.0


@runtime_checkable
class ReadableSource(Protocol):
    """A source that can say what it would give, and leaves it there."""

    def read(self, issue_ids: Sequence[model.IssueId]) -> dict[model.IssueId, model.Job]:
        """Return these issues as a ``take`` would give them now, with all that is known of each.

        Never writes. Issues that do not exist are left out. Raises ``SourceError``.
        """


@model.value
class Remark:
    """A comment that a person wants to have written through the fleet."""

    issue_id: model.IssueId
    text: str
    author: str


@model.value
class Reply:
    """A comment of an issue that waits for an answer; ``at``: epoch seconds, whole in most
    trackers."""

    author: str
    text: str
    at: float


def read_replies(issue: Mapping[str, Any]) -> tuple[Reply, ...]:
    """Return the comments of an issue's JSON, oldest first; those without a time are left out."""
    found = []
    listed = issue.get("comments")
    for each in listed if isinstance(listed, list | tuple) else ():
        fields = each if isinstance(each, Mapping) else {}
        author, text, at = (fields.get(name) for name in ("author", "text", "created_at"))
        try:
            moment = datetime.fromisoformat(at) if isinstance(at, str) else None
        except ValueError:
            moment = None
        if moment is not None:
            moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
            found.append(Reply(str(author or ""), str(text or ""), moment.timestamp()))
    return tuple(sorted(found, key=lambda comment: comment.at))


def answers(comments: Sequence[Reply], asked_at: float) -> list[Reply]:
    """Return the comments that answer a question asked at this time (epoch seconds).

    Trackers cut times to seconds. A comment within the second of the question is the agent's own:
    it was written before the attempt had ended.
    """
    return [comment for comment in comments if comment.at > floor(asked_at)]


@model.value
class Conversation:
    """An issue that waits for a person: its status, "" if it does not exist any more, its comments,
    oldest first, and its assignee."""

    issue_id: model.IssueId
    status: str
    comments: tuple[Reply, ...] = ()
    assignee: str = ""


def why_over(status: str, assignee: str, *, or_open: bool = False) -> str:
    """Return why an issue waits for no person any more; "" if it does.

    An issue that waits is blocked, or ``or_open``, and nobody has it. What a run of a fleet holds,
    that run settles. ``status``: "" if the issue does not exist.
    """
    if status == "closed":
        return CLOSED_BY_OTHERS
    if not status or status in FINISHED:
        return DELETED
    if assignee.startswith(model.FLEETS):
        return ""
    if status == "blocked" or (or_open and status == "open"):
        return f"assigned to {assignee}" if assignee else ""
    return f"its status is {status}"


@runtime_checkable
class ConversingSource(Protocol):
    """A source whose issues have comments, by which people answer."""

    def conversations(self, issue_ids: Sequence[model.IssueId]) -> tuple[Conversation, ...]:
        """Return these issues with their comments; those that are gone are left out.

        Never writes. Raises ``SourceError``.
        """


@runtime_checkable
class ClaimingSource(Protocol):
    """A source whose tracker shows which run holds what."""

    def held(self) -> tuple[HeldElsewhere, ...]:
        """Return the issues in progress in another name than this actor's, whatever the filters.

        Never writes. Raises ``SourceError``.
        """


@runtime_checkable
class WatchedSource(Protocol):
    """A source that sees by itself that somebody else has written to it."""

    def changed(self) -> bool:
        """Return whether somebody else may have written since the last ``take`` or the last True.

        This asks nobody, and costs next to nothing: an idle fleet calls it each second. A change
        that it misses is found when the source is asked next. Never raises ``SourceError``.
        """


class Source(Protocol):
    """See the module text. Every method may raise ``SourceError``; then nothing is known."""

    name: str
    """``bd``, ``sqlite``, ``memory``: ``Job.source`` of its jobs."""

    actor: str
    """Holder of its claims: ``beads-workers/<host>/<run id>``, unique to the run."""

    calls: Calls

    self_claiming: bool
    """Whether a plain v1 worker claims and closes through the tracker's own command line."""

    def describe(self) -> str:
        """Return one line for people: kind, version, mode, place. Ask the tracker for an answer."""

    def take(self, limit: int, skip: Collection[model.IssueId]) -> Taken:
        """Claim up to ``limit`` ready issues that are not in ``skip``; 0 only lists.

        Every job returned is ours and nobody else's. A claim lost to somebody else is simply
        not among them.
        """

    def settle(self, settlements: Sequence[Settlement]) -> list[Settled]:
        """Apply a group, in as few calls as possible; one answer for each, in order."""

    def renew(self, issue_ids: Sequence[model.IssueId]) -> Renewed:
        """Keep leases alive, and say which are no longer ours. No leases: an empty answer."""

    def recover(self, dead: CrashedRun) -> list[Settled]:
        """Settle what a crashed run left: close what it had done, requeue what it held.

        What its actor holds according to the tracker counts, not only what the journal names.
        Closes come with ``Action.CLOSE``, releases with ``Action.RELEASE``. Idempotent.
        """

    def look(self, issue_ids: Sequence[model.IssueId]) -> dict[model.IssueId, TrackedIssue]:
        """Return these issues as they are now, closed ones too; missing ones do not exist.

        Never writes. It serves people's questions, beside a fleet that works on the tracker.
        """

    def unfinished(self, rows_max: int) -> list[TrackedIssue]:
        """Return all issues that are not closed, whatever the filters.
        ``rows_max``: only the most urgent ones."""

    def ready(self) -> frozenset[model.IssueId]:
        """Return the issues that the tracker itself calls ready, whatever the filters."""

    def close(self) -> None:
        """End connections and helpers of our own; the source is not used afterwards."""


# --- changes by people ---------------------------------------------------------------------------


@model.value
class IssueEdit:
    """What a person writes into an issue; None leaves a field as it is."""

    title: str | None = None
    description: str | None = None
    notes: str | None = None
    priority: int | None = None
    issue_type: str | None = None
    # ``closed`` closes it, with ``reason``; ``open`` opens it again, whoever closed it.
    status: str | None = None
    reason: str = ""
    assignee: str | None = None
    added_labels: tuple[str, ...] = ()
    removed_labels: tuple[str, ...] = ()
    # Further dependencies, each with its type.
    depends_on: tuple[tuple[model.IssueId, str], ...] = ()
    # Dependencies that go, of any type.
    depends_no_more_on: tuple[model.IssueId, ...] = ()
    # ``command`` and ``timeout_seconds``: its own work, for a tracker that keeps it.
    command: tuple[str, ...] | None = None
    timeout_seconds: float | None = None


@model.value
class IssueComment:
    """A comment as the tracker has it. ``comment_id``: unique in its issue. ``created_at``: the
    tracker's own text."""

    comment_id: str
    author: str
    text: str
    created_at: str


@runtime_checkable
class EditableSource(Source, ReadableSource, Protocol):
    """A source whose tracker people change through us, in their own names.

    Every method raises ``NoSuchIssue`` or another ``NotDone`` if the tracker refuses; then nothing
    was written. An issue that a run of a fleet holds is neither deleted nor given another status or
    assignee: its worker would go on with an issue that somebody has ended.
    """

    def add(self, change: IssueEdit, author: str) -> model.IssueId:
        """Make an issue of the fields of ``change``, of which ``title`` is set; return its id."""

    def edit(self, issue_id: model.IssueId, change: IssueEdit, author: str) -> None:
        """Write what ``change`` names into the issue, and nothing else."""

    def comment(self, issue_id: model.IssueId, text: str, author: str) -> IssueComment:
        """Add a comment to an issue in any status, held or not; return it as it was kept."""

    def delete(self, issue_id: model.IssueId, author: str) -> None:
        """Delete the issue for good. Issues that depend on it no longer do."""
