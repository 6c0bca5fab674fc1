"""What ``doctor`` says of where finished branches land."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.doctor_support import Diagnosis, Patient, initialised
from tests.support.repository import IDENTITY, git


@pytest.fixture
def project(tmp_path: Path) -> Patient:
    """A repository with a built-in tracker, on ``main``."""
    patient = initialised(tmp_path)
    patient.environment |= IDENTITY
    git(patient.folder, "init", "--quiet", "--initial-branch=main")
    git(patient.folder, "commit", "--quiet", "--allow-empty", "-m", "first")
    return patient


def found(project: Patient, *options: str) -> Diagnosis:
    return project.doctor("--worktree", *options, "--", "true")


def test_it_says_where_branches_land_and_that_nothing_is_tested(project: Patient) -> None:
    fine = found(project, "--verify", "true").one("landing")
    assert (fine["status"], "bw-landing/main" in fine["text"]) == ("ok", True)
    untested = found(project).one("landing")
    assert (untested["status"], "no --verify" in untested["text"]) == ("warn", True)


def test_where_nothing_lands_it_says_nothing(project: Patient) -> None:
    assert not project.doctor("--", "true").all("landing")
    (project.folder / "beads-workers.toml").write_text("[landing]\nenabled = false\n")
    assert not found(project).all("landing")


def test_a_branch_in_the_way_and_a_head_on_no_branch_fail(project: Patient) -> None:
    git(project.folder, "branch", "bw-landing")
    way = found(project, "--verify", "true").one("landing")
    assert way["status"] == "fail" and "git branch -m bw-landing" in way["text"]
    git(project.folder, "branch", "-D", "bw-landing")
    git(project.folder, "checkout", "--quiet", "--detach")
    detached = found(project, "--verify", "true").one("landing")
    assert detached["status"] == "fail" and "--land-on BRANCH" in detached["text"]
    (project.folder / "beads-workers.toml").write_text('[landing]\non = "main"\n')
    assert found(project, "--verify", "true").one("landing")["status"] == "ok"


def test_a_worktree_that_holds_the_branch_fails_and_the_remedy_mends_it(project: Patient) -> None:
    git(project.folder, "branch", "bw-landing/main")
    git(project.folder, "worktree", "add", "--quiet", "../their own", "bw-landing/main")
    held = found(project, "--verify", "true").one("landing")
    assert held["status"] == "fail" and "their own" in held["text"]
    assert project.type(held["remedy"]).returncode == 0
    assert found(project, "--verify", "true").one("landing")["status"] == "ok"


def test_a_remote_that_cannot_be_reached_fails(project: Patient) -> None:
    (project.folder / "beads-workers.toml").write_text('[landing]\nremote = "origin"\n')
    assert "no remote origin" in found(project, "--verify", "true").one("landing")["text"]
    git(project.folder, "remote", "add", "origin", "../origin.git")
    gone = found(project, "--verify", "true").one("landing")
    assert gone["status"] == "fail" and "origin cannot be reached" in gone["text"]
    start = git(project.folder, "rev-parse", "--short=12", "HEAD")
    remedy = f"git push --dry-run origin {start}:refs/heads/bw-landing/main"
    assert gone["remedy"] == remedy
    git(project.folder, "clone", "--quiet", "--bare", ".", "../origin.git")
    fine = found(project, "--verify", "true").one("landing")
    assert (fine["status"], "bw-landing/main of origin" in fine["text"]) == ("ok", True)
    # Only a push shows whether the remote takes the ledger.
    assert "landing" in found(project, "--verify", "true").shown["pending"]
    # A colleague has moved it back, there.
    git(project.folder, "push", "--quiet", "origin", "HEAD:refs/heads/bw-landing/main")
    git(project.folder, "branch", "bw-landing/main")
    git(project.folder, "switch", "--quiet", "bw-landing/main")
    git(project.folder, "commit", "--quiet", "--allow-empty", "-m", "landed")
    git(project.folder, "switch", "--quiet", "main")
    ahead = found(project, "--verify", "true").one("landing")
    assert ahead["status"] == "fail" and "has commits here that origin has not" in ahead["text"]
    assert project.type(ahead["remedy"]).returncode == 0
    assert found(project, "--verify", "true").one("landing")["status"] == "ok"


def test_a_gate_that_asks_of_which_issue_it_is_fails(project: Patient) -> None:
    asks = found(project, "--verify", "test -e $BW_ISSUE_ID").one("landing")
    assert asks["status"] == "fail" and "BW_GATE" in asks["text"]


def test_a_git_that_is_too_old_fails(project: Patient) -> None:
    real = "exec /usr/bin/git" if Path("/usr/bin/git").exists() else "exec git"
    old = f'#!/bin/sh\ncase "$*" in *version*) echo git version 2.30.2;; *) {real} "$@";; esac\n'
    project.put("git", old)
    assert "needs git 2.38" in found(project, "--verify", "true").one("landing")["text"]
