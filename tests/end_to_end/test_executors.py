"""RRQ executors at work for a fleet, the real ones: each way in which a request can end.

The same tasks are put to JSON-Lines workers that call functions, to rrq 0.9.8 over a Unix socket
and over TCP, and to rrq 0.11.1: whoever executes them, the same becomes of them.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end.conftest import StartFleet
from tests.support.bd import NEW as NEW_BD
from tests.support.bd import OLD as OLD_BD
from tests.support.bd import BdProject
from tests.support.embedded import EmbeddedProject
from tests.support.fleet import Fleet, until
from tests.support.peers import HANDLERS_FOLDER, NEW, OLD, rrq_of
from tests.support.versions import EXECUTORS as IDS

pytestmark = pytest.mark.daily(2)

QUICK = ("--retry-delay", "0.05s", "--poll", "0.2s", "--term-grace", "0.5s")
EXECUTORS = {"rrq": OLD, "rrq-tcp": OLD, "rrq2": NEW}


def served(protocol: str) -> tuple[str, ...]:
    """The options that have the handlers served so."""
    return ("--executor", f"{protocol}:{shlex.join(rrq_of(EXECUTORS[protocol]).serve())}")


def fleet_of(start: StartFleet, project: Any, *options: str) -> Fleet:
    """One process; what it finds in its environment are the handlers."""
    fleet: Fleet = start(
        project, "-n", "1", *QUICK, *options, environment={"PYTHONPATH": str(HANDLERS_FOLDER)}
    )  # fmt: skip
    return fleet


def calls(*functions: str, **arguments: Any) -> list[dict[str, Any]]:
    """An issue for each function."""
    return [{"job_path": name, "args": [], "kwargs": arguments} for name in functions]


@pytest.fixture(params=list(EXECUTORS), ids=IDS)
def protocol(request: pytest.FixtureRequest) -> str:
    """Each that we speak."""
    return str(request.param)


@pytest.fixture(params=["functions", *EXECUTORS], ids=("functions", *IDS))
def options(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, ...]]:
    """Each way to have functions called."""
    yield ("--allow-module", "calls") if request.param == "functions" else served(request.param)


TASKS = """
from beads_workers.executors.retry import Retry
import os
def echo(**arguments): return arguments
def fail(message): raise ValueError(message)
def again(marker, seconds):
    if os.path.exists(marker): return "the second time"
    open(marker, "w").close()
    raise Retry("not yet", after_seconds=seconds)
