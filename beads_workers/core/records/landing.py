"""The messages to the lander and from it: plain values, and their JSON.

The lander (room ``landing``) is a process of its own, so that no git command and no gate holds up
the loop. It gets ``LanderSettings`` as its first line, then ``Orders``; it answers with ``News``.
Each is one JSON object a line: ``{"add": {...}}``, ``{"landed": {...}}``. The lander keeps nothing
that it cannot read back from the repository. So it may be killed at any moment and be asked for the
same again: it answers at once with ``Landed`` for what has landed already. Source: docs/LANDING.md.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from typing import Any

from beads_workers.core.base import limits
from beads_workers.core.base.model import PRIORITY_DEFAULT, value
from beads_workers.core.base.plain import BAD_VALUE, from_plain, to_plain
from beads_workers.core.base.settings import Landing, Worktrees
from beads_workers.core.base.text import counted

LAND_ASK = "land:ask"
"""Label of an issue whose branch lands only once a person has approved it."""


def awaits_approval(labels: Iterable[str], *, approves: bool) -> bool:
    """Return whether a person has to approve the branch of an issue with these labels.

    ``approves``: of the run in which its attempt ended, as in ``FleetSettings.approve``.
    """
    return approves or LAND_ASK in labels


@value
class LanderSettings:
    """``verify``: the gate, a ``sh -c`` line; None: every branch that merges lands; ``sight``: see
    ``Work``. Seconds are floats."""

    landing: Landing
    worktrees: Worktrees
    run_id: str
    verify: str | None = None
    term_grace_seconds: float = limits.TERM_GRACE_SECONDS
    sight: str = ""
    # The variables with logins of the forge, for the lander alone, and what no gate gets of this
    # process's environment (``processes.hide``).
    logins: Mapping[str, str] = field(default_factory=dict, hash=False, repr=False)
    secrets: tuple[str, ...] = ()


@value
class Pull:
    """A pull request, as it was seen last."""

    # 0 until it is open.
    number: int = 0
    url: str = ""
    # The commit of ours that is its head, and the branch's commit (``Add.commit``) that is in it.
    commit: str = ""
    of: str = ""
    # As in ``pulls``: all checks together.
    checks: str = ""
    # ``approved``, ``changes`` (somebody wants some), or "".
    review: str = ""
    # What it waits for, for people.
    waits: str = ""
    # Keys of the remarks that the agent was told of, and how often it was.
    told: tuple[str, ...] = ()
    rounds: int = 0
    # Remarks of those who may not write: nobody follows them.
    others: int = 0
    # The commit whose flaky checks were run again.
    again: str = ""


# --- orders --------------------------------------------------------------------------------------


@value
class Add:
    """Land this branch. If it ``awaits`` approval by a person, only gate it (``GatedAhead``)."""

    issue_id: str
    attempt: int
    run_id: str
    # The branch's head, by its full name.
    commit: str
    # The commit that the branch began with, by its full name.
    base: str
    branch: str = ""
    # This, ``text``, ``issue_type`` and ``labels``: for the commit that lands.
    title: str = ""
    text: str = ""
    # With ``ended_at`` it gives the order.
    priority: int = PRIORITY_DEFAULT
    # Epoch seconds of the attempt's end.
    ended_at: float = 0.0
    # How often it came back mended.
    repairs: int = 0
    issue_type: str = "task"
    labels: tuple[str, ...] = ()
    # Of a commit that had landed and was taken back, as it stood there.
    subject: str = ""
    awaits: bool = False
    # A person has approved it.
    approved: bool = False
    # Its pull request, as far as it is known.
    pull: Pull | None = None
    # What the issue has cost so far, in dollars.
    money: float = 0.0


@value
class CancelLanding:
    """Do not land this issue's branch.
    The answer is ``LandingCancelled``, or ``Landed`` if the order came too late."""

    issue_id: str


@value
class GoOn:
    """Look again now: a person says that the cause of the pause is fixed."""


Order = Add | CancelLanding | GoOn


# --- news ----------------------------------------------------------------------------------------


@value
class Tip:
    """The integration branch's position. ``verified``: the tip's own gate; None: not run yet."""

    commit: str
    branch: str
    verified: bool | None = None


@value
class Gate:
    """A gate begins, or has ended."""

    # From 0 on.
    lane: int
    # ``began``, ``green``, ``red``, ``none`` (there was no verdict: ``why``), or ``stopped``
    # (nobody wants its verdict any more).
    state: str
    tree: str
    # Those in the tree that have not landed, in order; none for the tip itself.
    issues: tuple[str, ...] = ()
    seconds: float = 0.0
    why: str = ""
    # It was red before.
    flaky: bool = False
    # It was not run, because its verdict was known.
    kept: bool = False


@value
class WithoutVerdict:
    """No gate had a verdict on a branch alone. Nobody is blamed, and it is tried again, with no
    other gate beside it."""

    issue_id: str
    attempt: int
    # Why there was none the last time.
    why: str
    # How often there was none.
    times: int
    # Until it is tried again.
    seconds: float


@value
class GatedAhead:
    """The gate has a verdict on a branch that awaits approval.

    A red branch, or one that conflicts with the tip, is ``Refused`` as any other. Approved on that
    tip, the branch lands without another gate.
    """

    issue_id: str
    # The commit of the branch that was gated.
    commit: str
    # ``green``, or ``none`` (``why``).
    verdict: str
    # The commit that the branch was gated on, alone.
    tip: str
    why: str = ""


@value
class NeedsApproval:
    """A branch is not proposed before a person has approved it. ``text``: why, one line."""

    issue_id: str
    attempt: int
    text: str


@value
class InReview:
    """The branch has a pull request, or waits until there is room for one: people and their CI
    judge it. Said again whenever ``pull`` changes."""

    issue_id: str
    attempt: int
    pull: Pull


@value
class Landed:
    """A branch is on the integration branch."""

    issue_id: str
    attempt: int
    # Its commit there, read back from the ref.
    commit: str
    # The tree that passed the gate with it inside; "" if there is no gate. ``receipts.INDEPENDENT``
    # follows the tree if the pass says little.
    verified: str = ""
    train: tuple[str, ...] = ()
    # The branch had nothing that was not there already.
    contained: bool = False
    # Number of the pull request as which the forge has merged it.
    pull: int = 0


@value
class Refused:
    """A branch cannot land as it is.

    After ``verify`` (see ``why``), if gates are known to be flaky, and after ``gate`` it is tried
    once more when nobody waits, and ``Landed`` may follow; ``CancelLanding`` prevents that.
    """

    issue_id: str
    attempt: int
    # One of six: ``conflict`` (with the tip); ``verify`` (the tip alone is green, with it the gate
    # is red); ``gate`` (the tip alone is green, and with it there was never a verdict, however
    # often and long it was tried: ``text``); ``branch`` (what it names is not there, or git cannot
    # merge it). Of a pull request, ``verify`` if its checks are red, ``rejected`` if reviewers have
    # remarks, and ``closed`` if it was closed without a merge.
    why: str
    # For whoever mends it: files in conflict, or the end of verify's output.
    text: str = ""
    files: tuple[str, ...] = ()
    # The commit that it was tried on.
    tip: str = ""
    # Issues whose landed work it does not fit.
    against: tuple[str, ...] = ()


@value
class Mend:
    """For the attempt that mends a refused branch."""

    # This and ``files``: as in ``Refused``.
    why: str
    # The commit that the branch is to fit.
    tip: str
    files: tuple[str, ...] = ()


@value
class LandingCancelled:
    """The issue's branch will not land."""

    issue_id: str


