"""Hostile conditions: work waits, nothing is lost, and it goes on by itself when they end."""

from __future__ import annotations

import os
import resource
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.end_to_end.conftest import Ran, StartFleet
from tests.support.bd import NEW, BdProject
from tests.support.embedded import EmbeddedProject
from tests.support.fleet import Fleet, until

GATE = 'while ! [ -e "$RAN.gate" ]; do sleep 0.02; done'
"""A command runs until the gate is opened."""


@pytest.fixture
def short_path() -> Iterator[Path]:
    """A folder in which the control socket fits beside the run directory's other files."""
    with tempfile.TemporaryDirectory(prefix="bw-", dir="/tmp") as folder:
        yield Path(folder)


def open_gate(ran: Ran) -> None:
    Path(f"{ran.file}.gate").touch()


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def leave_no_descriptors(pid: int) -> tuple[int, int]:
    """No file more can be opened there; returns the limits that held before."""
    opened = [int(entry.name) for entry in Path(f"/proc/{pid}/fd").iterdir()]
    before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    # Below the lowest free number: what is open stays open.
    free = min(set(range(max(opened) + 2)) - set(opened))
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (free, before[1]))
    return before


def asking(fleet: Fleet) -> bool:
    """Whether a turn of the lane is under way."""
    turns = [r["e"] for r in fleet.journal() if r["e"] in ("turn_began", "spent")]
    return turns[-1] == "turn_began"


def hindrances(fleet: Fleet) -> dict[str, bool]:
    """What stands in the way, and whether it stops the intake."""
    return {h["what"]: h["stops_intake"] for h in fleet.status()["hindrances"]}


def test_without_descriptors_a_fleet_answers_and_neither_spins_nor_loses_anything(
    tmp_path: Path, start: StartFleet, ran: Ran
) -> None:
    project = BdProject(tmp_path, NEW)
    ids = project.create_many([{} for _ in range(4)])
    fleet: Fleet = start(
        project, "-n", "2", "--until-empty", "--", *ran.command(GATE), environment=ran.environment
    )
    until(lambda: len(ran.begun()) == 2)
    until(lambda: not asking(fleet))
    before = leave_no_descriptors(fleet.pid)
    project.environment |= ran.environment
    joining = fleet.bash_worker(*ran.command())
    until(lambda: hindrances(fleet) == {"the worker socket": False}, what=fleet.said())
    spent = cpu_seconds(fleet.pid)
    open_gate(ran)
    # bd cannot be called either: what is done stays to be closed.
    trouble = fleet.wait_for("source_trouble", failures=2)
    assert "Too many open files" in trouble["error"]
    assert cpu_seconds(fleet.pid) - spent < 1.0
    assert fleet.status()["needs"]
    assert {s for s, _ in project.read_all().values()} <= {"open", "in_progress"}
    resource.prlimit(fleet.pid, resource.RLIMIT_NOFILE, before)
    assert fleet.wait() == 0, fleet.said()
    assert fleet.wait_for("worker_joined", own=False)
    assert joining.wait(30) == 0
    ran.each_once(ids)
    assert {s for s, _ in project.read_all().values()} == {"closed"}
    fleet.leaves_nothing()


@pytest.mark.parametrize("deep", [False, True], ids=["beside", "in the runtime directory"])
def test_sockets_that_a_cleaner_took_come_back_and_nobody_is_disturbed(
    short_path: Path, start: StartFleet, ran: Ran, deep: bool
) -> None:
    embedded = EmbeddedProject(short_path / "deep".ljust(120, "p") if deep else short_path)
    ids = embedded.create_many([{} for _ in range(4)])
    fleet: Fleet = start(
        embedded, "-n", "2", "--until-empty", "--", *ran.command(GATE), environment=ran.environment
    )
    until(lambda: len(ran.begun()) == 2)
    control = Path(fleet.journal("run_started")[0]["control_socket"])
    assert (control.parent == fleet.state_directory) is not deep
    control.unlink()
    fleet.socket.unlink()
    # Asked at once, it is found all the same.
    assert fleet.status()["pid"] == fleet.pid
    until(fleet.socket.exists, 10)
    embedded.environment |= ran.environment
    fleet.bash_worker(*ran.command())
    fleet.wait_for("worker_joined", own=False)
    open_gate(ran)
    assert fleet.wait() == 0, fleet.said()
    assert fleet.bash_workers_left() == [0]
    ran.each_once(ids)
    assert fleet.output.count("was removed, and is there again") == 2
    fleet.leaves_nothing()
