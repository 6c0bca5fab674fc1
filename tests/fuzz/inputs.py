"""Hostile inputs, made from valid ones: fast, seeded, and the same again for the same seed.

Two ways are mixed. What is JSON is changed as a value: types swapped, fields lost, doubled and
invented, numbers without measure. What came of that is then changed as bytes: cut, doubled, joined
with pieces that have broken parsers before. Seldom, a piece is repeated until the input is large:
what takes time that grows with the square of its input shows there.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from random import Random
from typing import Any

LARGE_BYTES = 1 << 16
ONE_IN_LARGE = 4000
"""Large inputs cost a thousand times as much; 250 of them in a million find what grows."""
DEEP_FRAMES = 10_000
"""Several times what the deepest value takes."""

Make = Callable[[Random], bytes]

VALUES: Sequence[Any] = (
    None, True, False, 0, -1, 1, 2, 5, 1000, 2**31, 2**53 + 1, 2**63, -(2**64), 10**308, 10**400,
    0.0, -0.0, 0.5, 1.5, 3.0, -2.0, 1e15, 1e300, 5e-324, float("nan"), float("inf"), float("-inf"),
    "", " ", "x", "1", "null", "\0", "a\0b", "\n", "\ud800", "\udfff\ud800", "\udc80", "\ufeff",
    "\u202e", "\x1b[31m", "\x1b]0;t\x07", "é", "日本", "👩‍👩‍👧", "e\u0301", "--json", "-rf",
    "../..",
    "x" * 5000, "{title}", "{id}", "2026-01-02T03:04:05Z", "open", "closed", "blocks", "error",
    [], [[]], {}, [None], [1, "a", {}], ["a", "b"], {"a": {"b": []}}, {"": ""}, [{}, {}], ["\0"],
)  # fmt: skip

PIECES: Sequence[bytes] = (
    b"", b"\n", b"\r\n", b"\r", b"\0", b"\xff", b"\xc3", b"\xe2\x80\xa8", b"\xed\xa0\x80",
    b"\xf4\x90",     b"\xef\xbb\xbf", b"{", b"}", b"[", b"]", b'"', b"\\", b",", b":", b"{}",
    b"null", b"NaN",
    b"-Infinity", b"1e999", b"-1e999", b"0x1", b"01", b"-", b"\\u0000", b"\\ud800",
    b"\\udc00\\ud800",     b'"\\ud83d\\ude00"', b"\x1b", b"\x1b[", b"\x1b]", b"\x1b[M", b"\x1b\\",
    b"\x07", b"\t", b" ",
    b"\xc2\x9b", b"\x80", b"-->", b"'", b"$(", b"%s",
)  # fmt: skip


LONG_PIECES: Sequence[bytes] = (
    b"9" * 400, b"9" * 4400, b"[" * 120, b'{"a":' * 120, b"[" * 2000, b'{"a":[' * 900, b"]" * 900,
    b"a" * 300, b"0x" + b"f" * 5000, b" " * 2000,
)  # fmt: skip
"""Dear ones, so they are seldom."""


def any_of(rng: Random, values: Sequence[Any]) -> Any:
    """One of them; several times as fast as ``Random.choice``."""
    return values[int(rng.random() * len(values))]


def hostile_value(rng: Random) -> Any:
    """A value of any type; seldom one that is nested deeply."""
    if rng.random() > 0.02:
        return any_of(rng, VALUES)
    deep: Any = any_of(rng, VALUES)
    for _ in range(int(rng.random() ** 4 * 980)):
        deep = [deep] if rng.random() < 0.5 else {"a": deep}
    return deep


def hostile_object(rng: Random, valid: Mapping[str, Any], names: Sequence[str] = ()) -> Any:
    """A valid object with one to three changes; ``names``: further keys that mean something."""
    fields = dict(valid)
    for _ in range(1 + int(rng.random() ** 3 * 3)):
        name = any_of(rng, names or tuple(valid)) if rng.random() < 0.9 else "another"
        kind = rng.random()
        if kind < 0.6:
            fields[name] = hostile_value(rng)
        elif kind < 0.75:
            fields.pop(name, None)
        elif isinstance(inner := fields.get(name), dict) and inner:
            fields[name] = hostile_object(rng, inner)
        elif isinstance(inner, list | tuple) and inner:
            fields[name] = [*inner, hostile_value(rng)]
        else:
            fields[name] = any_of(rng, tuple(fields.values()) or (None,))
    return fields if rng.random() < 0.98 else hostile_value(rng)


@contextmanager
def _deep() -> Iterator[None]:
    """Whether a deep value can be written must not depend on who asks: the inputs would."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(DEEP_FRAMES)
    try:
        yield
    finally:
        sys.setrecursionlimit(before)


