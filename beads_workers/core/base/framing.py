"""JSON Lines: bytes to lines, wherever the stream was cut, and strict checks of untrusted JSON.

Source: docs/PROTOCOL.md, "Framing". The buffer is searched from where the last search ended, so a
line that arrives in a thousand pieces costs no more than one that arrives whole.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from typing import Any, NoReturn

from beads_workers.core.base import limits
from beads_workers.core.base.model import IssueId, value


@value
class Line:
    """One complete, non-blank line, without its end."""

    text: bytes


@value
class TooLong:
    """A line over the limit, skipped to its end; ``head`` is its beginning."""

    head: bytes


@value
class Torn:
    """The beginning of a line inside which the stream ended; the line is dropped."""

    head: bytes


Framed = Line | TooLong | Torn


class LineReader:
    """Turns bytes that were read into complete lines.
    It holds at most one line, unless it was asked for fewer than have come."""

    def __init__(self, line_bytes_max: int = limits.LINE_BYTES_MAX) -> None:
        self._line_bytes_max = line_bytes_max
        self._head_bytes = min(limits.LOGGED_BYTES_MAX, line_bytes_max)
        self._buffer = bytearray()
        self._searched = 0
        self._skipping = False
        self.pending = False
        """True if the last ``feed`` stopped at its bound: more lines may come without more
        bytes."""

    def feed(self, data: bytes, lines_max: int | None = None) -> list[Framed]:
        """Add bytes; return the lines that are complete, at most ``lines_max`` of them.

        After a bounded call, feed no bytes until nothing is ``pending``: only then does the limit
        of a line hold.
        """
        self._buffer += data
        found: list[Framed] = []
        start = 0
        self.pending = False
        while (end := self._buffer.find(b"\n", max(start, self._searched))) >= 0:
            self._take(self._buffer[start:end], found)
            start = end + 1
            if len(found) == lines_max:
                self.pending = True
                break
        if start:
            del self._buffer[:start]
        if self.pending:
            self._searched = 0
            return found
        self._searched = len(self._buffer)
        if self._searched > self._line_bytes_max:
            self._overflow(found)
        return found

    def end(self) -> list[Framed]:
        """End the stream; return a partial last line as ``Torn``, never as a line."""
        rest, self._buffer = bytes(self._buffer), bytearray()
        skipping, self._skipping, self._searched = self._skipping, False, 0
        # The rest of a line that is being skipped has been reported already.
        return [Torn(rest[: self._head_bytes])] if rest.strip() and not skipping else []

    def _take(self, line: bytearray, found: list[Framed]) -> None:
        if self._skipping:
            self._skipping = False
        elif len(line) > self._line_bytes_max:
            found.append(TooLong(bytes(line[: self._head_bytes])))
        elif (text := bytes(line.removesuffix(b"\r"))) and not text.isspace():
            found.append(Line(text))

    def _overflow(self, found: list[Framed]) -> None:
        if not self._skipping:
            found.append(TooLong(bytes(self._buffer[: self._head_bytes])))
        self._skipping = True
        self._buffer.clear()
        self._searched = 0


# --- json fields ---------------------------------------------------------------------------------
# Strict JSON from untrusted bytes, and typed access to its fields.
#
# Source: docs/PROTOCOL.md, "What to do on each error".


class ProtocolError(Exception):
    """A mistake of the peer. Log it with the raw line, count it, and go on to the next line."""


def parse_object(line: bytes, *, replace_surrogates: bool = True) -> dict[str, Any]:
    """Read one strict JSON object, as ``strict_loads`` does.
    Raise ``ProtocolError`` if it is none, or nested deeper than ``limits.NESTED_MAX``."""
    try:
        value = strict_loads(line, replace_surrogates=replace_surrogates)
    except ValueError as error:
        raise ProtocolError(f"not JSON: {str(error)[:80]}") from None
    except RecursionError:
        raise ProtocolError("not JSON: nested too deeply") from None
    if not isinstance(value, dict):
        raise ProtocolError("not a JSON object")
    # Most lines hold fewer brackets than that in all.
    if line.count(b"{") + line.count(b"[") > limits.NESTED_MAX and is_deep(value):
        raise ProtocolError("nested too deeply")
    return value


def strict_loads(text: bytes, *, replace_surrogates: bool = True) -> Any:
    """Read JSON in UTF-8, without NaN and infinity; raise ``ValueError`` and ``RecursionError``.

    Lone surrogates come back as ``?``: nothing could write them to a file or an argument. Without
    ``replace_surrogates`` they are left, for a caller that joins the halves of characters.
    """
    if _quick is not None and not _WIDE.search(text):
        try:
            return _quick(text)
        except ValueError:
            pass  # Python's parser judges what this one refuses, and gives the reason.
    value = _loads(text.decode("utf-8"))
    if replace_surrogates and _SURROGATE.search(text):
        clean = json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")
        value = _loads(clean.decode("utf-8"))
    return value


def read_with(loads: Callable[[bytes], Any] | None) -> None:
    """Have ``strict_loads`` try this parser first: ``orjson.loads``, or None for no other parser.

    Python's parser must read the same values from what this parser reads, except numbers of 19
    digits and more, for which it is not asked. What it refuses with a ``ValueError`` may be valid.
    """
    global _quick
    _quick = loads


def is_deep(value: Any) -> bool:
    """Return whether a value read from JSON is nested deeper than ``limits.NESTED_MAX``.

    Such a value can be read and kept, and yet fail to be written where the stack is deeper.
    """
    inside = [value]
    for _ in range(limits.NESTED_MAX + 1):
        inside = [
            inner
            for each in inside
            if isinstance(each, dict | list)
            for inner in (each.values() if isinstance(each, dict) else each)
        ]
        if not inside:
            return False
    return True


_quick: Callable[[bytes], Any] | None = None
_WIDE = re.compile(rb"\d{19}")
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")


def _loads(text: str) -> Any:
    if text.startswith("\ufeff"):
        raise ValueError("it begins with a byte-order mark")
    if text.startswith("{"):
        # Like ``decode``, which looks for blanks on both sides: mostly there are none.
        value, end = _DECODER.raw_decode(text)
        if end == len(text):
            return value
    return _DECODER.decode(text)


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _finite(text: str) -> float:
    # 1e999 is well-formed and reads as infinity, which could not be written back as JSON.
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text[:20]} is too large a number")
    return number


_DECODER = json.JSONDecoder(parse_constant=_refuse_constant, parse_float=_finite)
"""Shared decoder: ``json.loads`` with these arguments makes a new one for every line."""


def text(fields: dict[str, Any], key: str, default: str) -> str:
    """Return the text under ``key``; a value that is no text counts as missing."""
    value = fields.get(key)
    return value if isinstance(value, str) else default


def as_number(value: Any) -> float | None:
    """Return a value as a finite number, integral or not; None if it is not one, or a bool."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def as_integer(value: Any) -> int | None:
    """Return a value as an integer if it is one, or a float with an integral value; else None."""
    number = as_number(value)
    if number is None or not number.is_integer():
        return None
    return value if isinstance(value, int) else int(number)


def sender(fields: dict[str, Any]) -> str:
    """Return the peer's ``worker_id``; raise ``ProtocolError`` without it or a timestamp."""
    worker_id = fields.get("worker_id")
    if not isinstance(worker_id, str) or not worker_id:
        raise ProtocolError("no worker_id")
    if as_number(fields.get("timestamp")) is None:
        raise ProtocolError("no timestamp")
    return worker_id


def issue_id(fields: dict[str, Any]) -> IssueId:
    """Return the issue that a message is about; raise ``ProtocolError`` without one."""
    value = fields.get("issue_id")
    if not isinstance(value, str) or not value:
        raise ProtocolError("no issue_id")
    return IssueId(value)
