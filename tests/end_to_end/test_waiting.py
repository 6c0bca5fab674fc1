"""``wait``: the end of a run as whoever waits for it is told, however that end comes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from contextlib import closing
from pathlib import Path

from beads_workers.cli.client import connect
from tests.end_to_end.conftest import Ran, StartFleet
from tests.end_to_end.test_control import gated, let_go
from tests.support import warm
from tests.support.embedded import EmbeddedProject
from tests.support.fleet import PATIENCE_SECONDS, PROGRAM, Fleet, until

QUICK = ("-n", "2", "--until-empty", "--", "true")


class Waiting:
    """A ``wait`` that the fleet knows of: it has told of a pause."""

    def __init__(self, fleet: Fleet, folder: Path, *options: str) -> None:
        self._out, self._err = folder / "wait.out", folder / "wait.err"
        with self._out.open("w") as out, self._err.open("w") as err:
            self._process = subprocess.Popen(
                [*PROGRAM, "wait", *options],
                cwd=fleet.project.folder,
                env=fleet.project.environment,
                stdout=out,
                stderr=err,
            )

        def told() -> bool:
            fleet.call("pause")
            fleet.call("resume")
            return "fleet is paused" in self.errors or self._process.poll() is not None

        until(told, what=fleet.said())

    @property
    def errors(self) -> str:
        """What it has said on stderr so far."""
        return self._err.read_text()

    def end(self) -> tuple[int, str]:
        """Its exit code and what it said on stdout, once it is over."""
        return self._process.wait(PATIENCE_SECONDS), self._out.read_text()


def test_who_waits_is_told_of_pauses_and_of_the_end(
    embedded: EmbeddedProject, start: StartFleet, ran: Ran, tmp_path: Path
) -> None:
    embedded.create_many([{}])
    fleet = gated(start, embedded, ran, "-n", "1", "--until-empty")
    waiting = Waiting(fleet, tmp_path, "--json")
    let_go(ran)
    code, told = waiting.end()
    assert (code, json.loads(told)["totals"]["done"]) == (0, 1), waiting.errors
    assert "the fleet is stopping\n" in waiting.errors
    assert "the fleet has ended\n" in waiting.errors
    assert fleet.wait() == 0, fleet.said()


def test_an_orchestrator_that_is_killed_is_not_waited_for(
    embedded: EmbeddedProject, start: StartFleet, ran: Ran, tmp_path: Path
) -> None:
    embedded.create_many([{}])
    fleet = gated(start, embedded, ran, "-n", "1", "-d")
    waiting = Waiting(fleet, tmp_path)
    os.kill(fleet.pid, signal.SIGKILL)
    assert waiting.end() == (1, "")
    assert f"error: the orchestrator (pid {fleet.pid}) ended without a word\n" in waiting.errors
    assert "hint: the next start settles" in waiting.errors


def test_who_begins_to_wait_at_the_end_is_told_it_or_that_there_is_nobody(
    embedded: EmbeddedProject, start: StartFleet
) -> None:
    embedded.create_many([{"status": "open"} for _ in range(20)])
    fleet: Fleet = start(embedded, *QUICK).started()
    codes = []
    while fleet.process.poll() is None:
        codes.append(fleet.call("wait"))
    assert fleet.wait() == 0, fleet.said()
    codes.append(fleet.call("wait"))
    assert {done.returncode for done in codes} <= {0, 3}, [done.stderr for done in codes]
    assert codes[-1].returncode == 3


def test_who_waits_gets_no_line_of_an_issue_and_who_follows_gets_all(
    embedded: EmbeddedProject, start: StartFleet, ran: Ran
) -> None:
    embedded.create_many([{} for _ in range(20)])
    fleet = gated(start, embedded, ran, "-n", "2", "--until-empty")
    fleet.wait_for("run_changed", state="running")
    ways = {"all": {}, "changes": {"only": ["run_changed"]}, "the end": {"only": []}}
    clients = {name: connect(fleet.state_directory) for name in ways}
    for name, data in ways.items():
        assert "status" in clients[name].ask("bw.follow", data)
    let_go(ran)
    told: dict[str, list[str]] = {}
    for name, client in clients.items():
        with closing(client):
            said = list(client.follow())
        assert said[-1]["ended"]["totals"]["done"] == 20
        told[name] = [line["e"] for line in said[:-1]]
    assert fleet.wait() == 0, fleet.said()
    changes = [record["state"] for record in fleet.journal("run_changed")]
    assert told["changes"] == ["run_changed"] * 3 and changes[-3:] == [
        *("stopping", "settling", "ended")
    ]
    assert told["the end"] == []
    assert told["all"].count("settled") == 20 and told["all"].count("run_changed") == 3


def called(project: EmbeddedProject, *words: str) -> subprocess.CompletedProcess[str]:
    """A command in the project's folder, to its end."""
    return warm.run(words, project.folder, project.environment, PATIENCE_SECONDS)


def test_a_run_is_waited_for_though_it_has_ended(embedded: EmbeddedProject) -> None:
    embedded.create_many([{}])
    begun = called(embedded, "start", "-d", "--json", *QUICK)
    run_id = json.loads(begun.stdout)["run_id"]
    waited = called(embedded, "wait", run_id, "--json")
    assert (waited.returncode, json.loads(waited.stdout)["run_id"]) == (0, run_id)
    again = called(embedded, "wait", run_id)
    assert (again.returncode, again.stdout, again.stderr) == (0, "", "")
    assert called(embedded, "wait", "2001").returncode == 4
    nobody = called(embedded, "wait")
    assert nobody.returncode == 3 and f"'beads-workers wait {run_id}'" in nobody.stderr


def test_start_detached_may_wait_and_ends_as_the_fleet_does(embedded: EmbeddedProject) -> None:
    embedded.create_many([{}])
    done = called(embedded, "start", "-d", "--wait", *QUICK)
    assert done.returncode == 0 and "started: pid" in done.stdout, done.stderr
    assert {value for value, _ in embedded.read_all().values()} == {"closed"}
    embedded.create_many([{"id": "bw-fails"}])
    failed = ("--max-attempts", "1", *QUICK[:-1], "false")
    assert called(embedded, "start", "-d", "--wait", *failed).returncode == 7


def test_an_issue_that_does_not_exist_starts_no_fleet(embedded: EmbeddedProject) -> None:
    embedded.create_many([{"id": "bw-abc"}, {"id": "bw-xyz"}])
    refused = called(embedded, "start", "bw-xyz", "bw-abd", "--", "true")
    assert refused.returncode == 4 and refused.stderr == (
        "error: no such issue: bw-abd\nhint: did you mean bw-abc?\n"
    )
    shown = called(embedded, "start", "--dry-run", "bw-abd", "--", "true")
    assert (shown.returncode, shown.stdout) == (4, "")
    assert called(embedded, "start", "bw-abc", *QUICK).returncode == 0
    closed = called(embedded, "start", "bw-abc", *QUICK)
    assert "warn issues   bw-abc is closed already\n" in closed.stderr
