"""What people change in a tracker through us: every tracker that lets them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from beads_workers.core.base.model import IssueId
from beads_workers.core.base.source import (
    IN_REVIEW,
    MARKS,
    NEEDS_ANSWER,
    NEEDS_APPROVAL,
    Action,
    EditableSource,
    IssueEdit,
    NoSuchIssue,
    NotDone,
    Result,
    Settlement,
    Source,
)
from tests.contracts.pull_sources import THEM, US, MakeSource, settled, taken
from tests.contracts.trackers import GIVEN, NOBODY, Tracker, needs

pytestmark = pytest.mark.daily(3)

ANN = "Ann B. O'Neil"


@pytest.fixture
def editable(source_of: MakeSource) -> EditableSource:
    source = source_of(ANN)
    if not isinstance(source, EditableSource):
        pytest.skip("its tracker is changed by its own commands only")
    return source


def test_an_issue_is_made_with_all_that_it_was_given(
    tracker: Tracker, editable: EditableSource
) -> None:
    first = editable.add(IssueEdit(title="first"), ANN)
    change = IssueEdit(
        title="--title",
        description="long\n- text --x\n",
        priority=0,
        issue_type="bug",
        added_labels=("red", "a,b"),
        depends_on=((first, "blocks"),),
    )
    second = editable.add(change, ANN)
    seen = editable.look([second])[second]
    assert (seen.title, seen.priority, seen.issue_type) == ("--title", 0, "bug")
    assert ({*seen.labels} - GIVEN, seen.waits_for) == ({"red", "a,b"}, (first,))
    assert tracker.read(second) == ("open", NOBODY)
    assert editable.read([second])[second].original["description"].strip() == "long\n- text --x"


@needs("owned")
def test_an_issue_has_the_name_of_who_made_it(editable: EditableSource) -> None:
    made = editable.add(IssueEdit(title="first"), ANN)
    assert editable.read([made])[made].original["created_by"] == ANN


def test_what_is_named_is_written_and_nothing_else(
    tracker: Tracker, editable: EditableSource
) -> None:
    key = tracker.create("old title", priority=3, labels=["red", "blue"], issue_type="bug")
    editable.edit(key, IssueEdit(description="new text"), ANN)
    editable.edit(key, IssueEdit(title="-new", added_labels=("a,b",), removed_labels=("red",)), ANN)
    editable.edit(key, IssueEdit(priority=0, notes="a note"), ANN)
    seen = editable.look([key])[key]
    assert (seen.title, seen.priority, seen.issue_type) == ("-new", 0, "bug")
    assert {*seen.labels} - GIVEN == {"blue", "a,b"}
    assert editable.read([key])[key].original["description"] == "new text"
    assert "a note" in tracker.notes(key)
    editable.edit(key, IssueEdit(description=""), ANN)
    assert not editable.read([key])[key].original.get("description")


@needs("owned")
def test_a_closed_issue_has_its_reason_and_is_opened_again_for_anybody(
    tracker: Tracker, editable: EditableSource, source: Source
) -> None:
    key = tracker.create("a title")
    assert taken(source) == [key]
    assert settled(source, Settlement(Action.CLOSE, key, "by a fleet")) == [Result.APPLIED]
    editable.edit(key, IssueEdit(status="open"), ANN)
    assert tracker.read(key) == ("open", NOBODY)
    assert "by a fleet" not in tracker.notes(key)
    editable.edit(key, IssueEdit(status="closed", reason="not needed"), ANN)
    assert tracker.read(key)[0] == "closed" and "not needed" in tracker.notes(key)
    editable.edit(key, IssueEdit(status="closed", reason="again"), ANN)
    assert "again" not in tracker.notes(key)


def test_a_close_frees_the_issues_that_wait_and_an_opening_holds_them_back_again(
    tracker: Tracker, editable: EditableSource
) -> None:
    first = tracker.create("first")
    second = tracker.create("second", blocked_by=[first])
    editable.edit(first, IssueEdit(status="closed"), ANN)
    assert editable.ready() == {second}
    editable.edit(first, IssueEdit(status="open"), ANN)
    assert editable.ready() == {first}


def test_dependencies_come_and_go_and_never_run_in_a_circle(
    tracker: Tracker, editable: EditableSource
) -> None:
    first, second = tracker.create("first"), tracker.create("second")
    editable.edit(second, IssueEdit(depends_on=((first, "blocks"),)), ANN)
    assert editable.ready() == {first}
    with pytest.raises(NotDone):
        editable.edit(first, IssueEdit(depends_on=((second, "blocks"),)), ANN)
    editable.edit(second, IssueEdit(depends_no_more_on=(first,)), ANN)
    assert editable.ready() == {first, second}
    with pytest.raises(NotDone, match="does not depend on"):
        editable.edit(second, IssueEdit(depends_no_more_on=(first,)), ANN)
    with pytest.raises(NoSuchIssue):
        editable.edit(second, IssueEdit(depends_on=((IssueId("t-no-such"), "blocks"),)), ANN)


@needs("parents")
def test_an_issue_is_put_below_another_one(tracker: Tracker, editable: EditableSource) -> None:
    first, second = tracker.create("first"), tracker.create("second")
    editable.edit(second, IssueEdit(depends_on=((first, "parent-child"),)), ANN)
    assert editable.look([second])[second].parents == (first,)


@needs("owned")
def test_comments_are_kept_in_order_in_the_name_of_their_author(
    tracker: Tracker, editable: EditableSource
) -> None:
    key = tracker.create("a title")
    long = "x" * 200_000
    told = [editable.comment(key, "--file\n\nuse BAR: é", ANN), editable.comment(key, long, "Bo")]
    kept = editable.read([key])[key].original["comments"]
    assert [(each["author"], each["text"]) for each in kept] == [
        (ANN, "--file\n\nuse BAR: é"),
        ("Bo", long),
    ]
    assert [str(each["id"]) for each in kept] == [each.comment_id for each in told]
    assert len({each.comment_id for each in told}) == 2
    assert [each["created_at"] for each in kept] == [each.created_at for each in told]
    assert tracker.read(key) == ("open", NOBODY)


@needs("owned")
def test_a_deleted_issue_is_gone_and_holds_nothing_back(
    tracker: Tracker, editable: EditableSource
) -> None:
    first = tracker.create("first")
    second = tracker.create("second", blocked_by=[first])
    editable.delete(first, ANN)
    assert editable.look([first]) == {}
    assert editable.ready() == {second}
    assert editable.look([second])[second].waits_for == ()
    with pytest.raises(NoSuchIssue):
        editable.delete(first, ANN)


@needs("owned")
def test_what_a_fleet_holds_is_neither_closed_nor_deleted_and_may_be_written_about(
    tracker: Tracker, editable: EditableSource, source_of: MakeSource
) -> None:
    key = tracker.create("a title")
    fleet = source_of(US)
    assert taken(fleet) == [key]
    for change in (IssueEdit(status="closed"), IssueEdit(status="open"), IssueEdit(assignee="Ann")):
        with pytest.raises(NotDone, match=US) as refused:
            editable.edit(key, change, ANN)
        assert f"beads-workers release {key}" in refused.value.hint
    with pytest.raises(NotDone, match=US):
        editable.delete(key, ANN)
    editable.edit(key, IssueEdit(title="a better title", added_labels=("red",)), ANN)
    editable.comment(key, "look here", ANN)
    assert tracker.read(key) == ("in_progress", US)
    assert editable.look([key])[key].title == "a better title"
    assert settled(fleet, Settlement(Action.CLOSE, key, "done")) == [Result.APPLIED]


@needs("owned")
def test_what_a_worker_of_a_fleet_holds_is_held_by_the_fleet(
    tracker: Tracker, editable: EditableSource
) -> None:
    key, person = tracker.create("a title"), tracker.create("a person's")
    tracker.put(key, "in_progress", f"{THEM}/W3")
    tracker.put(person, "in_progress", ANN)
    with pytest.raises(NotDone, match=THEM):
        editable.edit(key, IssueEdit(status="closed"), ANN)
    editable.edit(person, IssueEdit(status="closed"), ANN)
    assert tracker.read(person)[0] == "closed"


def test_an_issue_that_is_not_there_is_named_and_a_part_of_an_id_is_none(
    tracker: Tracker, editable: EditableSource
) -> None:
    key = tracker.create("a title")
    for strange in (IssueId("no-such"), IssueId(key[:-1]), IssueId("--help")):
        for call in (
            lambda i: editable.edit(i, IssueEdit(title="x"), ANN),
            lambda i: editable.comment(i, "x", ANN),
            lambda i: editable.delete(i, ANN),
        ):
            with pytest.raises(NoSuchIssue, match=strange):
                call(strange)
    assert editable.look([key])[key].title == "a title"


def test_a_value_that_the_tracker_does_not_know_changes_nothing(
    tracker: Tracker, editable: EditableSource
) -> None:
    key = tracker.create("a title")
    with pytest.raises(NotDone):
        editable.edit(key, IssueEdit(title="x", status="bogus"), ANN)
    assert tracker.read(key) == ("open", NOBODY)
    assert editable.look([key])[key].title == "a title"


@pytest.mark.parametrize("mark", MARKS)
def test_an_issue_that_waits_for_a_person_is_labelled_while_it_waits(
    editable: EditableSource, source: Source, tracker: Tracker, mark: str
) -> None:
    keys = [tracker.create(f"held {number}", labels=["red"]) for number in range(3)]
    assert {*taken(source)} == {*keys}
    source.settle([waiting(key, mark) for key in keys])
    assert marks(source, keys) == [{"red", mark}] * 3
    assert {tracker.read(key) for key in keys} == {("blocked", NOBODY)}
    source.settle([waiting(keys[0], mark)])  # The first answer was lost.
    assert marks(source, keys[:1]) == [{"red", mark}]

    opened = Settlement(Action.REOPEN, keys[0])
    lands = Settlement(Action.CONFIRM, keys[1], read_first=True, by_agent=True, shelved=True)
    closed = Settlement(Action.CLOSE, keys[2], "landed", read_first=True, shelved=True)
    assert [each.result for each in source.settle([opened, lands, closed])] == [Result.APPLIED] * 3
    assert marks(source, keys) == [{"red"}] * 3
    assert [tracker.read(key)[0] for key in keys] == ["open", "blocked", "closed"]


@pytest.mark.parametrize("mark", MARKS)
def test_an_issue_that_a_person_opens_or_closes_waits_for_nobody(
    editable: EditableSource, source: Source, tracker: Tracker, mark: str
) -> None:
    keys = [tracker.create(f"held {number}") for number in range(3)]
    assert {*taken(source)} == {*keys}
    source.settle([waiting(key, mark) for key in keys])
    editable.edit(keys[0], IssueEdit(status="open"), ANN)
    editable.edit(keys[1], IssueEdit(status="closed"), ANN)
    assert marks(source, keys) == [set(), set(), {mark}]
    tracker.put(keys[2], "open", NOBODY)  # By another program, which knows no such label.
    assert source.settle([Settlement(Action.REOPEN, keys[2])])[0].result is Result.APPLIED
    assert marks(source, keys[2:]) == [set()]


def waiting(key: IssueId, mark: str) -> Settlement:
    """The write for an issue that waits for an answer, or for an approval."""
    action = Action.ASK if mark == NEEDS_ANSWER else Action.SHELVE
    why = {"awaits": mark == NEEDS_APPROVAL, "in_review": mark == IN_REVIEW}
    return replace(Settlement(action, key, "why", read_first=True), **why)


def marks(source: Source, keys: list[IssueId]) -> list[set[str]]:
    seen = source.look(keys)
    return [{*seen[key].labels} - GIVEN for key in keys]
