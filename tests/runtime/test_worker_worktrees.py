"""A worker whose tasks run in worktrees, with real git and a real socket."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from beads_workers.core.base.plans import Plan, Step, StepKind
from beads_workers.core.base.settings import WorktreeRules, Worktrees
from beads_workers.runtime import sessions
from beads_workers.runtime.steps import CannotStart, start_step
from tests.runtime import test_worker
from tests.runtime.test_worker import Bench
from tests.support.peer import gone, wait_for
from tests.support.repository import IDENTITY, commit, git, make_repository
from tests.support.worktrees import ruled

bench = test_worker.bench


@pytest.fixture(autouse=True)
def identity(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in IDENTITY.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def worktrees(tmp_path: Path) -> Iterator[Worktrees]:
    top = make_repository(tmp_path / "repository")
    yield Worktrees(
        checkout=str(top),
        prefix="",
        common=str(top / ".git"),
        folder=str(tmp_path / "trees"),
        state_directory=str(tmp_path / "state"),
        base="main",
        base_name="main",
        rules=WorktreeRules(disk_floor_bytes=0),
        beads="/the/.beads",
    )


def test_the_command_and_its_check_run_in_the_worktree(bench: Bench, worktrees: Worktrees) -> None:
    bench.sh(
        'pwd; echo "$PWD"; echo "$BW_BRANCH $BEADS_DIR"; echo x > made; git add made;'
        " git commit -qm made",
        verify='test -f made && test "$(git rev-parse HEAD~1)" = "$BW_BASE"',
        worktrees=worktrees,
    )
    done = bench.result("DONE")
    folder = f"{worktrees.folder}/t-1.1"
    note = "1 commit on bw/t-1/1"
    assert bench.log().splitlines()[-4:] == [folder, folder, "bw/t-1/1 /the/.beads", note]
    assert done["result"] == {"note": note}
    assert git(Path(worktrees.checkout), "show", "bw/t-1/1:made") == "x"
    assert not (Path(worktrees.checkout) / "made").exists()


@pytest.mark.parametrize(
    ("script", "note"),
    [
        ("true", "nothing changed"),
        ("echo x > new", "1 change not committed on bw/t-1/1"),
        ("git commit --quiet --allow-empty -m 1; touch a b",
         "1 commit on bw/t-1/1, 2 changes not committed"),
        ("git commit --quiet --allow-empty -m 1; git checkout --quiet -b other;"
         " git commit --quiet --allow-empty -m 2", "1 commit on bw/t-1/1; HEAD is on other"),
        ("git checkout --quiet --detach; git commit --quiet --allow-empty -m 1",
         "nothing changed; HEAD is on no branch, with 1 commit of its own"),
        ("git checkout --quiet --detach; git branch --quiet -D bw/t-1/1",
         "its branch bw/t-1/1 is gone"),
    ],
)  # fmt: skip
def test_a_success_says_what_came_of_it(
    bench: Bench, worktrees: Worktrees, script: str, note: str
) -> None:
    bench.sh(script, worktrees=worktrees)
    assert bench.result("DONE")["result"] == {"note": note}


def test_a_success_whose_worktree_cannot_be_looked_at_counts_all_the_same(
    bench: Bench, worktrees: Worktrees
) -> None:
    bench.sh('rm -rf "$BW_WORKTREE"', worktrees=worktrees)
    assert "result" not in bench.result("DONE")


def test_a_failure_does_not_quote_how_its_worktree_was_made(
    bench: Bench, worktrees: Worktrees
) -> None:
    bench.sh("exit 3", worktrees=worktrees)
    assert bench.result("FAILED")["error"] == "exit status 3"


def test_no_worktree_is_a_free_retry_and_nothing_runs(bench: Bench, worktrees: Worktrees) -> None:
    Path(worktrees.common, "HEAD").unlink()
    bench.sh(f"touch {bench.file('ran')}", worktrees=worktrees)
    failed = bench.result("FAILED")
    assert failed["outcome"] == "retry"
    assert failed["error"].startswith("no worktree: ")
    assert not bench.file("ran").exists()


@pytest.mark.parametrize(("kind", "is_free"), [(StepKind.RUN, True), (StepKind.VERIFY, False)])
def test_a_worktree_that_is_gone_before_its_command_is_a_free_retry(
    tmp_path: Path, kind: StepKind, is_free: bool
) -> None:
    place = tmp_path / "place"
    place.write_text(json.dumps({"folder": str(tmp_path / "gone"), "environment": {}}))
    step = Step(kind, ("true",), place_file=str(place))
    plan = Plan((step,), "", "", str(tmp_path / "log"), str(tmp_path / "output"))
    with pytest.raises(CannotStart, match="cannot use") as caught:
        start_step(plan, step, {})
    assert caught.value.degraded is is_free


def test_one_that_its_command_removes_is_a_failure(bench: Bench, worktrees: Worktrees) -> None:
    bench.sh('rm -rf "$BW_WORKTREE"', verify="true", worktrees=worktrees)
    failed = bench.result("FAILED")
    assert (failed["outcome"], "cannot use" in failed["error"]) == ("error", True), failed
    bench.peer.task(issue_id="t-2")
    assert bench.peer.expect("FAILED")["error"], "the worker goes on"


def test_the_places_of_another_checkout_do_not_reach_a_task(
    bench: Bench, worktrees: Worktrees, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = make_repository(bench.file("other"))
    monkeypatch.setenv("GIT_DIR", str(other / ".git"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(other / ".git" / "index"))
    monkeypatch.setenv("VIRTUAL_ENV", str(other))
    bench.sh("echo x$VIRTUAL_ENV > made; git add made; git commit -qm made", worktrees=worktrees)
    bench.result("DONE")
    monkeypatch.undo()
    assert git(Path(worktrees.checkout), "show", "bw/t-1/1:made") == "x"
    assert git(other, "rev-list", "--count", "--all") == "1"


def test_a_setup_is_cancelled_like_any_step_and_what_it_left_is_used_by_nobody(
    bench: Bench, worktrees: Worktrees
) -> None:
    slow = ruled(worktrees, setup=f"echo $$ > {bench.file('pid')}; sleep 1000")
    bench.sh("true", worktrees=slow)
    bench.peer.task()
    pid = int(wait_for(bench.file("pid")))
    os.kill(bench.pid, signal.SIGTERM)
    assert bench.peer.expect("FAILED")["outcome"] == "cancelled"
    assert gone(pid)
    assert bench.exit_status() == 0


def test_what_an_attempt_committed_outlives_the_kill_of_its_worker(
    bench: Bench, worktrees: Worktrees
) -> None:
    done = bench.file("committed")
    bench.sh(
        f"echo x > made; git add made; git commit -qm made; echo y > {done}; sleep 1000",
        worktrees=worktrees,
    )
    bench.peer.task()
    wait_for(done)
    os.kill(bench.pid, signal.SIGKILL)
    assert bench.exit_status() == -signal.SIGKILL
    sessions.sweep(bench.settings.run_id, None)
    assert git(Path(worktrees.checkout), "show", "bw/t-1/1:made") == "x"
    assert commit(Path(worktrees.checkout), "later")
