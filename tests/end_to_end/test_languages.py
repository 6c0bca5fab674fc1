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
from tests.end_to_end.test_draining import all_closed, assert_no_dependency_was_early, backlog
from tests.proof.injured import WORKERS
from tests.support.bd import NEW, BdProject
from tests.support.embedded import EmbeddedProject
from tests.support.fleet import REPOSITORY, Fleet, until
from tests.support.versions import ANY
from tests.support.workers import LANGUAGES, words_of

pytestmark = pytest.mark.daily(2)

Joined = subprocess.Popen[bytes]
Join = Callable[..., Joined]


@pytest.fixture
def join(tmp_path: Path) -> Iterator[Join]:
    """``join(fleet, language, *command)``: a worker that is started by hand. ``deaf``: nobody reads
    its stderr."""
    joined: list[Joined] = []

    def begin(
        fleet: Fleet, language: str, *command: str, deaf: bool = False, **more: str
    ) -> Joined:
        environment = {**fleet.project.environment, "ORCHESTRATOR_PID": str(fleet.pid), **more}
        environment["PATH"] += f":{os.environ['PATH']}"
        with (tmp_path / f"{language}.log").open("wb") as log:
            worker = subprocess.Popen(
                [*words_of(language), *command],
                cwd=fleet.project.folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.PIPE if deaf else log,
            )
        if worker.stderr is not None:
            worker.stderr.close()
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


ENDLESS = 'sleep 600 & echo $$ $! >"$PIDS.new"; mv "$PIDS.new" "$PIDS"; wait'
"""A task whose processes end only when they are ended. It writes down their pids."""
BY_HAND = (*LANGUAGES, "python")


@pytest.fixture
def busy(
    embedded: EmbeddedProject, start: StartFleet, join: Join, tmp_path: Path
) -> tuple[Fleet, list[Joined], list[Path]]:
    """A fleet, a worker of each language with an endless task, and the files of their pids."""
    embedded.create_many([{} for _ in BY_HAND])
    fleet = start(embedded, "-n", "0", "--", "true")
    files = [tmp_path / f"{language}.pids" for language in BY_HAND]
    command = ("sh", "-c", ENDLESS)
    pairs = zip(BY_HAND, files, strict=True)
    workers = [join(fleet, name, *command, deaf=True, PIDS=str(file)) for name, file in pairs]
    until(lambda: not [file.name for file in files if not file.exists()], what=str(files))
    return fleet, workers, files


def left(files: list[Path]) -> list[str]:
    """The files of the tasks of which something lives."""
    return [
        file.name
        for file in files
        if any(Path("/proc", pid).exists() for pid in file.read_text().split())
    ]


def all_end(files: list[Path]) -> None:
    """Within ten seconds."""
    until(lambda: not left(files), 10, what=str(files))


def test_workers_that_lose_their_orchestrator_end_their_tasks_although_nobody_reads_stderr(
    busy: tuple[Fleet, list[Joined], list[Path]],
) -> None:
    fleet, workers, files = busy
    os.kill(fleet.pid, 9)
    assert [worker.wait(20) for worker in workers] == [1] * len(workers)
    all_end(files)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_workers_that_are_told_to_leave_end_their_tasks_which_go_back(
    number: signal.Signals, busy: tuple[Fleet, list[Joined], list[Path]]
) -> None:
    fleet, workers, files = busy
    for worker in workers:
        worker.send_signal(number)
    assert [worker.wait(20) for worker in workers] == [0] * len(workers)
    all_end(files)
    until(lambda: {*fleet.project.read_all().values()} == {("open", "")})


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
def test_none_is_stranded_or_in_two_hands_while_each_is_killed_or_cut_off_and_frozen(
    every_version: bool,
) -> None:
    """Where only some is tried, with the grace that lasts for ever."""
    never = "" if every_version else ", grace never"
    only = [word for name in ("killed", "cut off and frozen") for word in ("--only", name + never)]
    argv = [sys.executable, "-m", "tests.proof.workers", *only, "--json"]
    done = subprocess.run(argv, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    told = json.loads(done.stdout)
    assert done.returncode == 0, told["promises"]
    cases = (4 if every_version else 2) * len(WORKERS)
    assert told["cases"] == len(told["promises"]) == cases
    assert all(promise["seconds"] is not None for promise in told["promises"])
    assert told["closed"] == told["issues"]
