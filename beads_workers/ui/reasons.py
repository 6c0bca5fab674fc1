"""Reasons why an issue does not run: of the scheduler, of the tracker, of filters. The only place
that names them: ``why``, the backlog, the dashboard and the page print what is found here.

``explain`` returns all reasons, the most decisive first, each with its remedy. They have
texts of issues unescaped: use ``core.base.text.printable`` before a terminal.
"""

from __future__ import annotations

import shlex
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import Enum
from functools import cached_property

from beads_workers.core.base.facts import NO_FLEET, AccountFacts, Facts, IssueFacts
from beads_workers.core.base.model import Filters, IssueId, value
from beads_workers.core.base.ready import FINISHED, HOLDS_NOTHING, NO_WORK
from beads_workers.core.base.source import TrackedIssue, brought, why_over
from beads_workers.core.base.text import counted
from beads_workers.ui.time_text import duration
from beads_workers.ui.words import FATE_WORDS


class Cause(Enum):
    """Causes; the values are the names in ``why --json``, and texts of ``ui.why`` follow them."""

    NOT_FOUND = "not_found"
    CLOSED = "closed"
    UNCLOSED = "unclosed"
    WAITING_TO_LAND = "waiting_to_land"
    RUNNING = "running"
    LOST = "lost"
    DELEGATING = "delegating"
    QUEUED = "queued"
    SETTLING = "settling"
    ON_HOLD = "on_hold"
    OCCUPIED = "occupied"
    QUARANTINED = "quarantined"
    ASKED = "asked"
    AWAITS_APPROVAL = "awaits_approval"
    IN_REVIEW = "in_review"
    IN_PROGRESS = "in_progress"
    ASSIGNED = "assigned"
    CYCLE = "cycle"
    BLOCKED = "blocked"
    DEFERRED = "deferred"
    STATUS = "status"
    NOT_READY = "not_ready"
    FILTERED = "filtered"
    COOLING = "cooling"
    NO_FLEET = "no_fleet"
    RECOVERING = "recovering"
    PAUSED = "paused"
    DRAINING = "draining"
    STOPPING = "stopping"
    TRACKER = "tracker_failing"
    LIMIT = "limit"
    ACCOUNT = "account"
    NO_WORKERS = "no_workers"
    BUSY = "all_busy"
    BEHIND = "behind"
    DUE = "due"


@value
class Reason:
    """A reason why an issue does not run."""

    cause: Cause
    text: str
    # What would end it.
    remedy: str = ""
    # The issues that it is about.
    issue_ids: tuple[str, ...] = ()
    # Epoch seconds.
    until: float | None = None


@dataclass(frozen=True)
class Picture:
    """Everything that is known at one moment."""

    facts: Facts
    now: float
    # Turns epoch seconds into a local time.
    clock: Callable[[float], str]
    # The issues asked about and everything they wait for, down to the roots.
    seen: Mapping[IssueId, TrackedIssue] = field(default_factory=dict)
    # The issues that the tracker itself calls ready; None if it was not asked.
    ready: frozenset[IssueId] | None = None
    # Why the tracker could not be read, or "".
    unseen: str = ""
    # Work is sent here, and is in no tracker.
    is_pushed: bool = False

    @property
    def has_fleet(self) -> bool:
        """Whether a fleet runs."""
        return self.facts.state != NO_FLEET

    @cached_property
    def known(self) -> dict[str, IssueFacts]:
        """The scheduler's facts by issue."""
        return {each.issue_id: each for each in self.facts.issues}

    def at(self, seconds: float) -> str:
        """Return a time so many seconds from now: ``14:03:20, in 95 s``."""
        return f"{self.clock(self.now + seconds)}, in {duration(round(seconds))}"


def epoch(text: str) -> float | None:
    """Return a tracker's time in epoch seconds; None if the text is no time."""
    try:
        found = datetime.fromisoformat(text)
        return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return None


