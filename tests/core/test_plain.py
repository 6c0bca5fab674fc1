"""Values as JSON and back: every field comes back as it was, or what is there is refused."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import field
from enum import Enum
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from beads_workers.core.model import IssueId, value
from beads_workers.core.plain import BAD_VALUE, from_plain, readers_of, to_plain


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


@value
class Inner:
    name: str = ""
    sizes: tuple[float, ...] = ()


@value
class Outer:
    issue_id: IssueId
    count: int
    colour: Colour = Colour.RED
    inner: Inner = Inner()
    maybe: Inner | None = None
    rows: tuple[tuple[str, int], ...] = ()
    inners: Mapping[str, Inner] = field(default_factory=dict, hash=False)
    anything: Mapping[str, Any] = field(default_factory=dict, hash=False)
    listed: list[str] | None = None
    on: bool | None = None


TEXT = st.text(max_size=5)
INNERS = st.builds(Inner, TEXT, st.lists(st.floats(-1e9, 1e9), max_size=3).map(tuple))
OUTERS = st.builds(
    Outer,
    issue_id=TEXT.map(IssueId),
    count=st.integers(-9, 9),
    colour=st.sampled_from(Colour),
    inner=INNERS,
    maybe=st.none() | INNERS,
    rows=st.lists(st.tuples(TEXT, st.integers(0, 9)), max_size=2).map(tuple),
    inners=st.dictionaries(TEXT, INNERS, max_size=2),
    anything=st.dictionaries(TEXT, st.none() | st.integers() | st.lists(TEXT), max_size=2),
    listed=st.none() | st.lists(TEXT, max_size=2),
    on=st.none() | st.booleans(),
)
LEAST = Outer(IssueId("a"), 1)


@given(whole=OUTERS, sparse=st.booleans())
def test_it_comes_back_as_it_was(whole: Outer, sparse: bool) -> None:
    text = json.dumps(to_plain(whole, sparse=sparse))
    assert from_plain(Outer, json.loads(text)) == whole


def test_sparse_leaves_out_what_holds_its_default_also_inside() -> None:
    assert to_plain(LEAST, sparse=True) == {"issue_id": "a", "count": 1}
    inside = Outer(IssueId("a"), 1, maybe=Inner("b"))
    assert to_plain(inside, sparse=True)["maybe"] == {"name": "b"}


def test_what_a_newer_version_wrote_is_passed_over() -> None:
    assert from_plain(Outer, to_plain(LEAST) | {"newer": 1}) == LEAST


@pytest.mark.parametrize(
    "wrong",
    [
        {"issue_id": 1},
        {"count": True},
        {"count": 1.0},
        {"count": 1 << 80},
        {"colour": "green"},
        {"inner": None},
        {"inner": {"sizes": [float("inf")]}},
        {"inner": {"sizes": 1}},
        {"maybe": []},
        {"rows": [["a"]]},
        {"rows": {"a": 1}},
        {"inners": [1]},
        {"anything": 7},
        {"listed": "ab"},
        {"on": 1},
    ],
    ids=str,
)
def test_what_is_of_another_type_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(BAD_VALUE):
        from_plain(Outer, to_plain(LEAST) | wrong)


@pytest.mark.parametrize("wrong", [None, [], "{}", {"issue_id": "a"}], ids=str)
def test_what_is_no_object_or_lacks_a_field_is_refused(wrong: Any) -> None:
    with pytest.raises(BAD_VALUE):
        from_plain(Outer, wrong)


def test_a_type_that_json_does_not_have_is_our_own_mistake() -> None:
    @value
    class Odd:
        raw: bytes

    with pytest.raises(TypeError):
        readers_of(Odd)
