"""``config worktree`` and ``doctor --worktree``: what worktrees need, and what two share."""

from __future__ import annotations

import json
import os
import pty
import shlex
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from beads_workers.options import FILE_NAME
from tests.cli.doctor_support import Patient, initialised
from tests.support.postgres import USER, PostgresServer, _programs
from tests.support.repository import git

TRUSTED = "BEADS_WORKERS_TRUST"
PYTHON = shlex.quote(sys.executable)
BINDS = """import socket, sys, time
bound = socket.create_server(("127.0.0.1", int(sys.argv[1])))
time.sleep(0.1)
"""
"""What listens where it is told."""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Patient:
    """A repository with a tracker and a check that is told where."""
    made = initialised(tmp_path)
    # Other tests write to the machine's own.
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    made.environment["TMPDIR"] = str(tmp_path)
    git(made.folder, "init", "-q", "-b", "main")
    (made.folder / ".gitignore").write_text(f".beads-workers\n{FILE_NAME}\n.env\n")
    (made.folder / "binds.py").write_text(BINDS)
    git(made.folder, "add", "-A")
    git(made.folder, "commit", "-qm", "base")
    return made


def beside(project: Patient, verify: str, **tables: str) -> list[tuple[str, str]]:
    """What is said of two worktrees with this check."""
    tables = {"worktree": "", **tables}
    text = "".join(f"[{name.replace('_', '.')}]\n{rows}\n" for name, rows in tables.items())
    (project.folder / FILE_NAME).write_text(f"verify = {json.dumps(verify)}\n{text}")
    found = project.doctor("--worktree", "--trust", "--", "true").all("beside")
    return [(each["status"], each["text"]) for each in found]


def test_a_port_is_found_although_nothing_fails_alone(project: Patient) -> None:
    found = beside(project, f"{PYTHON} binds.py 3457")
    assert ("fail", "both worktrees listen on port 3457") in found
    assert len(found) == 2 and "passes alone, and not beside another worktree" in found[1][1]


def test_a_file_outside_is_found(project: Patient) -> None:
    place = project.folder.parent / "of-all"
    assert beside(project, f"echo x >{place}; sleep 0.1; rm -f {place}") == [
        ("fail", f"both worktrees write {place}")
    ]
    assert beside(project, 'echo x >"$BW_CHECKOUT/left"') == [
        ("fail", f"both worktrees write {project.folder}/left")
    ]


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    made = PostgresServer()
    yield made
    made.stop()


@pytest.mark.peers
def test_a_database_is_found_and_one_for_each_is_none(
    project: Patient, server: PostgresServer
) -> None:
    psql = f"{_programs()}/psql -h {server.folder} -U {USER} -q"
    makes = f"{psql} -d postgres -c 'create database {{}}'"
    subprocess.run(makes.format("app"), shell=True, check=True)
    asks = "-c 'select pg_sleep(0.2)' >/dev/null"
    assert beside(project, f"{psql} -d app {asks}") == [
        ("fail", "both worktrees use the PostgreSQL database app")
    ]
    world = makes.format("app_$BW_SLOT").replace("'", '"')
    ends = f'{psql} -d postgres -c "drop database if exists app_$BW_SLOT"'
    rows = f"world = {json.dumps(world)}\nteardown = {json.dumps(ends)}"
    ((status, text),) = beside(project, f"{psql} -d app_$BW_SLOT {asks}", worktree=rows)
    assert status == "ok" and text.startswith("two worktrees share no port, database or file: ")
    left = f"{psql} -d postgres -tAc 'select datname from pg_database'"
    names = subprocess.run(left, shell=True, check=True, capture_output=True, text=True).stdout
    assert "app_" not in names, "each world has ended"


def test_what_differs_by_its_slot_is_not_shared(project: Patient) -> None:
    check = f'{PYTHON} binds.py "$PORT"; echo x >"$LOCK"'
    place = project.folder.parent / "lock"
    ((status, text),) = beside(
        project, check, worktree_env=f'PORT = "{{port}}"\nLOCK = "{place}-{{slot}}"'
    )
    assert status == "ok", text


def test_what_fails_alone_or_is_not_trusted_is_not_tried(project: Patient) -> None:
    ((status, text),) = beside(project, "echo nothing here; exit 1")
    assert status == "warn" and "does not pass: verify: exit status 1" in text
    (project.folder / FILE_NAME).write_text('verify = "touch ../ran"\n')
    del project.environment[TRUSTED]
    assert project.doctor("--worktree", "--", "true").all("beside") == []
    assert project.doctor("--trust", "--", "true").all("beside") == [], "only where it is asked for"
    assert not (project.folder.parent / "ran").exists()


# --- what is proposed -----------------------------------------------------------------------------

WANTED = {
    "copy": [".env"],
    "env": {"PORT": "{port}", "DATABASE_URL": "postgres:///app_{slot}"},
    "world": "createdb app_$BW_SLOT",
    "teardown": "dropdb --if-exists --force app_$BW_SLOT",
}


def test_it_is_written_where_asked_and_what_is_set_stays(project: Patient) -> None:
    (project.folder / ".env").write_text("PORT=1\nDATABASE_URL=postgres:///app\n")
    settings = project.folder / FILE_NAME
    settings.write_text('# ours\nworkers = 3\n\n[worktree]\nsetup = "make deps"\n')
    said = project.type("beads-workers config worktree").stdout
    assert 'env.PORT = "{port}"  (.env)' in said and settings.read_text().count("\n") == 5
    shown = json.loads(project.type("beads-workers config worktree --json").stdout)
    assert shown["proposal"] == WANTED and shown["written"] is False
    said = project.type("beads-workers config worktree --write").stdout
    assert said.endswith(f"written to {FILE_NAME}; 'beads-workers doctor --worktree' tries it\n")
    read = tomllib.loads(settings.read_text())
    assert read == {"workers": 3, "worktree": {"setup": "make deps", **WANTED}}
    again = project.type("beads-workers config worktree --write").stdout
    assert "env is set already, and stays" in again and "written" not in again
    assert tomllib.loads(settings.read_text()) == read


@pytest.mark.parametrize(("typed", "written"), [(b"y\n", True), (b"\n", False)])
def test_a_terminal_is_asked(project: Patient, typed: bytes, written: bool) -> None:
    (project.folder / "a.js").write_text("process.env.PORT")
    git(project.folder, "add", "-A")
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(project.folder)
        argv = [sys.executable, "-m", "beads_workers", "config", "worktree"]
        os.execve(sys.executable, argv, project.environment)
    seen, until = b"", time.monotonic() + 60
    while b"[y/N]" not in seen and time.monotonic() < until:
        seen += os.read(terminal, 1 << 12)
    os.write(terminal, typed)
    os.waitpid(pid, 0)
    os.close(terminal)
    assert b'env.PORT = "{port}"  (the code reads it)' in seen
    assert ((project.folder / FILE_NAME).read_text().count("{port}") == 1) is written


def test_where_nothing_is_needed_this_is_said_and_without_git_too(project: Patient) -> None:
    assert project.type("beads-workers config worktree").stdout == (
        "a new worktree of this project needs nothing but git's files\n"
    )
    (project.folder / ".git").rename(project.folder / "elsewhere")
    done = project.type("beads-workers config worktree")
    assert done.returncode == 1 and "worktrees need a git repository" in done.stderr
