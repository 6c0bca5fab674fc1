"""A program with a terminal, for tests: draws counters, and does what its keys say.

    python -m tests.support.counters LOG

Keys: ``q`` leaves, ``x`` fails while drawing, ``e`` exits with 3, ``h`` hangs for good, ``f`` draws
new text everywhere, ``r`` everything anew, any other the same again. Events go to LOG.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from beads_workers.ui.terminal import Events, Terminal, can_draw


class Counters:
    """What is drawn: how often each thing has happened."""

    def __init__(self, terminal: Terminal, log: Path) -> None:
        self.terminal = terminal
        self.turns = 0
        self._log = log.open("a", buffering=1)

    def lines(self) -> list[str]:
        """One row per fact, and a last row as wide as the screen."""
        columns, rows = self.terminal.size
        head = [f"\x1b[1mcounters\x1b[0m {columns}x{rows}", f"turn {self.turns}"]
        middle = [f"row {n} of turn {self.turns}" for n in range(3, rows)]
        return [*head, *middle, ("\x1b[7m" + "=" * (columns - 1) + "|\x1b[0m")][:rows]

    def run(self) -> int:
        """Until a key or a signal ends it; its exit status."""
        self.terminal.draw(self.lines())
        while True:
            events = self.terminal.wait()
            print(events, file=self._log)
            if events.signals:
                return 128 + events.signals[0]
            if events.gone:
                return 99
            if (status := self._obey(events)) is not None:
                return status
            if events.resized or events.resumed:
                self.terminal.draw(self.lines())

    def _obey(self, events: Events) -> int | None:
        for key in events.keys:
            match key:
                case "q":
                    return 0
                case "x":
                    self.terminal.draw([*self.lines(), 1 / 0])  # type: ignore[list-item]
                case "e":
                    sys.exit(3)
                case "h":
                    print("hangs", file=self._log)
                    time.sleep(600)
                case "f":
                    self.turns += 1
                case "r":
                    self.terminal.draw(self.lines(), full=True)
            self.terminal.draw(self.lines())
        return None


def main() -> int:
    """The program."""
    if not can_draw():
        print("no terminal")
        return 4
    log = Path(sys.argv[1])
    with Terminal.open() as terminal:
        status = Counters(terminal, log).run()
    with log.open("a") as file:
        print(f"left with {status}", file=file)
    try:
        print(f"left with {status}", flush=True)
    except OSError:
        os._exit(status)  # There is no terminal any more, and flushing once more would fail too.
    return status


if __name__ == "__main__":
    sys.exit(main())
