"""Workers in five languages drain a backlog together, and end what they run."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end.conftest import Ran, StartFleet
from tests.end_to_end.test_draining import (
    all_closed,
    assert_no_dependency_was_early,
    backlog,
)
from tests.support.bd import NEW, BdProject
from tests.support.embedded import EmbeddedProject
from tests.support.fleet import REPOSITORY, Fleet, until
from tests.support.versions import ANY
from tests.support.workers import LANGUAGES, worker_programs

Joined = subprocess.Popen[bytes]
Join = Callable[..., Joined]


@pytest.fixture
def join(tmp_path: Path) -> Iterator[Join]:
    """``join(fleet, language, *command)``: a worker that is started by hand."""
    joined: list[Joined] = []

    def begin(fleet: Fleet, language: str, *command: str, **more: str) -> Joined:
        environment = {**fleet.project.environment, "ORCHESTRATOR_PID": str(fleet.pid), **more}
        environment["PATH"] += f":{os.environ['PATH']}"
        with (tmp_path / f"{language}.log").open("wb") as log:
            worker = subprocess.Popen(
                [worker_programs()[language], *command],
                cwd=fleet.project.folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        joined.append(worker)
        return worker

    yield begin
    for worker in joined:
        if worker.poll() is None:
            worker.kill()
            worker.wait()


@pytest.fixture(params=[NEW, "embedded"], ids=(ANY[2], ANY[0]))
def project(request: pytest.FixtureRequest, tmp_path: Path) -> EmbeddedProject | BdProject:
    return EmbeddedProject(tmp_path) if request.param == "embedded" else BdProject(tmp_path, NEW)


@pytest.mark.timeout(180)
def test_a_fleet_of_five_languages_does_every_issue_once(
    project: Any, start: StartFleet, ran: Ran, join: Join
) -> None:
    rows = backlog(12)
    ids = project.create_many(rows)
    command = ran.command('until [ -e "$RAN.all" ]; do sleep 0.1; done')
    fleet = start(project, "-n", "0", "--", *command, environment=ran.environment)
    workers = [join(fleet, language, *command, **ran.environment) for language in LANGUAGES]
    assert fleet.call("scale", "1").returncode == 0  # Ours, in Python.
    # Nobody's first task ends before each has one.
    until(lambda: len({r["worker_id"] for r in fleet.journal("started")}) == len(LANGUAGES) + 1)
    ran.file.with_name(f"{ran.file.name}.all").touch()
    until(lambda: len(fleet.journal("settled")) >= len(ids), 120, fleet.said())
    until(lambda: all_closed(project), what=fleet.said())
    assert fleet.call("stop").returncode == 0
    assert [worker.wait(20) for worker in workers] == [0] * len(LANGUAGES)
    ran.each_once(ids)
    assert_no_dependency_was_early(ran, rows)
    fleet.leaves_nothing()


@pytest.fixture
def endless(tmp_path: Path) -> tuple[Path, str]:
    """A script whose processes end only when they are ended, and the file with their pids."""
    pids = tmp_path / "pids"
    return pids, f"sleep 600 & echo $$ $! >{pids}.new; mv {pids}.new {pids}; wait"


def are_gone(pids: Path) -> bool:
    return not any(Path("/proc", pid).exists() for pid in pids.read_text().split())


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_worker_that_loses_its_orchestrator_ends_its_task(
    language: str,
    embedded: EmbeddedProject,
    start: StartFleet,
    join: Join,
    endless: tuple[Path, str],
) -> None:
    embedded.create_many([{}])
    fleet = start(embedded, "-n", "0", "--", "true")
    pids, script = endless
    worker = join(fleet, language, "sh", "-c", script)
    until(pids.exists)
    os.kill(fleet.pid, 9)
    assert worker.wait(20) == 1
    until(lambda: are_gone(pids), 10)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("language", LANGUAGES)
def test_a_worker_that_is_told_to_leave_ends_its_task_which_goes_back(
    language: str,
    number: signal.Signals,
    embedded: EmbeddedProject,
    start: StartFleet,
    join: Join,
    endless: tuple[Path, str],
) -> None:
    embedded.create_many([{"id": "bw-1"}])
    fleet = start(embedded, "-n", "0", "--", "true")
    pids, script = endless
    worker = join(fleet, language, "sh", "-c", script)
    until(pids.exists)
    worker.send_signal(number)
    assert worker.wait(20) == 0
    until(lambda: are_gone(pids), 10)
    until(lambda: embedded.read_all()["bw-1"] == ("open", ""))


@pytest.mark.timeout(120)
def test_a_task_may_take_longer_than_three_heartbeats(
    embedded: EmbeddedProject, start: StartFleet, join: Join, ran: Ran
) -> None:
    ids = embedded.create_many([{} for _ in LANGUAGES])
    fleet = start(embedded, "-n", "0", "--until-empty", "--orphan-grace", "0.1s", "--", "true")
    command = ran.command("sleep 18")
    for language in LANGUAGES:
        join(fleet, language, *command, **ran.environment)
    assert fleet.wait(90) == 0, fleet.said()
    assert len({r["worker_id"] for r in fleet.journal("finished")}) == len(LANGUAGES)
    assert fleet.journal("owner_lost") == []
    ran.each_once(ids)


@pytest.mark.parametrize("language", LANGUAGES)
def test_an_issue_may_bring_its_own_command_and_ask_for_another_try(
    embedded: EmbeddedProject, start: StartFleet, join: Join, language: str
) -> None:
    again = "test -e again || { touch again; exit 75; }"
    embedded.create_many(
        [
            {"id": "bw-1", "command": ["sh", "-c", 'echo "$0 $1" >>own', "of its own", "{id}"]},
            {"id": "bw-2", "command": ["sh", "-c", again]},
        ]
    )
    options = ("-n", "0", "--until-empty", "--retry-delay", "0.1s")
    fleet = start(embedded, *options, "--", "touch", "not-this").started()
    join(fleet, language, "touch", "not-this")
    assert fleet.wait(60) == 0, fleet.said()
    assert (embedded.folder / "own").read_text() == "of its own bw-1\n"
    assert not (embedded.folder / "not-this").exists()
    ended = [r for r in fleet.journal("finished") if r["issue_id"] == "bw-2"]
    assert [(r["outcome"], r.get("charged", 0)) for r in ended] == [("retry", 0), ("success", 0)]


@pytest.mark.timeout(180)
def test_none_is_stranded_or_in_two_hands_while_each_is_cut_off_and_frozen() -> None:
    argv = [sys.executable, "-m", "tests.proof.workers", "--only", "cut off and frozen", "--json"]
    done = subprocess.run(argv, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    told = json.loads(done.stdout)
    assert done.returncode == 0, told["promises"]
    assert told["cases"] == len(told["promises"]) == 2 * (len(LANGUAGES) + 2)
    assert all(promise["seconds"] is not None for promise in told["promises"])
    assert told["closed"] == told["issues"]
