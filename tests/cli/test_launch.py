"""Starting the orchestrator's process: what holds at the moment at which it says that it has."""

from __future__ import annotations

import os
import re
import shlex
import signal
import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from beads_workers.cli.client import wait_for_exit
from beads_workers.cli.launch import SHOWN_MAX, Launch, summary
from beads_workers.core.base.settings import FleetSettings
from beads_workers.core.records import journal as rec
from tests.support.embedded import EmbeddedProject
from tests.ui.snapshots import after, to_decide


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


def ended(*quarantined: str) -> dict[str, Any]:
    """The last word of a run that quarantined these."""
    rows = [{"issue_id": each, "attempts": 3, "error": "exit 1"} for each in quarantined]
    queue = {"unclosed": 0, "ready": 0, "blocked": 0}
    return {
        "totals": {"done": 1, "failed": 3, "quarantined": len(rows)},
        "queue": queue,
        "source_calls": {"count": 1, "seconds": 0.1},
        "uptime_seconds": 1.0,
        "ended": None,
        "quarantined": rows,
    }


def test_the_hint_quotes_the_ids_that_it_names() -> None:
    assert "'beads-workers logs bw-1' says why" in summary(ended("bw-1"))[-1]
    (command,) = re.findall(r"beads-workers retry (.*)' tries again", summary(ended("x;y"))[-1])
    assert shlex.split(command) == ["x;y"]


@pytest.mark.parametrize(
    ("argv", "command"),
    [
        (["start"], "beads-workers start"),
        (["start", "-n", "2", "--", "./do", "it's {id}"], None),
        (["start", "--", "sh", "-c", "a\nb"], "beads-workers start ..."),
        ([], "beads-workers start ..."),
    ],
)
def test_the_line_that_goes_on_is_what_was_typed(argv: list[str], command: str | None) -> None:
    told = ended() | {"argv": argv, "requeued": ["bw-1"]}
    _, _, pasted = summary(told)[-1].partition("to go on with what was requeued: ")
    assert pasted == command or shlex.split(pasted) == ["beads-workers", *argv]


def test_what_agents_have_filed_is_taken_by_the_same_fleet() -> None:
    told = ended() | {"argv": ["start", "-n", "2", "--", "true"], "discovered": ["bw-7", "bw-8"]}
    taken = "to take them: beads-workers start bw-7 bw-8 -n 2 -- true"
    assert any(line.endswith(taken) for line in summary(told))


def test_more_than_are_shown_are_retried_all_at_once() -> None:
    ids = [f"bw-{number}" for number in range(SHOWN_MAX + 1)]
    assert "'beads-workers retry --all' tries again" in summary(ended(*ids))[-1]
    assert f"'beads-workers retry {' '.join(ids[:-1])}'" in summary(ended(*ids[:-1]))[-1]


def test_nothing_is_left_to_do_only_if_that_is_known() -> None:
    assert summary(ended())[-1] == "next: nothing is left to do"
    assert "start again when the tracker works" in summary(ended() | {"settled": False})[-1]
    mine = [{"issue_id": "bw-1", "actor": "beads-workers/host/run"}]
    assert "release --abandoned" in summary(ended() | {"held_elsewhere": mine})[-1]
    stale = [{"issue_id": "bw-1", "actor": ""}, {"issue_id": "bw-2", "actor": "ann"}]
    told = summary(ended() | {"held_elsewhere": stale})
    assert "bw-1 is in progress, in nobody's name, and not done" in told
    assert "bw-2 is held by ann, and not done" in told
    assert "'beads-workers release bw-1' opens again" in told[-1]


def test_what_waits_for_a_person_is_said_with_its_command() -> None:
    shown = after(*to_decide(), rec.RunEnded(7, "idle_timeout"))
    told = summary(shown | {"unmerged_branches": 1})
    assert "app-1 asks: FOO or BAR? FOO is shorter.; beads-workers answer app-1" in told
    assert "app-2 awaits approval (3 files changed): beads-workers diff app-2" in told
    assert not any("holds work" in line for line in told), "it is said already"
    assert "'beads-workers answer' asks you one question after the other" in told[-1]
    assert "'land app-2' lands it" in summary(shown | {"questions": []})[-1]
