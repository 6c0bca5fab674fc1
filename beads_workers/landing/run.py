"""The lander as a program: ``python -m beads_workers.landing.run``, JSON Lines in and out.

The first line of stdin is ``LanderSettings``, the others are orders; stdout has the news
(``core.records.landing``). At the end of stdin, or on SIGTERM, the program ends all gates and
exits. Exit status: 0, or 1 after writing to stderr why nothing can land here.
"""

from __future__ import annotations

import gc
import os
import selectors
import signal
import sys
import time

from beads_workers.core.records.landing import News, Order, from_line, settings_from_line, to_line
from beads_workers.landing.lander import Lander
from beads_workers.landing.repository import CannotLand
from beads_workers.runtime.processes import received_signals, say, wake_on

READ_BYTES = 1 << 16


class _Program:
    def __init__(self) -> None:
        self._input = bytearray()
        self._ends = False
        self._selector = selectors.DefaultSelector()
        self._lander: Lander | None = None

    def run(self) -> int:
        wake = wake_on((signal.SIGTERM, signal.SIGINT, signal.SIGHUP))
        self._selector.register(
            wake, selectors.EVENT_READ, lambda: self._told_to_end(received_signals(wake))
        )
        self._selector.register(0, selectors.EVENT_READ, self._read)
        try:
            while not self._ends:
                self._turn()
        except CannotLand as error:
            sys.stderr.write(f"{error}\n")
            return 1
        except BrokenPipeError:
            pass  # Nobody listens any more: an end like any other.
        finally:
            if self._lander is not None:
                self._lander.close()
        return 0

    def _turn(self) -> None:
        lander = self._lander
        wait = None if lander is None else max(0.0, lander.due - time.monotonic())
        for key, _ in self._selector.select(wait):
            key.data()
        if self._lander is not None and not self._ends:
            self._lander.work()

    def _told_to_end(self, numbers: bytes) -> None:
        self._ends = self._ends or bool(numbers)

    def _read(self) -> None:
        data = os.read(0, READ_BYTES)
        if not data:
            self._ends = True
            return
        self._input += data
        *lines, rest = bytes(self._input).split(b"\n")
        self._input = bytearray(rest)
        for line in lines:
            self._line(line)

    def _line(self, line: bytes) -> None:
        if self._lander is None:
            lander = Lander(settings_from_line(line), _say, self._selector)
            lander.open()
            self._lander = lander
            return
        try:
            order = from_line(line)
        except ValueError as error:
            say("lander", f"not understood: {error}")
            return
        if isinstance(order, Order):
            self._lander.handle(order)


def _say(news: News) -> None:
    line = to_line(news)
    while line:
        line = line[os.write(1, line) :]


def main() -> int:
    """Run the program: see the module text."""
    return _Program().run()


if __name__ == "__main__":
    gc.freeze()  # Nothing that is loaded is garbage; at the end, Python would search for some, too.
    sys.exit(main())