@value
class LandingPaused:
    """Nothing lands until a person has fixed this; ``files``: those in conflict, if any."""

    why: str
    files: tuple[str, ...] = ()


@value
class LandingResumed:
    """Landing goes on after a pause."""


@value
class LanderWarned:
    """A warning for people: somebody has moved or removed the integration branch."""

    text: str


@value
class Idle:
    """Nothing is under way, and nothing will be until an order comes or the repository changes.
    ``waiting``: branches that wait all the same, because landing is paused."""

    waiting: int = 0


@value
class After:
    """``[landing] after`` has run. ``text``: the end of what it printed, if it failed."""

    status: int
    text: str = ""


@value
class Into:
    """The position of the user's branch of ``--land-into``, or how it is to get what has landed."""

    branch: str
    commit: str
    # It could not be moved; of a pull request, how that is.
    why: str = ""
    # What a person may type instead.
    command: str = ""
    # Of the pull request that brings all that has landed there.
    url: str = ""


News = (
    Tip
    | Gate
    | WithoutVerdict
    | GatedAhead
    | NeedsApproval
    | InReview
    | Landed
    | Refused
    | LandingCancelled
    | LandingPaused
    | LandingResumed
    | LanderWarned
    | Idle
    | After
    | Into
)


# --- order ---------------------------------------------------------------------------------------


