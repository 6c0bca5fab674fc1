"""Python functions as work: found by their path, called, and their end turned into a result."""

from __future__ import annotations

import importlib
import json
import re
import sys
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from importlib.machinery import PathFinder
from types import BuiltinFunctionType, CoroutineType, MethodType, ModuleType
from typing import TYPE_CHECKING, Any

from beads_workers.core.base import limits
from beads_workers.core.base.framing import as_number, is_deep
from beads_workers.core.base.model import OutcomeKind, value
from beads_workers.executors.retry import Retry

if TYPE_CHECKING:
    import asyncio


# --- places --------------------------------------------------------------------------------------
# Check whether a module could be imported where functions are called; imports nothing itself.


def is_there(module: str, folder: str) -> bool:
    """Return whether ``package.module`` lies in ``folder``, like the project's own modules, or in
    this Python.

    True also if only its own package could tell, because that creates its modules.
    """
    places: list[str] | None = [folder, *sys.path]
    name = ""
    for part in module.split("."):
        name = f"{name}.{part}" if name else part
        try:
            # By its last name alone: for a package without a file, within another package, Python
            # would ask for the parent, which is not imported.
            spec = PathFinder.find_spec(part, places)
        except (ImportError, OSError, ValueError):
            return True  # Unreadable is not missing: the call will report more.
        if spec is None:
            return name in sys.stdlib_module_names
        places = list(spec.submodule_search_locations or ())
    return True


# --- resolution ----------------------------------------------------------------------------------
# Resolution of a path to a function, and the check whether it may be called.
#
# Nothing is evaluated: a path is the name of a module and of something in it, and both have to lie
# below a prefix that a person allowed (``--allow-module``). What a module has only imported from
# elsewhere is not its own, and cannot be reached through it.


PATH_CHARS_MAX = 500


class NotCallable(Exception):
    """Error: there is no such function, or it may not be called; ``str()`` is one line for people.

    ``may_pass``: its module raised an error while it was imported, and may do better next time;
    ``trace``: the traceback.
    """

    may_pass = False
    trace = ""


class Resolver:
    """Finder of functions, which remembers those that it has found. ``allowed``: see
    ``resolve``."""

    def __init__(self, allowed: Sequence[str]) -> None:
        self._allowed = tuple(allowed)
        self.known: dict[str, Callable[..., Any]] = {}

    def load(self) -> None:
        """Import all allowed modules before anything is called. A failed import fails again at the
        call, and is the answer then."""
        for name in self._allowed:
            with suppress(Exception, SystemExit):
                importlib.import_module(name)

    def find(self, path: str) -> Callable[..., Any]:
        """Find a function: see ``resolve``. A function that was found is kept for good, as its
        module is."""
        importlib.invalidate_caches()  # A module may have been written since it was missed.
        function = self.known[path] = resolve(path, self._allowed)
        return function


def resolve(path: str, allowed: Sequence[str]) -> Callable[..., Any]:
    """Return the function or class at ``package.module.name``, or the method at ``...Class.name``.

    ``allowed``: names of modules or packages; everything in and below one may be called. Imports
    the module; raises ``NotCallable``, also if importing it fails.
    """
    if len(path) > PATH_CHARS_MAX or not _PATH.fullmatch(path):
        raise NotCallable(f"{path[:80]!r} is no path of a function")
    if not is_allowed(path, allowed):
        raise NotCallable(f"{path} is not below an allowed module (--allow-module)")
    if private := _private_part(path, allowed):
        raise NotCallable(f"{path} is private: {private!r} begins with an underscore")
    module, names = _import(path, allowed)
    found: Any = module
    for name in names:
        # Only a class leads further: another module would lead anywhere.
        if not (found is module or isinstance(found, type)):
            raise NotCallable(f"{path} is not a function that may be called")
        found = getattr(found, name, None)
        if found is None:
            raise NotCallable(f"there is no {name!r} in {path.removesuffix(f'.{name}')}")
    home = getattr(found, "__module__", None)
    if isinstance(found, ModuleType) or not _is_function(found):
        raise NotCallable(f"{path} is not a function or a class")
    if not isinstance(home, str) or not is_allowed(f"{home}.", allowed):
        raise NotCallable(f"{path} was made in {home}, which is not an allowed module")
    function: Callable[..., Any] = found
    return function


