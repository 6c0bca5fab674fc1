"""What the issues of a tracker bring along to be run, and trackers that cannot be used."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from beads_workers.checks import project
from beads_workers.checks.rules import Check
from beads_workers.core.base.source import SourceError
from beads_workers.trackers.sqlite.store import create
from tests.support.killed_git import kill_git
from tests.support.repository import commit, make_repository


def test_commands_of_a_committed_tracker_are_refused_also_if_git_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    top = make_repository(tmp_path / "r")
    commit(top, "tracker.db")
    committed = project.TrackerChoice("sqlite", top / "tracker.db", top)
    ours = project.TrackerChoice("sqlite", top / "other.db", top)
    assert (
        project.committed_commands(ours, 1) is None
        and project.committed_commands(committed, 0) is None
    )
    found = project.committed_commands(committed, 1)
    assert found is not None and "is committed to git" in found.text
    kill_git(monkeypatch, tmp_path, "ls-files")
    found = project.committed_commands(committed, 1)
    assert found is not None and "git does not say whether" in found.text


# --- a built-in tracker that cannot be used ------------------------------------------------------

USER = 65533


@pytest.fixture
def database() -> Iterator[Path]:
    """A healthy tracker where another user may look."""
    folder = Path("/tmp") / f"beads-workers-access-{os.getpid()}"
    shutil.rmtree(folder, ignore_errors=True)
    (folder / ".beads-workers").mkdir(parents=True)
    path = folder / ".beads-workers" / "tracker.db"
    create(path, "bw")
    yield path
    shutil.rmtree(folder)


def as_user(look: Callable[[], list[Check]]) -> list[str]:
    """The texts and remedies of what a user sees who is not root."""
    read, write = os.pipe()
    if not (pid := os.fork()):
        try:
            os.setresuid(USER, USER, USER)
            found = [word for check in look() for word in (check.text, check.remedy)]
            os.write(write, json.dumps(found).encode())
        finally:
            os._exit(0)
    os.close(write)
    with open(read, "rb") as said:
        text = said.read()
    os.waitpid(pid, 0)
    return list(json.loads(text))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be two users")
@pytest.mark.parametrize("closed", ["file", "folder"])
def test_a_tracker_that_cannot_be_written_is_opened_up_and_never_moved_aside(
    database: Path, closed: str
) -> None:
    folder = database.parent
    os.chown(folder, USER, USER)
    os.chown(database, USER, USER)
    (database if closed == "file" else folder).chmod(0o444 if closed == "file" else 0o555)
    error = SourceError(f"{database}: attempt to write a readonly database")
    for look in (
        lambda: list(project.access(database)),
        lambda: [project.cannot_open(database, error)],
    ):
        text, remedy = as_user(look)
        assert text == f"{database if closed == 'file' else folder} cannot be written"
        assert remedy == f"chmod -R u+rwX {folder}"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be two users")
def test_a_tracker_of_root_is_handed_over_by_name(database: Path) -> None:
    os.chown(database.parent, USER, USER)
    text, remedy = as_user(lambda: list(project.access(database)))
    assert text.startswith(f"{database} cannot be written: it belongs to root (uid 0), and this is")
    assert remedy == f'sudo chown -R "$(id -u)" {database.parent}'


def test_only_a_damaged_tracker_is_moved_aside(tmp_path: Path) -> None:
    (tmp_path / ".beads-workers").mkdir()
    database = tmp_path / ".beads-workers" / "tracker.db"
    database.write_text("this is no database " * 30)
    tracker = project.TrackerChoice("sqlite", database, tmp_path)
    damaged = project.commands_of_issues(tracker)
    assert isinstance(damaged, Check) and damaged.remedy.startswith(f"mv {database} ")
    for error in (SourceError("database is locked"), SourceError("was made by a newer one")):
        assert project.cannot_open(database, error).remedy == ""
