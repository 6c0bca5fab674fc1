"""Values as JSON, and back, by the types that their fields are annotated with.

    to_plain(Budget(dollars=5.0))             # {"dollars": 5.0, "tokens": None}
    from_plain(Budget, {"dollars": 5})        # Budget(dollars=5.0, tokens=None)

It is for data that only we write and read: the journal, settings, orders between our own processes,
files of ours. A crash, a full disk or a person may have left anything in a file. So every field is
checked, and users of a value need not check it again. Strangers' messages have parsers of their
own, which say what is wrong with them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from functools import partial
from math import isfinite
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, NewType, TypeVar, Union, get_args, get_origin, get_type_hints

from beads_workers.core.base import limits

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    T = TypeVar("T", bound=DataclassInstance)

Reader = Callable[[Any], Any]
"""Reads a JSON value of one type; raises one of ``BAD_VALUE`` for any other."""

BAD_VALUE = (ValueError, KeyError, TypeError, OverflowError)
"""Exceptions of ``from_plain`` and the readers for data that is not as it was written."""


# --- writing -------------------------------------------------------------------------------------


def to_plain(value: Any, *, sparse: bool = False) -> Any:
    """Return ``value`` as ``json`` can write it: dataclasses as dicts, enums as their values.

    ``sparse``: fields that hold their default are left out, at every level.
    """
    kind = type(value)
    if kind in _SCALARS:
        return value
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return {name: to_plain(each, sparse=sparse) for name, each in value.items()}
    if isinstance(value, tuple | list):
        return [to_plain(each, sparse=sparse) for each in value]
    if kind not in _DEFAULTS:
        _DEFAULTS[kind] = _defaults_of(kind)
    found = ((name, getattr(value, name), default) for name, default in _DEFAULTS[kind])
    return {
        name: to_plain(each, sparse=sparse)
        for name, each, default in found
        if not (sparse and each == default)
    }


def _defaults_of(kind: type) -> tuple[tuple[str, Any], ...]:
    return tuple(
        (f.name, f.default if f.default_factory is MISSING else f.default_factory())
        for f in fields(kind)
    )


_SCALARS = frozenset((str, int, float, bool, NoneType))
_DEFAULTS: dict[type, tuple[tuple[str, Any], ...]] = {}
"""Fields of each class that was written, with their defaults, or ``MISSING``."""


# --- reading -------------------------------------------------------------------------------------


def from_plain(kind: type[T], values: Any) -> T:
    """Return a ``kind`` from a parsed JSON object; raise one of ``BAD_VALUE``.

    A missing field holds its default. A field that ``kind`` does not have is ignored: a newer
    version may have written it.
    """
    if not isinstance(values, Mapping):
        raise TypeError(values)
    readers = readers_of(kind)
    return kind(**{name: read(values[name]) for name, read in readers.items() if name in values})


def readers_of(kind: type) -> Mapping[str, Reader]:
    """Return the reader of each field, by name; raise ``TypeError`` for types that JSON lacks."""
    if kind not in _READERS:
        texts = {f.name: str(f.type) for f in fields(kind)}
        simple = {name: _BY_TEXT[text] for name, text in texts.items() if text in _BY_TEXT}
        hints = get_type_hints(kind) if len(simple) < len(texts) else {}
        _READERS[kind] = {name: simple.get(name) or _reader_of(hints[name]) for name in texts}
    return _READERS[kind]


_READERS: dict[type, Mapping[str, Reader]] = {}
"""Readers of each class that was read."""


def finite(value: Any) -> float:
    """Return a number as a float; raise one of ``BAD_VALUE`` for all else, infinity and NaN too."""
    if type(value) is not float and type(value) is not int:
        raise TypeError(value)
    number = float(value)
    if not isfinite(number):
        raise ValueError(value)
    return number


def _reader_of(kind: Any) -> Reader:
    if isinstance(kind, NewType):
        return _reader_of(kind.__supertype__)
    if kind in _BY_TYPE:
        return _BY_TYPE[kind]
    origin, inside = get_origin(kind), get_args(kind)
    if origin in (UnionType, Union):
        (one,) = (each for each in inside if each is not NoneType)
        return _or_none(_reader_of(one))
    if origin is tuple and inside[-1] is not Ellipsis:
        return _row(tuple(map(_reader_of, inside)))
    if origin in (tuple, list):
        return _several(_reader_of(inside[0]), origin)
    if origin is not None and issubclass(origin, Mapping):
        return _mapping(_reader_of(inside[1]))
    if isinstance(kind, type) and issubclass(kind, Enum):
        return kind
    if isinstance(kind, type) and is_dataclass(kind):
        return partial(from_plain, kind)
    raise TypeError(kind)


def _exactly(kind: type) -> Reader:
    def read(value: Any) -> Any:
        # ``type``, because a bool is an int to ``isinstance``.
        if type(value) is not kind:
            raise TypeError(value)
        return value

    return read


def _integer(value: Any) -> int:
    if type(value) is not int or abs(value) > limits.INTEGER_MAX:
        raise TypeError(value)
    return value


def _anything(value: Any) -> Any:
    return value


def _or_none(read: Reader) -> Reader:
    return lambda value: None if value is None else read(value)


def _several(read: Reader, kind: type = tuple) -> Reader:
    def read_all(value: Any) -> Any:
        if type(value) is not list:
            raise TypeError(value)
        return kind(map(read, value))

    return read_all


def _row(readers: tuple[Reader, ...]) -> Reader:
    def read_all(value: Any) -> tuple[Any, ...]:
        if type(value) is not list:
            raise TypeError(value)
        return tuple(read(each) for read, each in zip(readers, value, strict=True))

    return read_all


def _mapping(read: Reader) -> Reader:
    def read_all(value: Any) -> dict[str, Any]:
        if type(value) is not dict:
            raise TypeError(value)
        return {name: read(each) for name, each in value.items()}

    return read_all


_BY_TYPE: dict[Any, Reader] = {
    str: _exactly(str),
    int: _integer,
    bool: _exactly(bool),
    float: finite,
    Any: _anything,
}
_BY_TEXT: dict[str, Reader] = {
    **{kind.__name__: read for kind, read in _BY_TYPE.items()},
    **{f"{kind.__name__} | None": _or_none(read) for kind, read in _BY_TYPE.items()},
    "tuple[str, ...]": _several(_BY_TYPE[str]),
}
"""Readers by annotation as it is written: the types of most classes need not be evaluated."""
