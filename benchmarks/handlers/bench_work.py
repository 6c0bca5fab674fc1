"""What handlers do, for the real executor and for ours."""

from __future__ import annotations

import time


def noop(number: int) -> int:
    """Requeue it."""
    return number


def brief(number: int) -> int:
    """Work for a millisecond."""
    _work(0.001)
    return number


def spin(number: int) -> int:
    """Work for three milliseconds."""
    _work(0.003)
    return number


def _work(seconds: float) -> None:
    """So long on a processor."""
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass
