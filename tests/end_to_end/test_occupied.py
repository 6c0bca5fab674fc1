"""A person stands in the worktree of an issue: a fleet leaves both alone until they leave."""

from __future__ import annotations

import json
import os
import signal

import pytest

from tests.end_to_end.conftest import StartFleet
from tests.end_to_end.test_worktrees import repository
from tests.support.embedded import EmbeddedProject
from tests.support.fleet import Fleet, call, until
from tests.support.worktrees import in_worktrees, person

pytestmark = pytest.mark.daily(3)

TASK = """echo x >"$BW_ISSUE_ID.$BW_ATTEMPT"; until [ -e {go} ]; do sleep 0.1; done
[ "$BW_ATTEMPT" = 2 ]"""
OPTIONS = ("-n", "1", "--worktree", "--no-land", "--retry-delay", "0.1s", "--poll", "0.3s")


def cleaned(project: EmbeddedProject) -> list[list[str]]:
    """Why ``clean`` keeps each worktree."""
    rows = json.loads(call(project, "clean", "--json").stdout)["worktrees"]
    return [row["reasons"] for row in rows]


@pytest.mark.parametrize("killed", [False, True])
def test_it_waits_uncharged_is_explained_and_goes_on_when_they_leave(
    embedded: EmbeddedProject, start: StartFleet, killed: bool
) -> None:
    repository(embedded)
    (issue_id,) = embedded.create_many([{}])
    go = embedded.folder.parent / "go"
    task = ("--", "sh", "-c", TASK.format(go=go))
    fleet: Fleet = start(embedded, *OPTIONS, *task)
    (work,) = until(lambda: in_worktrees(embedded, f"{issue_id}.1"))
    with person(work.parent) as who:
        go.touch()
        stands = f"you stand in its worktree ({who})"
        until(lambda: "occupied" in call(embedded, "why", issue_id, "--json").stdout)
        if killed:
            os.kill(fleet.pid, signal.SIGKILL)
            fleet = start(embedded, *OPTIONS, *task)
            until(lambda: "occupied" in call(embedded, "why", issue_id, "--json").stdout)
        assert stands in call(embedded, "why", issue_id).stdout
        assert stands in call(embedded, "status").stdout
        assert work.read_text() == "x\n"
        assert fleet.journal("finished")[-1]["charged"] == 1, "its first attempt, and no more"
        assert "1 change not committed" in str(cleaned(embedded))
    until(lambda: embedded.read_all()[issue_id][0] == "closed")
    assert work.exists(), "it holds work"


def test_a_run_until_empty_ends_without_them_and_says_which_worktree_stays(
    embedded: EmbeddedProject, start: StartFleet
) -> None:
    top = repository(embedded)
    embedded.create_many([{}])
    go = top.parent / "go"
    task = f"touch begun; until [ -e {go} ]; do sleep 0.1; done; rm begun"
    fleet: Fleet = start(embedded, *OPTIONS, "--until-empty", "--", "sh", "-c", task)
    (begun,) = until(lambda: in_worktrees(embedded, "begun"))
    with person(begun.parent) as who:
        go.touch()
        assert fleet.wait() == 0, fleet.said()
        assert f"worktree {begun.parent} stays: you stand in it ({who})" in fleet.output
        assert cleaned(embedded) == [[f"you stand in it ({who})"]]
        assert begun.parent.exists()
    assert cleaned(embedded) == [[]] and not begun.parent.exists()
