"""What a fleet makes is for its user alone, whatever the umask of who started it."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from beads_workers.runtime.project import STATE_FOLDER
from tests.end_to_end.conftest import Ran, StartFleet
from tests.support.embedded import EmbeddedProject
from tests.support.fleet import Fleet, call, until


@pytest.fixture(params=[0o000, 0o077], ids=["umask 000", "umask 077"])
def umask(request: pytest.FixtureRequest) -> Iterator[None]:
    """Inherited by all that the test starts."""
    before = os.umask(request.param)
    yield
    os.umask(before)


def open_to_others(top: Path) -> list[str]:
    """What below this folder, and the folder itself, group or others may touch."""
    found = []
    for path in (top, *sorted(top.rglob("*"))):
        mode = path.lstat().st_mode
        if not stat.S_ISLNK(mode) and stat.S_IMODE(mode) & 0o077:
            found.append(f"{path.relative_to(top.parent)} {stat.S_IMODE(mode):04o}")
    return found


@pytest.mark.share(2)
@pytest.mark.parametrize("puts_another", [False, True])
def test_a_fleet_whose_run_directory_goes_says_so_and_ends(
    embedded: EmbeddedProject, start: StartFleet, puts_another: bool
) -> None:
    embedded.create_many([{} for _ in range(2)])
    fleet = start(embedded, "-n", "2", "--", "sleep", "60").started()
    until(lambda: fleet.status()["queue"]["running"] == 2)
    state = embedded.folder / STATE_FOLDER
    state.rename(embedded.folder / "gone")
    if puts_another:
        state.mkdir()
    assert fleet.wait() == 1, fleet.said()
    assert "the state directory was deleted under the running fleet" in fleet.said()
    (log,) = (embedded.folder / "gone/runs").glob("*/orchestrator.log")
    assert "the state directory was deleted" in log.read_text()
    assert puts_another or not state.exists(), "nothing is made in its place"


def test_nobody_else_can_read_or_write_what_a_fleet_makes(
    umask: None, embedded: EmbeddedProject, start: StartFleet, ran: Ran
) -> None:
    state = embedded.folder / STATE_FOLDER
    shutil.rmtree(state)
    assert call(embedded, "init").returncode == 0
    ids = embedded.create_many([{} for _ in range(4)])
    fleet: Fleet = start(
        embedded, "-n", "2", "--", *ran.command("echo out"), environment=ran.environment
    ).started()
    until(lambda: len(ran.ended()) == len(ids))
    assert open_to_others(state) == []
    assert stat.S_IMODE(fleet.socket.lstat().st_mode) == 0o600
    assert fleet.call("stop").returncode == 0
    assert fleet.wait() == 0, fleet.said()
    assert open_to_others(state) == []