def die(): os._exit(7)
def block(): import time; time.sleep(3600)
"""


def test_whoever_executes_a_task_the_same_becomes_of_it(
    embedded: EmbeddedProject, start: StartFleet, tmp_path: Path, options: tuple[str, ...]
) -> None:
    (embedded.folder / "calls.py").write_text(TASKS)
    path = "calls." if "--allow-module" in options else ""
    marker = {"marker": str(tmp_path / "marker"), "seconds": 0.1}
    ids = embedded.create_many(
        [
            {"job_path": f"{path}echo", "args": [], "kwargs": {"a": 1, "deep": {"é": [None]}}},
            {"job_path": f"{path}again", "args": [], "kwargs": marker},
            {"job_path": f"{path}fail", "args": [], "kwargs": {"message": "the reason"}},
            {"job_path": f"{path}nobody_knows_it", "args": [], "kwargs": {}},
            {"job_path": f"{path}die", "args": [], "kwargs": {}},
            {"job_path": f"{path}block", "args": [], "kwargs": {}},
        ]
    )
    fleet = fleet_of(
        start, embedded, *options, "--until-empty", "--timeout", "4s", "--max-attempts", "1"
    )
    assert fleet.wait(110) == 7, fleet.said()
    ended = {i: status for i, (status, _) in embedded.read_all().items()}
    assert [ended[i] for i in ids] == ["closed"] * 2 + ["blocked"] * 4
    outcomes = Counter((r["issue_id"], r["outcome"]) for r in fleet.journal("finished"))
    expected = [
        (ids[0], "success"), (ids[1], "success"), (ids[1], "retry"), (ids[2], "error"),
        (ids[3], "not_found"), (ids[4], "error"), (ids[5], "timeout"),
    ]  # fmt: skip
    assert outcomes == Counter(expected)
    assert "the reason" in embedded.notes(ids[2])
    fleet.leaves_nothing()


def test_one_that_ends_the_executor_is_quarantined_and_its_neighbours_finish(
    embedded: EmbeddedProject, start: StartFleet, protocol: str
) -> None:
    poison, *others = embedded.create_many(calls("die") + 12 * calls("rest", seconds=0.2))
    fleet = fleet_of(start, embedded, *served(protocol), "--in-flight", "4", "--until-empty")
    assert fleet.wait(110) == 7, fleet.said()
    ended = embedded.read_all()
    assert ended[poison][0] == "blocked"
    assert {ended[i][0] for i in others} == {"closed"}
    by_issue = Counter(r["issue_id"] for r in fleet.journal("finished") if r["outcome"] == "error")
    assert by_issue == {poison: 3}, "only the guilty one is charged"
    fleet.leaves_nothing()


def test_one_that_blocks_its_executor_is_ended_with_it_and_costs_its_neighbours_nothing(
    embedded: EmbeddedProject, start: StartFleet, protocol: str
) -> None:
    blocking, *others = embedded.create_many(
        [*calls("block"), *[{**call, "priority": 3} for call in 6 * calls("echo", a=1)]]
    )
    fleet = fleet_of(
        start, embedded, *served(protocol), "--in-flight", "2", "--until-empty", "--timeout", "3s",
        "--max-attempts", "1",
    )  # fmt: skip
    assert fleet.wait(110) == 7, fleet.said()
    ended = embedded.read_all()
    assert ended[blocking][0] == "blocked"
    assert {ended[i][0] for i in others} == {"closed"}
    charged = [r for r in fleet.journal("finished") if r["outcome"] not in ("success", "retry")]
    assert [(r["issue_id"], r["outcome"]) for r in charged] == [(blocking, "timeout")]


def test_an_executor_that_is_killed_in_the_middle_is_started_again(
    embedded: EmbeddedProject, start: StartFleet, protocol: str, tmp_path: Path
) -> None:
    marker = tmp_path / "began"
    (issue,) = embedded.create_many(calls("rest", seconds=1.0, marker=str(marker)))
    fleet = fleet_of(start, embedded, *served(protocol), "--until-empty")
    until(marker.exists)
    (pid,) = executor_pids(fleet)
    os.kill(pid, signal.SIGKILL)
    assert fleet.wait() == 0, fleet.said()
    outcomes = [r["outcome"] for r in fleet.journal("finished")]
    assert outcomes == ["error", "success"]
    assert embedded.read(issue)[0] == "closed"
    fleet.leaves_nothing()


def test_a_task_that_is_released_is_cancelled_in_its_executor_which_lives_on(
    embedded: EmbeddedProject, start: StartFleet, protocol: str, tmp_path: Path
) -> None:
    marker = tmp_path / "began"
    taken, other = embedded.create_many(
        [*calls("rest", marker=str(marker)), *calls("rest", seconds=0.1)]
    )
    fleet = fleet_of(start, embedded, *served(protocol), "--in-flight", "2", "--term-grace", "30s")
    until(marker.exists)
    before = executor_pids(fleet)
    assert fleet.call("release", taken).returncode == 0
    fleet.wait_for("finished", issue_id=taken, outcome="cancelled")
    fleet.wait_for("finished", issue_id=other, outcome="success")
    assert executor_pids(fleet) == before
    assert fleet.call("stop").returncode == 0
    assert fleet.wait() == 0, fleet.said()
    fleet.leaves_nothing()


def test_hundreds_at_once_all_find_their_way(embedded: EmbeddedProject, start: StartFleet) -> None:
    ids = embedded.create_many(250 * calls("rest", seconds=0.2))
    fleet = fleet_of(start, embedded, *served("rrq"), "--in-flight", "250", "--until-empty")
    assert fleet.wait() == 0, fleet.said()
    assert [r["outcome"] for r in fleet.journal("finished")] == ["success"] * len(ids)


def test_several_executors_are_chosen_by_name(embedded: EmbeddedProject, start: StartFleet) -> None:
    old, new = (shlex.join(rrq_of(version).serve()) for version in (OLD, NEW))
    positional = {"job_path": "add", "args": [1, 2], "kwargs": {}}
    ids = embedded.create_many(
        [
            *calls("old#where", "new#where", "where"),
            *calls("none#where"),
            {**positional, "job_path": "new#add"},
            positional,
        ]
    )
    fleet = fleet_of(
        start, embedded, "--executor", f"old=rrq:{old}", "--executor", f"new=rrq2:{new}",
        "--in-flight", "3", "--until-empty",
    )  # fmt: skip
    assert fleet.wait() == 7, fleet.said()
    ended = embedded.read_all()
    assert [ended[i][0] for i in ids] == ["closed"] * 3 + ["blocked"] * 2 + ["closed"]
    assert "no executor 'none'" in embedded.notes(ids[3])
    assert "no positional arguments" in embedded.notes(ids[4])
    names = {file.name for file in (fleet.run_folder / "executors").glob("*.log")}
    assert names == {"old.W1.log", "new.W1.log"}


@pytest.mark.parametrize(
    ("spoken", "version"), [("rrq", NEW_BD), ("rrq2", OLD_BD)], ids=(IDS[0], IDS[2])
)
def test_issues_of_bd_are_executed_and_closed(
    tmp_path: Path, start: StartFleet, spoken: str, version: str
) -> None:
    project = BdProject(tmp_path, version)
    project.create("names its function", labels=("call:echo",))
    project.create("names none")
    fleet = fleet_of(
        start, project, *served(spoken), "--in-flight", "2", "--until-empty", "--function", "echo"
    )  # fmt: skip
    assert fleet.wait(110) == 0, fleet.said()
    assert [status for status, _ in project.read_all().values()] == ["closed"] * 2
    fleet.leaves_nothing()


def test_what_an_executor_prints_and_why_it_failed_can_be_read(
    embedded: EmbeddedProject, start: StartFleet, protocol: str
) -> None:
    said, failed = embedded.create_many([*calls("say", text="hello"), *calls("fail", message="no")])
    fleet = fleet_of(start, embedded, *served(protocol), "--until-empty", "--max-attempts", "1")
    assert fleet.wait() == 7, fleet.said()
    log = fleet.run_folder / "executors" / "rrq.W1.log"
    assert "hello" in log.read_text().splitlines()
    assert "error: no" in fleet.call("logs", failed).stdout
    assert said in fleet.output


@pytest.mark.parametrize("killed", ["driver", "orchestrator"])
def test_executors_end_with_their_driver_and_the_driver_with_the_orchestrator(
    embedded: EmbeddedProject, start: StartFleet, tmp_path: Path, killed: str
) -> None:
    marker = tmp_path / "began"
    (issue,) = embedded.create_many(calls("rest", seconds=1.0, marker=str(marker)))
    fleet = fleet_of(start, embedded, *served("rrq"), "--until-empty")
    until(marker.exists)
    before = executor_pids(fleet)
    os.kill(fleet.pid if killed == "orchestrator" else fleet.worker_pid("W1"), signal.SIGKILL)
    until(lambda: not set(before) & set(fleet.token_holders()))
    if killed == "driver":
        assert fleet.wait() == 0, fleet.said()
        assert [r["outcome"] for r in fleet.journal("finished")] == ["lost", "success"]
    else:
        fleet.wait()
        again = fleet_of(start, embedded, *served("rrq"), "--until-empty")
        assert again.wait() == 0, again.said()
        again.leaves_nothing()
    assert embedded.read(issue)[0] == "closed"


def executor_pids(fleet: Fleet) -> list[int]:
    """The processes that were started as executors."""
    return [pid for pid in fleet.token_holders() if b"BW_EXECUTOR=" in environment_of(pid)]


def environment_of(pid: int) -> bytes:
    """With what it was started."""
    return Path(f"/proc/{pid}/environ").read_bytes()


def test_a_program_that_is_no_executor_ends_the_fleet_with_a_word(
    embedded: EmbeddedProject, start: StartFleet
) -> None:
    embedded.create_many(calls("echo"))
    fleet = fleet_of(start, embedded, "--executor", "rrq:false", "--until-empty")
    assert fleet.wait(110) == 1, fleet.said()
    assert "ended before it accepted a connection" in fleet.output + fleet.errors
    assert json.dumps(embedded.read_all()).count("in_progress") == 0
