"""Conclusions from a run's history: figures, failures by reason, waste; as ``report --json``."""

from __future__ import annotations

import math
import shlex
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

from beads_workers.core.base.budget import read_budget
from beads_workers.core.base.causes import cause_of
from beads_workers.core.base.model import value
from beads_workers.core.base.plain import to_plain
from beads_workers.core.base.text import counted
from beads_workers.core.records.landing import Pull
from beads_workers.core.records.money import Spend, told_later, unpriced_of
from beads_workers.core.records.receipts import Receipt, to_json
from beads_workers.core.views.history import (
    FAILURES,
    RUNNING,
    Attempt,
    Fate,
    History,
    Interval,
    IssueHistory,
    LandingHistory,
)
from beads_workers.ui.lines import start_again, with_budget
from beads_workers.ui.time_text import clock, duration

BUCKETS_MAX = 60
"""Maximum number of time steps: as many as one can tell apart in a chart."""

STEPS_SECONDS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 43200)
"""Readable widths of a time step; beyond the last, whole days."""

NAMED_MAX = 5
"""Number of issues in a suggested command."""


@value
class DurationSummary:
    """Durations of a set of attempts in seconds; zeros if the set is empty."""

    count: int = 0
    total: float = 0.0
    median: float = 0.0
    p90: float = 0.0
    longest: float = 0.0


@value
class Failure:
    """Attempts that failed for the same reason."""

    outcome: str
    # The error, with varying parts as ``#``.
    reason: str
    # One of the errors in full.
    example: str
    attempts: int
    seconds: float
    # In the order in which they failed.
    issue_ids: tuple[str, ...]
    # Time of the last failure.
    last: float
    # The last lines of what its check printed, or a reviewer's remarks; "" for none.
    lesson: str = ""


@value
class Waste:
    """Time in attempts that led to no close. ``share``: of all time in attempts, 0 to 1."""

    seconds: float
    attempts: int
    share: float
    by_outcome: dict[str, float]


@value
class Bucket:
    """Attempts that ended in the time step that begins at ``began``."""

    began: float
    done: int
    failed: int


@value
class Busy:
    """A worker, over all its lives. ``lived_seconds`` and ``worked_seconds``: in seconds."""

    worker_id: str
    lived_seconds: float
    worked_seconds: float
    done: int
    failed: int
    deaths: int


@value
class NextStep:
    """A next step for a person: one of our commands, and why."""

    command: str
    reason: str


def durations(attempts: Iterable[Attempt]) -> DurationSummary:
    """Return the durations of the attempts that have ended."""
    seconds = sorted(a.seconds for a in attempts if a.ended is not None)
    if not seconds:
        return DurationSummary()
    return DurationSummary(
        len(seconds), sum(seconds), _quantile(seconds, 0.5), _quantile(seconds, 0.9), seconds[-1]
    )


def _quantile(ordered: Sequence[float], part: float) -> float:
    """Return the smallest value that this share of the values does not exceed."""
    return ordered[max(0, math.ceil(part * len(ordered)) - 1)]


def waste_of(history: History) -> Waste:
    """Return the time that led to no close; running attempts do not count yet."""
    in_vain = _InVain(history)
    lost: dict[str, float] = {}
    count = 0
    for attempt in history.attempts:
        if (key := in_vain.outcome(attempt)) is not None:
            lost[key] = lost.get(key, 0.0) + attempt.seconds
            count += 1
    total = sum(a.seconds for a in history.attempts)
    seconds = sum(lost.values())
    ordered = dict(sorted(lost.items(), key=lambda item: -item[1]))
    return Waste(seconds, count, seconds / total if total else 0.0, ordered)


class _InVain:
    """Which attempts led to nothing."""

    def __init__(self, history: History) -> None:
        self._not_ours = {i.issue_id for i in history.issues if i.fate is Fate.NOT_OURS}
        self._done = {_session(a) for a in history.attempts if a.outcome == "success"}

    def outcome(self, attempt: Attempt) -> str | None:
        """Return as what an attempt is wasted; None if it is not."""
        # The work is done, but the issue turned out to be somebody else's.
        if attempt.outcome == "success":
            return "not_ours" if attempt.issue_id in self._not_ours else None
        session = _session(attempt)
        # A question waits for its answer; or a later attempt went on in the same session, and came
        # to the end.
        if attempt.outcome in (RUNNING, "question") or (session and session in self._done):
            return None
        return attempt.outcome


