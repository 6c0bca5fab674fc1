"""The acceptor of a socket: back when its file is gone, shut without spinning, open again by
itself."""

from __future__ import annotations

import errno
import gc
import os
import resource
import selectors
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from beads_workers.core.schedule.events import ConditionRecovered, Degraded, Event, Warned
from beads_workers.runtime.sockets import Acceptor, Peers, TcpListener


@pytest.fixture(autouse=True)
def _nothing_closes_late() -> None:
    """What earlier tests have dropped would give free a low number just when none is to be had."""
    gc.collect()


class FullSelector(selectors.DefaultSelector):
    """``full``: the kernel watches no more descriptors than it does (``max_user_watches``)."""

    full = False

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        """As it is, or ENOSPC."""
        if self.full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return super().register(fileobj, events, data)


class Hall:
    """An acceptor, and what comes of it; ``turn`` is one turn of a loop at a told time."""

    def __init__(self, path: Path | TcpListener, spares: int = 0) -> None:
        self.path = path
        self.selector = FullSelector()
        self.events: list[Event] = []
        self.peers: Peers = []
        self.acceptor = Acceptor(
            "the acceptor", path, self.selector, self.events.append, self.peers.extend, spares
        )

    def turn(self) -> int:
        """How many descriptors were ready."""
        ready = self.selector.select(0)
        for key, mask in ready:
            key.data(mask)
        return len(ready)

    def tick(self) -> None:
        self.acceptor.tick(self.acceptor.deadline())

    def knock(self) -> socket.socket:
        client = socket.socket(socket.AF_UNIX)
        assert isinstance(self.path, Path)
        client.connect(str(self.path))
        return client

    def close(self) -> None:
        self.acceptor.close()
        for sock, _ in self.peers:
            sock.close()


@contextmanager
def no_descriptors() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest = os.open(os.devnull, os.O_RDONLY)
    os.close(lowest)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_file_that_is_gone_comes_back_and_who_waited_at_the_old_one_comes_in(
    tmp_path: Path,
) -> None:
    hall = Hall(tmp_path / "s")
    early = hall.knock()
    (tmp_path / "s").unlink()
    hall.tick()
    late = hall.knock()
    hall.turn()
    assert len(hall.peers) == 2
    assert hall.events == [Warned(f"{tmp_path}/s was removed, and is there again")]
    hall.close()
    assert not (tmp_path / "s").exists()
    early.close()
    late.close()


def test_what_is_not_ours_in_its_place_stays_and_is_told_once(tmp_path: Path) -> None:
    hall = Hall(tmp_path / "s")
    (tmp_path / "s").unlink()
    (tmp_path / "s").write_text("mine")
    hall.tick()
    hall.tick()
    (event,) = hall.events
    assert isinstance(event, Degraded) and "not ours" in event.text and not event.stops
    (tmp_path / "s").unlink()
    hall.tick()
    assert hall.events[-1] == ConditionRecovered("the acceptor")
    hall.close()


def test_without_a_descriptor_it_is_shut_for_a_while_and_then_opens(tmp_path: Path) -> None:
    hall = Hall(tmp_path / "s")
    client = hall.knock()
    with no_descriptors():
        assert hall.turn() == 1
        assert hall.turn() == 0, "it would spin"
        hall.tick()
        assert hall.turn() == 0
    assert hall.peers == []
    hall.tick()
    assert len(hall.peers) == 1
    hall.tick()
    assert [type(event) for event in hall.events] == [Degraded, ConditionRecovered]
    client.close()
    hall.close()


def test_a_spare_lets_somebody_in_when_no_descriptor_is_left_and_is_kept_again(
    tmp_path: Path,
) -> None:
    hall = Hall(tmp_path / "s", spares=1)
    clients = [hall.knock(), hall.knock()]
    with no_descriptors():
        hall.turn()
        assert len(hall.peers) == 1
        assert hall.turn() == 0
        hall.peers.pop()[0].close()
        hall.acceptor.room()
        hall.tick()
        assert len(hall.peers) == 1
    for client in clients:
        client.close()
    hall.close()


def test_an_acceptor_that_backs_off_lets_nobody_in_and_loses_nobody(tmp_path: Path) -> None:
    hall = Hall(tmp_path / "door.sock")
    hall.acceptor.back_off(True)
    with hall.knock():
        hall.turn()
        hall.tick()
        assert hall.turn() == 0 and hall.peers == []
        hall.path.unlink()
        hall.tick()
        assert len(hall.peers) == 1, "who waited at the old one comes in"
        with hall.knock():
            hall.turn()
            assert len(hall.peers) == 1
            hall.acceptor.back_off(False)
            hall.turn()
            assert len(hall.peers) == 2
        hall.acceptor.back_off(True)
        hall.close()


class Troubled(TcpListener):
    """Meets an error with each peer that comes, once."""

    def __init__(self, error: int) -> None:
        super().__init__("127.0.0.1", 0)
        self.errors = [error]

    def accept(self) -> tuple[socket.socket, int] | None:
        """As it is, but for the errors."""
        if self.errors:
            raise OSError(number := self.errors.pop(), os.strerror(number))
        return super().accept()


@pytest.mark.parametrize(
    "error", [errno.ECONNRESET, errno.ENOBUFS, errno.ENOMEM, errno.EPROTO, errno.EIO, errno.EMFILE]
)
def test_whatever_keeps_a_peer_from_coming_in_ends_nobody_and_passes(error: int) -> None:
    listener = Troubled(error)
    hall = Hall(listener)
    with socket.create_connection(("127.0.0.1", listener.port)):
        hall.turn()
        (event,) = hall.events
        assert isinstance(event, Degraded) and os.strerror(error) in event.text and not hall.peers
        hall.tick()
        assert len(hall.peers) == 1
        hall.tick()
        assert hall.events == [event, ConditionRecovered("the acceptor")]
    hall.close()


def test_a_kernel_that_watches_no_more_is_asked_again(tmp_path: Path) -> None:
    hall = Hall(tmp_path / "s")
    hall.acceptor.back_off(True)
    hall.selector.full = True
    hall.acceptor.back_off(False)
    hall.tick()
    with hall.knock():
        assert hall.turn() == 0
        hall.selector.full = False
        hall.tick()
        assert len(hall.peers) == 1
    hall.close()
