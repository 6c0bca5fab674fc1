"""Hostile conditions: work waits, nothing is lost, and it goes on by itself when they end."""

from __future__ import annotations

import errno
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end.conftest import Ran, StartFleet
from tests.support.bd import NEW, OLD, BdProject, bd_program
from tests.support.embedded import EmbeddedProject
from tests.support.fleet import Fleet, call, until
from tests.support.peer import descriptors

GATE = 'while ! [ -e "$RAN.gate" ]; do sleep 0.2; done'
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
    before = resource.prlimit(pid, resource.RLIMIT_NOFILE)

    def free() -> int:
        opened = descriptors(pid).keys()
        return min(set(range(max(opened) + 2)) - opened)

    def is_full() -> bool:
        # Below the lowest free number: what is open stays open, until it is closed.
        lowest = free()
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (lowest, before[1]))
        time.sleep(0.3)
        return free() >= lowest

    until(is_full)
    return before


def asking(fleet: Fleet) -> bool:
    """Whether a round trip is under way."""
    turns = [r["e"] for r in fleet.journal() if r["e"] in ("round_trip_began", "spent")]
    return turns[-1] == "round_trip_began"


def degraded(fleet: Fleet) -> dict[str, bool]:
    """What stands in the way, and whether it stops claiming."""
    return {h["condition"]: h["stops"] for h in fleet.status()["degraded"]}


def test_without_descriptors_a_fleet_answers_and_neither_spins_nor_loses_anything(
    tmp_path: Path, start: StartFleet, ran: Ran
) -> None:
    project = BdProject(tmp_path, OLD)
    ids = project.create_many([{} for _ in range(4)])
    fleet: Fleet = start(
        project, "-n", "2", "--until-empty", "--", *ran.command(GATE), environment=ran.environment
    )
    until(lambda: len(ran.begun()) == 2)
    until(lambda: not asking(fleet))
    before = leave_no_descriptors(fleet.pid)
    project.environment |= ran.environment
    joining = fleet.bash_worker(*ran.command())
    until(lambda: degraded(fleet).get("the worker socket") is False, what=fleet.said())
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


@pytest.fixture
def small_disk(embedded: EmbeddedProject) -> Iterator[Path]:
    """The run directory, tracker and all, on 8 MB with room for 300 files."""
    folder, before = embedded.folder / ".beads-workers", embedded.folder / "before"
    folder.rename(before)
    folder.mkdir()
    options = "size=8m,nr_inodes=300,mode=700"
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "none", folder], check=True)
    try:
        shutil.copytree(before, folder, dirs_exist_ok=True)
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


def fill_with_bytes(folder: Path) -> None:
    with (folder / "filler").open("wb", buffering=0) as file:
        try:
            while file.write(bytes(1 << 12)):
                pass
        except OSError as error:
            assert error.errno == errno.ENOSPC


def fill_with_files(folder: Path) -> None:
    (folder / "filler").mkdir()
    try:
        for number in range(10_000):
            (folder / "filler" / str(number)).touch()
    except OSError as error:
        assert error.errno == errno.ENOSPC


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small disk needs root, as in CI")
@pytest.mark.parametrize("fill", [fill_with_bytes, fill_with_files], ids=["bytes", "files"])
def test_a_full_disk_holds_new_work_up_charges_nothing_and_loses_nothing(
    embedded: EmbeddedProject,
    small_disk: Path,
    start: StartFleet,
    ran: Ran,
    fill: Callable[[Path], None],
) -> None:
    ids = embedded.create_many([{} for _ in range(6)])
    fleet: Fleet = start(
        embedded,
        *("-n", "2", "--until-empty", "--retry-delay", "0.2s", "--skip-check", "disk", "--"),
        *ran.command(f"echo working; {GATE}"),
        environment=ran.environment,
    )
    until(lambda: len(ran.begun()) == 2)
    fill(small_disk)
    until(lambda: degraded(fleet) == {"the run directory": True})
    assert "at" in fleet.status()["needs"][0]["text"]
    open_gate(ran)
    until(lambda: len(ran.ended()) == 2)
    begun = len(ran.begun())
    assert fleet.process.poll() is None
    if (small_disk / "filler").is_dir():
        shutil.rmtree(small_disk / "filler")
    else:
        (small_disk / "filler").unlink()
    assert fleet.wait() == 0, fleet.said()
    assert begun <= 4, "new work was begun on a full disk"
    assert Counter(ran.ended()) == Counter(ids)
    assert not any(r.get("charged") for r in fleet.journal("finished"))
    assert {s for s, _ in embedded.read_all().values()} == {"closed"}
    fleet.leaves_nothing()


def test_a_project_that_is_moved_away_and_comes_back_is_waited_for(
    tmp_path: Path, start: StartFleet, ran: Ran
) -> None:
    project = BdProject(tmp_path, OLD)
    ids = project.create_many([{} for _ in range(4)])
    state = tmp_path / "state"
    fleet: Fleet = start(
        project,
        *("-n", "2", "--until-empty", "--state-dir", str(state), "--"),
        *ran.command(GATE),
        environment=ran.environment,
    )
    until(lambda: len(ran.begun()) == 2)
    away = project.folder.rename(tmp_path / "away")
    ask = ("status", "--json", "--state-dir", str(state))
    shown = until(lambda: _shown(project, ask, tmp_path)["degraded"])
    assert {h["condition"] for h in shown} == {"the project's folder", "the tracker"}
    open_gate(ran)
    until(lambda: len(ran.ended()) == 2)
    fleet.wait_for("source_trouble")
    away.rename(project.folder)
    assert fleet.wait() == 0, fleet.said()
    ran.each_once(ids)
    assert {s for s, _ in project.read_all().values()} == {"closed"}
    fleet.leaves_nothing()


def _shown(project: BdProject, ask: tuple[str, ...], folder: Path) -> dict[str, Any]:
    shown: dict[str, Any] = json.loads(call(project, *ask, folder=folder).stdout)
    return shown


@pytest.mark.parametrize("version", [OLD, NEW])
def test_a_bd_that_vanishes_and_a_tracker_that_is_deleted_are_waited_for(
    tmp_path: Path, start: StartFleet, ran: Ran, version: str
) -> None:
    project = BdProject(tmp_path, version)
    ids = project.create_many([{} for _ in range(3)])
    program = tmp_path / "bin" / "bd"
    program.parent.mkdir()
    program.symlink_to(bd_program(version))
    # Only there, or the one behind it on PATH would do.
    path = f"{program.parent}:{Path(sys.executable).parent}:/usr/bin:/bin"
    fleet: Fleet = start(
        project,
        *("-n", "2", "--until-empty", "--"),
        *ran.command(GATE),
        environment={**ran.environment, "PATH": path},
    )
    until(lambda: len(ran.begun()) == 2)
    program.rename(tmp_path / "bd.away")
    open_gate(ran)
    trouble = fleet.wait_for("source_trouble")
    assert "not found" in trouble["error"]
    until(lambda: len(ran.ended()) == 2)
    assert fleet.process.poll() is None
    # Another tracker further up is not ours to write to.
    beads = project.folder / ".beads"
    beads.rename(tmp_path / "beads.away")
    (tmp_path / "bd.away").rename(program)
    until(lambda: degraded(fleet) == {"the tracker": True})
    fleet.wait_for("source_trouble", error=f"{beads} is gone")
    (tmp_path / "beads.away").rename(beads)
    assert fleet.wait() == 0, fleet.said()
    ran.each_once(ids)
    assert {s for s, _ in project.read_all().values()} == {"closed"}
    fleet.leaves_nothing()
