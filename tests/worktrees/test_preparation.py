"""Making an attempt's worktree, with real git: docs/SEMANTICS.md, "Worktrees"."""

from __future__ import annotations

import json
import os
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from beads_workers.core.base.model import OCCUPIED, IssueId, Outcome, OutcomeKind
from beads_workers.core.base.plans import Step, StepKind
from beads_workers.core.base.settings import Work, WorkerSettings, Worktrees
from beads_workers.core.base.wire import Task
from beads_workers.core.workers.worker import detail, failure
from beads_workers.core.workers.worker_events import StepEnded
from beads_workers.executors.command import preparation
from beads_workers.runtime.project import find_project
from beads_workers.worktrees import preparation as making_one
from beads_workers.worktrees.making import CannotPrepare
from beads_workers.worktrees.orders import read_preparation
from beads_workers.worktrees.preparation import Occupied
from beads_workers.worktrees.records import WorktreeRecord
from beads_workers.worktrees.removal import Survey, reasons_to_keep, remove, tidy
from tests.support import warm
from tests.support.repository import commit, git, needs_git, ref_lock
from tests.support.worktrees import World, person, start_preparation


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_an_attempt_gets_a_folder_and_a_branch_of_its_own(world: World) -> None:
    place = world.make("bw-1", 2)
    assert place.folder == world.state / "worktrees" / "bw-1.2"
    assert git(place.folder, "branch", "--show-current") == "bw/bw-1/2"
    assert (place.folder / ".gitignore").exists()
    assert git(place.folder, "status", "--porcelain") == ""
    of_run = {n: text for n, text in place.environment.items() if n.startswith("GIT_CONFIG_")}
    assert of_run["GIT_CONFIG_VALUE_0"].endswith("/git-identity")
    assert place.environment == of_run | {
        "BW_BASE": git(world.top, "rev-parse", "main"),
        "BW_BRANCH": "bw/bw-1/2",
        "BW_CHECKOUT": str(world.project),
        "BW_SLOT": place.environment["BW_SLOT"],
        "BW_WORKTREE": str(place.folder),
        "PWD": str(place.folder),
    }


def test_the_checkout_does_not_notice(world: World) -> None:
    world.make("bw-1")
    assert git(world.top, "status", "--porcelain") == ""
    assert git(world.top, "branch", "--show-current") == "main"


def test_a_named_branch_is_looked_up_for_each_attempt_and_a_commit_stays(world: World) -> None:
    first = git(world.top, "rev-parse", "main")
    second = commit(world.top, "merged")
    assert world.make("a").record.base == second
    assert world.make("b", base=first).record.base == first


@pytest.mark.parametrize("age", [60.0, 0.0])
def test_a_lock_that_a_killed_git_has_left_goes_and_one_that_is_held_stays(
    world: World, age: float
) -> None:
    lock = ref_lock(world.top, "refs/heads/bw/i-1/1")
    lock.touch()
    os.utime(lock, (time.time() - age,) * 2)
    if age:
        assert world.make("i-1").folder.exists()
    else:
        with lock.open() as held, subprocess.Popen(["sleep", "60"], stdin=held) as holder:
            with pytest.raises(CannotPrepare, match="cannot lock ref"):
                world.make("i-1")
            holder.kill()
    assert lock.exists() == (not age)


def test_no_hook_of_the_repository_runs(world: World) -> None:
    hook = world.top / ".git" / "hooks" / "post-checkout"
    hook.parent.mkdir()
    hook.write_text(f"#!/bin/sh\ntouch {world.top}/hooked\n")
    hook.chmod(0o755)
    world.make("a")
    assert not (world.top / "hooked").exists()


@needs_git(2, 55)
def test_no_hook_that_is_configured_runs(world: World) -> None:
    for event in ("reference-transaction", "post-checkout", "post-index-change"):
        git(world.top, "config", "--add", "hook.mine.event", event)
    git(world.top, "config", "hook.mine.command", f"touch {world.top}/hooked; true")
    world.make("a")
    assert not (world.top / "hooked").exists()
    git(world.top, "branch", "b")
    assert (world.top / "hooked").exists(), "it would have run"


