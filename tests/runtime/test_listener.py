"""The listening socket: ours alone, from its birth to its removal."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from beads_workers.runtime.sockets import Listener, free_socket


def connected(path: Path) -> socket.socket:
    """A client."""
    client = socket.socket(socket.AF_UNIX)
    client.connect(str(path))
    return client


def test_nobody_else_may_connect_whatever_the_umask(tmp_path: Path) -> None:
    mask = os.umask(0)
    try:
        listener = Listener(tmp_path / "s")
    finally:
        restored = os.umask(mask)
    assert (tmp_path / "s").lstat().st_mode & 0o777 == 0o600
    assert restored == 0, "the umask is put back"
    listener.close()


def test_a_peer_comes_with_its_pid_and_then_nobody_waits(tmp_path: Path) -> None:
    listener = Listener(tmp_path / "s")
    with connected(tmp_path / "s"):
        accepted = listener.accept()
        assert accepted is not None and accepted[1] == os.getpid()
        accepted[0].close()
        assert listener.accept() is None
    listener.close()


@pytest.mark.parametrize("make", [Path.touch, Path.mkdir])
def test_something_foreign_in_its_place_is_refused_and_left_there(
    tmp_path: Path, make: object
) -> None:
    path = tmp_path / "s"
    make(path)  # type: ignore[operator]
    with pytest.raises(FileExistsError):
        Listener(path)
    assert path.exists()


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "s").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(FileExistsError):
        Listener(tmp_path / "s")
    assert not (tmp_path / "elsewhere").exists()


def test_a_dead_socket_is_replaced(tmp_path: Path) -> None:
    dead = socket.socket(socket.AF_UNIX)
    dead.bind(str(tmp_path / "s"))
    dead.close()
    listener = Listener(tmp_path / "s")
    connected(tmp_path / "s").close()
    listener.close()


def test_one_that_somebody_listens_on_is_left_alone(tmp_path: Path) -> None:
    first = Listener(tmp_path / "s")
    with pytest.raises(FileExistsError):
        Listener(tmp_path / "s")
    connected(tmp_path / "s").close()
    first.close()


def test_at_its_end_it_removes_its_own_file_and_no_other(tmp_path: Path) -> None:
    first = Listener(tmp_path / "s")
    (tmp_path / "s").rename(tmp_path / "moved")
    second = Listener(tmp_path / "s")
    first.close()
    connected(tmp_path / "s").close()
    second.close()
    assert not (tmp_path / "s").exists()
    second.socket.close()


def test_a_hundred_may_connect_before_anybody_is_accepted(tmp_path: Path) -> None:
    listener = Listener(tmp_path / "s")
    clients = [connected(tmp_path / "s") for _ in range(100)]
    accepted = []
    while (peer := listener.accept()) is not None:
        accepted.append(peer[0])
    assert len(accepted) == 100
    for each in (*clients, *accepted):
        each.close()
    listener.close()


@pytest.fixture
def squatted() -> Iterator[int]:
    """A pid that no process has, whose name in /tmp somebody has taken."""
    pid = 4_194_304 + os.getpid()
    first = Path(f"/tmp/beads-workers-{pid}.sock")
    assert free_socket(pid, Path("/nowhere")) == first
    first.write_text("squatted")
    yield pid
    first.unlink()


def test_a_name_that_somebody_has_taken_is_passed_over_for_one_of_ours_alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, squatted: int
) -> None:
    ours = tmp_path / "ours"
    monkeypatch.setattr("beads_workers.runtime.run_directory.RUNTIME", ours)
    assert free_socket(squatted, tmp_path) == ours / f"{squatted}.sock"
    assert ours.stat().st_mode & 0o777 == 0o700


def test_where_that_folder_is_taken_too_it_is_in_the_run_directory(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, squatted: int
) -> None:
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    theirs.chmod(0o777)
    monkeypatch.setattr("beads_workers.runtime.run_directory.RUNTIME", theirs)
    beside = Path("/tmp/run-directory")
    assert free_socket(squatted, beside) == beside / "worker.sock"
    with pytest.raises(PermissionError, match="a --state-dir with a shorter path"):
        free_socket(squatted, tmp_path / ("long" * 30))
