"""Messages that are too long for a broker: cut into chunks, and joined again.

Memory is bounded: incomplete messages are dropped when they are stale. If there are too many, the
least recently changed is dropped first.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from beads_workers.core.base.framing import ProtocolError, parse_object
from beads_workers.core.base.model import value
from beads_workers.integrations.dispatcherd.wire import MESSAGE_TIMEOUT_SECONDS

MARKER = "__dispatcherd_chunk__"
VERSION = "v1"

MESSAGE_BYTES_MAX = 16 << 20
"""Longest joined message: a task's arguments, not a file."""
PENDING_BYTES_MAX = 32 << 20
"""Most bytes of all pieces that wait, with their overhead: two of the longest messages."""
PENDING_MAX = 4096
"""Most incomplete messages."""
TOTAL_MAX = MESSAGE_BYTES_MAX // 64
"""Most pieces of one message: no real broker takes so little at a time."""
ID_CHARS_MAX = 200
TROUBLES_MAX = 20
"""Most troubles that are kept until they are cleared; further ones are only counted."""

_PIECE_BYTES = 200
"""Memory for a piece besides its text: objects and entries of dictionaries."""


def split_message(message: str, *, max_bytes: int | None, message_id: str) -> list[str]:
    """Return the message unchanged, or in chunks of at most ``max_bytes`` each, in ASCII.

    ``max_bytes`` is compared with the message in UTF-8. ``message_id``: fresh for each message,
    hexadecimal. Raises ``ValueError`` if ``max_bytes`` leaves no room for a piece.
    """
    if max_bytes is None or _fits(message, max_bytes):
        return [message]
    # Every piece has at least one character, so no number in an envelope is longer than this one.
    most = len(message)
    room = max_bytes - len(_envelope(message_id, most, most, ""))
    if room < _CHARACTER_BYTES_MAX:
        raise ValueError(f"no room for a chunk in {max_bytes} bytes")
    pieces = _pieces(message, room)
    total = len(pieces)
    return [_envelope(message_id, index, total, piece) for index, piece in enumerate(pieces)]


_CHARACTER_BYTES_MAX = 12
"""Longest JSON of one character: a pair of surrogates, as escapes."""


def _fits(message: str, max_bytes: int) -> bool:
    return len(message) <= max_bytes and len(message.encode("utf-8", "replace")) <= max_bytes