def test_a_project_below_the_top_runs_in_the_same_folder_below(tmp_path: Path) -> None:
    world = World(tmp_path, ["services", "api"][0])
    place = world.make("a")
    assert place.folder == Path(place.environment["BW_WORKTREE"]) / "services"
    assert place.folder.is_dir()


def test_a_repeated_attempt_takes_the_name_again_or_the_next_one(world: World) -> None:
    assert world.make("a").record.branch == "bw/a/1"
    again = world.make("a")
    assert again.record.branch == "bw/a/1", "nothing was done there"
    commit(again.folder, "work")
    third = world.make("a")
    assert (third.record.branch, third.folder.name) == ("bw/a/1.2", "a.1.2")
    assert git(world.top, "cat-file", "-t", "bw/a/1:work") == "blob"


def test_issues_whose_names_meet_do_not_share_a_folder(world: World) -> None:
    commit(world.make("a.1", 2).folder, "one")
    commit(world.make("a", 1, "W2").folder, "two")
    other = world.make("a", 1, "W3")
    assert other.record.branch == "bw/a/1.3"
    assert len(world.branches()) == 3


def test_a_branch_of_that_name_that_somebody_made_is_left_alone(world: World) -> None:
    git(world.top, "branch", "bw/a/1")
    assert world.make("a").record.branch == "bw/a/1.2"
    assert "bw/a/1" in world.branches()


def test_the_worktree_of_a_workers_last_task_goes_where_it_holds_nothing(world: World) -> None:
    empty = world.make("a", worker="W1")
    other = world.make("b", worker="W2")
    worked = world.make("c", worker="W1")
    commit(worked.folder, "work")
    world.make("d", worker="W1")
    assert not empty.folder.exists() and other.folder.exists() and worked.folder.exists()
    assert world.branches() == ["bw/b/1", "bw/c/1", "bw/d/1"]


# --- copied files -----------------------------------------------------------------------------


def test_ignored_files_are_copied_with_their_modes_and_never_committed(world: World) -> None:
    (world.project / ".env").write_text("SECRET=1")
    (world.project / ".env").chmod(0o600)
    (world.project / "config").mkdir()
    (world.project / "config" / "db.local").write_text("db")
    place = world.make("a", copy=(".env", "config/*.local"))
    assert (place.folder / ".env").read_text() == "SECRET=1"
    assert (place.folder / ".env").stat().st_mode & 0o777 == 0o600
    assert (place.folder / "config" / "db.local").read_text() == "db"
    assert git(place.folder, "status", "--porcelain") == ""


