"""A PostgreSQL of a test's own: Debian's program, a private folder, a Unix socket, no port.

``scripts/test`` installs it; without it tests fail rather than skip. One server serves a whole
process of pytest; each test gets a database of its own, which is what divides the channels of
LISTEN and NOTIFY.
"""

from __future__ import annotations

import itertools
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

PATIENCE_SECONDS = 60.0
USER = "postgres"
_CONFIG = """
listen_addresses = ''
unix_socket_directories = '{folder}'
fsync = off
max_connections = 200
shared_buffers = 16MB
autovacuum = off
dynamic_shared_memory_type = mmap
"""


class PostgresServer:
    """One server; ``folder`` is where its socket lies. It never has root's rights."""

    def __init__(self) -> None:
        self._programs = _programs()
        self._as_user: dict[str, Any] = {}
        # Not below pytest's folder: that one is closed to every other user.
        self.folder = Path(tempfile.mkdtemp(prefix="bw-pg-"))
        if os.geteuid() == 0:
            # initdb and the server refuse root; Debian's package brings this user.
            user = pwd.getpwnam("postgres")
            os.chown(self.folder, user.pw_uid, user.pw_gid)
            self._as_user = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
        self._files = self.folder / "data"
        self._log = self.folder / "log"
        options: list[str | Path] = [
            "-D",
            self._files,
            "-U",
            USER,
            "-A",
            "trust",
            "-E",
            "UTF8",
            "--no-sync",
        ]
        self._finish([self._programs / "initdb", *options, "--locale=C", "--no-instructions"])
        with (self._files / "postgresql.conf").open("a") as config:
            config.write(_CONFIG.format(folder=self.folder))
        self._numbers = itertools.count(1)
        self.start()

    def _finish(self, command: Sequence[str | Path]) -> None:
        done = subprocess.run(
            command, cwd=self.folder, capture_output=True, text=True, check=False, **self._as_user
        )
        assert done.returncode == 0, done.stdout + done.stderr

    def start(self) -> None:
        """Let it serve; also again, after ``kill`` or ``stop``. Returns when it answers."""
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [self._programs / "postgres", "-D", self._files],
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                **self._as_user,
            )
        deadline = time.monotonic() + PATIENCE_SECONDS
        while b"ready to accept connections" not in self._log.read_bytes():
            assert self._process.poll() is None, self._log.read_text()
            assert time.monotonic() < deadline, self._log.read_text()
            time.sleep(0.01)

    def stop(self) -> None:
        """End it with all its connections, as an administrator would."""
        self._end(signal.SIGINT)

    def kill(self) -> None:
        """End it as a power cut would: its clients see their connections break."""
        # Its children notice by themselves that it has gone.
        self._end(signal.SIGKILL)
        (self._files / "postmaster.pid").unlink(missing_ok=True)

    def _end(self, signal_number: signal.Signals) -> None:
        self._process.send_signal(signal_number)
        self._process.wait(PATIENCE_SECONDS)

    def database(self) -> Postgres:
        """An empty database of the caller's own."""
        name = f"test_{next(self._numbers)}"
        self.sql("postgres", f'create database "{name}" strategy file_copy')
        return Postgres(self, name)

    def sql(self, database: str, statement: str) -> str:
        """Run one statement; what it gives, a row a line."""
        options = ["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-c", statement]
        done = subprocess.run(
            [self._programs / "psql", "-h", self.folder, "-U", USER, "-d", database, *options],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def close(self) -> None:
        """End it at once; nothing of it is kept."""
        if self._process.poll() is None:
            self._end(signal.SIGQUIT)
        shutil.rmtree(self.folder, ignore_errors=True)


@dataclass(frozen=True, slots=True)
class Postgres:
    """One database, and how it is reached."""

    server: PostgresServer
    name: str

    @property
    def conninfo(self) -> str:
        """For libpq."""
        return f"host={self.server.folder} user={USER} dbname={self.name}"

    @property
    def url(self) -> str:
        """The same as a URL without channels."""
        folder = str(self.server.folder).replace("/", "%2F")
        return f"postgresql://{USER}@{folder}/{self.name}"

    def sql(self, statement: str) -> str:
        """Run one statement here; what it gives, a row a line."""
        return self.server.sql(self.name, statement)


def _programs() -> Path:
    """Where Debian puts what is not for everybody's PATH; of several versions the newest."""
    found = sorted(
        Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda p: float(p.parts[-3])
    )
    if found:
        return found[-1].parent
    elsewhere = shutil.which("initdb")
    if elsewhere is None:
        raise RuntimeError("postgresql is missing: scripts/test installs it")
    return Path(elsewhere).parent


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """Shared by all tests of a process: none of them stops it."""
    server = PostgresServer()
    yield server
    server.close()


@pytest.fixture
def postgres(postgres_server: PostgresServer) -> Postgres:
    """A database of the test's own."""
    return postgres_server.database()


@pytest.fixture
def lonely_postgres() -> Iterator[Postgres]:
    """A whole server of the test's own, which it may stop, kill and start again."""
    server = PostgresServer()
    yield server.database()
    server.close()
