"""What every pull source promises: every tracker in ``TRACKERS``."""

from __future__ import annotations

import pytest

from beads_workers.core.base.model import COMMAND, FUNCTION, Filters, IssueId
from beads_workers.core.base.source import Action, Result, Settlement, Source, WatchedSource
from tests.contracts.pull_sources import STRANGER, THEM, US, MakeSource, settled, taken
from tests.contracts.trackers import GIVEN, NOBODY, Tracker, needs


def test_the_source_says_what_it_is(tracker: Tracker, source: Source) -> None:
    assert source.describe().startswith(source.name)
    assert "\n" not in source.describe()
    assert source.actor == US


def test_an_empty_tracker_gives_nothing(source: Source) -> None:
    answer = source.take(10, ())
    assert (answer.jobs, answer.listed, answer.more) == ((), (), False)
    assert answer.blocked in (0, None)


def test_the_most_urgent_come_first_whether_claimed_or_listed(
    tracker: Tracker, source: Source
) -> None:
    made = {priority: tracker.create(f"p{priority}", priority=priority) for priority in (3, 0, 4)}
    made |= {priority: tracker.create(f"p{priority}", priority=priority) for priority in (1, 2)}
    answer = source.take(2, ())
    assert [job.issue_id for job in answer.jobs] == [made[0], made[1]]
    assert [job.priority for job in answer.jobs] == [0, 1]
    assert [row.issue_id for row in answer.listed] == [made[2], made[3], made[4]]
    assert [row.title for row in answer.listed] == ["p2", "p3", "p4"]


def test_what_is_taken_is_in_progress_in_our_name(tracker: Tracker, source: Source) -> None:
    key = tracker.create("a title", priority=1, labels=["red"], issue_type="bug")
    (job,) = source.take(5, ()).jobs
    assert tracker.read(key) == ("in_progress", US)
    assert (job.source, job.issue_id, job.title) == (source.name, key, "a title")
    assert (job.priority, job.issue_type, {*job.labels} - GIVEN) == (1, "bug", {"red"})
    assert job.original["id"] == key


def test_a_limit_of_zero_only_lists(tracker: Tracker, source: Source) -> None:
    key = tracker.create("waits")
    answer = source.take(0, ())
    assert answer.jobs == ()
    assert [row.issue_id for row in answer.listed] == [key]
    assert tracker.read(key) == ("open", NOBODY)


def test_what_is_to_be_skipped_is_neither_claimed_nor_listed(
    tracker: Tracker, source: Source
) -> None:
    first, second = tracker.create("first", priority=0), tracker.create("second")
    answer = source.take(1, [first])
    assert [job.issue_id for job in answer.jobs] == [second]
    assert answer.listed == ()
    assert tracker.read(first) == ("open", NOBODY)


def test_nothing_is_taken_twice_even_by_another_source(
    tracker: Tracker, source_of: MakeSource
) -> None:
    keys = {tracker.create(f"number {number}") for number in range(4)}
    ours, theirs = source_of(US), source_of(THEM)
    first, second = taken(ours, 2), taken(theirs, 10)
    assert len(first) == 2
    assert {*first, *second} == keys and len(first) + len(second) == 4
    assert taken(ours) == taken(theirs) == []
    now = tracker.read_all()
    assert all(now[key] == ("in_progress", US) for key in first)
    assert all(now[key] == ("in_progress", THEM) for key in second)


def test_what_a_person_holds_is_left_alone(tracker: Tracker, source: Source) -> None:
    working, assigned = tracker.create("working on it"), tracker.create("mine, later")
    tracker.put(working, "in_progress", STRANGER)
    tracker.put(assigned, "open", STRANGER)
    answer = source.take(10, ())
    assert (answer.jobs, answer.listed) == ((), ())
    now = tracker.read_all()
    assert now[working] == ("in_progress", STRANGER)
    assert now[assigned] == ("open", STRANGER)


def test_what_is_open_in_our_own_name_can_be_taken(tracker: Tracker, source: Source) -> None:
    key = tracker.create("assigned to the run")
    tracker.put(key, "open", US)
    assert taken(source) == [key]
    assert tracker.read(key) == ("in_progress", US)


@pytest.mark.parametrize("status", ["blocked", "closed"])
def test_only_open_issues_are_taken(tracker: Tracker, source: Source, status: str) -> None:
    tracker.put(tracker.create("not now"), status, NOBODY)
    answer = source.take(10, ())
    assert (answer.jobs, answer.listed) == ((), ())


@needs("dependencies")
def test_a_dependency_holds_back_until_it_is_closed(tracker: Tracker, source: Source) -> None:
    first = tracker.create("first", priority=4)
    second = tracker.create("second", priority=0, blocked_by=[first])
    answer = source.take(10, ())
    assert [job.issue_id for job in answer.jobs] == [first]
    assert answer.listed == ()
    assert answer.blocked in (1, None)
    assert settled(source, Settlement(Action.RELEASE, first)) == [Result.APPLIED]
    assert taken(source) == [first]
    assert settled(source, Settlement(Action.CLOSE, first)) == [Result.APPLIED]
    assert taken(source) == [second]


