"""What is known of issues without a fleet, and how far down the tracker is looked at."""

from __future__ import annotations

from pathlib import Path

import pytest

from beads_workers.cli import why
from beads_workers.cli.why import LEVELS_MAX, look_down, remembered
from beads_workers.core.base import limits
from beads_workers.core.base.facts import NO_FLEET, Facts
from beads_workers.core.base.model import Filters, IssueId
from beads_workers.core.base.ready import BLOCKS
from beads_workers.core.base.settings import FleetSettings
from beads_workers.core.records import journal as rec
from beads_workers.core.records.landing import Add
from beads_workers.runtime.journal import Journal
from beads_workers.runtime.run_directory import RunDirectory
from beads_workers.trackers.issue import Dependency, TrackerIssue
from tests.contracts.memory import MemorySource

NOW = 1_700_000_000.0
SETTINGS = FleetSettings(0, "memory", "/t", "/p", "/p/.bw", filters=Filters(labels=("x",)))


def source_of(**needs: tuple[str, ...]) -> MemorySource:
    """Issues by id, each with what it waits for."""
    issues = [
        TrackerIssue(
            issue_id, issue_id, dependencies=tuple(Dependency(each, BLOCKS) for each in needed)
        )
        for issue_id, needed in needs.items()
    ]
    return MemorySource(issues, actor="why")


def chain_of(length: int) -> MemorySource:
    """n0 waits for n1, and so on."""
    return source_of(**{f"n{n}": (f"n{n + 1}",) for n in range(length)})


def test_each_issue_is_asked_for_once_level_by_level() -> None:
    source = source_of(a=("b", "c"), b=("d",), c=("d",), d=("a",))
    assert set(look_down(source, [IssueId("a")])) == {"a", "b", "c", "d"}
    assert source.calls.count == 3


def test_an_endless_chain_is_not_followed_for_ever() -> None:
    source = chain_of(LEVELS_MAX + 20)
    assert len(look_down(source, [IssueId("n0")])) == LEVELS_MAX
    assert source.calls.count == LEVELS_MAX


def test_a_broad_tree_is_cut_at_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(why, "ISSUES_MAX", 5)
    many = tuple(f"c{number}" for number in range(50))
    source = source_of(a=many, **dict.fromkeys(many, ()))
    assert len(look_down(source, [IssueId("a")])) == 5


def test_what_was_looked_at_is_not_asked_for_again() -> None:
    source = source_of(a=("b",), b=())
    known = source.unfinished(1)
    assert set(look_down(source, (), known)) == {"a", "b"}
    assert source.calls.count == 2


def left_by(tmp_path: Path, *records: rec.Record) -> Facts:
    """What is remembered of a run with this journal, right after it."""
    directory = RunDirectory(tmp_path)
    directory.create()
    folder = directory.run("20260101-000000.000-aa")
    folder.mkdir()
    journal = Journal(folder / "journal.jsonl")
    for record in (rec.RunStarted("run-1", 1, "actor", "memory", "/p"), *records):
        journal.append(record)
    journal.flush()
    journal.close()
    return remembered(directory, SETTINGS, NOW)


def test_without_any_run_only_the_settings_are_known(tmp_path: Path) -> None:
    facts = remembered(RunDirectory(tmp_path), SETTINGS, NOW)
    assert (facts.state, facts.run_id, facts.issues) == (NO_FLEET, "", ())
    assert facts.filters == SETTINGS.filters


def test_the_last_journal_says_how_unfinished_issues_stood(tmp_path: Path) -> None:
    facts = left_by(
        tmp_path,
        rec.Checkpointed("cooling", charged=1, not_before=NOW + 60.0, error="boom"),
        rec.Checkpointed("for-ever", charged=1, not_before=NOW + 1e9),
        rec.Checkpointed("cooled", charged=2, not_before=NOW - 60.0),
        rec.Checkpointed("aside", charged=3, quarantined=True),
        rec.Finished("done", "W1", 1, "r", "success", "finish"),
    )
    assert facts.run_id == "run-1"
    found = {each.issue_id: each for each in facts.issues}
    assert {name: each.standing for name, each in found.items()} == {
        "done": "unclosed",
        "cooling": "cooling",
        "for-ever": "cooling",
        "cooled": "",
        "aside": "quarantined",
    }
    cooling = found["cooling"]
    assert (cooling.again_seconds, cooling.attempt, cooling.error) == (60.0, 2, "boom")
    assert found["for-ever"].again_seconds == limits.RETRY_AFTER_MAX_SECONDS


def test_what_is_done_and_has_not_landed_is_said_with_what_lands_before_it(tmp_path: Path) -> None:
    def to_land(issue_id: str, priority: int, ended_at: float) -> Add:
        return Add(issue_id, 1, "r", "a" * 40, "b" * 40, priority=priority, ended_at=ended_at)

    facts = left_by(
        tmp_path,
        rec.Checkpointed("late", landing=to_land("late", 2, 9.0)),
        rec.Checkpointed("early", landing=to_land("early", 2, 1.0)),
        rec.Checkpointed("urgent", landing=to_land("urgent", 0, 5.0)),
    )
    found = {each.issue_id: each for each in facts.issues}
    assert {each.in_flight for each in found.values()} == {"shelved"}
    assert found["late"].behind == ("urgent", "early") and found["urgent"].behind == ()
