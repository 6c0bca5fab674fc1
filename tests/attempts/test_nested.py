"""Other repositories in a worktree are never committed as bare links; hidden files are kept."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from beads_workers.attempts.git_calls import Git
from beads_workers.attempts.nested import HIDDEN_BYTES_MAX, hidden
from beads_workers.attempts.work import CannotCommit, Workplace
from tests.support.repository import IDENTITY, commit, git, make_repository

OWN = "bw/i-1/1"
INIT = "mkdir -p {0} && cd {0} && git init -q . && echo 1 >lib.py && git add -A"


@pytest.fixture(params=["", "shop"])
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Path:
    checkout = make_repository(tmp_path / "checkout")
    commit(checkout, "shop/app.py")
    tree = tmp_path / "worktree"
    git(checkout, "worktree", "add", "-q", "-b", OWN, str(tree))
    base = git(checkout, "rev-parse", "HEAD")
    known = {"BW_WORKTREE": str(tree), "BW_BRANCH": OWN, "BW_BASE": base}
    for name, text in (IDENTITY | known).items():
        monkeypatch.setenv(name, text)
    return tree / request.param


def agent(place: Path, command: str) -> None:
    assert os.system(f"cd {place} && ({command}) >/dev/null 2>&1") == 0


@pytest.mark.share(3)
@pytest.mark.parametrize(
    "after",
    ["", "git commit -qm v", "git commit -qm v; cd $TOP; git add -A; git commit -qm all"],
    ids=["empty", "with a commit", "committed as a link"],
)
@pytest.mark.parametrize("folder", ["vendored", "lib/deep/vendored"])
def test_a_repository_inside_is_refused_by_name(place: Path, folder: str, after: str) -> None:
    work = Workplace.enter(str(place), "i-1", 1, "run")
    top = git(place, "rev-parse", "--show-toplevel")
    agent(place, f"TOP={top}; {INIT.format(folder)}; {after or 'true'}")
    with pytest.raises(CannotCommit, match=rf"a git repository of its own: .*{folder}/?;"):
        work.commit("T")
    assert work.changes().any, "its worktree is kept"
    assert work.keep() is not None
    agent(place, f"git rm -q --cached {folder}; rm -rf {folder}/.git")
    work.commit("T")
    shown = f"{place.relative_to(top)}/{folder}/lib.py".removeprefix("./")
    assert git(place, "show", f"{OWN}:{shown}") == "1"


def test_a_submodule_is_committed_as_one(place: Path, tmp_path: Path) -> None:
    other = make_repository(tmp_path / "other")
    work = Workplace.enter(str(place), "i-1", 1, "run")
    git(place, "-c", "protocol.file.allow=always", "submodule", "add", "-q", str(other), "lib")
    assert work.commit("T") is not None
    assert "160000" in git(place, "ls-tree", "-r", OWN)


def test_worktrees_of_sub_agents_are_left_out(place: Path) -> None:
    work = Workplace.enter(str(place), "i-1", 1, "run")
    top = Path(git(place, "rev-parse", "--show-toplevel"))
    agent(top, "git worktree add -q .claude/worktrees/x -b sub; echo 1 >.claude/worktrees/x/a.py")
    assert not work.changes().any and work.commit("T") is None
    (top / ".claude" / "settings.json").write_text("{}\n")
    assert work.changes().files == (".claude/",)
    assert work.commit("T") is not None
    names = set(git(top, "ls-tree", "-r", "--name-only", OWN).splitlines())
    assert names == {".gitignore", "shop/app.py", ".claude/settings.json"}
    assert (top / ".claude/worktrees/x/a.py").exists()


def test_what_only_the_users_rules_hide_is_kept(place: Path, tmp_path: Path) -> None:
    (tmp_path / "checkout" / ".git" / "info").mkdir(exist_ok=True)
    (tmp_path / "checkout" / ".git" / "info" / "exclude").write_text("notes/\n.idea\n")
    (place / ".idea").write_text("made by the set-up\n")
    work = Workplace.enter(str(place), "i-1", 1, "run")
    work.began = (place / ".idea").stat().st_ctime + 1e-6
    (place / "notes").mkdir()
    (place / "notes" / "plan.md").write_text("x\n")
    (place / ".env").write_text("the repository ignores it\n")
    kept, left = work.hidden()
    assert [name.rpartition("/")[2] for name in kept] == ["plan.md"] and not left
    assert work.commit("T") is None
    ref = work.keep()
    assert ref is not None
    names = git(place, "ls-tree", "-r", "--name-only", "--full-tree", ref).splitlines()
    assert {name.rpartition("/")[2] for name in names} == {".gitignore", "app.py", "plan.md"}


def test_one_file_that_is_too_large_keeps_no_other_from_being_kept(
    place: Path, tmp_path: Path
) -> None:
    (tmp_path / "checkout" / ".git" / "info").mkdir(exist_ok=True)
    (tmp_path / "checkout" / ".git" / "info" / "exclude").write_text("*.bin\n*.md\n")
    with (place / "a.bin").open("wb") as file:
        file.truncate(HIDDEN_BYTES_MAX + 1)
    (place / "plan.md").write_text("x\n")
    kept, left = hidden(Git(str(place)), since=0.0)
    assert (kept, left) == (["plan.md"], ["a.bin"])
