"""What a fresh worktree would lack: programs of filters, and the files of submodules."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from beads_workers.checks.contents import empty_submodules, filters_without_program
from beads_workers.checks.rules import Check, Grade
from beads_workers.checks.worktrees import find_worktrees
from beads_workers.cli.config import resolve
from beads_workers.core.base.settings import Worktrees
from beads_workers.worktrees.git import GitError
from tests.support.killed_git import kill_git
from tests.support.repository import commit, git, make_repository
from tests.support.trust import TRUSTED

LFS = {"process": "git-lfs filter-process", "clean": "git-lfs clean -- %f", "required": "true"}


@pytest.fixture
def top(tmp_path: Path) -> Path:
    return make_repository(tmp_path / "r")


def worktrees(project: Path) -> Worktrees:
    options = resolve({"worktree": True}, project, TRUSTED).options
    found = find_worktrees(options, project, str(project / "state"))
    assert isinstance(found, Worktrees), found
    return found


def look(project: Path) -> list[Check]:
    return list(filters_without_program(worktrees(project)))


def set_up(top: Path, name: str, **settings: str) -> None:
    for key, text in settings.items():
        git(top, "config", f"filter.{name}.{key}", text)


def test_only_filters_of_files_that_are_there_count(top: Path) -> None:
    set_up(top, "lfs", **LFS)
    commit(top, ".gitattributes", "*.psd filter=lfs -text\n")
    assert look(top) == []


def test_a_required_filter_without_its_program_is_refused_also_from_a_subfolder(top: Path) -> None:
    commit(top, "art/x.psd", "pointer\n")
    commit(top, "sub/x", "x")
    commit(top, "art/.gitattributes", "*.psd filter=lfs -text\n")
    set_up(top, "lfs", **LFS | {"process": "no-such-lfs filter-process"})
    for folder in (top, top / "sub"):
        (found,) = look(folder)
        assert (found.name, found.status) == ("filters", Grade.FAIL)
        assert "'lfs', which art/x.psd has, needs no-such-lfs" in found.text
        assert found.hint == "install no-such-lfs"


@pytest.mark.parametrize(
    ("line", "missing"),
    [
        ("git no-such-filter %f", "git-no-such-filter"),
        ("no-such-program --x", "no-such-program"),
        ("git stripspace", None),
        ("sed s/a/b/", None),
        (":", None),
        ("test -x x && ./x || cat", None),
        ("$HOME/x", None),
    ],
)
def test_the_program_is_the_first_word_or_what_git_would_run(
    top: Path, line: str, missing: str | None
) -> None:
    commit(top, "a", "x")
    commit(top, ".gitattributes", "a filter=mine\n")
    set_up(top, "mine", smudge=line, required="1")
    found = look(top)
    assert [c.hint for c in found] == ([f"install {missing}"] if missing else [])


def test_a_killed_git_does_not_say_that_no_filter_is_set_up(
    top: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit(top, ".gitattributes", "*.psd filter=lfs -text\n")
    commit(top, "a.psd")
    set_up(top, "lfs", **LFS)
    where = worktrees(top)
    kill_git(monkeypatch, tmp_path, "config")
    with pytest.raises(GitError):
        list(filters_without_program(where))


def test_what_is_not_required_or_not_set_up_is_a_warning(top: Path) -> None:
    commit(top, "a", "x")
    commit(top, ".gitattributes", "a filter=lfs\n")
    (unset,) = look(top)
    assert unset.status is Grade.WARN and "git lfs install" in unset.hint
    set_up(top, "lfs", clean="no-such-program")
    (found,) = look(top)
    assert found.status is Grade.WARN and "no-such-program" in found.text


def test_what_counts_is_where_attempts_begin(top: Path) -> None:
    git(top, "branch", "bw-landing/main")
    commit(top, "a", "x")
    commit(top, ".gitattributes", "a filter=lfs\n")
    set_up(top, "lfs", clean="no-such-program", required="true")
    at = replace(worktrees(top), base="refs/heads/bw-landing/main")
    assert list(filters_without_program(at)) == []
    missing = replace(worktrees(top), base="refs/heads/bw-landing/none", base_else="main")
    assert len(list(filters_without_program(missing))) == 1


def test_the_checkouts_own_index_is_not_touched(top: Path) -> None:
    commit(top, "a", "x")
    commit(top, ".gitattributes", "a filter=lfs\n")
    before = (top / ".git" / "index").read_bytes(), sorted(top.iterdir())
    look(top)
    assert ((top / ".git" / "index").read_bytes(), sorted(top.iterdir())) == before


def test_submodules_are_a_warning_with_the_line_that_fills_them(top: Path, tmp_path: Path) -> None:
    assert empty_submodules(worktrees(top)) is None
    library = make_repository(tmp_path / "library")
    allowed = ("-c", "protocol.file.allow=always")
    git(top, *allowed, "submodule", "--quiet", "add", str(library), "libs/one")
    git(top, "commit", "--quiet", "-m", "a submodule")
    found = empty_submodules(worktrees(top))
    assert found is not None and found.status is Grade.WARN
    assert found.text == "1 submodule is empty in worktrees: libs/one"
    assert '[worktree] setup = "git submodule update --init --recursive"' in found.hint
    filled = replace(
        worktrees(top),
        rules=replace(worktrees(top).rules, setup="git submodule update --init --recursive"),
    )
    assert empty_submodules(filled) is None