def test_what_cannot_be_copied_is_a_warning(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    (world.project / "plain").write_text("git shows it")
    (world.top.parent / "outside.local").write_text("x")
    (world.project / "link.local").symlink_to("../outside.local")
    (world.project / "late").write_text("ignored only in the checkout")
    (world.project / ".gitignore").write_text(".env\n*.local\nlate\n")
    place = world.make("a", copy=("missing", "plain", "link.local", "late"))
    output = capsys.readouterr().out
    assert "nothing that git ignores matches missing" in output
    assert "nothing that git ignores matches plain" in output
    assert "link.local left out, it leads out of the project" in output
    assert "late left out, the .gitignore of the base does not name it" in output
    assert sorted(p.name for p in place.folder.iterdir()) == [".git", ".gitignore"]


def test_a_pattern_finds_nothing_in_other_worktrees(world: World) -> None:
    (world.project / "x.local").write_text("x")
    world.make("a", worker="W1", copy=("**/*.local",))
    place = world.make("b", worker="W2", copy=("**/*.local",))
    assert [p.name for p in place.folder.rglob("*.local")] == ["x.local"]


# --- what goes wrong --------------------------------------------------------------------------


def test_setup_runs_in_the_worktree_and_its_output_is_kept(
    world: World, capfd: pytest.CaptureFixture[str]
) -> None:
    place = world.make("a", setup='echo "for $BW_BRANCH in $PWD"; touch made.local')
    assert f"for bw/a/1 in {place.folder}" in capfd.readouterr().out
    assert (place.folder / "made.local").exists()


def test_a_setup_that_fails_leaves_nothing_behind(world: World) -> None:
    with pytest.raises(CannotPrepare, match="setup failed: exit status 7"):
        world.make("a", setup="touch left; exit 7")
    assert world.branches() == []
    world.swept()
    assert list((world.state / "worktrees").iterdir()) == []
    assert world.records.all() == []


def test_a_setup_that_leaves_what_git_shows_is_warned_about(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    world.make("a", setup="touch left")
    assert "setup left what git does not ignore" in capsys.readouterr().out


def test_a_git_that_is_killed_in_the_middle_leaves_nothing_behind(world: World) -> None:
    commit(world.top, ".gitattributes", "* filter=deadly\n")
    git(world.top, "config", "filter.deadly.smudge", "kill -KILL $PPID; cat")
    with pytest.raises(CannotPrepare):
        world.make("a")
    assert world.branches() == [] and world.records.all() == []
    git(world.top, "config", "filter.deadly.smudge", "cat")
    assert world.make("a").record.branch == "bw/a/1"


def test_below_the_disk_floor_nothing_is_begun(world: World) -> None:
    with pytest.raises(CannotPrepare, match=r"GB of disk are free at .*clean"):
        world.make("a", disk_floor_bytes=1 << 62)
    assert world.branches() == [] and world.records.all() == []


def test_a_base_that_is_gone_says_so(world: World) -> None:
    with pytest.raises(CannotPrepare, match="no-such"):
        world.make("a", base="no-such")


# --- seen from inside, and from other processes -----------------------------------------------


def test_the_project_is_found_from_inside_a_worktree_that_holds_a_copy_of_its_marks(
    tmp_path: Path,
) -> None:
    world = World(tmp_path)
    (world.project / ".beads").mkdir()
    commit(world.project, ".beads/issues.jsonl")
    place = world.make("a", folder=str(tmp_path / "elsewhere"))
    (place.folder / "deep").mkdir()
    assert (place.folder / ".beads").is_dir()
    found = find_project(place.folder / "deep")
    assert found is not None and found.folder == world.project.resolve()


def test_a_project_of_its_own_inside_a_worktree_is_found_as_ever(world: World) -> None:
    inner = world.make("a").folder / "fixture"
    (inner / ".beads").mkdir(parents=True)
    found = find_project(inner)
    assert found is not None and found.folder == inner


def program(world: World, issue_id: str, worker: str, stdout: int) -> warm.Process:
    """The PREPARE step as a worker starts it."""
    settings = WorkerSettings(
        worker_id=worker,
        socket_path="",
        orchestrator_pid=0,
        project=str(world.project),
        run_id=world.run_id,
        run_directory=str(world.runs.run(world.run_id)),
        actor="",
        work=Work(worktrees=world.settings),
    )
    text = preparation(Task(IssueId(issue_id), 1, "t", "d"), settings)
    assert read_preparation(text) == world.asked(issue_id, worker=worker)
    return start_preparation(text, stdout)


def test_twelve_at_once_all_get_one(world: World, tmp_path: Path) -> None:
    with (tmp_path / "said").open("w+") as output:
        processes = [program(world, f"bw-{n}", f"W{n}", output.fileno()) for n in range(12)]
        assert [process.wait() for process in processes] == [0] * 12, output.read()
    assert len(world.branches()) == 12
    places = sorted((world.runs.run(world.run_id) / "issues").glob("*.place"))
    assert len({json.loads(place.read_bytes())["folder"] for place in places}) == 12


@pytest.mark.parametrize("continues", [False, True])
def test_a_person_in_a_worktree_of_the_issue_holds_it_back_and_no_other(
    world: World, continues: bool
) -> None:
    first = world.make("bw-1", 1)
    (first.folder / "half").write_text("done")
    with person(first.folder) as who:
        with pytest.raises(Occupied) as occupied:
            world.make("bw-1", 2, continues=continues)
        assert str(occupied.value) == f"you stand in its worktree ({who})"
        assert occupied.value.folder == str(first.folder)
        assert world.records.all() == [first.record], "it is not touched"
        world.make("bw-1.1", 1)
    again = world.make("bw-1", 2, continues=continues)
    assert (again.folder == first.folder) is continues


def test_the_step_names_the_folder_and_says_who_stands_there(world: World, tmp_path: Path) -> None:
    place = world.make("bw-1", 1, worker="W1")
    commit(place.folder, "work")
    with (tmp_path / "said").open("w+") as output:
        with person(place.folder) as who:
            assert program(world, "bw-1", "W2", output.fileno()).wait() == os.EX_TEMPFAIL
        output.seek(0)
        *_, folder, why = output.read().splitlines()
    ended = StepEnded(os.EX_TEMPFAIL, f"{folder}\n{why}\n")
    step, task = Step(StepKind.PREPARE, ("make",)), Task(IssueId("bw-1"), 1, "t", "d")
    assert failure(step, ended) == Outcome(OutcomeKind.CANCELLED, why)
    assert why == f"you stand in its worktree ({who})"
    assert detail(step, task, ended) == f"{OCCUPIED}{place.folder}"


def test_an_attempt_that_goes_on_finds_the_work_of_the_one_before(world: World) -> None:
    first = world.make("bw-1", 1, worker="W1")
    (first.folder / "half").write_text("done")
    # Its git was killed in the middle of a commit.
    lock = Path(git(first.folder, "rev-parse", "--absolute-git-dir"), "index.lock")
    lock.touch()
    again = world.make("bw-1", 2, worker="W2", continues=True)
    assert again.folder == first.folder and not lock.exists()
    assert (again.folder / "half").read_text() == "done"
    assert again.environment["BW_BASE"] == first.environment["BW_BASE"]
    # The worker that had it last makes another one, and leaves this alone.
    world.make("bw-2", 1, worker="W1")
    assert (again.folder / "half").exists()


def test_nobody_removes_a_worktree_that_another_worker_goes_on_in(world: World) -> None:
    first = world.make("bw-1", 1, worker="W1")
    seen = Survey(world.records, ended=world.run_id).look(first.record)
    assert reasons_to_keep(seen.found) == (), "there is no work in it yet"
    again = world.make("bw-1", 2, worker="W2", continues=True)
    assert again.folder == first.folder
    assert remove(world.records, seen) != () and again.folder.exists()
    tidy(world.records, [first.record])
    assert again.folder.exists()


def test_nobody_removes_a_worktree_while_another_worker_takes_it_over(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = world.make("bw-1", 1, worker="W1")
    write = making_one._write_place

    def meanwhile(settings: Worktrees, record: WorktreeRecord, *more: Any) -> None:
        Path(
            world.asked("bw-1", 1, "W1").place_file
        ).unlink()  # Its last worker begins with another issue.
        for known in (first.record, record):
            tidy(world.records, [known])
        write(settings, record, *more)

    monkeypatch.setattr(making_one, "_write_place", meanwhile)
    again = world.make("bw-1", 2, worker="W2", continues=True)
    assert again.folder == first.folder and again.folder.exists()


def test_the_same_worker_goes_on_in_the_folder_that_its_session_knows(world: World) -> None:
    first = world.make("bw-1", 1)
    again = world.make("bw-1", 2, continues=True)
    assert again.folder == first.folder, "though there was no work in it yet"


def test_one_that_goes_on_where_nothing_was_left_begins_anew(world: World) -> None:
    assert world.make("bw-1", 2, continues=True).folder == world.state / "worktrees" / "bw-1.2"


def test_one_that_begins_fresh_leaves_the_work_of_the_one_before(world: World) -> None:
    first = world.make("bw-1", 1)
    (first.folder / "half").write_text("done")
    assert world.make("bw-1", 2, worker="W2").folder != first.folder
    assert (first.folder / "half").exists()
