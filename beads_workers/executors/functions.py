"""Python functions as work: found by their path, called, and their end put into words."""

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

from beads_workers.core import limits
from beads_workers.core.framing import as_number, is_deep
from beads_workers.core.model import OutcomeKind, value
from beads_workers.executors.retry import Retry

if TYPE_CHECKING:
    import asyncio


# --- places --------------------------------------------------------------------------------------
# Whether a module could be imported where functions are called; imports nothing to find out.


def is_there(module: str, folder: str) -> bool:
    """Whether ``package.module`` lies in ``folder``, as the project's own do, or in this Python.

    What only its own package could tell (one that makes its modules up) counts as there.
    """
    places: list[str] | None = [folder, *sys.path]
    name = ""
    for part in module.split("."):
        name = f"{name}.{part}" if name else part
        try:
            # By its last name alone: a package without a file, within another one, would be asked
            # for its parent, which is not imported.
            spec = PathFinder.find_spec(part, places)
        except (ImportError, OSError, ValueError):
            return True  # Unreadable is not missing: who calls it will say more.
        if spec is None:
            return name in sys.stdlib_module_names
        places = list(spec.submodule_search_locations or ())
    return True


# --- resolution ----------------------------------------------------------------------------------
# Which function a path means, and whether it may be called.
#
# Nothing is evaluated: a path is the name of a module and of something in it, and both have to lie
# below a prefix that a person allowed (``--allow-module``). What a module has only imported from
# elsewhere is not its own, and cannot be reached through it.


PATH_CHARS_MAX = 500


class NotCallable(Exception):
    """There is no such function, or it may not be called; ``str()`` is one line for people.

    ``may_pass``: its module raised something while it was imported, and may do better next time;
    ``trace``: from where.
    """

    may_pass = False
    trace = ""


class Resolver:
    """Finds functions, and knows those that it has found. ``allowed``: see ``resolve``."""

    def __init__(self, allowed: Sequence[str]) -> None:
        self._allowed = tuple(allowed)
        self.known: dict[str, Callable[..., Any]] = {}

    def load(self) -> None:
        """Import what is allowed before anything is called. What fails does so again when it is
        called, and is the answer then."""
        for name in self._allowed:
            with suppress(Exception, SystemExit):
                importlib.import_module(name)

    def find(self, path: str) -> Callable[..., Any]:
        """See ``resolve``. What is found once is found for good, as its module is."""
        importlib.invalidate_caches()  # A module may have been written since it was missed.
        function = self.known[path] = resolve(path, self._allowed)
        return function


def resolve(path: str, allowed: Sequence[str]) -> Callable[..., Any]:
    """The function or class at ``package.module.name``, or the method at ``...Class.name``.

    ``allowed``: names of modules or packages; everything in and below one may be called. Imports
    the module; raises ``NotCallable``, also where importing it fails.
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
    """A class, or what can be bound as functions are, also where C or a cache wraps it: an instance
    that can be called as well was not written to be called by name."""
    kind = type(found)
    binds = hasattr(kind, "__get__") and not hasattr(kind, "__set__")
    return callable(found) and (isinstance(found, type | BuiltinFunctionType | MethodType) or binds)


def is_allowed(path: str, allowed: Sequence[str]) -> bool:
    """Whether a path lies in or below one of these modules or packages."""
    return any(path.startswith(f"{prefix}.") for prefix in allowed)


def _private_part(path: str, allowed: Sequence[str]) -> str:
    """What of the path is not meant for others, ``__main__`` too; what a person has allowed in so
    many words is."""
    known = max((each for each in allowed if path.startswith(f"{each}.")), key=len)
    rest = path[len(known) + 1 :].split(".")
    return next((part for part in rest if part.startswith("_")), "")


def _import(path: str, allowed: Sequence[str]) -> tuple[ModuleType, list[str]]:
    """The innermost module that the path leads through, and the names that are left of it."""
    parts = path.split(".")
    for cut in range(len(parts) - 1, max(0, len(parts) - 3), -1):
        name = ".".join(parts[:cut])
        if not is_allowed(f"{name}.", allowed):
            break
        try:
            return importlib.import_module(name), parts[cut:]
        except ModuleNotFoundError as error:
            # Missing is it, or what leads to it; what it imports itself is another matter.
            if error.name is None or not f"{name}.".startswith(f"{error.name}."):
                raise _failed(name, error) from error
        except (Exception, SystemExit) as error:  # A module runs when it is imported.
            raise _failed(name, error) from error
    raise NotCallable(f"there is no module for {path}")


def _failed(name: str, error: BaseException) -> NotCallable:
    said = " ".join(str(error).split())[:ERROR_CHARS_MAX]
    return cannot(f"{name} cannot be imported: {type(error).__name__}: {said}", error)


def cannot(why: str, error: BaseException) -> NotCallable:
    """What is raised where somebody's own code stands in the way; ``error``: what it has raised."""
    import traceback

    failed = NotCallable(why[: 2 * ERROR_CHARS_MAX])
    failed.may_pass = not isinstance(error, ImportError | SyntaxError | SystemExit)
    failed.trace = "".join(traceback.format_exception(error))[-TRACE_CHARS_MAX:]
    return failed


