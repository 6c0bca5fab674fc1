"""Conflict marks never pass, wherever they lie and whatever the agent did with them."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from beads_workers.attempts.conflicts import tracked_changes
from beads_workers.attempts.git_calls import Git
from beads_workers.attempts.work import CannotCommit, Workplace
from beads_workers.worktrees.git import names
from beads_workers.worktrees.removal import STATUS
from tests.support.repository import IDENTITY, commit, git, make_repository

SIDES = ("total = 1\n", "total = 2\n")


@pytest.fixture(params=["", "shop"])
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Path:
    """A worktree of a project at the top of its repository, or in a subfolder, whose branch
    conflicts with ``main`` in ``lib/cart.py``."""
    checkout = make_repository(tmp_path / "checkout")
    commit(checkout, "lib/cart.py", "total = 0\n")
    commit(checkout, "shop/app.py")
    commit(checkout, "marks.txt", "<<<<<<< a\nx\n>>>>>>> b\n")
    tree = tmp_path / "worktree"
    git(checkout, "worktree", "add", "-q", "-b", "bw/i-1/1", str(tree))
    base = git(checkout, "rev-parse", "HEAD")
    commit(checkout, "marks.txt", "<<<<<<< a\nz\n>>>>>>> b\n")
    commit(checkout, "lib/cart.py", SIDES[0])
    commit(tree, "marks.txt", "<<<<<<< a\ny\n>>>>>>> b\n")
    commit(tree, "lib/cart.py", SIDES[1])
    known = {"BW_WORKTREE": str(tree), "BW_BRANCH": "bw/i-1/1", "BW_BASE": base}
    for name, text in (IDENTITY | known).items():
        monkeypatch.setenv(name, text)
    return tree / request.param


def merged(place: Path) -> tuple[Workplace, Path]:
    work = Workplace.enter(str(place), "i-1", 1, "run")
    top = Path(git(place, "rev-parse", "--show-toplevel"))
    standing = work.merge(git(top.parent / "checkout", "rev-parse", "main"))
    cart = os.path.relpath(top / "lib/cart.py", place)
    assert standing == (cart, os.path.relpath(top / "marks.txt", place))
    (top / "marks.txt").write_text("<<<<<<< a\nyz\n>>>>>>> b\n")
    return work, top


@pytest.mark.parametrize("agent", ["true", "git add --all", "git add --all; git commit -qm done"])
def test_conflict_marks_are_refused_by_name(place: Path, agent: str) -> None:
    work, top = merged(place)
    assert os.system(f"cd {top} && {{ {agent}; }}") == 0
    with pytest.raises(CannotCommit, match=r"conflicts stand in [./]*lib/cart\.py$"):
        work.commit("T")
    (top / "lib/cart.py").write_text("total = 3\n")
    work.commit("T")
    assert git(top, "show", "bw/i-1/1:lib/cart.py") == "total = 3"
    assert git(top, "rev-list", "--count", "--merges", "main..bw/i-1/1") == "1"
    assert git(top, "status", "--porcelain") == ""


def test_a_merge_of_the_agents_own_is_looked_at_too(place: Path) -> None:
    work = Workplace.enter(str(place), "i-1", 1, "run")
    git(place, "merge", "-q", "main", check=False)
    git(place, "add", "--all", ":/")
    git(place, "commit", "-q", "-m", "merged")
    with pytest.raises(CannotCommit, match=r"conflicts stand in [./]*lib/cart\.py"):
        work.commit("T")


@pytest.mark.parametrize("staged", [False, True])
def test_so_is_what_a_stash_has_brought(place: Path, staged: bool) -> None:
    work = Workplace.enter(str(place), "i-1", 1, "run")
    top = Path(git(place, "rev-parse", "--show-toplevel"))
    (top / "lib/cart.py").write_text("total = 7\n")
    git(top, "stash", "-q")
    commit(top, "lib/cart.py", "total = 8\n")
    git(top, "stash", "pop", check=False)
    if staged:
        git(top, "add", "--all")
    with pytest.raises(CannotCommit, match=r"conflicts stand in [./]*lib/cart\.py"):
        work.commit("T")


LEFT = {
    "cherry-pick": "git cherry-pick main; git add --all; git commit -qm picked",
    "rebase": "git rebase -q main; git add --all; GIT_EDITOR=true git rebase --continue;"
    " git add --all; GIT_EDITOR=true git rebase --continue",
    "stash": "echo 7 >lib/cart.py; git stash -q; echo 8 >lib/cart.py; git commit -qam 8;"
    " git stash pop; git commit -qam popped",
    "in a new file": "echo 1 >new.py; git add new.py; git commit -qm 1; echo 2 >new.py;"
    " git commit -qam 2; echo 3 >new.py; git commit -qam 3; git revert HEAD~1; git commit -qam 4",
}


@pytest.mark.parametrize("place", [""], indirect=True)
@pytest.mark.parametrize("left", LEFT)
def test_so_is_what_was_committed_with_its_marks(place: Path, left: str) -> None:
    work = Workplace.enter(str(place), "i-1", 1, "run")
    os.system(f"cd {place} && {{ {LEFT[left]}; }} >/dev/null 2>&1")
    name = "new.py" if "new" in left else "lib/cart.py"
    assert b"<<<<<<< " in (place / name).read_bytes() and git(place, "status", "--porcelain") == ""
    with pytest.raises(CannotCommit, match=rf"conflicts stand in .*{name}"):
        work.commit("T")


@pytest.mark.parametrize("place", [""], indirect=True)
def test_what_shows_how_conflicts_look_passes(place: Path) -> None:
    whole = "<<<<<<< HEAD\n1\n=======\n2\n>>>>>>> {}\n"
    commit(place, "known.md", whole.format("theirs"))
    base = git(place, "rev-parse", "HEAD")
    work = replace(Workplace.enter(str(place), "i-1", 1, "run"), base=base)
    commit(place, "known.md", whole.format("theirs") * 2 + whole.format("ours"))
    commit(place, "new.md", whole.format("1a2b3c4 (Add a cart)"))
    commit(place, "lib/cart.py", "Title\n=======\n<<<<<<< 7\n>>>>>>> 8\n=======\n")
    work.commit("T")


def test_lines_that_look_like_marks_pass_elsewhere(place: Path) -> None:
    work, top = merged(place)
    (top / "lib/cart.py").write_text("total = 3\n")
    (top / "fixture.txt").write_text("<<<<<<< ours\n=======\n>>>>>>> theirs\n")
    assert work.commit("T") is not None


def test_the_status_names_the_tracked_files_that_a_comparison_would_name(tmp_path: Path) -> None:
    top = make_repository(tmp_path / "checkout")
    for name in ("same.py", "changed.py", "staged é.py", "gone.py", "renamed.py", "a\nb.py"):
        commit(top, name, f"of {name}\n" * 9)
    (top / "changed.py").write_text("1\n")
    (top / "a\nb.py").write_text("2\n")
    (top / "gone.py").unlink()
    (top / "new.py").write_text("untracked\n")
    git(top, "mv", "renamed.py", "now.py")
    (top / "staged é.py").write_text("3\n")
    git(top, "add", "staged é.py")
    (top / "meant.py").write_text("4\n")
    git(top, "add", "--intent-to-add", "meant.py")
    found = tracked_changes(Git(str(top))(*STATUS))
    assert found is not None, "none is unmerged"
    compared = ("diff", "--name-only", "--no-renames", "--diff-filter=d", "-z", "HEAD")
    expected = names(Git(str(top))(*compared))
    assert sorted(name for name in found if (top / name).exists()) == sorted(expected)
