"""A project whose tasks come from the real publisher of dispatcherd, over either broker."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from beads_workers.core.base.model import IssueId
from tests.support.dispatcherd import Dispatcherd, configuration, write
from tests.support.postgres import Postgres

TASKS = """
import json, os, time

def nothing(*args, **kwargs):
    pass

def note(file, text="ran", rest=0.0):
    _line(file, f"begin {text}")
    time.sleep(rest)
    _line(file, f"end {text}")

def fail(file, times=10**9):
    _line(file, "tried")
    if len(open(file).readlines()) <= times:
        raise ValueError("no")

def measure(file, text):
    _line(file, str(len(text)))

class Adder:
    def run(self, a, b):
        return a + b

def _line(file, text):
    with open(file, "ab", buffering=0) as out:
        out.write(text.encode() + b"\\n")
"""

PUBLISHING = """
import json, os, sys
import dispatcherd.config
dispatcherd.config.setup(file_path=sys.argv[1])
from dispatcherd.publish import submit_task, task
from dispatcherd.processors.blocker import Blocker
from dispatcherd.processors.delayer import Delayer
import deeds

def on(rule):
    return Blocker.Params(on_duplicate=rule)

def after(seconds):
    return Delayer.Params(delay=seconds)

file = sys.argv[2]
out = None
"""


class DispatchedPlace:
    """``deeds`` are the tasks; ``file`` is where they leave their traces. See ``fleet.Project``."""

    def __init__(self, folder: Path, *, postgres: Postgres | None = None, workers: int = 2) -> None:
        self.folder = folder / "project"
        self.folder.mkdir()
        (self.folder / "deeds.py").write_text(TASKS)
        self.file = folder / "traces"
        self.file.touch()
        self.socket = folder / "d.sock"
        broker = {"postgres": postgres} if postgres else {"socket": self.socket}
        self.config = write(configuration(**broker, workers=workers), folder)  # type: ignore[arg-type]
        self.peer = Dispatcherd()
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("DISPATCHERD_", "BW_"))}
        self.environment = kept

    @property
    def arguments(self) -> tuple[str, ...]:
        """How a fleet is started here."""
        return ("--source", f"dispatcherd:{self.config}", "--allow-module", "deeds")

    def read_all(self) -> dict[IssueId, tuple[str, str]]:
        """There is no tracker."""
        return {}

    def lines(self) -> list[str]:
        """What the tasks have written."""
        return self.file.read_text().splitlines()

    def publish(self, source: str) -> Any:
        """Run these lines after ``PUBLISHING``; what they leave in ``out`` comes back."""
        whole = f"{PUBLISHING}\n{source}\nprint(json.dumps(out))"
        environment = self.peer.environment | {"PYTHONPATH": str(self.folder)}
        done = self.peer.run(["-c", whole, str(self.config), str(self.file)], environment)
        assert done.returncode == 0, done.stdout + done.stderr
        return json.loads(done.stdout.splitlines()[-1])

    def send(self, *messages: bytes) -> None:
        """Lines of a foreign publisher, over the socket, in one connection."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
            sock.connect(str(self.socket))
            sock.sendall(b"".join(message + b"\n" for message in messages))

    def ask(self, command: str, data: dict[str, Any] | None = None) -> dict[str, Any]:
        """A control request over the socket, whose answer is not cut."""
        asked = {"control": command, "reply_to": "r", "control_data": data or {}}
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
            sock.settimeout(30)
            sock.connect(str(self.socket))
            sock.sendall(json.dumps(asked).encode() + b"\n")
            with sock.makefile("rb") as replies:
                answer: dict[str, Any] = json.loads(replies.readline())
                return answer


def begun(lines: Sequence[str]) -> list[str]:
    """Whose beginnings these are, in order."""
    return [line.removeprefix("begin ") for line in lines if line.startswith("begin ")]
