"""Calling a function: whatever it does, one ``Answer`` comes of it.

A function says that it wants to be tried again by raising ``Retry``; a coroutine function is run
to its end in an event loop that all calls in this process share.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from beads_workers.core import limits
from beads_workers.core.outcomes import OutcomeKind


class Retry(Exception):
    """Raise this in a function that is to be tried again, without fault of its own.

    ``after_seconds``: no sooner than that; None leaves it to the back-off of the fleet. Such an
    attempt is not charged, but the twentieth in a row is.
    """

    def __init__(self, reason: str = "", *, after_seconds: float | None = None) -> None:
        super().__init__(reason)
        self.after_seconds = after_seconds


@dataclass(frozen=True, slots=True)
class Answer:
    """How a call ended. ``result``: the JSON text of what it returned, with ``SUCCESS``.

    ``error`` is one line; ``type`` the class of the exception, ``trace`` its traceback.
    """

    kind: OutcomeKind
    result: str = "null"
    error: str = ""
    type: str = ""
    trace: str = ""
    retry_after_seconds: float | None = None


class Caller:
    """Calls functions one after the other; ``close`` ends its event loop, if it has one."""

    def __init__(self) -> None:
        self._runner: asyncio.Runner | None = None

    def call(
        self, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Answer:
        """Call it to its end. Never raises but for ``KeyboardInterrupt``."""
        try:
            value = function(*args, **kwargs)
            if inspect.iscoroutine(value):
                value = self._loop().run(value)
        except Retry as retry:
            after = retry.after_seconds
            return Answer(OutcomeKind.RETRY, error=_line(retry), retry_after_seconds=after)
        except SystemExit as left:
            return Answer(OutcomeKind.ERROR, error=f"it called exit({left.code!r})"[:200])
        except Exception as error:  # Whatever it raises is its answer.
            return _failed(error)
        return _succeeded(value)

    def close(self) -> None:
        """Call once, at the end."""
        if self._runner is not None:
            self._runner.close()

    def _loop(self) -> asyncio.Runner:
        if self._runner is None:
            self._runner = asyncio.Runner()
        return self._runner


def _succeeded(value: Any) -> Answer:
    try:
        return Answer(OutcomeKind.SUCCESS, json.dumps(value, allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        # It has done its work; that nobody can be told of it is a fault of it all the same.
        return Answer(OutcomeKind.ERROR, error=f"its result is not JSON: {error}"[:500])


def _failed(error: Exception) -> Answer:
    lines = traceback.format_exception(error, limit=-TRACE_FRAMES)
    return Answer(
        OutcomeKind.ERROR,
        error=_line(error),
        type=type(error).__qualname__,
        trace="".join(lines)[-TRACE_CHARS_MAX:],
    )


def _line(error: Exception) -> str:
    said = " ".join(str(error).split())
    name = "" if isinstance(error, Retry) else type(error).__qualname__
    return ": ".join(part for part in (name, said) if part)[: limits.ERROR_CHARS_MAX]


TRACE_FRAMES = 20
TRACE_CHARS_MAX = 8_000
"""For a log: the innermost frames tell most."""
