"""Messages beside the conversation: one a second, the newest wins, and nothing depends on them."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from beads_workers.core.base.budget import Budget
from beads_workers.core.base.model import IssueId
from beads_workers.core.base.states import WorkerState
from beads_workers.core.base.throttled_messages import Asides
from beads_workers.core.base.wire import Progress, encode, parse
from beads_workers.core.records import journal as rec
from beads_workers.core.records.journal import DegradedEnded
from beads_workers.core.schedule import events as ev
from beads_workers.core.schedule.commands import Command
from beads_workers.core.schedule.events import ConnId, Received
from beads_workers.core.views.status import status
from beads_workers.core.workers import worker_events as wev
from tests.core.playbook import Play, cancelled, done, failed, job, notes, ready, records
from tests.core.test_agent_work import Fleet
from tests.core.test_preparation import struck
from tests.core.test_worker import CONNECTED, OK, Playbook, task


def progress(conn: int, issue_id: str, percent: int | None, activity: str = "") -> ev.Received:
    return ev.Received(ConnId(conn), Progress(IssueId(issue_id), percent, activity))


def kept(commands: list[Command]) -> list[int | None]:
    """The percentages that the board is told."""
    messages = [each.message for each in records(commands, rec.AsideHeard)]
    return [each.percent for each in messages if isinstance(each, Progress)]


# --- on the wire ----------------------------------------------------------------------------------


def test_it_is_read_as_it_is_written() -> None:
    message = Progress(IssueId("a"), 40, "compiles")
    line = encode(message, "W1", 12.5, v1=False)
    assert line == (
        b'{"type":"PROGRESS","worker_id":"W1","timestamp":12.500000,'
        b'"version":"1.1","issue_id":"a","percent":40,"activity":"compiles"}\n'
    )
    assert parse(line) == message


@pytest.mark.parametrize("percent", [-1, 101, "40", True, None, [], float(1 << 60)])
def test_what_is_no_percentage_is_unknown_and_the_rest_counts(percent: object) -> None:
    fields = {"type": "PROGRESS", "issue_id": "a", "percent": percent, "activity": "x" * 999}
    assert parse(json.dumps(fields).encode()) == Progress(IssueId("a"), None, "x" * 200)


@pytest.mark.parametrize(
    ("line", "percent"), [("[ 45%] cc", 45), ("100 %", 100), ("1000%", None), ("none", None)]
)
def test_a_percentage_is_found_in_a_line(line: str, percent: int | None) -> None:
    assert Progress.read(line) == Progress(percent=percent, activity=line)


def test_one_that_a_line_begins_with_is_not_said_twice() -> None:
    assert Progress.read(" 99.7% done") == Progress(percent=99, activity="done")
    assert Progress.read("40%") == Progress(percent=40, activity="40%")


# --- both halves ----------------------------------------------------------------------------------


@given(st.lists(st.floats(0, 20), min_size=1).map(sorted))
def test_one_a_second_is_kept_and_the_newest_wins(moments: list[float]) -> None:
    asides, taken = Asides(), []
    for number, moment in enumerate(moments):
        while (due := asides.deadline()) is not None and due < moment:
            taken += [(due, each) for each in asides.take(due)]
        asides.add(Progress(activity=str(number)))
        taken += [(moment, each) for each in asides.take(moment)]
    while (due := asides.deadline()) is not None:
        taken += [(due, each) for each in asides.take(due)]
    times = [at for at, _ in taken]
    assert all(b >= a + 1.0 for a, b in pairwise(times))
    assert taken[-1][1] == Progress(activity=str(len(moments) - 1))
    assert times[-1] <= moments[-1] + 1.0


@pytest.mark.parametrize(
    ("said", "reached"),
    [
        (Progress(percent=40, activity="compiles"), "40 %, compiles"),
        (Progress(percent=40), "40 %"),
        (Progress(activity="compiles"), "compiles"),
        (Progress.read("40% of 12 files"), "40 %, of 12 files"),
        (Progress.read("copied 40 % of it"), "copied 40 % of it"),
        (Progress(tokens=3), ""),
    ],
)
def test_how_far_it_is_in_words(said: Progress, reached: str) -> None:
    assert said.reached == reached


def test_the_end_of_an_attempt_says_how_far_it_was_with_what_came_last() -> None:
    play = Play()
    play.working("a")
    play.do(progress(1, "a", 10), progress(1, "a", 40, "compiles"))
    play.do(ev.Received(ConnId(1), Progress(IssueId("a"), tokens=3)))
    (ended,) = records(play.do(failed(1, "a")), rec.Finished)
    assert ended.reached == "40 %, compiles"
    play.do(ready(1))
    play.answer()
    play.wait(3600.0)
    play.answer()
    play.wait(60.0)
    play.answer(job("a"))
    play.do(ready(1))
    (again,) = records(play.do(done(1, "a")), rec.Finished)
    assert (again.attempt, again.reached) == (2, "")


def test_a_worker_says_what_its_step_says_once_a_second_and_the_newest() -> None:
    book = Playbook()
    book.tell(CONNECTED, task(request_id="r"))
    first = Progress(IssueId("t-1"), 1)
    assert book.tell(wev.StepSaid(Progress(percent=1))) == [wev.SendMessage(first)]
    assert book.tell(wev.StepSaid(Progress(percent=2)), wev.StepSaid(Progress(percent=3))) == []
    assert book.tick() == [wev.SendMessage(Progress(IssueId("t-1"), 3))]
    assert book.now == 101.0 and book.half.state is WorkerState.WORKING
    book.tell(wev.StepSaid(Progress(percent=4)))
    book.tell(OK)
    assert book.half.deadline() is None, "its task is over"


def test_a_worker_says_nothing_to_an_orchestrator_that_speaks_version_1() -> None:
    book = Playbook()
    book.tell(CONNECTED, task())
    assert book.tell(wev.StepSaid(Progress(percent=1))) == []
    assert book.half.deadline() is None


def test_a_worker_keeps_its_timeout_while_it_has_something_to_say() -> None:
    book = Playbook(timeout=0.5)
    book.tell(CONNECTED, task(request_id="r"))
    book.tell(wev.StepSaid(Progress(percent=1)), wev.StepSaid(Progress(percent=2)))
    assert book.tick() == [wev.EndStep(hard=False)]
    assert book.now == 100.5
    assert book.tick() == [wev.SendMessage(Progress(IssueId("t-1"), 2))]


def test_the_orchestrator_keeps_the_newest_each_second_whatever_its_worker_does() -> None:
    play = Play()
    play.working("a")
    assert kept(play.do(progress(1, "a", 1))) == [1]
    assert [kept(play.do(progress(1, "a", n))) for n in (2, 3, 4)] == [[], [], []]
    assert kept(play.wait(1.0)) == [4]
    assert kept(play.wait(5.0)) == []


def test_what_is_kept_is_shown_until_the_attempt_ends() -> None:
    play = Play()
    play.working("a")
    (row,) = status(play.board, 0.0)["workers"]
    assert row["progress"] is None
    play.do(progress(1, "a", 40, "compiles"))
    (row,) = status(play.board, 0.0)["workers"]
    unsaid = dict.fromkeys(("tokens", "money", "utilization"))
    assert row["progress"] == {"issue_id": "a", "percent": 40, "activity": "compiles", **unsaid}
    play.do(progress(1, "a", 50))
    play.do(done(1, "a"))
    play.wait(1.5)
    (row,) = status(play.board, 0.0)["workers"]
    assert row["progress"] is None, "and what was still to be shown is not"


def test_what_makes_no_sense_is_noted_and_shows_nothing() -> None:
    play = Play()
    play.working("a")
    commands = play.do(progress(1, "b", 40))
    assert kept(commands) == []
    assert notes(commands, "error") == ["W1 said PROGRESS of 'b', which it has not"]
    play.do(cancelled(1, "a"))
    assert kept(play.do(progress(1, "a", 40))) == []


def test_a_version_1_peer_has_no_such_message() -> None:
    play = Play()
    play.do(ev.Connected(ConnId(1), 901), ready(1, v1=True))
    play.answer("a")
    commands = play.do(progress(1, "a", 40))
    assert kept(commands) == [] and len(notes(commands, "error")) == 1


def test_it_is_no_greeting() -> None:
    play = Play()
    play.do(ev.Connected(ConnId(1), 901))
    assert records(play.do(progress(1, "a", 40)), rec.WorkerJoined) == []
    assert len(records(play.do(ready(1)), rec.WorkerJoined)) == 1


# --- what depends on it ---------------------------------------------------------------------------


def test_after_a_reset_the_ramp_ends_where_the_workers_do() -> None:
    play = Fleet()
    play.night("a")
    play.is_refused("a", 60.0)
    conns = range(1, 7)
    play.night("b", "c", "d", "e", "f", conns=conns, seconds=200.0)
    assert play.begun() == ["a", "a"]
    play.progress("a", 10)
    play.night(conns=conns)
    assert len(play.at_work()) == 3
    for issue_id in play.at_work():
        play.progress(issue_id, 20)
    play.night(conns=conns)
    assert len(play.at_work()) == 6


def test_what_attempts_under_way_have_used_counts() -> None:
    play = Fleet(budget=Budget(tokens=1000))
    play.night("a")
    play.progress("a", 1000)
    play.night("b", conns=(1, 2))
    assert play.begun() == ["a"]


def test_so_does_what_an_attempt_had_used_that_ends_without_a_receipt() -> None:
    play = Fleet(budget=Budget(tokens=1000))
    play.night("a")
    play.progress("a", 1000)
    play.fails("a", "killed")
    play.night("b", conns=(1, 2))
    assert play.begun() == ["a"], "until its file is read, its progress is all that is known"


def test_an_agent_that_works_has_one_and_its_end_is_not_waited_for() -> None:
    here = struck()
    issue = here.next_issue()
    assert issue is not None
    setting_up = here.play.do(Received(ConnId(1), Progress(IssueId(issue), activity="installs")))
    assert not records(setting_up, DegradedEnded)
    works = here.play.do(Received(ConnId(1), Progress(IssueId(issue), tokens=5)))
    assert [each.what for each in records(works, DegradedEnded)] == ["worktrees"]
