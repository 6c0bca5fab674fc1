"""Several slots of one process of ours: a connection each, and a name each."""

from __future__ import annotations

from beads_workers.core.base.wire import Shutdown
from beads_workers.core.records import journal as rec
from beads_workers.core.requests.scale import ScaleAsked
from beads_workers.core.schedule import events as ev
from beads_workers.core.schedule.commands import KillWorker
from beads_workers.core.views.snapshot import worker_order
from tests.core.playbook import Play, lost, of, ready, records, sent_messages

PID = 101


def with_slots(*called: str) -> Play:
    """W1 has a connection for each, from 1 on."""
    play = Play(workers=1)
    play.do(ev.WorkerSpawned("W1", PID))
    for conn, name in enumerate(called, 1):
        play.connect(conn, PID)
        play.do(ready(conn, called=name))
    return play


def joined(play: Play) -> list[tuple[str, bool]]:
    found = [e.record for e in play.entries if isinstance(e.record, rec.WorkerJoined)]
    return [(record.worker_id, record.own) for record in found]


def test_each_slot_is_called_what_its_process_calls_it() -> None:
    play = with_slots("W1", "W1.2", "W1.3")
    assert joined(play) == [("W1", True), ("W1.2", False), ("W1.3", False)]


def test_no_process_can_take_the_name_of_another_or_of_a_slot_that_is_there() -> None:
    for name in ("W2", "W2.2", "W1.x", "W1.", "W1.2.2", "W1.1234567"):
        assert joined(with_slots("W1", name))[1][0] == "W1", name
    assert [name for name, _ in joined(with_slots("W1.2", "W1.2"))] == ["W1.2", "W1"]


def test_a_process_has_time_to_exit_only_once_its_last_slot_has_left() -> None:
    play = with_slots("W1", "W1.2")
    assert records(play.do(lost(1)), rec.WorkerLeft)
    assert of(play.wait(3600.0), KillWorker) == []
    play.do(lost(2))
    assert of(play.wait(3600.0), KillWorker) == [KillWorker("W1", PID)]


def test_whoever_is_not_wanted_any_more_leaves_with_all_its_slots() -> None:
    play = with_slots("W1", "W1.2")
    play.answer()
    commands = play.do(ScaleAsked(ev.Ticket(9), 0))
    for conn in (1, 2):
        assert any(isinstance(message, Shutdown) for message in sent_messages(commands, conn))


def test_slots_are_listed_behind_their_process() -> None:
    names = ["W10", "W2.10", "W1", "W2", "W2.2", "Wx", "W1.x"]
    assert sorted(names, key=worker_order) == ["W1", "W1.x", "W2", "W2.2", "W2.10", "W10", "Wx"]
