"""``report``: which run it tells of, in which form, and what it says where there is none."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.support import warm
from tests.support.journals import night

OLD, NEW = "20261120-010101.000-aaaaaa", "20261121-010101.000-bbbbbb"


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """The run directory of a project with two runs."""
    night(10, 2, seed=1).write(tmp_path, OLD)
    night(30, 2, seed=2).write(tmp_path, NEW)
    return tmp_path


def report(state: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The command, as a person would give it."""
    words = ("report", "--state-dir", str(state), *arguments)
    return warm.run(words, Path.cwd(), {**os.environ, "COLUMNS": "80"}, timeout=60)


@pytest.mark.parametrize(
    ("asked", "attempts"), [((), 30), ((OLD,), 10), (("20261120",), 10), (("20261121-01",), 30)]
)
def test_a_run_is_found_by_its_beginning_and_else_the_last(
    state: Path, asked: tuple[str, ...], attempts: int
) -> None:
    done = report(state, *asked, "--json")
    assert done.returncode == 0, done.stderr
    assert len(json.loads(done.stdout)["attempts"]) == attempts


def test_an_unknown_run_is_answered_with_those_that_there_are(state: Path) -> None:
    done = report(state, "1999")
    assert done.returncode == 4
    assert done.stderr == f"error: no run 1999\nhint: there are: {NEW}, {OLD}\n"


def test_a_beginning_of_two_runs_is_no_answer(state: Path) -> None:
    done = report(state, "2026")
    assert done.returncode == 2 and OLD in done.stderr and NEW in done.stderr


def test_without_a_run_it_says_how_to_get_one(tmp_path: Path) -> None:
    done = report(tmp_path)
    assert done.returncode == 1 and "beads-workers start" in done.stderr


def test_a_pipe_gets_plain_lines(state: Path) -> None:
    done = report(state)
    assert done.returncode == 0 and "\x1b" not in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80


def test_the_page_goes_to_a_file_or_to_stdout(state: Path) -> None:
    file = state / "r.html"
    assert report(state, "--html", str(file)).returncode == 0
    assert report(state, "--html", "-").stdout == file.read_text(encoding="utf-8")


def test_a_page_that_cannot_be_written_is_one_line(state: Path) -> None:
    done = report(state, "--html", str(state / "no" / "r.html"))
    assert done.returncode == 1
    assert done.stderr.startswith(f"error: cannot write {state}/no/r.html: ")


def test_two_forms_at_once_are_refused(state: Path) -> None:
    assert report(state, "--json", "--html", "-").returncode == 2


def test_a_run_that_wrote_nothing_is_named_and_hides_none(state: Path) -> None:
    later = "20261122-010101.000-cccccc"
    (state / "runs" / later).mkdir()
    assert report(state).returncode == 0
    done = report(state, later)
    assert done.returncode == 4 and later in done.stderr
