"""Tests that are coroutines: how pytest calls them, and how they wait."""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import Callable, Coroutine
from typing import Any


def in_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Let pytest call a coroutine function."""

    @functools.wraps(test)
    def call(*args: Any, **fixtures: Any) -> None:
        asyncio.run(test(*args, **fixtures))

    return call


async def until(true: Callable[[], object], seconds: float) -> None:
    """Wait for what nothing announces: each sleep is a look."""
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "it did not happen"
        await asyncio.sleep(0.05)
