"""What labels, bodies and texts say to a fleet."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from beads_workers.core.base import text as core_text
from beads_workers.core.base.text import defused
from beads_workers.integrations.forge import marks, reading
from beads_workers.integrations.forge.api import ForgeComment


@pytest.mark.parametrize(
    ("labels", "priority"),
    [
        ([], 2),
        (["P0"], 0),
        (["p3", "bug"], 3),
        (["P3", "P1"], 1),
        (["priority: high"], 1),
        (["Priority/low"], 3),
        (["priority:0"], 0),
        (["priority critical"], 0),
        (["3"], 2),
        (["P5", "P10", "prio", "priority: soon"], 2),
    ],
)
def test_labels_say_how_urgent_an_issue_is(labels: list[str], priority: int) -> None:
    assert reading.priority_of(labels) == priority


@pytest.mark.parametrize(
    ("body", "numbers"),
    [
        ("blocked by #12", (12,)),
        ("Blocked by: #1, #2 and #3.", (1, 2, 3)),
        ("It depends on #4\nand is blocked by #5", (4, 5)),
        ("- [ ] first #6\n- [x] #7\n* [ ] see x#8 and #9", (6, 7, 9)),
        ("> blocked by #1\n`blocked by #2`\n```\nblocked by #3\n- [ ] #4\n```", ()),
        ("~~~~\nblocked by #1\n~~~\nblocked by #2\n~~~~\nblocked by #3", (3,)),
        ("```\nblocked by #1", ()),
        ("<!-- blocked by #1 -->", ()),
        ("unblocked by #1, not blocked by 2, blocked by PR #3", ()),
        ("blocked by #1234567890", ()),
        ("see #1", ()),
    ],
)
def test_a_body_says_what_to_wait_for(body: str, numbers: tuple[int, ...]) -> None:
    assert reading.waits_in(body) == numbers


@given(st.text(alphabet="#[]-x `~>1@/\n<!blocked by", max_size=300))
def test_no_body_is_too_odd(body: str) -> None:
    assert all(number >= 0 for number in reading.waits_in(body))


@pytest.mark.parametrize("text", ["12", "0", "999999999"])
def test_an_id_is_a_number(text: str) -> None:
    assert reading.number_of(text) == int(text)


@pytest.mark.parametrize("text", ["", "#12", "-1", "1.0", "１２", "1234567890", "t-1", "1 2"])
def test_other_texts_are_no_ids(text: str) -> None:
    assert reading.number_of(text) is None


# --- texts ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "Thanks @ann and @org/team.",
        "Fixes #2, closes team/shop#3, resolves GH-4",
        "see https://example.org/team/shop/issues/5 and /pull/6",
        "/close\n  /assign @ann",
        "Fixes: #7\nResolved: yes",
        f"{marks.marked(marks.CLAIM, 'beads-workers/h/r', 'x')}",
    ],
)
def test_words_that_a_forge_obeys_are_none_any_more(text: str) -> None:
    said = defused(text)
    assert said != text and said.replace("\u200b", "") == text
    for pattern, _ in core_text._OBEYED:
        assert not pattern.search(said), pattern
    assert marks.mark_of(ForgeComment(1, "fleet", said), "fleet") == ("", "")


@given(st.text(alphabet="@#/<!-aF1: \n", max_size=200))
def test_nothing_is_obeyed_whatever_an_agent_writes(text: str) -> None:
    said = defused(text)
    assert not any(pattern.search(said) for pattern, _ in core_text._OBEYED)
    assert defused(said) == said


def test_a_plain_text_stays_as_it_is() -> None:
    text = "The total was 3 < 4; see docs/total.md, a-b and 50 % of C# code.\n"
    assert defused(text) == text


def test_a_mark_counts_only_in_a_comment_of_ours() -> None:
    ours = ForgeComment(7, "fleet", marks.marked(marks.CLAIM, "beads-workers/host/run", "At work."))
    copied = ForgeComment(3, "eve", ours.text)
    assert marks.mark_of(ours, "fleet") == (marks.CLAIM, marks.name_of("beads-workers/host/run"))
    assert marks.of_kind((ours, copied), "fleet", marks.CLAIM) == [ours]
    assert "host" not in ours.text and "run" not in ours.text
