"""SIGSTOP of anything: the rest goes on, and nothing is done twice when it wakes."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

from beads_workers.runtime import sessions
from tests.end_to_end.conftest import Ran, StartFleet
from tests.support.embedded import EmbeddedProject
from tests.support.fleet import PROGRAM, Fleet, until

GATE = 'while ! [ -e "$RAN.gate" ]; do sleep 0.2; done'


def zygote_of(fleet: Fleet) -> int:
    stat = Path(f"/proc/{fleet.worker_pid('W1')}/stat").read_text().rpartition(")")[2]
    return int(stat.split()[1])


def test_a_frozen_zygote_is_replaced_and_delays_neither_a_restart_nor_a_stop(
    embedded: EmbeddedProject, start: StartFleet, ran: Ran
) -> None:
    embedded.create_many([{} for _ in range(2)])
    fleet: Fleet = start(embedded, "-n", "2", "--", *ran.command(GATE), environment=ran.environment)
    until(lambda: len(ran.begun()) == 2)
    first = zygote_of(fleet)
    os.kill(first, signal.SIGSTOP)
    os.kill(fleet.worker_pid("W1"), signal.SIGKILL)
    Path(f"{ran.file}.gate").touch()
    # W1 is a zombie of the frozen one; asking for another worker brings that to light.
    assert fleet.call("scale", "3").returncode == 0
    fleet.wait_for("worker_started", 20, worker_id="W3")
    fleet.wait_for("worker_exited", worker_id="W1")
    assert sessions.start_time(first) is None
    assert fleet.call("stop").returncode == 0
    fleet.leaves_nothing()


def test_an_orchestrator_its_client_and_a_watcher_that_were_frozen_go_on(
    embedded: EmbeddedProject, start: StartFleet, ran: Ran
) -> None:
    ids = embedded.create_many([{} for _ in range(4)])
    fleet: Fleet = start(
        embedded,
        *("-n", "2", "--until-empty", "--timeout", "2s", "--term-grace", "0.2s", "--"),
        *ran.command(GATE),
        environment=ran.environment,
    )
    until(lambda: len(ran.begun()) == 2)
    watcher = subprocess.Popen(
        [*PROGRAM, "watch", "--json"],
        cwd=embedded.folder,
        env=embedded.environment,
        stdout=subprocess.PIPE,
    )
    assert watcher.stdout is not None and watcher.stdout.readline()
    fleet.process.send_signal(signal.SIGSTOP)
    watcher.send_signal(signal.SIGSTOP)
    os.kill(fleet.pid, signal.SIGSTOP)
    Path(f"{ran.file}.gate").touch()
    until(lambda: len(ran.ended()) == 2)
    os.kill(fleet.pid, signal.SIGCONT)
    # The client and a watcher sleep on: the fleet needs neither.
    until(lambda: len(ran.ended()) == 4)
    watcher.send_signal(signal.SIGCONT)
    fleet.process.send_signal(signal.SIGCONT)
    assert fleet.wait() == 0, fleet.said()
    watcher.communicate(timeout=20)
    assert watcher.returncode == 0
    ran.each_once(ids)
    fleet.leaves_nothing()


def test_a_worker_frozen_past_its_timeout_is_dead_before_its_issue_goes_to_another(
    embedded: EmbeddedProject, start: StartFleet, ran: Ran
) -> None:
    (issue_id,) = embedded.create_many([{}])
    first = 'echo $$ >"$RAN.pid"; sleep 600 & wait'
    second = 'kill -0 "$(cat "$RAN.pid")" 2>/dev/null && echo task >>"$RAN.alive"'
    second += '; kill -0 "$(cat "$RAN.worker")" 2>/dev/null && echo worker >>"$RAN.alive"'
    fleet: Fleet = start(
        embedded,
        *("-n", "2", "--until-empty", "--retry-delay", "0.1s", "--timeout", "1s"),
        *("--term-grace", "0.1s", "--"),
        *ran.command(f'if mkdir "$RAN.first" 2>/dev/null; then {first}; else {second}; :; fi'),
        environment=ran.environment,
    )
    began = fleet.wait_for("started")
    worker = fleet.worker_pid(began["worker_id"])
    until(Path(f"{ran.file}.pid").exists)
    os.kill(worker, signal.SIGSTOP)
    Path(f"{ran.file}.worker").write_text(str(worker))
    assert fleet.wait(60) == 0, fleet.said()
    assert ran.ended() == [issue_id] and ran.begun() == [issue_id, issue_id]
    assert not Path(f"{ran.file}.alive").exists()
    (lost,) = [r for r in fleet.journal("finished") if r["verdict"] == "requeue"]
    assert lost["outcome"] in ("timeout", "lost") and lost["charged"] == 1
    fleet.leaves_nothing()
