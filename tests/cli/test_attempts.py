"""What files tell of an attempt: all attempts of a night, and what git has of its work."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from beads_workers.cli.why import why_lines
from beads_workers.core.records.receipts import Receipt
from beads_workers.core.views.history import Attempt, LandingHistory, fold
from beads_workers.executors.files import log_file, output_file
from beads_workers.runtime.journal_file import read_journal
from beads_workers.ui.attempt_view import AttemptView, Pin, Tried, attempt_view
from beads_workers.views.attempt_files import diff_lines, log_path, read_view
from beads_workers.views.background import AttemptReader, BackgroundAnswer
from beads_workers.worktrees.diffs import diff
from beads_workers.worktrees.git import SECONDS_VARIABLE, GitError, GitHangs
from tests.oracles.journals import KEPT
from tests.support.fleet import until
from tests.support.journals import Script, started
from tests.support.repository import commit, git
from tests.support.worktrees import Place, World
from tests.ui.snapshots import BEGAN, after

# --- attempts ------------------------------------------------------------------------------------


def write(state: Path, run_id: str, script: Script) -> None:
    """A run's journal, with its first record."""
    script.add(0.0, replace(started(), run_id=run_id))
    script.write(state, run_id)


def test_attempts_of_earlier_runs_are_found_where_the_night_has_none(tmp_path: Path) -> None:
    first, second = Script(), Script()
    first.attempt("W1", "a", 1.0, 3.0, "error", "quarantined", error="E: 3 != 4")
    second.attempt("W1", "b", 1.0, 3.0)
    write(tmp_path, "20261121-222640.000-aaaaaa", first)
    write(tmp_path, "20261122-222640.000-bbbbbb", second)
    view = read_view(tmp_path, Pin("a", "20261122-222640.000-bbbbbb"))
    assert view.tried is not None and view.tried.attempt.error == "E: 3 != 4"
    assert view.pin.run_id == "20261121-222640.000-aaaaaa"
    assert read_view(tmp_path, Pin("c", "20261122-222640.000-bbbbbb")).attempts == ()


def runs_kept() -> list[Path]:
    """The folders of the runs of all kept histories of real fleets."""
    return sorted({path.parent for path in KEPT.rglob("journal.jsonl")})


@pytest.mark.share(3)
@pytest.mark.parametrize("run", runs_kept(), ids=lambda run: str(run.relative_to(KEPT)))
def test_what_is_read_about_one_issue_is_what_the_whole_journal_tells_of_it(run: Path) -> None:
    journal = run / "journal.jsonl"
    whole = fold(read_journal(journal))
    if whole is None:
        return  # A start that was refused.
    assert {*read_journal(journal, "no such issue")} < {*read_journal(journal)}
    for issue in whole.issues:
        part = fold(read_journal(journal, issue.issue_id))
        assert part is not None and part.seconds == whole.seconds
        pin = Pin(issue.issue_id, whole.start.run_id)
        assert attempt_view(pin, [part]) == attempt_view(pin, [whole])


def test_a_log_is_that_of_the_attempt_whatever_its_worker_runs_now(tmp_path: Path) -> None:
    pin = Pin("a", "run", 2, "W1", ended_at=time.time())
    output = Path(output_file(str(tmp_path), "W1"))
    output.parent.mkdir(parents=True)
    output.write_text("of the attempt that runs\n")
    assert log_path(tmp_path, pin, runs=True) == output
    os.utime(output, (0, time.time() + 60))
    assert log_path(tmp_path, pin, runs=False, seconds=3.0).name == "a.2.log"
    os.utime(output, (0, time.time() - 1))
    assert log_path(tmp_path, pin, runs=False, seconds=3.0) == output, "killed with its worker"
    own = Path(log_file(str(tmp_path), "a", 2))
    own.write_text("its own\n")
    assert log_path(tmp_path, pin, runs=False) == own


# --- diffs ---------------------------------------------------------------------------------------


