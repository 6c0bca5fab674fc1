"""Values: what ``dataclass`` would make of them, made when it is asked for."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, fields, replace
from typing import Any

import pytest

from beads_workers.core.base.model import compile_values, value


@value
class Point:
    """Two fields, and one that does not count."""

    x: int
    y: int = 2
    about: Mapping[str, Any] = field(default_factory=dict, hash=False)


@value
class Named(Point):
    """One more, after those of its base, with a text of its own."""

    name: str = ""

    def __repr__(self) -> str:
        return f"<{self.name}>"


@dataclass(slots=True, unsafe_hash=True)
class Plain:
    """As ``Point``, made by ``dataclass`` at once."""

    x: int
    y: int = 2
    about: Mapping[str, Any] = field(default_factory=dict, hash=False)


def test_a_value_is_what_a_dataclass_is() -> None:
    ours, theirs = Point(1), Plain(1)
    assert repr(ours) == repr(theirs).replace("Plain", "Point")
    assert ours == Point(1, 2, {}) != Point(1, 3)
    assert ours != theirs
    assert hash(ours) == hash(theirs) == hash(Point(1, about={"a": 1}))
    assert ours.about is not Point(1).about
    assert replace(ours, y=5) == Point(1, 5)
    assert [f.name for f in fields(Point)] == [f.name for f in fields(Plain)]
    assert Point.__match_args__ == Plain.__match_args__
    assert not hasattr(ours, "__dict__")
    assert pickle.loads(pickle.dumps(ours)) == copy.deepcopy(ours) == ours
    with pytest.raises(TypeError, match=r"Point.__init__\(\) missing 1 required .* 'x'"):
        Point()  # type: ignore[call-arg]


def test_one_with_a_base_has_its_fields_and_keeps_what_it_defines() -> None:
    named = Named(1, name="a")
    assert (named.x, named.y, named.name, repr(named)) == (1, 2, "a", "<a>")
    assert named != Point(1)
    assert len({named, Named(1, name="a"), Point(1)}) == 2


def test_nothing_is_compiled_before_it_is_used() -> None:
    @value
    class Fresh:
        """Nobody has made one."""

        x: int = 0

    first = Fresh.__init__
    assert "x" not in first.__code__.co_varnames
    assert Fresh(3).x == 3
    assert "x" in Fresh.__init__.__code__.co_varnames
    kept = Fresh()
    first(kept, 7)
    assert kept.x == 7, "whoever had hold of the first one may go on to use it"


def test_before_a_fork_all_are_compiled() -> None:
    @value
    class Fresh:
        """Nobody has made one."""

        x: int = 0

    compile_values()
    assert "x" in Fresh.__init__.__code__.co_varnames


def test_threads_do_not_meet_in_it() -> None:
    for _ in range(50):

        @value
        class Fresh:
            """Nobody has made one."""

            x: int = 0

        with ThreadPoolExecutor(8) as pool:
            hashes = set(pool.map(lambda x, kind=Fresh: hash(kind(x)), [1] * 8))  # type: ignore[misc]
        assert len(hashes) == 1
