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
