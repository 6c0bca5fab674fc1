"""``retry`` without a fleet: by name, all of them, and what is neither."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from beads_workers.cli.application import build
from beads_workers.core.base.model import IssueId
from beads_workers.errors import CommandError
from beads_workers.exits import EXIT_UNKNOWN, EXIT_USAGE
from tests.support.embedded import EmbeddedProject
from tests.support.fleet import call


def test_all_that_a_run_quarantined_is_opened_again(tmp_path: Path) -> None:
    project = EmbeddedProject(tmp_path)
    fails, works = {"command": ["false"]}, {"command": ["true"]}
    project.create_many([fails, fails, works])
    started = call(project, "start", "-n", "2", "--until-empty", "--max-attempts", "1")
    assert started.returncode == 7, started.stderr
    done = call(project, "retry", "--all", "--json")
    assert sorted(json.loads(done.stdout)["reopened"]) == ["bw-1", "bw-2"]
    now = {issue_id: status for issue_id, (status, _) in project.read_all().items()}
    assert now == {IssueId("bw-1"): "open", IssueId("bw-2"): "open", IssueId("bw-3"): "closed"}
    again = call(project, "retry", "--all")
    assert (again.returncode, again.stdout) == (0, "nothing is quarantined\n")


def test_what_a_person_closed_or_deleted_is_quarantined_no_more(tmp_path: Path) -> None:
    project = EmbeddedProject(tmp_path)
    project.create_many([{"command": ["false"]}] * 3)
    call(project, "start", "-n", "2", "--until-empty", "--max-attempts", "1")
    assert call(project, "close", "bw-1").returncode == 0
    assert call(project, "delete", "bw-2", "--force").returncode == 0
    told = call(project, "status").stdout
    assert "bw-1: closed by somebody else\nbw-2: deleted\n" in told
    (left,) = (line for line in told.splitlines() if line.startswith("quarantined "))
    assert "bw-3" in left and "bw-1" not in left
    done = call(project, "retry", "--all", "--json")
    assert (done.returncode, json.loads(done.stdout)["reopened"]) == (0, ["bw-3"])


def test_all_of_one_cause_are_opened_again_and_the_others_stay(tmp_path: Path) -> None:
    project = EmbeddedProject(tmp_path)
    fails = [["sh", "-c", f"echo cannot parse conf/{n}.toml; exit 1"] for n in (1, 2)]
    project.create_many({"command": each} for each in (*fails, ["false"]))
    call(project, "start", "-n", "2", "--until-empty", "--max-attempts", "1")
    told = call(project, "status").stdout
    assert "quarantined 2 x cannot parse #: bw-" in told
    assert "; beads-workers retry --cause 'cannot parse #'" in told
    unknown = call(project, "retry", "--cause", "cannot write")
    assert (unknown.returncode, unknown.stdout) == (EXIT_UNKNOWN, "")
    assert "nothing is quarantined for that cause" in unknown.stderr
    done = call(project, "retry", "--cause", "cannot parse #", "--json")
    assert sorted(json.loads(done.stdout)["reopened"]) == ["bw-1", "bw-2"]
    assert project.read_all()[IssueId("bw-3")][0] == "blocked"


@pytest.mark.parametrize(
    "arguments",
    [[], ["bw-1", "--all"], ["--all", "--cause", "x"], ["bw-1", "--cause", "x"], ["--cause", " "]],
)
def test_either_all_or_some(arguments: list[str]) -> None:
    done = CliRunner().invoke(build(["retry"]), ["retry", *arguments])
    assert isinstance(done.exception, CommandError)
    assert done.exception.exit_code == EXIT_USAGE
    assert "retry --all" in done.exception.hint


def test_a_source_that_decides_about_retries_itself_is_asked_for_none(tmp_path: Path) -> None:
    project = EmbeddedProject(tmp_path)
    done = call(project, "retry", "x", "--source", "redis://127.0.0.1:1/0?worker=w")
    assert (done.returncode, done.stdout) == (EXIT_USAGE, "")
    assert "decides about them itself" in done.stderr
