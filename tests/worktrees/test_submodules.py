"""What lies in the folders of submodules, where ``tests.proof.submodules`` does not look."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from beads_workers.attempts.work import CannotCommit
from beads_workers.landing.queue import GateVerdict
from beads_workers.worktrees.git import GitError
from beads_workers.worktrees.making import CannotPrepare
from beads_workers.worktrees.submodules import is_public, look, restore
from tests.landing.test_gate import Lane
from tests.proof.submodules import FILL, Project, attempt, configured, gates, worktrees
from tests.support.repository import git
from tests.support.worktrees import ruled

pytestmark = pytest.mark.daily(3)


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    with configured(tmp_path):
        yield Project(tmp_path)


def test_a_folder_that_cannot_be_moved_is_emptied(project: Project, tmp_path: Path) -> None:
    top = worktrees(project).top
    at = {each.path: each for each in look(str(top))}
    assert list(at) == ["libs/lib/core", "libs/lib"] and not any(x.differs for x in at.values())
    (top / "libs" / "lib" / "a.tmp").write_text("x")
    assert not restore(str(top)) and not (top / "libs" / "lib" / "a.tmp").exists()
    project.sh(top / "libs/lib", "git checkout -q two")
    assert restore(str(top)) and (top / "libs/lib/lib.txt").read_text() == "v1\n"
    nowhere = f"160000,{'1' * 40},libs/lib"
    git(top, "update-index", "--cacheinfo", nowhere)
    assert restore(str(top)) and not list((top / "libs" / "lib").iterdir())
    (top / "libs" / "lib" / "a").write_text("no repository")
    assert [each.differs for each in look(str(top))] == ["a there, without a repository"]


def test_a_remote_that_cannot_be_asked_is_no_answer(project: Project) -> None:
    lib = worktrees(project).top / "libs" / "lib"
    commit = project.commit(lib)
    assert not is_public(str(lib), commit)
    git(lib, "push", "--quiet", str(project.folder / "lib"), "HEAD:refs/heads/by-hand")
    assert is_public(str(lib), commit), "somebody else has pushed it"
    (project.folder / "lib").rename(project.folder / "gone")
    with pytest.raises(GitError, match="origin cannot be reached"):
        is_public(str(lib), project.commit(lib))


@pytest.mark.parametrize(
    ("setup", "why"),
    [
        ("git submodule -q update --init; git -C libs/lib checkout -q two", "is checked out there"),
        (f"{FILL}; echo x >libs/lib/made", "libs/lib: made changed there"),
        ("cp -r ../lib/lib.txt libs/lib", "libs/lib: lib.txt there, without a repository"),
    ],
)
def test_a_set_up_that_leaves_something_else_is_refused_before_an_agent_is_paid(
    project: Project, setup: str, why: str
) -> None:
    world = worktrees(project)
    setup = setup.replace("../lib/", f"{project.folder}/lib/")
    with pytest.raises(CannotPrepare, match=why):
        world.make("a", setup=setup)


@pytest.mark.parametrize("who", ["setup", "verify"])
def test_a_gate_of_another_commit_than_the_tree_names_has_no_verdict(
    project: Project, who: str
) -> None:
    world, settings, base = gates(project)
    other = f"{FILL}; git -C libs/lib checkout -q origin/two"
    if who == "setup":
        settings = replace(settings, worktrees=ruled(settings.worktrees, setup=other))
    else:
        settings = replace(settings, verify=other)
    result = Lane(world, settings).gate(base)
    assert (result.verdict, result.why.partition(" is")[0][:-13]) == (
        GateVerdict.NONE,
        f"{who}: submodule libs/lib:",
    )


def test_a_submodule_that_both_have_moved_is_staged_by_the_agent(project: Project) -> None:
    with attempt(project) as (world, work):
        top = Path(work.folder)
        project.sh(top, "git -C libs/lib checkout -q origin/two")
        work.commit("Work")
        git(world.desk, "checkout", "--quiet", "--detach", "main")
        tip = project.commit(world.desk, f"{FILL} -q; git -C libs/lib checkout -q origin/big")
        assert work.merge(tip) == ("libs/lib",)
        with pytest.raises(CannotCommit, match="conflicts stand in libs/lib"):
            work.commit("Work")
        project.sh(top, "git -C libs/lib checkout -q origin/big; git add libs/lib")
        assert work.commit("Work") and work.status()[2] == ()


def test_a_gitlink_without_a_folder_to_look_at_is_refused(project: Project) -> None:
    with attempt(project) as (_, work):
        other = git(project.folder / "lib", "rev-parse", "two")
        named = f"git update-index --cacheinfo 160000,{other},libs/lib"
        project.sh(Path(work.folder), f"git submodule -q deinit -f libs/lib; {named}")
        with pytest.raises(CannotCommit, match="its folder is empty: fill it with"):
            work.commit("Work")


def test_a_folder_whose_gitlink_alone_was_removed_is_refused(project: Project) -> None:
    with attempt(project) as (_, work):
        project.sh(Path(work.folder), "git rm -q --cached libs/lib")
        with pytest.raises(CannotCommit, match="a git repository of its own: libs/lib"):
            work.commit("Work")
