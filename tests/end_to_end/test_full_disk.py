"""A disk that fills up under a busy fleet, again and again: nobody dies of it."""

from __future__ import annotations

import json
import os
import random
import resource
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.end_to_end.conftest import Ran, StartFleet
from tests.support.embedded import EmbeddedProject
from tests.support.fleet import Fleet, until
from tests.support.small_disk import filled, small_disk

FILLS = int(os.environ.get("BW_FILLS", "6"))
"""Of each place; ``scripts/prove`` is not asked for these: thirty take two minutes."""
RESUME_SECONDS = 2.0
SLACK_SECONDS = 1.5
"""What a loaded machine adds to that."""


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """Where the run directory is, and what ``start`` prints."""
    with small_disk(tmp_path / "disk", 24) as folder:
        yield folder


def beside_the_tracker(disk: Path, tmp_path: Path) -> tuple[EmbeddedProject, tuple[str, ...]]:
    """A project that is all on that disk."""
    return EmbeddedProject(disk), ()


def away_from_the_tracker(disk: Path, tmp_path: Path) -> tuple[EmbeddedProject, tuple[str, ...]]:
    """A project elsewhere: only the run directory and the output are on that disk."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    project = EmbeddedProject(elsewhere)
    link = disk / "project"
    link.symlink_to(project.folder)
    project.folder = link
    return project, ("--state-dir", str(disk / "state"))


@pytest.mark.share(2)
@pytest.mark.parametrize("placed", [beside_the_tracker, away_from_the_tracker])
def test_a_disk_that_fills_up_again_and_again_kills_nobody_and_costs_nothing(
    disk: Path, tmp_path: Path, start: StartFleet, ran: Ran, placed: object
) -> None:
    assert callable(placed)
    project, where = placed(disk, tmp_path)
    chance = random.Random(f"{placed.__name__}")
    ids = project.create_many([{} for _ in range(20 * FILLS)])
    fleet: Fleet = start(
        project,
        *(
            "-n",
            "4",
            "--until-empty",
            "--retry-delay",
            "0.2s",
            "--skip-check",
            "disk",
            *where,
            "--",
        ),
        *ran.command("echo working; sleep 0.2"),
        environment=ran.environment,
    ).started()
    until(lambda: len(ran.begun()) >= 4)
    slow = []
    for number in range(FILLS):
        time.sleep(chance.uniform(0.0, 1.0))
        with filled(disk):
            time.sleep(chance.uniform(1.0, 3.0))
            assert fleet.process.poll() is None, fleet.said()
            if number == FILLS // 2:
                shown = fleet.call("status", "--json", *where).stdout
                assert json.loads(shown)["degraded"], shown
        begun, room_at = len(ran.begun()), time.monotonic()
        until(lambda begun=begun: len(ran.begun()) > begun, 30, fleet.said())  # type: ignore[misc]
        slow.append(time.monotonic() - room_at)
    assert len(ran.ended()) < len(ids), "it was busy until the last fill"
    assert max(slow) < RESUME_SECONDS + SLACK_SECONDS, slow
    assert fleet.wait() == 0, fleet.said()
    ran.each_once(ids)
    assert {s for s, _ in project.read_all().values()} == {"closed"}
    assert not any(r.get("charged") for r in fleet.journal("finished"))
    assert "Traceback" not in (fleet.run_folder / "orchestrator.log").read_text()
    fleet.leaves_nothing()


def journal_cannot_grow(fleet: Fleet) -> tuple[int, int]:
    """What the orchestrator adds to it meets EFBIG, as from a disk in trouble that is not full;
    files that are shorter can be written. Returns the limits that held before."""
    before = resource.prlimit(fleet.pid, resource.RLIMIT_FSIZE)
    size = (fleet.run_folder / "journal.jsonl").stat().st_size
    assert size > 4096, "there is to be room for other files"
    resource.prlimit(fleet.pid, resource.RLIMIT_FSIZE, (size, before[1]))
    return before


def journal_trouble(fleet: Fleet) -> list[str]:
    told = fleet.status()["degraded"]
    return [each["text"] for each in told if each["condition"] == "the journal"]


def watched_trouble(fleet: Fleet) -> str:
    """What a dashboard is shown of it, in the end."""
    with socket.socket(socket.AF_UNIX) as watcher:
        watcher.settimeout(20)
        watcher.connect(fleet.journal("run_started")[0]["control_socket"])
        watcher.sendall(b'{"control": "bw.watch"}\n')
        snapshots = (json.loads(line)["snapshot"] for line in watcher.makefile("rb"))
        next(snapshots)  # The answer; what follows is told unasked.
        found = (each for shown in snapshots for each in shown["degraded"])
        return str(next(each["text"] for each in found if each["condition"] == "the journal"))


def test_a_journal_that_cannot_be_written_is_waited_for_and_said(
    embedded: EmbeddedProject, start: StartFleet, ran: Ran
) -> None:
    ids = embedded.create_many([{} for _ in range(20)])
    fleet: Fleet = start(
        embedded,
        *("-n", "2", "--until-empty", "--"),
        *ran.command("sleep 0.2"),
        environment=ran.environment,
    ).started()
    until(lambda: len(ran.begun()) >= 8)
    before = journal_cannot_grow(fleet)
    (text,) = until(lambda: journal_trouble(fleet))
    assert "File too large; nothing new is begun" in text
    assert watched_trouble(fleet) == text
    until(lambda: len(ran.begun()) == len(ran.ended()))
    begun = len(ran.begun())
    time.sleep(1.0)
    assert len(ran.begun()) == begun < len(ids)
    resource.prlimit(fleet.pid, resource.RLIMIT_FSIZE, before)
    until(lambda: len(ran.begun()) > begun, RESUME_SECONDS + SLACK_SECONDS)
    assert fleet.wait() == 0, fleet.said()
    ran.each_once(ids)
    assert fleet.wait_for("degraded_ended", what="the journal")
    fleet.leaves_nothing()


def test_a_stop_ends_a_run_without_its_journal_with_a_word_and_the_next_start_settles_it(
    embedded: EmbeddedProject, start: StartFleet, ran: Ran
) -> None:
    ids = embedded.create_many([{} for _ in range(20)])
    command = ("-n", "2", "--until-empty", "--", *ran.command("sleep 0.2"))
    fleet: Fleet = start(embedded, *command, environment=ran.environment).started()
    until(lambda: len(ran.begun()) >= 8)
    journal_cannot_grow(fleet)
    until(lambda: journal_trouble(fleet))
    stopped = fleet.call("stop")
    assert stopped.returncode == 1
    assert stopped.stderr.startswith("error: the journal cannot be kept (File too large)")
    assert fleet.wait() == 1, fleet.said()
    assert "error: the journal cannot be written: File too large; nothing new" in fleet.output
    assert "ended because: the journal cannot be kept (File too large)" in fleet.output
    assert "next: start again when that is mended: this run still holds bw-" in fleet.output
    last = json.loads((fleet.run_folder / "ended.json").read_text())
    assert "the journal cannot be kept" in last["ending"] and last["exit_code"] == 1
    shown = fleet.call("status")
    assert "the journal cannot be kept" in shown.stdout + shown.stderr
    again: Fleet = start(embedded, *command, environment=ran.environment)
    assert again.wait() == 0, again.said()
    assert set(ran.ended()) == set(ids)
    assert {s for s, _ in embedded.read_all().values()} == {"closed"}
    again.leaves_nothing()