def view_of(world: World, place: Place | None = None, **receipt: Any) -> AttemptView:
    """Of an attempt at ``app-1`` that ended; ``receipt``: what its worker said."""
    said = Receipt(branch=place.record.branch if place else "", **receipt) if receipt else None
    one = Attempt("r", "app-1", "", 2, "W1", 1, 0.0, 1.0, 1.0, "success", receipt=said)
    tried = Tried("run", 0.0, one)
    return AttemptView(tried.pin, "", (tried,), 0, None, str(world.project))


def test_a_running_attempt_shows_its_worktree_committed_or_not(tmp_path: Path) -> None:
    world = World(tmp_path)
    place = world.make("app-1")
    commit(place.folder, "committed.txt", "one\n")
    (place.folder / "committed.txt").write_text("one\nnot committed\n")
    (place.folder / "new.txt").write_text("x\n")
    lines = diff_lines(world.state, view_of(world), runs=True)
    assert lines[0].startswith("bw/app-1/1, in its worktree now: ")
    assert "new, not added: new.txt" in lines
    assert "+one" in lines and "+not committed" in lines


def test_an_ended_attempt_shows_its_branch_and_what_landed_of_it(tmp_path: Path) -> None:
    world = World(tmp_path)
    place = world.make("app-1")
    head = commit(place.folder, "a.txt", "one\n")
    done = view_of(world, place, base=place.record.base, head=head)
    lines = diff_lines(world.state, done, runs=False)
    assert lines[0] == f"bw/app-1/1 at {head[:12]}" and "+one" in lines
    landed = replace(done, landing=LandingHistory(commit=head))
    assert f"landed as {head[:12]}" in diff_lines(world.state, landed, runs=False)
    only_landed = replace(view_of(world), landing=LandingHistory(commit=head))
    git(world.top, "worktree", "remove", "--force", str(place.folder))
    git(world.top, "update-ref", "refs/heads/elsewhere", head)
    git(world.top, "branch", "-D", "bw/app-1/1")
    lines = diff_lines(world.state, only_landed, runs=False)
    assert lines[0] == f"landed as {head[:12]}" and "+one" in lines


def test_what_an_attempt_left_uncommitted_is_shown_from_the_kept_tree(tmp_path: Path) -> None:
    world = World(tmp_path)
    place = world.make("app-1")
    kept = commit(place.folder, "a.txt", "left behind\n")
    git(world.top, "update-ref", "refs/bw/attempts/app-1/1", kept)
    git(place.folder, "reset", "--quiet", "--hard", "HEAD^")
    assert "+left behind" in diff_lines(world.state, view_of(world), runs=False)


def test_a_killed_attempt_shows_its_worktree_in_which_the_next_one_goes_on(
    tmp_path: Path,
) -> None:
    world = World(tmp_path)
    place = world.make("app-1")
    commit(place.folder, "a.txt", "one\n")
    (place.folder / "a.txt").write_text("one\nnot committed\n")
    lines = diff_lines(world.state, view_of(world), runs=False)
    assert "in its worktree now" in lines[0] and {"+one", "+not committed"} <= {*lines}
    git(world.top, "worktree", "remove", "--force", str(place.folder))
    done = view_of(world, place, base=place.record.base)
    lines = diff_lines(world.state, done, runs=False)
    assert lines[0].startswith("bw/app-1/1 at ") and "+one" in lines


def test_an_attempt_without_a_trace_in_git_says_so(tmp_path: Path) -> None:
    world = World(tmp_path)
    hostile = view_of(world, None, base="--output=/tmp/x", head="--output=/tmp/x")
    (line,) = diff_lines(world.state, hostile, runs=False)
    assert line.startswith("nothing of this attempt is in the repository")


def test_a_diff_runs_no_program_of_the_branch_and_shows_no_control_characters(
    tmp_path: Path,
) -> None:
    world = World(tmp_path)
    place = world.make("app-1")
    ran = tmp_path / "ran"
    for key in ("diff.evil.command", "diff.evil.textconv", "core.pager", "diff.external"):
        git(world.top, "config", key, f"touch {ran};:")
    base = git(place.folder, "rev-parse", "HEAD")
    commit(place.folder, ".gitattributes", "* diff=evil\n")
    commit(place.folder, "a.txt", "\x1b[2J\u202eright to left\x07\ttab\n")
    lines, cut = diff(str(place.folder), "--patch", base)
    assert not ran.exists() and not cut
    assert "+\\x1b[2J\\u202eright to left\\x07        tab" in lines
    assert all(line.isprintable() for line in lines)


