"""Keys of a person's own: what may be one, and what it runs on an issue."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from beads_workers.cli.own_keys import own_keys, run
from beads_workers.errors import CommandError
from beads_workers.ui import bindings, viewer
from beads_workers.worktrees.records import Records, WorktreeRecord
from tests.ui.test_view import after, fleet


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The person's settings; the folder is there."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    (tmp_path / "beads-workers").mkdir()
    return tmp_path / "beads-workers" / "config.toml"


def test_without_a_file_there_are_none(home: Path) -> None:
    assert own_keys() == {}
    home.write_text('[keys]\no = "code {worktree}"\n"€" = "x"\n')
    assert own_keys() == {"o": "code {worktree}", "€": "x"}


@pytest.mark.parametrize(
    "text",
    ['[keys]\nr = "x"', '[keys]\noo = "x"', "[keys]\no = 1", '[keys]\no = "\'"', "keys = 1", "["],
)
def test_a_mistake_is_said(home: Path, text: str) -> None:
    home.write_text(text)
    with pytest.raises(CommandError, match=str(home)):
        own_keys()


def test_a_key_runs_its_command_on_the_chosen_issue() -> None:
    screen = viewer.Screen(own_keys={"o": "code {worktree}"})
    snapshot = after(*fleet(2, busy=1))
    _, wish = bindings.press(screen, "o", snapshot)
    assert wish == viewer.RunOwn("code {worktree}", "app-1")
    down, _ = bindings.press(screen, "j", snapshot)
    said, wish = bindings.press(down, "o", snapshot)
    assert wish is None and said.message == "o runs code {worktree}: choose an issue"


def test_the_command_gets_issue_worktree_and_branch_as_words(tmp_path: Path) -> None:
    at = ("b", str(tmp_path / "w"), str(tmp_path), "run-1", "W1", "t")
    record = WorktreeRecord("app-1.1", "app-1", 1, "bw/app-1/1; touch x", *at)
    os.close(Records(tmp_path).begin(record))
    say = f"{sys.executable} -c 'import sys; print(sys.argv[1:])'"
    say += " {issue} {worktree}/f {branch}"
    said = run(say, record.issue_id, tmp_path)
    wanted = [record.issue_id, f"{record.path}/f", record.branch]
    assert said == f"{sys.executable}: done: {wanted}"
    assert run("false", record.issue_id, tmp_path) == "false: exit 1"
    assert "No such file" in run("no-such-program", record.issue_id, tmp_path)
    assert run("code {worktree}", "other", tmp_path) == "no worktree of other is here"
