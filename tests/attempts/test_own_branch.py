"""Wherever an agent has left HEAD: we commit, merge and read on the attempt's own branch only."""

from __future__ import annotations

import os
import resource
import tempfile
from pathlib import Path

import pytest

from beads_workers.attempts.git_calls import Git
from beads_workers.attempts.own_branch import whole_tree
from beads_workers.attempts.refs import refs_at_first
from beads_workers.attempts.work import CannotCommit, Workplace
from beads_workers.core.records.receipts import Receipt
from beads_workers.worktrees.git import GitError, GitNoAnswer
from beads_workers.worktrees.landed import WHY
from tests.support.repository import IDENTITY, commit, git, make_repository

OWN = "bw/i-1/1"
LANDED = "one.py\n\nIssue: i-0\nVerified: none"


class Scene:
    """The user stands on ``dev``; ``main`` has a commit over it, and so has the landing branch."""

    def __init__(self, folder: Path) -> None:
        self.checkout = make_repository(folder / "checkout")
        commit(self.checkout, "cart.py", "total = 0\n")
        git(self.checkout, "branch", "dev")
        commit(self.checkout, "users.py", "1\n")
        git(self.checkout, "switch", "-q", "dev")
        git(self.checkout, "switch", "-q", "-c", "bw-landing/dev")
        commit(self.checkout, "landed.py", "1\n")
        git(self.checkout, "commit", "-q", "--amend", "-m", LANDED)
        git(self.checkout, "switch", "-q", "dev")
        self.base = git(self.checkout, "rev-parse", "dev")
        self.tree = folder / "worktree"
        git(self.checkout, "worktree", "add", "-q", "-b", OWN, str(self.tree))

    def enter(self) -> Workplace:
        return Workplace.enter(str(self.tree), "i-1", 1, "run")

    def agent(self, *commands: str) -> None:
        for command in commands:
            assert os.system(f"cd {self.tree} && {{ {command}; }} >/dev/null 2>&1") == 0, command

    def others(self) -> dict[str, str]:
        rows = git(self.checkout, "for-each-ref", "--format=%(refname) %(objectname)")
        refs = dict(row.split(" ") for row in rows.splitlines())
        return {k: v for k, v in refs.items() if not k.startswith(("refs/heads/bw/", "refs/bw/"))}

    def files(self, commit: str = OWN) -> set[str]:
        return set(git(self.checkout, "ls-tree", "-r", "--name-only", commit).splitlines())


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scene:
    for name, text in IDENTITY.items():
        monkeypatch.setenv(name, text)
    scene = Scene(tmp_path)
    monkeypatch.setenv("BW_WORKTREE", str(scene.tree))
    monkeypatch.setenv("BW_BRANCH", OWN)
    monkeypatch.setenv("BW_BASE", scene.base)
    return scene


WORKS = "echo 2 >a.py && git add a.py && git commit -qm 'add a'"
ELSEWHERE = {
    "on main": (f"git checkout -q main && {WORKS}",),
    "on main, staged only": ("git checkout -q main", "echo 2 >a.py; git add a.py"),
    "on main, in the files": ("echo 2 >a.py", "git checkout -q main"),
    "on the landing branch": (f"git checkout -q bw-landing/dev && {WORKS}",),
    "on the landing branch, in the files": ("git checkout -q bw-landing/dev", "echo 2 >a.py"),
    "detached": (f"git checkout -q --detach && {WORKS}",),
    "detached on main": (f"git checkout -q --detach main && {WORKS}",),
    "on a branch of its own": (f"git checkout -q -b mine && {WORKS}",),
    "on a branch of its own from main": (f"git checkout -q -b mine main && {WORKS}",),
    "its branch was renamed": (WORKS, "git branch -m mine"),
    "its branch was deleted": (f"git checkout -q --detach && git branch -D {OWN} && {WORKS}",),
    "its ref was deleted": ("echo 2 >a.py", f"git update-ref -d refs/heads/{OWN}"),
    "an orphan": ("git checkout -q --orphan mine", f"echo 2 >a.py; git add a.py; {WORKS} || true"),
    "half there, half here": (WORKS, "git checkout -q main && echo 1 >b.py && echo 2 >>users.py"),
    "in the middle of a bisection": (
        f"git bisect start HEAD HEAD^ && git checkout -q --detach && {WORKS}",
    ),
}


