"""Worktrees that are used again, with real git: as a fresh one, or a new one."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beads_workers.core.records.landing import Add
from beads_workers.worktrees import reuse
from beads_workers.worktrees.git import unlock_all
from beads_workers.worktrees.preparation import prepare
from beads_workers.worktrees.removal import tidy_run
from beads_workers.worktrees.sweep import sweep
from tests.support.repository import FORMATS, commit, git
from tests.support.shares import examples
from tests.support.worktrees import Place, World, ruled, start_preparation

SETUP = (
    "mkdir -p node_modules.local/.bin; echo code >node_modules.local/lib.js;"
    " ln -s ../lib.js node_modules.local/.bin/run; echo run >>setups.local"
)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return reusing(World(tmp_path / "one"))


def reusing(world: World, **settings: Any) -> World:
    """The world, whose worktrees are used again."""
    folder = str(world.top.parent / "trees")
    world.settings = replace(
        world.settings,
        folder=folder,
        reuse=2,
        rules=replace(world.settings.rules, setup=SETUP),
        **settings,
    )
    commit(world.top, "src/deep/module.py", "code\n")
    commit(world.top, "run.sh", "#!/bin/sh\n")
    (world.top / "run.sh").chmod(0o755)
    (world.top / "link").symlink_to("src")
    git(world.top, "add", "--all")
    git(world.top, "commit", "--quiet", "-m", "more")
    return world


def land(world: World, place: Place, attempt: int = 1) -> None:
    """Land its branch: ``main`` has its files, and another ref its commits."""
    record = place.record
    tip = git(world.top, "rev-parse", record.branch)
    git(world.top, "update-ref", f"refs/bw/attempts/{record.issue_id}/{attempt}", tip)
    if tip != record.base:
        git(world.top, "merge", "--quiet", "--squash", tip)
        of = f"Issue: {record.issue_id}\nAttempt: {attempt}\nRun: {record.run_id}\nVerified: none"
        git(world.top, "commit", "--quiet", "--allow-empty", "-m", f"{record.name}\n\n{of}")
        git(world.top, "update-ref", "refs/heads/bw-landing/main", "HEAD")
    add = Add(record.issue_id, attempt, record.run_id, tip, record.base, record.branch)
    reuse.landed(world.settings, add)


def after(world: World, act: Callable[[Path], object]) -> tuple[Place, Place]:
    """The worktree of an attempt that works, does this and lands; and that of the next one."""
    first = world.make("one")
    commit(first.folder, "work.py", "work\n")
    act(first.folder)
    land(world, first)
    return first, world.make("two")


# --- what a worktree is like ----------------------------------------------------------------------


def state(place: Place) -> dict[str, Any]:
    """All that may be of consequence in a worktree, without times and its own names."""
    folder, directory = place.folder, git_directory(place.folder)
    own = place.record.branch, directory.name
    mine = {
        str(path.relative_to(directory)): path.read_text(errors="replace")
        for path in directory.rglob("*")
        if path.is_file() and path.name not in ("index", "bw-index", "bw-fresh", "ORIG_HEAD")
        if "logs" not in path.parts and not path.name.endswith("beads-workers.json")
    }
    said = {
        "files": {str(path.relative_to(folder)): content(path) for path in inside(folder)},
        "index": git(folder, "ls-files", "--stage", "-v"),
        "unmerged": git(folder, "ls-files", "-u"),
        "status": git(folder, "status", "--porcelain=v2", "--branch", "--ignored"),
        "settings": git(folder, "config", "--list", "--show-scope"),
        "refs": git(folder, "for-each-ref", "refs/worktree", "refs/bisect", "refs/rewritten"),
        "before": git(folder, "rev-parse", "--verify", "-q", "@{-1}", check=False),
        "own": mine,
    }
    texts = repr(said).replace(str(folder), "FOLDER").replace(place.record.path, "TREE")
    for name, stands in zip((*own, place.record.token), ("BRANCH", "NAME", "TOKEN"), strict=True):
        texts = texts.replace(name, stands)
    return {"text": texts}


def inside(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.relative_to(folder).parts[0] != ".git")


def content(path: Path) -> tuple[str, str]:
    mode = stat.filemode(path.lstat().st_mode)
    if path.is_symlink():
        return mode, str(path.readlink())
    return mode, path.read_text() if path.is_file() else ""


def git_directory(folder: Path) -> Path:
    return Path(git(folder, "rev-parse", "--absolute-git-dir"))


def assert_as_fresh(world: World, again: Place) -> None:
    """It is as one that the same attempt would have made."""
    fresh = world.make("fre", worker="W9", reuse=0)
    assert git(fresh.folder, "rev-parse", "HEAD") == git(again.folder, "rev-parse", "HEAD")
    theirs, ours = state(fresh), state(again)
    assert ours == {"text": theirs["text"]}


# --- what agents did ------------------------------------------------------------------------------

FILE = "src/deep/module.py"


def _many(folder: Path) -> None:
    for number in range(10_000):
        (folder / "node_modules.local" / f"{number}.txt").touch()


def _skip(folder: Path) -> None:
    git(folder, "update-index", "--skip-worktree", FILE)
    (folder / FILE).write_text("hidden\n")


def _assume(folder: Path) -> None:
    git(folder, "update-index", "--assume-unchanged", FILE)
    (folder / FILE).write_text("hidden\n")


def _unseen(folder: Path) -> None:
    """A change that keeps size and time."""
    file = folder / "node_modules.local" / "lib.js"
    was = file.stat()
    file.write_text("evil\n")
    os.utime(file, ns=(was.st_atime_ns, was.st_mtime_ns))


def _replaced(folder: Path) -> None:
    file = folder / "node_modules.local" / "lib.js"
    file.rename(folder / "old.local")
    shutil.copy2(folder / "old.local", file)


def _settings(folder: Path) -> None:
    # As with ``extensions.worktreeConfig``, which itself is a setting of the repository.
    for key, text in (("core.hooksPath", "/tmp/hooks"), ("core.fsmonitor", "/tmp/watch")):
        git(folder, "config", "--file", str(git_directory(folder) / "config.worktree"), key, text)


def _bisect(folder: Path) -> None:
    git(folder, "bisect", "start", "HEAD", "HEAD~1")


def _rebase(folder: Path) -> None:
    tip = git(folder, "rev-parse", "HEAD")
    git(folder, "rebase", "--exec", "false", "HEAD~1", check=False)
    assert (git_directory(folder) / "rebase-merge").exists()
    git(folder, "update-ref", git(folder, "rev-parse", "--symbolic-full-name", "HEAD"), tip)


def _merge(folder: Path) -> None:
    git(folder, "checkout", "--quiet", "--detach", "HEAD~1")
    commit(folder, "side.py")
    side = git(folder, "rev-parse", "HEAD")
    git(folder, "checkout", "--quiet", "bw/one/1")
    git(folder, "merge", "--no-commit", "--no-ff", side)


def _staged(folder: Path) -> None:
    (folder / FILE).write_text("changed\n")
    git(folder, "add", FILE)
    (folder / FILE).write_text("code\n")


def _socket(folder: Path) -> None:
    here = Path.cwd()
    os.chdir(folder)  # Names of sockets are short.
    try:
        with socket.socket(socket.AF_UNIX) as one:
            one.bind("a.sock")
    finally:
        os.chdir(here)


def _nested(folder: Path) -> None:
    git(folder, "init", "--quiet", "cache.local")
    commit(folder / "cache.local", "x")


def _attributes(folder: Path) -> None:
    commit(folder, ".gitattributes", "*.py text eol=crlf\n")


def _write(name: str, text: str = "x\n") -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)

    return write


def _own(name: str, text: str = "x\n") -> Callable[[Path], None]:
    return lambda folder: _write(name, text)(git_directory(folder))


def _forge(folder: Path) -> None:
    """Say that a file of ours was there before we came."""
    (folder / "planted.local").write_text("for whoever comes next\n")
    noted = git_directory(folder) / "bw-fresh"
    said = json.loads(noted.read_text())
    said["made"]["planted.local"] = reuse._row((folder / "planted.local").lstat())
    noted.write_text(json.dumps(said))


AGAIN: dict[str, Callable[[Path], object]] = {
    "nothing": lambda folder: None,
    "added to what set-up made": _write("node_modules.local/.cache/deep/file"),
    "changed what set-up made": _write("node_modules.local/lib.js", "evil\n"),
    "changed it and kept its size and time": _unseen,
    "replaced it by a copy": _replaced,
    "removed some of it": lambda f: (f / "node_modules.local" / ".bin" / "run").unlink(),
    "removed all of it": lambda f: shutil.rmtree(f / "node_modules.local"),
    "changed its mode": lambda f: (f / "node_modules.local" / "lib.js").chmod(0o600),
    "wrote into a pipe": lambda f: os.mkfifo(f / "node_modules.local" / "pipe"),
    "left a pipe where nothing is ignored": lambda f: os.mkfifo(f / "src" / "pipe"),
    "left a socket": _socket,
    "left a hidden folder": _write(".env"),
    "left empty folders": lambda f: (f / "src" / "a" / "b").mkdir(parents=True),
    "left 10,000 files": _many,
    "hid a file from git": _skip,
    "had git assume that it is unchanged": _assume,
    "changed a mode that git does not keep": lambda f: (f / FILE).chmod(0o666),
    "made a file executable for itself alone": lambda f: (f / "run.sh").chmod(0o700),
    "made a hard link": lambda f: os.link(f / FILE, f / "other.local"),
    "fetched": lambda f: git(f, "fetch", "--quiet", ".", "main"),
    "wrote a reset's mark": lambda f: git(f, "reset", "--quiet", "--hard", "HEAD"),
    "used another version of the index": lambda f: git(f, "update-index", "--index-version", "4"),
    "detached HEAD": lambda f: git(f, "checkout", "--quiet", "--detach"),
    "split the commits": lambda f: commit(f, "src/new/deep/file.py"),
    "deleted a folder": lambda f: (git(f, "rm", "--quiet", FILE), git(f, "commit", "-qm", "rm")),
}
"""The next attempt gets the same worktree."""

NEW: dict[str, Callable[[Path], object]] = {
    "set hooksPath and fsmonitor": _settings,
    "changed the repository's settings": lambda f: git(f, "config", "core.autocrlf", "true"),
    "wrote a ref of the worktree": lambda f: git(f, "update-ref", "refs/worktree/x", "HEAD"),
    "began a bisection": _bisect,
    "began a rebase": _rebase,
    "began a merge": _merge,
    "left a lock of the index": _own("index.lock"),
    "left a lock of the branch": _own("HEAD.lock"),
    "locked the worktree": lambda f: git(f, "worktree", "lock", str(f)),
    "left a sparse checkout": _own("info/sparse-checkout", "/src\n"),
    "left another repository": _nested,
    "changed the mode of a folder": lambda f: (f / "src").chmod(0o700),
    "changed the mode of the worktree": lambda f: f.chmod(0o700),
    "planted a file, and forged the note of what was there": _forge,
    "removed .git": lambda f: (f / ".git").unlink(),
    "went to another commit": lambda f: git(f, "checkout", "--quiet", "HEAD~1"),
    "changed .gitattributes": _attributes,
    "has an index in two files": lambda f: git(f, "update-index", "--split-index"),
}
"""The next attempt gets a new one; nothing is lost by the other."""

WORK: dict[str, Callable[[Path], object]] = {
    "left a new file": _write("notes.txt"),
    "changed a file": _write(FILE, "changed\n"),
    "staged a change": _staged,
    "stashed": lambda f: (_write(FILE, "changed\n")(f), git(f, "stash", "--quiet")),
}
"""The worktree holds work that has not landed: it is left alone."""


@pytest.mark.parametrize("what", AGAIN)
def test_it_is_used_again_as_a_fresh_one(world: World, what: str) -> None:
    first, again = after(world, AGAIN[what])
    assert again.folder == first.folder
    assert_as_fresh(world, again)
    assert [record.name for record in world.records.all()] == ["fre.1", "two.1"]
    assert world.branches() == ["bw/fre/1", "bw/two/1"]


@pytest.mark.parametrize("what", NEW)
def test_what_nobody_can_put_right_means_a_new_one(world: World, what: str) -> None:
    first, new = after(world, NEW[what])
    assert new.folder != first.folder and first.folder.exists()
    assert first.record in world.records.all() and first.record.branch in world.branches()


@pytest.mark.parametrize("what", WORK)
def test_what_has_not_landed_is_left_as_it_is(world: World, what: str) -> None:
    before: list[object] = []

    def act(folder: Path) -> None:
        WORK[what](folder)
        before.append(git(folder, "status", "--porcelain"))

    first, new = after(world, act)
    assert new.folder != first.folder
    assert [git(first.folder, "status", "--porcelain")] == before
    world.end_run()
    tidy_run(world.state, world.run_id, reuse.keep(world.settings))
    assert first.folder.exists()


EVERYTHING = {**AGAIN, **NEW, **WORK}


@settings(max_examples=examples(10), deadline=None)
@given(acts=st.lists(st.sampled_from(sorted(EVERYTHING)), min_size=2, max_size=5, unique=True))
def test_whatever_agents_do_together_it_is_as_fresh_or_a_new_one(acts: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        world = reusing(World(Path(folder)))

        def act(worktree: Path) -> None:
            for what in acts:
                with suppress(AssertionError, OSError):  # One act may leave no room for the next.
                    EVERYTHING[what](worktree)

        first = world.make("one")
        commit(first.folder, "work.py", "work\n")
        act(first.folder)
        tip = git(world.top, "rev-parse", first.record.branch)
        land(world, first)
        second = world.make("two")
        if second.folder == first.folder:
            assert not git(world.top, "stash", "list")
            assert_as_fresh(world, second)
        else:
            assert git(world.top, "rev-parse", first.record.branch) == tip
        world.end_run()


# --- kills ----------------------------------------------------------------------------------------

MOMENTS = (
    *("open", "os.remove", "os.rename", "os.link", "os.rmdir", "os.scandir", "os.listdir"),
    *("shutil.rmtree", "subprocess.Popen", "fcntl.flock", "os.mkdir"),
)


def prepare_and_die(world: World, issue_id: str, at: int) -> int:
    """Run a PREPARE step that is killed before the ``at``-th of its ``MOMENTS``; return how many
    there were if it was not."""
    read, told = os.pipe()
    if (child := os.fork()) == 0:
        count = 0

        def count_one(event: str, _: object) -> None:
            nonlocal count
            if event in MOMENTS:
                count += 1
                if count == at:
                    os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(count_one)
        try:
            world.make(issue_id)
        finally:
            os.write(told, str(count).encode())
            os._exit(0)
    os.close(told)
    os.waitpid(child, 0)
    with open(read) as said:
        return int(said.read() or 0)


def assert_nothing_is_mixed(world: World) -> None:
    """Each branch has only its own issue's file, and each worktree is on its own branch."""
    for branch in world.branches():
        issue_id = branch.split("/")[1]
        named = git(world.top, "log", "--format=", "--name-only", f"main..{branch}").split()
        assert {*named} <= {f"{issue_id}.py"}, branch
    for record in world.records.all():
        if record.issue_id and world.records.is_ready(record):
            there = git(Path(record.path), "branch", "--show-current")
            assert there == record.branch


