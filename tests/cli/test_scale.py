"""``scale``: a number, one more, one less, and what is neither."""

from __future__ import annotations

import json
import os
import socket
import threading
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from beads_workers.cli.application import build
from beads_workers.cli.fleet import SCALE_MAX
from beads_workers.options import WORKERS_MAX


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What a fleet of this folder is asked; it answers nothing but that it heard."""
    requests: list[dict[str, Any]] = []
    monkeypatch.chdir(tmp_path)
    Path(".beads-workers").mkdir()
    server = socket.socket(socket.AF_UNIX)
    server.bind("control.sock")
    server.listen()
    info = {"pid": os.getpid(), "control_socket": str(tmp_path / "control.sock")}
    Path(".beads-workers/run.json").write_text(json.dumps(info))

    def answer() -> None:
        connection, _ = server.accept()
        with connection, server:
            requests.append(json.loads(connection.makefile().readline()))
            connection.sendall(b'{"text": "heard"}\n')

    threading.Thread(target=answer, daemon=True).start()
    return requests


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("3", {"workers": 3}),
        ("0", {"workers": 0}),
        ("+1", {"workers": 1, "relative": True}),
        ("-1", {"workers": -1, "relative": True}),
        ("-12", {"workers": -12, "relative": True}),
    ],
)
def test_a_sign_makes_it_relative(
    asked: list[dict[str, Any]], word: str, meant: dict[str, Any]
) -> None:
    done = CliRunner().invoke(build(["scale"]), ["scale", word])
    assert (done.exit_code, done.output) == (0, "heard\n")
    assert asked[0]["control_data"] == meant


@pytest.mark.parametrize("word", ["x", "+", "-", "--boo", "1.5", "1025", "+1025", "٣"])
def test_anything_else_is_a_mistake_of_usage(word: str) -> None:
    done = CliRunner().invoke(build(["scale"]), ["scale", word])
    assert done.exit_code == 2
    assert word in done.output


def test_as_many_are_allowed_as_at_the_start() -> None:
    assert SCALE_MAX == WORKERS_MAX
