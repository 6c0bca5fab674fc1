"""Reading what ``bd`` prints: exit status and JSON together, whatever stands in them."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from beads_workers.core.base.limits import NESTED_MAX
from beads_workers.core.base.source import SourceError
from beads_workers.trackers.bd import tracker
from beads_workers.trackers.bd.calls import BdResult

ISSUE = {"id": "bw-1", "title": "t", "status": "open", "priority": 0}


def answer(stdout: object, status: int = 0, stderr: str = "", cut: bool = False) -> BdResult:
    text = stdout if isinstance(stdout, str) else json.dumps(stdout)
    return BdResult("list", status, text.encode(), stderr.encode(), cut)


def test_warnings_on_stderr_are_no_failure() -> None:
    (row,) = tracker.rows(answer([ISSUE], stderr="WARNING: hash mismatch\nError: in a hook"))
    assert (row.issue_id, row.status, row.priority, row.assignee) == ("bw-1", "open", 0, "")


@pytest.mark.parametrize(
    ("given_answer", "said"),
    [
        (answer([ISSUE], status=1), "exit 1"),
        (answer([ISSUE], cut=True), "larger"),
        (answer({"error": "two\nlines"}), "two lines"),
        (answer("", status=1, stderr='{"error": "from stderr"}'), "from stderr"),
        (answer("", status=1, stderr="note\nError: told\nHint: x"), "told"),
        (answer(""), "printed nothing"),
        (answer("<html>\x1b[2J"), "<html>"),
        (answer("[" * 100_000), "no JSON"),
    ],
)
def test_each_failure_is_one_line_that_says_why(given_answer: BdResult, said: str) -> None:
    with pytest.raises(SourceError) as trouble:
        tracker.rows(given_answer)
    assert said in str(trouble.value)
    assert str(trouble.value).isprintable() and trouble.value.hint


@given(st.binary(max_size=200), st.integers(-9, 20))
def test_junk_is_an_error_and_nothing_else(junk: bytes, status: int) -> None:
    try:
        found = tracker.rows(BdResult("list", status, junk, junk))
    except SourceError as error:
        assert str(error).isprintable()
    else:
        assert status == 0 and len(found) <= len(json.loads(junk))


def test_a_row_whose_id_could_be_an_option_is_dropped() -> None:
    assert [row.issue_id for row in tracker.rows(answer([ISSUE, {"id": "--all"}, {}]))] == ["bw-1"]
    assert (
        tracker.is_safe_id("a-1.2_b")
        and not tracker.is_safe_id("a-1\n")
        and not tracker.is_safe_id("")
    )


@pytest.mark.parametrize(
    ("value", "read"), [(9, 4), (-1, 0), (None, 2), ("1", 2), (True, 2), (3, 3)]
)
def test_an_odd_priority_is_read_as_a_sensible_one(value: object, read: int) -> None:
    assert tracker.rows(answer([{**ISSUE, "priority": value}]))[0].priority == read


def test_a_group_that_was_partly_refused_shows_both_parts() -> None:
    refused = {"error": "1 of 2", "failed": [{"id": "bw-2", "error": "already claimed by a"}]}
    partly = answer([ISSUE], status=1, stderr="Error updating bw-2\n" + json.dumps(refused))
    assert [row.issue_id for row in tracker.rows_of_group(partly)] == ["bw-1"]
    assert [(r.issue_id, r.lost) for r in tracker.refusals(partly)] == [("bw-2", True)]


def test_a_wholly_lost_claim_is_an_answer_but_silence_is_none() -> None:
    assert (
        tracker.rows_of_group(answer("", stderr="Error claiming bw-1: already claimed by a")) == []
    )
    with pytest.raises(SourceError):
        tracker.rows_of_group(answer(""))
    with pytest.raises(SourceError):
        tracker.rows_of_group(answer("", status=1, stderr="Error: database is locked"))


def test_a_field_that_could_not_be_passed_on_is_left_out_and_its_issue_is_not() -> None:
    deep: object = 1
    for _ in range(NESTED_MAX + 5):
        deep = [deep]
    (row,) = tracker.rows(answer([{"id": "bw-1", "title": "t", "metadata": deep, "labels": ["x"]}]))
    assert row.original == {"id": "bw-1", "title": "t", "labels": ["x"]}


@pytest.mark.parametrize("text", [b'[{"id": "a", "x": NaN}]', b'[{"id": "a", "x": 1e999}]'])
def test_what_is_no_json_to_a_worker_is_none_to_us(text: bytes) -> None:
    with pytest.raises(SourceError):
        tracker.rows(BdResult("ready", 0, text, b""))


def test_lone_surrogates_become_question_marks() -> None:
    (row,) = tracker.rows(BdResult("ready", 0, b'[{"id": "a", "title": "x\\ud800"}]', b""))
    assert row.title == "x?"


def test_a_version_is_found_at_once_or_not_at_all() -> None:
    assert tracker.version_in(BdResult("--version", 0, b"bd version 1.3.0 (abc)", b"")) == "1.3.0"
    with pytest.raises(SourceError):
        tracker.version_in(BdResult("--version", 0, b"1" * (1 << 20), b""))


def enveloped(data: object) -> dict[str, object]:
    """As ``bd`` 2.0 prints it."""
    return {"data": data, "schema_version": 1}


def test_the_envelope_of_bd_2_is_read_on_both_outputs() -> None:
    (row,) = tracker.rows(answer(enveloped([ISSUE])))
    assert row.issue_id == "bw-1"
    fields = {"error": "1 of 2 failed", "failed": [{"id": "bw-2", "error": "held", "lost": 1}]}
    for error in (fields, enveloped(fields), {**fields, "schema_version": 1}):
        text = f"Error updating bw-2: held\n{json.dumps(error)}\n"
        group = answer(enveloped([ISSUE]), status=1, stderr=text)
        assert [each.issue_id for each in tracker.rows_of_group(group)] == ["bw-1"]
        assert [each.issue_id for each in tracker.refusals(group)] == ["bw-2"]
    assert tracker.object_of(answer({"operations": 1, "schema_version": 1}))["operations"] == 1
    with pytest.raises(SourceError, match="no such table"):
        tracker.rows(answer(enveloped({"error": "no such table"})))
