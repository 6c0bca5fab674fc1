"""The part of the board about agents: their accounts, and what they have cost."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from beads_workers.core.base import limits
from beads_workers.core.base.wire import Progress
from beads_workers.core.records import journal as rec
from beads_workers.core.records.money import Ledger, Spend, UnderWay

SHOWN_STATES = {
    "limited": "limited",
    "needs_person": "needs_person",
    "transient": "backing_off",
}
"""Names that ``status`` gives to the states of closed accounts; an open one is ``available``."""


FLAGGED_MAX = 200
"""Maximum length of the morning list; nobody reads a longer one."""


@dataclass(slots=True)
class AgentBoard:
    """A fold, part of ``snapshot.Board``: the accounts of agents, and what the work has cost."""

    # By name, with how full their accounts' fullest windows are (0 to 1, None if they do not say).
    agents: dict[str, float | None] = field(default_factory=dict)
    # By account and model.
    closed: dict[tuple[str, str], rec.AccountClosed] = field(default_factory=dict)
    ledger: Ledger = field(default_factory=Ledger)
    # What a person should look at, by the issue whose last attempt says so.
    flagged: dict[str, rec.Finished] = field(default_factory=dict)
    budget: str = ""
    _working: dict[str, str] = field(default_factory=dict)
    _nights_runs: int = 1

    def run_started(self, run: rec.RunStarted) -> None:
        """Take over the run's budget and agents, and what its night has cost by now."""
        self.budget, self.agents = run.budget, dict.fromkeys(run.agents)
        self.ledger, self._nights_runs = Ledger(run.run_id, run.night), run.night.runs + 1

    def started(self, started: rec.Started) -> None:
        """Note which agent an attempt begins with."""
        if started.agent:
            self.agents.setdefault(started.agent, None)
            self._working[started.issue_id] = started.agent

    def finished(self, finished: rec.Finished) -> None:
        """Count an ended attempt's cost. Put its issue on the morning list if it is flagged."""
        if finished.receipt or finished.issue_id in self._working:
            self._working.pop(finished.issue_id, None)
            receipt = finished.receipt
            self.ledger.ended(finished.issue_id, receipt, finished.outcome)
            self.flagged.pop(finished.issue_id, None)
            if receipt is not None and receipt.flags and len(self.flagged) < FLAGGED_MAX:
                self.flagged[finished.issue_id] = finished

    def add_progress(self, progress: Progress) -> None:
        """Take over the tokens, money and utilization that an attempt reports."""
        if progress.tokens is not None:
            self.ledger.progress(
                progress.issue_id, UnderWay(progress.tokens, progress.money or 0.0)
            )
        agent = self._working.get(progress.issue_id)
        if agent is not None and progress.utilization is not None:
            self.agents[agent] = progress.utilization

    def apply(self, record: rec.Record) -> None:
        """Take in any other record about agents."""
        match record:
            case rec.AccountClosed() as closed:
                self.agents.setdefault(closed.agent, None)
                self.closed[closed.account, closed.model] = closed
            case rec.AccountOpened(account, agent, model):
                self.closed.pop((account, model), None)
                self.agents[agent] = None
            case rec.UsageFound(issue_id, _, request_id, receipt, whole):
                if receipt is not None and receipt.agent:
                    self.agents.setdefault(receipt.agent, None)
                self.ledger.found(issue_id, request_id, receipt, whole=whole)
            case _:
                pass

    # --- shown ------------------------------------------------------------------------------------

    def accounts(self, ready: int, now: float) -> list[dict[str, Any]]:
        """Return a row for each agent.
        ``ready``: issues that wait while all accounts are closed; ``now``: epoch seconds."""
        closed = {each.agent: each for each in self.closed.values()}
        waiting = ready if closed and closed.keys() >= self.agents.keys() else 0
        return [
            _row(agent, utilization, closed.get(agent), waiting, now)
            for agent, utilization in self.agents.items()
        ]

    def to_review(self) -> list[dict[str, Any]]:
        """Return the morning list: issues that their last attempt flagged for a person."""
        return [
            {"issue_id": issue_id, "flags": list(receipt.flags), "error": finished.error}
            for issue_id, finished in self.flagged.items()
            if (receipt := finished.receipt) is not None
        ]

    def money(self) -> dict[str, Any]:
        """Return what has been spent, running attempts included."""
        spent, in_night = self.ledger.spent(), self.ledger.spent_in_night()
        tokens = self.ledger.total.tokens
        return {
            "spent_usd": round(spent.money, 6),
            "budget": self.budget or None,
            "tokens": {
                "input": tokens.input,
                "output": tokens.output,
                "cached_read": tokens.cached_read,
                "cached_write": tokens.cached_write,
                "total": spent.tokens,
            },
            "unpriced_tokens": self.ledger.total.unpriced,
            "night": {
                "runs": self._nights_runs,
                "spent_usd": round(in_night.money, 6),
                "tokens": in_night.tokens,
                "cut_attempts": in_night.cut,
            },
            "cut_attempts": spent.cut,
            "by_agent": {name: _spend(each) for name, each in self.ledger.by_agent.items()},
            "by_verdict": {name: _spend(each) for name, each in self.ledger.by_verdict.items()},
        }


def _row(
    agent: str,
    utilization: float | None,
    closed: rec.AccountClosed | None,
    waiting: int,
    now: float,
) -> dict[str, Any]:
    until = (closed.until or closed.probe_at) if closed is not None else 0.0
    return {
        "agent": agent,
        "state": SHOWN_STATES.get(closed.trouble, "limited") if closed else "available",
        "model": closed.model or None if closed else None,
        "reason": closed.why[: limits.ERROR_CHARS_MAX] if closed else None,
        "remedy": closed.todo or None if closed else None,
        "until_seconds": round(until - now, 1) if until else None,
        "until": shown_time(until) if until else None,
        "probe_at": shown_time(closed.probe_at) if closed else None,
        "utilization": utilization,
        "waiting": waiting if closed else 0,
    }


def _spend(spend: Spend) -> dict[str, Any]:
    return {"usd": round(spend.money, 6), "tokens": spend.tokens.total}


def shown_time(epoch: float) -> str:
    """Return epoch seconds as a time of ``status --json``."""
    try:
        moment = datetime.fromtimestamp(epoch, UTC)
    except (OverflowError, ValueError, OSError):
        return "never"
    return moment.isoformat(timespec="seconds")
