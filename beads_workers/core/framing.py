"""JSON Lines framing: bytes in, lines out, wherever the stream was cut.

Source: docs/PROTOCOL.md, "Framing". The buffer is searched from where the last search ended, so
a line that arrives in a thousand pieces costs no more than one that arrives whole.
"""

from __future__ import annotations

from beads_workers.core import limits
from beads_workers.core.values import value


@value
class Line:
    """One complete, non-blank line, without its end."""

    text: bytes


@value
class TooLong:
    """A line over the limit was skipped to its end; ``head`` is how it began."""

    head: bytes


@value
class Torn:
    """The stream ended inside a line, which is dropped."""

    head: bytes


Framed = Line | TooLong | Torn


class LineReader:
    """Feed it what was read; it gives back what is complete. Holds at most one line, unless it
    was asked for fewer than have come."""

    def __init__(self, line_bytes_max: int = limits.LINE_BYTES_MAX) -> None:
        self._line_bytes_max = line_bytes_max
        self._head_bytes = min(limits.LOGGED_BYTES_MAX, line_bytes_max)
        self._buffer = bytearray()
        self._searched = 0
        self._skipping = False
        self.pending = False
        """Whether the last ``feed`` stopped at its bound: there may be more without more bytes."""

    def feed(self, data: bytes, lines_max: int | None = None) -> list[Framed]:
        """Add bytes; returns the lines that are complete, at most ``lines_max`` of them.

        After a bounded one feed no bytes until nothing is ``pending``: the limit of a line holds
        only then.
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
        """The stream is over; a partial last line is reported, never used."""
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
