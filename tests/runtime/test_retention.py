"""What is kept of old runs: enough of them, never too much, and never what somebody needs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from beads_workers.core.base import limits
from beads_workers.core.records import journal as rec
from beads_workers.runtime.journal import Journal
from beads_workers.runtime.locks import try_lock
from beads_workers.runtime.retention import Keep, disposable, remove, rotate, trim_attempts
from beads_workers.runtime.run_directory import RunDirectory, host_name

FAILURE = rec.Finished("b", "W1", 1, "r", "error", "requeue", "boom", charged=1)


@pytest.fixture
def directory(tmp_path: Path) -> RunDirectory:
    made = RunDirectory(tmp_path / ".beads-workers")
    made.create()
    return made


def run(
    directory: RunDirectory,
    run_id: str,
    *records: rec.Record,
    settled: bool = True,
    complete: bool = True,
    host: str = "",
    log_bytes: int = 0,
) -> Path:
    """A run that is over."""
    folder = directory.run(run_id)
    (folder / "logs").mkdir(parents=True)
    (folder / "logs" / "a.1.log").write_bytes(b"x" * log_bytes)
    journal = Journal(folder / "journal.jsonl")
    actor = f"beads-workers/{host or host_name()}/{run_id}"
    checkpoint = [rec.CheckpointEnded()] if complete else []
    # A look at the tracker stands before the first record.
    for record in (rec.CallStarted(1, 1), rec.RunStarted(run_id, 1, actor, "memory", "/p")):
        journal.append(record)
    for record in (*checkpoint, *records):
        journal.append(record)
    journal.flush()
    journal.close()
    if settled:
        directory.mark_settled(run_id)
    return folder


def names(folders: list[Path]) -> list[str]:
    return [folder.name for folder in folders]


def test_the_last_runs_are_kept_and_older_ones_go(directory: RunDirectory) -> None:
    for number in range(5):
        run(directory, f"{number}")
    gone = disposable(directory, Keep(3))
    assert names(gone) == ["0", "1"]
    remove(gone)
    assert directory.run_ids() == ["2", "3", "4"]


def test_when_they_take_too_much_room_the_oldest_go_first(directory: RunDirectory) -> None:
    for number in range(4):
        run(directory, f"{number}", log_bytes=100_000)
    assert names(disposable(directory, Keep(10, 350_000))) == ["0"]
    assert names(disposable(directory, Keep(10, 0))) == ["0", "1", "2"], "never the last one"
    assert disposable(directory, Keep(10, 1 << 30)) == []


def test_what_is_alive_owed_or_of_another_machine_stays(directory: RunDirectory) -> None:
    run(directory, "0", settled=False)
    run(directory, "1")
    run(directory, "2", host="elsewhere")
    run(directory, "3")
    run(directory, "4")
    alive = try_lock(directory.run("1") / "alive")
    assert alive is not None
    assert names(disposable(directory, Keep(1, 0))) == ["3"]
    os.close(alive)
    assert names(disposable(directory, Keep(1, 0))) == ["1", "3"]


def test_the_run_that_remembers_stays_until_another_does(directory: RunDirectory) -> None:
    run(directory, "0")
    run(directory, "1", FAILURE)
    run(directory, "2", complete=False)
    assert names(disposable(directory, Keep(1, 0))) == ["0"]
    assert directory.left_over()[1].retry_entries["b"].charged == 1
    run(directory, "3", rec.Checkpointed("b", charged=1))
    assert names(disposable(directory, Keep(1, 0))) == ["0", "1", "2"]


def test_a_log_that_is_being_read_is_read_to_its_end(directory: RunDirectory) -> None:
    folder = run(directory, "0", log_bytes=10)
    run(directory, "1")
    with (folder / "logs" / "a.1.log").open() as log:
        rotate(directory, Keep(1)).join()
        assert not folder.exists()
        assert log.read() == "x" * 10


def test_an_unsettled_run_of_another_machine_is_named_and_left_alone(
    directory: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(directory, "0", FAILURE, settled=False, host="elsewhere")
    run(directory, "1", settled=False)
    unsettled, last = directory.left_over()
    assert [left.run_id for left in unsettled] == ["1"] and last.retry_entries == {}
    assert directory.foreign() == [("0", "elsewhere")]
    monkeypatch.setenv("BEADS_WORKERS_HOST", "elsewhere")
    assert [left.run_id for left in directory.left_over()[0]] == ["0"]
    assert directory.foreign()[0][0] == "1"


def test_of_a_run_without_end_the_newest_logs_and_results_stay(tmp_path: Path) -> None:
    most = limits.ATTEMPT_FILES_MAX
    for name, count in (("logs", most + 1), ("results", most)):
        (tmp_path / name).mkdir()
        for number in range(count):
            file = tmp_path / name / f"a{number}.1.log"
            file.touch()
            os.utime(file, (number, number))
    (tmp_path / "logs" / ".W1.out").touch()
    os.utime(tmp_path / "logs" / ".W1.out", (0, 0))
    trim_attempts(tmp_path)
    left = {path.name for path in (tmp_path / "logs").iterdir()}
    newest = {f"a{number}.1.log" for number in range(most + 1 - most * 9 // 10, most + 1)}
    assert left == newest | {".W1.out"}
    assert len(list((tmp_path / "results").iterdir())) == most


def test_a_run_without_logs_is_left_alone(tmp_path: Path) -> None:
    trim_attempts(tmp_path / "nowhere")