OF_THE_FLEET = (
    Cause.NO_FLEET,
    Cause.RECOVERING,
    Cause.PAUSED,
    Cause.DRAINING,
    Cause.STOPPING,
    Cause.TRACKER,
    Cause.LIMIT,
    Cause.ACCOUNT,
    Cause.NO_WORKERS,
    Cause.BUSY,
    Cause.BEHIND,
)
"""Causes of the fleet, not of the issue: the issue itself is ready."""


_WAITS = ("asked", "awaits_approval", "in_review", "quarantined", "on_hold")


# --- all of them ---------------------------------------------------------------------------------


def explain(issue_id: IssueId, picture: Picture) -> list[Reason]:
    """Return every reason that holds, the most decisive first; never empty."""
    facts = picture.known.get(issue_id, IssueFacts(issue_id))
    seen = picture.seen.get(issue_id)
    waits = facts.standing in _WAITS or facts.in_flight == "shelved"
    on_hold = facts.standing == "on_hold"
    if seen is not None and waits and why_over(seen.status, seen.assignee, or_open=on_hold):
        facts = IssueFacts(issue_id)  # A person has taken it, or opened it again.
    ours = in_our_hands(facts, picture)
    if seen is None and not picture.unseen:
        if picture.is_pushed:
            text = "no job of that id waits or runs here: it is over, or never came"
            remedy = f"see 'beads-workers logs {issue_id}' and 'beads-workers list --envelopes'"
            return [Reason(Cause.NOT_FOUND, text, remedy)]
        remedy = "check the id; 'beads-workers list --all' shows what there is"
        return [Reason(Cause.NOT_FOUND, "the tracker has no issue of that id", remedy)]
    if seen is not None and seen.status in FINISHED:
        return [_closed(seen, picture)]
    if ours:
        return ours
    marks = remembered(issue_id, facts, picture)
    own = [m for m in marks if m.cause is not Cause.COOLING]
    found = [*own]
    if seen is not None:
        found += _by_the_tracker(seen, picture, marked=bool(own))
        found += filtered(seen, picture)
    found += [m for m in marks if m not in own]
    single = bool(found)
    fleet = of_the_fleet(picture)
    if facts.parked and not any(each.cause is Cause.ACCOUNT for each in fleet):
        fleet.append(account_closed(picture))
    found += fleet
    if seen is not None and not found:
        if picture.ready is not None and issue_id not in picture.ready:
            text = "the tracker itself does not list it as ready"
            return [Reason(Cause.NOT_READY, text, "see what the tracker shows of it")]
        return its_turn(seen, picture)
    if picture.unseen and not single:
        text = f"the tracker could not be looked at: {picture.unseen}"
        found.append(Reason(Cause.TRACKER, text, "ask again when it answers"))
    return found


def headline(issue_id: IssueId, reasons: list[Reason], picture: Picture) -> str:
    """Return the most decisive reason in one sentence."""
    first = reasons[0]
    if first.cause in OF_THE_FLEET and issue_id in picture.seen:
        return f"ready, but {first.text}"
    links = chain(issue_id, picture) if first.cause is Cause.BLOCKED else []
    if not links:
        return first.text
    # Follow the first path down to what has to happen first.
    way = links[:1]
    for link in links[1:]:
        if link.depth != len(way):
            break
        way.append(link)
    below = f", in the end for {way[-1].issue_id}" if len(way) > 1 else ""
    others = sum(link.depth == 0 for link in links) - 1
    more = f" (and for {others} more)" if others else ""
    return f"it waits for {links[0].issue_id}{below}, which is {way[-1].state}{more}"


# --- what the tracker shows ----------------------------------------------------------------------


