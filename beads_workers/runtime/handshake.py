"""Handshake between the client that starts a fleet and the orchestrator's process."""

from __future__ import annotations

import json
import socket
from typing import Any

from beads_workers.core.base.plain import from_plain
from beads_workers.core.base.settings import FleetSettings
from beads_workers.runtime.run_directory import RunInfo


class StartRefused(Exception):
    """Error: the fleet cannot start; ``exit_code`` as in docs/CLI.md."""

    def __init__(self, error: str, hint: str, exit_code: int) -> None:
        super().__init__(error)
        self.hint = hint
        self.exit_code = exit_code


def read_settings(client: socket.socket) -> FleetSettings | None:
    """Read the client's one line; None: the client left without a word and had nothing to start."""
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
    """Send one line to the client; ignore a client that is gone."""
    try:
        client.sendall(json.dumps(message).encode("ascii") + b"\n")
    except OSError:
        pass


def say_failed(client: socket.socket, error: str, hint: str, exit_code: int) -> None:
    """Tell the client why there is no fleet; the client ends with ``exit_code``."""
    say(client, {"failed": {"error": error, "hint": hint, "exit_code": exit_code}})


def vars_of(info: RunInfo) -> dict[str, Any]:
    """Return the fields of run.json that a client is shown."""
    return {
        "pid": info.pid,
        "run_id": info.run_id,
        "socket": info.socket,
        "control_socket": info.control_socket,
        "project": info.project,
        "source": info.source,
    }