ERROR_CHARS_MAX = 500
TRACE_CHARS_MAX = 8_000
_PATH = re.compile(r"[^\W\d]\w*(?:\.[^\W\d]\w*)+")


# --- calls ---------------------------------------------------------------------------------------
# Calling a function: whatever it does, one ``CallResult`` comes of it.
#
# A function says that it wants to be tried again by raising ``Retry``; a coroutine function is run
# to its end in an event loop that all calls in this process share. What only some calls need is
# imported by them: a hundred workers have a process for calls each.


RESULT_BYTES_MAX = 16 << 20
"""Of JSON: what an RRQ frame may hold, and a file that somebody will read."""


class CallTerminated(BaseException):
    """The call is to end now, because its process is asked to: not for functions to catch."""


@value
class CallResult:
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


NOTHING = CallResult(OutcomeKind.SUCCESS)
"""What most functions return."""


class Caller:
    """Calls functions one after the other; ``close`` ends its event loop, if it has one."""

    def __init__(self) -> None:
        self._runner: asyncio.Runner | None = None
        self._task: asyncio.Task[Any] | None = None

    def call(
        self, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> CallResult:
        """Call it to its end. Raises nothing but ``CallTerminated``, where that was raised in
        it."""
        try:
            value = function(*args, **kwargs)
            if type(value) is CoroutineType:
                value = self._run(value)
        except CallTerminated:
            raise
        except SystemExit as left:
            return CallResult(OutcomeKind.ERROR, error=f"it called exit({left.code!r})"[:200])
        except BaseException as error:  # Whatever it raises is its answer.
            return failed(error)
        return succeeded(value)

    def end(self) -> None:
        """Call from a signal's handler: the call that runs is to end.

        A coroutine is cancelled; in anything else this raises ``CallTerminated``.
        """
        if self._task is None:
            raise CallTerminated
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
        except (KeyboardInterrupt, SystemExit, CallTerminated):
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


def succeeded(value: Any) -> CallResult:
    """The answer of a call that has returned this."""
    if value is None:
        return NOTHING
    try:
        text = _ENCODER.encode(value)
    except (TypeError, ValueError, RecursionError) as error:
        # It has done its work; that nobody can be told of it is a fault of it all the same.
        return CallResult(OutcomeKind.ERROR, error=_line(f"its result is not JSON: {error}"))
    if len(text) > RESULT_BYTES_MAX:
        error_text = f"its result is {len(text)} bytes of JSON; {RESULT_BYTES_MAX} are allowed"
        return CallResult(OutcomeKind.ERROR, error=error_text)
    if text.count("{") + text.count("[") > limits.NESTED_MAX and is_deep(json.loads(text)):
        return CallResult(OutcomeKind.ERROR, error="its result is nested too deeply")
    return CallResult(OutcomeKind.SUCCESS, text)


_ENCODER = json.JSONEncoder(allow_nan=False, separators=(",", ":"))


def failed(error: BaseException) -> CallResult:
    """The answer of a call that has raised this."""
    if isinstance(error, Retry):
        return CallResult(
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
    return CallResult(
        # It has timed itself out.
        OutcomeKind.TIMEOUT if isinstance(error, TimeoutError) else OutcomeKind.ERROR,
        error=_line(f"{name}: {said}" if said.strip() else name),
        trace=trace[-TRACE_CHARS_MAX:],
    )


def not_callable(error: NotCallable) -> CallResult:
    """What is answered where a path leads nowhere, or nowhere that is allowed."""
    kind = OutcomeKind.ERROR if error.may_pass else OutcomeKind.NOT_FOUND
    return CallResult(kind, error=str(error), trace=error.trace)


def _line(text: str) -> str:
    shown = " ".join(text[: 2 * limits.ERROR_CHARS_MAX].split())
    return shown[: limits.ERROR_CHARS_MAX].encode("utf-8", "replace").decode("utf-8")


TRACE_FRAMES = 20