def _closed(seen: TrackedIssue, picture: Picture) -> Reason:
    at = epoch(seen.closed_at)
    when = f" at {picture.clock(at)}" if at is not None else ""
    reason = f": {seen.close_reason}" if seen.close_reason else ""
    who = f" (last assigned to {seen.assignee})" if seen.assignee else ""
    again = f"'beads-workers reopen {seen.issue_id}' opens it again"
    return Reason(Cause.CLOSED, f"closed{when}{reason}{who}", again)


def _by_the_tracker(seen: TrackedIssue, picture: Picture, *, marked: bool) -> list[Reason]:
    """Return the tracker's reasons.

    ``marked``: another reason already explains why it is out of the backlog.
    """
    found = []
    if seen.status == "in_progress":
        found.append(_in_progress(seen, picture))
    elif seen.assignee:
        text = f"assigned to {seen.assignee}: left to them"
        found.append(Reason(Cause.ASSIGNED, text, "clear the assignee in the tracker"))
    found += _blocked(seen, picture)
    later = _later(seen, picture)
    if seen.hidden_by:
        text = f"it is {seen.hidden_by}: kept beside the backlog, and no work"
        found.append(Reason(Cause.STATUS, text, f"take {seen.hidden_by!r} off in the tracker"))
    if seen.refused:
        found.append(Reason(Cause.STATUS, seen.refused))
    if later:
        found += later
    elif seen.status == "deferred":
        found.append(Reason(Cause.DEFERRED, "deferred", "undefer it in the tracker"))
    elif seen.status not in ("open", "in_progress") and not marked:
        text = f"its status is {seen.status}: somebody took it out of the backlog"
        found.append(Reason(Cause.STATUS, text, "set its status to open in the tracker"))
    return found


def _later(seen: TrackedIssue, picture: Picture) -> list[Reason]:
    """Return reasons for an issue that is, or whose parent is, deferred until a later time."""
    above = [picture.seen[i] for i in seen.parents if i in picture.seen]
    found = []
    for each in (seen, *above):
        until = epoch(each.deferred_until)
        if until is not None and until > picture.now:
            whose = "" if each is seen else f"its parent {each.issue_id} is "
            text = f"{whose}deferred until {picture.at(until - picture.now)}"
            remedy = "wait, or undefer it in the tracker"
            found.append(Reason(Cause.DEFERRED, text, remedy, (), until))
    return found


def _in_progress(seen: TrackedIssue, picture: Picture) -> Reason:
    release = f"'beads-workers release {shlex.quote(seen.issue_id)}'"
    if not seen.assignee:
        remedy = f"if nobody works on it: {release}"
        return Reason(Cause.IN_PROGRESS, "in progress, in nobody's name", remedy)
    text = f"in progress by {seen.assignee}"
    words = seen.assignee.split("/")
    if words[0] != "beads-workers":
        remedy = f"{seen.assignee} finishes it; if nobody works on it: {release}"
        return Reason(Cause.IN_PROGRESS, text, remedy)
    if picture.facts.run_id in words[1:]:
        if picture.has_fleet:
            return Reason(Cause.IN_PROGRESS, "claimed by this fleet just now", "nothing to do")
        remedy = "the next 'beads-workers start' requeues it first"
        return Reason(Cause.IN_PROGRESS, f"{text}: held by a run that has ended", remedy)
    remedy = (
        "another run has it, here or elsewhere: if that run is over, its own next start requeues"
        f" it; 'beads-workers release --abandoned {shlex.quote(seen.issue_id)}' does it now"
    )
    return Reason(Cause.IN_PROGRESS, text, remedy)


def _blocked(seen: TrackedIssue, picture: Picture) -> list[Reason]:
    path: frozenset[IssueId] = frozenset({seen.issue_id})
    above = [i for i in seen.parents if is_held_up(i, picture, path)]
    direct = blockers(seen, picture)
    found = []
    if circle := cycle(seen.issue_id, picture):
        text = f"a cycle: {' waits for '.join(circle)}"
        remedy = "take one of these dependencies away in the tracker"
        found.append(Reason(Cause.CYCLE, text, remedy, tuple(circle[:-1])))
    if direct:
        roots = [link for link in chain(seen.issue_id, picture) if not _waits(link, picture)]
        first = ", ".join(dict.fromkeys(link.issue_id for link in roots if link.depth))
        remedy = f"it is ready when {_all(direct)} closed"
        remedy += f"; first of all: {first}" if first else ""
        text = f"blocked by {', '.join(direct)}"
        found.append(Reason(Cause.BLOCKED, text, remedy, tuple(direct)))
    if above:
        text = f"its parent {', '.join(above)} waits for something"
        remedy = "what holds the parent back holds it back, too"
        found.append(Reason(Cause.BLOCKED, text, remedy, tuple(above)))
    return found


def _waits(link: Link, picture: Picture) -> bool:
    return bool(blockers(picture.seen[link.issue_id], picture))


def _all(ids: list[IssueId]) -> str:
    return f"{ids[0]} is" if len(ids) == 1 else f"all of {', '.join(ids)} are"


# --- what this run knows --------------------------------------------------------------------------


_TO_LAND = ("landing", "shelving", "shelved")


def in_our_hands(facts: IssueFacts, picture: Picture) -> list[Reason]:
    """Return what this run does with the issue now, or has done."""
    if facts.standing == "awaits_approval":
        text = f"done, and its branch awaits approval{f'; {facts.ahead}' if facts.ahead else ''}"
        remedy = f"'beads-workers diff {facts.issue_id}' shows it, 'approve' lets it land"
        return [Reason(Cause.AWAITS_APPROVAL, text, remedy)]
    if facts.standing == "in_review":
        text = f"done, and in review: {facts.ahead}"
        remedy = "it is closed once it is merged: 'beads-workers pr' looks, and so does a fleet"
        return [Reason(Cause.IN_REVIEW, text, remedy)]
    if facts.in_flight in _TO_LAND:
        return [_waiting_to_land(facts, picture)]
    if facts.in_flight in ("closing",) or facts.standing == "unclosed":
        tries = f"; refused {facts.pending_tries} times so far" if facts.pending_tries else ""
        text = f"its work is done, and the close is still pending{tries}"
        remedy = "nothing to do: it is closed as soon as the tracker takes it, and never run again"
        if not picture.has_fleet:
            remedy = "the next 'beads-workers start' closes it; it is never run again"
        return [Reason(Cause.UNCLOSED, text, remedy)]
    most = picture.facts.attempts_max
    attempt = f"attempt {facts.attempt} of {most}" if most else f"attempt {facts.attempt}"
    attempt += f" by {facts.by}" if facts.by else ""
    match facts.in_flight:
        case "running":
            took = duration(facts.running_seconds or 0.0)
            text = f"it runs now: {facts.worker_id} has had it for {took}, {attempt}"
            remedy = f"follow it with 'beads-workers logs {facts.worker_id} -f'"
            return [Reason(Cause.RUNNING, text, remedy)]
        case "orphaned":
            text = f"its worker {facts.worker_id} is lost, and pid {facts.owner_pid} still lives"
            remedy = (
                f"nobody else gets it before pid {facts.owner_pid} has ended, or had its grace;"
                f" 'beads-workers release {facts.issue_id}' gives it back now"
            )
            return [Reason(Cause.LOST, text, remedy)]
        case "delegating":
            text = f"it is being handed over to {facts.worker_id} in the tracker"
            return [
                Reason(Cause.DELEGATING, text, "nothing to do: it runs as soon as that is done")
            ]
        case "claimed":
            return [_queued(facts, picture)]
        case "releasing" | "quarantining":
            what = "requeued" if facts.in_flight == "releasing" else "quarantined"
            tries = f" (refused {facts.pending_tries} times so far)" if facts.pending_tries else ""
            text = f"it is being {what} in the tracker{tries}"
            return [Reason(Cause.SETTLING, text, "nothing to do: it is asked for again")]
        case _:
            return []


