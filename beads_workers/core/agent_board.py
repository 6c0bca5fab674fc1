"""What people are shown of agents: their accounts, and what they have cost. Part of the board."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from beads_workers.core import journal as rec
from beads_workers.core import limits
from beads_workers.core.money import Ledger, Spend, UnderWay
from beads_workers.core.wire import Progress

SHOWN_STATES = {
    "limited": "limited",
    "needs_person": "needs_person",
    "transient": "backing_off",
}
"""What ``status`` calls the account of an agent that is closed; else it is ``available``."""


FLAGGED_MAX = 200
"""Of the morning list; more is no list that anybody reads."""


@dataclass(slots=True)
class AgentBoard:
    """``closed``: by account and model. ``agents``: by name, with how full their accounts' fullest
    windows are (0 to 1, None where they do not say). ``flagged``: what a person should look at, by
    the issue whose last attempt says so."""

    agents: dict[str, float | None] = field(default_factory=dict)
    closed: dict[tuple[str, str], rec.AccountClosed] = field(default_factory=dict)
    ledger: Ledger = field(default_factory=Ledger)
    flagged: dict[str, rec.Finished] = field(default_factory=dict)
    budget: str = ""
    _working: dict[str, str] = field(default_factory=dict)

    def run_started(self, run: rec.RunStarted) -> None:
        """The run begins."""
        self.budget, self.agents = run.budget, dict.fromkeys(run.agents)

    def started(self, started: rec.Started) -> None:
        """An attempt begins."""
        if started.agent:
            self.agents.setdefault(started.agent, None)
            self._working[started.issue_id] = started.agent

    def finished(self, finished: rec.Finished) -> None:
        """It has ended, and says what it cost."""
        if finished.receipt or finished.issue_id in self._working:
            self._working.pop(finished.issue_id, None)
            receipt = finished.receipt
            self.ledger.ended(finished.issue_id, receipt)
            self.flagged.pop(finished.issue_id, None)
            if receipt is not None and receipt.flags and len(self.flagged) < FLAGGED_MAX:
                self.flagged[finished.issue_id] = finished

    def heard(self, progress: Progress) -> None:
        """It says how far it is."""
        if progress.tokens is not None:
            self.ledger.progress(
                progress.issue_id, UnderWay(progress.tokens, progress.money or 0.0)
            )
        agent = self._working.get(progress.issue_id)
        if agent is not None and progress.utilization is not None:
            self.agents[agent] = progress.utilization

    def apply(self, record: rec.Record) -> None:
        """Whatever else says something of agents."""
        match record:
            case rec.AccountClosed() as closed:
                self.agents.setdefault(closed.agent, None)
                self.closed[closed.account, closed.model] = closed
            case rec.AccountOpened(account, agent, model):
                self.closed.pop((account, model), None)
                self.agents[agent] = None
            case rec.UsageFound(issue_id, _, _, receipt):
                if receipt is not None and receipt.agent:
                    self.agents.setdefault(receipt.agent, None)
                self.ledger.found(issue_id, receipt)
            case _:
                pass

    # --- shown ------------------------------------------------------------------------------------

    def accounts(self, ready: int, now: float) -> list[dict[str, Any]]:
        """A row for each agent. ``ready``: issues that wait while all accounts are closed; ``now``:
        epoch seconds."""
        closed = {each.agent: each for each in self.closed.values()}
        waiting = ready if closed and closed.keys() >= self.agents.keys() else 0
        return [
            _row(agent, utilization, closed.get(agent), waiting, now)
            for agent, utilization in self.agents.items()
        ]

    def to_review(self) -> list[dict[str, Any]]:
        """The morning list: issues whose last attempt says that a person should look at them."""
        return [
            {"issue_id": issue_id, "flags": list(receipt.flags), "error": finished.error}
            for issue_id, finished in self.flagged.items()
            if (receipt := finished.receipt) is not None
        ]

    def money(self) -> dict[str, Any]:
        """What has been spent, with what runs now."""
        spent = self.ledger.spent()
        tokens = self.ledger.total.tokens
        return {
            "spent": round(spent.money, 6),
            "budget": self.budget or None,
            "tokens": {
                "input": tokens.input,
                "output": tokens.output,
                "cached_read": tokens.cached_read,
                "cached_write": tokens.cached_write,
                "total": spent.tokens,
            },
            "unpriced_tokens": self.ledger.total.unpriced,
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
        "why": closed.why[: limits.ERROR_CHARS_MAX] if closed else None,
        "todo": closed.todo or None if closed else None,
        "until_seconds": round(until - now, 1) if until else None,
        "until": _shown_time(until) if until else None,
        "probe_at": _shown_time(closed.probe_at) if closed else None,
        "utilization": utilization,
        "waiting": waiting if closed else 0,
    }


def _spend(spend: Spend) -> dict[str, Any]:
    return {"usd": round(spend.money, 6), "tokens": spend.tokens.total}


def _shown_time(epoch: float) -> str:
    try:
        moment = datetime.fromtimestamp(epoch, UTC)
    except (OverflowError, ValueError, OSError):
        return "never"
    return moment.isoformat(timespec="seconds")