def prepare_and_be_killed(world: World, issue_id: str, after_seconds: float) -> None:
    """Run a PREPARE step that is killed with its git, at any time."""
    if (child := os.fork()) == 0:
        os.setpgid(0, 0)
        try:
            world.make(issue_id)
        finally:
            os._exit(0)
    with suppress(PermissionError):  # It has ended, or has done this itself.
        os.setpgid(child, child)
    time.sleep(after_seconds)
    with suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)


@pytest.mark.share(3)
@pytest.mark.parametrize("part", range(10))
def test_killed_at_any_of_100_moments_of_the_move_nothing_is_lost_or_mixed(
    world: World, part: int
) -> None:
    waits = world.make("waits", worker="W8")
    commit(waits.folder, "waits.py")
    (waits.folder / "draft.txt").write_text("draft\n")
    tips = dict[str, str]()
    moments = 0
    for number in (0, *range(1 + part, 101, 10)):
        issue_id = f"i{number}"
        place = world.make(issue_id)
        tips[issue_id] = commit(place.folder, f"{issue_id}.py")
        _many_fewer(place.folder)
        land(world, place)
        if not moments:
            moments = prepare_and_die(world, "counted", 0)
            counted = world.records.find("counted.1")
            assert counted is not None and moments > 100
            land(world, replace(place, record=counted))
            continue
        if number % 20 < 10:
            prepare_and_die(world, f"k{number}", 1 + number * moments // 101)
        else:
            prepare_and_be_killed(world, f"k{number}", number / 500)
        assert_nothing_is_mixed(world)
    for issue_id, tip in tips.items():
        assert git(world.top, "rev-parse", f"refs/bw/attempts/{issue_id}/1") == tip
    assert (waits.folder / "draft.txt").read_text() == "draft\n"
    assert git(waits.folder, "log", "--format=%s", "main..") == "add waits.py"
    again = world.make("last")
    assert_as_fresh(world, again)
    world.end_run()
    for lock in (world.top / ".git").rglob("*.lock"):
        os.utime(lock, (0, 0))  # A killed git has left it, and time has passed.
    unlock_all(str(world.top / ".git"))  # As the whole ``clean`` does.
    left = world.kept()
    assert list(left) == ["bw/waits/1"], left
    sweep(world.records)  # As the next start does: removals were killed, too.
    world.swept()
    assert [*Path(world.settings.folder).iterdir()] == [waits.folder]


def _many_fewer(folder: Path) -> None:
    for number in range(5):
        (folder / f"{number}.local").touch()


# --- between runs ---------------------------------------------------------------------------------


def ended(world: World) -> None:
    """The run ends as one that somebody watches, and the next one begins."""
    world.end_run()
    tidy_run(world.state, world.run_id, reuse.keep(world.settings))
    world.swept()
    world.run_id, world._alive = world.runs.create_run()


def test_at_the_end_as_many_stay_as_there_are_workers(world: World) -> None:
    places = [world.make(f"i{number}", worker=f"W{number}") for number in range(4)]
    for number, place in enumerate(places):
        commit(place.folder, f"i{number}.py")
        land(world, place)
    ended(world)
    there = [record.path for record in reuse.kept(world.settings)]
    assert sorted(there) == sorted(str(path) for path in Path(world.settings.folder).iterdir())
    assert len(there) == 2 and world.branches() == []
    again = world.make("next")
    assert str(again.folder) in there
    assert_as_fresh(world, again)


def test_below_the_disk_floor_none_stays(world: World) -> None:
    place = world.make("one")
    land(world, place)
    world.settings = ruled(world.settings, disk_floor_bytes=1 << 60)
    ended(world)
    assert not place.folder.exists() and world.records.all() == []


def test_clean_removes_what_stays(world: World) -> None:
    first = world.make("one")
    land(world, first)
    ended(world)
    assert first.folder.exists()
    assert world.kept() == {} and [*Path(world.settings.folder).iterdir()] == []


def test_clean_keeps_one_in_which_a_person_has_worked_since(world: World) -> None:
    first = world.make("one")
    commit(first.folder, "one.py")
    land(world, first)
    ended(world)
    commit(first.folder, "mine.py")
    second = world.make("two")
    assert second.folder != first.folder
    assert "2 commits on no other branch" in [*world.kept().values()]


@pytest.mark.parametrize("branch_is_gone", [False, True])
def test_killed_while_it_is_taken_from_its_issue_it_is_used_again(
    world: World, branch_is_gone: bool
) -> None:
    first = world.make("one")
    tip = commit(first.folder, "one.py")
    land(world, first)
    git(first.folder, "checkout", "--quiet", "--detach")
    if branch_is_gone:
        git(world.top, "update-ref", "-d", "refs/heads/bw/one/1", tip)
    assert world.make("two").folder == first.folder and world.branches() == ["bw/two/1"]


def test_the_pool_leaves_it_alone(world: World) -> None:
    first = world.make("one")
    land(world, first)
    ended(world)
    assert world.make("three", pool=1).folder == first.folder


# --- what waits -----------------------------------------------------------------------------------


def test_one_whose_branch_has_not_landed_is_not_touched(world: World) -> None:
    first = world.make("one")
    tip = commit(first.folder, "one.py")
    assert world.make("two").folder != first.folder
    assert git(first.folder, "rev-parse", "bw/one/1", "HEAD").split() == [tip, tip]


def test_one_that_may_be_continued_is_not_touched(world: World) -> None:
    first = world.make("one")
    asked = replace(world.asked("two", worker="W2"), may_continue=True)
    prepare(asked)
    assert first.folder.exists() and len(world.records.all()) == 2
    assert world.make("one", 2, continues=True).folder == first.folder


def test_an_attempt_that_goes_on_in_it_needs_it_again(world: World) -> None:
    first = world.make("one")
    commit(first.folder, "one.py")
    land(world, first)
    assert world.make("one", 2, continues=True).folder == first.folder
    assert world.make("two", worker="W2").folder != first.folder


def test_what_is_taken_back_is_needed_again(world: World) -> None:
    first = world.make("one")
    commit(first.folder, "one.py")
    land(world, first)
    reuse.wanted_again(world.state, ["one"])
    assert world.make("two").folder != first.folder


def test_what_landed_is_only_believed_while_another_ref_keeps_it(world: World) -> None:
    first = world.make("one")
    tip = commit(first.folder, "one.py")
    add = Add("one", 1, world.run_id, tip, first.record.base, "bw/one/1")
    reuse.landed(world.settings, add)
    assert world.records.over() == []


def test_a_process_that_stands_in_it_keeps_it(world: World) -> None:
    first = world.make("one")
    commit(first.folder, "one.py")
    land(world, first)
    with subprocess.Popen(("sleep", "100"), cwd=first.folder / "src") as shell:
        second = world.make("two")
        shell.kill()
    commit(second.folder, "two.py")
    assert second.folder != first.folder and world.make("three").folder == first.folder


def test_without_a_commit_a_command_needs_it_no_more(world: World) -> None:
    first = world.make("one")
    again = world.make("two")
    assert again.folder == first.folder
    assert_as_fresh(world, again)


# --- set-up ---------------------------------------------------------------------------------------


def setups(place: Place) -> list[str]:
    return (place.folder / "setups.local").read_text().split()


def again_with(world: World, **settings: Any) -> Place:
    world.settings = ruled(world.settings, **settings)
    return after(world, _write("node_modules.local/.cache/file"))[1]


def test_set_up_does_not_run_again(world: World) -> None:
    again = again_with(world, setup="date +%N >setups.local; mkdir -p node_modules.local")
    was = setups(again)
    commit(again.folder, "two.py")
    land(world, again)
    third = world.make("three")
    assert third.folder == again.folder and setups(third) == was


@pytest.mark.parametrize("name", ["package.json", "schema/a.sql", "tools/install"])
def test_it_runs_anew_if_what_it_reads_has_changed(world: World, name: str) -> None:
    setup = "date +%N >setups.local; [ ! -e tools/install ] || sh tools/install; touch left.local"
    world.settings = ruled(world.settings, setup=setup, setup_reads=("schema/*.sql",))
    first = world.make("one")
    commit(first.folder, name, "true\n")
    was = setups(first)
    land(world, first)
    again = world.make("two")
    assert again.folder == first.folder and setups(again) != was


def test_it_runs_anew_if_it_names_a_variable_of_the_attempt(world: World) -> None:
    setup = 'echo "$BW_BRANCH" >branch.local; touch setups.local node_modules.local'
    world.settings = ruled(world.settings, setup=setup)
    first = world.make("one")
    commit(first.folder, "one.py")
    land(world, first)
    again = world.make("two")
    assert again.folder == first.folder
    assert (again.folder / "branch.local").read_text() == "bw/two/1\n"


def test_copies_are_those_of_today(world: World) -> None:
    (world.top / ".env").write_text("old")
    world.settings = ruled(world.settings, copy=(".env",), setup=None)
    first = world.make("one")
    (first.folder / ".env").write_text("an agent's")
    land(world, first)
    (world.top / ".env").write_text("new")
    again = world.make("two")
    assert again.folder == first.folder and (again.folder / ".env").read_text() == "new"


def test_files_with_names_elsewhere_are_used_again(world: World, tmp_path: Path) -> None:
    """As uv and pnpm link them from a cache: each further name changes their time of change."""
    cache = tmp_path / "cache"
    cache.mkdir()
    for number in range(20):
        (cache / str(number)).write_text(f"{number}\n")
    setup = f"mkdir venv.local; ln {cache}/* venv.local/; date +%N >setups.local"
    world.settings = ruled(world.settings, setup=setup)
    places = [world.make(f"i{number}", worker=f"W{number}") for number in range(8)]
    was = [setups(place) for place in places]
    for place in places:
        land(world, place)
    again = [world.make(f"j{number}", worker=f"W{number}") for number in range(8)]
    assert {place.folder for place in again} == {place.folder for place in places}
    assert sorted(map(setups, again)) == sorted(was)
    file = again[0].folder / "venv.local" / "7"
    at = file.stat()
    file.write_text("8\n")
    os.utime(file, ns=(at.st_atime_ns, at.st_mtime_ns))
    for place in again:
        land(world, place)
    (cache / "7").unlink()
    (cache / "7").write_text("7\n")
    third = [world.make(f"k{number}", worker=f"W{number}") for number in range(8)]
    assert {(place.folder / "venv.local" / "7").read_text() for place in third} == {"7\n"}


# --- whole ----------------------------------------------------------------------------------------


def test_turned_off_each_attempt_gets_its_own(world: World) -> None:
    world.settings = replace(world.settings, reuse=0)
    first, second = after(world, lambda folder: None)
    assert (first.folder.name, second.folder.name) == ("one.1", "two.1")
    assert world.records.over() == []


def test_names_say_nothing_of_issues(world: World) -> None:
    names = [world.make(f"i{n}", worker=f"W{n}").folder.name for n in range(3)]
    assert names == ["w1", "w2", "w3"]


def test_of_eight_at_once_each_gets_another(world: World) -> None:
    for number in range(5):
        place = world.make(f"i{number}", worker=f"W{number}")
        commit(place.folder, f"i{number}.py")
        land(world, place)
    asked = [json.dumps(asdict(world.asked(f"j{n}", worker=f"V{n}"))) for n in range(8)]
    world.end_run()
    with open(os.devnull, "w") as nowhere:
        processes = [start_preparation(each, nowhere.fileno()) for each in asked]
    assert [process.wait() for process in processes] == [0] * 8
    paths = [r.path for r in world.records.all() if r.issue_id.startswith("j")]
    assert len(set(paths)) == 8 and len([*Path(world.settings.folder).iterdir()]) == 8


def test_in_a_folder_of_the_repository_as_well(tmp_path: Path) -> None:
    world = reusing(World(tmp_path / "one", "part"))
    first, again = after(world, lambda folder: None)
    assert again.folder == first.folder and again.folder.name == "part"


@pytest.mark.parametrize("options", FORMATS)
def test_in_repositories_of_other_kinds(tmp_path: Path, options: str) -> None:
    world = reusing(World(tmp_path / "one", "", options))
    first, again = after(world, lambda folder: None)
    assert (again.folder == first.folder) == ("reftable" not in options)
