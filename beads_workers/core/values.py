"""Values: dataclasses that nobody changes, made by the dozen for every task.

``@value`` is ``@dataclass(frozen=True, slots=True)`` to the type checker, which refuses every
assignment to a field. At run time nothing is in its way, because that guard is what such a class
costs: three quarters of the time to make an instance, and half of the time to make the class.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def value(kind: type[T]) -> type[T]:
    """Make ``kind`` a value: compared and hashed by its fields, which are never set again."""
    return dataclass(slots=True, unsafe_hash=True)(kind)
