"""What every process of this machine uses, read from /proc, one at a time. Linux."""

from __future__ import annotations

import os
from collections.abc import Iterator

from beads_workers.core.metrics.usage import ProcessUse

TICKS = os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def read_all() -> Iterator[ProcessUse]:
    """Every process that is there now; who comes or goes meanwhile may be missed.

    Takes some 15 microseconds for each: whoever must not wait takes them in pieces.
    """
    for name in [entry.name for entry in os.scandir("/proc")]:
        if name.isdigit() and (process := read(int(name))) is not None:
            yield process


def read(pid: int) -> ProcessUse | None:
    """One process; None where there is none of that pid (any more)."""
    try:
        with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:
            stat = file.read()
    except OSError:
        return None
    # The name stands in parentheses and may hold any byte: fields count from the last one.
    fields = stat[stat.rfind(b")") + 2 :].split()
    user, system, user_reaped, system_reaped = map(int, fields[11:15])
    return ProcessUse(
        pid,
        parent=int(fields[1]),
        session=int(fields[3]),
        cpu_seconds=(user + system) / TICKS,
        reaped_seconds=(user_reaped + system_reaped) / TICKS,
        resident_bytes=int(fields[21]) * PAGE_BYTES,
    )