def _session(attempt: Attempt) -> tuple[str, str] | None:
    session = attempt.receipt.session if attempt.receipt is not None else ""
    return (attempt.issue_id, session) if session else None


LESSON_LINES = 15


def failures(history: History) -> list[Failure]:
    """Return failed attempts by reason, with asked-for retries, the most frequent first."""
    groups: dict[tuple[str, str], list[Attempt]] = {}
    for attempt in history.attempts:
        if attempt.outcome in FAILURES or attempt.outcome == "retry":
            key = (attempt.outcome, cause_of(attempt.error, attempt.issue_id))
            groups.setdefault(key, []).append(attempt)
    found = [_failure(outcome, text, group) for (outcome, text), group in groups.items()]
    return sorted(found, key=lambda f: (-f.attempts, -f.seconds, f.reason))


def _failure(outcome: str, text: str, group: list[Attempt]) -> Failure:
    last = group[-1]
    same = all(attempt.error == last.error for attempt in group)
    return Failure(
        outcome,
        last.error if same else text,
        last.error,
        len(group),
        sum(a.seconds for a in group),
        tuple(dict.fromkeys(a.issue_id for a in group)),
        max(a.began + a.seconds for a in group),
        "\n".join(last.receipt.lesson.splitlines()[-LESSON_LINES:]) if last.receipt else "",
    )


def step_of(seconds: float, most: int, finer: Sequence[float] = ()) -> float:
    """Return a readable time step, of which these seconds have at most ``most``."""
    days = 86400 * math.ceil(seconds / 86400 / most)
    return float(next((s for s in (*finer, *STEPS_SECONDS) if seconds <= s * most), days))


def throughput(history: History) -> tuple[float, list[Bucket]]:
    """Return the width of a time step in seconds, and all steps of the run."""
    width = step_of(history.seconds, BUCKETS_MAX)
    count = max(1, math.ceil(history.seconds / width))
    done, failed = [0] * count, [0] * count
    for attempt in history.attempts:
        if attempt.ended is not None:
            at = min(int(attempt.ended / width), count - 1)
            done[at] += attempt.outcome == "success"
            failed[at] += attempt.outcome in FAILURES
    return width, [Bucket(n * width, done[n], failed[n]) for n in range(count)]


def ticks(history: History, most: int) -> Iterator[float]:
    """Yield round times of the wall clock, in seconds of the run: about ``most``, or fewer."""
    step = step_of(history.seconds, most)
    local = history.began_at + time.localtime(history.began_at).tm_gmtoff
    first = math.ceil(local / step) * step - local
    yield from (first + n * step for n in range(math.floor((history.seconds - first) / step) + 1))


def tick_text(history: History, at: float) -> str:
    """Return the wall clock at a tick: with seconds if it has some, at midnight the day."""
    there = round(history.began_at + at)
    now = time.localtime(there)
    if not (now.tm_hour or now.tm_min or now.tm_sec):
        return time.strftime("%a %d", now)
    return clock(there, seconds=bool(now.tm_sec))


def slowest(history: History, count: int = 10) -> list[IssueHistory]:
    """Return the issues that took workers longest, over all their attempts."""
    tried = [i for i in history.issues if i.attempts]
    return sorted(tried, key=lambda i: -i.seconds)[:count]


def busy(history: History) -> list[Busy]:
    """Return every worker, in order: how long it lived and worked, and its results."""
    rows: dict[str, list[float]] = {}
    for span in history.workers:
        row = rows.setdefault(span.worker_id, [0.0] * 5)
        row[0] += (history.seconds if span.ended is None else span.ended) - span.began
        row[4] += span.died
    for attempt in history.attempts:
        row = rows.setdefault(attempt.worker_id, [0.0] * 5)
        row[1] += attempt.seconds
        row[2] += attempt.outcome == "success"
        row[3] += attempt.outcome in FAILURES
    return [Busy(w, r[0], r[1], int(r[2]), int(r[3]), int(r[4])) for w, r in rows.items()]


