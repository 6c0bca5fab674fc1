"""What the issues of a tracker bring along to be run."""

from __future__ import annotations

from pathlib import Path

import pytest

from beads_workers.checks.project import TrackerChoice, committed_commands
from tests.support.killed_git import kill_git
from tests.support.repository import commit, make_repository


def test_commands_of_a_committed_tracker_are_refused_also_if_git_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    top = make_repository(tmp_path / "r")
    commit(top, "tracker.db")
    committed = TrackerChoice("sqlite", top / "tracker.db", top)
    ours = TrackerChoice("sqlite", top / "other.db", top)
    assert committed_commands(ours, 1) is None and committed_commands(committed, 0) is None
    found = committed_commands(committed, 1)
    assert found is not None and "is committed to git" in found.text
    kill_git(monkeypatch, tmp_path, "ls-files")
    found = committed_commands(committed, 1)
    assert found is not None and "git does not say whether" in found.text
