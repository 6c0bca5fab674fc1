"""Where executors listen, and how they are reached."""

from __future__ import annotations

import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from beads_workers.integrations.rrq import executor


def test_sockets_lie_in_a_folder_that_is_closed_to_others_and_each_has_its_own(
    tmp_path: Path,
) -> None:
    sockets = executor.SocketFolder(str(tmp_path), "W1")
    first, second = sockets.unix("a", 1), sockets.unix("a", 2)
    assert first != second and Path(first).parent == tmp_path / "executors"
    assert stat.S_IMODE(Path(first).parent.stat().st_mode) == 0o700
    Path(first).touch()
    assert not Path(sockets.unix("a", 1)).exists(), "what a dead one left is removed"


def test_a_run_far_down_the_tree_has_its_sockets_there_as_well(tmp_path: Path) -> None:
    run = tmp_path / ("x" * 100)
    sockets = executor.SocketFolder(str(run), "W1")
    path = sockets.unix("a", 1)
    assert len(path) <= executor.UNIX_PATH_BYTES_MAX
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        # Another process reaches it by the same name, and nothing of it lies anywhere else.
        reach = f"import socket; socket.socket(socket.AF_UNIX).connect({path!r})"
        subprocess.run([sys.executable, "-c", reach], check=True)
    (there,) = (run / "executors").iterdir()
    assert there.name == "a.W1.1.sock" and stat.S_ISSOCK(there.stat().st_mode)
    executor.forget(path)
    assert not there.exists()
    sockets.close()


def test_a_name_that_no_address_holds_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="too long"):
        executor.SocketFolder(str(tmp_path), "W1").unix("x" * 100, 1)


def test_whoever_comes_to_a_full_queue_is_told_to_come_back_and_nobody_waits(
    tmp_path: Path,
) -> None:
    path = str(tmp_path / "s")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen(0)
        held = [executor.begin(path)]
        with pytest.raises(BlockingIOError):
            held += [executor.begin(path) for _ in range(8)]
        for connection in held:
            connection.close()


def test_where_nobody_listens_there_is_no_connection(tmp_path: Path) -> None:
    for reach in (executor.reach, executor.begin):
        with pytest.raises(OSError, match="No such file"):
            reach(str(tmp_path / "nobody"))
    with pytest.raises(ConnectionRefusedError):
        executor.reach(executor.tcp())