def turn(add: Add) -> tuple[int, float, str]:
    """Return the sort key of landing: by priority, then by the end of the attempt."""
    return add.priority, add.ended_at, add.issue_id


def ahead_of(mine: Add, others: Iterable[Add]) -> tuple[str, ...]:
    """Return the issues among these that are to land before this one, in order."""
    ahead = [add for add in others if turn(add) < turn(mine)]
    return tuple(add.issue_id for add in sorted(ahead, key=turn))


# --- texts ---------------------------------------------------------------------------------------

FILES_NAMED = 5
SET_UP_FAILED = "setup failed"
"""Beginning of the reason of a gate whose set-up failed."""
CHECKS_RED = "checks of its pull request failed"
"""Beginning of the reason, if the forge's CI says so."""


def refusal_text(
    why: str, files: Sequence[str] = (), against: Sequence[str] = (), text: str = ""
) -> str:
    """Return why a branch did not land, as one line. ``text``: as in ``Refused``."""
    others = ", ".join(against[:FILES_NAMED]) + (", ..." if len(against) > FILES_NAMED else "")
    behind = f" (landed by {'one of ' if len(against) > 1 else ''}{others})" if against else ""
    match why:
        case "conflict":
            more = f" and {len(files) - FILES_NAMED} more" if len(files) > FILES_NAMED else ""
            named = ", ".join(files[:FILES_NAMED]) + more
            return f"its branch conflicts with what has landed{behind}: {named}".rstrip(": ")
        case "gate":
            return f"the gate cannot tell of its branch: {text.partition(chr(10))[0]}".rstrip(": ")
        case "closed":
            return text
        case "rejected":
            return f"a person rejects it: {text.partition(chr(10))[0]}"
        case "verify" if text.startswith(CHECKS_RED):
            return text.partition(chr(10))[0]
        case "verify" if text.startswith(SET_UP_FAILED):
            return f"on its branch, {text.partition(chr(10))[0]}"
        case "verify":
            said = text.partition(chr(10))[0].removeprefix("verify: ") if text else ""
            more = f": {said}" if said.startswith('"') else ""
            return f"verify fails on its branch together with what has landed{behind}{more}"
        case _:
            lines = (line.strip() for line in text.splitlines())
            return next(filter(None, lines), "its branch is not there any more")


def without_verdict_text(news: WithoutVerdict) -> str:
    """Return why an issue has not landed yet, as a sentence without its subject."""
    again = f"it is tried again alone in {news.seconds:.0f} s"
    return f"had no verdict so far ({counted(news.times, 'time')}): {news.why}; {again}"


def ahead_text(ahead: GatedAhead | None) -> str:
    """Return the gate's verdict on a branch that awaits approval, as one line; "" without one."""
    if ahead is None:
        return ""
    if ahead.verdict == "green":
        return f"verify passes on {ahead.tip[:12]}{f' ({ahead.why})' if ahead.why else ''}"
    return f"verify gave no verdict: {ahead.why}"


