"""``why``, as people ask it: with a fleet at work, and without one."""

from __future__ import annotations

import json
from typing import Any

from tests.end_to_end.conftest import Ran, StartFleet
from tests.end_to_end.test_control import gated
from tests.support.embedded import EmbeddedProject
from tests.support.fleet import call, until


def asked(project: Any, *arguments: str) -> dict[str, Any]:
    """``why --json``."""
    done = call(project, "why", *arguments, "--json")
    assert done.returncode == 0, (done.stdout, done.stderr)
    shown: dict[str, Any] = json.loads(done.stdout)
    return shown


def causes(shown: dict[str, Any]) -> list[str]:
    """The reasons in their order."""
    return [reason["cause"] for reason in shown["reasons"]]


def counted(shown: dict[str, Any]) -> dict[str, int]:
    """How many issues stand behind each reason."""
    return {group["cause"]: group["count"] for group in shown["groups"]}


def needs(other: str) -> dict[str, Any]:
    """Fields of an issue that waits for another."""
    return {"dependencies": [{"depends_on_id": other, "type": "blocks"}]}


def test_why_tells_of_a_fleet_at_work_and_of_one_that_is_gone(
    embedded: EmbeddedProject, start: StartFleet, ran: Ran
) -> None:
    runs, waits, last, epic = embedded.create_many(
        [{}, needs("bw-1"), needs("bw-2"), {"issue_type": "epic"}]
    )
    assert causes(asked(embedded, runs)) == ["no_fleet"]
    fleet = gated(start, embedded, ran, "-n", "1", "--until-empty")
    until(ran.begun)
    shown = asked(embedded, last)
    assert causes(shown) == ["blocked"]
    assert (
        shown["headline"] == "it waits for bw-2, in the end for bw-1, which is in progress with W1"
    )
    assert causes(asked(embedded, epic)) == ["filtered"]
    running = asked(embedded, runs)
    assert (causes(running), running["running"]) == (["running"], True)
    assert running["log"].endswith("/logs/.W1.out")
    assert fleet.call("pause").returncode == 0
    overview = asked(embedded)
    assert overview["headline"] == "the fleet is paused; 0 ready, 1 under way"
    assert counted(overview) == {"running": 1, "blocked": 2, "filtered": 1}
    plain = call(embedded, "why", waits)
    assert "it waits for bw-1, which is in progress with W1" in plain.stdout
    assert "also: the fleet is paused" in plain.stdout
    assert fleet.call("stop").returncode == 0
    assert fleet.wait() == 0, fleet.said()
    after = call(embedded, "why")
    assert after.stdout.startswith("no fleet is running here; the last run was ")
    missing = call(embedded, "why", "bw-99")
    assert missing.returncode == 4 and "no issue of that id" in missing.stdout


def test_why_remembers_what_the_last_run_quarantined(
    embedded: EmbeddedProject, start: StartFleet
) -> None:
    (key,) = embedded.create_many([{}])
    fleet = start(
        embedded, "--until-empty", "--max-attempts", "1", "--", "sh", "-c", "echo no; exit 1"
    )
    assert fleet.wait() == 7, fleet.said()
    shown = asked(embedded, key)
    assert causes(shown) == ["quarantined", "no_fleet"]
    assert shown["headline"] == "quarantined after 1 attempt; last error: no"
    assert shown["log"].endswith(f"/logs/{key}.1.log")
    assert counted(asked(embedded)) == {"quarantined": 1}
