"""What every source tells people who ask, without touching anything: every tracker."""

from __future__ import annotations

import pytest

from beads_workers.cli.why import look_down
from beads_workers.core.base.model import IssueId
from beads_workers.core.base.source import ClaimingSource, Source
from tests.contracts.pull_sources import STRANGER, THEM, US, taken
from tests.contracts.trackers import GIVEN, NOBODY, Tracker, needs


def test_a_look_shows_issues_and_who_holds_them_and_leaves_them_alone(
    tracker: Tracker, source: Source
) -> None:
    free = tracker.create("a title", priority=1, labels=["red", "blue"], issue_type="bug")
    ours, theirs = tracker.create("ours", priority=0), tracker.create("theirs")
    called = tracker.create("called", priority=3, labels=["blue", "call:shop.mail"])
    tracker.put(theirs, "in_progress", STRANGER)
    assert taken(source, 1) == [ours]
    strange = [IssueId("no-such"), IssueId("--help"), IssueId("a b,c"), IssueId(free[:-1])]
    found = source.look([*strange, free, ours, theirs])
    assert set(found) == {free, ours, theirs}
    seen = found[free]
    assert (seen.issue_id, seen.title, seen.status) == (free, "a title", "open")
    assert (seen.assignee, seen.priority, seen.issue_type) == ("", 1, "bug")
    assert ({*seen.labels} - GIVEN, seen.waits_for, seen.parents) == ({"red", "blue"}, (), ())
    assert seen.calls == "" and source.look([called])[called].calls == "shop.mail"
    assert (found[ours].status, found[ours].assignee) == ("in_progress", US)
    assert (found[theirs].status, found[theirs].assignee) == ("in_progress", STRANGER)
    assert tracker.read(free) == ("open", NOBODY)


@needs("owned")
def test_what_is_in_progress_elsewhere_is_named_whoever_holds_it(
    tracker: Tracker, source: Source
) -> None:
    if not isinstance(source, ClaimingSource):
        pytest.skip("its tracker shows no runs")
    ours, theirs = tracker.create("ours", priority=0), tracker.create("theirs")
    person, nobody = tracker.create("a person's"), tracker.create("nobody's")
    assert taken(source, 1) == [ours]
    tracker.put(theirs, "in_progress", f"{THEM}/W3")
    tracker.put(person, "in_progress", STRANGER)
    tracker.put(nobody, "in_progress", NOBODY)
    held = source.held()
    found = {each.issue_id: (each.actor, each.leased) for each in held}
    assert found == {theirs: (THEM, False), person: (STRANGER, False), nobody: ("", False)}
    assert source.take(5, ()).held == held
    for each in (theirs, person, nobody):
        tracker.put(each, "open", NOBODY)
    assert source.held() == ()
    assert source.take(5, [ours]).held in (None, ())


@needs("dependencies", "parents")
def test_what_an_issue_waits_for_is_seen_down_to_the_roots(
    tracker: Tracker, source: Source
) -> None:
    epic = tracker.create("epic", issue_type="epic")
    root, closed = tracker.create("root", priority=3), tracker.create("closed")
    middle = tracker.create("middle", blocked_by=[root, closed])
    top = tracker.create("top", blocked_by=[middle], parent=epic, priority=1)
    tracker.put(closed, "closed", NOBODY)
    seen = look_down(source, [top])
    assert set(seen) == {top, epic, middle, root, closed}
    assert (seen[top].waits_for, seen[top].parents) == ((middle,), (epic,))
    assert set(seen[middle].waits_for) == {root, closed}
    assert seen[closed].status == "closed"
    listed = {each.issue_id: each for each in source.unfinished(100)}
    assert set(listed) == {top, epic, middle, root}
    assert listed[top] == seen[top]
    assert [each.issue_id for each in source.unfinished(1)] == [top]
    assert source.ready() - {epic} == {root}


def test_where_there_is_nothing_nothing_is_seen(source: Source) -> None:
    assert source.look([IssueId("no-such")]) == {}
    assert source.look([]) == {}
    assert source.unfinished(100) == []
    assert source.ready() == frozenset()
