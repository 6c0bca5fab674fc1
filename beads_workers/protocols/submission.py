"""Envelopes that somebody hands in: JSON Lines, or objects over several lines, one after another.

Source: docs/ENVELOPE.md, "Handing one in".
"""

from __future__ import annotations

import re

from beads_workers.core import limits
from beads_workers.core.json_fields import ProtocolError, parse_object
from beads_workers.core.values import value
from beads_workers.protocols.envelope import Envelope, State, from_fields

PROBLEMS_MAX = 20
"""After so many the rest is not read: a file that is no submission must not fill the screen."""

_TOKEN = re.compile(rb'"(?:[^"\\\n]|\\.)*+"|["{}\[\]]')
"""A whole string, whose brackets do not count; a quote that begins no whole one; a bracket."""

_POSITION = re.compile(r": line \d+ column \d+ \(char \d+\)$")
"""Within one envelope: only the line of the file means anything to a person."""


@value
class Submitted:
    """``where``: the line that it begins on, for people: ``line 3``, or ``FILE: line 3``."""

    where: str
    envelope: Envelope


@value
class Submission:
    """``problems``: one line each, with number and field; with any of them nothing is taken."""

    jobs: tuple[Submitted, ...]
    problems: tuple[str, ...]


def read_submission(data: bytes, name: str = "") -> Submission:
    """Every envelope, and everything that is wrong. ``name``: of the file, if it has one."""
    jobs: list[Submitted] = []
    problems: list[str] = []
    text = data.removeprefix(b"\xef\xbb\xbf")
    at, number = 0, 1
    while at < len(text) and len(problems) < PROBLEMS_MAX:
        end = _line_end(text, at)
        if text[at:end].strip():
            whole = _object_end(text, at)
            end = end if whole is None else _line_end(text, whole)
            where = f"{name}: line {number}" if name else f"line {number}"
            try:
                jobs.append(Submitted(where, _read(text[at:end])))
            except ProtocolError as error:
                problems.append(f"{where}: {_POSITION.sub('', str(error))}")
        number += text.count(b"\n", at, end) + 1
        at = end + 1
    return Submission(tuple(jobs), tuple(problems))


def _read(text: bytes) -> Envelope:
    if len(text) > limits.LINE_BYTES_MAX:
        raise ProtocolError(f"longer than {limits.LINE_BYTES_MAX} bytes")
    envelope = from_fields(parse_object(text))
    if envelope.state is not State.ENQUEUED:
        state = envelope.state.value
        raise ProtocolError(f"state: only 'enqueued' can be handed in, and it is {state!r}")
    return envelope


def _line_end(text: bytes, at: int) -> int:
    end = text.find(b"\n", at)
    return len(text) if end < 0 else end


def _object_end(text: bytes, at: int) -> int | None:
    """Behind the bracket that closes the first one; None where there is none, or far too late."""
    depth = 0
    for token in _TOKEN.finditer(text, at, at + limits.LINE_BYTES_MAX):
        match token[0]:
            case b"{" | b"[":
                depth += 1
            case b"}" | b"]":
                depth -= 1
                if depth <= 0:
                    return token.end()
            case b'"':
                return None  # A string that does not end on its line: so it is no JSON.
            case _:
                if depth == 0:
                    return None
    return None
