"""What must hold before branches can land."""

from __future__ import annotations

from pathlib import Path

import pytest

from beads_workers.checks.landing import find_landing
from beads_workers.checks.rules import Check
from beads_workers.cli.config import resolve
from beads_workers.options import Options
from tests.support.killed_git import kill_git
from tests.support.repository import git, make_repository


@pytest.mark.parametrize("word", ["symbolic-ref", "show-ref"])
def test_a_killed_git_is_named_and_is_no_detached_head_and_no_missing_branch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, word: str
) -> None:
    top = make_repository(tmp_path / "r")
    options = resolve(Options(), top, {}).options
    start = git(top, "rev-parse", "HEAD")
    assert not isinstance(find_landing(options, top, start), Check)
    kill_git(monkeypatch, tmp_path, word)
    found = find_landing(options, top, start)
    assert isinstance(found, Check) and found.text == f"git: git {word} exited with -9"
