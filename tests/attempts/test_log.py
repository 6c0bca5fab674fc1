"""The log of an attempt: whole lines, and no secret in whatever pieces it comes."""

from __future__ import annotations

import itertools
import os
import tempfile
from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beads_workers.attempts.log import LINE_BYTES_MAX, MaskedLog, secrets_in

SECRET = "sk-0123456789abcdef"
ENVIRONMENT = {"API_KEY": SECRET, "PATH": "/bin", "HOME_URL": "/secret/place", "PIN_TOKEN": "123"}


def written(pieces: list[bytes], environment: Mapping[str, str] = ENVIRONMENT) -> bytes:
    """What lies in the log after these pieces."""
    with tempfile.TemporaryFile() as file:
        log = MaskedLog(environment, file.fileno())
        for piece in pieces:
            log.write(piece)
        log.flush()
        file.seek(0)
        return file.read()


@settings(deadline=None)
@given(st.lists(st.integers(0, 60), max_size=8))
def test_a_secret_is_masked_wherever_its_pieces_are_cut(cuts: list[int]) -> None:
    line = f"key={SECRET} and again {SECRET}\n".encode()
    places = [0, *sorted(min(cut, len(line)) for cut in cuts), len(line)]
    pieces = [line[a:b] for a, b in itertools.pairwise(places)]
    stars = b"*" * len(SECRET)
    assert written(pieces) == b"key=" + stars + b" and again " + stars + b"\n"


@pytest.mark.parametrize("behind", range(30))
def test_and_where_a_line_is_too_long_to_be_kept(behind: int) -> None:
    line = b"x" * LINE_BYTES_MAX + SECRET.encode() + b"y" * behind
    found = written([line, b"z\n"])
    assert found == b"x" * LINE_BYTES_MAX + b"*" * len(SECRET) + b"y" * behind + b"z\n"


def test_a_secret_of_several_lines_is_masked_line_by_line() -> None:
    key = "-----BEGIN KEY-----\nMIIEvQIBADANBg\n-----END KEY-----"
    found = written([b"MIIEvQ", b"IBADANBg\nfine\n"], {"SIGN_KEY": key})
    assert found == b"**************\nfine\n"


def test_what_is_no_secret_stays() -> None:
    assert secrets_in(ENVIRONMENT) == [SECRET.encode()]
    assert written([b"123 /secret/place /bin"]) == b"123 /secret/place /bin\n"


def test_a_line_of_ours_stands_alone() -> None:
    with tempfile.TemporaryFile() as file:
        log = MaskedLog(ENVIRONMENT, file.fileno())
        log.write(b"half a line")
        log.say("it is\nover")
        file.seek(0)
        assert file.read() == b"half a line\n[beads-workers] it is over\n"


def test_a_log_that_cannot_be_written_stops_nobody() -> None:
    reading, writing = os.pipe()
    os.close(writing)
    MaskedLog(ENVIRONMENT, reading).write(b"a line\n")
    os.close(reading)
