"""Python functions as work: issues name them, workers call them, and what they return is kept."""

from __future__ import annotations

import json
import os
import re
import signal
from pathlib import Path
from typing import Any

from tests.end_to_end.conftest import StartFleet
from tests.support.bd import BdProject
from tests.support.embedded import EmbeddedProject
from tests.support.fleet import Fleet, call, until

SHOP = """
import asyncio, os, subprocess, time
from pathlib import Path
from beads_workers.executors.retry import Retry

def add(a, b=1):
    print("adding", a, "and", b)
    return {"sum": a + b}

async def later(seconds):
    await asyncio.sleep(seconds)
    return "later"

def nothing(): pass
def long(): return "x" * 200_000

def third_time():
    tries = Path("tries")
    with tries.open("a") as file: file.write("x")
    if tries.stat().st_size < 3: raise Retry("the shop is closed", after_seconds=0.1)

def broken(by): return 1 / by

def slow():
    try:
        time.sleep(1000)
    finally:
        Path("cleaned up").touch()

def far():
    from beads_workers import progress
    progress("far", 70)
    while not Path("go").exists(): time.sleep(0.05)

def dies(): os._exit(3)
def title_of(issue): return issue["title"]

def waits():
    child = subprocess.Popen(["sleep", "1000"], start_new_session=True)
    Path("waits").write_text(f"{os.getpid()} {child.pid}")
    time.sleep(1000)
"""
QUICK = ("-n", "2", "--retry-delay", "0.05s", "--poll", "0.2s", "--max-attempts", "2")
CALLS: dict[str, dict[str, Any]] = {
    "bw-add": {"job_path": "shop.add", "args": [1], "kwargs": {"b": 2}},
    "bw-later": {"job_path": "shop.later", "args": [0.01], "kwargs": {}},
    "bw-nothing": {"job_path": "shop.nothing"},
    "bw-long": {"job_path": "shop.long"},
    "bw-retry": {"job_path": "shop.third_time"},
    "bw-label": {"title": "by its label", "labels": ["call:shop.title_of"]},
    "bw-broken": {"job_path": "shop.broken", "args": [0]},
    "bw-dies": {"job_path": "shop.dies"},
    "bw-slow": {"job_path": "shop.slow", "timeout_seconds": 0.5},
    "bw-missing": {"job_path": "shop.missing"},
    "bw-evil": {"job_path": "os.system", "args": ["touch pwned"]},
}
QUARANTINED = {
    "bw-broken": "2 attempts: ZeroDivisionError: division by zero",
    "bw-dies": "2 attempts: exit status 3",
    "bw-slow": "2 attempts: timed out after 0.5 s",
    "bw-missing": "1 attempt: there is no 'missing' in shop",
    "bw-evil": "1 attempt: os.system is not below an allowed module (--allow-module)",
}


def shown(project: Any, issue_id: str) -> dict[str, Any]:
    """``show --json``."""
    found: dict[str, Any] = json.loads(call(project, "show", issue_id, "--json").stdout)
    return found


def test_every_end_of_a_function_becomes_what_it_should(
    embedded: EmbeddedProject, start: StartFleet
) -> None:
    (embedded.folder / "shop.py").write_text(SHOP)
    embedded.create_many([{"id": key, **fields} for key, fields in CALLS.items()])
    would = call(embedded, "start", "--dry-run", "--allow-module", "shop").stdout
    assert "by its label  calls shop.title_of" in would and "calls os.system" in would
    fleet: Fleet = start(embedded, *QUICK, "--until-empty", "--allow-module", "shop")
    assert fleet.wait() == 7, fleet.said()
    assert "ok command  the function of shop that an issue names" in fleet.errors
    for key, reason in QUARANTINED.items():
        assert re.search(rf"{key} \(.*\) after {re.escape(reason)}", fleet.output), key
    status = {key: value for key, (value, _) in embedded.read_all().items()}
    assert {key for key, value in status.items() if value == "blocked"} == QUARANTINED.keys()
    assert {value for key, value in status.items() if key not in QUARANTINED} == {"closed"}
    assert shown(embedded, "bw-add")["result"] == {"sum": 3}
    assert 'result: {"sum": 3}' in call(embedded, "show", "bw-add").stdout
    assert shown(embedded, "bw-later")["result"] == "later"
    assert shown(embedded, "bw-label")["result"] == "by its label"
    assert "result" not in shown(embedded, "bw-nothing")
    kept = Path(shown(embedded, "bw-long")["result_file"])
    assert len(json.loads(kept.read_text())) == 200_000
    results = {r["issue_id"]: r["result"] for r in fleet.journal("finished") if "result" in r}
    assert json.loads(results["bw-add"]) == {"sum": 3}
    assert len([r for r in fleet.journal("finished") if r["issue_id"] == "bw-retry"]) == 3
    assert "adding 1 and 2" in call(embedded, "logs", "bw-add").stdout
    assert "in broken" in call(embedded, "logs", "bw-broken").stdout
    assert (embedded.folder / "cleaned up").exists()
    assert not (embedded.folder / "pwned").exists()
    fleet.leaves_nothing()


