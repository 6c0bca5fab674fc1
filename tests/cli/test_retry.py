"""``retry`` without a fleet: by name, all of them, and what is neither."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from beads_workers.cli.application import build
from beads_workers.cli.errors import CommandError
from beads_workers.core.model import IssueId
from beads_workers.exits import EXIT_USAGE
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


@pytest.mark.parametrize("arguments", [[], ["bw-1", "--all"]])
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
