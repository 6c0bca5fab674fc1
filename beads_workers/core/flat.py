"""Flat dataclasses read back from JSON, every field of the type that it is annotated with.

For what our own files hold: a crash, a full disk or a person may have left anything there, and
whoever uses a value must not have to ask again what it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from math import isfinite
from typing import TYPE_CHECKING, Any, TypeVar

from beads_workers.core import limits

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    T = TypeVar("T", bound=DataclassInstance)

Reader = Callable[[Any], Any]
"""Takes a value as JSON has it; raises ``TypeError`` or ``ValueError`` for one of another type."""

BAD_VALUE = (ValueError, KeyError, TypeError, OverflowError)
"""What ``read_flat`` and the readers raise for what is not as it was written."""


def readers_of(kind: type) -> dict[str, Reader]:
    """How each field is read, by name; raises ``KeyError`` for a type that is not flat."""
    return {f.name: _BY_TYPE[str(f.type)] for f in fields(kind)}


def read_flat(kind: type[T], values: Any) -> T:
    """One of ``kind`` from a parsed JSON object; raises one of ``BAD_VALUE``.

    Fields that it does not know are passed over: a newer version may have written them.
    """
    if not isinstance(values, Mapping):
        raise TypeError(values)
    readers = readers_of(kind)
    return kind(**{name: read(values[name]) for name, read in readers.items() if name in values})


def finite(value: Any) -> float:
    """A number as a float; raises one of ``BAD_VALUE`` for anything else, infinity and NaN too."""
    if type(value) is not float and type(value) is not int:
        raise TypeError(value)
    number = float(value)
    if not isfinite(number):
        raise ValueError(value)
    return number


def _exactly(kind: type, *others: type) -> Reader:
    def read(value: Any) -> Any:
        # ``type``, because a bool is an int to ``isinstance``.
        if type(value) is not kind and type(value) not in others:
            raise TypeError(value)
        return value

    return read


def _integer(value: Any) -> int:
    if type(value) is not int or abs(value) > limits.INTEGER_MAX:
        raise TypeError(value)
    return value


def _integer_or_none(value: Any) -> int | None:
    return None if value is None else _integer(value)


def _integers(value: Any) -> tuple[int, ...]:
    return tuple(map(_integer, _several(int)(value)))


def _several(kind: type) -> Reader:
    def read(value: Any) -> tuple[Any, ...]:
        if type(value) is not list or not all(type(each) is kind for each in value):
            raise TypeError(value)
        return tuple(value)

    return read


_BY_TYPE: dict[str, Reader] = {
    "str": _exactly(str),
    "int": _integer,
    "bool": _exactly(bool),
    "float": finite,
    "int | None": _integer_or_none,
    "str | None": _exactly(str, type(None)),
    "bool | None": _exactly(bool, type(None)),
    "tuple[int, ...]": _integers,
    "tuple[str, ...]": _several(str),
}
"""By annotation, as it is written."""