BEHIND_NAMED = 3


def _waiting_to_land(facts: IssueFacts, picture: Picture) -> Reason:
    behind = f" behind {', '.join(facts.behind[:BEHIND_NAMED])}" if facts.behind else ""
    behind += f" and {more} more" if (more := len(facts.behind) - BEHIND_NAMED) > 0 else ""
    gate = facts.gate_seconds
    runs = f"; verify has run for {duration(gate)}" if gate is not None else ""
    text = f"its work is done, and waits to land{behind}{runs}"
    if facts.no_verdict:
        text = f"its work is done, and its gate had no verdict so far: {facts.no_verdict}{runs}"
    remedy = "nothing to do: it is closed as soon as it has landed"
    if not picture.has_fleet:
        remedy = "'beads-workers land' lands it now, and the next 'beads-workers start' as well"
    return Reason(Cause.WAITING_TO_LAND, text, remedy, issue_ids=facts.behind)


def _queued(facts: IssueFacts, picture: Picture) -> Reason:
    text = f"claimed for this fleet, and number {facts.position} in the queue for a worker"
    remedy = "it runs as soon as a worker is free; 'beads-workers scale N' has more of them"
    if picture.facts.state == "paused":
        remedy = "'beads-workers resume' lets workers have it"
    return Reason(Cause.QUEUED, text, remedy)


def remembered(issue_id: IssueId, facts: IssueFacts, picture: Picture) -> list[Reason]:
    """Return reasons that earlier attempts, or a person, left."""
    last = f"; last error: {facts.error}" if facts.error else ""
    most = picture.facts.attempts_max
    match facts.standing:
        case "on_hold":
            text = "a person put it on hold ('beads-workers release')"
            remedy = f"'beads-workers retry {issue_id}' takes it off hold; so does a new run"
            return [Reason(Cause.ON_HOLD, text, remedy)]
        case "occupied":
            remedy = "leave that folder, or end that program: it is tried again at once"
            return [Reason(Cause.OCCUPIED, facts.error, remedy)]
        case "asked":
            text = f"its agent asks a person: {facts.error}"
            return [Reason(Cause.ASKED, text, f"'beads-workers answer {issue_id}' answers")]
        case "quarantined":
            text = f"quarantined after {counted(facts.charged, 'attempt')}{last}"
            if not facts.charged and facts.error:
                # The work was done, but did not land.
                text = f"quarantined: {facts.error}"
            remedy = f"'beads-workers retry {issue_id}' gives it new attempts"
            return [Reason(Cause.QUARANTINED, text, remedy)]
        case "cooling" if facts.again_seconds is not None:
            attempt = f"attempt {facts.attempt}" + (f" of {most}" if most else "")
            attempt += f" by {facts.by}" if facts.by else ""
            text = f"cooling down until {picture.at(facts.again_seconds)}: then {attempt}{last}"
            remedy = f"wait, or 'beads-workers retry {issue_id}' to try it now"
            until = picture.now + facts.again_seconds
            return [Reason(Cause.COOLING, text, remedy, until=until)]
        case _:
            return []


