"""Random worlds of worktrees: whatever happened there, clean destroys no commit and no file."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.support.repository import commit, commits, git
from tests.support.shares import examples
from tests.support.worktrees import World

Act = Callable[[World, Path, int], object]
"""Something done in, or to, a worktree; the number makes it different from any other."""


def git_there(*arguments: str) -> Act:
    """A call of git that may fail, as those of people and agents do."""
    return lambda world, folder, n: git(
        folder, *(a.replace("#", str(n)) for a in arguments), check=False
    )


def commit_there(world: World, folder: Path, n: int) -> None:
    commit(folder, f"file{n}", f"{n}\n")


def leave_a_file(world: World, folder: Path, n: int) -> None:
    (folder / f"loose{n}").write_text(f"{n}\n")


def change_a_file(world: World, folder: Path, n: int) -> None:
    (folder / ".gitignore").write_text(f"*.local\n# {n}\n")


def merge_into_main(world: World, folder: Path, n: int) -> None:
    git(world.top, "merge", "--quiet", "-m", str(n), "HEAD", "bw/i0/1", check=False)


ACTS: dict[str, Act] = {
    "commit": commit_there,
    "loose file": leave_a_file,
    "changed file": change_a_file,
    "stage": git_there("add", "."),
    "stash": git_there("stash", "push", "--include-untracked"),
    "detach": git_there("checkout", "--quiet", "--detach"),
    "switch": git_there("checkout", "--quiet", "-b", "topic#"),
    "to another of ours": git_there("checkout", "--quiet", "bw/i1/1"),
    "back": git_there("checkout", "--quiet", "-"),
    "reset": git_there("reset", "--quiet", "--hard", "HEAD~1"),
    "revert": git_there("revert", "--no-edit", "HEAD"),
    "rebase": git_there("rebase", "--exec", "false", "main"),
    "merge": git_there("merge", "--no-commit", "--no-ff", "main"),
    "push": git_there("update-ref", "refs/remotes/origin/x#", "HEAD"),
    "tag": git_there("tag", "t#"),
    "lock": git_there("worktree", "lock", "."),
    "merge into main": merge_into_main,
}
PLAN = st.lists(st.tuples(st.sampled_from(sorted(ACTS)), st.integers(0, 2)), max_size=10)


def loose_files(world: World) -> dict[Path, bytes]:
    """What is in no commit, in any worktree: changed, staged or new and not ignored."""
    found = {}
    for line in git(world.top, "worktree", "list", "--porcelain").splitlines():
        folder = Path(line.removeprefix("worktree "))
        if not line.startswith("worktree ") or not folder.is_dir():
            continue
        rows = git(folder, "status", "--porcelain", "-z", "--untracked-files=all", "--no-renames")
        for row in rows.split("\0"):
            if row and (folder / row[3:]).is_file():
                found[folder / row[3:]] = (folder / row[3:]).read_bytes()
    return found


@settings(max_examples=examples(6), deadline=None)
@given(plan=PLAN, removed=st.none() | st.integers(0, 2))
@example(plan=[("detach", 0), ("revert", 0)], removed=0)
def test_clean_destroys_no_commit_and_no_file(
    plan: list[tuple[str, int]], removed: int | None
) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        world = World(Path(scratch))
        folders = [world.make(f"i{n}", worker=f"W{n}").folder for n in range(3)]
        commit(world.top, "meanwhile")
        for number, (name, which) in enumerate(plan):
            ACTS[name](world, folders[which], number)
        # And one whose maker was killed before a task could begin.
        cut_short = world.make("i3", worker="W3")
        (world.records.folder / f"{cut_short.record.name}.ready").unlink()
        if removed is not None:
            shutil.rmtree(folders[removed])
        world.end_run()
        before, loose = commits(world.top), loose_files(world)
        kept = world.kept()
        assert not cut_short.folder.exists()
        assert before <= commits(world.top), "a commit is gone"
        assert loose_files(world) == loose, "a file is gone"
        assert {r.branch for r in world.records.all()} == set(kept)
        assert world.kept() == kept, "a second time nothing is left to remove"
