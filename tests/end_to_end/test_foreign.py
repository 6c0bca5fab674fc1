"""Real processes that nobody here has started: they ignore SHUTDOWN, lose us, and come back."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end.conftest import StartFleet
from tests.support.embedded import EmbeddedProject
from tests.support.fleet import REPOSITORY, Fleet, until
from tests.test_docs import fences


class Foreign:
    """``tests.support.foreign_worker``, and the folder that tells it what to do."""

    def __init__(self, folder: Path, fleet: Fleet, connections: int = 1) -> None:
        self.folder = folder
        self.folder.mkdir()
        self.meets(fleet)
        words = ["-m", "tests.support.foreign_worker", str(folder), str(connections)]
        self.process = subprocess.Popen([sys.executable, *words], cwd=REPOSITORY)

    @property
    def pid(self) -> int:
        return self.process.pid

    def meets(self, fleet: Fleet) -> None:
        """From its next connection on it talks to this one."""
        fresh = self.folder / "socket.new"
        fresh.write_text(str(fleet.socket))
        fresh.rename(self.folder / "socket")

    def begun(self) -> list[str]:
        file = self.folder / "begun"
        return file.read_text().split() if file.exists() else []

    def has(self, count: int) -> list[str]:
        """Wait until it works on so many issues."""
        until(lambda: len(self.begun()) == count)
        return self.begun()

    def tell(self, what: str, issue_id: str) -> None:
        (self.folder / f"{what}-{issue_id}").touch()

    def end(self) -> None:
        self.process.kill()
        self.process.wait()


Hire = Callable[..., Foreign]


@pytest.fixture
def hire(tmp_path: Path) -> Iterator[Hire]:
    """Starts a worker of somebody else for a fleet; it ends with the test."""
    hired: list[Foreign] = []

    def begin(fleet: Fleet, connections: int = 1) -> Foreign:
        hired.append(Foreign(tmp_path / f"foreign-{len(hired)}", fleet, connections))
        return hired[-1]

    yield begin
    for each in hired:
        each.end()


def status_of(project: Any, issue_id: str) -> str:
    return str(project.read_all()[issue_id][0])


def starts(fleet: Fleet, issue_id: str) -> int:
    return len([r for r in fleet.journal("started") if r["issue_id"] == issue_id])


@pytest.mark.share(2)
@pytest.mark.parametrize("as_json", [False, True])
def test_who_ignores_a_stop_is_named_and_keeps_its_issue_until_it_is_gone(
    embedded: EmbeddedProject, start: StartFleet, hire: Hire, as_json: bool
) -> None:
    held, other = embedded.create_many([{}, {}])
    first = start(embedded, "-n", "0", "--", "true")
    foreign = hire(first)
    foreign.has(1)
    stop = first.call("stop", "--timeout", "1", *(["--json"] if as_json else []))
    assert stop.returncode == 1, stop
    if as_json:
        who = {"worker_id": "W1", "pid": foreign.pid, "issue_id": held}
        stayed = [{**who, "host": "", "until": 0.0}]
        assert json.loads(stop.stdout)["stayed"] == stayed
    else:
        assert "not everyone has left" in stop.stdout
        said = f"1 issue ({held}: W1 (pid {foreign.pid}) has not left, and keeps it)"
        assert f"error: still there: {said}\n" in stop.stderr
        assert f"before they are gone: kill {foreign.pid}\n" in stop.stderr
    assert first.wait() == 1
    assert f"{held}: W1 (pid {foreign.pid}) has not left, and keeps it" in first.output
    assert status_of(embedded, held) == "in_progress"
    second = start(embedded, "-n", "1", "--until-empty", "--orphan-grace", "0.5s", "--", "true")
    until(lambda: status_of(embedded, other) == "closed", what=second.said())
    time.sleep(1.0)  # Twice the grace, which is not for those who were told to stop.
    assert starts(second, held) == 0 and status_of(embedded, held) == "in_progress"
    needs = json.loads(second.call("status", "--json").stdout)["needs"]
    assert any(held in need["text"] and str(foreign.pid) in need["text"] for need in needs)
    foreign.end()
    assert second.wait() == 0, second.said()
    assert status_of(embedded, held) == "closed" and starts(second, held) == 1
    second.leaves_nothing()


def test_who_lives_on_without_its_connection_keeps_its_issue_for_a_grace(
    embedded: EmbeddedProject, start: StartFleet, hire: Hire
) -> None:
    (issue_id,) = embedded.create_many([{}])
    fleet = start(
        embedded,
        *("-n", "0", "--until-empty", "--orphan-grace", "1s", "--retry-delay", "0.1s"),
        *("--", "true"),
    )
    foreign = hire(fleet)
    foreign.has(1)
    foreign.tell("drop", issue_id)
    fleet.wait_for("owner_lost")
    fleet.bash_worker("true")
    assert fleet.wait() == 0, fleet.said()
    (lost,), ends = fleet.journal("owner_lost"), fleet.journal("finished")
    assert ends[0]["outcome"] == "lost" and ends[0]["t"] - lost["t"] >= 1.0
    assert status_of(embedded, issue_id) == "closed" and foreign.process.poll() is None


def test_a_killed_worker_has_its_issue_until_what_it_started_has_ended(
    embedded: EmbeddedProject, start: StartFleet, tmp_path: Path
) -> None:
    (issue_id,) = embedded.create_many([{}])
    fleet = start(embedded, "-n", "0", "--orphan-grace", "never", "--", "true")
    [source] = fences(REPOSITORY / "docs/PROTOCOL.md", "python worker")
    worker = subprocess.Popen(
        [sys.executable, "-c", source, "sh", "-c", f"echo $$ >{tmp_path}/pid; exec sleep 600"],
        env={**os.environ, "BW_SOCKET": str(fleet.socket)},
        start_new_session=True,
    )
    until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text())
    command = int((tmp_path / "pid").read_text())
    worker.kill()
    worker.wait()
    assert fleet.call("scale", "1").returncode == 0
    said = fleet.wait_for("noted", level="warning")["text"]
    assert said == f"{issue_id}: its worker (pid {worker.pid}) is gone, " + (
        f"what it started lives on: {command}"
    )
    assert starts(fleet, issue_id) == 1 and status_of(embedded, issue_id) == "in_progress"
    os.kill(command, signal.SIGKILL)
    until(lambda: status_of(embedded, issue_id) == "closed", what=fleet.said())
    assert fleet.call("stop").returncode == 0


def test_what_a_worker_of_version_1_runs_can_be_released(
    embedded: EmbeddedProject, start: StartFleet
) -> None:
    (issue_id,) = embedded.create_many([{}])
    fleet = start(embedded, "-n", "0", "--", "true")
    worker = fleet.bash_worker("sleep", "600")
    fleet.wait_for("started")
    done = fleet.call("release", issue_id)
    assert (done.returncode, done.stdout) == (0, f"on hold: {issue_id}\n"), done
    assert worker.wait(20) == 1
    until(lambda: status_of(embedded, issue_id) == "open")
    assert [r["outcome"] for r in fleet.journal("finished")] == ["cancelled"]
    assert fleet.call("stop").returncode == 0


def test_the_fleet_says_who_claims_and_not_a_folder_of_another_tracker(
    embedded: EmbeddedProject, start: StartFleet
) -> None:
    (issue_id,) = embedded.create_many([{}])
    (embedded.folder / ".beads").mkdir()
    fleet = start(embedded, "--source", "sqlite", "-n", "0", "--until-empty", "--", "true")
    fleet.bash_worker("true")
    assert fleet.wait() == 0, fleet.said()
    assert status_of(embedded, issue_id) == "closed" and starts(fleet, issue_id) == 1


@pytest.mark.parametrize("word", ["release", "retry"])
def test_a_person_gives_back_what_such_a_worker_keeps(
    embedded: EmbeddedProject, start: StartFleet, hire: Hire, word: str
) -> None:
    (issue_id,) = embedded.create_many([{}])
    fleet = start(embedded, "-n", "0", "--orphan-grace", "never", "--", "true")
    foreign = hire(fleet)
    foreign.has(1)
    foreign.tell("drop", issue_id)
    fleet.wait_for("owner_lost")
    done = fleet.call(word, issue_id)
    assert done.returncode == 0, done.stderr
    until(lambda: status_of(embedded, issue_id) == "open")
    if word == "release":
        assert fleet.call("retry", issue_id).returncode == 0
    fleet.bash_worker("true")
    until(lambda: status_of(embedded, issue_id) == "closed")
    assert fleet.call("stop").returncode == 0


def test_after_a_crash_only_its_own_issue_waits_for_it_and_its_ready_settles_that(
    embedded: EmbeddedProject, start: StartFleet, hire: Hire
) -> None:
    held, other = embedded.create_many([{}, {}])
    first = start(embedded, "-n", "0", "--", "true")
    foreign = hire(first)
    foreign.has(1)
    os.kill(first.pid, signal.SIGKILL)
    first.wait()
    second = start(embedded, "-n", "1", "--until-empty", "--orphan-grace", "never", "--", "true")
    until(lambda: status_of(embedded, other) == "closed", what=second.said())
    assert status_of(embedded, held) == "in_progress"
    assert [r["pid"] for r in second.journal("inherited")] == [foreign.pid]
    foreign.meets(second)
    foreign.tell("back", held)
    second.wait_for("requeued", issue_id=held)
    foreign.tell("done", held)  # It may get that one again.
    until(lambda: status_of(embedded, held) == "closed", what=second.said())
    foreign.end()
    assert second.wait() == 0, second.said()
    assert not [r for r in second.journal("finished") if r["outcome"] == "lost"]


def test_of_twenty_connections_of_one_process_none_speaks_for_another(
    embedded: EmbeddedProject, start: StartFleet, hire: Hire
) -> None:
    embedded.create_many([{} for _ in range(20)])
    fleet = start(embedded, "-n", "0", "--orphan-grace", "2s", "--", "true")
    foreign = hire(fleet, 20)
    one, other, *rest = foreign.has(20)
    for issue_id in (one, other):
        foreign.tell("drop", issue_id)
    until(lambda: len(fleet.journal("owner_lost")) == 2)
    foreign.tell("back", one)
    until(lambda: len(fleet.journal("worker_joined")) == 21)
    until(lambda: len(fleet.journal("finished")) == 2)
    lost = {r["issue_id"]: r["t"] for r in fleet.journal("owner_lost")}
    for end in fleet.journal("finished"):
        assert end["outcome"] == "lost"
        assert end["t"] - lost.pop(end["issue_id"]) >= 2.0, "its grace, and no READY, ended it"
    assert not lost and {r["pid"] for r in fleet.journal("worker_joined")} == {foreign.pid}
    for issue_id in rest:
        foreign.tell("done", issue_id)
    closed = [i for i in rest if status_of(embedded, i) == "closed"]
    until(lambda: all(status_of(embedded, i) == "closed" for i in rest), what=str(closed))
    foreign.end()
    assert fleet.call("stop").returncode == 0


def test_one_process_with_twenty_connections_is_twenty_workers_and_its_end_frees_all(
    embedded: EmbeddedProject, start: StartFleet, hire: Hire
) -> None:
    ids = embedded.create_many([{} for _ in range(60)])
    fleet = start(embedded, "-n", "0", "--until-empty", "--orphan-grace", "never", "--", "true")
    foreign = hire(fleet, 20)
    held = foreign.has(20)
    assert len(set(held)) == 20
    for issue_id in {*ids} - {*held}:
        foreign.tell("done", issue_id)
    for issue_id in held[:10]:
        foreign.tell("done", issue_id)
    until(lambda: len(foreign.begun()) == 60)
    until(lambda: len(fleet.journal("finished")) == 50)
    assert len(set(foreign.begun())) == 60, "each was begun once"
    joined = {r["worker_id"]: r["pid"] for r in fleet.journal("worker_joined")}
    assert len(joined) == 20 and set(joined.values()) == {foreign.pid}
    began = {r["issue_id"]: r["worker_id"] for r in fleet.journal("started")}
    assert len({began[issue_id] for issue_id in held}) == 20
    foreign.end()
    fleet.bash_worker("true")
    assert fleet.wait() == 0, fleet.said()
    assert {status for status, _ in embedded.read_all().values()} == {"closed"}
    assert [starts(fleet, issue_id) for issue_id in ids] == [
        2 if issue_id in held[10:] else 1 for issue_id in ids
    ]