def _pieces(message: str, room: int) -> list[str]:
    pieces: list[str] = []
    start = 0
    while start < len(message):
        piece = message[start : start + room]
        while (size := len(json.dumps(piece)) - 2) > room:
            # The number that would fit if all characters were like these, and always fewer than
            # before.
            piece = piece[: max(1, min(len(piece) * room // size, len(piece) - 1))]
        pieces.append(piece)
        start += len(piece)
    return pieces


def _envelope(message_id: str, index: int, total: int, payload: str) -> str:
    fields = {
        MARKER: VERSION,
        "message_id": message_id,
        "index": index,
        "total": total,
        "payload": payload,
    }
    return json.dumps(fields, separators=(",", ":"))


def read_object(payload: bytes) -> dict[str, Any]:
    """Return one JSON object, for ``ChunkAccumulator.ingest_dict``; raise ``ProtocolError``.

    A chunk may begin and end in the middle of a character; other messages must be whole.
    """
    if _MARKER_BYTES in payload and MARKER in (
        fields := parse_object(payload, replace_surrogates=False)
    ):
        return fields
    return parse_object(payload)


_MARKER_BYTES = MARKER.encode()


@value
class Partial:
    """An incomplete message. ``chunks``: index and length in characters of the received ones."""

    message_id: str
    seconds_since_start: float
    expected_total: int
    chunks: tuple[tuple[int, int], ...]


@dataclass(slots=True)
class _Begun:
    total: int
    began: float
    size: int = 0
    pieces: dict[int, str] = field(default_factory=dict)


class ChunkAccumulator:
    """Joins chunks. Feed it every object; it returns complete messages.

    Times are monotonic seconds. The first chunk of a message says how many there are, and the first
    chunk of an index counts: a later chunk that differs is an error, and changes nothing.
    ``troubles``: errors since the list was last cleared, in a line each.
    """

    def __init__(
        self,
        *,
        message_timeout_seconds: float = MESSAGE_TIMEOUT_SECONDS,
        pending_bytes_max: int = PENDING_BYTES_MAX,
        pending_max: int = PENDING_MAX,
    ) -> None:
        """``message_timeout_seconds``: at 0 or less, no message is ever stale."""
        self.message_timeout_seconds = message_timeout_seconds
        self.total_chunks_received = 0
        self.successful_assemblies = 0
        self.errored_assemblies = 0
        self.timed_out_assemblies = 0
        self.troubles: list[str] = []
        self._pending_bytes_max = pending_bytes_max
        self._pending_max = pending_max
        self._now = 0.0
        self._bytes = 0
        # Ordered by last change: a changed message moves to the end, and keeps its ``began``.
        self._pending: OrderedDict[str, _Begun] = OrderedDict()

    @property
    def active_messages(self) -> int:
        """Number of incomplete messages."""
        return len(self._pending)

    def ingest_dict(
        self, received: Mapping[str, Any], now: float | None = None
    ) -> tuple[bool, Mapping[str, Any] | None, str | None]:
        """Return whether the object is a chunk, the complete message if any, its ``message_id``.

        An object that is no chunk is returned unchanged. ``now``: without it, no time has passed.
        """
        if MARKER not in received:
            return False, received, None
        self._now = self._now if now is None else now
        self.total_chunks_received += 1
        try:
            message_id, begun, whole = self._add(received)
        except ProtocolError as error:
            self._wrong(str(error))
            return True, None, None
        if not whole:
            self._make_room()
            return True, None, message_id
        self._drop(message_id)
        try:
            message = parse_object(_joined(begun))
        except ProtocolError as error:
            self._wrong(f"chunks of {message_id}, joined: {error}")
            return True, None, message_id
        self.successful_assemblies += 1
        return True, message, message_id

    def expire_partial_messages(self, now: float) -> None:
        """Drop stale messages; call it now and then."""
        self._now = now
        if self.message_timeout_seconds <= 0:
            return
        oldest = now - self.message_timeout_seconds
        for message_id in [i for i, begun in self._pending.items() if begun.began <= oldest]:
            begun = self._drop(message_id)
            self.timed_out_assemblies += 1
            self._say(f"{len(begun.pieces)} of {begun.total} chunks of {message_id} were stale")

    def partials(self, now: float, limit: int | None = None) -> tuple[Partial, ...]:
        """Return the incomplete messages, the least recently changed first; at most ``limit``."""
        return tuple(
            Partial(
                message_id,
                max(0.0, now - begun.began),
                begun.total,
                tuple((index, len(begun.pieces[index])) for index in sorted(begun.pieces)),
            )
            for message_id, begun in list(self._pending.items())[:limit]
        )

    # --- one piece --------------------------------------------------------------------------------

    def _add(self, received: Mapping[str, Any]) -> tuple[str, _Begun, bool]:
        message_id, index, total, payload = _read(received)
        begun = self._pending.get(message_id)
        if begun is None:
            begun = self._pending[message_id] = _Begun(total, self._now)
        if begun.total != total:
            raise ProtocolError(f"a chunk of {message_id} says {total} pieces, not {begun.total}")
        self._pending.move_to_end(message_id)
        known = begun.pieces.get(index)
        if known is not None and known != payload:
            raise ProtocolError(f"chunk {index} of {message_id} came with two contents")
        if known is None:
            begun.pieces[index] = payload
            self._grow(message_id, begun, payload)
        return message_id, begun, len(begun.pieces) == total

    def _grow(self, message_id: str, begun: _Begun, payload: str) -> None:
        # One to four bytes for a character; most messages are ASCII.
        size = len(payload) * (1 if payload.isascii() else 4) + _PIECE_BYTES
        begun.size += size
        self._bytes += size
        if begun.size - len(begun.pieces) * _PIECE_BYTES > MESSAGE_BYTES_MAX:
            self._drop(message_id)
            raise ProtocolError(f"the chunks of {message_id} are over {MESSAGE_BYTES_MAX} bytes")

    def _make_room(self) -> None:
        while len(self._pending) > self._pending_max or self._bytes > self._pending_bytes_max:
            message_id = next(iter(self._pending))
            begun = self._drop(message_id)
            had = f"{len(begun.pieces)} of {begun.total} chunks of {message_id}"
            self._wrong(f"{had} were dropped: too many messages are not whole")

    def _drop(self, message_id: str) -> _Begun:
        begun = self._pending.pop(message_id)
        self._bytes -= begun.size
        return begun

    def _wrong(self, why: str) -> None:
        self.errored_assemblies += 1
        self._say(why)

    def _say(self, why: str) -> None:
        if len(self.troubles) < TROUBLES_MAX:
            self.troubles.append(why)


def _read(received: Mapping[str, Any]) -> tuple[str, int, int, str]:
    version = received[MARKER]
    if version != VERSION:
        raise ProtocolError(f"a chunk of version {str(version)[:40]!r}, and not {VERSION}")
    message_id, payload = received.get("message_id"), received.get("payload")
    if not isinstance(message_id, str) or not 0 < len(message_id) <= ID_CHARS_MAX:
        raise ProtocolError("a chunk without a message_id")
    message_id = message_id.encode("utf-8", "replace").decode()
    index, total = received.get("index"), received.get("total")
    # No peer sends JSON's true or 1.0 as a number of chunks.
    if type(index) is not int or type(total) is not int or not 0 <= index < total <= TOTAL_MAX:
        raise ProtocolError(
            f"a chunk of {message_id} has index {str(index)[:20]} of {str(total)[:20]}"
        )
    if not isinstance(payload, str):
        raise ProtocolError(f"the payload of a chunk of {message_id} is no text")
    return message_id, index, total, payload


def _joined(begun: _Begun) -> bytes:
    text = "".join(begun.pieces[index] for index in range(begun.total))
    if text.isascii():
        return text.encode()
    # A sender that counts in UTF-16 may have cut a pair of surrogates: joined, it is one character
    # again.
    mended = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return mended.encode("utf-8")