def as_json(rng: Random, value: Any) -> bytes:
    """The value as JSON of one spelling or another; at times with a key that stands twice."""
    with _deep():
        text = json.dumps(value, ensure_ascii=rng.random() < 0.5)
    if isinstance(value, dict) and value and rng.random() < 0.05:
        again = json.dumps({any_of(rng, tuple(value)): any_of(rng, VALUES)})
        text = text[:-1] + "," + again[1:]
    return text.encode("utf-8", "surrogatepass")


def mutated(rng: Random, data: bytes, pieces: Sequence[bytes] = PIECES) -> bytes:
    """The bytes with one to four changes; ``pieces``: what the parser has a meaning for."""
    for _ in range(1 + int(rng.random() ** 2 * 4)):
        at = int(rng.random() * (len(data) + 1))
        kind = rng.random()
        if kind < 0.25:
            data = data[:at] + any_of(rng, pieces) + data[at:]
        elif kind < 0.4:
            foreign = PIECES if rng.random() < 0.95 else LONG_PIECES
            data = data[:at] + any_of(rng, foreign) + data[at:]
        elif kind < 0.55:
            data = data[:at] + bytes((int(rng.random() * 256),)) + data[at + 1 :]
        elif kind < 0.7:
            data = data[:at] + data[at + 1 + int(rng.random() ** 3 * 40) :]
        elif kind < 0.8:
            data = data[:at]
        else:
            other = int(rng.random() * (len(data) + 1))
            data = data[:at] + data[min(at, other) : max(at, other)] + data[at:]
    return data


def large(rng: Random, data: bytes, pieces: Sequence[bytes]) -> bytes:
    """The input with one piece of it, or of ``pieces``, repeated until it is large."""
    at = int(rng.random() * (len(data) + 1))
    piece = any_of(rng, pieces) if rng.random() < 0.7 else data[at : at + int(rng.random() * 9)]
    return data[:at] + (piece or b"a") * (LARGE_BYTES // len(piece or b"a")) + data[at:]


def hostile(make: Make, pieces: Sequence[bytes] = PIECES, *, grows: bool = True) -> Make:
    """What ``make`` gives, half of it changed as bytes; ``grows``: seldom, made large."""

    def made(rng: Random) -> bytes:
        data = make(rng)
        kind = rng.random()
        if kind < 0.5:
            data = mutated(rng, data, pieces)
        elif grows and kind > 1 - 1 / ONE_IN_LARGE:
            data = large(rng, data, pieces)
        return data

    return made


def objects(valid: Sequence[Mapping[str, Any]], names: Sequence[str] = ()) -> Make:
    """Hostile JSON objects, from one of these valid ones each; hostile as bytes, too."""
    known = tuple(names) or tuple(dict.fromkeys(name for each in valid for name in each))

    def made(rng: Random) -> bytes:
        return as_json(rng, hostile_object(rng, any_of(rng, valid), known))

    return hostile(made)


def texts(pieces: Sequence[bytes], length: int = 12) -> Make:
    """Joined from pieces, ours and the hostile ones; hostile as bytes, too."""

    def made(rng: Random) -> bytes:
        count = int(rng.random() * length)
        return b"".join(any_of(rng, pieces if rng.random() < 0.8 else PIECES) for _ in range(count))

    return hostile(made, pieces)


def as_text(data: bytes) -> str:
    """The bytes as a text that may hold anything, lone surrogates too."""
    return data.decode("utf-8", "surrogateescape")


def cuts(data: bytes) -> list[list[bytes]]:
    """The same bytes in several partitions, told by the bytes alone; every byte by itself first."""
    rng = Random(len(data) * 257 + sum(data[:64]))
    every = [data[at : at + 1] for at in range(min(len(data), 300))]
    parts = [[*every, data[300:]]]
    for pieces in (2, 5):
        edges = sorted(int(rng.random() * (len(data) + 1)) for _ in range(pieces - 1))
        parts.append([data[a:b] for a, b in zip([0, *edges], [*edges, len(data)], strict=True)])
    return parts
