"""``status``: the board as the JSON that docs/CLI.md describes. Additive changes only."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from itertools import islice
from math import floor, inf
from typing import TYPE_CHECKING, Any

from beads_workers.core.base import limits
from beads_workers.core.base.model import FLEETS
from beads_workers.core.base.night import NightSoFar
from beads_workers.core.base.text import asked_in_one_line, counted, printable, some
from beads_workers.core.records import journal as rec
from beads_workers.core.records.issues import (
    WAIT_FOR_PERSON,
    Issue,
    Place,
    Standing,
    Transition,
)
from beads_workers.core.records.journal import CallEnded, CallStarted, Entry
from beads_workers.core.records.landing import ahead_text, pull_text
from beads_workers.core.views import snapshot
from beads_workers.core.views.agent_board import shown_time

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

NOTES_MAX = 10
"""Number of the last notes that are shown."""

QUARANTINED_MAX = 500
"""Maximum quarantined issues that are shown in full; the queue counts all of them."""

REFUSED_MAX = 50
"""Maximum unlanded branches that are shown in full; their issues are among the quarantined ones."""

TITLE_CHARS_MAX = 200
ERROR_CHARS_MAX = 300
"""Maximum of texts. A snapshot goes out four times a second, also to the client that owns the
fleet: one too long for a connection would close it. The whole texts are in journal and logs."""

assert 6 * QUARANTINED_MAX * (ERROR_CHARS_MAX + TITLE_CHARS_MAX) < limits.OUTBOX_BYTES_MAX // 2

# A journal may name a state of a newer version, or a damaged one: it is shown all the same.
SHOWN_STATES = {
    "recovering": "running",
    "waiting": "waiting",
    "running": "running",
    "paused": "paused",
    "draining": "draining",
    "stopping": "stopping",
    "settling": "stopping",
    "ended": "stopping",
}


def status(board: snapshot.Board, elapsed: float) -> dict[str, Any]:
    """Return the JSON of ``status --json``; ``elapsed``: seconds of the run now."""
    run = board.run
    queue = _queue(board, elapsed)
    quarantined = board.issues.standing(Standing.QUARANTINED)
    rate = _rate_per_minute(board, elapsed, queue["running"])
    left = queue["total"] - queue["closed"] - sum(queue[each.value] for each in WAIT_FOR_PERSON)
    accounts = board.agents.accounts(queue["ready"], board.began_at + elapsed)
    return {
        "running": board.ended is None,
        "pid": run.pid if run else None,
        "run_id": run.run_id if run else None,
        "socket": run.socket if run else None,
        "control_socket": run.control_socket if run else None,
        "project": run.project if run else None,
        "source": run.source if run else None,
        "argv": list(run.argv) if run else [],
        "state": SHOWN_STATES.get(board.state, "running"),
        "state_reason": board.state_reason,
        "hours": _hours(board, elapsed),
        "uptime_seconds": round(elapsed, 3),
        "workers": [_worker(row, elapsed) for row in _in_order(board)],
        "places": [{"name": name, **seen} for name, seen in board.places_seen.items()],
        "workers_peak": board.workers_peak,
        "queue": queue,
        "quarantined": [quarantined_row(issue) for issue in quarantined[-QUARANTINED_MAX:]],
        "questions": [question_row(issue) for issue in board.questions[:QUARANTINED_MAX]],
        "occupied": list(islice(_occupied(board), QUARANTINED_MAX)),
        "approvals": [approval_row(issue) for issue in board.awaiting[:QUARANTINED_MAX]],
        "discovered": list(board.listed.discovered),
        "held_elsewhere": [
            {"issue_id": issue_id, "actor": actor}
            for issue_id, actor in zip(board.listed.held, board.listed.holders, strict=False)
        ],
        "totals": dict(board.totals),
        "refused_messages": board.counters.refused,
        "source_state": _source_state(board, elapsed),
        "accounts": accounts,
        "to_review": board.agents.to_review(),
        "money": board.agents.money() if board.agents.agents else None,
        "landing": _landing(board, elapsed),
        "degraded": [_condition(began) for began in board.degraded.values()],
        "rate_per_minute": rate,
        "eta_seconds": _eta(board, left, rate, accounts),
        "source_calls": _source_calls(board, elapsed),
        "notes": [
            {"at": e.at, "level": n.level, "text": n.text[: limits.ERROR_CHARS_MAX]}
            for e, n in _notes(board)
        ],
        "outcomes": [_outcome(ended) for ended in board.activity.last],
        "throughput": {
            "bucket_seconds": board.activity.throughput.bucket_seconds,
            "done": list(board.activity.throughput.done),
        },
        "needs": [{"text": text, "remedy": remedy} for text, remedy in needs(board)],
        "ended": shown(board.ended, rec.RunEnded) if board.ended else None,
    }


def _hours(board: snapshot.Board, elapsed: float) -> dict[str, Any]:
    """Return when attempts begin, if the run waits for that, and when they end; None for never."""
    now, until = board.began_at + elapsed, board.run.until if board.run else 0.0
    hours: dict[str, Any] = {}
    for name, at in (("begins", board.state_until), ("ends", until)):
        hours[f"{name}_at"] = shown_time(at) if at else None
        hours[f"{name}_in_seconds"] = round(max(0.0, at - now), 1) if at else None
    return hours


def _queue(board: snapshot.Board, elapsed: float) -> dict[str, Any]:
    """Return the counts of ``status``. Each issue that is known is in one of them, and ``total`` is
    their sum."""
    places = board.places()
    places[Place.READY] += sum(board.listed.by_priority)
    closed = board.closings + (board.run.night.closed if board.run else 0)
    return {
        "ready_more": board.listed.more,
        "by_priority": list(board.listed.by_priority),
        "next_retry_seconds": _next_retry(board.retrying, elapsed),
        "blocked": board.listed.blocked,
        **{place.value: places[place] for place in Place},
        "closed": closed,
        "total": closed + board.listed.blocked + places.total(),
    }


def _occupied(board: snapshot.Board) -> Iterator[dict[str, str]]:
    """Yield the issues in whose worktrees a person stands, and who that is."""
    for issue in board.issues.standing(Standing.OCCUPIED):
        who = issue.retry_entry.occupied if issue.retry_entry else ""
        yield {"issue_id": issue.issue_id, "title": issue.title[:TITLE_CHARS_MAX], "who": who}


def quarantined_row(issue: Issue) -> dict[str, Any]:
    """Return the row of a quarantined issue."""
    return {
        "issue_id": issue.issue_id,
        "title": issue.title[:TITLE_CHARS_MAX],
        "attempts": issue.charged,
        "error": issue.error[:ERROR_CHARS_MAX],
    }


def question_row(issue: Issue) -> dict[str, Any]:
    """Return the row of an issue that waits for an answer."""
    past = issue.retry_entry
    return {
        "issue_id": issue.issue_id,
        "title": issue.title[:TITLE_CHARS_MAX],
        "question": past.question if past else "",
        "asked_at": round(past.asked_at, 3) if past else None,
        "agent": past.receipt.agent if past and past.receipt else None,
        "branch": past.receipt.branch if past and past.receipt else "",
    }


def approval_row(issue: Issue) -> dict[str, Any]:
    """Return the row of a finished branch that awaits approval. ``message``: the agent's last
    words; ``gate``: of its gate ahead of approval."""
    add, past = issue.landing, issue.retry_entry
    receipt, ahead = past.receipt if past else None, past.ahead if past else None
    gate = (
        {"verdict": ahead.verdict, "tip": ahead.tip, "text": ahead_text(ahead)} if ahead else None
    )
    return {
        "issue_id": issue.issue_id,
        "title": issue.title[:TITLE_CHARS_MAX],
        "branch": add.branch if add else "",
        "commit": add.commit if add else "",
        "diffstat": receipt.diffstat[:ERROR_CHARS_MAX] if receipt else "",
        "verified": receipt.verified if receipt else False,
        "gate": gate,
        "message": receipt.message if receipt else "",
        "agent": receipt.agent if receipt else None,
    }


def _landing(board: snapshot.Board, elapsed: float) -> dict[str, Any] | None:
    """Return the landing of ``status``; None if nothing lands."""
    waiting = board.waiting_to_land
    in_review = board.issues.standing(Standing.IN_REVIEW)
    if not (board.landings.branch or waiting or board.awaiting or in_review):
        return None
    return {
        "in_review": [row for i in in_review[:QUARANTINED_MAX] for row in _in_review(i)],
        "waiting_to_land": [
            {"issue_id": i.issue_id, "title": i.title[:TITLE_CHARS_MAX]}
            for i in waiting[:QUARANTINED_MAX]
        ],
        "refused": [_refused(issue) for issue in islice(board.refused, REFUSED_MAX)],
        **board.landings.shown(elapsed),
    }


def _in_review(issue: Issue) -> Iterator[dict[str, Any]]:
    """Yield the row of an issue whose pull request is open."""
    if (pull := issue.in_review) is not None:
        about = {"title": issue.title[:TITLE_CHARS_MAX], "text": _cut(pull_text(pull))}
        names = ("number", "url", "commit", "checks", "review", "waits")
        yield {"issue_id": issue.issue_id, **about, **{name: getattr(pull, name) for name in names}}


def _refused(issue: Issue) -> dict[str, Any]:
    receipt = issue.retry_entry.receipt if issue.retry_entry else None
    return {
        "issue_id": issue.issue_id,
        "title": issue.title[:TITLE_CHARS_MAX],
        "branch": receipt.branch if receipt else "",
        "error": issue.error[:ERROR_CHARS_MAX],
    }


def _condition(began: rec.DegradedBegan) -> dict[str, Any]:
    return {
        "condition": began.what,
        "text": _cut(began.text),
        "remedy": _cut(began.todo),
        "stops": began.stops,
    }


def shown(value: DataclassInstance, kind: type[DataclassInstance]) -> dict[str, Any]:
    """Return a key for each field of ``kind``, of which ``value`` is an instance."""
    return {name: _cut(getattr(value, name)) for name in _names(kind)}


@cache
def _names(kind: type[DataclassInstance]) -> tuple[str, ...]:
    return tuple(field.name for field in fields(kind))


def _cut(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return shown(value, type(value))
    return value[:ERROR_CHARS_MAX] if isinstance(value, str) else value


def _notes(board: snapshot.Board) -> list[tuple[Entry, rec.Noted]]:
    notes = [(e, e.record) for e in board.notes if isinstance(e.record, rec.Noted)]
    return notes[-NOTES_MAX:]


def _outcome(ended: snapshot.EndedAttempt) -> dict[str, Any]:
    finished, receipt = ended.finished, ended.receipt
    return {
        "at": round(ended.at, 3),
        "issue_id": finished.issue_id,
        "title": ended.title[:TITLE_CHARS_MAX],
        "worker_id": finished.worker_id,
        "attempt": finished.attempt,
        "outcome": finished.outcome,
        "decision": finished.verdict,
        "error": finished.error[:ERROR_CHARS_MAX],
        "seconds": finished.duration_ms / 1000,
        "charged": finished.charged >= finished.attempt,
        "retry_in_seconds": finished.delay_seconds if finished.verdict == "requeue" else None,
        "agent": receipt.agent if receipt else None,
        "escalated": receipt.escalated if receipt else None,
        "tokens": receipt.tokens.total if receipt else None,
        "money_usd": receipt.money if receipt else None,
        "diffstat": receipt.diffstat[:ERROR_CHARS_MAX] if receipt else None,
    }


def _source_calls(board: snapshot.Board, elapsed: float) -> dict[str, Any]:
    asking = board.activity.asking
    typical, done = asking.typical_seconds(), board.totals["done"]
    return {
        "count": asking.spent.calls,
        "seconds": round(asking.spent.seconds, 3),
        "per_done": round(asking.spent.calls / done, 3) if done else None,
        "typical_seconds": None if typical is None else round(typical, 4),
        "slowest_recent_seconds": round(max(asking.each), 4) if asking.each else None,
        "now": _doing(asking),
        "now_seconds": round(elapsed - asking.since, 3) if asking.round_trip else None,
    }


def _doing(asking: snapshot.Asking) -> str | None:
    if (round_trip := asking.round_trip) is None:
        return None
    parts = [
        f"settling {round_trip.settle}" if round_trip.settle else "",
        f"renewing {round_trip.renew}" if round_trip.renew else "",
        f"claiming up to {round_trip.take}" if round_trip.take else "",
        "listing" if round_trip.take == 0 else "",
    ]
    return ", ".join(part for part in parts if part) or None


def _next_retry(retrying: Mapping[str, float], elapsed: float) -> float | None:
    soonest = min(retrying.values(), default=None)
    return None if soonest is None else round(max(0.0, soonest - elapsed), 1)


def _eta(
    board: snapshot.Board, left: int, rate: float, accounts: list[dict[str, Any]]
) -> float | None:
    # In a pause, and while all accounts are closed, the rate says nothing of what is to come.
    halted = board.state != "running" or board.trouble is not None
    if halted or not (rate and left) or any(account["waiting"] for account in accounts):
        return None
    return round(left / rate * 60.0, 1)


def _in_order(board: snapshot.Board) -> list[snapshot.WorkerRow]:
    return sorted(board.workers.values(), key=lambda row: snapshot.worker_order(row.worker_id))


def _worker(row: snapshot.WorkerRow, elapsed: float) -> dict[str, Any]:
    seconds = round(elapsed - row.since, 3) if row.issue_id else None
    progress = row.progress
    used = {
        "activity": progress.activity if progress else None,
        "tokens": progress.tokens if progress else None,
        "money_usd": progress.money if progress else None,
    }
    return {**shown(row, snapshot.ShownWorker), **used, "elapsed_seconds": seconds}


def _source_state(board: snapshot.Board, elapsed: float) -> dict[str, Any]:
    trouble = board.trouble
    if trouble is None:
        return {"state": "ok", "error": None, "since_seconds": None, "retry_in_seconds": None}
    return {
        "state": "failing" if trouble.failures >= TROUBLE_FAILURES else "backing_off",
        "error": trouble.error,
        "remedy": trouble.hint,
        "since_seconds": round(elapsed - trouble.since, 1),
        "retry_in_seconds": round(max(0.0, trouble.retry_at - elapsed), 1),
    }


RATE_SILENCE_ENDS = 3
"""Ends that chance may keep back (the rule of three): a longer silence is the rate by itself."""


def _rate_per_minute(board: snapshot.Board, elapsed: float, running: int) -> float:
    recent = board.recent_done
    if not recent:
        return 0.0
    # Over the last 200 completions, or as many as there are, within ten seconds at least: the first
    # one is not a rate.
    seconds = (
        elapsed - recent[0] if len(recent) == recent.maxlen else max(elapsed - recent[0], 10.0)
    )
    # Running tasks may all end together; after the last work, the rate falls.
    most = max(RATE_SILENCE_ENDS, running) / max(elapsed - recent[-1], 0.001)
    return round(60.0 * min(len(recent) / max(seconds, 0.001), most), 1)


END_REASONS = {
    "": "as asked",
    "user_requested": "as asked",
    "idle_timeout": "nothing is left to do",
}
"""The reasons of a SHUTDOWN, for people."""


def ending(board: snapshot.Board, run_id: str) -> dict[str, Any]:
    """Return how a run ended: the ``last_run`` of ``status --json``, without ``settled``."""
    shown = status(board, board.elapsed)
    ended = board.ended
    reason = END_REASONS.get(ended.reason, ended.reason) if ended else ""
    others = shown["held_elsewhere"] or board.questions or board.awaiting
    others = others or board.issues.standing(Standing.IN_REVIEW)
    if others and ended and ended.reason == "idle_timeout":
        reason = "nothing else is left to do"
    how = f"ended: {reason}" if ended else "ended without a word (killed?)"
    return {
        "run_id": run_id,
        "ending": how,
        "began_at": round(board.began_at, 3),
        "ended_at": round(board.began_at + board.elapsed, 3),
        "exit_code": ended.exit_code if ended else None,
        "closed": shown["totals"]["done"],
        "failed": shown["totals"]["failed"],
        "quarantined": shown["quarantined"],
        "unclosed": shown["queue"]["unclosed"],
        "queue": shown["queue"],
        "questions": shown["questions"],
        "approvals": shown["approvals"],
        "held_elsewhere": shown["held_elsewhere"],
        "project": shown["project"],
        "landing": shown["landing"],
        "quarantined_here": board.totals["quarantined"],
        "spent_usd": round(board.agents.ledger.spent().money, 6),
        "night": _night(board, run_id),
    }


def _night(board: snapshot.Board, run_id: str) -> dict[str, Any]:
    """Return the night of this run up to its end, as the next start reads it."""
    before = board.run.night if board.run else NightSoFar()
    spent = board.agents.ledger.spent_in_night()
    return {
        "first": before.first or run_id,
        "runs": before.runs + 1,
        "began_at": round(before.began_at or board.began_at, 3),
        "spent_usd": round(spent.money, 6),
        "tokens": spent.tokens,
        "cut_attempts": spent.cut,
        "closed": before.closed + board.closings,
    }


# --- attention -----------------------------------------------------------------------------------
# Everything that needs a person, each with what to type. The dashboard shows it, ``status`` tells
# it.


def _lost(issue: Issue) -> tuple[str, str]:
    if (lease := issue.lease) is not None:
        return f"{issue.issue_id} is on {lease.host}, and its worker here is gone", ""
    return (
        f"{issue.issue_id}: its worker {issue.worker_id} left, and pid {issue.lost_pid}"
        " still lives",
        f"end that process, or wait for it; 'release {issue.issue_id}' gives it back now",
    )


def needs(board: snapshot.Board) -> Iterator[tuple[str, str]]:
    """Yield (what is the matter, what to do), the most pressing first."""
    for condition in board.degraded.values():
        yield condition.text, condition.todo
    if (trouble := board.trouble) and trouble.failures >= TROUBLE_FAILURES:
        yield f"the tracker does not answer: {trouble.error}", trouble.hint or "doctor"
    for worker_id, reason in board.given_up.items():
        yield f"{worker_id} {reason} and is not started again", f"logs {worker_id}"
    for name, seen in board.places_seen.items():
        if seen["why"]:
            yield f"{name} is not reached: {printable(seen['why'], 120)}", f"doctor --on {name}"
    yield from map(_lost, board.orphaned)
    for closed in board.agents.closed.values():
        if closed.trouble == "needs_person":
            todo = f"{closed.todo}, then resume" if closed.todo else "mend it, then resume"
            yield f"{closed.agent}: {closed.why}", todo
    for issue in board.questions:
        question = issue.retry_entry.question if issue.retry_entry else ""
        asked = asked_in_one_line(question, ASKED_WIDTH)
        yield f"{issue.issue_id} asks: {asked}", f"answer {issue.issue_id}"
    for issue in board.awaiting:
        past = issue.retry_entry
        stat = past.receipt.diffstat if past is not None and past.receipt is not None else ""
        gate = ahead_text(past.ahead) if past is not None else ""
        said = "; ".join(filter(None, (gate, stat or issue.title)))
        yield (
            f"{issue.issue_id} awaits approval: {printable(said, ASKED_WIDTH)}",
            f"diff {issue.issue_id}; approve {issue.issue_id}",
        )
    for row in _occupied(board):
        yield f"{row['issue_id']} waits: {printable(row['who'], ASKED_WIDTH)}", LEAVE
    if board.state == "draining":
        why = END_REASONS.get(board.state_reason, board.state_reason)
        yield f"draining ({why}): what runs may finish, nothing new begins", ""
    if board.state == "paused":
        # The reason first: if there is little room, only the beginning is seen.
        yield f"paused: {board.state_reason or 'nothing new is handed out'}", "resume"
    if unclosed := board.unclosed:
        yield f"{len(unclosed)} done, and still unclosed", "doctor"
    if found := board.listed.discovered:
        yield (
            f"{counted(len(found), 'issue')} that agents filed: look at them, then have them done",
            f"start {some(list(found))}",
        )
    if held := board.listed.held:
        holders = list(dict.fromkeys(board.listed.holders))
        runs = any(each.startswith(FLEETS) for each in holders)
        who = (holders[0] or "nobody") if len(holders) == 1 else "others"
        yield (
            f"{counted(len(held), 'issue')} in progress, held by {who}",
            f"why {held[0]}; release {'--abandoned' if runs else held[0]}",
        )
    if quarantined := board.quarantined:
        again = " ".join(quarantined) if len(quarantined) <= TYPED_MAX else "--all"
        newest, (_, error) = [*quarantined.items()][-1]
        many = f"{len(quarantined)} quarantined{', the newest' if len(quarantined) > 1 else ''}"
        yield f"{many}: {printable(error, ASKED_WIDTH)}", f"logs {newest}; retry {again}"


LEAVE = "leave that folder, and it goes on"
ASKED_WIDTH = 160
"""Columns of a question among what needs a person; ``answer`` and ``status`` show it whole."""

TYPED_MAX = 5
"""Maximum issues that are named in what a person is to type."""

TROUBLE_FAILURES = 3
"""Failures in a row after which a person should look; one or two may be a hiccup."""


# --- frames --------------------------------------------------------------------------------------
# The moments of a run that are shown: the end of each quarter second in which something changed.
#
# They are the same for watchers of a run and for replays: a snapshot is then a function of the
# journal alone, its clocks included.


FRAME_SECONDS = 0.25
"""At most four frames a second: to people it is at once. A power of two, so that ends are exact."""


class Frames:
    """Feeds a board, and returns what it showed at the end of each frame.

    ``watched``: nothing is worked out while nobody looks. ``ends``: elapsed seconds of the run at
    which the frame is over in which something has changed; infinite while nothing has.
    """

    def __init__(self, board: snapshot.Board, *, watched: bool) -> None:
        self.board = board
        self.watched = watched
        self.ends = inf

    def add(self, entry: Entry) -> dict[str, Any] | None:
        """Take in the next entry of a journal; return the snapshot of a frame that ended before."""
        if isinstance(entry.record, CallStarted | CallEnded):
            return None  # Written beside the loop, and not shown to people.
        shown = self.due(entry.elapsed)
        self.board.apply(entry)
        self._begin(entry)
        return shown

    def show(self, entry: Entry, change: Transition | None) -> None:
        """Take in an entry of the live core, see ``Board.show``.
        The caller has asked for all that was ``due`` before the core was told the time of this
        entry."""
        self.board.show(entry, change)
        self._begin(entry)

    def _begin(self, entry: Entry) -> None:
        if self.watched and self.ends == inf:
            self.ends = (floor(entry.elapsed / FRAME_SECONDS) + 1) * FRAME_SECONDS

    def due(self, elapsed: float) -> dict[str, Any] | None:
        """Return the snapshot of the frame that is over by now, if something changed in it."""
        if elapsed < self.ends:
            return None
        return self.rest()

    def rest(self) -> dict[str, Any] | None:
        """Return the snapshot of the begun frame, as at its end: nothing more will change."""
        if self.ends == inf:
            return None
        ends, self.ends = self.ends, inf
        return status(self.board, ends)
