"""What must hold before branches can land."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from beads_workers.checks.conditions.landing import CONDITIONS
from beads_workers.checks.landing import find_landing, held_elsewhere
from beads_workers.checks.plan import FleetPlan
from beads_workers.checks.rules import Check
from beads_workers.checks.worktrees import find_worktrees
from beads_workers.cli.config import resolve
from beads_workers.core.base.settings import Landing, Worktrees
from beads_workers.worktrees.remote import RemoteTrouble, check_push
from tests.support.killed_git import kill_git
from tests.support.repository import git, make_repository
from tests.support.trust import TRUSTED


@pytest.mark.parametrize("word", ["symbolic-ref", "show-ref"])
def test_a_killed_git_is_named_and_is_no_detached_head_and_no_missing_branch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, word: str
) -> None:
    top = make_repository(tmp_path / "r")
    options = resolve({}, top, TRUSTED).options
    start = git(top, "rev-parse", "HEAD")
    assert not isinstance(find_landing(options, top, start), Check)
    kill_git(monkeypatch, tmp_path, word)
    found = find_landing(options, top, start)
    assert isinstance(found, Check) and found.text == f"git: git {word} was ended by signal 9"


def test_a_killed_git_does_not_say_who_signs_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    top = make_repository(tmp_path / "r")
    (top / ".beads-workers").mkdir()
    (top / ".beads-workers/tracker.db").touch()
    monkeypatch.chdir(top)
    options = {"worktree": True, "land": True, "landing_signoff": True, "command": ("true",)}
    plan = FleetPlan(resolve(options, top, {}))
    assert isinstance(plan.landing, Landing) and isinstance(plan.worktrees, Worktrees)
    (signed_off,) = [each for each in CONDITIONS if "signoff" in each.holds]
    assert signed_off.look(plan) is None
    kill_git(monkeypatch, tmp_path, "var")
    found = signed_off.look(plan)
    assert isinstance(found, Check) and found.text == "git: git var was ended by signal 9"


def test_a_landing_branch_in_a_worktree_whose_folder_is_gone_is_freed_by_a_prune(
    tmp_path: Path,
) -> None:
    top = make_repository(tmp_path / "r")
    git(top, "branch", "bw-landing/main")
    options = resolve({"worktree": True}, top, TRUSTED).options
    worktrees = find_worktrees(options, top, str(top / "state"))
    landing = find_landing(options, top, git(top, "rev-parse", "HEAD"))
    assert isinstance(worktrees, Worktrees) and isinstance(landing, Landing)
    assert held_elsewhere(landing, worktrees) is None
    git(top, "worktree", "add", "-q", "../theirs", "bw-landing/main")
    held = held_elsewhere(landing, worktrees)
    assert held is not None and held.remedy == f"git -C {tmp_path}/theirs switch --detach"
    shutil.rmtree(tmp_path / "theirs")
    gone = held_elsewhere(landing, worktrees)
    assert gone is not None and gone.remedy == f"git -C {top} worktree prune"
    assert f"{tmp_path}/theirs, which is gone" in gone.text
    subprocess.run(gone.remedy.split(), check=True)
    assert held_elsewhere(landing, worktrees) is None


def test_a_remote_that_forbids_a_push_is_quoted_and_not_said_to_ask_something(
    tmp_path: Path,
) -> None:
    top = make_repository(tmp_path / "r")
    git(tmp_path, "init", "-q", "--bare", "there.git")
    git(top, "remote", "add", "origin", str(tmp_path / "there.git"))
    receiver = tmp_path / "receiver"
    receiver.write_text("#!/bin/sh\necho 'ERROR: Permission to x denied to y.' >&2; exit 1\n")
    receiver.chmod(0o755)
    git(top, "config", "remote.origin.receivepack", str(receiver))
    tip = git(top, "rev-parse", "HEAD")
    with pytest.raises(RemoteTrouble) as refused:
        check_push(str(top), "origin", "refs/heads/bw-landing/main", tip, seconds=20.0)
    assert str(refused.value) == "origin does not let you push: Permission to x denied to y."
