"""A person changes issues under a running fleet, and after it was killed: every tracker."""

from __future__ import annotations

import json
import os
import signal
from typing import Any

import pytest

from tests.end_to_end.conftest import Ran, StartFleet
from tests.support.bd import VERSIONS
from tests.support.fleet import call, until

pytestmark = pytest.mark.daily(2)


@pytest.mark.parametrize("any_project", ["embedded", *VERSIONS], indirect=True)
def test_nothing_is_ended_under_a_run_and_what_it_held_is_a_persons_again_afterwards(
    any_project: Any, start: StartFleet, ran: Ran
) -> None:
    (issue,) = any_project.create_many([{}])

    def refused(*words: str) -> str:
        ended = call(any_project, *words)
        assert ended.returncode == 1, ended
        return ended.stderr

    fleet = start(any_project, "-n", "1", "--until-empty", "--", "sh", "-c", "sleep 600")
    until(lambda: fleet.journal("started"))
    for words in (["close", issue], ["delete", issue, "--force"], ["edit", issue, "-a", "me"]):
        assert f"beads-workers release {issue}" in refused(*words)
    told = call(any_project, "comment", issue, "use FOO")
    assert told.returncode == 0 and "being worked on" in told.stderr
    os.kill(fleet.pid, signal.SIGKILL)
    until(fleet.is_gone)
    assert "that run has crashed: 'beads-workers start' settles it first" in refused("close", issue)
    drains = ("-n", "1", "--until-empty", "--", *ran.command())
    assert start(any_project, *drains, environment=ran.environment).wait() == 0
    assert "closed already" in call(any_project, "close", issue).stderr
    assert call(any_project, "reopen", issue, "-r", "once more").returncode == 0
    assert start(any_project, *drains, environment=ran.environment).wait() == 0
    assert list(ran.ended()) == [issue, issue]
    assert any_project.read(issue)[0] == "closed"
    kept = json.loads(call(any_project, "show", issue, "--json").stdout)["comments"]
    assert [each["text"] for each in kept] == ["use FOO", "once more"]


@pytest.mark.parametrize("any_project", ["embedded", *VERSIONS], indirect=True)
def test_a_released_issue_is_closed_by_a_person_while_the_fleet_goes_on(
    any_project: Any, start: StartFleet
) -> None:
    (issue,) = any_project.create_many([{}])
    fleet = start(any_project, "-n", "1", "--", "sh", "-c", "sleep 600")
    until(lambda: fleet.journal("started"))
    assert call(any_project, "release", issue).returncode == 0
    until(lambda: any_project.read(issue)[0] == "open")
    assert call(any_project, "close", issue, "-r", "not needed").returncode == 0
    added = call(any_project, "add", "another")
    assert added.returncode == 0
    fleet.wait_for("started", issue_id=added.stdout.strip())
    assert any_project.read(issue)[0] == "closed"
    assert len(fleet.journal("started")) == 2
