"""Starting the orchestrator's process: what holds at the moment at which it says that it has."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from beads_workers.cli.client import wait_for_exit
from beads_workers.cli.launch import Launch
from beads_workers.core.settings import FleetSettings
from tests.support.embedded import EmbeddedProject


@pytest.fixture
def launch() -> Iterator[Launch]:
    """A process that ends with the test."""
    launch = Launch()
    yield launch
    launch.client.close()
    wait_for_exit(launch.pid)


def settings(project: EmbeddedProject) -> FleetSettings:
    """Of a fleet without workers."""
    state = project.folder / ".beads-workers"
    return FleetSettings(
        workers=0,
        source="sqlite",
        tracker=str(state / "tracker.db"),
        project=str(project.folder),
        state_directory=str(state),
    )


def test_who_is_told_that_it_started_can_talk_to_it(launch: Launch, tmp_path: Path) -> None:
    started = launch.tell(settings(EmbeddedProject(tmp_path)))
    # Held at this moment: what it would do next is no help.
    os.kill(launch.pid, signal.SIGSTOP)
    try:
        with closing(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)) as sock:
            sock.connect(started["control_socket"])
    finally:
        os.kill(launch.pid, signal.SIGCONT)
