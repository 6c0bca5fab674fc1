"""An option of ``start`` as data, at the field that it sets: declared once, copied nowhere.

A group of settings is a frozen dataclass. Some of its fields are options. ``options`` makes the
command line, the keys of ``beads-workers.toml`` and the variables of these fields; it has the
readers of the values. A worker loads the groups, and needs no reader.
"""

from __future__ import annotations

from dataclasses import field
from typing import Any, TypeVar

T = TypeVar("T")

OPTION = "option"
"""Key of the data in the metadata of a field."""

PANELS = (
    *("Which issues", "Attempts", "Agents", "Landing", "The end of the run"),
    *("Functions and executors", "The fleet"),
)
"""Groups in which ``start --help`` shows options, below the most important ones."""
ISSUES, ATTEMPTS, AGENTS, LANDING, ENDING, FUNCTIONS, FLEET = PANELS

START, DOCTOR, WATCH = "start", "doctor", "watch"
BOTH = (START, DOCTOR)
"""The commands that have an option: ``at``."""


Kind = tuple[Any, ...]
"""A kind of value: a name in ``options.KINDS``, and the arguments of its maker."""

TEXT: Kind = ("text",)
TEXTS: Kind = ("texts",)
BOOLEAN: Kind = ("boolean",)
REF: Kind = ("ref",)
INSIDE: Kind = ("inside",)


def whole(low: int, high: int) -> Kind:
    """Return the kind of a whole number from ``low`` to ``high``."""
    return "integer", low, high


def duration(low: float = 0.0) -> Kind:
    """Return the kind of a duration of ``low`` seconds or more."""
    return "duration", low


def choice(*names: str) -> Kind:
    """Return the kind of one of these words."""
    return "choice", *names


def option(default: T, kind: Kind, help: str = "", *, name: str = "", **more: Any) -> T:
    """Return the field of a setting that is an option of ``start``.

    ``name``: of the option, if it is not the field's without ``_seconds``. ``more``: fields of
    ``options.Option``.
    """
    data = {"kind": kind, "help": help or None, "name": name, **more}
    return field(default=default, metadata={OPTION: data})


def in_file(default: T, kind: Kind, **more: Any) -> T:
    """Return the field of an option that is set only in the file or in a variable."""
    return option(default, kind, at=(), **more)


def flag(flags: str, help: str, default: T, **more: Any) -> T:
    """Return the field of a yes-or-no option; ``flags``: its flag, maybe with a ``--no-`` form."""
    return option(default, BOOLEAN, help, flags=(flags,), **more)
