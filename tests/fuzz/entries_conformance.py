"""What a stranger's worker or orchestrator says to the conformance kit."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from typing import Any

from beads_workers.conformance import schemas
from beads_workers.conformance.link import Breach, PeerLink
from beads_workers.core.base import wire
from beads_workers.core.base.framing import ProtocolError
from tests.fuzz.entries_wire import MESSAGES
from tests.fuzz.inputs import objects
from tests.fuzz.parser import Parser, require

WHY_CHARS_MAX = 300


class Link(PeerLink):
    """One that reads lines from no socket at all."""

    def __init__(self, arrow: str) -> None:
        nowhere = socket.socket(socket.AF_UNIX)
        nowhere.close()
        super().__init__(nowhere, [], "F", "M", "A", arrow)

    def verdict(self, line: bytes) -> Mapping[str, Any] | None:
        """The message; None for a breach."""
        try:
            return self._checked(line)
        except Breach as breach:
            require(breach.requirement in ("F", "M", "A"), "a breach of nothing")
            require(len(str(breach)) <= WHY_CHARS_MAX, "the reason is as long as the line")
            return None


class Credulous(Link):
    """Planted bug: any JSON object is a message."""

    def verdict(self, line: bytes) -> Mapping[str, Any] | None:
        try:
            return wire.parse_object(line)
        except ProtocolError:
            return None


def conformance_holds(link: type[Link], line: bytes) -> None:
    for arrow in "><":
        message = link(arrow).verdict(line)
        mine, other = (schemas.by_name(from_worker=side) for side in (arrow == ">", arrow != ">"))
        if message is None or message["type"] not in mine:
            continue
        if message["type"] in other and arrow == "<":
            continue  # Who reads a line does not know which side has said it.
        try:
            wire.parse(line)
        except ProtocolError as error:
            raise AssertionError(f"it passes, and cannot be read: {error}") from None


PARSERS = [
    Parser("conformance", ("conformance/link.py", "conformance/schemas.py"), Link,
           objects(MESSAGES), conformance_holds, {"credulous": Credulous}),
]  # fmt: skip
