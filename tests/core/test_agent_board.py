"""What people are shown of agents: their accounts, the money, and the morning list."""

from __future__ import annotations

from dataclasses import replace

from beads_workers.core.base.wire import Progress
from beads_workers.core.records import journal as rec
from beads_workers.core.records.receipts import Receipt, Tokens
from beads_workers.core.views.agent_board import FLAGGED_MAX, AgentBoard
from beads_workers.core.views.snapshot import Board
from beads_workers.core.views.status import status

NOON = 1_800_000_000.0
BEGAN = rec.RunStarted("r", 1, "a", "bd", "/p", budget="$20", agents=("claude", "codex"))


def board(*records: rec.Record) -> AgentBoard:
    """After these."""
    found = AgentBoard()
    found.run_started(BEGAN)
    for record in records:
        match record:
            case rec.Started():
                found.started(record)
            case rec.Finished():
                found.finished(record)
            case _:
                found.apply(record)
    return found


def ended(issue_id: str, receipt: Receipt | None) -> rec.Finished:
    """An attempt that ended with this receipt."""
    text = receipt
    return rec.Finished(issue_id, "W1", 1, "r", "error", "requeue", "no", receipt=text)


def closed(trouble: str = "limited", until: float = NOON + 600) -> rec.AccountClosed:
    """The account of claude takes no work."""
    return rec.AccountClosed("c1", "claude", trouble, "5-hour limit", "", until, until + 30, NOON)


def test_agents_have_a_row_before_they_have_worked() -> None:
    rows = board().accounts(5, NOON)
    assert [(row["agent"], row["state"]) for row in rows] == [
        ("claude", "available"),
        ("codex", "available"),
    ]


def test_a_closed_account_says_for_how_long_still() -> None:
    row = board(closed()).accounts(5, NOON + 100)[0]
    assert (row["state"], row["until_seconds"], row["waiting"]) == ("limited", 500.0, 0)
    assert row["until"] == "2027-01-15T08:10:00+00:00"


def test_what_is_ready_waits_where_no_other_agent_takes_over() -> None:
    both = board(closed(), rec.AccountClosed("x", "codex", "transient", probe_at=NOON + 60))
    assert [row["waiting"] for row in both.accounts(5, NOON)] == [5, 5]
    assert both.accounts(5, NOON)[1]["state"] == "backing_off"


def test_an_account_that_opened_is_available() -> None:
    row = board(closed(), rec.AccountOpened("c1", "claude")).accounts(5, NOON)[0]
    assert (row["state"], row["until"], row["until_seconds"]) == ("available", None, None)


def test_the_morning_list_holds_what_the_last_attempt_of_an_issue_flagged() -> None:
    flagged = ended("a", Receipt("no_change", flags=("says that no change is needed",)))
    shown = board(flagged, ended("b", Receipt("done"))).to_review()
    assert shown == [{"issue_id": "a", "flags": ["says that no change is needed"], "error": "no"}]
    assert board(flagged, ended("a", Receipt("done"))).to_review() == []


def test_the_morning_list_has_a_limit() -> None:
    many = [ended(f"i-{n}", Receipt("done", flags=("look",))) for n in range(FLAGGED_MAX + 5)]
    assert len(board(*many).to_review()) == FLAGGED_MAX


def test_money_counts_what_runs_and_what_is_over() -> None:
    over = Receipt("done", agent="claude", usage={"m": Tokens(100, 20)}, money=1.5)
    running = rec.Started("b", "W1", 1, "r", agent="claude")
    found = board(ended("a", over), running)
    found.add_progress(Progress("b", "working", tokens=50, money=0.25, utilization=0.9))
    shown = found.money()
    assert (shown["spent_usd"], shown["budget"]) == (1.75, "$20")
    assert shown["tokens"]["total"] == 170
    assert found.accounts(0, NOON)[0]["utilization"] == 0.9


def test_an_escalated_attempt_costs_under_its_model_and_the_others_under_their_agent() -> None:
    whole = Board()
    whole.apply(rec.Entry(BEGAN, 0.0, 0.0))
    usual = Receipt("done", agent="claude", model="sonnet", money=0.5)
    last = replace(usual, model="opus", instead_of="claude sonnet", money=2.0)
    for number, receipt in enumerate((usual, last), 1):
        started = rec.Started(
            "a", "W1", number, f"r{number}", agent="claude", model=receipt.model,
            instead_of=receipt.instead_of,
        )  # fmt: skip
        ended = rec.Finished("a", "W1", number, f"r{number}", "error", "requeue", receipt=receipt)
        whole.apply(rec.Entry(started, 1.0, 1.0))
        shown = status(whole, 1.5)["workers"][0]["escalated"]
        assert shown == ("claude opus" if receipt is last else None)
        whole.apply(rec.Entry(ended, 2.0, 2.0))
    found = status(whole, 3.0)
    assert {n: each["usd"] for n, each in found["money"]["by_agent"].items()} == {
        "claude": 0.5,
        "claude opus": 2.0,
    }
    assert [each["escalated"] for each in found["outcomes"]] == [None, "claude opus"]
