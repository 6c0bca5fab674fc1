"""Who gets the journal's lines as they are written: all of them, or only those of some kinds.

Source: docs/PROTOCOL.md, "Control socket". Few want them all; whoever waits for the end of a run
must cost nothing for each of its issues, neither here nor over there.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from beads_workers.core.journal_lines import heads

PUBLISH_SECONDS = 0.05
"""Between two batches of lines: to people it is at once."""

ALL = None
NOTHING: frozenset[str] = frozenset()

Kinds = frozenset[str] | None
"""Which lines: of these kinds, or ``ALL``."""


class _Share:
    """What followers with the same wish get."""

    def __init__(self, kinds: Kinds) -> None:
        self._heads = None if kinds is None else heads(kinds)
        self.members: set[int] = set()
        self.gathered = bytearray()

    def add(self, lines: bytes) -> None:
        if self._heads is None:
            self.gathered += lines
        # One search in all of them: the kinds that are waited for are rare.
        elif any(head in lines for head in self._heads):
            wanted = (line for line in lines.splitlines(True) if line.startswith(self._heads))
            self.gathered += b"".join(wanted)


class Followers:
    """Each is a number, and follows one choice of kinds at a time."""

    def __init__(self) -> None:
        self._shares: dict[Kinds, _Share] = {}
        self._publish_at = 0.0

    def __contains__(self, number: int) -> bool:
        """Whether it follows, if only to be told the end."""
        return any(number in share.members for share in self._shares.values())

    def add(self, number: int, kinds: Kinds) -> None:
        """From now on it gets the lines of these kinds; ``flush`` first, or it gets older ones."""
        self.discard(number)
        self._shares.setdefault(kinds, _Share(kinds)).members.add(number)

    def discard(self, number: int) -> None:
        """It follows no more."""
        for kinds, share in list(self._shares.items()):
            share.members.discard(number)
            if not share.members:
                del self._shares[kinds]

    def publish(self, lines: bytes) -> None:
        """New lines; they leave with one of the next ``flush``es."""
        if lines:
            for share in self._shares.values():
                share.add(lines)

    def deadline(self) -> float | None:
        """When ``flush`` is due (monotonic seconds); None when nothing has gathered."""
        gathered = any(share.gathered for share in self._shares.values())
        return self._publish_at if gathered else None

    def flush(self, now: float) -> Iterator[tuple[Collection[int], bytes]]:
        """Who is to be sent what, a few times a second: nobody reads faster, and each costs."""
        if now < self._publish_at or self.deadline() is None:
            return
        self._publish_at = now + PUBLISH_SECONDS
        for share in list(self._shares.values()):
            lines, share.gathered = bytes(share.gathered), bytearray()
            if lines:
                yield list(share.members), lines
