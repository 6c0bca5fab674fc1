"""Notifications for a person who does not look: a fold over the journal's records.

    notices = Notices()
    told = notices.add(entry, board)          # after board.apply(entry)
    told = notices.due(elapsed, board)        # when ``notices.ends`` has come

Events of the same kind share one notice: a fleet whose command is broken quarantines fifty issues
in a minute, and that is one message, not fifty.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from math import inf
from typing import Any

from beads_workers.core.base.model import value
from beads_workers.core.base.text import counted, in_one_line, printable
from beads_workers.core.records import journal as rec
from beads_workers.core.records.journal import Entry
from beads_workers.core.records.landing import refusal_text
from beads_workers.core.views.snapshot import Board
from beads_workers.core.views.status import END_REASONS
from beads_workers.ui.agents import closed_account, used

QUARANTINED_SECONDS = 30.0
"""Interval between notices of quarantined issues; the first one is sent at once."""

FAILURES_TOLD = 3
"""Number of tracker failures in a row that a person is told of: fewer pass by themselves."""

NAMED_MAX = 20
"""Number of issues that one notice names; it also has the total."""

TITLE_WIDTH = 80
QUESTION_WIDTH = 2000
"""Width of a question: it is sent whole."""
ERROR_WIDTH = 300
"""Width of an error in columns: some programs show a notice in a corner of the screen."""


@value
class Notice:
    """A notification. Its figures are those of the run so far."""

    # The name of the notification.
    event: str
    # One sentence, fit for any terminal.
    text: str
    # Epoch seconds.
    at: float
    run_id: str
    project: str
    closed: int = 0
    failed: int = 0
    quarantined: int = 0
    unclosed: int = 0
    # Finished issues whose branches have landed, and (``unlanded``) have not.
    landed: int = 0
    unlanded: int = 0
    # Number of issues that were quarantined, or 1 if an issue waits for an answer or an approval.
    count: int = 0
    # The first ones of these issues.
    issue_ids: tuple[str, ...] = ()
    # If there are such issues, title and error are those of the first.
    issue_title: str = ""
    error: str = ""
    exit_code: int | None = None
    # The owner of the account.
    agent: str = ""
    # The command that fixes the problem, if it is known.
    todo: str = ""
    spent_usd: float = 0.0
    tokens: int = 0


def environment(notice: Notice) -> dict[str, str]:
    """Return the environment variables of the command; empty if a name has no meaning."""
    ids, code = notice.issue_ids, notice.exit_code
    variables = {
        each.name: getattr(notice, each.name) for each in fields(notice) if each.name != "at"
    }
    variables |= {"issue_id": ids[0] if ids else "", "issue_ids": " ".join(ids)}
    variables |= {"spent_usd": f"{notice.spent_usd:.6f}", "exit_code": "" if code is None else code}
    return {f"BW_{name.upper()}": str(text) for name, text in variables.items()}


def _asked(issue_id: str, finished: rec.Finished, entry: Entry, board: Board) -> Notice:
    question = (finished.receipt.question if finished.receipt else "") or finished.error
    says = f"asks: {in_one_line(question, QUESTION_WIDTH)}"
    return _waits("question", issue_id, says, "answer", entry, board)


def _awaits(issue_id: str, finished: rec.Finished, entry: Entry, board: Board) -> Notice:
    stat = finished.receipt.diffstat if finished.receipt else ""
    says = f"awaits approval: {printable(stat, ERROR_WIDTH)}"
    return _waits("approval", issue_id, says, "diff", entry, board)


def _waits(event: str, issue_id: str, says: str, verb: str, entry: Entry, board: Board) -> Notice:
    name, title = printable(issue_id), printable(board.title(issue_id), TITLE_WIDTH)
    todo = f"beads-workers {verb} {name}"
    text = f"{name}{f' ({title})' if title else ''} {says} -- {todo}"
    return _notice(
        event,
        text,
        entry.at,
        board,
        count=1,
        issue_ids=(issue_id,),
        issue_title=title,
        todo=todo,
    )


@value
class _Quarantined:
    issue_id: str
    title: str
    after: str
    error: str


class Notices:
    """Collector of notices. ``ends``: elapsed seconds when ``due`` has one; infinite for none."""

    def __init__(self) -> None:
        self.ends = inf
        self._gathered: list[_Quarantined] = []
        self._quiet_until = 0.0
        self._failing = False
        self._announced: dict[tuple[str, str], str] = {}
        self._spent = ""
        self._nothing_lands = ""
        self._proposed: set[str] = set()

    def add(self, entry: Entry, board: Board) -> list[Notice]:
        """Add the next entry, which the board has applied; return the notices to send now."""
        match entry.record:
            case rec.Finished(issue_id=issue_id, verdict="quarantined") as finished:
                after = f"after {counted(finished.charged, 'attempt')}"
                return self._quarantined(issue_id, after, finished.error, entry, board)
            case rec.Finished(issue_id=issue_id, verdict="asked") as finished:
                return [_asked(issue_id, finished, entry, board)]
            case rec.Finished(issue_id=issue_id, verdict="land", awaits=True) as finished:
                return [_awaits(issue_id, finished, entry, board)]
            case rec.PullSeen(issue_id, pull) if pull.url and issue_id not in self._proposed:
                self._proposed.add(issue_id)
                says = f"is in review: {printable(pull.url, ERROR_WIDTH)}"
                return [_waits("review", issue_id, says, "pr", entry, board)]
            case rec.LandingEnded(issue_id, "quarantined", why, text, files, _, against):
                error = refusal_text(why, files, against, text)
                return self._quarantined(issue_id, "with its branch", error, entry, board)
            case rec.BranchLanded() if self._nothing_lands:
                self._nothing_lands = ""
                return [_notice("landing_resumed", "branches land again", entry.at, board)]
            case rec.DegradedBegan("landing", text, todo):
                return self._paused(text, todo, entry, board)
            case rec.BudgetSpent(why):
                return self._budget(why, entry, board)
            case rec.RunChanged("paused", reason) if reason == self._spent:
                return []
            case rec.RunChanged("paused", reason):
                why = f" ({printable(reason, ERROR_WIDTH)})" if reason else ""
                text = f"the fleet is paused{why}: nothing new is handed out until 'resume'"
                return [_notice("paused", text, entry.at, board)]
            case rec.SourceTrouble() as trouble if trouble.failures >= FAILURES_TOLD:
                return self._trouble(trouble, entry, board)
            case rec.SourceRecovered() if self._failing:
                self._failing = False
                return [_notice("tracker_recovered", "the tracker answers again", entry.at, board)]
            case rec.AccountClosed() as closed:
                return self._closed(closed, entry, board)
            case rec.AccountOpened() as opened:
                return self._opened(opened, entry, board)
            case rec.RunEnded() as ended:
                return [*self._all(board), _finished(ended, entry, board)]
            case _:
                return []

    def _quarantined(
        self, issue_id: str, after: str, error: str, entry: Entry, board: Board
    ) -> list[Notice]:
        self._gathered.append(_Quarantined(issue_id, board.title(issue_id), after, error))
        self.ends = max(entry.elapsed, self._quiet_until)
        return self.due(entry.elapsed, board)

    def _paused(self, text: str, todo: str, entry: Entry, board: Board) -> list[Notice]:
        """Return a notice once until something lands: a red tip is tested every few minutes."""
        if self._nothing_lands == text:
            return []
        self._nothing_lands = text
        shown = printable(text, ERROR_WIDTH)
        return [_notice("landing_paused", shown, entry.at, board, error=shown, todo=todo)]

    def due(self, elapsed: float, board: Board) -> list[Notice]:
        """Return the collected notices if their time has come."""
        if elapsed < self.ends:
            return []
        self._quiet_until = elapsed + QUARANTINED_SECONDS
        return self._all(board)

    def _all(self, board: Board) -> list[Notice]:
        gathered, self._gathered, self.ends = self._gathered, [], inf
        return [_quarantined(gathered, board)] if gathered else []

    def _closed(self, closed: rec.AccountClosed, entry: Entry, board: Board) -> list[Notice]:
        """Return a notice once for each problem of an account: a failed probe is no news."""
        key = closed.account, closed.model
        if self._announced.get(key) == closed.trouble or closed.trouble == "transient":
            return []
        self._announced[key] = closed.trouble
        event = "account_needs_person" if closed.trouble == "needs_person" else "account_limited"
        text = printable(closed_account(closed), ERROR_WIDTH)
        why = printable(closed.why, ERROR_WIDTH)
        shown = {"agent": closed.agent, "todo": closed.todo, "error": why}
        return [_notice(event, text, entry.at, board, **shown)]

    def _opened(self, opened: rec.AccountOpened, entry: Entry, board: Board) -> list[Notice]:
        trouble = self._announced.pop((opened.account, opened.model), "")
        if trouble != "needs_person":
            return []  # A limit ends when it was announced to end.
        text = f"{printable(opened.agent, 40)}: takes work again"
        return [_notice("account_opened", text, entry.at, board, agent=opened.agent)]

    def _budget(self, text: str, entry: Entry, board: Board) -> list[Notice]:
        already_sent, self._spent = self._spent, text
        if already_sent:
            return []
        message = f"{printable(text, ERROR_WIDTH)}: nothing more is begun"
        return [_notice("budget_spent", message, entry.at, board)]

    def _trouble(self, trouble: rec.SourceTrouble, entry: Entry, board: Board) -> list[Notice]:
        if self._failing:
            return []
        self._failing = True
        error = printable(trouble.error, ERROR_WIDTH)
        text = f"the tracker has failed {trouble.failures} times in a row: {error}"
        return [_notice("tracker_failing", text, entry.at, board, error=error)]


def _quarantined(gathered: list[_Quarantined], board: Board) -> Notice:
    first = gathered[0]
    ids = tuple(printable(each.issue_id) for each in gathered[:NAMED_MAX])
    error = printable(first.error, ERROR_WIDTH)
    shown = printable(first.title, TITLE_WIDTH)
    if len(gathered) == 1:
        name = f"{ids[0]} ({shown})" if shown else ids[0]
        text = f"{name} was quarantined {first.after}: {error}"
    else:
        more = ", ..." if len(gathered) > 5 else ""
        named = ", ".join(ids[:5])
        text = f"{len(gathered)} issues were quarantined ({named}{more}); {ids[0]}: {error}"
    at = board.began_at + board.elapsed
    return _notice(
        "quarantined",
        text,
        at,
        board,
        count=len(gathered),
        issue_ids=ids,
        issue_title=shown,
        error=error,
    )


def _finished(ended: rec.RunEnded, entry: Entry, board: Board) -> Notice:
    totals, unclosed = board.totals, _unclosed(board)
    figures = f"closed {totals['done']}, failed attempts {totals['failed']}"
    figures += f", quarantined {totals['quarantined']}"
    figures += f", unclosed {unclosed}" if unclosed else ""
    landed, unlanded = board.landings.landed, len(board.waiting_to_land)
    figures += f"; landed {landed} on {board.landings.branch}" if landed else ""
    figures += f"; waiting to land {unlanded}" if unlanded else ""
    used_up = board.agents.ledger.spent()
    usage = used(used_up.tokens, used_up.money or None)
    figures += f"; agents used {usage}" if usage else ""
    if waits := len(board.agents.flagged):
        figures += f"; {counted(waits, 'issue')} to look at"
    reason = END_REASONS.get(ended.reason) or printable(ended.reason, ERROR_WIDTH)
    text = f"the run has ended ({reason}): {figures}"
    return _notice("finished", text, entry.at, board, exit_code=ended.exit_code)


def _notice(event: str, text: str, at: float, board: Board, **others: Any) -> Notice:
    run, totals = board.run, board.totals
    spent = board.agents.ledger.spent()
    figures: Mapping[str, Any] = {
        "closed": totals["done"],
        "failed": totals["failed"],
        "quarantined": totals["quarantined"],
        "unclosed": _unclosed(board),
        "landed": board.landings.landed,
        "unlanded": len(board.waiting_to_land),
        "spent_usd": round(spent.money, 6),
        "tokens": spent.tokens,
        "run_id": run.run_id if run else "",
        "project": run.project if run else "",
    }
    return Notice(event, text, round(at, 3), **{**figures, **others})


def _unclosed(board: Board) -> int:
    return board.unclosed_count
