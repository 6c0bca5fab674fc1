"""One connection of the kit: lines in and out, with a transcript of all lines."""

from __future__ import annotations

import json
import select
import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from beads_workers.conformance.schemas import faults
from beads_workers.core.base.framing import ProtocolError, parse_object

Message = dict[str, Any]

READ_BYTES = 1 << 16
LINE_BYTES_MAX = 1 << 20
FLOOD_LINES = 100
SHOWN_CHARS_MAX = 300
"""Most characters of a line in a transcript."""
WHY_CHARS_MAX = 200
"""Most characters of a fault in a message."""


class Breach(Exception):
    """The peer has broken a requirement; the text says how.

    ``allowed``: seconds that the peer had, if it was too late; a slow machine excuses that.
    """

    def __init__(self, requirement: str, why: str, allowed: float = 0.0) -> None:
        super().__init__(why)
        self.requirement = requirement
        self.why = why
        self.allowed = allowed


@dataclass(slots=True)
class PeerLink:
    """One connection."""

    socket: socket.socket
    transcript: list[str]
    # ``framing``, ``fields`` and ``additions``: requirements that the peer breaks, by an invalid
    # line, by an invalid message, and by one without the additions of 1.1.
    framing: str
    fields: str
    additions: str
    # Mark of the peer's lines in a transcript, ``>`` for a worker's.
    arrow: str
    received: list[Message] = field(default_factory=list)
    """All messages of the peer."""
    is_over: bool = False
    _buffer: bytearray = field(default_factory=bytearray)

    def send(self, message: Message) -> None:
        """Send one message; do nothing if the peer is gone."""
        self.send_bytes(json.dumps(message).encode() + b"\n")

    def send_bytes(self, data: bytes, *, shown: bool = True) -> None:
        """Send these very bytes, or a piece of a line."""
        if shown:
            self._note("<" if self.arrow == ">" else ">", data)
        with suppress(OSError):
            self.socket.settimeout(10.0)
            self.socket.sendall(data)

    def flood(self, line: bytes, count: int, seconds: float) -> bool:
        """Send this line ``count`` times, and read nothing.

        Returns whether the peer has closed the connection or stopped reading for ``seconds``;
        False: it goes on answering.
        """
        self.transcript.append(f"  (the kit reads nothing, and says {count} times)")
        self._note("<" if self.arrow == ">" else ">", line)
        self.socket.settimeout(seconds)
        try:
            for _ in range(0, count, FLOOD_LINES):
                self.socket.sendall(line * FLOOD_LINES)
        except OSError:
            return True
        ended = select.poll()
        ended.register(self.socket, select.POLLHUP)
        return bool(ended.poll(seconds * 1000))

    def read(self, seconds: float, *, in_time: bool = False) -> Message | None:
        """Return the peer's next message; None if none comes in time, or at the end of the stream.

        ``is_over`` tells the two apart. ``in_time``: leave a message that is found after the
        deadline to the next read, since on a busy machine the kit may look too late. Raises
        ``Breach``.
        """
        deadline = time.monotonic() + seconds
        while b"\n" not in self._buffer:
            left = deadline - time.monotonic()
            if self.is_over or left <= 0:
                return None
            self._receive(left)
            if in_time and time.monotonic() > deadline:
                return None
        line, _, rest = bytes(self._buffer).partition(b"\n")
        self._buffer[:] = rest
        self._note(self.arrow, line)
        message = self._checked(line)
        self.received.append(message)
        return message

    def close(self) -> None:
        """Close the connection, like a peer that is gone."""
        with suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()
        self.transcript.append("  (the kit closes the connection)")

    def _receive(self, seconds: float) -> None:
        self.socket.settimeout(seconds)
        try:
            received = self.socket.recv(READ_BYTES)
        except TimeoutError:
            return
        except OSError:
            received = b""
        if not received:
            self.is_over = True
            self.transcript.append("  (end of the stream)")
            if self._buffer:
                torn = bytes(self._buffer)[:80]
                raise Breach(self.framing, f"its last line has no end: {torn!r}")
        self._buffer += received
        if len(self._buffer) > 2 * LINE_BYTES_MAX:
            raise Breach(self.framing, "a line of more than 1 MiB")

    def _checked(self, line: bytes) -> Message:
        try:
            message = parse_object(line, replace_surrogates=False)
        except ProtocolError as error:
            raise Breach(self.framing, str(error)) from None
        is_worker = self.arrow == ">"
        if found := faults(message, from_worker=is_worker):
            plain = {key: value for key, value in message.items() if key != "version"}
            in_1_1_only = not faults(plain, from_worker=is_worker)
            broken = self.additions if in_1_1_only else self.fields
            raise Breach(broken, f"{message.get('type')!s:.40}: {found[0][:WHY_CHARS_MAX]}")
        return message

    def _note(self, arrow: str, data: bytes) -> None:
        for line in _lines(data):
            self.transcript.append(f"{arrow} {line}")


def _lines(data: bytes) -> Iterator[str]:
    text = data.decode("utf-8", "backslashreplace")
    for line in text.removesuffix("\n").split("\n"):
        shown = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in line[:SHOWN_CHARS_MAX])
        yield shown + (f"... ({len(line)} characters)" if len(line) > SHOWN_CHARS_MAX else "")
