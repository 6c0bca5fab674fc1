"""The real RRQ of both dialects, and a Redis of a test's own.

``scripts/setup-peers`` installs the one, ``scripts/test`` the other; without them tests fail rather
than skip.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import pytest

OLD, NEW = "0.9.8", "0.11.1"
"""The one speaks version 1 of the executor protocol, the other version 2."""
VERSIONS = (OLD, NEW)
HANDLERS = "rrq_handlers.settings"
HANDLERS_FOLDER = Path(__file__).parent / "handlers"
PATIENCE_SECONDS = 30.0
ANSWER_SECONDS = 90.0
"""More than a command waits that blocks."""


@dataclass(frozen=True, slots=True)
class Rrq:
    """One installed version. ``orchestrator``: the ``rrq`` program; ``python`` has the package."""

    version: str
    folder: Path

    @property
    def python(self) -> Path:
        """Of its environment."""
        return self.folder / "bin" / "python"

    @property
    def orchestrator(self) -> Path:
        """``rrq worker run`` and the rest."""
        return self.folder / "bin" / "rrq"

    @property
    def executor(self) -> Path:
        """The program that serves handlers."""
        return self.folder / "bin" / ("rrq-executor" if self.version == OLD else "rrq-runner")

    def serve(self, settings: str = HANDLERS) -> list[str]:
        """How the executor is called with the handlers of ``rrq_handlers``, or with others."""
        return [str(self.executor), "--settings", settings]

    @property
    def environment(self) -> dict[str, str]:
        """In which it finds ``rrq_handlers``."""
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("RRQ_", "BW_"))}
        return kept | {"PYTHONPATH": str(HANDLERS_FOLDER)}


def rrq_of(version: str) -> Rrq:
    """The installed RRQ of that version; raises ``RuntimeError`` when it is missing."""
    cache = os.environ.get("BW_CACHE") or str(Path.home() / ".cache" / "beads-workers")
    folder = Path(cache, "peers", f"rrq-{version}")
    if not (folder / "complete").is_file():
        raise RuntimeError(f"{folder} is missing: run scripts/setup-peers")
    return Rrq(version, folder)


class Redis:
    """A server of its own on a loopback port that nobody else has.

    ``durable``: what it has answered survives its end; otherwise it keeps nothing on disk.
    ``node``: it is one of a cluster, which is still to be made of several.
    """

    def __init__(self, folder: Path, *, durable: bool = False, node: bool = False) -> None:
        self._folder = folder
        self._log = folder / "redis.log"
        keeps = ["yes", "--appendfsync", "always"] if durable else ["no"]
        self._keeps = ["--save", "", "--appendonly", *keeps]
        if node:
            # By itself the bus takes a port that is 10,000 higher, which may be none.
            self._keeps += ["--cluster-enabled", "yes", "--cluster-port", str(free_port())]
        while True:
            self.port = free_port()
            if self._start():
                break
        self.url = f"redis://127.0.0.1:{self.port}/0"

    def kill(self) -> None:
        """KILL it, in the middle of whatever it does."""
        self.close()

    def start_again(self) -> None:
        """At the same place, with what it had kept."""
        assert self._start(), "its port has been taken by somebody else"

    def _start(self) -> bool:
        """False where somebody else was faster to take the port."""
        program = shutil.which("redis-server")
        if program is None:
            raise RuntimeError("redis-server is missing: scripts/test installs it")
        options = ["--bind", "127.0.0.1", *self._keeps, "--daemonize", "no"]
        command = [program, "--port", str(self.port), *options, "--dir", str(self._folder)]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        deadline = time.monotonic() + PATIENCE_SECONDS
        while self._process.poll() is None:
            if b"Ready to accept connections" in self._log.read_bytes():
                return True
            assert time.monotonic() < deadline, self._log.read_text()
            time.sleep(0.01)
        assert "already in use" in self._log.read_text(), self._log.read_text()
        return False

    def command(self, *words: str) -> str:
        """One command, and what ``redis-cli`` prints for it; ``-n`` first names a database."""
        if words[0] == "-n":
            return self.answers(("SELECT", words[1]), words[2:])[1]
        return self.answers(words)[0]

    def answers(self, *commands: Sequence[str]) -> list[str]:
        """What ``redis-cli`` prints for each; without a process, as tests ask again and again."""
        with socket.create_connection(("127.0.0.1", self.port), ANSWER_SECONDS) as server:
            server.sendall(b"".join(map(_asked, commands)))
            with server.makefile("rb") as said:
                return [f"{_printed(said)}\n".replace("\r\n", "\n") for _ in commands]

    def close(self) -> None:
        """KILL it: nothing of it is kept."""
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()


@pytest.fixture
def durable_redis() -> Iterator[Redis]:
    """One that forgets nothing when it is killed."""
    folder = Path(tempfile.mkdtemp(prefix="bw-redis-"))
    server = Redis(folder, durable=True)
    yield server
    server.close()
    shutil.rmtree(folder, ignore_errors=True)


def _asked(words: Sequence[str]) -> bytes:
    """As the protocol of Redis has a command."""
    each = (b"$%d\r\n%s\r\n" % (len(word), word) for word in map(str.encode, words))
    return b"*%d\r\n%s" % (len(words), b"".join(each))


def _printed(said: BinaryIO) -> str:
    """The next answer: its text, or a line for each of its parts."""
    line = said.readline()
    assert line.endswith(b"\r\n"), "Redis has ended"
    kind, rest = line[:1], line[1:-2]
    if kind == b"$" and int(rest) >= 0:
        return said.read(int(rest) + 2)[:-2].decode()
    if kind == b"*":
        return "\n".join(_printed(said) for _ in range(int(rest)))
    return "" if kind == b"$" else rest.decode()


def free_port() -> int:
    """Return a port that no client is given while the server is down for a moment."""
    first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    while True:
        port = random.randrange(first // 2, first)
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port


@pytest.fixture
def redis() -> Iterator[Redis]:
    """A fresh one, which ends with the test."""
    folder = Path(tempfile.mkdtemp(prefix="bw-redis-"))
    server = Redis(folder)
    yield server
    server.close()
    shutil.rmtree(folder, ignore_errors=True)
