"""What the dashboard reads of an attempt: its log while it grows, and what git says of its work."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from beads_workers.cli.live import shortened
from beads_workers.core.base.text import columns
from beads_workers.core.records import journal as rec
from beads_workers.core.views.history import Attempt
from beads_workers.executors.files import log_file, output_file
from beads_workers.ui import bindings
from beads_workers.ui.attempt_view import AttemptView, Pin, Tried
from beads_workers.ui.viewer import Pane, Part, Screen, ShownAttempt, ShownLog
from beads_workers.ui.wrapping import Wrapping
from beads_workers.views import logs
from beads_workers.views.attempt_files import save
from beads_workers.views.background import LogTail, changes_in_worktree
from beads_workers.views.logs import LogFile
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


def test_an_answer_about_many_issues_counts_them() -> None:
    few = "will be retried: a, b"
    many = "will be retried: " + ", ".join(f"app-{n}" for n in range(30))
    assert shortened(few) == few and shortened("draining") == "draining"
    assert shortened(many) == "will be retried: 30 issues"


def test_a_log_is_read_on_from_where_it_ended_and_its_begun_line_is_shown(tmp_path: Path) -> None:
    path = tmp_path / "log"
    add(path, "one\ntwo\nthr")
    log = LogFile(path)
    log.read(NOW)
    assert log.shown == ["one", "two", "thr"]
    add(path, "ee\nfour\n")
    log.read(NOW)
    assert log.shown == ["one", "two", "three", "four"] and log.first == 0


def test_of_a_large_log_the_end_is_read_from_a_whole_line_on(tmp_path: Path) -> None:
    path = tmp_path / "log"
    add(path, "".join(f"line {number:04d}\n" for number in range(1000)))
    log = LogFile(path, bytes_max=95)
    log.read(NOW)
    assert log.shown == [f"line {number:04d}" for number in range(991, 1000)]


def test_more_lines_than_are_kept_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "LOG_LINES_MAX", 10)
    path = tmp_path / "log"
    add(path, "".join(f"{number}\n" for number in range(25)))
    log = LogFile(path)
    log.read(NOW)
    assert log.first == 15 and log.shown == [str(number) for number in range(15, 25)]
    add(path, "25\n")
    log.read(NOW)
    assert log.first == 16 and log.shown[-1] == "25"


def test_lines_of_agents_are_readable_and_control_characters_do_nothing(tmp_path: Path) -> None:
    path = tmp_path / "log"
    add(path, f"{BEGINS}\n{EDITS}\n{NOISE}\n\x1b]0;title\x07 plain \x1b[31m\n" + '{"type": "cut')
    log = LogFile(path)
    log.read(NOW)
    assert log.shown[1] == "editing a.py" and len(log.shown) == 3
    assert all(line.isprintable() for line in log.shown)


# --- the log of what is looked at ----------------------------------------------------------------


def of(
    screen: Screen, folder: Path, *records: rec.Record, tail: LogTail | None = None
) -> list[str]:
    """What is shown of the attempt that a look is at."""
    tail = tail or LogTail(folder.joinpath)
    return list(tail.read(screen, after(*records)).lines)


def run_folder(folder: Path) -> str:
    """Of the run in ``snapshots``."""
    return str(folder / "20261121-031500.000-abcdef")


def test_the_log_is_that_of_the_chosen_attempt_running_or_ended(tmp_path: Path) -> None:
    folder = run_folder(tmp_path)
    add(Path(output_file(folder, "W1")), "running\n")
    add(Path(log_file(folder, "app-9", 1)), "was done\n")
    records = (*fleet(2, busy=1), ended("app-9", "W2"))
    assert of(Screen(), tmp_path, *records) == ["running"]
    assert of(Screen(chosen={Part.WORKERS: "W2"}), tmp_path, *records) == ["was done"]
    assert of(Screen(part=Part.ENDED), tmp_path, *records) == ["was done"]
    nothing = LogTail(tmp_path.joinpath).read(Screen(), after(*fleet(1)))
    assert nothing.title == "W1 has run nothing yet" and not nothing.lines


def test_the_next_attempt_of_a_worker_starts_with_an_empty_log(tmp_path: Path) -> None:
    tail, path = LogTail(tmp_path.joinpath), Path(output_file(run_folder(tmp_path), "W1"))
    first = fleet(1, busy=1)
    add(path, "short\n")
    assert of(Screen(), tmp_path, *first, tail=tail) == ["short"]
    path.unlink()
    add(path, "a longer one than before\n")
    second = (*first, ended("app-1"), rec.Started("app-2", "W1", 1, "r2", "next"))
    assert of(Screen(), tmp_path, *second, tail=tail) == ["a longer one than before"]


def test_a_log_that_was_cut_or_is_gone_is_read_anew(tmp_path: Path) -> None:
    tail, path = LogTail(tmp_path.joinpath), Path(output_file(run_folder(tmp_path), "W1"))
    records = fleet(1, busy=1)
    assert tail.read(Screen(), after(*records)).title.endswith("nothing printed yet")
    over = after(*records, ended("app-1"))
    assert tail.read(Screen(), over).title.endswith("it printed nothing")
    add(path, "one\ntwo\n")
    assert of(Screen(), tmp_path, *records, tail=tail) == ["one", "two"]
    path.write_text("new\n")
    assert of(Screen(), tmp_path, *records, tail=tail) == ["new"]
    path.unlink()
    assert of(Screen(), tmp_path, *records, tail=tail) == []


def test_the_log_of_an_open_attempt_is_read_in_the_folder_of_its_own_run(tmp_path: Path) -> None:
    earlier = "20261120-031500.000-aaaaaa"
    add(Path(log_file(str(tmp_path / earlier), "app-1", 2)), "in the run before\n")
    add(Path(output_file(run_folder(tmp_path), "W1")), "of another attempt\n")
    screen = Screen(pane=Pane.LOG, opened=Pin("app-1", earlier, 2, "W1"))
    one = Attempt("r", "app-1", "", 2, "W1", 2, 1.0, 2.0, 1.0, "error")
    view = AttemptView(Pin("app-1", earlier, 2, "W1"), "", (Tried(earlier, 1.0, one),), 0)
    assert of(replace(screen, view=view), tmp_path, *fleet(1, busy=1)) == ["in the run before"]
    assert of(screen, tmp_path, *fleet(1, busy=1)) == ["in the run before"]


def test_an_open_log_does_not_go_over_to_what_its_worker_runs_next(tmp_path: Path) -> None:
    folder, records = run_folder(tmp_path), fleet(1, busy=1)
    tail, path = LogTail(tmp_path.joinpath), Path(output_file(folder, "W1"))
    screen, _ = bindings.press(Screen(), "enter", after(*records))
    add(path, "one\n")
    assert of(screen, tmp_path, *records, tail=tail) == ["one"]
    path.rename(log_file(folder, "app-1", 1))
    add(path, "of the next\n")
    records += [ended("app-1"), rec.Started("app-2", "W1", 1, "r2", "next")]
    assert of(screen, tmp_path, *records, tail=tail) == ["one"]


def test_lines_have_the_time_at_which_they_came_or_that_their_agent_says(tmp_path: Path) -> None:
    path = tmp_path / "log"
    said = json.loads(EDITS) | {"timestamp": "2026-11-28T03:04:05Z"}
    add(path, f"{BEGINS}\nold\n{json.dumps(said)}\n")
    log = LogFile(path)
    log.read(NOW)
    at = datetime.fromisoformat("2026-11-28T03:04:05Z").timestamp()
    assert log.times == [None, None, at]
    add(path, "new\n")
    log.read(NOW)
    assert log.times[-1] == NOW and len(log.times) == len(log.lines)
    moved = tmp_path / "moved"
    path.rename(moved)
    later = LogFile(moved)
    later.read(NOW)
    assert later.times[-1] is None
    later.goes_on_with(log)
    assert later.times == log.times


# --- rows of a text ------------------------------------------------------------------------------


NOW = 1_700_000_000.0


@given(st.lists(st.text("ab \u65e5\u0301", max_size=40)), st.integers(1, 12), st.data())
def test_a_text_that_grows_is_wrapped_as_if_it_had_been_there_at_once(
    lines: list[str], width: int, data: st.DataObject
) -> None:
    wrapping = Wrapping()
    for end in sorted(data.draw(st.lists(st.integers(0, len(lines)), max_size=4))):
        # The last line may not be whole yet.
        wrapping.of(ShownLog("x", [*lines[:end], "begun"]), width)
    whole = wrapping.of(ShownLog("x", lines), width)
    assert whole == Wrapping().of(ShownLog("x", lines), width)
    assert all(columns(row) <= max(2, width) for row in whole.lines)


@given(
    st.lists(st.text("ab ", max_size=20), min_size=8, max_size=30),
    st.lists(st.tuples(st.integers(0, 5), st.integers(1, 5)), max_size=5),
)
def test_a_text_that_loses_its_beginning_is_wrapped_as_if_it_had_begun_there(
    lines: list[str], steps: list[tuple[int, int]]
) -> None:
    wrapping, first, end = Wrapping(), 0, 1
    for lost, more in steps:
        end = min(len(lines), end + more)
        first = min(first + lost, end - 1)
        text = ShownLog("x", lines[first:end], first)
        assert wrapping.of(text, 7) == Wrapping().of(text, 7)


def test_a_row_of_a_wrapped_text_is_safe_to_show_and_only_a_lines_first_one_has_its_time() -> None:
    text = ShownLog("x", ["\x1b[2J\u202e", "b" * 9], times=("", "12:00:00"))
    shown = Wrapping().of(text, 6)
    assert list(shown.lines) == ["\\x1b[2", "J\\u202", "e", "bbbbbb", "bbb"]
    assert list(shown.times) == ["", "", "", "12:00:00", ""]
    assert Wrapping().of(ShownLog("x"), 6).lines == []


# --- saving --------------------------------------------------------------------------------------


def test_a_whole_log_is_saved_as_it_is_read_and_no_file_is_replaced(tmp_path: Path) -> None:
    log, there = tmp_path / "log", tmp_path / "there"
    add(log, f"{BEGINS}\n{EDITS}\n\x1b[31mred\x1b[m\n")
    said = save(str(tmp_path / "new"), log, ["only the end"])
    assert said == f"3 lines in {tmp_path / 'new'}"
    assert (tmp_path / "new").read_text() == f"{BEGINS}\nediting a.py\nred\n"
    there.write_text("mine\n")
    (tmp_path / "link").symlink_to(there)
    for name in ("there", "link"):
        assert "is there already" in save(str(tmp_path / name), None, ["x"])
    assert there.read_text() == "mine\n"
    assert "cannot be written: No such file" in save(str(tmp_path / "no" / "x"), None, [])
    assert "cannot be written" in save("~nobody-of-this-name/x", None, [])
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o600
    assert save(str(tmp_path / "diff"), None, ["+a", "-b"]).startswith("2 lines in ")
    assert (tmp_path / "diff").read_text() == "+a\n-b\n"


# --- what an attempt has changed -----------------------------------------------------------------


def test_what_a_running_attempt_changes_is_counted_with_what_is_new(tmp_path: Path) -> None:
    world = World(tmp_path)
    place = world.make("app-1", 2)
    (place.folder / "README.md").write_text("other\n")
    git(place.folder, "add", "-A")
    git(place.folder, "commit", "-qm", "first")
    (place.folder / "new.py").write_text("x = 1\n")
    shown = ShownAttempt("app-1", 2, "W1", running=True, row={})
    said = changes_in_worktree(world.runs.run(world.run_id).parent.parent, shown)
    assert "1 file changed" in said and said.endswith(", 1 new file")
    world.make("app-1", 3, continues=True)
    next_one = ShownAttempt("app-1", 3, "W1", running=True, row={})
    assert changes_in_worktree(world.runs.run(world.run_id).parent.parent, next_one) == said
    other = ShownAttempt("app-2", 1, "W1", running=True, row={})
    assert changes_in_worktree(world.runs.run(world.run_id).parent.parent, other) == ""


def test_a_worktree_that_is_gone_changes_nothing(tmp_path: Path) -> None:
    world = World(tmp_path)
    shutil.rmtree(world.make("app-1", 2).folder)
    shown = ShownAttempt("app-1", 2, "W1", running=True, row={})
    assert changes_in_worktree(world.runs.run(world.run_id).parent.parent, shown) == ""
