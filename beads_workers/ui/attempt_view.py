"""One attempt with everything around it, as data: the dashboard and the live page draw it. Pure.

A ``Pin`` names the attempt that a person has opened. It is the same attempt whatever else begins or
ends, until the person opens another one. ``attempt_view`` finds the pinned attempt among all
attempts of its issue, in the histories of the night's runs. ``running``, ``now`` and ``actions``
read a snapshot (``status --json``). ``views.attempt_files`` reads files: histories, logs and diffs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from beads_workers.core.base.model import value
from beads_workers.core.base.text import printable
from beads_workers.core.records.receipts import SHA_CHARS
from beads_workers.core.views.history import CUT_OFF, RUNNING, Attempt, History, LandingHistory
from beads_workers.ui.agents import receipt_lines, used
from beads_workers.ui.time_text import clock, duration
from beads_workers.ui.words import DID_NOT_LAND, OUTCOME_WORDS

Fields = Mapping[str, Any]
"""A snapshot, or a row of one."""

Heading = str
ERROR_WIDTH = 300
SAME_SECONDS = 0.05
"""Tolerance of times of one attempt: each is rounded to a millisecond."""

# --- pins ----------------------------------------------------------------------------------------


@value
class Pin:
    """Name of an attempt."""

    issue_id: str
    run_id: str
    # 0 for the newest attempt of the issue. A free retry has the number of the attempt before it.
    number: int = 0
    worker_id: str = ""
    # These tell a free retry from the attempt before it: ``began`` (seconds of the run) or
    # ``ended_at`` (epoch seconds), whichever the opened row has, and ``request_id``.
    began: float | None = None
    ended_at: float | None = None
    # "" until the journals were read.
    request_id: str = ""


def pin_worker(row: Fields, snapshot: Fields) -> Pin:
    """Return the pin of the attempt that a worker runs; ``row``: of ``workers``, a busy one."""
    return Pin(
        row["issue_id"],
        snapshot["run_id"],
        row["attempt"],
        row["worker_id"],
        began=snapshot["uptime_seconds"] - row["elapsed_seconds"],
    )


def pin_outcome(row: Fields, snapshot: Fields) -> Pin:
    """Return the pin of an attempt that ended; ``row``: of ``outcomes``."""
    return Pin(
        row["issue_id"],
        snapshot["run_id"],
        row["attempt"],
        row["worker_id"],
        ended_at=row["at"],
    )


def pin_issue(issue_id: str, snapshot: Fields) -> Pin:
    """Return the pin of an issue's newest attempt: the running one, the last one that ended in this
    run, or whichever the journals tell."""
    for worker in snapshot["workers"]:
        if worker["issue_id"] == issue_id:
            return pin_worker(worker, snapshot)
    for outcome in reversed(snapshot["outcomes"]):
        if outcome["issue_id"] == issue_id:
            return pin_outcome(outcome, snapshot)
    return Pin(issue_id, snapshot["run_id"])


def running(pin: Pin, snapshot: Fields) -> Fields | None:
    """Return the row of the worker that runs the pinned attempt now; None if it has ended."""
    if pin.ended_at is not None or pin.run_id != snapshot["run_id"]:
        return None
    for row in snapshot["workers"]:
        if (row["worker_id"], row["issue_id"], row["attempt"]) != (
            pin.worker_id,
            pin.issue_id,
            pin.number,
        ):
            continue
        began = snapshot["uptime_seconds"] - row["elapsed_seconds"]
        if pin.began is None or abs(began - pin.began) <= SAME_SECONDS:
            found: Fields = row
            return found
    return None


# --- an attempt among all of its issue -----------------------------------------------------------


@value
class Tried:
    """An attempt of the issue, and its run. ``began_at``: epoch seconds."""

    run_id: str
    began_at: float
    attempt: Attempt

    @property
    def ended_at(self) -> float | None:
        """Epoch seconds of its end; None while it runs, or if its end was not recorded."""
        ended = self.attempt.ended
        return None if ended is None else self.began_at + ended - self.attempt.began

    @property
    def pin(self) -> Pin:
        """The pin of exactly this attempt."""
        one = self.attempt
        return Pin(
            one.issue_id,
            self.run_id,
            one.attempt,
            one.worker_id,
            one.began,
            self.ended_at,
            one.request_id,
        )

    @property
    def row(self) -> dict[str, Any]:
        """The attempt with the keys of ``outcomes`` in ``status --json``."""
        one, receipt = self.attempt, self.attempt.receipt
        cut = one.outcome == CUT_OFF
        return {
            "at": self.ended_at or self.began_at,
            "issue_id": one.issue_id,
            "title": one.title,
            "worker_id": one.worker_id,
            "attempt": one.attempt,
            "outcome": one.outcome,
            "decision": CUT_OFF if cut else one.verdict,
            "error": "its orchestrator was killed" if cut else one.error,
            "seconds": one.seconds,
            "charged": one.charged >= one.attempt,
            "retry_in_seconds": one.delay_seconds if one.verdict == "requeue" else None,
            "agent": one.agent or (receipt.agent if receipt else None) or None,
            "escalated": receipt.escalated if receipt else None,
            "tokens": receipt.tokens.total if receipt else None,
            "money_usd": receipt.money if receipt else None,
            "diffstat": receipt.diffstat if receipt else None,
        }


@value
class AttemptView:
    """The pinned attempt among all attempts of its issue."""

    pin: Pin
    # The title of the issue.
    title: str = ""
    # All attempts of the issue.
    attempts: tuple[Tried, ...] = ()
    # The index of the pinned attempt; None if no journal has it.
    at: int | None = None
    # What became of its branch; None if nothing was to land.
    landing: LandingHistory | None = None
    # The folder of the project.
    project: str = ""

    @property
    def tried(self) -> Tried | None:
        """The pinned attempt; None if no journal has it."""
        return None if self.at is None else self.attempts[self.at]

    @property
    def place(self) -> str:
        """``2 of 3``: the place of the attempt among all of the issue; "" if there is no other."""
        if self.at is None or len(self.attempts) < 2:
            return ""
        return f"{self.at + 1} of {len(self.attempts)}"

    @property
    def branch(self) -> str:
        """The branch of the attempt, "" if it has none (yet)."""
        receipt = self.tried.attempt.receipt if self.tried else None
        return (receipt.branch if receipt else "") or (self.landing.branch if self.landing else "")

    def step(self, by: int) -> Pin | None:
        """Return the pin of the attempt so many places further; None if there is none."""
        if self.at is None or not 0 <= self.at + by < len(self.attempts):
            return None
        return self.attempts[self.at + by].pin

    def pinned(self, pin: Pin, until: float | None = None) -> AttemptView:
        """Return the same with another attempt chosen.

        ``until``: seconds of that attempt's run; what came later is left out, for a replay.
        """
        found, landing = self.attempts, self.landing
        if until is not None:
            found = tuple(_as_of(each, until) for each in found if _had_begun(each, pin, until))
            landing = None
        at = _found_at(pin, found)
        name = pin if at is None else found[at].pin
        return replace(self, pin=name, attempts=found, at=at, landing=landing)


def attempt_view(pin: Pin, runs: Sequence[History], until: float | None = None) -> AttemptView:
    """Return the view of a pinned attempt. ``runs``: histories, oldest first; ``until``: as in
    ``AttemptView.pinned``."""
    landing, title = None, ""
    for run in runs:
        for issue in run.issues:
            if issue.issue_id == pin.issue_id:
                landing, title = issue.landing or landing, issue.title or title
    found = (
        Tried(run.start.run_id, run.began_at + one.began, one)
        for run in runs
        for one in run.of_issue(pin.issue_id)
    )
    project = runs[-1].start.project if runs else ""
    view = AttemptView(pin, title, tuple(found), None, landing, project)
    return view.pinned(pin, until)


def _had_begun(each: Tried, pin: Pin, until: float) -> bool:
    return each.run_id < pin.run_id or (each.run_id == pin.run_id and each.attempt.began <= until)


def _as_of(each: Tried, until: float) -> Tried:
    """Return an attempt as it was then: one that ended later ran."""
    one = each.attempt
    if one.ended is None or one.ended <= until:
        return each
    ran = replace(one, ended=None, seconds=until - one.began, outcome=RUNNING, verdict="", error="")
    return replace(each, attempt=replace(ran, receipt=None))


def _found_at(pin: Pin, attempts: Sequence[Tried]) -> int | None:
    """Return the index of the pinned attempt; of several with its number, the nearest in time."""
    if not pin.number:
        return len(attempts) - 1 if attempts else None
    same = [
        at
        for at, each in enumerate(attempts)
        if (each.run_id, each.attempt.attempt) == (pin.run_id, pin.number)
        and pin.worker_id in ("", each.attempt.worker_id)
    ]
    for at in same:
        if attempts[at].attempt.request_id == pin.request_id:
            return at

    def away(at: int) -> float:
        each = attempts[at]
        if pin.ended_at is not None:
            return abs((each.ended_at or each.began_at) - pin.ended_at)
        return abs(each.attempt.began - pin.began) if pin.began is not None else -float(at)

    return min(same, key=away, default=None)


# --- what happens now, and what a person can do --------------------------------------------------


@value
class IssueAction:
    """Something that a person can do about an issue now."""

    # A key of the dashboard.
    key: str
    # Its name in ``bindings.BUTTONS``; "" if the page has none.
    button: str
    # What it does.
    label: str
    # The request to the fleet.
    control: str


RELEASE = IssueAction("x", "release", "release", "bw.release")
RETRY = IssueAction("r", "again", "try again", "bw.retry")
ANSWER = IssueAction("i", "reply", "answer", "bw.answer")
APPROVE = IssueAction("v", "approve", "approve", "bw.approve")
REJECT = IssueAction("V", "reject", "reject", "bw.reject")


def actions(issue_id: str, snapshot: Fields) -> tuple[IssueAction, ...]:
    """Return what a person can do about an issue now, also if no fleet runs."""
    state = _standing(issue_id, snapshot)
    by_state = {
        "running": (RELEASE,) if snapshot["running"] else (),
        "quarantined": (RETRY,),
        "asked": (ANSWER,),
        "awaits approval": (APPROVE, REJECT),
    }
    return by_state.get(state[0], ())


def now(pin: Pin, snapshot: Fields, landed: str = "", can: str = "") -> str:
    """Return in one line what became of the issue, and what runs there now; "" while it runs.

    ``landed``: the commit that landed, as the journals have it; a snapshot is of one run only.
    ``can``: what a person can do, in words.
    """
    if running(pin, snapshot) is not None:
        return ""
    _, issue = _standing(pin.issue_id, snapshot)
    issue = issue or (f"landed as {landed[:SHA_CHARS]}" if landed else "")
    worker = next((row for row in snapshot["workers"] if row["worker_id"] == pin.worker_id), None)
    other = worker["issue_id"] if worker else None
    here = pin.run_id == snapshot["run_id"]
    runs = f"{pin.worker_id} runs {other}" if here and other and other != pin.issue_id else ""
    state = f"{pin.issue_id} {issue}" if issue else ""
    stands = ": ".join(part for part in (state, can) if part)
    gate = next((r["gate"] for r in snapshot["approvals"] if r["issue_id"] == pin.issue_id), None)
    return "; ".join(part for part in (stands, gate["text"] if gate else "", runs) if part)


def _standing(issue_id: str, snapshot: Fields) -> tuple[str, str]:
    """Return the state of an issue as a word, and in words behind its id; "" if not known."""

    def among(rows: Iterable[Fields]) -> Fields | None:
        return next((row for row in rows if row["issue_id"] == issue_id), None)

    landing = snapshot["landing"] or {"waiting_to_land": (), "last": ()}
    if (row := among(snapshot["workers"])) is not None:
        return "running", f"runs: attempt {row['attempt']} on {row['worker_id']}"
    if among(snapshot["questions"]) is not None:
        return "asked", "waits for an answer"
    if among(snapshot["approvals"]) is not None:
        return "awaits approval", "awaits approval"
    if (row := among(snapshot["occupied"])) is not None:
        return "occupied", f"waits: {printable(row['who'], ERROR_WIDTH)}"
    if among(snapshot["quarantined"]) is not None:
        return "quarantined", "is quarantined"
    if (row := among(landing.get("in_review", ()))) is not None:
        return "in review", f"is in review: {row['text']}"
    if among(landing["waiting_to_land"]) is not None:
        return "waits to land", "waits to land"
    if (row := among(reversed(landing["last"]))) is not None and row["verdict"] == "landed":
        return "landed", f"landed as {row['commit'][:SHA_CHARS]}"
    return "", ""


def stamp(issue_id: str, snapshot: Fields) -> tuple[Any, ...]:
    """Return a value that changes whenever the journals have something new about an issue."""
    rows = (*snapshot["workers"], *snapshot["outcomes"])
    at = [(r["worker_id"], r["attempt"], r.get("at")) for r in rows if r["issue_id"] == issue_id]
    return (snapshot["run_id"], tuple(at), _standing(issue_id, snapshot))


# --- all about it --------------------------------------------------------------------------------


def sections(view: AttemptView, why: Sequence[str]) -> Iterator[tuple[Heading, list[str]]]:
    """Yield what there is to read about an attempt beside its log and its diff.

    These are: why the issue stands where it stands (``why``: lines of that command), the receipt,
    what landed, and all attempts. Each comes as a heading and its lines, which are safe to show.
    """
    yield f"why {view.pin.issue_id}", list(why)
    one = view.tried
    if one is not None and one.attempt.receipt is not None:
        yield f"receipt of attempt {one.attempt.attempt}", list(receipt_lines(one.attempt.receipt))
    if view.landing is not None and (lines := list(_landing_lines(view.landing))):
        yield "landing", lines
    lines = [_line(each, chosen=at == view.at) for at, each in enumerate(view.attempts)]
    yield "attempts", lines or ["none in the journals of the last runs"]


def _landing_lines(landing: LandingHistory) -> Iterator[str]:
    if landing.branch:
        yield f"branch   {printable(landing.branch)}"
    if landing.commit:
        yield f"landed   {landing.commit[:SHA_CHARS]}"
    if landing.error:
        yield f"{DID_NOT_LAND}: {printable(landing.error, ERROR_WIDTH)}"


def _line(each: Tried, *, chosen: bool) -> str:
    """Return one attempt in a line: ``> 2  14:03:10  W3  failed after 4.2 s: E: 3 != 4``."""
    one = each.attempt
    began = clock(each.began_at)
    ended = f"{OUTCOME_WORDS.get(one.outcome, one.outcome)} after"
    word = "runs, for" if one.outcome == RUNNING else ended
    receipt = one.receipt
    cost = used(receipt.tokens.total, receipt.money) if receipt else ""
    error = f": {printable(one.error, ERROR_WIDTH)}" if one.error else ""
    parts = [f"{'>' if chosen else ' '} {one.attempt}", began, printable(one.worker_id)]
    parts += [printable(one.agent)] if one.agent else []
    parts.append(f"{word} {duration(one.seconds)}{f', {cost}' if cost else ''}{error}")
    return "  ".join(parts)
