"""STATUS: workers say what they do while somebody looks, and it changes nothing."""

from __future__ import annotations

from beads_workers.core.base import limits, wire
from beads_workers.core.base.model import IssueId
from beads_workers.core.schedule import events as ev
from beads_workers.core.schedule.events import ConnId
from beads_workers.core.views.status import status
from beads_workers.core.workers import worker_events as wev
from tests.core.playbook import Play, notes, sent_messages
from tests.core.test_worker import CONNECTED, OK, WAIT, Playbook, task

ASKED = wev.MessageReceived(wire.StatusAsked())


def answering() -> Play:
    """Worker 1 answers STATUS, worker 2 does not."""
    play = Play()
    play.connect(1)
    named = frozenset({wire.GROUPED, wire.CANCEL, wire.STATUS})
    play.do(ev.Received(ConnId(1), wire.Ready("w", "1.1", named)))
    play.join(2)
    return play


def test_those_that_answer_are_asked_while_somebody_looks_and_not_too_often() -> None:
    play = answering()
    commands = play.do(ev.StatusWanted(), ev.StatusWanted())
    assert sent_messages(commands, 1) == [wire.StatusAsked()] and not sent_messages(commands, 2)
    play.now += limits.STATUS_SECONDS
    assert sent_messages(play.do(ev.StatusWanted()), 1) == [wire.StatusAsked()]


def test_the_newest_answer_is_shown_and_one_a_second_is_kept() -> None:
    play = answering()
    for megabytes in (1, 2, 3):
        message = wire.Status("busy", IssueId("a"), resources=wire.Resources(megabytes << 20, 0.5))
        play.do(ev.Received(ConnId(1), message))
    row = status(play.board, 0.0)["workers"][0]
    assert row["status"]["resources"] == {"rss_bytes": 1 << 20, "cpu_seconds": 0.5}
    play.wait(1.0)
    row = status(play.board, 0.0)["workers"][0]
    assert row["status"]["resources"]["rss_bytes"] == 3 << 20
    assert (row["status"]["state"], row["state"]) == ("busy", "idle"), "it decides nothing"


def test_version_1_has_no_status() -> None:
    play = Play()
    play.join(1, v1=True)
    assert len(notes(play.do(ev.Received(ConnId(1), wire.Status("busy"))), "error")) == 1
    assert status(play.board, 0.0)["workers"][0]["status"] is None


def test_a_worker_says_what_it_does() -> None:
    book = Playbook()

    def answer() -> wire.Status:
        (sent,) = book.tell(ASKED)
        assert isinstance(sent, wev.SendMessage) and isinstance(sent.message, wire.Status)
        return sent.message

    book.tell(CONNECTED)
    assert answer() == wire.Status("idle")
    book.tell(WAIT)
    assert answer() == wire.Status("waiting")
    book.tell(task(request_id="r"), wev.StepSaid(wire.Progress(activity="compiles")))
    assert answer() == wire.Status("busy", IssueId("t-1"), "r", "compiles")
    book.tell(wev.MessageReceived(wire.Pause()))
    assert answer().state == "paused"
    book.tell(OK)
    assert answer() == wire.Status("paused")