@needs("dependencies")
def test_two_dependencies_must_both_be_closed(tracker: Tracker, source: Source) -> None:
    first, second = tracker.create("first"), tracker.create("second")
    third = tracker.create("third", blocked_by=[first, second])
    assert set(taken(source)) == {first, second}
    settled(source, Settlement(Action.CLOSE, first))
    assert taken(source) == []
    settled(source, Settlement(Action.CLOSE, second))
    assert taken(source) == [third]


@needs("dependencies", "parents")
def test_the_child_of_a_blocked_parent_waits_too(tracker: Tracker, source: Source) -> None:
    first = tracker.create("first")
    parent = tracker.create("epic", issue_type="epic", blocked_by=[first])
    child = tracker.create("child", parent=parent)
    assert taken(source) == [first]
    settled(source, Settlement(Action.CLOSE, first))
    assert taken(source) == [child]


def test_epics_are_left_out_unless_asked_for(tracker: Tracker, source_of: MakeSource) -> None:
    epic = tracker.create("epic", issue_type="epic", priority=0)
    task = tracker.create("task")
    assert taken(source_of()) == [task]
    assert taken(source_of(filters=Filters(types=("epic",)))) == [epic]


@needs("parents")
def test_each_filter_holds(tracker: Tracker, source_of: MakeSource) -> None:
    epic = tracker.create("epic", issue_type="epic")
    red = tracker.create("red", labels=["red"])
    both = tracker.create("both", labels=["red", "blue"], priority=1)
    bug = tracker.create("bug", issue_type="bug", priority=0)
    child = tracker.create("child", parent=epic, priority=3)

    def listed(filters: Filters) -> set[IssueId]:
        return {row.issue_id for row in source_of(filters=filters).take(0, ()).listed}

    assert listed(Filters(labels=("red",))) == {red, both}
    assert listed(Filters(labels=("red", "blue"))) == {both}
    assert listed(Filters(labels_any=("blue", "green"))) == {both}
    assert listed(Filters(exclude_labels=("red",))) == {bug, child}
    assert listed(Filters(types=("bug", "feature"))) == {bug}
    assert listed(Filters(priorities=(0, 3))) == {bug, child}
    assert listed(Filters(parent=epic)) == {child}
    assert listed(Filters(only=(bug, red))) == {bug, red}
    assert listed(Filters(labels=("red",), priorities=(1,))) == {both}
    assert taken(source_of(filters=Filters(labels=("blue",)))) == [both]


def test_a_fleet_without_work_of_its_own_takes_only_what_brings_some(
    tracker: Tracker, source_of: MakeSource
) -> None:
    for label in ("call:", "calls:shop.pay", "a call:shop.pay"):
        tracker.create("names none", labels=[label], priority=0)
    named = tracker.create("names one", labels=["red", "call:shop.pay"])
    source = source_of(filters=Filters(bring=(FUNCTION, COMMAND)))
    answer = source.take(9, ())
    assert [job.issue_id for job in answer.jobs] == [named]
    assert (answer.listed, answer.more) == ((), False)
    assert taken(source_of(filters=Filters(bring=(COMMAND,)))) == []


def test_a_listing_is_bounded_and_says_so(tracker: Tracker, source_of: MakeSource) -> None:
    for number in range(4):
        tracker.create(f"number {number}")
    answer = source_of(listed_max=2).take(1, ())
    assert (len(answer.jobs), len(answer.listed), answer.more) == (1, 2, True)
    answer = source_of(listed_max=3).take(0, ())
    assert (len(answer.listed), answer.more) == (3, False)


def watched(source: Source) -> WatchedSource:
    """The source, which has been asked once; skips where it sees nothing by itself."""
    if not isinstance(source, WatchedSource):
        pytest.skip("it does not see by itself that somebody has written")
    source.take(0, ())
    assert not source.changed(), "nobody has written"
    return source


def test_what_somebody_else_writes_is_seen_once_and_without_a_call(
    tracker: Tracker, source: Source
) -> None:
    tracker.create("before")
    watching, calls = watched(source), source.calls.count
    tracker.create("after")
    assert watching.changed() and not watching.changed()
    assert source.calls.count == calls
    source.take(0, ())
    assert not watching.changed()


def test_what_this_run_asks_and_writes_does_not_count(tracker: Tracker, source: Source) -> None:
    first, second = tracker.create("first"), tracker.create("second")
    watching = watched(source)
    assert set(taken(source)) == {first, second}
    assert not watching.changed()
    settled(source, Settlement(Action.CLOSE, first), Settlement(Action.RELEASE, second))
    assert not watching.changed()
    source.renew([second])
    assert taken(source) == [second] and not watching.changed()


def test_what_another_fleet_writes_is_seen(tracker: Tracker, source_of: MakeSource) -> None:
    ours, theirs = source_of(US), source_of(THEM)
    key = tracker.create("one")
    assert taken(theirs) == [key]
    watching = watched(ours)
    assert settled(theirs, Settlement(Action.RELEASE, key)) == [Result.APPLIED]
    assert watching.changed() and taken(ours) == [key]


def test_the_close_that_lets_another_issue_go_is_seen(tracker: Tracker, source: Source) -> None:
    first = tracker.create("first")
    tracker.put(first, "in_progress", STRANGER)
    watching = watched(source)
    tracker.close_as(first, STRANGER)
    assert watching.changed()
