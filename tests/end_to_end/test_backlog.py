"""``list --status``: the backlog by state, on every tracker, with a fleet and without one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from beads_workers.exits import EXIT_TRACKER, EXIT_USAGE
from tests.end_to_end.conftest import Ran, StartFleet
from tests.end_to_end.test_why import needs
from tests.support.embedded import EmbeddedProject
from tests.support.fleet import call, until

SCRIPT = """
case "$BW_ISSUE_ID" in
  bw-1 | bw-2) echo "cannot parse conf/$BW_ISSUE_ID.toml"; exit 1;;
  bw-3) until [ -e "$RAN.gate" ]; do sleep 0.05; done;;
esac
"""


def listed(project: Any, *arguments: str) -> dict[str, list[dict[str, Any]]]:
    """``list --json`` as the issues of each state."""
    done = call(project, "list", *arguments, "--json")
    assert done.returncode == 0, (done.stdout, done.stderr)
    found: dict[str, list[dict[str, Any]]] = {}
    for group in json.loads(done.stdout)["groups"]:
        assert group["count"] == len(group["issues"])
        found.setdefault(group["state"], []).extend(group["issues"])
    return found


def ids(rows: list[dict[str, Any]]) -> list[str]:
    return sorted(row["issue_id"] for row in rows)


def test_the_backlog_by_state_while_a_fleet_works_and_afterwards(
    any_project: Any, start: StartFleet, ran: Ran
) -> None:
    waits = {"issue_id": "bw-4", "depends_on_id": "bw-3", "type": "blocks"}
    rows = [{"priority": 0}] * 2 + [{"title": "Runs"}, {"dependencies": [waits]}, {"priority": 4}]
    any_project.create_many(rows)
    assert {s: ids(found) for s, found in listed(any_project, "-s", "all").items()} == {
        "ready": ["bw-1", "bw-2", "bw-3", "bw-5"],
        "blocked": ["bw-4"],
    }
    words = ("-n", "1", "--max-attempts", "1", "--", "sh", "-c", SCRIPT)
    fleet = start(any_project, *words, environment=ran.environment)
    fleet.wait_for("settled", issue_id="bw-2", action="quarantined")
    fleet.wait_for("started", issue_id="bw-3")
    shown = listed(any_project, "--status", "all")
    assert ids(shown["quarantined"]) == ["bw-1", "bw-2"]
    (running,) = [row for row in shown["running"] if row["reason"] == "running"]
    assert (running["issue_id"], running["title"], running["worker_id"]) == ("bw-3", "Runs", "W1")
    assert running["at"] is not None and running["attempts"] == 1
    assert [row["blocked_by"] for row in shown["blocked"]] == [["bw-3"]]
    said = call(any_project, "list", "--status", "quarantined,blocked").stdout.splitlines()
    assert said[0] == "quarantined: 2 x cannot parse #"
    assert [line.split()[:4] for line in said[1:3]] == [
        ["bw-1", "P0", "number", "1"],
        ["bw-2", "P0", "number", "2"],
    ]
    assert said[4] == "blocked: 1" and said[5].endswith("by bw-3")
    Path(f"{ran.file}.gate").touch()
    until(lambda: {any_project.read_all()[each][0] for each in ("bw-4", "bw-5")} == {"closed"})
    assert fleet.call("stop").returncode == 0
    after = listed(any_project, "-s", "quarantined", "-s", "ready")
    assert ids(after.pop("quarantined")) == ["bw-1", "bw-2"] and not after


def test_states_are_listed_by_label_and_in_the_order_that_is_asked_for(
    embedded: EmbeddedProject,
) -> None:
    embedded.create_many([{"title": "b", "labels": ["ui"]}, {"title": "A"}, {"labels": ["ui"]}])
    rows = listed(embedded, "-s", "ready", "--label", "ui")["ready"]
    assert ids(rows) == ["bw-1", "bw-3"]
    titles = [row["title"] for row in listed(embedded, "-s", "ready", "--sort", "title")["ready"]]
    assert titles == ["A", "b", "number 3"]


def test_statuses_of_the_tracker_are_listed_as_before(embedded: EmbeddedProject) -> None:
    embedded.create_many([{}, {"status": "blocked"}, needs("bw-1")])
    both = call(embedded, "list", "-s", "open,blocked", "--json")
    assert ids([{"issue_id": row["id"]} for row in json.loads(both.stdout)]) == [
        "bw-1", "bw-2", "bw-3",
    ]  # fmt: skip
    rows = listed(embedded, "-s", "blocked")["blocked"]
    assert [(row["issue_id"], row["blocked_by"]) for row in rows] == [
        ("bw-2", []),
        ("bw-3", ["bw-1"]),
    ]


def test_states_beside_statuses_are_refused(embedded: EmbeddedProject) -> None:
    for words in (["-s", "ready,open"], ["-s", "ready", "--all"], ["--sort", "id"],
                  ["-s", "ready", "--sort", "size"]):  # fmt: skip
        done = call(embedded, "list", *words)
        assert (done.returncode, done.stdout) == (EXIT_USAGE, ""), words
        assert "states of the fleet: needs-you, quarantined" in done.stderr
    done = call(embedded, "list", "-s", "needs_you")
    assert (done.returncode, done.stdout) == (0, "") and "no issue is in that state" in done.stderr


def test_a_tracker_that_cannot_be_read_is_said(embedded: EmbeddedProject) -> None:
    embedded.create_many([{}])
    (embedded.folder / ".beads-workers" / "tracker.db").write_bytes(b"no database" * 100)
    done = call(embedded, "list", "-s", "ready")
    assert (done.returncode, done.stdout) == (EXIT_TRACKER, ""), done.stderr
