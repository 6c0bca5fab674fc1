"""Handlers for the real RRQ executors of both versions; runs in their environments, not in ours.

``rrq-executor --settings rrq_handlers.settings`` (0.9.8) and ``rrq-runner`` (0.11.1) find it on
their ``PYTHONPATH``: see ``tests.support.peers``.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from rrq.exc import RetryJob

try:
    from rrq.runner_settings import PythonRunnerSettings as Settings

    OLD = False
except ImportError:
    from rrq.executor_settings import PythonExecutorSettings as Settings

    OLD = True


async def echo(**arguments: Any) -> Any:
    """What came, by name."""
    return arguments


async def add(a: int, b: int) -> int:
    """Two numbers."""
    return a + b


async def fail(message: str = "no", **others: Any) -> None:
    """An error like any other."""
    raise ValueError(message)


async def again(seconds: float | None = None, marker: str = "", **others: Any) -> str:
    """Asks to be tried again; with a marker only once, and leaves it."""
    if marker and Path(marker).exists():
        return "the second time"
    if marker:
        Path(marker).write_text("tried")
    raise RetryJob("not yet", defer_seconds=seconds)


async def late(**others: Any) -> None:
    """Times itself out."""
    raise TimeoutError("took too long")


async def rest(seconds: float = 3600.0, marker: str = "", **others: Any) -> str:
    """Waits, and can be cancelled while it does; the marker says that it began."""
    if marker:
        Path(marker).write_text("began")
    await asyncio.sleep(seconds)
    return f"rested {seconds:g}"


async def block(seconds: float = 3600.0, **others: Any) -> None:
    """Holds the whole executor up: nobody is answered, and no cancel is read."""
    time.sleep(seconds)


async def die(status: int = 7, **others: Any) -> None:
    """Ends the executor."""
    os._exit(status)


async def unwritable(**others: Any) -> object:
    """What it requeues is no JSON."""
    return object()


async def say(text: str = "", **others: Any) -> str:
    """Prints, as handlers do."""
    print(text, flush=True)
    return text


async def where(**others: Any) -> dict[str, Any]:
    """Its process, and what is in its environment of a fleet."""
    return {"pid": os.getpid(), "token": os.environ.get("BW_WORKER_ID")}


FUNCTIONS = (echo, add, fail, again, late, rest, block, die, unwritable, say, where)


def _handler(function: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    """As this version calls a handler: with a context and arguments, or with the request."""

    async def old(context: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
        return await function(*args, **kwargs)

    async def new(request: Any) -> Any:
        return await function(**request.params)

    return old if OLD else new


def _trace() -> Callable[..., Awaitable[Any]]:
    """The trace context that came with the request."""

    async def old(context: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
        return context["trace_context"]

    async def new(request: Any) -> Any:
        return request.context.trace_context

    return old if OLD else new


def _attempt() -> Callable[..., Awaitable[Any]]:
    """The number of the attempt."""

    async def old(context: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
        return context["job_try"]

    async def new(request: Any) -> Any:
        return request.context.attempt

    return old if OLD else new


def _settings() -> Any:
    if OLD:
        from rrq.registry import JobRegistry as Registry
    else:
        from rrq.registry import Registry
    registry = Registry()
    for function in FUNCTIONS:
        registry.register(function.__name__, _handler(function))
    registry.register("trace", _trace())
    registry.register("attempt", _attempt())
    return Settings(job_registry=registry) if OLD else Settings(registry=registry)


settings = _settings()