def test_a_function_says_how_far_it_is(embedded: EmbeddedProject, start: StartFleet) -> None:
    (embedded.folder / "shop.py").write_text(SHOP)
    embedded.create_many([{"id": "bw-1", "job_path": "shop.far"}])
    start(embedded, *QUICK, "-n", "1", "--allow-module", "shop").started()

    def told() -> list[Any]:
        workers = json.loads(call(embedded, "status", "--json").stdout)["workers"]
        return [each["progress"] and each["progress"]["activity"] for each in workers]

    until(lambda: told() == ["far"])
    (embedded.folder / "go").touch()
    until(lambda: embedded.read_all()["bw-1"][0] == "closed")


def test_a_worker_that_is_killed_takes_its_function_with_it(
    embedded: EmbeddedProject, start: StartFleet
) -> None:
    (embedded.folder / "shop.py").write_text(SHOP)
    embedded.create_many([{"id": "bw-1", "job_path": "shop.waits"}])
    fleet: Fleet = start(embedded, *QUICK, "-n", "1", "--allow-module", "shop")
    waits = embedded.folder / "waits"
    until(lambda: waits.exists() and waits.read_text())
    pids = [int(word) for word in waits.read_text().split()]
    os.kill(fleet.worker_pid("W1"), signal.SIGKILL)
    fleet.wait_for("finished", outcome="lost")
    until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids), what="it lives on")
    assert call(embedded, "stop").returncode == 0
    fleet.wait()
    fleet.leaves_nothing()


def test_the_label_of_an_issue_of_bd_names_a_function(
    project_new: BdProject, start: StartFleet
) -> None:
    (project_new.folder / "shop.py").write_text(SHOP)
    issue_id = project_new.create("by its label", labels=["call:shop.title_of"])
    other = project_new.create("not allowed", labels=["call:os.getcwd"])
    fleet: Fleet = start(project_new, *QUICK, "--until-empty", "--allow-module", "shop")
    assert fleet.wait() == 7, fleet.said()
    assert project_new.read(issue_id)[0] == "closed"
    assert project_new.read(other)[0] == "blocked"
    (done,) = [r for r in fleet.journal("finished") if r["issue_id"] == issue_id]
    assert json.loads(done["result"]) == "by its label"
    fleet.leaves_nothing()


def test_what_names_no_function_is_left_alone_where_nothing_else_is_run(
    embedded: EmbeddedProject, start: StartFleet
) -> None:
    (embedded.folder / "shop.py").write_text(SHOP)
    rows: list[dict[str, Any]] = [{"priority": 0} for _ in range(3)]
    *others, named = embedded.create_many([*rows, {"labels": ["call:shop.title_of"]}])
    fleet: Fleet = start(embedded, *QUICK, "--until-empty", "--allow-module", "shop")
    assert fleet.wait() == 0, fleet.said()
    assert embedded.read_all()[named][0] == "closed"
    assert {embedded.read_all()[issue_id] for issue_id in others} == {("open", "")}
    assert [claimed["issue_id"] for claimed in fleet.journal("claimed")] == [named]
    # Named on the command line, it is asked for: and cannot be run.
    asked: Fleet = start(embedded, others[0], *QUICK, "--until-empty", "--allow-module", "shop")
    assert asked.wait() == 7 and "nothing to run" in asked.output
