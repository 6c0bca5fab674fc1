"""The zygote with real workers: fork, bury, report, leave."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import pytest

from beads_workers.core.base.plain import to_plain
from beads_workers.core.base.settings import Work, WorkerSettings
from beads_workers.runtime import sessions
from beads_workers.runtime.zygote import ChildExited, ChildSpawned, ZygoteEvent, start_zygote
from beads_workers.runtime.zygote_loop import run_zygote, warm_up
from tests.support.fleet import until
from tests.support.peer import Peer, descriptors, gone, wait_for

E = TypeVar("E", bound=ZygoteEvent)


class Fleet:
    """A zygote, and the peer that its workers connect to."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.peer = Peer(folder / "s")
        self.lock = os.open(folder / "alive", os.O_CREAT | os.O_RDWR)
        self.secret = os.open(folder / "secret", os.O_CREAT | os.O_RDWR)
        os.set_inheritable(self.secret, True)
        self.zygote = start_zygote()
        self.zygote.begin([self.lock])
        self.events: list[ZygoteEvent] = []

    def spawn(self, worker_id: str, *command: str) -> None:
        self.zygote.spawn(
            WorkerSettings(
                worker_id=worker_id,
                socket_path=str(self.folder / "s"),
                orchestrator_pid=os.getpid(),
                project=str(self.folder),
                run_id=f"zygote-{os.getpid()}-{self.folder.name}",
                run_directory=str(self.folder / "run"),
                actor="a",
                work=Work(command=command),
            )
        )

    def next(self, kind: type[E]) -> E:
        """Wait for the next event, which must be of this kind."""
        while not self.events:
            assert select.select([self.zygote.socket], [], [], 10)[0], "the zygote is silent"
            self.events += self.zygote.read_events()
            assert not self.zygote.closed
        event = self.events.pop(0)
        assert isinstance(event, kind)
        return event

    def close(self) -> None:
        self.peer.close()
        self.zygote.close()
        assert gone(self.zygote.pid, 15)
        assert self.zygote.reap()
        os.close(self.lock)
        os.close(self.secret)


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    fleet = Fleet(tmp_path)
    yield fleet
    fleet.close()


def links(pid: int) -> set[str]:
    return set(descriptors(pid).values())


def test_a_worker_leads_its_own_session_and_its_exit_is_reported(fleet: Fleet) -> None:
    fleet.spawn("W1", "true")
    spawned = fleet.next(ChildSpawned)
    assert spawned.worker_id == "W1"
    fleet.peer.accept()
    fleet.peer.expect("READY")
    assert os.getsid(spawned.pid) == spawned.pid
    assert Path(f"/proc/{spawned.pid}/comm").read_text() == "bw-W1\n"
    fleet.peer.send("SHUTDOWN", reason="user_requested")
    assert fleet.next(ChildExited) == ChildExited("W1", spawned.pid, 0)


def test_workers_inherit_the_lock_and_nothing_else_and_tasks_nothing(fleet: Fleet) -> None:
    fleet.spawn("W1", "sh", "-c", "readlink /proc/$$/fd/* > fds; echo >> fds")
    pid = fleet.next(ChildSpawned).pid
    fleet.peer.accept()
    fleet.peer.expect("READY")
    assert str(fleet.folder / "alive") in links(pid)
    assert str(fleet.folder / "secret") not in links(pid) | links(fleet.zygote.pid)
    fleet.peer.task()
    fleet.peer.expect("DONE")
    assert "alive" not in (fleet.folder / "fds").read_text()


def test_what_a_killed_worker_leaves_behind_is_gone_before_the_report(fleet: Fleet) -> None:
    script = "sleep 1000 & setsid sh -c 'echo $$ > away; exec sleep 1000' & echo $$ $! > near"
    fleet.spawn("W1", "sh", "-c", f"trap '' TERM; {script}; wait; sleep 1000")
    pid = fleet.next(ChildSpawned).pid
    fleet.peer.accept()
    fleet.peer.expect("READY")
    fleet.peer.task()
    left = [
        int(p) for p in (wait_for(fleet.folder / "near") + wait_for(fleet.folder / "away")).split()
    ]
    fleet.zygote.kill(pid, signal.SIGKILL)
    assert fleet.next(ChildExited) == ChildExited("W1", pid, -signal.SIGKILL)
    assert all(gone(p, 1.0) for p in left)


