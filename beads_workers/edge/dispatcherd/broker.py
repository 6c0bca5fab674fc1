"""What a broker of dispatcherd is to the front, and the front to a broker."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any, Protocol

from beads_workers.protocols.dispatcherd.chunks import split_message

Answer = Callable[[str], None]
"""Sends a text back to where a request came from; cut into chunks as its broker needs it."""


class Broker(Protocol):
    """One way in."""

    producer: str
    """What dispatcherd calls that which reads from it."""

    def deadline(self) -> float:
        """When ``tend`` is due (monotonic seconds)."""

    def tend(self, now: float) -> None:
        """Whatever time has come for."""

    def status(self) -> dict[str, Any]:
        """For dispatcherd's ``producers``, without its uptime."""

    def pause(self, paused: bool) -> None:
        """Read nothing more, or go on; called while it hands over, too."""

    def cease(self) -> None:
        """Nobody is let in any more; what has come already is handed over."""

    def close(self) -> None:
        """The end: what is still to be sent goes, and all connections end."""


class Receiver(Protocol):
    """Takes what a broker reads."""

    def receive(self, payload: bytes, channel: str, answer: Callable[[str], Answer]) -> None:
        """A whole payload. ``answer(reply_to)`` gives what sends a reply there."""

    def warn(self, text: str) -> None:
        """Something that people should know; not shown without end."""


def in_chunks(text: str, max_bytes: int) -> list[str]:
    """A reply as its broker takes it."""
    return split_message(text, max_bytes=max_bytes, message_id=uuid.uuid4().hex)
