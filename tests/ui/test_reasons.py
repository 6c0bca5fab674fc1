"""What an issue waits for: down to the roots, with parents and cycles."""

from __future__ import annotations

from dataclasses import replace

from beads_workers.core.base.facts import IssueFacts
from beads_workers.core.base.model import IssueId
from beads_workers.core.base.source import TrackedIssue
from beads_workers.ui.reasons import CHAIN_LINES_MAX, Cause, Picture, chain, cycle, explain
from tests.ui.test_explanations import RUNNING, A, causes, headline_of, issue, picture


def waiting(issue_id: str, *others: str, status: str = "open") -> TrackedIssue:
    """An issue that waits for these."""
    return issue(issue_id, status, waits_for=tuple(map(IssueId, others)))


def below(issue_id: str, parent: str) -> TrackedIssue:
    """A child."""
    return issue(issue_id, parents=(IssueId(parent),))


def links(shown: Picture) -> list[tuple[int, str]]:
    """Depth and id of each line."""
    return [(link.depth, link.issue_id) for link in chain(A, shown)]


def test_the_chain_goes_down_to_the_roots_and_the_headline_names_the_last() -> None:
    shown = picture(waiting("a", "b"), waiting("b", "c"), issue("c", "in_progress", assignee="bob"))
    assert links(shown) == [(0, "b"), (1, "c")]
    assert headline_of(shown) == "it waits for b, in the end for c, which is in progress, bob"
    assert explain(A, shown)[0].remedy == "it is ready when b is closed; first of all: c"


def test_finished_and_missing_blockers_hold_nothing_back() -> None:
    shown = picture(waiting("a", "b", "gone"), issue("b", "closed"))
    assert causes(shown) == [Cause.DUE]


def test_several_blockers_are_counted_and_a_common_one_is_followed_once() -> None:
    shown = picture(
        waiting("a", "b", "c"), waiting("b", "d"), waiting("c", "d"), waiting("d", "e"), issue("e")
    )
    assert links(shown) == [(0, "b"), (1, "d"), (2, "e"), (0, "c"), (1, "d")]
    assert chain(A, shown)[-1].state.endswith("(as above)")
    assert headline_of(shown).endswith("which is open (and for 1 more)")


def test_a_cycle_is_named_and_ends_the_walk() -> None:
    shown = picture(waiting("a", "b"), waiting("b", "c"), waiting("c", "a"))
    assert cycle(A, shown) == ["a", "b", "c", "a"]
    assert causes(shown) == [Cause.CYCLE, Cause.BLOCKED]
    assert headline_of(shown) == "a cycle: a waits for b waits for c waits for a"
    assert links(shown) == [(0, "b"), (1, "c"), (2, "a")]


def test_a_cycle_further_down_is_seen_in_the_chain() -> None:
    shown = picture(waiting("a", "b"), waiting("b", "c"), waiting("c", "b"))
    assert cycle(A, shown) == []
    assert chain(A, shown)[-1].state == "waiting for itself: a cycle"


def test_an_issue_that_waits_for_itself_is_a_cycle() -> None:
    assert cycle(A, picture(waiting("a", "a"))) == ["a", "a"]


def test_what_holds_a_parent_back_holds_its_children_back() -> None:
    shown = picture(below("a", "e"), waiting("e", "b"), issue("b"))
    assert causes(shown) == [Cause.BLOCKED]
    assert links(shown) == [(0, "e"), (1, "b")]
    assert "its parent" in chain(A, shown)[0].state


def test_a_parent_that_waits_for_nothing_is_no_reason() -> None:
    assert causes(picture(below("a", "e"), issue("e", issue_type="epic"))) == [Cause.DUE]


def test_parents_in_a_circle_do_not_hang_us() -> None:
    assert causes(picture(below("a", "e"), below("e", "a"))) == [Cause.DUE]


def test_a_blocker_in_the_fleets_hands_is_said_to_be() -> None:
    for facts, words in (
        (IssueFacts("b", in_flight="running", worker_id="W3"), "in progress with W3"),
        (IssueFacts("b", standing="quarantined", charged=3), "quarantined after 3 attempts"),
        (IssueFacts("b", standing="on_hold"), "on hold: a person released it"),
        (IssueFacts("b", standing="cooling", again_seconds=7.0), "cooling down until T+7, in 7 s"),
    ):
        shown = picture(
            waiting("a", "b"), issue("b", "blocked"), facts=replace(RUNNING, issues=(facts,))
        )
        assert headline_of(shown) == f"it waits for b, which is {words}"


def test_an_endless_chain_is_cut() -> None:
    many = [waiting(f"n{number}", f"n{number + 1}") for number in range(500)]
    shown = picture(waiting("a", "n0"), *many)
    assert len(chain(A, shown)) == CHAIN_LINES_MAX
