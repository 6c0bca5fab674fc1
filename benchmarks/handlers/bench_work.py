"""What handlers do, for the real executor and for ours."""

from __future__ import annotations

import time

SPIN_SECONDS = 0.003


def noop(number: int) -> int:
    """Give it back."""
    return number


def spin(number: int) -> int:
    """Work for so long on a processor."""
    until = time.thread_time() + SPIN_SECONDS
    while time.thread_time() < until:
        pass
    return number
