"""Our worker processes, seen from the loop: the zygote may die, its workers are not forgotten."""

from __future__ import annotations

import errno
import itertools
import json
import os
import selectors
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from beads_workers.core.base.settings import Work, WorkerSettings
from beads_workers.core.schedule import events as ev
from beads_workers.runtime import sessions
from beads_workers.runtime.zygote import Zygote
from beads_workers.runtime.zygote_client import ANSWER_SECONDS, EARLY_ENDS_MAX, ZygoteClient
from tests.support.fleet import until


@dataclass
class FarEnd:
    """What a zygote would hold: we read what it is asked, and say what it would report."""

    socket: socket.socket

    def asked(self) -> list[dict[str, object]]:
        """The requests so far."""
        self.socket.setblocking(False)
        try:
            return [json.loads(line) for line in self.socket.recv(1 << 16).splitlines()]
        except BlockingIOError:
            return []

    def says(self, **report: object) -> None:
        """Report something."""
        self.socket.sendall(json.dumps(report).encode() + b"\n")


class Room:
    """A zygote client over zygotes that we play."""

    def __init__(self) -> None:
        self.far: list[FarEnd] = []
        self.pids: list[int] = []
        self.full = self.lingering = False
        self.events: list[ev.Event] = []
        self.selector = selectors.DefaultSelector()
        self.zygote_client = ZygoteClient(self.zygote(), self.zygote)
        self.zygote_client.attach(self.selector, self.events.append, settings_of)

    def zygote(self) -> Zygote:
        if self.full:
            raise OSError(errno.EMFILE, "Too many open files")
        ours, theirs = socket.socketpair()
        pid = os.fork()
        if pid == 0:
            ours.close()
            theirs.close()
            signal.signal(signal.SIGALRM, signal.SIG_DFL)  # pytest's would go on with the tests.
            signal.alarm(60 if self.lingering else 0)
            while self.lingering:
                signal.pause()
            os._exit(0)
        self.pids.append(pid)
        self.far.append(FarEnd(theirs))
        return Zygote(ours, pid)

    def turn(self) -> None:
        for key, mask in self.selector.select(1):
            key.data(mask)


def settings_of(worker_id: str) -> WorkerSettings:
    """What a worker of that id is told."""
    return WorkerSettings(worker_id, "/s", 1, "/p", "r", "/r", "actor", Work())


@pytest.fixture
def room() -> Iterator[Room]:
    made = Room()
    yield made
    made.zygote_client.close()
    for far in made.far:
        far.socket.close()
    made.selector.close()


def test_workers_that_a_dying_zygote_never_reported_are_asked_for_again(room: Room) -> None:
    room.zygote_client.spawn("W1")
    room.zygote_client.spawn("W2")
    room.far[0].says(spawned="W1", pid=os.getppid(), started=sessions.start_time(os.getppid()))
    room.turn()
    assert room.events == [ev.WorkerSpawned("W1", os.getppid())]
    room.far[0].socket.close()
    room.turn()
    (again,) = room.far[1].asked()
    request = again["spawn"]
    assert isinstance(request, dict) and request["worker_id"] == "W2"


def test_the_end_of_a_worker_is_told_as_a_shell_would(room: Room) -> None:
    room.zygote_client.spawn("W1")
    room.far[0].says(spawned="W1", pid=4_000_000, started=1)
    room.far[0].says(exited="W1", pid=4_000_000, status=-9)
    room.turn()
    assert room.events[-1] == ev.WorkerReaped("W1", 4_000_000, 137)


def test_a_pid_that_is_somebody_elses_by_now_is_neither_adopted_nor_killed(room: Room) -> None:
    stranger = subprocess.Popen(["sleep", "60"], start_new_session=True)
    room.zygote_client.spawn("W1")
    started = (sessions.start_time(stranger.pid) or 0) - 1
    room.far[0].says(spawned="W1", pid=stranger.pid, started=started)
    room.turn()
    room.zygote_client.kill(stranger.pid)
    room.far[0].socket.close()
    room.turn()
    assert room.events[-1] == ev.WorkerReaped("W1", stranger.pid, 1)
    assert stranger.poll() is None
    stranger.kill()
    stranger.wait()


def test_a_worker_that_was_to_be_killed_by_a_zygote_that_died_is_killed(room: Room) -> None:
    worker = subprocess.Popen(["sleep", "60"], start_new_session=True)
    room.zygote_client.spawn("W1")
    started = sessions.start_time(worker.pid)
    room.far[0].says(spawned="W1", pid=worker.pid, started=started)
    room.turn()
    room.zygote_client.kill(worker.pid)
    room.far[0].socket.close()
    room.turn()
    assert worker.wait(5) == -9


def test_a_machine_that_is_full_is_no_end_of_a_worker(room: Room) -> None:
    room.zygote_client.spawn("W1")
    room.far[0].says(refused="W1", error="Resource temporarily unavailable")
    room.turn()
    assert room.events == [ev.WorkerNotStarted("W1", "Resource temporarily unavailable")]
    assert room.zygote_client.deadline() is None


