"""Values as JSON and back: every field comes back as it was, or what is there is refused."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import field, is_dataclass
from enum import Enum
from types import UnionType
from typing import Any, NewType, Union, get_args, get_origin, get_type_hints

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from beads_workers.core.base.facts import Facts
from beads_workers.core.base.model import IssueId, value
from beads_workers.core.base.plain import BAD_VALUE, from_plain, readers_of, to_plain
from beads_workers.core.base.settings import FleetSettings, WorkerSettings
from beads_workers.core.records.assignment import Assignment
from beads_workers.core.records.landing import LanderSettings
from beads_workers.landing.gate import GateResult
from beads_workers.landing.sees.proof import Proof
from beads_workers.landing.set_up import KeptSetUp
from beads_workers.runtime.run_directory import RunInfo
from beads_workers.worktrees.ledger import LandedCommit
from beads_workers.worktrees.orders import Preparation
from beads_workers.worktrees.pool import Refill
from beads_workers.worktrees.records import WorktreeRecord


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


TRAVEL = [  # What one process of ours writes and another one reads.
    *(Outer, FleetSettings, WorkerSettings, Assignment, Facts, LanderSettings, RunInfo),
    *(Preparation, WorktreeRecord, Refill, LandedCommit, GateResult, KeptSetUp, Proof),
]
JSON = st.none() | st.integers(-9, 9) | st.text(max_size=3) | st.lists(st.booleans(), max_size=2)
SIMPLE = {str: st.text(max_size=4), int: st.integers(-9, 9), float: st.floats(-1e9, 1e9), Any: JSON}


def made(kind: Any) -> st.SearchStrategy[Any]:
    """Any values of this type, with something in every field."""
    inside = get_args(kind)
    if is_dataclass(kind):
        return st.builds(kind, **{name: made(of) for name, of in get_type_hints(kind).items()})
    if get_origin(kind) in (UnionType, Union):
        return st.one_of(*map(made, inside))
    if get_origin(kind) is tuple and inside[-1] is not Ellipsis:
        return st.tuples(*map(made, inside))
    if get_origin(kind) in (tuple, list):
        return st.lists(made(inside[0]), max_size=2).map(get_origin(kind))
    if inside:
        return st.dictionaries(made(str), made(inside[1]), max_size=2)
    if isinstance(kind, NewType):
        return made(kind.__supertype__)
    return SIMPLE[kind] if kind in SIMPLE else st.from_type(kind)


LEAST = Outer(IssueId("a"), 1)


@pytest.mark.parametrize("kind", TRAVEL)
@given(data=st.data(), sparse=st.booleans())
@settings(
    max_examples=10, deadline=None, suppress_health_check=list(HealthCheck), phases=[Phase.generate]
)
def test_it_comes_back_as_it_was(kind: Any, data: st.DataObject, sparse: bool) -> None:
    whole = data.draw(made(kind))
    text = json.dumps(to_plain(whole, sparse=sparse))
    assert from_plain(kind, json.loads(text)) == whole


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
