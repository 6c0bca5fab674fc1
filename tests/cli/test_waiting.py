"""``wait`` and an older fleet, which tells every line of the journal whatever is asked."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import warm

LINE = b'{"v":1,"e":"claimed","t":1.0,"m":2.0,"issue_id":"bw-1"}\n'
PAUSED = b'{"v":1,"e":"run_changed","t":1.0,"m":2.0,"state":"paused"}\n'


class OldFleet:
    """Answers whoever asks, once, with ``lines``; then again and again with its last line."""

    def __init__(self, state: Path, *lines: bytes, endless: bool = False) -> None:
        self._lines = lines
        self._endless = endless
        gone = subprocess.Popen(["true"])
        gone.wait()
        path = state / "control.sock"
        info = {"pid": gone.pid, "run_id": "run", "control_socket": str(path)}
        (state / "run.json").write_text(json.dumps(info))
        self._server = socket.socket(socket.AF_UNIX)
        self._server.bind(str(path))
        self._server.listen()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        client, _ = self._server.accept()
        with client:
            assert b"bw.follow" in client.recv(1 << 16)
            client.sendall(b"".join(self._lines))
            try:
                while self._endless:
                    client.sendall(self._lines[-1] * 100)
            except OSError:
                pass

    def close(self) -> None:
        """It goes, once it has been heard."""
        self._thread.join(30)
        assert not self._thread.is_alive()
        self._server.close()


@pytest.fixture
def state(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / ".beads-workers"
    folder.mkdir()
    yield folder


def waited(state: Path, *options: str) -> subprocess.CompletedProcess[str]:
    words = ("wait", "--state-dir", str(state), *options)
    return warm.run(words, Path.cwd(), os.environ, timeout=60)


def test_its_lines_are_passed_over_and_its_end_is_told(state: Path) -> None:
    fleet = OldFleet(state, b'{"status": {}}\n', LINE * 500, PAUSED, b'{"ended":{"exit_code":7}}\n')
    done = waited(state)
    assert (done.returncode, done.stdout, done.stderr) == (7, "", "the fleet is paused\n")
    fleet.close()


def test_the_time_is_up_although_it_never_falls_silent(state: Path) -> None:
    fleet = OldFleet(state, b'{"status": {}}\n', LINE, endless=True)
    done = waited(state, "--timeout", "0.2")
    assert done.returncode == 124, done.stderr
    assert done.stderr.startswith("error: the fleet still runs\n")
    fleet.close()


def test_nonsense_is_not_taken_for_a_fleet_that_still_runs(state: Path) -> None:
    fleet = OldFleet(state, b"nonsense\n")
    done = waited(state, "--timeout", "30")
    assert done.returncode == 1
    assert "no fleet of this version" in done.stderr
    fleet.close()


def test_an_end_without_a_word_is_told_as_one(state: Path) -> None:
    fleet = OldFleet(state, b'{"status": {}}\n', LINE)
    done = waited(state)
    assert done.returncode == 1
    assert "ended without a word\nhint: " in done.stderr
    fleet.close()
