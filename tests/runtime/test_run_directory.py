"""The run directory: locks that prove life, and what earlier runs left."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from beads_workers.core.records import journal as rec
from beads_workers.runtime.journal import Journal
from beads_workers.runtime.locks import try_lock
from beads_workers.runtime.run_directory import AlreadyRunning, RunDirectory, RunInfo, lock_tracker


@pytest.fixture
def directory(tmp_path: Path) -> RunDirectory:
    made = RunDirectory(tmp_path / ".beads-workers")
    made.create()
    return made


def run_with(directory: RunDirectory, run_id: str, *records: rec.Record) -> None:
    """A crashed run that wrote these records."""
    directory.run(run_id).mkdir()
    journal = Journal(directory.run(run_id) / "journal.jsonl")
    for record in (rec.RunStarted(run_id, 1, f"actor/{run_id}", "memory", "/p"), *records):
        journal.append(record)
    journal.flush()
    journal.close()


SUCCESS = rec.Finished("a", "W1", 1, "r", "success", "finish")
FAILURE = rec.Finished("b", "W1", 1, "r", "error", "requeue", "boom", charged=1)
QUARANTINED = rec.Finished("b", "W1", 1, "r", "error", "quarantined", "boom", charged=1)


def test_it_is_ours_alone_and_out_of_git(directory: RunDirectory) -> None:
    assert stat.S_IMODE(directory.root.stat().st_mode) == 0o700
    assert (directory.root / ".gitignore").read_text() == "*\n"


def test_the_lock_is_held_as_long_as_its_owner_process_lives(directory: RunDirectory) -> None:
    assert not directory.is_locked()
    fd = directory.lock()
    assert directory.is_locked()
    with pytest.raises(AlreadyRunning):
        directory.lock()
    os.close(fd)
    assert not directory.is_locked()


def test_alive_is_held_by_whoever_inherited_it(directory: RunDirectory) -> None:
    run_id, fd = directory.create_run()
    release, wait = os.pipe()[::-1]
    child = os.fork()
    if child == 0:
        os.close(release)
        os.read(wait, 1)  # Until the other end is closed.
        os._exit(0)
    os.close(fd)
    assert directory.is_alive(run_id), "the child still has it"
    os.close(release)
    os.waitpid(child, 0)
    os.close(wait)
    assert not directory.is_alive(run_id)


def test_looking_at_a_lock_does_not_take_it(tmp_path: Path) -> None:
    directory = RunDirectory(tmp_path)
    directory.create()
    (tmp_path / "lock").touch()
    assert not directory.is_locked()
    fd = try_lock(tmp_path / "lock")
    assert fd is not None
    os.close(fd)


def test_who_runs_here_comes_back_as_it_was_written(directory: RunDirectory) -> None:
    assert directory.read_info() is None
    info = RunInfo(7, 8, "r", "/s", "/c", "/p", "bd", ("start", "-n", "2"), "/f")
    directory.write_info(info)
    assert directory.read_info() == info


@pytest.mark.parametrize("text", ["", "{", "[]", "7", '{"pid": 7}', '{"argv": 7}'])
def test_a_broken_run_json_is_none(directory: RunDirectory, text: str) -> None:
    (directory.root / "run.json").write_text(text)
    assert directory.read_info() is None


def test_a_control_socket_with_too_long_a_path_gets_a_short_name() -> None:
    short, long = RunDirectory(Path("/p/.bw")), RunDirectory(Path("/p") / ("x" * 100) / ".bw")
    assert short.control_socket == Path("/p/.bw/control.sock")
    assert long.control_socket.parent == Path(f"/tmp/beads-workers-{os.getuid()}")
    assert long.control_socket != RunDirectory(Path("/p") / ("y" * 100) / ".bw").control_socket


def test_two_runs_that_died_have_their_own_writes_pending_and_the_last_knows_all(
    directory: RunDirectory,
) -> None:
    run_with(directory, "1", FAILURE, SUCCESS)
    run_with(directory, "2", rec.Checkpointed("b", charged=1))  # Died in its checkpoint.
    unsettled, last = directory.left_over()
    assert [left.run_id for left in unsettled] == ["1", "2"]
    assert last.retry_entries["b"].charged == 1
    assert last.unclosed == {"a": "actor/1"}


def test_what_a_later_run_has_heard_of_is_not_pending_again(directory: RunDirectory) -> None:
    run_with(directory, "1", SUCCESS)
    closed = rec.SettledRecord("a", "close", "applied", "")
    run_with(directory, "2", rec.CheckpointEnded(), closed)
    unsettled, last = directory.left_over()
    assert [left.unclosed for left in unsettled] == [{}, {}]
    assert last.unclosed == {}


def test_what_a_later_run_has_settled_counts_although_that_one_is_settled(
    directory: RunDirectory,
) -> None:
    run_with(directory, "1", SUCCESS)
    closed = rec.SettledRecord("a", "close", "applied", "")
    run_with(directory, "2", rec.CheckpointEnded(), closed)
    run_with(directory, "3", rec.CheckpointEnded())
    directory.mark_settled("2")
    directory.mark_settled("3")
    unsettled, _ = directory.left_over()
    assert [(left.run_id, left.unclosed) for left in unsettled] == [("1", {})]


def test_what_a_later_run_has_pending_itself_is_not_pending_by_an_earlier_one(
    directory: RunDirectory,
) -> None:
    run_with(directory, "1", rec.ClaimDelegated("b", "W1"))
    run_with(directory, "2", rec.CheckpointEnded(), rec.Claimed("b", "b", 2), QUARANTINED)
    unsettled, _ = directory.left_over()
    assert [(set(left.handed_over), set(left.quarantined)) for left in unsettled] == [
        (set(), set()),
        (set(), {"b"}),
    ]


def test_a_settled_run_has_nothing_pending_but_its_memory_goes_on(directory: RunDirectory) -> None:
    run_with(directory, "1", FAILURE)
    directory.mark_settled("1")
    unsettled, last = directory.left_over()
    assert unsettled == [] and last.retry_entries["b"].charged == 1


def test_a_run_that_wrote_nothing_hides_none_before_it(directory: RunDirectory) -> None:
    run_with(directory, "1", FAILURE)
    directory.run("2").mkdir()
    (directory.run("2") / "journal.jsonl").write_bytes(b'{"v":1,"e":"run_sta')
    _, last = directory.left_over()
    assert last.run_id == "1" and "b" in last.retry_entries


def test_a_start_that_was_refused_does_not_hide_the_run_before_it(directory: RunDirectory) -> None:
    assert directory.last_run() == ""
    directory.run("0").mkdir()
    assert directory.last_run() == "0"
    run_with(directory, "1")
    directory.run("2").mkdir()
    asked = Journal(directory.run("2") / "journal.jsonl")
    asked.append(rec.CallStarted(7, 1, ("bd", "info")))
    asked.flush()
    assert directory.last_run() == "1"
    asked.append(rec.RunStarted("2", 1, "actor/2", "memory", "/p"))
    asked.flush()
    assert directory.last_run() == "2"


def test_runs_are_in_the_order_of_their_making_whatever_the_clock_says(
    directory: RunDirectory,
) -> None:
    directory.create()
    made = [directory.create_run()[0] for _ in range(5)]
    assert directory.run_ids() == made
    (directory.runs / "29991231-235959.007-abcdef").mkdir()
    later, _ = directory.create_run()
    assert later.startswith("29991231-235959.008-")


def test_one_tracker_is_locked_once_whoever_asks(tmp_path: Path) -> None:
    held = lock_tracker(tmp_path)
    (tmp_path / "link").symlink_to(tmp_path)
    with pytest.raises(AlreadyRunning):
        lock_tracker(tmp_path / "link")
    os.close(held)
    os.close(lock_tracker(tmp_path))


def test_a_tracker_is_shared_by_those_who_say_so_and_by_nobody_else(tmp_path: Path) -> None:
    sharing = [lock_tracker(tmp_path, shared=True) for _ in range(2)]
    with pytest.raises(AlreadyRunning, match=r"works on \S+$"):
        lock_tracker(tmp_path)
    for fd in sharing:
        os.close(fd)
    alone = lock_tracker(tmp_path)
    with pytest.raises(AlreadyRunning, match="without --shared"):
        lock_tracker(tmp_path, shared=True)
    os.close(alone)
