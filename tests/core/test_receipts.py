"""Receipts: written, read back, and read from whatever a worker may send."""

from __future__ import annotations

import json
import math
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from beads_workers.core.base import limits
from beads_workers.core.base.plain import from_plain
from beads_workers.core.records import receipts

WHOLE = receipts.Receipt(
    verdict="done",
    why="2 commits",
    agent="claude",
    model="opus",
    session="5f0c",
    totals={"reported": {"opus": [1, 2, 3, 4, 0.5]}},
    usage={"opus": receipts.Tokens(100, 20, 3000, 40), "haiku": receipts.Tokens(output=1)},
    money=0.25,
    branch="bw/a-1/1",
    commits=("c1", "c2"),
    diffstat="2 files changed",
    tree="t1",
    verify="make test",
    verified=True,
    rounds=1,
    denied=("WebFetch",),
    message="It is done.",
    flags=("no change",),
)

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)
field_names = st.sampled_from([*receipts.Receipt.__slots__, "other"])


def test_a_receipt_comes_back_as_it_was() -> None:
    assert (
        receipts.read_receipt(receipts.to_json(WHOLE))
        == from_plain(receipts.Receipt, receipts.to_json(WHOLE))
        == WHOLE
    )


def test_what_is_empty_is_not_written() -> None:
    assert receipts.to_json(receipts.Receipt(verdict="limited", until=1.0)) == {
        "verdict": "limited",
        "until": 1.0,
    }


def test_tokens_of_all_models_are_summed() -> None:
    assert WHOLE.tokens == receipts.Tokens(100, 21, 3000, 40)
    assert WHOLE.tokens.total == 3161


def test_a_limit_says_what_it_closes() -> None:
    refusal = receipts.Receipt(
        verdict="limited", why="5-hour limit", until=9.0, limited_model="m"
    ).refusal
    assert refusal is not None
    assert (refusal.trouble, refusal.until, refusal.model) == (
        receipts.AccountTrouble.LIMITED,
        9.0,
        "m",
    )
    assert WHOLE.refusal is None
    limit = receipts.Receipt(verdict="limited", why="You've hit your limit.").refusal
    assert limit is not None and limit.why == "You've hit your limit", "our sentence goes on"


def test_texts_are_cut_to_what_the_journal_keeps() -> None:
    receipt = receipts.read_receipt(
        {"why": "x" * 100_000, "lesson": "y" * 100_000, "denied": ["z"] * 999}
    )
    assert receipt is not None
    assert len(receipt.why) == limits.ERROR_CHARS_MAX
    assert len(receipt.lesson) == limits.LESSON_CHARS_MAX
    assert len(receipt.denied) == limits.RECEIPT_ITEMS_MAX


@given(st.dictionaries(field_names, json_values, max_size=5))
def test_anything_that_is_sent_becomes_a_receipt_that_can_be_written(sent: dict[str, Any]) -> None:
    receipt = receipts.read_receipt(sent)
    assert receipt is not None
    assert (
        from_plain(
            receipts.Receipt, json.loads(json.dumps(receipts.to_json(receipt), allow_nan=False))
        )
        == receipt
    )


def test_numbers_beyond_all_floats_and_totals_without_a_bottom_are_left_out() -> None:
    assert (
        receipts.read_receipt({"totals": {"spent": [math.inf]}, "money": math.nan})
        == receipts.Receipt()
    )
    deep = json.loads('{"a":' * 500 + "1" + "}" * 500)
    sent = {"agent": "a", "money": 10**400, "until": -(10**400), "totals": deep}
    assert receipts.read_receipt(sent) == receipts.Receipt(agent="a")


def test_the_reason_of_a_close_says_what_was_done_without_a_word_of_the_agent() -> None:
    receipt = receipts.Receipt(
        verdict="done",
        why="SECRET",
        agent="claude",
        branch="bw/a-1/2",
        commits=("0123456789abcdef", "fedcba9876543210"),
        diffstat="3 files changed, 10 insertions(+)",
        tree="abcdef0123456789",
        verify="make test",
        verified=True,
        message="SECRET",
        lesson="SECRET",
    )
    assert receipts.close_reason(receipt, 2) == (
        "done, by claude; branch bw/a-1/2; 2 commits: 0123456789ab fedcba987654;"
        " 3 files changed, 10 insertions(+); verify passed on tree abcdef012345: make test;"
        " attempt 2"
    )


def test_the_reason_of_a_close_has_a_limit() -> None:
    receipt = receipts.Receipt(
        "no_change", agent="a" * 500, branch="b" * 500, diffstat="d" * 500, verify="v" * 500
    )
    reason = receipts.close_reason(receipt, 1)
    assert reason.startswith("no change needed, by a")
    assert len(reason) == limits.CLOSE_REASON_CHARS_MAX
