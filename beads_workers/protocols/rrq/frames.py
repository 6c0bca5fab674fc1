"""Frames: four bytes of length, big-endian, then that many bytes of JSON.

A wrong length ends the connection: where the next frame begins is not known any more.
"""

from __future__ import annotations

import struct

FRAME_BYTES_MAX = 16 * 1024 * 1024
"""The real peers' limit, for both directions; the four bytes of the length are not counted."""

_LENGTH = struct.Struct(">I")


class FrameReader:
    """Feed it what was read; it gives back what is complete. Holds one frame at most."""

    __slots__ = ("_buffer", "_frame_bytes_max", "broken")

    def __init__(self, frame_bytes_max: int = FRAME_BYTES_MAX) -> None:
        self._frame_bytes_max = frame_bytes_max
        self._buffer = bytearray()
        self.broken = ""
        """Why nothing more can be read: handle what was given back, then close the connection."""

    @property
    def unread(self) -> int:
        """How many bytes of a frame that is not complete are held."""
        return len(self._buffer)

    def feed(self, data: bytes) -> list[bytes]:
        """Add bytes; returns the payloads that are complete. Look at ``broken`` afterwards."""
        if self.broken:
            return []
        if not self._buffer and self._is_one_frame(data):
            return [data[_LENGTH.size :]]  # Mostly it is that, and nothing need be gathered.
        self._buffer += data
        found: list[bytes] = []
        start = 0
        while (end := self._end(start)) is not None and end <= len(self._buffer):
            found.append(bytes(self._buffer[start + _LENGTH.size : end]))
            start = end
        del self._buffer[:start]
        if self.broken:
            self._buffer.clear()
        return found

    def end(self) -> None:
        """The stream is over; ``broken`` says if that was inside a frame."""
        if self._buffer and not self.broken:
            self.broken = f"the stream ended {len(self._buffer)} bytes into a frame"

    def _is_one_frame(self, data: bytes) -> bool:
        length = len(data) - _LENGTH.size
        whole = 0 < length <= self._frame_bytes_max
        return whole and _LENGTH.unpack_from(data)[0] == length

    def _end(self, start: int) -> int | None:
        """Where the frame that begins at ``start`` ends; None while, or if never, that is known."""
        if len(self._buffer) < start + _LENGTH.size:
            return None
        (length,) = _LENGTH.unpack_from(self._buffer, start)
        if length == 0:
            self.broken = "an empty frame"
        elif length > self._frame_bytes_max:
            self.broken = f"a frame of {length} bytes, over {self._frame_bytes_max}"
        return None if self.broken else start + _LENGTH.size + int(length)


def frame(payload: bytes, frame_bytes_max: int = FRAME_BYTES_MAX) -> bytes:
    """The payload with its length before it; raises ``ValueError`` if it is empty or too long."""
    if not 0 < len(payload) <= frame_bytes_max:
        raise ValueError(f"a frame of {len(payload)} bytes; 1 to {frame_bytes_max} are allowed")
    return _LENGTH.pack(len(payload)) + payload
