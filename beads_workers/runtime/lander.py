"""The lander, seen from the loop: a process of its own, with lines of JSON on its two pipes."""

from __future__ import annotations

import os
import selectors
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from beads_workers.core.records import landing
from beads_workers.core.schedule.events import Event, LanderGone, LanderSaid
from beads_workers.executors.files import log_file
from beads_workers.runtime import side_programs
from beads_workers.runtime.processes import say

MODULE = "beads_workers.landing.run"
LANDER = "lander"
"""Name of the lander among the workers of a run: part of the token."""


def _existing(path: str, flags: int) -> int:
    """Open a log that exists; create none, because the log of an attempt may lie in an earlier
    run."""
    return os.open(path, flags & ~os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC)


class LanderProcess:
    """Handle of the lander's process. ``report`` is called with its messages, and with its end."""

    def __init__(
        self,
        settings: landing.LanderSettings,
        log: Path,
        selector: selectors.BaseSelector,
        report: Callable[[Event], None],
    ) -> None:
        self._settings = settings
        self._log = log
        self._report = report
        ids, hear = (settings.run_id, LANDER), self._hear
        self._program = side_programs.Talking(
            MODULE, ids, log, selector, hear, lambda why: report(LanderGone(why))
        )

    def start(self) -> None:
        """Start the lander; report a failure to start as its end."""
        self._program.start(landing.settings_to_line(self._settings))

    def tell(self, order: landing.Order) -> None:
        """Send an order, or keep it while the lander is slow to read."""
        self._program.tell(landing.to_line(order))

    def close(self) -> None:
        """Close the lander's pipes and wait until it has ended its gates and itself."""
        self._program.close()

    def _hear(self, line: bytes) -> None:
        try:
            news = landing.from_line(line)
        except (ValueError, RecursionError) as error:
            say("lander", f"it said what nobody understands: {error}")
            return
        if isinstance(news, landing.Refused):
            self._add_to_log(news)
        self._report(LanderSaid(news))

    def _add_to_log(self, refused: landing.Refused) -> None:
        """Add the refusal to the attempt's log, where people look for it: below the attempt's own
        output."""
        log = log_file(str(self._log.parent), refused.issue_id, refused.attempt)
        text = f"[beads-workers] did not land: {refused.why}\n{refused.text}\n"
        with suppress(OSError), open(log, "ab", opener=_existing) as file:
            file.write(text.encode("utf-8", "replace"))