def how_it_ended(history: History) -> str:
    """Return the end of the run in words, without the exit code."""
    if history.state == "running":
        return "still running"
    if history.state == "killed":
        text = "killed: it ended without a word"
        return text + (", and a later start settled what it left" if history.settled else "")
    reasons = {
        "idle_timeout": f"ended: nothing {'else ' if history.exit_code else ''}was left to do",
        "user_requested": "ended: stopped as asked",
        "error": "ended with an error",
        "": "ended",
    }
    return reasons.get(history.reason, f"ended: {history.reason}")


NEEDLESS = frozenset(("says that no change is needed", "changed nothing and says that it is done"))
"""Flags of receipts (``attempts.run``) whose issue a person closes, rather than tries again."""


def next_steps(history: History) -> list[NextStep]:
    """Return what a person may do next, the most urgent first; empty if nothing."""
    steps, start = [], _start(history)
    if history.state == "running":
        steps.append(NextStep("beads-workers watch", "it goes on while you read this"))
    elif history.state == "killed" and not history.settled:
        steps.append(NextStep(start, "settles what the killed run left, and goes on"))
    elif history.with_fate(Fate.UNCLOSED):
        steps.append(NextStep(start, "closes what is done, without running it again"))
    elif history.with_fate(Fate.WAITING_TO_LAND):
        steps.append(NextStep("beads-workers land", "lands what is done; so does a start"))
    elif history.with_fate(Fate.REQUEUED, Fate.UNFINISHED):
        also = f", and with {_not_begun(history)}" if history.not_begun else ""
        steps.append(NextStep(start, f"goes on with what was requeued{also}"))
    elif history.not_begun:
        steps.append(NextStep(start, f"left: {_not_begun(history)}"))
    if found := in_review(history):
        what = counted(len(found), "pull request")
        steps.append(NextStep(f"{COMMAND} pr", f"closes what is merged of {what}; so does a start"))
    for each in decisions(history)[:NAMED_MAX]:
        asks = each.issue.fate is Fate.ASKED
        reason = f"asks: {each.issue.error}" if asks else "awaits approval: then approve or reject"
        steps.append(NextStep(each.command, reason))
    # Issues that this run quarantined come before those of earlier runs.
    quarantined = sorted(quarantined_issues(history), key=lambda i: i.earlier)
    # Another attempt at what needs no change would say the same.
    needless = {
        a.issue_id for a in to_review(history) if a.receipt and NEEDLESS & {*a.receipt.flags}
    }
    done = [i for i in quarantined if i.issue_id in needless]
    quarantined = [i for i in quarantined if i.issue_id not in needless]
    if done:
        ids = " ".join(_quoted(each) for each in done[:NAMED_MAX])
        steps.append(NextStep(f"{COMMAND} logs {_quoted(done[0])}", "why it needs no change"))
        steps.append(NextStep(f"{COMMAND} close {ids}", "if it needs no change, as its agent says"))
    if quarantined:
        names = [shlex.quote(i.issue_id) for i in quarantined[:NAMED_MAX]]
        again = " ".join(names) if len(quarantined) <= NAMED_MAX else "--all"
        steps.append(NextStep(f"beads-workers logs {names[0]}", "what its attempts printed"))
        steps.append(NextStep(f"beads-workers retry {again}", "tries again what was quarantined"))
    return [*steps, *_merge_step(history)]


@value
class Decision:
    """Something that a person decides. ``text``: a question with its choices, or what a branch
    changes."""

    issue: IssueHistory
    text: str
    command: str


def decisions(history: History) -> list[Decision]:
    """Return open questions, then branches that await approval."""
    asked = {a.issue_id: a.receipt.question for a in history.attempts if a.receipt is not None}
    found = [
        Decision(each, asked.get(each.issue_id) or each.error, f"{COMMAND} answer {_quoted(each)}")
        for each in history.with_fate(Fate.ASKED)
    ]
    for branch in branches(history):
        if branch.issue.fate is Fate.AWAITS_APPROVAL:
            text = f"{branch.landing.branch} {branch.diffstat}".strip()
            text = "\n".join(filter(None, (text, branch.landing.ahead)))
            found.append(Decision(branch.issue, text, f"{COMMAND} diff {_quoted(branch.issue)}"))
    return found