@pytest.mark.share(3)
@pytest.mark.parametrize("what", ELSEWHERE)
def test_its_work_comes_onto_its_branch_and_nothing_else_moves(scene: Scene, what: str) -> None:
    place = scene.enter()
    scene.agent(*ELSEWHERE[what])
    others, shown = scene.others(), (scene.tree / "a.py").exists()
    if "half" not in what:
        place.commit("T", "")
    else:
        with pytest.raises(CannotCommit, match=r"changed on main does not fit .*users\.py"):
            place.commit("T")
        assert (scene.tree / "b.py").exists(), "it is there for the agent"
        assert git(scene.tree, "symbolic-ref", "--short", "HEAD") == "main"
    assert scene.others() == others
    receipt = place.receipt(Receipt())
    assert (receipt.branch, receipt.head) == (OWN, git(scene.checkout, "rev-parse", OWN))
    assert len(receipt.commits) == 1
    assert git(scene.checkout, "show", f"{OWN}:a.py") == "2"
    assert not scene.files() & {"users.py", "landed.py"}, "what others made is not its work"
    if "half" not in what:
        assert shown and git(scene.tree, "symbolic-ref", "--short", "HEAD") == OWN
        assert git(scene.tree, "status", "--porcelain") == ""
        assert scene.files() == {".gitignore", "cart.py", "a.py"}


def test_what_it_committed_elsewhere_keeps_its_author_and_message(scene: Scene) -> None:
    place = scene.enter()
    scene.agent(f"git checkout -q main && {WORKS} --author='A <a@b>' --date=@1700000000")
    assert place.come_back() == f"HEAD was on main: it is back on {OWN}"
    output = git(scene.checkout, "log", "-1", "--format=%an %ae %at %s", OWN)
    assert output == "A a@b 1700000000 add a"
    assert place.come_back() == ""


def test_what_does_not_fit_is_refused_by_name(scene: Scene) -> None:
    place = scene.enter()
    scene.agent("git checkout -q main && echo 2 >users.py && git commit -qam more")
    others = scene.others()
    with pytest.raises(CannotCommit, match=r"commit \w{12} on main does not fit .*users\.py"):
        place.commit("T")
    assert scene.others() == others
    assert (place.receipt(Receipt()).commits, place.head()) == ((), scene.base)
    assert place.keep() == "refs/bw/attempts/i-1/1"
    assert git(scene.checkout, "show", "refs/bw/attempts/i-1/1:users.py") == "2"


def test_who_only_looks_at_another_branch_has_changed_nothing(scene: Scene) -> None:
    place = scene.enter()
    scene.agent("git checkout -q main")
    assert place.commit("T") is None
    assert not place.changes().any and place.head() == scene.base
    assert not (scene.tree / "users.py").exists()


def test_a_rebase_that_is_under_way_is_left_to_the_agent(scene: Scene) -> None:
    place = scene.enter()
    scene.agent("echo 9 >users.py; git add .; git commit -qm u; ! git rebase main")
    with pytest.raises(CannotCommit, match="a rebase is under way"):
        place.commit("T")


def test_an_attempt_that_was_killed_elsewhere_goes_on_with_what_it_did(scene: Scene) -> None:
    scene.enter()
    scene.agent(f"git checkout -q -b mine main && {WORKS}")
    place = scene.enter()
    assert place.come_back() and len(place.changes().commits) == 1
    assert scene.files() == {".gitignore", "cart.py", "a.py"}


MOVES = {
    "git checkout -q main && git commit -q --allow-empty -m x": "main moved while this attempt ran",
    "git branch other": "other was made while this attempt ran",
    "git tag v1": "refs/tags/v1 was made while this attempt ran",
    "git branch -D main": "main was deleted while this attempt ran",
    "git checkout -q bw-landing/dev && git commit -q --allow-empty -m x": "bw-landing/dev moved",
}


@pytest.mark.parametrize("command", MOVES)
def test_what_the_agent_did_to_other_refs_is_named_with_what_takes_it_back(
    scene: Scene, command: str
) -> None:
    place, before = scene.enter(), scene.others()
    scene.agent(command)
    (flag,) = place.receipt(Receipt()).flags
    assert flag.startswith(MOVES[command])
    assert scene.others() != before, "we leave it as it is"
    scene.agent("git switch -q --detach")
    git(scene.checkout, *flag.rpartition(": git ")[2].split())
    assert scene.others() == before