def test_a_zygote_that_does_not_answer_is_put_down_after_its_time(room: Room) -> None:
    assert room.zygote_client.deadline() is None
    room.zygote_client.spawn("W1")
    due = room.zygote_client.deadline()
    assert due is not None
    room.zygote_client.tick(due - 0.1)
    assert room.zygote_client.deadline() == due
    room.zygote_client.tick(due + ANSWER_SECONDS)
    assert room.zygote_client.deadline() is None


def test_a_dead_zygote_is_replaced_as_soon_as_the_machine_has_room_for_another(room: Room) -> None:
    room.full = True
    room.far[0].socket.close()
    room.turn()
    room.zygote_client.spawn("W1")
    assert room.events == [ev.WorkerNotStarted("W1", "Too many open files")]
    due = room.zygote_client.deadline()
    assert due is not None
    room.zygote_client.tick(due)
    assert len(room.far) == 1
    room.full = False
    room.zygote_client.tick(room.zygote_client.deadline() or 0.0)
    room.zygote_client.spawn("W1")
    (asked,) = room.far[1].asked()
    assert "spawn" in asked


def test_a_zygote_that_always_fails_is_replaced_ever_more_slowly_and_then_no_more(
    room: Room,
) -> None:
    waits = []
    for number in range(1, EARLY_ENDS_MAX):
        room.zygote_client.spawn("W1")
        room.far[-1].socket.close()
        room.turn()
        if number == 1:
            assert len(room.far) == 2, "one that somebody killed is replaced at once"
            continue
        due = room.zygote_client.deadline()
        assert due is not None and len(room.far) == number
        waits.append(due - time.monotonic())
        room.zygote_client.tick(due - 0.01)
        assert len(room.far) == number
        room.zygote_client.tick(due)
        assert len(room.far) == number + 1
    assert all(later > 1.5 * sooner for sooner, later in itertools.pairwise(waits[2:]))
    assert not [event for event in room.events if isinstance(event, ev.FatalError)]
    room.far[-1].socket.close()
    room.turn()
    (fatal,) = (event for event in room.events if isinstance(event, ev.FatalError))
    assert f"ended {EARLY_ENDS_MAX} times in a row" in fatal.error and "orchestrator" in fatal.error
    room.zygote_client.tick(time.monotonic() + 1e9)
    assert len(room.far) == EARLY_ENDS_MAX


def test_while_there_is_no_zygote_nobody_waits_to_be_started_so_that_a_run_can_end(
    room: Room,
) -> None:
    for _ in range(2):
        room.zygote_client.spawn("W1")
        room.far[-1].socket.close()
        room.turn()
    room.zygote_client.spawn("W2")
    refused = [event.worker_id for event in room.events if isinstance(event, ev.WorkerNotStarted)]
    assert sorted(refused) == ["W1", "W1", "W2"]
    (degraded,) = (event for event in room.events if isinstance(event, ev.Degraded))
    assert "the process that forks them ended 2 times" in degraded.text
    assert not degraded.stops, "those who are there work on"


def test_a_zygote_that_starts_a_worker_is_well_again(room: Room) -> None:
    for _ in range(2):
        room.zygote_client.spawn("W1")
        room.far[-1].socket.close()
        room.turn()
    room.zygote_client.tick(room.zygote_client.deadline() or 0.0)
    room.zygote_client.spawn("W1")
    room.far[-1].says(spawned="W1", pid=4_000_000, started=1)
    room.turn()
    (degraded,) = (event for event in room.events if isinstance(event, ev.Degraded))
    assert room.events[-1] == ev.ConditionRecovered(degraded.what)
    room.far[-1].socket.close()
    room.turn()
    assert len(room.far) == 4, "and its end is the first in a row: replaced at once"


def test_a_zygote_is_buried_though_its_socket_ended_before_it_did(room: Room) -> None:
    room.lingering = True
    room.far[0].socket.close()
    room.turn()  # The second one is a process that stays, with its socket closed.
    room.far[1].socket.close()
    room.turn()

    def gone() -> bool:
        room.zygote_client.tick(time.monotonic())
        return not Path(f"/proc/{room.pids[1]}").exists()

    until(gone)
    assert not Path(f"/proc/{room.pids[0]}").exists()


def test_killing_one_that_was_adopted_and_has_ended_meanwhile_does_no_harm(room: Room) -> None:
    worker = subprocess.Popen(["sleep", "60"], start_new_session=True)
    room.zygote_client.spawn("W1")
    room.far[0].says(spawned="W1", pid=worker.pid, started=sessions.start_time(worker.pid))
    room.turn()
    room.far[0].socket.close()
    room.turn()
    worker.kill()
    worker.wait()
    room.zygote_client.kill(worker.pid)
    room.turn()
    assert room.events[-1] == ev.WorkerReaped("W1", worker.pid, 1)