def test_a_long_diff_is_cut_at_a_whole_line_and_a_broken_one_is_an_error(tmp_path: Path) -> None:
    world = World(tmp_path)
    place = world.make("app-1")
    base = git(place.folder, "rev-parse", "HEAD")
    commit(place.folder, "long.txt", "".join(f"line {n:05d}\n" for n in range(20_000)))
    lines, cut = diff(str(place.folder), "--patch", base, bytes_max=10_000)
    assert cut and 800 < len(lines) < 900 and len(lines[-1]) == len("+line 00000")
    with pytest.raises(GitError, match="nowhere"):
        diff(str(place.folder), "nowhere")


def test_a_filter_that_hangs_ends_with_its_git(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path)
    place = world.make("app-1")
    base = commit(place.folder, "a.txt", "one\n")
    git(world.top, "config", "filter.slow.clean", "sleep 600")
    (place.folder / ".gitattributes").write_text("* filter=slow\n")
    (place.folder / "a.txt").write_text("two\n")
    monkeypatch.setenv(SECONDS_VARIABLE, "0.3")
    with pytest.raises(GitHangs, match="longer than"):
        diff(str(place.folder), "--patch", base)


# --- beside the dashboard ------------------------------------------------------------------------


def test_an_answer_stands_until_a_newer_one_has_come_and_is_never_anothers() -> None:
    beside: BackgroundAnswer[str] = BackgroundAnswer()
    may_answer = threading.Event()

    def later(answer: str) -> Callable[[], str]:
        return lambda: answer if may_answer.wait(20.0) else ""

    def answered(key: str, answer: str, stamp: int) -> bool:
        may_answer.set()
        found = (beside.of(key, later(answer), stamp=stamp) for _ in range(2000))
        said = any(each == answer or time.sleep(0.005) for each in found)
        may_answer.clear()
        return said

    assert beside.of("a", later("one")) is None
    assert answered("a", "one", 0)
    assert beside.of("a", later("two"), stamp=1) == "one"
    assert beside.of("b", later("other"), stamp=1) is None
    assert answered("b", "other", 1)


def test_a_reader_knows_the_attempt_before_it_asks_git_and_asks_no_tracker_in_a_replay(
    tmp_path: Path,
) -> None:
    world, run_id = World(tmp_path), "20261121-222640.000-aaaaaa"
    place = world.make("a")
    head = commit(place.folder, "a.txt", "one\n")
    script, said = Script(), Receipt(branch=place.record.branch, base=place.record.base, head=head)
    script.attempt("W1", "a", 1.0, 3.0, receipt=said)
    script.add(0.0, replace(started(), run_id=run_id, project=str(world.project)))
    script.write(world.state, run_id)
    snapshot = after(replace(BEGAN, run_id=run_id), elapsed=9.0)
    reader = AttemptReader(world.runs.run, why_lines, replay=True)
    pin = Pin("a", run_id, 1)
    assert reader.diff(AttemptView(pin), snapshot) is None

    def lines() -> list[str] | None:
        return reader.diff(reader.view(pin, snapshot), snapshot)

    found = until(lines)
    assert found[0] == f"bw/a/1 at {head[:12]}" and "+one" in found
    assert reader.why("a", snapshot) == ["(a replay does not ask the tracker)"]


def test_files_that_cannot_be_read_are_told_and_end_no_thread(tmp_path: Path) -> None:
    reader = AttemptReader(tmp_path.joinpath, why_lines)
    snapshot = after(elapsed=9.0)
    pin = Pin("a", snapshot["run_id"], 1)
    lines = until(lambda: reader.diff(reader.view(pin, snapshot), snapshot))
    assert reader.view(pin, snapshot) == AttemptView(pin)
    assert lines == ["nothing of this attempt is in the repository: no branch, no worktree"]
