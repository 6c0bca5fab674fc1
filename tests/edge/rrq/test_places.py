"""Where executors listen, and how they are reached."""

from __future__ import annotations

import socket
import stat
from pathlib import Path

import pytest

from beads_workers.edge.rrq import places


def test_sockets_lie_in_a_folder_that_is_closed_to_others_and_each_has_its_own(
    tmp_path: Path,
) -> None:
    sockets = places.SocketFolder(str(tmp_path), "W1")
    first, second = sockets.unix("a", 1), sockets.unix("a", 2)
    assert first != second and Path(first).parent == tmp_path / "executors"
    assert stat.S_IMODE(Path(first).parent.stat().st_mode) == 0o700
    Path(first).touch()
    assert not Path(sockets.unix("a", 1)).exists(), "what a dead one left is removed"


def test_a_run_far_down_the_tree_has_its_sockets_elsewhere_until_it_is_closed(
    tmp_path: Path,
) -> None:
    sockets = places.SocketFolder(str(tmp_path / ("x" * 100)), "W1")
    path = Path(sockets.unix("a", 1))
    assert len(bytes(path)) <= places.UNIX_PATH_BYTES_MAX
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    sockets.close()
    assert not path.parent.exists()


def test_whoever_comes_to_a_full_queue_is_told_to_come_back_and_nobody_waits(
    tmp_path: Path,
) -> None:
    path = str(tmp_path / "s")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen(0)
        held = [places.begin(path)]
        with pytest.raises(BlockingIOError):
            held += [places.begin(path) for _ in range(8)]
        for connection in held:
            connection.close()


def test_where_nobody_listens_there_is_no_connection(tmp_path: Path) -> None:
    for reach in (places.reach, places.begin):
        with pytest.raises(OSError, match="No such file"):
            reach(str(tmp_path / "nobody"))
    with pytest.raises(ConnectionRefusedError):
        places.reach(places.tcp())
