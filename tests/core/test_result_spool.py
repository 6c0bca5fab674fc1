"""What a worker leaves word of when its connection is lost: answers that may not have been read."""

from __future__ import annotations

from dataclasses import replace

import pytest

from beads_workers.core.base import limits
from beads_workers.core.base.model import Outcome, OutcomeKind
from beads_workers.core.base.wire import RETURNED_UNSTARTED, Done, Failed, encode, parse
from beads_workers.core.workers import worker_events as ev
from beads_workers.core.workers.worker import UnheardResults
from tests.core.test_worker import BAD, LOST, OK, SHUTDOWN, TERMINATED, Keeper, Playbook, busy, task

RETURNED = ev.StepAnswered(Outcome(OutcomeKind.SUCCESS, result='{"sum":3}'))


def left(commands: list[ev.Command]) -> list[tuple[str, str, str]]:
    """Of which attempts word is left, by their request ids: as done, or as returned unstarted."""
    words = [c.message for c in commands if isinstance(c, ev.SpoolResult)]
    for word in words:
        assert word == parse(encode(word, word.worker_id, 1.0, v1=False)), "as it is read back"
    return [(type(w).__name__, str(w.issue_id), w.request_id) for w in words]


def test_an_answer_that_may_not_have_been_read_is_left_when_the_connection_is_lost() -> None:
    book = Playbook()
    book.tell(ev.OrchestratorConnected(), task("a", request_id="r.1"), OK)
    commands = book.tell(LOST)
    assert left(commands) == [("Done", "a", "r.1")] and commands[-1] == ev.Exit(1)


def test_what_was_queued_on_it_is_left_as_returned_unstarted_beside_what_it_has_done() -> None:
    keeper = Keeper()
    tasks = [task(name, request_id=f"r.{name}") for name in "abc"]
    keeper.tell(*tasks, OK)
    commands = keeper.tell(LOST)
    assert left(commands) == [("Done", "a", "r.a"), ("Failed", "c", "r.c")]
    assert left(keeper.tell(TERMINATED)) == [], "nobody knows how far that one came"


def test_what_was_sent_back_may_not_have_been_read_either() -> None:
    keeper = Keeper()
    keeper.tell(task("a", request_id="r.a"), task("b", request_id="r.b"), SHUTDOWN)
    assert left(keeper.tell(LOST)) == [("Failed", "b", "r.b")]


def test_there_are_never_more_than_can_lie_unread() -> None:
    keeper, book = Keeper(), Playbook()
    book.tell(ev.OrchestratorConnected())
    most = limits.PREFETCH_MAX + 1
    for number in range(most + 2):
        keeper.tell(task(f"t-{number}", request_id=f"r.{number}"), OK)
        book.tell(task(f"t-{number}", request_id=f"r.{number}"), OK)
    assert [found[-1] for found in left(keeper.tell(LOST))] == [f"r.{n + 2}" for n in range(most)]
    # Without prefetch there is no other task before its answer was read.
    assert [found[-1] for found in left(book.tell(LOST))] == [f"r.{most + 1}"]


def test_of_a_failure_no_word_is_left_because_it_may_be_tried_again() -> None:
    book = Playbook()
    book.tell(ev.OrchestratorConnected(), task("a", request_id="r.1"), BAD)
    assert left(book.tell(LOST)) == []


def test_a_function_that_returns_while_it_is_abandoned_has_done_its_work() -> None:
    book = busy()
    book.tell(LOST)
    commands = book.tell(RETURNED)
    assert left(commands) == [("Done", "t-1", "")] and commands[-1] == ev.Exit(1)
    (word,) = [c.message for c in commands if isinstance(c, ev.SpoolResult)]
    assert isinstance(word, Done) and word.result == {"sum": 3}


@pytest.mark.parametrize("ended", [OK, BAD, TERMINATED], ids=str)
def test_an_exit_status_after_term_says_too_little_for_that(ended: ev.StepEnded) -> None:
    book = busy()
    book.tell(LOST)
    assert left(book.tell(ended)) == []


def test_after_a_leave_in_peace_there_are_no_words() -> None:
    book = Playbook()
    book.tell(ev.OrchestratorConnected(), task("a", request_id="r.1"), OK)
    assert left(book.tell(SHUTDOWN, LOST)) == []


def test_each_word_is_left_once() -> None:
    words = UnheardResults(0)
    done = Done(task().message.issue_id, "W1", 1)  # type: ignore[union-attr]
    assert words.say(done, "r.1") == ev.SendMessage(done)
    assert words.leave() == [ev.SpoolResult(replace(done, request_id="r.1"))]
    assert words.leave() == []
    unstarted = Failed(done.issue_id, "W1", error_detail=RETURNED_UNSTARTED)
    assert isinstance(words.say(unstarted, "r.2"), ev.SpoolResult)