def _not_begun(history: History) -> str:
    """Return how many issues no attempt was made at, and what they may cost, by what others did."""
    closed = [each for each in history.with_fate(Fate.CLOSED) if each.attempts]
    money, text = money_of(history), f"{history.not_begun} not begun"
    if not closed:
        return text
    share = history.not_begun / len(closed)
    seconds = sum(each.seconds for each in closed) * share / max(1, history.start.workers)
    dollars = f"${money.total.money * share:.2f} and " if money and money.total.money else ""
    return f"{text}, about {dollars}{duration(seconds, units=1)}"


COMMAND = "beads-workers"


def _quoted(issue: IssueHistory) -> str:
    return shlex.quote(issue.issue_id)


def _start(history: History) -> str:
    """Return the line that goes on; with a larger budget if that is spent."""
    spent = money_of(history)
    if history.start.budget and spent is not None:
        budget, used = read_budget(history.start.budget), spent.total
        if not budget.per_run and budget.is_spent(used.money, used.tokens.total):
            return with_budget(history.start.argv, budget.doubled())
    return start_again(history.start.argv)


def quarantined_issues(history: History) -> list[IssueHistory]:
    """Return all issues that are quarantined at the end, also by earlier runs."""
    return [i for i in history.issues if i.fate is Fate.QUARANTINED]


def lanes(history: History) -> list[tuple[str, tuple[Interval, ...]]]:
    """Return the stretches of trouble by kind; only kinds that occurred."""
    known = (
        ("tracker", history.outages),
        ("limits", history.limits),
        ("paused", history.pauses),
        ("waiting", history.waits),
    )
    return [(name, spans) for name, spans in known if spans]


# --- money ---------------------------------------------------------------------------------------
# The costs of agents, and what they led to.


@dataclass(slots=True)
class Costs(Spend):
    """``later``: tokens that the money of a later attempt of the same session includes."""

    later: int = 0

    def add_attempt(self, receipt: Receipt, *, was_cut: bool, later: bool) -> None:
        """Add an attempt; ``later``: a later one includes what it cost."""
        self.add(receipt, was_cut=was_cut)
        if later:
            self.later += unpriced_of(receipt)
            self.unpriced -= unpriced_of(receipt)


@value
class Money:
    """Costs of a run, from its receipts.

    ``wasted``: costs that led to no close, by outcome as in ``Waste``; ``by_outcome`` includes
    them.
    """

    total: Costs
    by_issue: dict[str, Costs]
    by_agent: dict[str, Costs]
    by_outcome: dict[str, Costs]
    wasted: dict[str, Costs]


def money_of(history: History) -> Money | None:
    """Return the costs of a run; None if no agent reported any."""
    found = Money(Costs(), {}, {}, {}, {})
    in_vain = _InVain(history)
    later = told_later((a.request_id, a.receipt) for a in history.attempts if a.receipt is not None)
    for attempt in history.attempts:
        receipt = attempt.receipt
        if receipt is None or not (receipt.usage or receipt.money or attempt.was_cut):
            continue
        named = [
            (found.by_issue, attempt.issue_id),
            (found.by_agent, receipt.escalated or receipt.agent or attempt.agent or "agent"),
            (found.by_outcome, attempt.outcome),
        ]
        if (why := in_vain.outcome(attempt)) is not None:
            named.append((found.wasted, why))
        sums = (found.total, *(table.setdefault(name, Costs()) for table, name in named))
        for each in sums:
            each.add_attempt(receipt, was_cut=attempt.was_cut, later=attempt.request_id in later)
    return found if found.by_issue else None


def to_review(history: History) -> list[Attempt]:
    """Return issues whose last attempt asks a person to look: the morning list."""
    last = {a.issue_id: a for a in history.attempts if a.ended is not None}
    return [a for a in last.values() if a.receipt is not None and a.receipt.flags]


