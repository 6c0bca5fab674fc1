"""The clock that leases are measured on."""

from __future__ import annotations

import time


def boot_seconds() -> float:
    """Seconds since boot, with the time that the machine slept.

    The tracker's lease goes on meanwhile; the monotonic clock of Linux stands still.
    """
    clock = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if clock is None else time.clock_gettime(clock)
