"""Functions for our own RRQ executor: the same as those of ``rrq_handlers``, for our workers."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path
from typing import Any

from beads_workers import Retry, concurrent


def echo(*args: Any, **kwargs: Any) -> dict[str, Any]:
    """What came."""
    return {"args": list(args), "kwargs": kwargs}


def add(a: int, b: int) -> int:
    """Two numbers."""
    return a + b


def fail(message: str = "no") -> None:
    """An error like any other."""
    raise ValueError(message)


def again(seconds: float | None = None, marker: str = "") -> str:
    """Asks to be tried again; with a marker only once, and leaves it."""
    if marker and Path(marker).exists():
        return "the second time"
    if marker:
        Path(marker).write_text("tried")
    raise Retry("not yet", after_seconds=seconds)


def late() -> None:
    """Times itself out."""
    raise TimeoutError("took too long")


def rest(seconds: float = 3600.0, marker: str = "") -> str:
    """Waits; the marker says that it began, and by which process."""
    if marker:
        Path(f"{marker}.new").write_text(str(os.getpid()))
        Path(f"{marker}.new").rename(marker)
    time.sleep(seconds)
    return f"rested {seconds:g}"


def once(marker: str) -> str:
    """The first time it kills the worker that it runs for; then it succeeds."""
    if Path(marker).exists():
        return "survived"
    Path(marker).write_text("killed")
    os.kill(os.getppid(), 9)
    time.sleep(3600)
    return "never"


def unwritable() -> object:
    """What it requeues is no JSON."""
    return object()


def large(characters: int) -> str:
    """So long a result."""
    return "x" * characters


def say(text: str) -> None:
    """Prints, as functions do."""
    print(text, flush=True)


_inside = 0


@concurrent
async def meet(many: int) -> int:
    """Waits until so many are at it in one process; which one."""
    global _inside
    _inside += 1
    while _inside < many:
        await asyncio.sleep(0.01)
    return os.getpid()


@concurrent
async def doze(seconds: float, marker: str) -> int:
    """Waits beside others; the file ``marker`` has a line for each that began. Which process."""
    with Path(marker).open("a") as file:
        file.write(f"{os.getpid()}\n")
    await asyncio.sleep(seconds)
    return os.getpid()


@concurrent
async def poison() -> None:
    """Kills whatever process it runs in."""
    await asyncio.sleep(0.1)
    os._exit(3)