def _is_function(found: Any) -> bool:
    """Return whether this is a class or an object that binds as functions do, also if C or a cache
    wraps it. Any other callable instance was not written to be called by name."""
    kind = type(found)
    binds = hasattr(kind, "__get__") and not hasattr(kind, "__set__")
    return callable(found) and (isinstance(found, type | BuiltinFunctionType | MethodType) or binds)


def is_allowed(path: str, allowed: Sequence[str]) -> bool:
    """Return whether a path lies in or below one of these modules or packages."""
    return any(path.startswith(f"{prefix}.") for prefix in allowed)


def _private_part(path: str, allowed: Sequence[str]) -> str:
    """Return the private part of the path, also ``__main__``, or an empty string; what a person has
    allowed by name is not private."""
    known = max((each for each in allowed if path.startswith(f"{each}.")), key=len)
    rest = path[len(known) + 1 :].split(".")
    return next((part for part in rest if part.startswith("_")), "")


def _import(path: str, allowed: Sequence[str]) -> tuple[ModuleType, list[str]]:
    """Return the innermost module that the path leads through, and the names that are left of
    it."""
    parts = path.split(".")
    for cut in range(len(parts) - 1, max(0, len(parts) - 3), -1):
        name = ".".join(parts[:cut])
        if not is_allowed(f"{name}.", allowed):
            break
        try:
            return importlib.import_module(name), parts[cut:]
        except ModuleNotFoundError as error:
            # The module or one of its parents is missing; a failed import within it is another
            # matter.
            if error.name is None or not f"{name}.".startswith(f"{error.name}."):
                raise _failed(name, error) from error
        except (Exception, SystemExit) as error:  # A module runs when it is imported.
            raise _failed(name, error) from error
    raise NotCallable(f"there is no module for {path}")


def _failed(name: str, error: BaseException) -> NotCallable:
    error_text = " ".join(str(error).split())[:ERROR_CHARS_MAX]
    return cannot(f"{name} cannot be imported: {type(error).__name__}: {error_text}", error)


def cannot(why: str, error: BaseException) -> NotCallable:
    """Return the error for a project's code that failed; ``error``: what that code raised."""
    import traceback

    failed = NotCallable(why[: 2 * ERROR_CHARS_MAX])
    failed.may_pass = not isinstance(error, ImportError | SyntaxError | SystemExit)
    failed.trace = "".join(traceback.format_exception(error))[-TRACE_CHARS_MAX:]
    return failed


ERROR_CHARS_MAX = 500
TRACE_CHARS_MAX = 8_000
_PATH = re.compile(r"[^\W\d]\w*(?:\.[^\W\d]\w*)+")


# --- calls ---------------------------------------------------------------------------------------
# Calls of functions: whatever a function does, the result is one ``CallResult``.
#
# A function asks for another try by raising ``Retry``. A coroutine function is run to its end in an
# event loop that all calls in this process share. Modules that only some calls need are imported by
# those calls: each of a hundred workers has a process for calls.


RESULT_BYTES_MAX = 16 << 20
"""Bytes of JSON: what an RRQ frame may hold, and a file that somebody will read."""


class CallTerminated(BaseException):
    """Raised to end a call now, because its process is asked to end; functions are not to catch
    it."""


@value
class CallResult:
    """Result of a call."""

    kind: OutcomeKind
    # The JSON text of the returned value, with ``SUCCESS``.
    result: str = "null"
    # One line, which begins with the class of the exception.
    error: str = ""
    # The traceback of the exception.
    trace: str = ""
    retry_after_seconds: float | None = None
    # The call wants its worker to end.
    is_stopping: bool = False


NOTHING = CallResult(OutcomeKind.SUCCESS)
"""Result of most functions: they return nothing."""