def of_the_fleet(picture: Picture) -> list[Reason]:
    """Return the fleet's own reasons, which hold back every issue."""
    facts = picture.facts
    why = f": {facts.state_reason}" if facts.state_reason else ""
    if facts.state == "waiting" and (until := facts.begins_at) is not None:
        begins = picture.at(until + 0.01 - picture.now)  # Not 22:59:59 for want of a nanosecond.
        text = f"the fleet begins at {begins} (--start-at)"
        return [Reason(Cause.PAUSED, text, "'beads-workers resume' begins at once", until=until)]
    simple = {
        NO_FLEET: (Cause.NO_FLEET, "no fleet is running here", "'beads-workers start'"),
        "recovering": (
            Cause.RECOVERING,
            "the fleet is still settling what an earlier run left",
            "nothing to do: it takes issues as soon as that is done",
        ),
        "paused": (Cause.PAUSED, f"the fleet is paused{why}", "'beads-workers resume'"),
        "draining": (
            Cause.DRAINING,
            "the fleet is draining: what runs may finish, nothing new is taken",
            "'beads-workers start' when it has ended",
        ),
    }
    found = [Reason(*simple[facts.state])] if facts.state in simple else []
    if facts.state in ("stopping", "settling", "ended"):
        text = "the fleet is stopping"
        found = [Reason(Cause.STOPPING, text, "'beads-workers start' when it has ended")]
    if (trouble := facts.trouble) is not None:
        tried = f"{trouble.failures} times in a row" if trouble.failures > 1 else "once"
        since = duration(round(trouble.since_seconds))
        text = f"the tracker has failed {tried}, for {since}: {trouble.error}"
        remedy = f"it is asked again at {picture.at(trouble.again_seconds)}"
        if trouble.hint:
            remedy += f"; {trouble.hint}"
        until = picture.now + trouble.again_seconds
        found.append(Reason(Cause.TRACKER, text, remedy, until=until))
    if facts.issues_max is not None and facts.ended >= facts.issues_max:
        text = f"--limit {facts.issues_max} is reached: {facts.ended} issues came to their end"
        found.append(Reason(Cause.LIMIT, text, "start again, with a higher --limit or none"))
    if facts.all_closed:
        found.append(account_closed(picture))
    if picture.has_fleet and not facts.slots:
        found.append(_no_workers(facts))
    return found


def account_closed(picture: Picture) -> Reason:
    """Return the closed accounts of agents, and what opens them; there is at least one."""
    closed = sorted(picture.facts.accounts, key=lambda each: each.probe_seconds)
    text = "; ".join(_closed_account(each, picture) for each in closed)
    persons = [each for each in closed if each.trouble == "needs_person"]
    remedy = "nothing to do: one attempt finds out when it opens, and the others follow"
    if persons and len(persons) == len(closed):
        how = [f"mend it with '{each.todo}'" if each.todo else "mend it" for each in persons]
        remedy = f"{', '.join(dict.fromkeys(how))}, then 'beads-workers resume'"
    until = picture.now + closed[0].probe_seconds if closed else None
    return Reason(Cause.ACCOUNT, text or "its agents' accounts are closed", remedy, (), until)


def _closed_account(account: AccountFacts, picture: Picture) -> str:
    only = f" ({account.model} only)" if account.model else ""
    text = f"{account.agent}{only}: {account.why}"
    if account.until_seconds is not None:
        return f"{text} until {picture.at(account.until_seconds)}"
    return f"{text}; tried again at {picture.at(account.probe_seconds)}"


def _no_workers(facts: Facts) -> Reason:
    if facts.starting:
        text = f"no worker is there yet: {facts.starting} are starting"
        return Reason(Cause.NO_WORKERS, text, "'beads-workers logs' shows if they crash")
    return Reason(Cause.NO_WORKERS, "the fleet has no workers", "'beads-workers scale 4'")


def its_turn(seen: TrackedIssue, picture: Picture) -> list[Reason]:
    """Return why an issue that could be taken was not taken yet."""
    facts = picture.facts
    ahead = sum(facts.listed[: seen.priority]) + facts.unsent
    found = []
    if facts.busy >= facts.slots:
        text = "the worker is busy" if facts.slots == 1 else f"all {facts.slots} workers are busy"
        remedy = "it is taken when one is free; 'beads-workers scale N' has more of them"
        found.append(Reason(Cause.BUSY, text, remedy))
    if ahead and found:
        text = f"{ahead} issues that are more urgent, or claimed already, go first"
        remedy = f"its priority is {seen.priority}; 0 is the most urgent"
        found.append(Reason(Cause.BEHIND, text, remedy))
    if found:
        return found
    text, until = "it can be taken: the fleet is just asking the tracker for work", None
    if facts.look_seconds is not None:
        until = picture.now + facts.look_seconds
        text = f"it can be taken: the tracker is asked again at {picture.at(facts.look_seconds)}"
    return [Reason(Cause.DUE, text, "nothing to do", until=until)]


