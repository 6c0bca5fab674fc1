"""Which function a path means, and whether it may be called.

Nothing is evaluated: a path is the name of a module and of something in it, and both have to lie
below a prefix that a person allowed (``--allow-module``). What a module has only imported from
elsewhere is not its own, and cannot be reached through it.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

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
    module, names = _import(path, allowed)
    found: Any = module
    for name in names:
        # Only a class leads further: another module would lead anywhere.
        if name.startswith("_") or not (found is module or isinstance(found, type)):
            raise NotCallable(f"{path} is not a function that may be called")
        found = getattr(found, name, None)
        if found is None:
            raise NotCallable(f"there is no {name!r} in {path.removesuffix(f'.{name}')}")
    home = getattr(found, "__module__", None)
    if isinstance(found, ModuleType) or not callable(found):
        raise NotCallable(f"{path} is not a function")
    if not isinstance(home, str) or not is_allowed(f"{home}.", allowed):
        raise NotCallable(f"{path} was made in {home}, which is not an allowed module")
    function: Callable[..., Any] = found
    return function


def is_allowed(path: str, allowed: Sequence[str]) -> bool:
    """Whether a path lies in or below one of these modules or packages."""
    return any(path.startswith(f"{prefix}.") for prefix in allowed)


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