def pull_text(pull: Pull) -> str:
    """Return what a pull request is like, as one line."""
    checks = f"checks {pull.checks}" if pull.checks else ""
    review = {"approved": "approved", "changes": "changes are wanted"}.get(pull.review, "")
    others = f"{counted(pull.others, 'remark')} of others" if pull.others else ""
    waits = f"waits for {pull.waits}" if pull.waits else ""
    said = ", ".join(filter(None, (checks, review, others, waits)))
    return ": ".join(filter(None, (pull.url, said)))


def kept_text(why: str, add: Add | None) -> str:
    """Return that somebody else has the issue, and what became of its work, as one line."""
    if add is None:
        return why
    return f"{why}; its branch stays: {add.branch or add.commit[:12]}"


AWAITS, REVIEW = "awaits approval", "in review"
"""``LandingEnded.text`` of an issue that is set aside for people."""


def shelve_note(add: Add | None, pull: Pull | None = None) -> str:
    """Return the tracker's note for people about an issue whose branch waits. ``pull``: its pull
    request."""
    if pull is not None:
        return f"beads-workers: done, and in review{f': {pull.url}' if pull.url else ''}"
    branch = add.branch or add.commit[:12] if add else "its branch"
    if add is not None and add.awaits:
        return f"beads-workers: done, and {branch} {AWAITS}"
    how = "the next 'beads-workers start' or 'beads-workers land' lands it and closes this"
    return f"beads-workers: done, and {branch} has not landed yet; {how}"


def landed_note(note: str, landed: Any) -> str:
    """Return a close reason with the commit that landed, if one did."""
    if landed is None or not landed.commit:
        return note
    how = "was landed already as" if landed.contained else "landed as"
    how = f"merged by pull request {landed.pull} as" if landed.pull else how
    on = f" on {landed.branch}" if landed.branch else ""
    landed_text = f"{how} {landed.commit[:12]}{on}"
    room = limits.CLOSE_REASON_CHARS_MAX - len(landed_text) - 2
    return f"{landed_text}; {note[:room]}" if note else landed_text


# --- lines ---------------------------------------------------------------------------------------

_NAMES: dict[type[Any], str] = {
    Add: "add",
    CancelLanding: "cancel",
    GoOn: "go_on",
    Tip: "tip",
    Gate: "gate",
    WithoutVerdict: "untold",
    GatedAhead: "gated_ahead",
    NeedsApproval: "needs_approval",
    InReview: "in_review",
    Landed: "landed",
    Refused: "refused",
    LandingCancelled: "cancelled",
    LandingPaused: "paused",
    LandingResumed: "resumed",
    LanderWarned: "warned",
    Idle: "idle",
    After: "after",
    Into: "into",
}
_KINDS = {name: kind for kind, name in _NAMES.items()}


def to_line(message: Order | News) -> bytes:
    """Return an order or news as one line of JSON."""
    return json.dumps({_NAMES[type(message)]: to_plain(message)}).encode() + b"\n"


def from_line(line: bytes) -> Any:
    """Read a line of ``to_line``: an ``Order`` or a ``News``. Raise ``ValueError`` for all else."""
    try:
        message = json.loads(line)
    except RecursionError as error:
        raise ValueError(str(error)) from None
    if not isinstance(message, Mapping) or len(message) != 1:
        raise ValueError("not one message")
    ((name, fields),) = message.items()
    if name not in _KINDS or not isinstance(fields, Mapping):
        raise ValueError(f"no such message: {name}")
    try:
        return from_plain(_KINDS[name], fields)
    except BAD_VALUE as error:
        raise ValueError(f"{name}: {error}") from None


def read_mend(fields: Any) -> Mend | None:
    """Read a ``Mend`` from a TASK; return None for anything else, and without a ``tip``."""
    try:
        repair = from_plain(Mend, fields)
    except BAD_VALUE:
        return None
    return repair if repair.tip else None


def settings_to_line(settings: LanderSettings) -> bytes:
    """Return the settings as the first line that a lander reads."""
    return json.dumps(to_plain(settings)).encode() + b"\n"


def settings_from_line(line: bytes) -> LanderSettings:
    """Read the settings back; raise one of ``BAD_VALUE``."""
    return from_plain(LanderSettings, json.loads(line))
