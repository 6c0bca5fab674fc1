"""The command that checks the work: proposed, and written only when asked."""

from __future__ import annotations

import json
import shlex
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from beads_workers.cli.config import read_file, set_key
from beads_workers.errors import CommandError
from beads_workers.options import FILE_NAME
from tests.cli.doctor_support import Patient, initialised, patient


@pytest.fixture
def project(tmp_path: Path) -> Patient:
    """A project with a built-in tracker and a Makefile."""
    made = initialised(tmp_path)
    (made.folder / "Makefile").write_text("test:\n\ttouch ran\n")
    return made


def verify_of(folder: Path) -> object:
    return read_file(folder / FILE_NAME)[0].get("verify")


def test_init_proposes_and_writes_nothing(tmp_path: Path) -> None:
    fresh = patient(tmp_path)
    (fresh.folder / "Cargo.toml").touch()
    said = fresh.type("beads-workers init").stdout
    assert "verify proposed: cargo test (Cargo.toml)" in said
    assert "'beads-workers config verify --write'" in said
    assert verify_of(fresh.folder) is None


def test_init_writes_it_when_asked_and_the_template_stays(tmp_path: Path) -> None:
    fresh = patient(tmp_path)
    (fresh.folder / "Cargo.toml").touch()
    said = json.loads(fresh.type("beads-workers init --verify --json").stdout)
    assert said["verify"]["written"] is True and said["verify"]["verify"] == "cargo test"
    assert said["verify"]["proposal"]["why"] == "Cargo.toml"
    assert verify_of(fresh.folder) == "cargo test"
    assert "# workers = 8\n" in (fresh.folder / FILE_NAME).read_text()


def test_init_that_is_asked_and_finds_nothing_says_so(tmp_path: Path) -> None:
    done = patient(tmp_path).type("beads-workers init --verify")
    assert done.returncode == 0 and "was recognised" in done.stderr


def test_it_is_proposed_written_and_left_alone_from_then_on_and_nothing_is_run(
    project: Patient,
) -> None:
    below = project.folder / "src"
    below.mkdir()
    assert "make test (target of Makefile)" in project.type("beads-workers config verify").stdout
    assert verify_of(project.folder) is None
    written = project.type("cd src && beads-workers config verify --write").stdout
    assert written.startswith("verify set: make test")
    (project.folder / "Makefile").write_text("check:\n")
    again = json.loads(project.type("beads-workers config verify --write --json").stdout)
    assert (again["verify"], again["written"]) == ("make test", False)
    assert again["proposal"]["line"] == "make check"
    assert not (project.folder / "ran").exists()


def test_where_nothing_is_recognised_the_hint_says_how_to_say_it(project: Patient) -> None:
    (project.folder / "Makefile").unlink()
    done = project.type("beads-workers config verify --write")
    assert done.returncode == 1 and "start --verify CMD" in done.stderr
    shown = json.loads(project.type("beads-workers config verify --json").stdout)
    assert shown["proposal"] is None


def test_settings_of_several_projects_are_not_written_to(project: Patient) -> None:
    (project.folder / FILE_NAME).rename(project.folder.parent / FILE_NAME)
    done = project.type("beads-workers config verify --write")
    assert done.returncode == 1 and "not of this project alone" in done.stderr


# --- the file ------------------------------------------------------------------------------------


FILES = (
    "",
    "workers = 2",
    "# eight\nworkers = 8\n\n# apart\n[worktree]\nbase = 'main'\n",
    "command = [\n  'a',\n  'b'\n]\n[agents.x]\nargv = [\n 'q']\n",
    "prompt = '''\n[worktree]\nbase = 1\n'''\nworkers = 3\n",
    "workers = 2\r\n[worktree]\r\nbase = 'main'\r\n",
    "[worktree]\nenabled = true\n",
    "# only\n# comments",
)


@pytest.mark.parametrize("text", FILES)
def test_a_key_is_added_and_every_line_that_was_there_stays(tmp_path: Path, text: str) -> None:
    path = tmp_path / FILE_NAME
    path.write_bytes(text.encode())
    path.chmod(0o640)
    assert set_key(path, "verify", "make 'test' \"x\"\\") is None
    new = path.read_bytes().decode()
    assert tomllib.loads(new) == tomllib.loads(text) | {"verify": "make 'test' \"x\"\\"}
    lines = iter(new.splitlines())
    assert all(line in lines for line in text.splitlines())
    assert path.stat().st_mode & 0o777 == 0o640
    assert set_key(path, "verify", "other") == "make 'test' \"x\"\\"
    assert path.read_bytes().decode() == new and list(tmp_path.iterdir()) == [path]


@given(st.lists(st.sampled_from([each + "\n" for each in FILES[1:3]]), max_size=1), st.text())
def test_any_text_comes_back_as_it_was_given(
    tmp_path_factory: pytest.TempPathFactory, files: list[str], line: str
) -> None:
    path = tmp_path_factory.mktemp("file") / FILE_NAME
    path.write_text("".join(files))
    if not line.strip() or "\0" in line:
        with pytest.raises((CommandError, AssertionError)):
            set_key(path, "verify", line)
        return
    set_key(path, "verify", line)
    assert read_file(path)[0]["verify"] == line


def test_a_link_to_a_settings_file_stays_a_link(tmp_path: Path) -> None:
    real = tmp_path / "real.toml"
    real.write_text("workers = 2\n")
    link = tmp_path / FILE_NAME
    link.symlink_to(real)
    set_key(link, "verify", "true")
    assert link.is_symlink() and 'verify = "true"' in real.read_text()


def test_a_broken_file_is_not_made_worse(tmp_path: Path) -> None:
    path = tmp_path / FILE_NAME
    path.write_text("workers = = 2\n")
    with pytest.raises(CommandError):
        set_key(path, "verify", "true")
    assert path.read_text() == "workers = = 2\n"


# --- start ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--agent", "claude"), "nothing is verified; proposed: 'make test'"),
        (("--agent", "claude", "--review", "claude"), "only claude looks at the work; proposed:"),
        (("--agent", "claude", "--verify", "true"), None),
        (("--", "true"), None),
    ],
)
def test_a_fleet_of_agents_that_nothing_checks_is_told_in_one_line(
    project: Patient, options: tuple[str, ...], said: str | None
) -> None:
    project.put("claude", '#!/bin/sh\n[ "$*" = --version ] && echo "2.1.0 (Claude Code)"\n')
    project.environment["ANTHROPIC_API_KEY"] = "none"
    start = project.type(shlex.join(["beads-workers", "start", "--dry-run", "-n", "1", *options]))
    assert start.returncode == 0, start
    lines = [line for line in start.stderr.splitlines() if line.startswith("warn verify")]
    assert len(lines) == (said is not None)
    assert all(line.startswith(f"warn verify   {said}") for line in lines)