class Caller:
    """Caller of functions, one after the other; ``close`` ends its event loop, if it has one."""

    def __init__(self) -> None:
        self._runner: asyncio.Runner | None = None
        self._task: asyncio.Task[Any] | None = None

    def call(
        self, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> CallResult:
        """Call a function to its end. Raises only ``CallTerminated``, if that was raised in the
        call."""
        try:
            value = function(*args, **kwargs)
            if type(value) is CoroutineType:
                value = self._run(value)
        except CallTerminated:
            raise
        except SystemExit as left:
            return CallResult(OutcomeKind.ERROR, error=f"it called exit({left.code!r})"[:200])
        except BaseException as error:  # Any exception is the call's answer.
            return failed(error)
        return succeeded(value)

    def end(self) -> None:
        """End the running call; call this from a signal's handler.

        A coroutine is cancelled; in anything else this raises ``CallTerminated``.
        """
        if self._task is None:
            raise CallTerminated
        self._task.get_loop().call_soon_threadsafe(self._task.cancel)

    def close(self) -> None:
        """Close the event loop; call once, at the end."""
        if self._runner is not None:
            runner, self._runner = self._runner, None
            runner.close()

    def _run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        import asyncio

        if self._runner is None:
            self._runner = asyncio.Runner()
        try:
            return self._runner.run(self._to_its_end(coroutine))
        except (KeyboardInterrupt, SystemExit, CallTerminated):
            # These break the loop itself: it cannot be used any more.
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
            # While no call runs, nothing runs: tasks that the call has left must not go on beside
            # the next call.
            left = [task for task in asyncio.all_tasks() if task is not self._task]
            for task in left:
                task.cancel()
            if left:
                await asyncio.gather(*left, return_exceptions=True)


def _seconds(after: object) -> float | None:
    seconds = as_number(after)
    return None if seconds is None or seconds < 0 else seconds


def succeeded(value: Any) -> CallResult:
    """Return the answer of a call that has returned this value."""
    if value is None:
        return NOTHING
    try:
        text = _ENCODER.encode(value)
    except (TypeError, ValueError, RecursionError) as error:
        # The call has done its work, but its result cannot be passed on: that is an error of the
        # call.
        return CallResult(OutcomeKind.ERROR, error=_line(f"its result is not JSON: {error}"))
    if len(text) > RESULT_BYTES_MAX:
        error_text = f"its result is {len(text)} bytes of JSON; {RESULT_BYTES_MAX} are allowed"
        return CallResult(OutcomeKind.ERROR, error=error_text)
    if text.count("{") + text.count("[") > limits.NESTED_MAX and is_deep(json.loads(text)):
        return CallResult(OutcomeKind.ERROR, error="its result is nested too deeply")
    return CallResult(OutcomeKind.SUCCESS, text)


_ENCODER = json.JSONEncoder(allow_nan=False, separators=(",", ":"))


def failed(error: BaseException) -> CallResult:
    """Return the answer of a call that has raised this exception."""
    if isinstance(error, Retry):
        return CallResult(
            OutcomeKind.RETRY,
            error=_line(str(error)) or "it asked for another try",
            retry_after_seconds=_seconds(error.after_seconds),
        )
    import traceback

    try:
        # Our own frame comes first, and is left out.
        before = error.__traceback__ and error.__traceback__.tb_next
        lines = traceback.format_exception(type(error), error, before, limit=-TRACE_FRAMES)
        trace = "".join(lines)
        error_text = str(error)
    except Exception as another:  # The exception's own ``__str__`` runs here.
        trace, error_text = "", f"(its text cannot be had: {type(another).__qualname__})"
    name = type(error).__qualname__
    return CallResult(
        # The call has timed out by itself.
        OutcomeKind.TIMEOUT if isinstance(error, TimeoutError) else OutcomeKind.ERROR,
        error=_line(f"{name}: {error_text}" if error_text.strip() else name),
        trace=trace[-TRACE_CHARS_MAX:],
    )


def not_callable(error: NotCallable) -> CallResult:
    """Return the answer to a call whose path leads to no function, or to none that is allowed."""
    kind = OutcomeKind.ERROR if error.may_pass else OutcomeKind.NOT_FOUND
    return CallResult(kind, error=str(error), trace=error.trace)


def _line(text: str) -> str:
    shown = " ".join(text[: 2 * limits.ERROR_CHARS_MAX].split())
    return shown[: limits.ERROR_CHARS_MAX].encode("utf-8", "replace").decode("utf-8")


TRACE_FRAMES = 20
