"""Calling a function: whatever it does, one ``Answer`` comes of it.

A function says that it wants to be tried again by raising ``Retry``; a coroutine function is run
to its end in an event loop that all calls in this process share. What only some calls need is
imported by them: a hundred workers have a process for calls each.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine, Mapping, Sequence
from types import CoroutineType
from typing import TYPE_CHECKING, Any

from beads_workers.core import limits
from beads_workers.core.json_fields import as_number, is_deep
from beads_workers.core.outcomes import OutcomeKind
from beads_workers.core.values import value
from beads_workers.executors.functions.resolving import NotCallable
from beads_workers.executors.functions.retry import Retry

if TYPE_CHECKING:
    import asyncio

__all__ = ["Answer", "Caller", "Ending", "Retry"]

RESULT_BYTES_MAX = 16 << 20
"""Of JSON: what an RRQ frame may hold, and a file that somebody will read."""


class Ending(BaseException):
    """The call is to end now, because its process is asked to: not for functions to catch."""


@value
class Answer:
    """How a call ended. ``result``: the JSON text of what it returned, with ``SUCCESS``.

    ``error`` is one line, and begins with the class of the exception; ``trace`` its traceback.
    ``is_stopping``: it wants its worker to end.
    """

    kind: OutcomeKind
    result: str = "null"
    error: str = ""
    trace: str = ""
    retry_after_seconds: float | None = None
    is_stopping: bool = False


NOTHING = Answer(OutcomeKind.SUCCESS)
"""What most functions return."""


class Caller:
    """Calls functions one after the other; ``close`` ends its event loop, if it has one."""

    def __init__(self) -> None:
        self._runner: asyncio.Runner | None = None
        self._task: asyncio.Task[Any] | None = None

    def call(
        self, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Answer:
        """Call it to its end. Raises nothing but ``Ending``, where that was raised in it."""
        try:
            value = function(*args, **kwargs)
            if type(value) is CoroutineType:
                value = self._run(value)
        except Ending:
            raise
        except SystemExit as left:
            return Answer(OutcomeKind.ERROR, error=f"it called exit({left.code!r})"[:200])
        except BaseException as error:  # Whatever it raises is its answer.
            return failed(error)
        return succeeded(value)

    def end(self) -> None:
        """Call from a signal's handler: the call that runs is to end.

        A coroutine is cancelled; in anything else this raises ``Ending``.
        """
        if self._task is None:
            raise Ending
        self._task.get_loop().call_soon_threadsafe(self._task.cancel)

    def close(self) -> None:
        """Call once, at the end."""
        if self._runner is not None:
            runner, self._runner = self._runner, None
            runner.close()

    def _run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        import asyncio

        if self._runner is None:
            self._runner = asyncio.Runner()
        try:
            return self._runner.run(self._to_its_end(coroutine))
        except (KeyboardInterrupt, SystemExit, Ending):
            # These tear through the loop itself: it is not to be relied on any more.
            self.close()
            raise
        finally:
            self._task = None

    async def _to_its_end(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        import asyncio

        self._task = asyncio.current_task()
        try:
            return await coroutine
        finally:
            # While no call runs, nothing runs: what it has begun and left must not go on beside
            # the next call.
            left = [task for task in asyncio.all_tasks() if task is not self._task]
            for task in left:
                task.cancel()
            if left:
                await asyncio.gather(*left, return_exceptions=True)


def _seconds(after: object) -> float | None:
    seconds = as_number(after)
    return None if seconds is None or seconds < 0 else seconds


def succeeded(value: Any) -> Answer:
    """The answer of a call that has returned this."""
    if value is None:
        return NOTHING
    try:
        text = _ENCODER.encode(value)
    except (TypeError, ValueError, RecursionError) as error:
        # It has done its work; that nobody can be told of it is a fault of it all the same.
        return Answer(OutcomeKind.ERROR, error=_line(f"its result is not JSON: {error}"))
    if len(text) > RESULT_BYTES_MAX:
        error_text = f"its result is {len(text)} bytes of JSON; {RESULT_BYTES_MAX} are allowed"
        return Answer(OutcomeKind.ERROR, error=error_text)
    if text.count("{") + text.count("[") > limits.NESTED_MAX and is_deep(json.loads(text)):
        return Answer(OutcomeKind.ERROR, error="its result is nested too deeply")
    return Answer(OutcomeKind.SUCCESS, text)


_ENCODER = json.JSONEncoder(allow_nan=False, separators=(",", ":"))


def failed(error: BaseException) -> Answer:
    """The answer of a call that has raised this."""
    if isinstance(error, Retry):
        return Answer(
            OutcomeKind.RETRY,
            error=_line(str(error)) or "it asked for another try",
            retry_after_seconds=_seconds(error.after_seconds),
        )
    import traceback

    try:
        # Our own frame comes first, and tells nothing.
        before = error.__traceback__ and error.__traceback__.tb_next
        lines = traceback.format_exception(type(error), error, before, limit=-TRACE_FRAMES)
        trace = "".join(lines)
        said = str(error)
    except Exception as another:  # Its own ``__str__`` runs here.
        trace, said = "", f"(its text cannot be had: {type(another).__qualname__})"
    name = type(error).__qualname__
    return Answer(
        # It has timed itself out.
        OutcomeKind.TIMEOUT if isinstance(error, TimeoutError) else OutcomeKind.ERROR,
        error=_line(f"{name}: {said}" if said.strip() else name),
        trace=trace[-TRACE_CHARS_MAX:],
    )


def not_callable(error: NotCallable) -> Answer:
    """What is answered where a path leads nowhere, or nowhere that is allowed."""
    kind = OutcomeKind.ERROR if error.may_pass else OutcomeKind.NOT_FOUND
    return Answer(kind, error=str(error), trace=error.trace)


def _line(text: str) -> str:
    shown = " ".join(text[: 2 * limits.ERROR_CHARS_MAX].split())
    return shown[: limits.ERROR_CHARS_MAX].encode("utf-8", "replace").decode("utf-8")


TRACE_FRAMES = 20
TRACE_CHARS_MAX = 8_000
"""For a log: the innermost frames tell most."""
