"""Worktrees with a port and a database each, on a real PostgreSQL, whatever is killed."""

from __future__ import annotations

import json
import random
import signal
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.support.embedded import EmbeddedProject
from tests.support.fleet import Fleet
from tests.support.postgres import USER, PostgresServer, _programs
from tests.support.processes import send
from tests.support.repository import git

pytestmark = [pytest.mark.peers]

CHECK = """\
import os, socket, subprocess, sys, time
with socket.socket() as bound:
    bound.bind(("", int(os.environ["PORT"])))
    bound.listen()
    if "PSQL" in os.environ:
        psql = [os.environ["PSQL"], *os.environ["ADMIN"].split(), "-d", os.environ["DB"], "-qAtc"]
        subprocess.run([*psql, "insert into rows values (1)"], check=True)
        time.sleep(0.2)
        rows = subprocess.run([*psql, "select count(*) from rows"], check=True, capture_output=True)
        assert rows.stdout.strip() == b"1", rows
    else:
        os.mkdir(os.environ["DB"] + "/row")
        time.sleep(0.2)
if len(sys.argv) > 1:
    open(f"w{sys.argv[1]}", "w").write("done")
    subprocess.run(["git", "add", "."], check=True)
    subprocess.run(["git", "commit", "-qm", "work"], check=True)
"""
"""What an attempt and a gate do: both need a port and a database of their own."""


class WorldProject(EmbeddedProject):
    """See the module. Without a server, a database is a folder."""

    def __init__(self, folder: Path, server: PostgresServer | None, name: str) -> None:
        super().__init__(folder)
        self.server, self.prefix = server, f"{name}_"
        git(self.folder, "init", "-q", "-b", "main")
        (self.folder / ".gitignore").write_text(".beads-workers\n")
        (self.folder / "check.py").write_text(CHECK)
        git(self.folder, "add", ".gitignore", "check.py")
        git(self.folder, "commit", "-qm", "base")
        if server is None:
            self.prefix = str(folder / self.prefix)
            made, ends = f"mkdir {self.prefix}$BW_SLOT", f"rm -rf {self.prefix}$BW_SLOT"
            more = ""
        else:
            psql = f"{_programs()}/psql -h {server.folder} -U {USER} -v ON_ERROR_STOP=1 -q"
            made = f"{psql} -d postgres -c 'create database {self.prefix}'$BW_SLOT"
            made += f" && {psql} -d {self.prefix}$BW_SLOT -c 'create table rows (n int)'"
            ends = f"{psql} -d postgres -c 'drop database if exists {self.prefix}'$BW_SLOT"
            ends += "' with (force)'"
            more = f'PSQL = "{_programs()}/psql"\nADMIN = "-h {server.folder} -U {USER}"\n'
        lines = ("[worktree]", f'world = "{made}"', f'teardown = "{ends}"', "port_base = 21000")
        env = ("[worktree.env]", 'PORT = "{port}"', f'DB = "{self.prefix}{{slot}}"', more)
        (self.folder / "beads-workers.toml").write_text("\n".join((*lines, *env)))

    def start(self, workers: int = 8) -> Fleet:
        options = ("-n", str(workers), "--worktree", "--until-empty", "--trust", "--max-attempts")
        work = ("--verify", "python3 check.py", "--", "python3", "check.py", "{id}")
        return Fleet(self, *options, "20", "--retry-delay", "0.1s", *work)

    def databases(self) -> list[str]:
        if self.server is None:
            return [str(each) for each in self.folder.parent.glob(f"{Path(self.prefix).name}*")]
        rows = self.server.sql("postgres", "select datname from pg_database").split()
        return [name for name in rows if name.startswith(self.prefix)]

    def worlds(self) -> dict[str, Counter[str]]:
        lines = (self.folder / ".beads-workers" / "worlds.jsonl").read_text().splitlines()
        found: dict[str, Counter[str]] = {}
        for row in map(json.loads, lines):
            found.setdefault(row["world"], Counter())[row["what"]] += 1
        return found


@pytest.mark.daily(2)
def test_eight_workers_and_two_gates_have_worlds_of_their_own(
    tmp_path: Path, postgres_server: PostgresServer
) -> None:
    project = WorldProject(tmp_path, postgres_server, "one")
    project.create_many([{} for _ in range(24)])
    fleet = project.start()
    assert fleet.process.wait(180) == 0, fleet.said()
    assert "failed attempts 0" in fleet.output, fleet.output
    assert project.databases() == []
    worlds = project.worlds()
    assert len(worlds) >= 24 and set(map(tuple, (sorted(e.items()) for e in worlds.values()))) == {
        (("begun", 1), ("ended", 1))
    }


@pytest.mark.daily(2)
def test_whatever_is_killed_each_world_ends_once(tmp_path: Path) -> None:
    # A server would go on with what a killed client has asked for.
    projects = [WorldProject(tmp_path / name, None, name) for name in ("two", "three")]
    chance = random.Random(5)
    for project in projects:
        project.create_many([{} for _ in range(10)])
    for _ in range(4):
        fleets = [project.start(3) for project in projects]
        time.sleep(chance.uniform(2.0, 5.0))
        for fleet in fleets:
            send([fleet.process.pid, fleet.pid, *fleet.token_holders()], signal.SIGKILL)
            fleet.process.wait(30)
            fleet.end()
    for project in projects:
        last = project.start(3)
        assert last.process.wait(180) == 0, last.said()
        assert project.databases() == []
        for world, said in project.worlds().items():
            assert said == {"begun": 1, "ended": 1}, (world, said)
        assert {state for state, _ in project.read_all().values()} == {"closed"}
