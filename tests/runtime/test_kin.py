"""What a worker of somebody else has started is known when it is gone, however that hides."""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from beads_workers.core.schedule.events import Event, Warned
from beads_workers.runtime import sessions
from beads_workers.runtime.kin import Kin, outlives
from tests.support.fleet import until

SOCKET = "/tmp/beads-workers-4242.sock"
OTHER = {"PATH": os.environ["PATH"], "ORCHESTRATOR_PID": "4242"}


class Watcher:
    """A ``Kin`` with its loop."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.gone: list[int] = []
        self.selector = selectors.DefaultSelector()
        self.kin = Kin(self.selector, self.events.append, [SOCKET])

    def watch(self, pid: int, started: int = 0) -> None:
        self.kin.watch(pid, started, "bw-1", lambda: self.gone.append(pid))

    def turn(self) -> None:
        for key, mask in self.selector.select(0.05):
            key.data(mask)


def worker(tmp_path: Path, script: str, **environment: str) -> tuple[subprocess.Popen[bytes], int]:
    """A shell as the worker, and the pid of what it runs and tells in ``$PID``."""
    file = tmp_path / "pid"
    process = subprocess.Popen(
        ["sh", "-c", f"{script} & echo $! >{file}.new; mv {file}.new {file}; wait"],
        env={**OTHER, **environment},
    )
    until(file.exists)
    return process, int(file.read_text())


def by_children(kin: Kin, pid: int, child: int) -> None:
    until(lambda: child in [p.pid for p in sessions.descendants(pid)])
    kin.tick({pid})


@pytest.mark.parametrize(
    ("script", "environment", "known"),
    [
        pytest.param("exec setsid sleep 600", {"BW_ISSUE_ID": "bw-1"}, None, id="environment"),
        pytest.param("exec setsid env -i sleep 600", {}, by_children, id="children"),
    ],
)
def test_what_outlives_its_worker_is_waited_for(
    tmp_path: Path,
    script: str,
    environment: dict[str, str],
    known: Callable[[Kin, int, int], None] | None,
) -> None:
    process, child = worker(tmp_path, script, **environment)
    watcher = Watcher()
    if known is not None:
        known(watcher.kin, process.pid, child)
    process.kill()
    process.wait()
    watcher.watch(process.pid)
    watcher.turn()
    watcher.kin.tick(())
    watcher.kin.tick(())
    assert watcher.gone == []
    assert outlives(process.pid, 1, "bw-1", SOCKET) is bool(environment), "a later fleet asks"
    [warned] = watcher.events
    assert isinstance(warned, Warned) and warned.text.endswith(f"lives on: {child}"), warned
    os.kill(child, signal.SIGKILL)
    until(lambda: (watcher.turn(), watcher.gone == [process.pid])[1])


def test_a_process_of_another_issue_or_another_fleet_is_not_waited_for(tmp_path: Path) -> None:
    others = [{"BW_ISSUE_ID": "bw-2"}, {"BW_ISSUE_ID": "bw-1", "ORCHESTRATOR_PID": "4243"}]
    processes = [subprocess.Popen(["sleep", "600"], env={**OTHER, **each}) for each in others]
    watcher = Watcher()
    ended = subprocess.Popen(["true"])
    ended.wait()
    watcher.watch(ended.pid)
    watcher.watch(processes[0].pid, started=1)
    for each in processes:
        each.kill()
        each.wait()
    assert watcher.gone == [ended.pid, processes[0].pid], "at once: another process has its pid"
