"""What the parts of the orchestrator share: the time, the timers, and the commands so far."""

from __future__ import annotations

import zlib

from beads_workers.core.commands import Command, Write
from beads_workers.core.records import Noted, Record
from beads_workers.core.timers import Timers


class Desk:
    """One per orchestrator. ``now`` is set before each event; commands gather until it is over.

    ``boot`` is the same moment on the clock that goes on while the machine sleeps.
    """

    def __init__(self, now: float) -> None:
        self.now = now
        self.boot = now
        self.timers = Timers()
        self._commands: list[Command] = []

    def at(self, now: float, boot: float | None = None) -> None:
        """It is ``now``; without ``boot``, the machine has never slept."""
        self.now, self.boot = now, now if boot is None else boot

    def ask(self, command: Command) -> None:
        """Ask the edge for something, after everything that was asked before."""
        self._commands.append(command)

    def write(self, record: Record) -> None:
        """Journal a transition; the edge writes it before it does what follows."""
        self._commands.append(Write(record))

    def note(self, level: str, text: str) -> None:
        """Tell people: ``info``, ``warning`` or ``error``."""
        self._commands.append(Write(Noted(level, text)))

    def hand_in(self) -> list[Command]:
        """All commands since the last call, in order."""
        commands, self._commands = self._commands, []
        return commands


def jitter(key: str) -> float:
    """A number in 0..1 that is spread over keys and the same for the same key.

    The core has no randomness: a run can be replayed.
    """
    return zlib.crc32(key.encode("utf-8", "surrogatepass")) / 0xFFFFFFFF
