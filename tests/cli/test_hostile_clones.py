"""A repository that somebody else has made: no command believes what it brings below the run
directory, and nothing outside of the project is written to. docs/TRUST.md."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support import warm
from tests.support.repository import git, make_repository

STATE = ".beads-workers"


def linked_page(repository: Path) -> None:
    (repository / STATE / "web.json").symlink_to("../../home/.bashrc")


def linked_runs(repository: Path) -> None:
    (repository / STATE / "runs").symlink_to("../../home")


def linked_directory(repository: Path) -> None:
    shutil.rmtree(repository / STATE)
    (repository / STATE).symlink_to("../home")


def known_page(repository: Path) -> None:
    told = {"url": "http://127.0.0.1:1/x/", "port": 1, "key": "a" * 43, "pid": 1, "control": True}
    (repository / STATE / "web.json").write_text(json.dumps(told))


def known_run(repository: Path) -> None:
    told = {"pid": 1, "run_id": "20260101-000000.000-aaaaaa", "control_socket": "/nowhere"}
    (repository / STATE / "run.json").write_text(json.dumps(told))


@pytest.mark.parametrize(
    "plant", [linked_page, linked_runs, linked_directory, known_page, known_run]
)
def test_what_a_clone_brings_is_refused_by_name(
    tmp_path: Path, plant: Callable[[Path], None]
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / ".bashrc").write_text("alias ll='ls -l'\n")
    theirs = make_repository(tmp_path / "theirs")
    (theirs / STATE).mkdir()
    (theirs / ".beads").mkdir()
    (theirs / ".beads/issues.jsonl").touch()
    (theirs / "beads-workers.toml").write_text("web = 0\n")
    plant(theirs)
    git(theirs, "add", "--force", ".")
    git(theirs, "commit", "-qm", "come in")
    clone = tmp_path / "clone"
    git(tmp_path, "clone", "-q", str(theirs), str(clone))
    environment = {**os.environ, "HOME": str(home)}
    for command in (
        ("start", "-n", "1", "--until-empty", "--", "true"),
        ("restart",),
        ("watch", "--web"),
        ("status",),
        ("clean",),
        ("stop",),
    ):
        ran = warm.run(command, clone, environment, 60, safe=True)
        assert ran.returncode == 2, (command, ran.stdout, ran.stderr)
        assert "and is not used" in ran.stderr and f"/{STATE}" in ran.stderr, ran.stderr
        assert "hint: " in ran.stderr
    doctor = warm.run(("doctor", "--", "true"), clone, environment, 60, safe=True)
    assert doctor.returncode != 0 and "and is not used" in doctor.stdout
    assert [each.name for each in home.iterdir()] == [".bashrc"]
    assert (home / ".bashrc").read_text() == "alias ll='ls -l'\n"
