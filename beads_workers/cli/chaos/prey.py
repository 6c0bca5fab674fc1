"""Who can be hit: the processes that this chaos has started, found by the token they inherit.

Nothing is found by name or by number. A process is its pid together with its start time, and
both are looked at again right before the signal.
"""

from __future__ import annotations

import os
import re
import secrets
import signal
import time
from collections.abc import Collection
from dataclasses import dataclass

from beads_workers.cli.chaos.plan import Target
from beads_workers.edge import sessions

VARIABLE = "BW_CHAOS"
"""Every process below us inherits it; its value belongs to this chaos alone."""

GONE_SECONDS = 10.0
"""Far above what the kernel needs to bury a killed process, unless its disk hangs."""
LOOK_SECONDS = 0.01


@dataclass(frozen=True, slots=True)
class Prey:
    """One process for good, and what it is to the fleet."""

    pid: int
    started: int
    target: Target | None
    name: str
    session: int

    def hit(self, number: int) -> bool:
        """Send it a signal; False when it is gone."""
        return sessions.kill(self.pid, self.started, number)


class Hunt:
    """``everybody()`` and ``end_all()`` know nothing but this chaos' own processes."""

    def __init__(self) -> None:
        self._entry = f"{VARIABLE}={secrets.token_hex(8)}"
        os.environ[VARIABLE] = self._entry.partition("=")[2]

    def everybody(self, orchestrator: int = 0) -> list[Prey]:
        """Whoever lives, in the order of pids; ``orchestrator`` is the pid of the one we know."""
        found = [_prey(p, orchestrator) for p in sessions.with_variable(self._entry)]
        return sorted((prey for prey in found if prey), key=lambda prey: prey.pid)

    def end_all(self) -> None:
        """KILL whatever is left, and wait until it is gone: what is dying still holds files."""
        limit = time.monotonic() + GONE_SECONDS
        while (left := self.everybody()) and time.monotonic() < limit:
            for prey in left:
                prey.hit(signal.SIGKILL)
            time.sleep(LOOK_SECONDS)


def _prey(process: sessions.Process, orchestrator: int) -> Prey | None:
    try:
        with open(f"/proc/{process.pid}/comm") as file:
            name = file.read().strip()
        with open(f"/proc/{process.pid}/environ", "rb") as file:
            is_task = b"\0BW_ISSUE_ID=" in b"\0" + file.read()
    except OSError:
        return None  # It has just ended.
    target = _target(process.pid, orchestrator, name, is_task)
    return Prey(process.pid, process.started, target, name, process.session)


def at_work(everybody: Collection[Prey]) -> int:
    """How many workers run a task: what left its worker's session is none."""
    workers = {prey.pid for prey in everybody if prey.target is Target.WORKER}
    return len({p.session for p in everybody if p.target is Target.TASK} & workers)


def _target(pid: int, orchestrator: int, name: str, is_task: bool) -> Target | None:
    if pid == orchestrator:
        return Target.ORCHESTRATOR
    if is_task:
        return Target.TASK
    if name == "bw-zygote":
        return Target.ZYGOTE
    if re.fullmatch(r"bw-W\d+", name):
        return Target.WORKER
    return Target.BD if name == "bd" else None
