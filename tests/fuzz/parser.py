"""One entry of the table: a parser, how inputs for it are made, and what must hold."""

from __future__ import annotations

import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from enum import Enum
from functools import cache
from typing import Any

from tests.fuzz.inputs import Make


class Broken(AssertionError):
    """Something does not hold; ``str()`` says what."""


@dataclass(frozen=True, slots=True)
class Parser:
    """``holds(target, data)`` raises for a bug: ``Broken``, or whatever the parser let out.

    ``reads``: the modules whose reading of outside input this entry covers. ``mutants``: by name,
    targets with a planted bug, each of which has to be found.
    """

    name: str
    reads: tuple[str, ...]
    target: Any
    make: Make
    holds: Callable[[Any, bytes], None]
    mutants: Mapping[str, Any] = field(default_factory=dict)


def require(condition: object, what: str) -> None:
    """Raise ``Broken`` unless it holds."""
    if not condition:
        raise Broken(what)


def well_typed(value: Any) -> None:
    """Raise ``Broken`` where a field of a dataclass holds what its annotation forbids."""
    for name, check in _checks(type(value)):
        inner = getattr(value, name)
        if not check(inner):
            raise Broken(f"{type(value).__name__}.{name} is {type(inner).__name__}: {inner!r:.80}")


Check = Callable[[Any], bool]


@cache
def _checks(kind: type) -> list[tuple[str, Check]]:
    hints = typing.get_type_hints(kind)
    return [(f.name, _check(hints[f.name])) for f in fields(kind)]


def _check(hint: Any) -> Check:
    while isinstance(hint, typing.NewType):
        hint = hint.__supertype__
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any or hint is object:
        return lambda value: True
    if origin in (types.UnionType, typing.Union):
        several = [_check(each) for each in arguments]
        return lambda value: any(check(value) for check in several)
    if origin in (tuple, frozenset):
        one = _check(arguments[0])
        return lambda value: isinstance(value, origin) and all(map(one, value))
    if origin is not None:
        return lambda value: isinstance(value, origin)
    if is_dataclass(hint):
        return lambda value: isinstance(value, hint) and well_typed(value) is None
    return _plain(hint)


def _plain(hint: Any) -> Check:
    if hint is float:
        # An int is a float to the type checker; neither may be infinite.
        return lambda v: type(v) in (int, float) and v - v == 0
    if hint is None or hint is type(None):
        return lambda value: value is None
    if issubclass(hint, Enum):
        return lambda value: isinstance(value, hint)
    return lambda value: type(value) is hint
