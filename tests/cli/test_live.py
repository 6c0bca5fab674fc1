"""What the dashboard reads of an attempt: its log while it grows, and what git says of its work."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from beads_workers.cli import log_tail
from beads_workers.cli.log_tail import LogFile, LogTail, WorktreeDiff
from beads_workers.core import journal as rec
from beads_workers.executors.files import log_file, output_file
from beads_workers.ui.viewer import Look, Part, ShownAttempt
from tests.cli.test_agent_logs import BEGINS, EDITS, NOISE
from tests.support.repository import git
from tests.support.worktrees import World
from tests.ui.snapshots import after, ended, fleet


def add(path: Path, text: str) -> None:
    """A step prints this."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        file.write(text)


# --- a log file ----------------------------------------------------------------------------------


def test_a_log_is_read_on_from_where_it_ended_and_its_begun_line_is_shown(tmp_path: Path) -> None:
    path = tmp_path / "log"
    add(path, "one\ntwo\nthr")
    log = LogFile(path)
    log.read()
    assert log.shown == ["one", "two", "thr"]
    add(path, "ee\nfour\n")
    log.read()
    assert log.shown == ["one", "two", "three", "four"] and log.first == 0


def test_of_a_large_log_the_end_is_read_from_a_whole_line_on(tmp_path: Path) -> None:
    path = tmp_path / "log"
    add(path, "".join(f"line {number:04d}\n" for number in range(1000)))
    log = LogFile(path, bytes_max=95)
    log.read()
    assert log.shown == [f"line {number:04d}" for number in range(991, 1000)]


def test_more_lines_than_are_kept_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_tail, "LOG_LINES_MAX", 10)
    path = tmp_path / "log"
    add(path, "".join(f"{number}\n" for number in range(25)))
    log = LogFile(path)
    log.read()
    assert log.first == 15 and log.shown == [str(number) for number in range(15, 25)]
    add(path, "25\n")
    log.read()
    assert log.first == 16 and log.shown[-1] == "25"


def test_lines_of_agents_are_readable_and_control_characters_do_nothing(tmp_path: Path) -> None:
    path = tmp_path / "log"
    add(path, f"{BEGINS}\n{EDITS}\n{NOISE}\n\x1b]0;title\x07 plain \x1b[31m\n" + '{"type": "cut')
    log = LogFile(path)
    log.read()
    assert log.shown[1] == "editing a.py" and len(log.shown) == 3
    assert all(line.isprintable() for line in log.shown)


# --- the log of what is looked at ----------------------------------------------------------------


def of(look: Look, folder: Path, *records: rec.Record, tail: LogTail | None = None) -> list[str]:
    """What is shown of the attempt that a look is at."""
    tail = tail or LogTail(folder.joinpath)
    return list(tail.read(look, after(*records)).lines)


def run_folder(folder: Path) -> str:
    """Of the run in ``snapshots``."""
    return str(folder / "20261121-031500.000-abcdef")


def test_the_log_is_that_of_the_chosen_attempt_running_or_ended(tmp_path: Path) -> None:
    folder = run_folder(tmp_path)
    add(Path(output_file(folder, "W1")), "running\n")
    add(Path(log_file(folder, "app-9", 1)), "was done\n")
    records = (*fleet(2, busy=1), ended("app-9", "W2"))
    assert of(Look(), tmp_path, *records) == ["running"]
    assert of(Look(chosen={Part.WORKERS: "W2"}), tmp_path, *records) == ["was done"]
    assert of(Look(part=Part.ENDED), tmp_path, *records) == ["was done"]
    nothing = LogTail(tmp_path.joinpath).read(Look(), after(*fleet(1)))
    assert nothing.title == "W1 has run nothing yet" and not nothing.lines


def test_the_next_attempt_of_a_worker_starts_with_an_empty_log(tmp_path: Path) -> None:
    tail, path = LogTail(tmp_path.joinpath), Path(output_file(run_folder(tmp_path), "W1"))
    first = fleet(1, busy=1)
    add(path, "short\n")
    assert of(Look(), tmp_path, *first, tail=tail) == ["short"]
    path.unlink()
    add(path, "a longer one than before\n")
    second = (*first, ended("app-1"), rec.Started("app-2", "W1", 1, "r2", "next"))
    assert of(Look(), tmp_path, *second, tail=tail) == ["a longer one than before"]


def test_a_log_that_was_cut_or_is_gone_is_read_anew(tmp_path: Path) -> None:
    tail, path = LogTail(tmp_path.joinpath), Path(output_file(run_folder(tmp_path), "W1"))
    records = fleet(1, busy=1)
    assert tail.read(Look(), after(*records)).title.endswith("nothing printed yet")
    over = after(*records, ended("app-1"))
    assert tail.read(Look(), over).title.endswith("it printed nothing")
    add(path, "one\ntwo\n")
    assert of(Look(), tmp_path, *records, tail=tail) == ["one", "two"]
    path.write_text("new\n")
    assert of(Look(), tmp_path, *records, tail=tail) == ["new"]
    path.unlink()
    assert of(Look(), tmp_path, *records, tail=tail) == []


# --- what an attempt has changed -----------------------------------------------------------------


def changes_of(changes: WorktreeDiff, shown: ShownAttempt, run: Path) -> str:
    """What git says, after it was asked."""
    changes.of(shown, run)
    for _ in range(1000):
        if changes.of(shown, run):
            break
        time.sleep(0.01)
    return changes.of(shown, run)


def test_what_a_running_attempt_changes_is_counted_with_what_is_new(tmp_path: Path) -> None:
    world = World(tmp_path)
    place = world.make("app-1", 2)
    run = world.runs.run(world.run_id)
    (place.folder / "README.md").write_text("other\n")
    git(place.folder, "add", "-A")
    git(place.folder, "commit", "-qm", "first")
    (place.folder / "new.py").write_text("x = 1\n")
    shown = ShownAttempt("app-1", 2, "W1", running=True, row={})
    said = changes_of(WorktreeDiff(), shown, run)
    assert "1 file changed" in said and said.endswith(", 1 new file")
    world.make("app-1", 3, continues=True)
    next_one = ShownAttempt("app-1", 3, "W1", running=True, row={})
    assert changes_of(WorktreeDiff(), next_one, run) == said
    other = ShownAttempt("app-2", 1, "W1", running=True, row={})
    assert WorktreeDiff().of(other, run) == ""


def test_a_worktree_that_is_gone_changes_nothing(tmp_path: Path) -> None:
    assert log_tail._changes(str(tmp_path / "gone"), "main") == ""
