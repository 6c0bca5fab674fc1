"""Handlers for the real ``rrq-executor`` of 0.9.8, in whose environment this runs."""

from __future__ import annotations

import os
import time
from typing import Any

import bench_work
from rrq.executor_settings import PythonExecutorSettings
from rrq.registry import JobRegistry

STAMPS = os.environ.get("BENCH_STAMPS", os.devnull)
_file = os.open(STAMPS, os.O_WRONLY | os.O_CREAT, 0o600)
_first = 0.0
_calls = 0


async def stamp(context: dict[str, Any], **arguments: Any) -> dict[str, Any]:
    """Keeps in a file how many calls there were, and when the first and the last came."""
    global _first, _calls
    now = time.monotonic()
    _first, _calls = _first or now, _calls + 1
    os.pwrite(_file, f"{_calls:10d} {_first:20.6f} {now:20.6f}\n".encode(), 0)
    return arguments


async def noop(context: dict[str, Any], number: int) -> int:
    """The least that there is to do."""
    return bench_work.noop(number)


async def brief(context: dict[str, Any], number: int) -> int:
    """A little work."""
    return bench_work.brief(number)


async def spin(context: dict[str, Any], number: int) -> int:
    """Some work, which holds the interpreter as work in Python does."""
    return bench_work.spin(number)


async def pause(context: dict[str, Any], number: int) -> int:
    """It only waits."""
    return await bench_work.pause(number)


registry = JobRegistry()
for handler in (stamp, noop, brief, spin, pause):
    registry.register(handler.__name__, handler)
for handler in (noop, brief, spin):
    registry.register(f"{handler.__name__}_beside", handler)  # Here nothing has to be declared.
settings = PythonExecutorSettings(job_registry=registry)
