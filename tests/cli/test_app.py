"""How every command ends: its errors, its hints and its exit codes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from beads_workers import __version__

PROGRAM = str(Path(sys.executable).parent / "beads-workers")


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """One command, to its end."""
    return subprocess.run(
        [PROGRAM, *arguments], cwd=folder, capture_output=True, text=True, timeout=60
    )


@pytest.mark.parametrize("arguments", [["nosuch"], ["scale"], ["scale", "x"], ["start", "--nope"]])
def test_a_usage_error_is_one_line_and_a_hint(tmp_path: Path, arguments: list[str]) -> None:
    ended = run(tmp_path, *arguments)
    error, hint = ended.stderr.splitlines()
    assert (ended.returncode, ended.stdout) == (2, "")
    assert error.startswith("error: ") and hint.startswith("hint: ") and "--help" in hint


@pytest.mark.parametrize("arguments", [["--version"], ["version"], ["-v"], ["-V"]])
def test_the_version_is_said_however_it_is_asked_for(tmp_path: Path, arguments: list[str]) -> None:
    assert run(tmp_path, *arguments).stdout == __version__ + "\n"


def test_the_version_as_json(tmp_path: Path) -> None:
    assert json.loads(run(tmp_path, "version", "--json").stdout) == {"version": __version__}


@pytest.mark.parametrize("words", [["list"], [], ["dep", "add"]])
def test_help_is_a_word_too(tmp_path: Path, words: list[str]) -> None:
    asked, ended = run(tmp_path, "help", *words), run(tmp_path, *words, "--help")
    assert (asked.returncode, asked.stdout) == (0, ended.stdout) and "Usage" in asked.stdout


@pytest.mark.parametrize("command", ["status", "stop", "wait", "pause", "resume"])
def test_without_a_fleet_they_say_so_with_exit_3(tmp_path: Path, command: str) -> None:
    ended = run(tmp_path, command)
    assert ended.returncode == 3
    assert ended.stderr.startswith("error: no fleet is running here\nhint: ")


@pytest.mark.parametrize(
    "arguments", [["start", "--", "true"], ["list"], ["export"], ["show", "x"]]
)
def test_without_a_tracker_they_say_which_command_helps(
    tmp_path: Path, arguments: list[str]
) -> None:
    ended = run(tmp_path, *arguments)
    assert ended.returncode == 6
    assert "beads-workers init" in ended.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [(["import", "-"], "'bd import'"), (["add", "x"], "error: bd"), (["list"], "error: bd")],
)
def test_in_a_project_of_bd_it_is_bd_that_is_named(
    tmp_path: Path, arguments: list[str], said: str
) -> None:
    (tmp_path / ".beads").mkdir()
    ended = run(tmp_path, *arguments)
    assert ended.returncode == 6
    assert said in ended.stderr and "beads-workers init" not in ended.stderr


def test_nothing_in_the_projects_folder_is_imported(tmp_path: Path) -> None:
    (tmp_path / "queue.py").write_text("raise SystemExit('imported')")
    for arguments in (["init"], ["add", "x", "--", "true"], ["start", "--until-empty"]):
        ended = run(tmp_path, *arguments)
        assert ended.returncode == 0, ended.stderr


def test_another_system_than_linux_is_one_line_but_for_help(tmp_path: Path) -> None:
    other = "import os, sys; del os.pidfd_open; from beads_workers.cli.app import main; main()"

    def run_there(*arguments: str) -> subprocess.CompletedProcess[str]:
        words = [sys.executable, "-c", other, *arguments]
        return subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=60)

    ended = run_there("start", "--", "true")
    assert (ended.returncode, ended.stdout) == (1, "")
    error, hint = ended.stderr.splitlines()
    assert error.startswith("error: this system cannot run a fleet: no pidfd_open")
    assert hint.startswith("hint: ")
    assert "Only issues of these types" in run_there("start", "--help").stdout
    assert run_there("--version").stdout == __version__ + "\n"


def test_a_folder_that_is_gone_is_one_line(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    script = f'rmdir "{gone}"; exec "{sys.executable}" -P -m beads_workers doctor'
    done = subprocess.run(
        ["sh", "-c", script], cwd=gone, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr.splitlines()[0]) == (
        1,
        "error: the folder you are in is gone",
    )
