"""One git that stays answers as a new one would: nothing it said before counts."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from beads_workers.worktrees.git import GitError, GitHangs, GitNoAnswer
from beads_workers.worktrees.lookup import Differences, Lookup, Refs, Scratch
from tests.support.repository import commit, git, make_repository


@pytest.fixture
def top(tmp_path: Path) -> Path:
    return make_repository(tmp_path / "project")


@pytest.fixture
def lookup(top: Path) -> Lookup:
    return Lookup(f"{top}/.git", {"GIT_DIR": f"{top}/.git"}, 5.0)


def gits(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_a_ref_that_has_moved_is_seen_moved(top: Path, lookup: Lookup) -> None:
    for number in range(3):
        made = commit(top, "cart.py", f"total = {number}\n")
        assert lookup.find("refs/heads/main", "commit") == made
        assert lookup.find(made, "tree") == git(top, "rev-parse", f"{made}^{{tree}}")
    git(top, "pack-refs", "--all")
    git(top, "gc", "--quiet", "--prune=now")
    assert lookup.find("refs/heads/main", "commit") == made
    git(top, "update-ref", "-d", "refs/heads/main")
    assert lookup.find("refs/heads/main", "commit") is None
    lookup.close()


def test_a_name_without_an_object_of_its_kind_is_none(top: Path, lookup: Lookup) -> None:
    blob = git(top, "hash-object", "-w", "--stdin")
    names = ("refs/heads/gone", "no such name", "--batch", "a\nb", "", "f" * 40, blob)
    assert [lookup.find(name, "commit") for name in names] == [None] * len(names)
    assert lookup.find("HEAD", "commit"), "and it goes on"
    lookup.close()


def test_a_tag_leads_to_its_commit(top: Path, lookup: Lookup) -> None:
    git(top, "tag", "-a", "-m", "one", "v1")
    assert lookup.find("refs/tags/v1", "commit") == git(top, "rev-parse", "HEAD")
    lookup.close()


def test_a_killed_git_is_replaced(lookup: Lookup) -> None:
    before = set(gits(os.getpid()))
    found = lookup.find("HEAD", "commit")
    (pid,) = set(gits(os.getpid())) - before
    os.kill(pid, signal.SIGKILL)
    assert lookup.find("HEAD", "commit") == found
    lookup.close()
    assert set(gits(os.getpid())) == before, "none is left"


def test_a_git_that_hangs_is_given_up(lookup: Lookup, monkeypatch: pytest.MonkeyPatch) -> None:
    before = set(gits(os.getpid()))
    lookup.find("HEAD", "commit")
    (pid,) = set(gits(os.getpid())) - before
    os.kill(pid, signal.SIGSTOP)
    monkeypatch.setenv("BEADS_WORKERS_GIT_SECONDS", "0.2")
    monkeypatch.setattr("beads_workers.worktrees.batch_git.TRIES_MAX", 1)
    with pytest.raises(GitHangs):
        lookup.find("HEAD", "commit")
    assert set(gits(os.getpid())) == before


def test_a_repository_that_is_gone_gives_no_answer(tmp_path: Path) -> None:
    nowhere = Lookup(str(tmp_path), {"GIT_DIR": str(tmp_path / "gone")}, 5.0)
    with pytest.raises(GitNoAnswer, match="not a git repository"):
        nowhere.find("HEAD", "commit")


def test_an_answer_that_an_interruption_left_unread_is_nobody_elses(
    top: Path, lookup: Lookup, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = (commit(top, "cart.py", f"total = {n}\n") for n in range(2))
    lookup.find("HEAD", "commit")

    def interrupted(signum: int, frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGUSR1, interrupted)
    really_write = os.write

    def write(descriptor: int, data: bytes) -> int:
        written = really_write(descriptor, data)
        os.kill(os.getpid(), signal.SIGUSR1)
        return written

    monkeypatch.setattr(os, "write", write)
    with pytest.raises(KeyboardInterrupt):
        lookup.find(first, "commit")
    monkeypatch.undo()
    signal.signal(signal.SIGUSR1, before)
    assert lookup.find(second, "commit") == second
    lookup.close()


def test_a_forked_process_has_a_git_of_its_own(lookup: Lookup) -> None:
    found = lookup.find("HEAD", "commit")
    child = os.fork()
    if not child:
        answers = {lookup.find("HEAD", "commit") for _ in range(5)}
        lookup.close()
        os._exit(0 if answers == {found} else 1)
    assert {lookup.find("HEAD", "commit") for _ in range(5)} == {found}
    assert os.waitpid(child, 0)[1] == 0
    lookup.close()


NAMES = ("a", "b c", 'q"uote', "new\nline", "\udcff", "end-0", "end-1\nb")


def test_trees_differ_as_git_says_whatever_the_names_are(top: Path) -> None:
    differences = Differences(f"{top}/.git", {"GIT_DIR": f"{top}/.git"}, 5.0)
    before, trees = set(gits(os.getpid())), list[str]()
    for name in NAMES:
        commit(top, name, "x\n")
        trees.append(git(top, "rev-parse", "HEAD^{tree}"))
    assert differences.between(trees[0], trees[0]) == []
    assert differences.between(trees[0], trees[-1]) == sorted(NAMES[1:], key=os.fsencode)
    (pid,) = set(gits(os.getpid())) - before
    os.kill(pid, signal.SIGKILL)
    assert differences.between(trees[-1], trees[-2]) == [NAMES[-1]], "a killed one is replaced"
    with pytest.raises(GitError):
        differences.between("f" * 40, trees[0])


def test_a_scratch_commit_is_a_commit_as_git_writes_it(top: Path) -> None:
    scratch = Scratch(top.parent / "scratch", {"GIT_DIR": f"{top}/.git"}, 5.0)
    tree, head = git(top, "rev-parse", "HEAD^{tree}"), git(top, "rev-parse", "HEAD")
    made = [scratch.commit(tree, parents, "ä\n\ntext\n") for parents in ((), (head,))]
    merge = scratch.commit(tree, made, "merge\n")
    assert git(top, "log", "-1", "--format=%T %P %an <%ae> %s", merge) == (
        f"{tree} {made[0]} {made[1]} beads-workers <beads-workers@localhost> merge"
    )
    assert git(top, "log", "-1", "--format=%B", made[0]) == "ä\n\ntext"
    git(top, "update-ref", "refs/bw/scratch", merge)
    assert "error" not in git(top, "fsck", "--strict", "--no-dangling")
    with pytest.raises(GitError):
        scratch.commit("no tree", (), "x")


def test_refs_change_all_or_none(top: Path) -> None:
    refs, head = Refs(f"{top}/.git", {"GIT_DIR": f"{top}/.git"}, 5.0), git(top, "rev-parse", "HEAD")
    refs.change(f"update refs/bw/train/a {head}", f"update refs/bw/train/b {head}")
    refs.change("delete refs/bw/train/a", f"update refs/bw/train/c {head}")

    def there() -> list[str]:
        return git(top, "for-each-ref", "--format=%(refname)", "refs/bw").split()

    assert there() == ["refs/bw/train/b", "refs/bw/train/c"]
    with pytest.raises(GitError):
        refs.change("delete refs/bw/train/b", f"update refs/bw/train/d {'f' * 40}")
    assert there() == ["refs/bw/train/b", "refs/bw/train/c"]
    refs.change("delete refs/bw/train/b", "delete refs/bw/train/gone")
    assert there() == ["refs/bw/train/c"], "what is gone already is deleted"
