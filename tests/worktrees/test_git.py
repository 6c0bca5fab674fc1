"""The answers of git, and calls where a git that was killed has left something."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest

from beads_workers.attempts.git_calls import Git
from beads_workers.worktrees.git import (
    LOCKED_SECONDS,
    SECONDS_VARIABLE,
    TABLES_LOCK,
    GitError,
    GitHangs,
    GitNoAnswer,
    answers,
    bound,
    config,
    fields,
    git_or_none,
    identity,
    lines,
    merged,
    names,
    objects,
    pairs,
    questions,
    rows,
)
from beads_workers.worktrees.git import git as call
from tests.support.mortal_git import MortalGit
from tests.support.repository import git, make_repository, needs_git

REFTABLES = needs_git(2, 45)


# --- its answers ---------------------------------------------------------------------------------

ODD = "a\nb\u2028c\x0cd e\udcff"


def test_rows_have_the_fields_that_were_asked_for_whatever_is_in_them() -> None:
    assert rows("", 2) == []
    assert rows(f"x\0{ODD}\0\n\ny\0\0", 2) == [("x", ODD), ("\ny", "")]
    for output in ("x\0", "x\0y", "x\0y\0\nz\0", "x\0y\0z\0w\0", "x\0y\0\nz\0w\0rest"):
        with pytest.raises(GitError, match="2 fields"):
            rows(output, 2)


def test_names_lines_and_objects_are_whole_or_no_answer() -> None:
    assert names("") == [] and names(f"{ODD}\0x\0") == [ODD, "x"]
    assert pairs(f"M\0{ODD}\0") == [("M", ODD)]
    assert lines("a\u2028b\nc\n", 2) == ["a\u2028b", "c"] and lines("") == []
    assert objects(f"{'a' * 40}\n{'b' * 64}\n") == ["a" * 40, "b" * 64]
    for cut in (lambda: names("a\0b"), lambda: pairs("a\0"), lambda: objects("a" * 39)):
        with pytest.raises(GitError):
            cut()
    with pytest.raises(GitError, match="not 2 lines, but 3"):
        lines("a\nb\nc\n", 2)


def test_what_is_asked_of_rev_parse_is_told_apart_also_in_an_odd_path(tmp_path: Path) -> None:
    folder = tmp_path / f"{ODD}\n"
    git(tmp_path, "init", "--quiet", str(folder))
    asked = ("--show-toplevel", "--git-common-dir", "--show-prefix")
    done = call(str(folder), *questions(*asked))
    assert answers(done, 3) == [str(folder), f"{folder}/.git", ""]
    with pytest.raises(GitError, match="2 parts"):
        answers(done, 2)


def test_fields_settings_and_merges_are_read() -> None:
    assert fields(f"{ODD}\0filter\0\0x\0filter\0lfs\0", 3)[1] == ("x", "filter", "lfs")
    assert config(f"a.b\n{ODD}\0c.d\0") == [("a.b", ODD), ("c.d", "")]
    tree, message = "a" * 40, "CONFLICT (content): Merge conflict in x\n"
    assert merged(f"{tree}\0") == (tree, [], [])
    assert merged(f"{tree}\0{ODD}\0x\0") == (tree, [ODD, "x"], [])
    output = (
        f"{tree}\0x\0\0" + "1\0x\0Auto-merging\0x\n\0" + f"1\0x\0CONFLICT (contents)\0{message}\0"
    )
    assert merged(output) == (tree, ["x"], [message.strip()])
    for cut in (lambda: fields("a\0b\0", 3), lambda: merged("x"), lambda: config("a")):
        with pytest.raises(GitError):
            cut()


# --- a git that dies -----------------------------------------------------------------------------


def test_a_git_that_says_nothing_is_called_again_and_never_believed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mortal, top = MortalGit(tmp_path / "mortal"), str(make_repository(tmp_path / "repository"))
    head = git(Path(top), "rev-parse", "HEAD")
    for name, text in {**mortal.variables(), SECONDS_VARIABLE: "0.3"}.items():
        monkeypatch.setenv(name, text)
    for how in ("hangs", "is killed", "is killed late"):
        mortal.dies(1, how)
        assert call(top, "rev-parse", "HEAD").strip() == head and mortal.calls == 2
        mortal.dies(1, how)
        assert Git(top)("rev-parse", "HEAD").strip() == head and mortal.calls == 2
    mortal.dies(1, "is killed", from_then_on=True)
    with pytest.raises(GitNoAnswer, match="git rev-parse was ended by signal 9"):
        git_or_none(top, "-c", "a.b=c", "rev-parse", "--verify", "--quiet", "nothing")
    assert mortal.calls == 3
    mortal.dies(2, "hangs", from_then_on=True)
    assert not git_or_none(top, "rev-parse", "--verify", "--quiet", "nothing")
    with pytest.raises(GitHangs, match="longer than"):
        call(top, "rev-parse", "HEAD")
    mortal.dies(1, "fails")
    with pytest.raises(GitError, match="it was made to fail"):
        git_or_none(top, "rev-parse", "--verify", "--quiet", "nothing")
    # Nobody lands in another name than the user's.
    git(Path(top), "config", "user.name", "somebody")
    git(Path(top), "config", "user.email", "some@where")
    mortal.dies(1, "fails")
    assert identity(top) == () and mortal.calls == 2


def test_the_environment_bounds_a_call(monkeypatch: pytest.MonkeyPatch) -> None:
    for text, seconds in {"7": 7.0, "9000": 60.0, "0": 60.0, "-1": 60.0, "soon": 60.0}.items():
        monkeypatch.setenv(SECONDS_VARIABLE, text)
        assert bound(60.0) == seconds


# --- a worktree that a killed git has half made ---------------------------------------------------


def test_a_worktree_whose_making_was_killed_fails_no_call(tmp_path: Path) -> None:
    top = make_repository(tmp_path / "repository")
    for name in ("whole", "half"):
        git(top, "worktree", "add", "-q", "--detach", f"../{name}")
    half = top / ".git/worktrees/half"
    for asked in (("worktree", "list"), ("branch", "--all")):
        (half / "commondir").write_text("")
        with pytest.raises(AssertionError, match="commondir"):
            git(top, *asked)
        call(str(top.parent / "whole"), *asked)
        assert (half / "commondir").read_text() == "../..\n"
        git(top, *asked)


# --- locks of reftables ---------------------------------------------------------------------------


@pytest.fixture
def top(tmp_path: Path) -> Path:
    """A repository with reftables."""
    return make_repository(tmp_path / "repository", "--ref-format=reftable")


def locked(directory: Path, age: float) -> Path:
    """A lock of all refs, so many seconds old."""
    lock = directory / TABLES_LOCK
    lock.touch()
    os.utime(lock, (time.time() - age,) * 2)
    return lock


@REFTABLES
def test_a_lock_of_all_refs_goes_and_the_call_is_made_again(top: Path) -> None:
    lock = locked(top / ".git", 60.0)
    call(str(top), "branch", "made")
    assert git(top, "branch", "--list", "made") and not lock.exists()


@REFTABLES
def test_one_of_a_worktrees_own_goes_as_well(top: Path) -> None:
    git(top, "worktree", "add", "-q", "--detach", "../worktree")
    worktree = top.parent / "worktree"
    lock = locked(Path(git(worktree, "rev-parse", "--absolute-git-dir")), 60.0)
    call(str(worktree), "symbolic-ref", "HEAD", "refs/heads/other")
    assert git(worktree, "symbolic-ref", "HEAD") == "refs/heads/other" and not lock.exists()


@REFTABLES
def test_a_young_one_goes_when_it_is_old_enough(top: Path) -> None:
    lock = locked(top / ".git", LOCKED_SECONDS - 3.0)
    made = lock.stat().st_mtime
    call(str(top), "branch", "made")
    assert git(top, "branch", "--list", "made") and time.time() - made > LOCKED_SECONDS


@REFTABLES
def test_one_that_somebody_holds_stays(top: Path) -> None:
    lock = locked(top / ".git", 60.0)
    with lock.open() as held, subprocess.Popen(["sleep", "60"], stdin=held) as holder:
        with pytest.raises(GitError, match="cannot lock references"):
            call(str(top), "branch", "made")
        holder.kill()
    assert lock.exists()


@REFTABLES
def test_it_waits_for_a_git_that_is_slow(top: Path) -> None:
    hook = top / ".git" / "hooks" / "reference-transaction"
    hook.parent.mkdir()
    hook.write_text('#!/bin/sh\ntest "$1" != prepared || { touch held; sleep 1; }\n')
    hook.chmod(0o755)
    with subprocess.Popen(["git", "update-ref", "refs/bw/x", "HEAD"], cwd=top) as slow:
        while not (top / "held").exists():
            assert slow.poll() is None
        call(str(top), "branch", "made")
    assert slow.returncode == 0 and git(top, "branch", "--list", "made")
