"""Jobs handed in as envelopes, called by a fleet, and told as envelopes on the way."""

from __future__ import annotations

import json
import subprocess
from itertools import pairwise
from typing import Any

from jsonschema import Draft202012Validator

from beads_workers.core.base.times import read_time
from beads_workers.integrations.envelopes.wire import schema
from tests.end_to_end.conftest import StartFleet
from tests.integrations.envelopes.test_fold import WAYS
from tests.support.bd import BdProject
from tests.support.embedded import DATE, EmbeddedProject
from tests.support.fleet import PROGRAM, call, until

VALIDATOR = Draft202012Validator(schema())

MODULE = """
import os, time

def hello(name, loud=False):
    while not os.path.exists("gate"):
        time.sleep(0.01)
    return {"said": name, "loud": loud}

def fail(text):
    raise ValueError(text)
"""


def envelope(job_id: str, function: str, *args: Any, **kwargs: Any) -> dict[str, Any]:
    fields = {"job_id": job_id, "job_path": f"mail.{function}", "args": args, "kwargs": kwargs}
    return fields | {"state": "enqueued", "ts_enqueued": 1672531200}


def submit(project: EmbeddedProject, *envelopes: dict[str, Any]) -> None:
    (project.folder / "jobs.jsonl").write_text("\n".join(map(json.dumps, envelopes)))
    done = call(project, "submit", "jobs.jsonl")
    assert done.returncode == 0, done.stderr


def read(output: str) -> list[dict[str, Any]]:
    """One a line; each passes the schema."""
    jobs = [json.loads(line) for line in output.splitlines()]
    for job in jobs:
        VALIDATOR.validate(job)
    return jobs


def states(jobs: list[dict[str, Any]], job_id: str) -> list[str]:
    found = [job["state"] for job in jobs if job["job_id"] == job_id]
    assert set(pairwise(found)) <= WAYS
    return found


def test_from_a_submission_to_its_result(embedded: EmbeddedProject, start: StartFleet) -> None:
    (embedded.folder / "mail.py").write_text(MODULE)
    submit(embedded, envelope("j-1", "hello", "you", loud=True), envelope("j-2", "nothing"))
    fleet = start(
        embedded,
        *("-n", "2", "--poll", "0.2", "--max-attempts", "2", "--retry-delay", "0.1"),
        *("--allow-module", "mail"),
    ).started()
    fleet.wait_for("finished", issue_id="j-2")
    watch = subprocess.Popen(
        [*PROGRAM, "watch", "--json", "--envelopes"],
        cwd=embedded.folder,
        env=embedded.environment,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert watch.stdout is not None
    first = [json.loads(watch.stdout.readline()) for _ in range(2)]
    assert {job["job_id"]: job["state"] for job in first} == {"j-1": "running", "j-2": "error"}
    submit(embedded, envelope("j-3", "fail", "no"))  # While it runs: found with the next look.
    until(lambda: len(fleet.journal("finished")) == 3)
    shown = json.loads(fleet.call("status", "--json", "--envelopes").stdout)
    assert shown["running"] and {j["job_id"] for j in shown["envelopes"]} == {"j-1", "j-2", "j-3"}
    (embedded.folder / "gate").touch()
    fleet.wait_for("settled", issue_id="j-1")
    assert fleet.call("stop").returncode == 0
    rest, _ = watch.communicate(timeout=60)
    jobs = [*first, *read(rest)]
    assert states(jobs, "j-1") == ["running", "done"]
    assert states(jobs, "j-3") == ["enqueued", "running", "enqueued", "running", "error"]
    last = {job["job_id"]: job for job in jobs}
    assert last["j-1"]["result"] == {"said": "you", "loud": True}
    assert last["j-1"]["ts_enqueued"] == 1672531200
    assert (last["j-2"]["reason"], last["j-2"]["attempt"]) == ("not_found", 1)
    assert (last["j-3"]["error"], last["j-3"]["attempt"]) == ("ValueError: no", 2)
    listed = json.loads(fleet.call("list", "--json", "--envelopes").stdout)
    assert [job["state"] for job in listed] == ["error", "error", "done"]
    assert {job["job_id"]: job for job in listed} == last
    replayed = read(fleet.call("replay", "--json", "--envelopes").stdout)
    assert [job for job in replayed if job in jobs] == [job for job in jobs if job in replayed]
    assert states(replayed, "j-1") == ["enqueued", "running", "done"]


def test_issues_of_bd_are_jobs_too(bd_project: BdProject, start: StartFleet) -> None:
    (issue_id,) = bd_project.create_many([{"title": "one"}])
    fleet = start(bd_project, "-n", "1", "--until-empty", "--", "true")
    assert fleet.wait() == 0, fleet.said()
    (job,) = json.loads(fleet.call("list", "--json", "--envelopes").stdout)
    VALIDATOR.validate(job)
    assert (job["job_id"], job["job_path"], job["state"]) == (issue_id, "beads.issue", "done")
    assert job["ts_enqueued"] == read_time(DATE)
    assert fleet.journal("run_started")[0]["t"] < job["ts_started"] + 1
    assert job["ts_started"] <= job["ts_finished"]