# --- waits ---------------------------------------------------------------------------------------
# The issues that an issue waits for in the tracker, down to the roots, with cycles.


CHAIN_LINES_MAX = 30
"""Number of lines about blockers: more are no answer any more."""


@value
class Link:
    """A line about a blocker; ``depth`` 0: the issue itself waits for it."""

    depth: int
    issue_id: IssueId
    title: str
    state: str


def chain(issue_id: IssueId, picture: Picture) -> list[Link]:
    """Return the blockers of an issue and their blockers, down to the roots, up to a limit."""
    links: list[Link] = []
    for link in _walk(issue_id, picture, (issue_id,), set()):
        if len(links) == CHAIN_LINES_MAX:
            break
        links.append(link)
    return links


def blockers(seen: TrackedIssue, picture: Picture) -> list[IssueId]:
    """Return unfinished issues that this one waits for directly; missing ones do not block."""
    named = [i for i in seen.waits_for if i in picture.seen]
    return [i for i in named if picture.seen[i].status not in HOLDS_NOTHING]


def _walk(
    issue_id: IssueId, picture: Picture, path: tuple[IssueId, ...], shown: set[IssueId]
) -> Iterator[Link]:
    seen = picture.seen.get(issue_id)
    if seen is None or len(path) > CHAIN_LINES_MAX:
        return
    held_up = [i for i in seen.parents if is_held_up(i, picture, frozenset(path))]
    for each in [*blockers(seen, picture), *held_up]:
        depth, title = len(path) - 1, picture.seen[each].title
        if each in path:
            yield Link(depth, each, title, "waiting for itself: a cycle")
            continue
        state = _state(each, picture)
        if each in held_up:
            state = f"its parent, {state}"
        yield Link(depth, each, title, state + (" (as above)" if each in shown else ""))
        if each not in shown:
            shown.add(each)
            yield from _walk(each, picture, (*path, each), shown)


def is_held_up(issue_id: IssueId, picture: Picture, path: frozenset[IssueId]) -> bool:
    """Return whether a parent holds its children back: it or its own parent waits."""
    seen = picture.seen.get(issue_id)
    if seen is None or issue_id in path or seen.status in HOLDS_NOTHING:
        return False
    if blockers(seen, picture):
        return True
    return any(is_held_up(i, picture, path | {issue_id}) for i in seen.parents)


def _state(issue_id: IssueId, picture: Picture) -> str:
    seen = picture.seen[issue_id]
    facts = picture.known.get(issue_id)
    if facts is not None:
        if facts.in_flight == "running":
            return f"in progress with {facts.worker_id}"
        if facts.in_flight in _TO_LAND:
            return FATE_WORDS["waiting_to_land"]
        if facts.standing in ("quarantined", "asked") and seen.status != "open":
            after = f" after {counted(facts.charged, 'attempt')}" if facts.charged else ""
            return f"quarantined{after}"
        if facts.standing == "on_hold":
            return "on hold: a person released it"
        if facts.standing == "occupied":
            return facts.error
        if facts.standing == "cooling" and facts.again_seconds is not None:
            return f"cooling down until {picture.at(facts.again_seconds)}"
    status = seen.status.replace("_", " ")
    if status == "open" and blockers(seen, picture):
        status = "blocked itself"
    if seen.issue_type in NO_WORK:
        status += f", and no work itself but {a(seen.issue_type)}"
    return f"{status}, {seen.assignee}" if seen.assignee else status


