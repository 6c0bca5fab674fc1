"""Agents in words: amounts, accounts, receipts."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from beads_workers.agents.events import Kind
from beads_workers.core.records.receipts import Receipt, Tokens
from beads_workers.ui import agents, words
from tests.ui.snapshots import after, agents_at_work, closed


def row(*others: Any) -> dict[str, Any]:
    """The first row of ``accounts`` after these records."""
    found: dict[str, Any] = after(*agents_at_work(), *others)["accounts"][0]
    return found


@pytest.mark.parametrize(
    ("count", "said"),
    [(0, "0"), (950, "950"), (1000, "1.0k"), (12_300, "12.3k"), (999_949, "999.9k"),
     (999_950, "1.0M"), (1_234_567, "1.2M")],
)  # fmt: skip
def test_tokens_are_short(count: int, said: str) -> None:
    assert agents.short_tokens(count) == said


@given(st.integers(0, 999_000_000))
def test_tokens_never_need_more_than_six_columns(count: int) -> None:
    assert len(agents.short_tokens(count)) <= 6


@pytest.mark.parametrize(
    ("money", "said"), [(0.0, "$0.00"), (0.004, "$0.004"), (0.41, "$0.41"), (1234.5, "$1,234")]
)
def test_dollars(money: float, said: str) -> None:
    assert agents.dollars(money) == said


def test_what_nobody_knows_is_left_out() -> None:
    assert (agents.used(None, None), agents.used(10, None), agents.used(None, 1.0)) == (
        "",
        "10 tok",
        "$1.00",
    )


def test_a_budget_stands_beside_what_it_counts() -> None:
    money = after(*agents_at_work())["money"]
    assert agents.spent(money) == "$0.41 of $20, 12.3k tok"
    assert agents.spent({**money, "budget": "5Mtok"}) == "$0.41, 12.3k tok of 5Mtok"
    unpriced = {**money, "spent_usd": 0.0, "unpriced_tokens": 12_300, "budget": None}
    assert agents.spent(unpriced) == "12.3k tok, no prices"
    assert agents.spent({**money, "unpriced_tokens": 2000}).endswith("(2.0k without a price)")
    assert agents.spent(money, short=True) == "$0.41 of $20"
    assert agents.spent({**money, "budget": "5Mtok"}, short=True) == "12.3k tok of 5Mtok"
    assert agents.spent(unpriced, short=True) == "12.3k tok"


def test_an_account_that_is_open_says_only_when_it_is_nearly_full() -> None:
    shown = row()
    assert agents.account(shown) == "claude"
    assert agents.account({**shown, "utilization": 0.92}) == "claude: 92% of its limit used"


def test_an_account_whose_time_has_come_is_tried_now() -> None:
    shown = row(closed())
    assert agents.account(shown, age=3600.0).endswith(", soon tried again")
    assert "(35 min)" in agents.account(shown, age=360.0)


def test_an_overload_is_tried_again() -> None:
    assert "overloaded tried again at " in agents.account(row(closed("transient", "overloaded")))


def test_without_a_login_command_it_is_just_to_be_mended() -> None:
    said = agents.account(row(closed("needs_person", "Credit balance is too low")))
    assert said == "claude: Credit balance is too low - mend it, then 'beads-workers resume'"
    assert agents.account(row(closed("needs_person", "x")), advice=False) == "claude: x"


@pytest.mark.parametrize("state", sorted(words.TROUBLE_WORDS))
def test_a_closed_account_without_a_reason_has_words_of_ours(state: str) -> None:
    shown = {**row(closed()), "state": state, "reason": ""}
    assert words.TROUBLE_WORDS[state] in agents.account(shown)


def test_every_verdict_has_words() -> None:
    assert set(words.VERDICT_WORDS) == {each.value for each in Kind}


RECEIPT = Receipt(
    verdict="unfinished",
    why="verify failed: broken wheel",
    agent="claude",
    model="opus",
    session="s-1",
    usage={"opus": Tokens(12_000, 300)},
    money=0.41,
    branch="bw/a-1/1",
    commits=("0123456789abcdef", "fedcba9876543210"),
    diffstat="1 file changed",
    verify="make test",
    rounds=2,
    denied=("bd close",),
    message="I did\nit \x1b[2J.",
    flags=("look at this",),
)


def test_a_receipt_in_one_line() -> None:
    assert agents.receipt_line(RECEIPT) == (
        "unfinished, 2 commits on bw/a-1/1: 1 file changed, 12.3k tok $0.41"
    )
    assert agents.receipt_line(Receipt("done", verified=True)) == "done, verified"


def test_a_receipt_in_full_has_a_row_for_each_thing_that_is_known() -> None:
    shown = list(agents.receipt_lines(RECEIPT))
    assert shown == [
        "verdict   unfinished: verify failed: broken wheel",
        "agent     claude, opus, session s-1",
        "work      2 commits on bw/a-1/1: 1 file changed",
        "commits   0123456789ab fedcba987654",
        "verify    not passed: make test",
        "rounds    asked 2 times to mend it",
        "refused   bd close",
        "used      12.3k tok $0.41",
        "look      look at this",
        "said      I did it \\x1b[2J.",
    ]
    assert list(agents.receipt_lines(Receipt())) == []
