"""Carrying out checks: side by side, each for itself, and never longer than a person waits."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from beads_workers.doctor.rules import Check, warn

PATIENCE_SECONDS = 12.0
"""For all of them. The slowest that is sound, a ``bd`` on a busy machine, takes a third of it."""

Found = Iterable[Check] | Check | None


@dataclass(slots=True)
class ScheduledCheck:
    """``look`` gives what it finds; ``name`` is shown while it is waited for, or when it fails."""

    name: str
    look: Callable[[], Found]
    checks: list[Check] = field(default_factory=list)
    done: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        """Carry it out; whatever goes wrong becomes a line of its own."""
        try:
            self.checks = _listed(self.look())
        except Exception as error:  # Each check is to work when everything else is broken.
            text = f"could not be checked: {type(error).__name__}: {error}"
            self.checks = [warn(self.name, text)]
        self.done.set()


def carry_out(
    jobs: Sequence[ScheduledCheck],
    waiting: Callable[[str], None] = lambda name: None,
    patience_seconds: float = PATIENCE_SECONDS,
) -> Iterator[Check]:
    """All that is found, in the order of the jobs; ``waiting`` is told what holds the next line up.

    The threads are left behind where they are stuck: they end with the process.
    """
    deadline = time.monotonic() + patience_seconds
    for job in jobs:
        threading.Thread(target=job.run, daemon=True).start()
    for job in jobs:
        if not job.done.wait(SHOWN_AFTER_SECONDS):
            waiting(job.name)
        if job.done.wait(max(deadline - time.monotonic(), 0)):
            yield from job.checks
        else:
            text = f"not through after {patience_seconds:g} s, so it was not waited for"
            yield warn(job.name, text)


SHOWN_AFTER_SECONDS = 0.1


def _listed(found: Found) -> list[Check]:
    if found is None:
        return []
    return [found] if isinstance(found, Check) else list(found)