def _money(history: History) -> dict[str, Any]:
    found = money_of(history)
    total = found.total if found else Costs()
    fields: dict[str, Any] = {
        "spent_usd": total.money,
        "budget": history.start.budget or None,
        "tokens": {**asdict(total.tokens), "total": total.tokens.total},
        "unpriced_tokens": total.unpriced,
        "cut_attempts": total.cut,
    }
    for name in ("by_issue", "by_agent", "by_outcome", "wasted"):
        table: dict[str, Costs] = getattr(found, name) if found else {}
        fields[name] = {
            key: {"usd": each.money, "tokens": each.tokens.total} for key, each in table.items()
        }
    return fields


# --- landing -------------------------------------------------------------------------------------
# The fates of branches: landed, back to their agents, left to a person.


@value
class LandedIssue:
    """A branch and its fate; ``diffstat``: from its attempt's receipt."""

    issue: IssueHistory
    landing: LandingHistory
    diffstat: str = ""


def branches(history: History) -> list[LandedIssue]:
    """Return every issue that had a branch to land, the first landed first, others last."""
    stats = {a.issue_id: a.receipt.diffstat for a in history.attempts if a.receipt is not None}
    found = [
        LandedIssue(issue, issue.landing, stats.get(issue.issue_id, ""))
        for issue in history.issues
        if issue.landing is not None
    ]
    return sorted(found, key=lambda each: _never(each.landing.landed))


def _never(at: float | None) -> float:
    return math.inf if at is None else at


def refused_branches(history: History) -> list[LandedIssue]:
    """Return branches that no start lands: they are quarantined, and wait for a person."""
    return [
        each
        for each in branches(history)
        if each.issue.fate is Fate.QUARANTINED and each.landing.refused
    ]


def in_review(history: History) -> list[tuple[IssueHistory, Pull]]:
    """Return the issues whose pull requests are open."""
    issues = history.with_fate(Fate.IN_REVIEW)
    return [(e, e.landing.pull) for e in issues if e.landing is not None and e.landing.pull]


def waiting_to_land(history: History) -> list[LandedIssue]:
    """Return branches that the next start or ``land`` lands."""
    return [each for each in branches(history) if each.issue.fate is Fate.WAITING_TO_LAND]


def landed_per_hour(history: History) -> float:
    """Return the landings per hour over the whole run."""
    landed = history.landing.landed if history.landing else 0
    return landed * 3600 / history.seconds if history.seconds else 0.0


def gate_runs_per_landing(history: History) -> float | None:
    """Return the gate runs per landing; None if nothing landed."""
    board = history.landing
    return board.gate_runs / board.landed if board and board.landed else None


def landing(history: History) -> dict[str, Any] | None:
    """Return sums and the morning list of landing; None if nothing was to land."""
    board = history.landing
    if board is None:
        return None
    shown = board.shown(history.seconds)
    sums = {key: shown[key] for key in shown if key not in ("running", "last")}
    return sums | {
        "gate_runs": board.gate_runs,
        "landed_per_hour": landed_per_hour(history),
        "gate_runs_per_landing": gate_runs_per_landing(history),
        "landed_issues": [
            {"issue_id": e.issue.issue_id, "commit": e.landing.commit, "branch": e.landing.branch}
            for e in branches(history)
            if e.landing.commit
        ],
        "refused": [
            {"issue_id": e.issue.issue_id, "branch": e.landing.branch, "error": e.landing.error}
            for e in refused_branches(history)
        ],
        "in_review": [
            {"issue_id": issue.issue_id, **to_plain(pull)} for issue, pull in in_review(history)
        ],
        "waiting_to_land": [
            {"issue_id": e.issue.issue_id, "branch": e.landing.branch}
            for e in waiting_to_land(history)
        ],
    }