def test_a_kill_for_a_worker_that_is_gone_or_unknown_hits_nobody(fleet: Fleet) -> None:
    fleet.zygote.kill(os.getpid(), signal.SIGTERM)
    fleet.spawn("W1", "true")
    assert fleet.next(ChildSpawned).worker_id == "W1"
    fleet.peer.accept()
    fleet.peer.expect("READY")


def test_without_its_orchestrator_everything_leaves(fleet: Fleet) -> None:
    fleet.spawn("W1", "sh", "-c", "echo $$ > pid; exec sleep 1000")
    worker = fleet.next(ChildSpawned).pid
    fleet.peer.accept()
    fleet.peer.expect("READY")
    fleet.peer.task()
    task = int(wait_for(fleet.folder / "pid"))
    fleet.peer.hang_up()
    fleet.zygote.close()
    assert gone(fleet.zygote.pid)
    assert gone(worker, 0.5) and gone(task, 0.5)


def test_signals_to_the_group_do_not_end_it_but_its_death_is_seen(fleet: Fleet) -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        os.kill(fleet.zygote.pid, number)
    fleet.spawn("W1", "true")
    fleet.next(ChildSpawned)
    fleet.peer.accept()
    fleet.peer.expect("READY")
    fleet.peer.send("SHUTDOWN", reason="user_requested")
    fleet.next(ChildExited)
    os.kill(fleet.zygote.pid, signal.SIGKILL)
    assert select.select([fleet.zygote.socket], [], [], 10)[0]
    assert fleet.zygote.read_events() == []
    assert fleet.zygote.closed


def test_a_hundred_workers_are_ready_at_once(fleet: Fleet) -> None:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    fleet.peer.close()
    listener.bind(str(fleet.folder / "s"))
    listener.listen(512)
    listener.settimeout(10)
    for number in range(100):
        fleet.spawn(f"W{number}", "true")
    connections = [listener.accept()[0] for _ in range(100)]
    assert all(b'"READY"' in connection.recv(4096) for connection in connections)
    for connection in connections:
        connection.close()
    listener.close()


def test_a_worker_whose_zygote_dies_before_it_could_report_it_never_starts(tmp_path: Path) -> None:
    peer = Peer(tmp_path / "s")
    ours, theirs = socket.socketpair()
    # No room for a single report.
    theirs.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)
    theirs.setblocking(False)
    with pytest.raises(BlockingIOError):
        while True:
            theirs.send(b" " * 64)
    zygote = os.fork()
    if zygote == 0:
        ours.close()
        os._exit(run_zygote(theirs, ()))
    theirs.close()
    settings = WorkerSettings(
        "W1", str(tmp_path / "s"), os.getpid(), str(tmp_path), "r", str(tmp_path), "a", Work()
    )
    ours.sendall(json.dumps({"spawn": to_plain(settings)}).encode() + b"\n")
    (worker,) = until(lambda: children(zygote))
    started = sessions.start_time(worker)
    os.kill(zygote, signal.SIGKILL)
    os.waitpid(zygote, 0)
    left = not gone(worker)
    if left and started is not None:
        sessions.kill(worker, started, signal.SIGKILL)
    assert not left
    assert peer.nobody_came()
    peer.close()
    ours.close()


def children(pid: int) -> list[int]:
    """Its children, as /proc has them now."""
    return [int(p) for p in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_what_is_loaded_before_the_fork_does_nothing_of_its_own_after_one() -> None:
    """``threading`` and ``random`` do, in every worker: half a megabyte of memory each."""
    loaded = (
        "import sys, beads_workers.runtime.main; print(*{'threading', 'random'} & {*sys.modules})"
    )
    done = subprocess.run(
        [sys.executable, "-c", loaded], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == []


def test_a_warm_up_that_fails_is_skipped_and_named(capfd: pytest.CaptureFixture[str]) -> None:
    warm_up(WorkerSettings("W1", "/s", 1, "/p", "r", "/a\0b", "actor", Work()))
    assert "null" in capfd.readouterr().err
