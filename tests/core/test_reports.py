"""What came of a task: said by its last step, told with DONE, and kept with the close."""

from __future__ import annotations

import json
from typing import Any

import pytest

from beads_workers.core.base import limits
from beads_workers.core.base.model import NOTE_CHARS_MAX, Call, IssueId, kept, note_of
from beads_workers.core.base.plans import Step, StepKind
from beads_workers.core.base.source import Action, Settlement
from beads_workers.core.base.wire import Done
from beads_workers.core.records import journal as rec
from beads_workers.core.records.journal import Entry, Finished
from beads_workers.core.workers import worker_events as ev
from beads_workers.ui.lines import line
from tests.core import test_worker
from tests.core.playbook import Play, done, job, records

REPORT = Step(StepKind.REPORT, ("look",))
ENDED = ev.StepEnded(0, "2 commits on bw/t-1/1\n")


def done_result(commands: list[ev.Command]) -> Any:
    """The DONE among the commands."""
    (message,) = [
        c.message for c in commands if isinstance(c, ev.SendMessage) and type(c.message) is Done
    ]
    return message.result


def reporting(*, self_claiming: bool = False, timeout: float | None = None) -> test_worker.Playbook:
    """A worker whose task has succeeded, and whose report runs."""
    steps = (
        (test_worker.CLAIM, test_worker.RUN, REPORT) if self_claiming else (test_worker.RUN, REPORT)
    )
    book = test_worker.busy(*steps, self_claiming=self_claiming, timeout=timeout)
    assert book.tell(test_worker.OK) == book.run(REPORT)
    return book


def test_what_a_report_says_goes_out_with_done() -> None:
    assert done_result(reporting().tell(ENDED)) == {"note": "2 commits on bw/t-1/1"}


@pytest.mark.parametrize(
    "ended", [test_worker.BAD, test_worker.OK, ev.StepNotStarted("no such program", missing=True)]
)
def test_a_report_that_says_nothing_is_no_failure(ended: ev.StepEnded | ev.StepNotStarted) -> None:
    assert done_result(reporting().tell(ended)) is None


@pytest.mark.parametrize(
    "event", [test_worker.cancel(), test_worker.SHUTDOWN, test_worker.INTERRUPTED]
)
def test_done_work_is_not_requeued_for_what_comes_during_its_report(event: ev.Event) -> None:
    book = reporting()
    assert book.tell(event) == [test_worker.TERM]
    assert done_result(book.tell(test_worker.TERMINATED)) is None


def test_nor_for_a_timeout() -> None:
    book = reporting(timeout=5.0)
    assert book.tick() == [test_worker.TERM]
    assert done_result(book.tell(test_worker.TERMINATED)) is None


def test_a_worker_that_holds_its_claim_closes_after_the_report_also_alone() -> None:
    book = reporting(self_claiming=True)
    assert book.tell(ENDED) == book.run(test_worker.CLOSE)
    assert done_result(book.tell(test_worker.OK)) == {"note": "2 commits on bw/t-1/1"}
    alone = reporting(self_claiming=True)
    alone.tell(test_worker.LOST)
    assert alone.tell(test_worker.TERMINATED) == alone.run(test_worker.CLOSE)


def test_a_self_claiming_worker_timed_out_in_its_report_leaves_the_close_to_the_orchestrator() -> (
    None
):
    book = reporting(self_claiming=True, timeout=5.0)
    book.tick()
    assert done_result(book.tell(test_worker.TERMINATED)) is None


def test_the_note_is_journalled_shown_and_the_reason_of_the_close() -> None:
    play = Play()
    play.join(1)
    play.answer("a")
    commands = play.do(done(1, "a", result={"note": "1 commit on bw/a/1"}))
    (finished,) = records(commands, rec.Finished)
    assert finished.note == "1 commit on bw/a/1"
    shown = line(Entry(finished, 0.0, 0.0))
    assert shown is not None and shown.endswith(": 1 commit on bw/a/1")
    settlement = Settlement(Action.CLOSE, IssueId("a"), "1 commit on bw/a/1")
    assert play.round_trip is not None and settlement in play.round_trip.settlements


@pytest.mark.parametrize(
    ("result", "note"),
    [
        (None, ""),
        ("text", ""),
        ({"note": 3}, ""),
        ({"note": "a\n\x1b[31m b\0"}, "a [31m b"),
        ({"note": "x" * 999}, "x" * NOTE_CHARS_MAX),
    ],
)
def test_a_note_from_a_stranger_is_one_plain_line(result: Any, note: str) -> None:
    assert note_of(result) == note


@pytest.mark.parametrize(
    ("result", "text"),
    [(None, ""), ({"note": "x"}, ""), (0, "0"), ({"note": "a", "b": [1]}, '{"note":"a","b":[1]}')],
)
def test_what_came_out_is_kept_as_json(result: Any, text: str) -> None:
    assert kept(result) == text


def test_of_what_is_too_long_the_beginning_is_kept_and_its_length() -> None:
    whole = "é" * limits.RESULT_CHARS_MAX
    cut = json.loads(kept(whole))
    assert cut["cut"] is True and cut["characters"] == len(json.dumps(whole))
    assert json.dumps(whole).startswith(cut["begins"])
    assert len(kept(whole)) < limits.RESULT_CHARS_MAX


@pytest.mark.parametrize(
    ("fields", "kept_as"),
    [
        ({"result": {"sent": 3}}, ('{"sent":3}', "")),
        ({"result_file": "/run/r.json"}, ("", "/run/r.json")),
    ],
)
def test_a_result_is_journalled_and_goes_to_the_tracker_with_the_close(
    fields: dict[str, Any], kept_as: tuple[str, str]
) -> None:
    play = Play()
    play.join(1)
    play.answer("a")
    commands = play.do(done(1, "a", **fields))
    (finished,) = records(commands, rec.Finished)
    assert (finished.result, finished.result_file) == kept_as
    result, file = kept_as
    settlement = Settlement(Action.CLOSE, IssueId("a"), result=result, result_file=file)
    assert play.round_trip is not None and settlement in play.round_trip.settlements


@pytest.mark.parametrize("result", [{"note": "x"}, {"note": 3}, {}, [], 0, False])
def test_whatever_a_function_returns_is_its_result(result: object) -> None:
    assert json.loads(kept(result, of_function=True)) == result
    play = Play()
    play.join(1)
    play.answer(job("a", call=Call("shop.pay")))
    (finished,) = records(play.do(done(1, "a", result=result)), Finished)
    assert json.loads(finished.result) == result