@pytest.mark.parametrize(
    ("command", "shows"),
    [
        ("git switch -qc mine; echo 1 >cart.py; git add .; git commit -qm x", "git log -p "),
        ("echo 1 >cart.py; git add .; git stash", "git stash show -p"),
    ],
)
def test_what_holds_the_only_copy_of_work_is_shown_and_not_deleted(
    scene: Scene, command: str, shows: str
) -> None:
    place = scene.enter()
    scene.agent(command)
    (flag,) = place.receipt(Receipt()).flags
    offered = flag.rpartition(": ")[2]
    assert offered.startswith(shows)
    assert "cart.py" in git(scene.checkout, *offered.split()[1:])


def test_what_the_lander_and_other_attempts_do_meanwhile_is_not_named(scene: Scene) -> None:
    place = scene.enter()
    git(scene.checkout, "branch", "bw/i-2/1")
    tree = git(scene.checkout, "rev-parse", "bw-landing/dev^{tree}")
    made = git(scene.checkout, "commit-tree", tree, "-p", "bw-landing/dev", "-m", "Add it")
    move = ("update-ref", "--create-reflog", "refs/heads/bw-landing/dev")
    git(scene.checkout, *move, made, "-m", f"{WHY}bw-landing/dev")
    assert place.receipt(Receipt()).flags == ()
    other = git(scene.checkout, "commit-tree", tree, "-p", made, "-m", "Add it, too")
    git(scene.checkout, *move, other, "-m", "commit: Add it, too")
    assert [flag.split()[0] for flag in place.receipt(Receipt()).flags] == ["bw-landing/dev"]


@pytest.mark.parametrize("around", [False, True])
def test_who_removes_dot_git_loses_nothing(scene: Scene, around: bool) -> None:
    """``around``: another repository lies around the worktree, which git would take for it."""
    if around:
        make_repository(scene.tree.parent)
    place = scene.enter()
    scene.agent("echo 1 >a.py; rm .git")
    assert place.changes().any and place.commit("T") == git(scene.checkout, "rev-parse", OWN)
    assert "a.py" in scene.files()
    if around:
        assert git(scene.tree.parent, "rev-list", "--count", "--all") == "1"
        assert git(scene.tree.parent, "symbolic-ref", "HEAD") == "refs/heads/main"


def test_a_repository_in_place_of_its_own_is_refused_by_name(scene: Scene) -> None:
    place = scene.enter()
    scene.agent("rm .git; git init -q .; git add -A; git commit -qm all")
    before = git(scene.tree, "rev-parse", "HEAD")
    with pytest.raises(GitError, match="is another repository"):
        place.commit("T")
    assert git(scene.tree, "rev-parse", "HEAD") == before
    scene.agent("rm -rf .git; echo 1 >a.py")
    assert place.commit("T") is not None and "a.py" in scene.files()


def test_a_worktree_that_the_agent_removed_is_a_failure_in_one_line(scene: Scene) -> None:
    place = scene.enter()
    git(scene.checkout, "worktree", "remove", "--force", str(scene.tree))
    with pytest.raises(GitError, match="its worktree is gone"):
        place.commit("T")


def test_refs_that_a_full_disk_cut_off_are_not_taken_for_all_that_there_were(
    tmp_path: Path,
) -> None:
    """What is not among them would be the attempt's own work."""
    top = make_repository(tmp_path / "r")
    directory = tmp_path / "own"
    directory.mkdir()
    unlimited = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, unlimited[1]))
    try:
        with pytest.raises(OSError, match="too large"):
            refs_at_first(Git(str(top)), directory)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, unlimited)
    refs, is_first = refs_at_first(Git(str(top)), directory)
    assert is_first
    assert set(refs) == {"refs/heads/main"}
    git(top, "branch", "later")
    assert refs_at_first(Git(str(top)), directory) == (refs, False)


def test_no_room_for_an_index_is_no_missing_program_and_no_fault_of_the_work(
    scene: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``tempfile`` calls a full disk a file that is not found."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "full"))
    with pytest.raises(GitNoAnswer, match="no folder for an index"):
        whole_tree(Git(str(scene.tree)))
