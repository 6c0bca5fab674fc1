"""What people are told of landing: in the summary, in ``status``, and what is left to type."""

from __future__ import annotations

from typing import Any

from beads_workers.cli.launch import summary
from beads_workers.core.records import journal as rec
from beads_workers.ui.landing import at_the_end, landed_text, now, to_type
from beads_workers.ui.lines import status_lines
from tests.support.landings import BRANCH, TIP, landed, night, refused, worked
from tests.ui.snapshots import after

MERGE = f"git merge --ff-only {BRANCH}"


REFUSED = (
    "  c (bw/c/1) did not land: its branch conflicts with what has landed (landed by a): README"
)


def landing(*records: rec.Record) -> dict[str, Any]:
    """That part of the snapshot."""
    shown = after(*records)["landing"]
    assert isinstance(shown, dict)
    return shown


def ended(*records: rec.Record, merge: str = MERGE, **left: int) -> list[str]:
    """The summary of a run with these, and so many branches and worktrees that hold work."""
    last = after(*records, rec.RunEnded(0, "idle_timeout")) | left
    if last["landing"]:
        last["landing"]["merge"] = merge
    return summary(last)


def test_a_night_says_what_landed_what_did_not_and_what_waits() -> None:
    assert list(at_the_end(landing(*night()))) == [
        "landed 3 on bw-landing/main (333333333333), 1 without a gate, for want of --verify",
        "3 gate runs in 7.0 s, 1 red, 1 reused, 1 flaky, 2 conflicts",
        REFUSED,
        "1 waiting to land: e",
    ]


def test_the_summary_ends_with_the_one_command_that_is_left() -> None:
    tip = rec.LandingTip(TIP, BRANCH)
    said = ended(tip, *worked("a"), *landed("a"))
    assert "landed 1 on bw-landing/main (111111111111)" in said
    assert said[-1] == f"next: {MERGE} brings what landed to your branch"
    assert not any("bw/*" in line for line in said)
    assert ended(tip, *worked("a"), *landed("a"), merge="")[-1] == "next: nothing is left to do"


def test_what_is_more_pressing_comes_first_and_the_command_still_stands_there() -> None:
    tip = rec.LandingTip(TIP, BRANCH)
    said = ended(tip, *worked("a"), *landed("a"), *worked("b"), *refused("b"), unmerged_branches=1)
    assert said[-2] == f"to bring what landed to main: {MERGE}"
    assert "retry b" in said[-1]
    assert "1 branch holds work that has not landed: beads-workers branches" in said
    assert sum("its branch conflicts" in line for line in said) == 1


def test_what_waits_is_landed_by_a_command_or_by_the_next_start() -> None:
    said = ended(rec.LandingTip(TIP, BRANCH), *worked("a"), merge="")
    assert "nothing landed on bw-landing/main" in said
    assert said[-1] == "next: 'beads-workers land' lands what is done; the next start does it first"


def test_without_landing_the_branches_are_to_be_merged() -> None:
    said = ended(unmerged_branches=3, failed_branches=1, uncommitted_worktrees=1)
    assert "2 branches hold work to merge: beads-workers branches" in said
    assert any(line.startswith("1 branch holds work of attempts that did not") for line in said)
    assert any(line.startswith("1 worktree holds work that is not committed") for line in said)
    assert said[-1].startswith("next: merge what is good")
    assert ended(unmerged_branches=1, failed_branches=1)[-1] == "next: nothing is left to do"


def test_land_into_moves_the_users_branch_or_says_what_does() -> None:
    moved = rec.LandingTip("1" * 40, "", "main")
    stuck = rec.LandingTip("1" * 40, "", "main", "it is checked out with changes", "git merge x")
    records = [rec.LandingTip(TIP, BRANCH), *worked("a"), *landed("a")]
    there = landing(*records, moved)
    assert next(at_the_end(there)).endswith("; main is there as well")
    assert to_type({**there, "merge": MERGE}) == ""
    left = landing(*records, moved, stuck)
    assert "main was not moved there: it is checked out with changes" in next(at_the_end(left))
    assert to_type(left) == "git merge x"


def test_all_or_some_without_a_gate_or_with_nothing_new() -> None:
    records = [rec.LandingTip(TIP, BRANCH), *worked("a"), *landed("a", verified="")]
    assert landed_text(landing(*records)).endswith(", all without a gate, for want of --verify")
    contained = rec.BranchLanded("b", 1, TIP, BRANCH, contained=True)
    said = landed_text(landing(*records, *worked("b"), contained))
    assert "landed 2 on" in said and "1 had nothing new, 1 without a gate" in said


def test_while_it_runs_the_gates_are_told_with_their_trains() -> None:
    said = list(now(landing(*night())))
    assert said[0].startswith("landing: landed 3 on bw-landing/main")
    assert "  1 waiting to land: e" in said
    assert any(line.startswith("  verify has run for ") and line.endswith(" on e") for line in said)


def test_status_names_a_refused_branch_once_and_counts_what_is_to_land() -> None:
    said = list(status_lines(after(*night())))
    assert "issues: 3/5 closed, 1 to land, 1 quarantined" in "\n".join(said)
    assert [line for line in said if "its branch conflicts" in line] == [REFUSED]
    assert not any("landing" in line for line in status_lines(after()))


def test_texts_from_a_repository_are_not_obeyed() -> None:
    nasty = rec.LandingTip(TIP, "bw-landing/\x1b[2J")
    assert all(line.isprintable() for line in now(landing(nasty, *worked("a\x1b"))))
