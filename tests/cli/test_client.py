"""The client's end of a control socket: what came, in order, however it was cut."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from beads_workers.cli.client import ControlClient, NoAnswer
from beads_workers.errors import CommandError

Pair = tuple[ControlClient, socket.socket]


@pytest.fixture
def pair() -> Iterator[Pair]:
    """A client, and the fleet's end."""
    ours, theirs = socket.socketpair()
    yield ControlClient(ours), theirs
    ours.close()
    theirs.close()


def test_what_came_at_once_is_told_one_by_one(pair: Pair) -> None:
    client, fleet = pair
    fleet.sendall(b'{"a": 1}\n{"b": [2, 3]}\n{"c"')
    assert client.read(20) == {"a": 1} and not client.drained
    assert client.read(20) == {"b": [2, 3]} and client.drained
    fleet.sendall(b": 4}\n")
    assert client.read(20) == {"c": 4}


@pytest.mark.parametrize("bad", [b"{", b"[]", b"7", b'{"a": 1}, {"b": 2}', b"", b"\xff"])
def test_what_stands_before_nonsense_is_told_first(pair: Pair, bad: bytes) -> None:
    client, fleet = pair
    fleet.sendall(b'{"a": 1}\n' + bad + b'\n{"c": 3}\n')
    assert client.read(20) == {"a": 1}
    with pytest.raises(CommandError, match="no fleet of this version"):
        client.read(20)


def test_silence_is_another_trouble_than_nonsense(pair: Pair) -> None:
    client, fleet = pair
    with pytest.raises(NoAnswer):
        client.read(0.001)
    fleet.sendall(b"nonsense\n")
    with pytest.raises(CommandError) as caught:
        client.read(20)
    assert not isinstance(caught.value, NoAnswer)


def test_lines_that_are_skipped_are_not_even_parsed(pair: Pair) -> None:
    client, fleet = pair
    client.skipped = (b'{"e":"claimed"', b'{"e":"spent"')
    fleet.sendall(b'{"e":"claimed", torn\n{"e":"started"}\n{"e":"spent"}\n')
    fleet.close()
    assert list(client.follow()) == [{"e": "started"}]


def test_a_stir_is_whatever_comes_and_the_end_is_none(pair: Pair) -> None:
    client, fleet = pair
    fleet.sendall(b"whatever")
    assert client.stirs()
    fleet.close()
    assert not client.stirs()


def test_what_came_with_the_last_answer_is_a_stir(pair: Pair) -> None:
    client, fleet = pair
    fleet.sendall(b'{"status": {}}\n{"e": "claimed"}\n')
    assert client.read(20) == {"status": {}}
    assert client.stirs()