def cycle(start: IssueId, picture: Picture) -> list[IssueId]:
    """Return the shortest cycle through ``start``, with it at both ends; empty without one."""
    before: dict[IssueId, IssueId] = {}
    queue = deque([start])
    while queue:
        here = queue.popleft()
        seen = picture.seen.get(here)
        for each in blockers(seen, picture) if seen else ():
            if each == start:
                return [start, *_way_back(here, start, before), start]
            if each not in before:
                before[each] = here
                queue.append(each)
    return []


def _way_back(
    issue_id: IssueId, start: IssueId, before: Mapping[IssueId, IssueId]
) -> list[IssueId]:
    way = []
    while issue_id != start:
        way.append(issue_id)
        issue_id = before[issue_id]
    return way[::-1]


def a(noun: str) -> str:
    """Return the noun with its article."""
    return f"an {noun}" if noun[:1] in "aeiou" else f"a {noun}"


# --- filtered ------------------------------------------------------------------------------------
# The filters of a fleet that leave an issue out, with the issue's own value for each.


def filtered(seen: TrackedIssue, picture: Picture) -> list[Reason]:
    """Return one reason for each filter of the fleet that leaves this issue out."""
    wanted = picture.facts.filters
    has = f"its labels are {', '.join(seen.labels)}" if seen.labels else "it has no label"
    labels = set(seen.labels)
    found = [(f"--label {each}", has) for each in wanted.labels if each not in labels]
    if wanted.labels_any and labels.isdisjoint(wanted.labels_any):
        found.append((f"--label-any {' or '.join(wanted.labels_any)}", has))
    found += [(f"--exclude-label {x}", has) for x in wanted.exclude_labels if x in labels]
    if wanted.types and seen.issue_type not in wanted.types:
        found.append((f"--type {' or '.join(wanted.types)}", f"its type is {seen.issue_type}"))
    if wanted.priorities and seen.priority not in wanted.priorities:
        priorities = " or ".join(map(str, wanted.priorities))
        found.append((f"--priority {priorities}", f"its priority is {seen.priority}"))
    if wanted.parent is not None and not _is_under(seen, wanted.parent, picture):
        above = f"its parent is {seen.parents[0]}" if seen.parents else "it has no parent"
        found.append((f"--parent {wanted.parent}", above))
    if wanted.only and seen.issue_id not in wanted.only:
        found.append((f"only {', '.join(wanted.only[:5])}", "it was not named at the start"))
    reasons = [
        Reason(Cause.FILTERED, f"filtered by {what}: {own}", f"start without {what.split()[0]}")
        for what, own in found
    ]
    return _container(seen, wanted) + reasons + _brings_nothing(seen, wanted)


def _container(seen: TrackedIssue, wanted: Filters) -> list[Reason]:
    if wanted.types or seen.issue_type not in NO_WORK:
        return []
    holds = seen.issue_type in ("epic", "gate", "molecule")
    what = "it holds the work of others" if holds else "that is no work"
    text = f"it is {a(seen.issue_type)}: {what}, and is left out"
    return [Reason(Cause.FILTERED, text, f"start with --type {seen.issue_type} to take it")]


def _brings_nothing(seen: TrackedIssue, wanted: Filters) -> list[Reason]:
    if not wanted.bring or not brought(seen).isdisjoint(wanted.bring):
        return []
    lacks = " and ".join(f"no {what} of its own" for what in wanted.bring)
    text = f"it has {lacks}, and the fleet has none for it"
    return [Reason(Cause.FILTERED, text, "start with a command or an agent")]


def _is_under(seen: TrackedIssue, ancestor: str, picture: Picture) -> bool:
    above, known = list(seen.parents), set[IssueId]()
    while above:
        each = above.pop()
        if each == ancestor:
            return True
        if each not in known:
            known.add(each)
            above += picture.seen[each].parents if each in picture.seen else ()
    return False
