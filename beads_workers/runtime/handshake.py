"""The first words between the client that starts a fleet and the orchestrator's process."""

from __future__ import annotations

import json
import socket
from typing import Any

from beads_workers.core.plain import from_plain
from beads_workers.core.settings import FleetSettings
from beads_workers.runtime.run_directory import RunInfo


class StartRefused(Exception):
    """The fleet cannot start; ``exit_code`` as in docs/CLI.md."""

    def __init__(self, error: str, hint: str, exit_code: int) -> None:
        super().__init__(error)
        self.hint = hint
        self.exit_code = exit_code


def read_settings(client: socket.socket) -> FleetSettings | None:
    """The client's one line; None when it left without a word: it had nothing to start."""
    line = b""
    while not line.endswith(b"\n"):
        try:
            data = client.recv(1 << 16)
        except OSError:
            return None
        if not data:
            return None
        line += data
    return from_plain(FleetSettings, json.loads(line))


def say(client: socket.socket, message: dict[str, Any]) -> None:
    """One line to the client, which may be gone."""
    try:
        client.sendall(json.dumps(message).encode("ascii") + b"\n")
    except OSError:
        pass


def say_failed(client: socket.socket, error: str, hint: str, exit_code: int) -> None:
    """Why there is no fleet; the client ends with ``exit_code``."""
    say(client, {"failed": {"error": error, "hint": hint, "exit_code": exit_code}})


def vars_of(info: RunInfo) -> dict[str, Any]:
    """run.json as a client is shown it."""
    return {
        "pid": info.pid,
        "run_id": info.run_id,
        "socket": info.socket,
        "control_socket": info.control_socket,
        "project": info.project,
        "source": info.source,
    }
