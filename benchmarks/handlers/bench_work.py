"""What handlers do, for the real executor and for ours."""

from __future__ import annotations

import asyncio
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


async def noop_beside(number: int) -> int:
    """As ``noop``, where others are at work, too."""
    return noop(number)


async def brief_beside(number: int) -> int:
    """As ``brief``, where others are at work, too."""
    return brief(number)


async def spin_beside(number: int) -> int:
    """As ``spin``, where others are at work, too."""
    return spin(number)


async def pause(number: int) -> int:
    """Wait for fifty milliseconds, as for another program's answer."""
    await asyncio.sleep(0.05)
    return number


for each in (noop_beside, brief_beside, spin_beside, pause):
    each.concurrent = True  # type: ignore[attr-defined]