def _merge_step(history: History) -> list[NextStep]:
    board = history.landing
    if board is None or not board.landed or not board.branch:
        return []
    if board.into is not None and board.into.url:
        return []  # Its line says where it is merged.
    if board.into is not None:
        why = f"{board.into.into} could not be moved: {board.into.why}"
        return [NextStep(board.into.command, why)] if board.into.why else []
    target = board.branch.partition("/")[2]
    if board.merged:
        command = f"git pull {shlex.join(target.split('/', 1))}"
        return [NextStep(command, "brings what was merged to your branch, if it is not there yet")]
    command = f"git merge --ff-only {shlex.quote(board.branch)}"
    return [NextStep(command, f"brings what landed to {target}, if it is not there yet")]


# --- report --------------------------------------------------------------------------------------
# ``report --json``: a history and its conclusions, as docs/CLI.md describes them. Additive changes
# only. Seconds are rounded to milliseconds; times are seconds of the run.


def report(history: History) -> dict[str, Any]:
    """Return the whole report as one JSON object."""
    width, buckets = throughput(history)
    waste = waste_of(history)
    fields: dict[str, Any] = _rounded(
        {
            "run_id": history.start.run_id,
            "night": history.start.night_id,
            "runs": [_run(run) for run in history.runs or (history,)],
            "project": history.start.project,
            "source": history.start.source,
            "version": history.start.version,
            "pid": history.start.pid,
            "workers_asked": history.start.workers,
            "state": history.state,
            "ending": how_it_ended(history),
            "exit_code": history.exit_code,
            "settled": history.settled,
            "not_begun": history.not_begun,
            "began_at": history.began_at,
            "ended_at": None if history.state == "running" else history.began_at + history.seconds,
            "seconds": history.seconds,
            "issues_by_fate": {fate.value: len(history.with_fate(fate)) for fate in Fate},
            "attempts_by_outcome": by_outcome(history.attempts),
            "durations": {
                "all": asdict(durations(history.attempts)),
                "done": asdict(durations(done(history))),
            },
            "waste": asdict(waste),
            "tracker": tracker(history),
            "failures": [asdict(failure) for failure in failures(history)],
            "throughput": {"step_seconds": width, "steps": [asdict(b) for b in buckets]},
            "slowest": [i.issue_id for i in slowest(history)],
            "next": [asdict(step) for step in next_steps(history)],
            "landing": landing(history),
            "money": _money(history),
            "to_review": [_flagged(attempt) for attempt in to_review(history)],
            "issues": _issues(history),
            "attempts": [_attempt(attempt) for attempt in history.attempts],
            "workers": [asdict(row) for row in busy(history)],
            "worker_spans": [asdict(span) for span in history.workers],
            "outages": [asdict(span) for span in history.outages],
            "pauses": [asdict(span) for span in history.pauses],
            "waits": [asdict(span) for span in history.waits],
            "limits": [asdict(span) for span in history.limits],
            "dropped": dropped(history),
            "notes": [asdict(note) for note in history.notes],
        }
    )
    return fields


def figures(history: History) -> dict[str, Any]:
    """Return the figures that ``runs`` and ``status`` show, too."""
    spent = money_of(history)
    return {
        "closed": len(history.with_fate(Fate.CLOSED)),
        "failed": sum(attempt.outcome in FAILURES for attempt in history.attempts),
        "quarantined": len(history.with_fate(Fate.QUARANTINED)),
        "spent_usd": spent.total.money if spent else 0.0,
        "cut_attempts": spent.total.cut if spent else 0,
    }


def _run(run: History) -> dict[str, Any]:
    return {
        "run_id": run.start.run_id,
        "state": run.state,
        "ending": how_it_ended(run),
        "exit_code": run.exit_code,
        "began_at": run.began_at,
        "ended_at": None if run.state == "running" else run.began_at + run.seconds,
        "seconds": run.seconds,
        **figures(run),
    }


def _flagged(attempt: Attempt) -> dict[str, Any]:
    flags = attempt.receipt.flags if attempt.receipt is not None else ()
    return {"issue_id": attempt.issue_id, "flags": list(flags), "error": attempt.error}


def _issues(history: History) -> list[dict[str, Any]]:
    attempts: dict[str, list[Attempt]] = {}
    for attempt in history.attempts:
        attempts.setdefault(attempt.issue_id, []).append(attempt)
    return [_issue(issue, attempts.get(issue.issue_id, [])) for issue in history.issues]


def _issue(issue: IssueHistory, attempts: list[Attempt]) -> dict[str, Any]:
    """Return an issue as JSON.

    ``receipt``: of its last attempt with one; branch, commit and diffstat come from it.
    """
    receipt = next((a.receipt for a in reversed(attempts) if a.receipt is not None), None)
    shown = receipt or Receipt()
    return asdict(issue) | {
        "fate": issue.fate.value,
        "attempt_count": issue.attempts,
        "attempts": [_short(attempt) for attempt in attempts],
        "outcome": attempts[-1].outcome if attempts else None,
        "branch": shown.branch or None,
        "commit": shown.commits[-1] if shown.commits else None,
        "diffstat": shown.diffstat or None,
        "receipt": to_json(receipt) if receipt is not None else None,
    }


def _short(attempt: Attempt) -> dict[str, Any]:
    return {
        "attempt": attempt.attempt,
        "request_id": attempt.request_id,
        "outcome": attempt.outcome,
        **_by_agent(attempt),
    }


def _attempt(attempt: Attempt) -> dict[str, Any]:
    # Field by field: receipts are shown with their issues, not in this table.
    hidden = ("receipt", "was_cut")
    plain = {f.name: getattr(attempt, f.name) for f in fields(Attempt) if f.name not in hidden}
    return plain | {"decision": attempt.verdict} | _by_agent(attempt)


def _by_agent(attempt: Attempt) -> dict[str, Any]:
    """Return the agent's part of an attempt.

    ``verdict``: of the agent's adapter, or without an agent, of the policy.
    """
    receipt = attempt.receipt or Receipt()
    return {
        "agent": receipt.agent or attempt.agent or None,
        "model": receipt.model or attempt.model or None,
        "session": receipt.session or None,
        "verdict": receipt.verdict or attempt.verdict,
        "tokens": receipt.tokens.total if receipt.usage else None,
        "money_usd": receipt.money,
        "was_cut": attempt.was_cut,
    }


def dropped(history: History) -> dict[str, Any] | None:
    """Return the counts of the lost beginning of a journal; None if nothing is lost."""
    if history.dropped is None:
        return None
    counts = asdict(history.dropped)
    del counts["segment"], counts["spent"], counts["found"]
    return {"seconds": history.dropped_seconds, **counts}


def last_progress(history: History) -> dict[str, str]:
    """Return the last reported progress of each issue's last attempt, if there is one."""
    return {a.issue_id: a.last_progress for a in history.attempts if a.last_progress}


def done(history: History) -> list[Attempt]:
    """Return the attempts that succeeded."""
    return [a for a in history.attempts if a.outcome == "success"]


def by_outcome(attempts: tuple[Attempt, ...]) -> dict[str, int]:
    """Return the number of attempts by outcome; only outcomes that occurred."""
    counts: dict[str, int] = {}
    for attempt in attempts:
        counts[attempt.outcome] = counts.get(attempt.outcome, 0) + 1
    return counts


def tracker(history: History) -> dict[str, Any]:
    """Return the cost of tracker calls; the costs per closed issue are None without any."""
    closed = len(history.with_fate(Fate.CLOSED))
    troubled = sum(
        (history.seconds if span.ended is None else span.ended) - span.began
        for span in history.outages
    )
    return {
        "calls": history.tracker_calls,
        "seconds": history.tracker_seconds,
        "calls_per_closed": history.tracker_calls / closed if closed else None,
        "seconds_per_closed": history.tracker_seconds / closed if closed else None,
        "outage_seconds": troubled,
    }


def _rounded(value: Any, digits: int = 3) -> Any:
    if isinstance(value, float):
        return round(value, digits)
    if isinstance(value, dict):
        # Dollars are small: an attempt may cost a hundredth of a cent.
        return {
            key: _rounded(inner, 6 if key in ("usd", "spent_usd", "money_usd", "money") else digits)
            for key, inner in value.items()
        }
    if isinstance(value, list | tuple):
        return [_rounded(inner) for inner in value]
    return value
