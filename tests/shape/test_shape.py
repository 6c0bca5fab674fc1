"""The shape of the code, held by the table of ``bounds``, and that each measure sees a change."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.shape import figures, habits, table
from tests.shape.bounds import (
    BOUNDS,
    BUDGET,
    CIRCLES_MAX,
    GRANTED,
    KNOWN_CIRCLES,
    Bound,
    over_budget,
)
from tests.shape.circles import circles, circles_of, edges, is_part
from tests.shape.figures import Source
from tests.shape.journey import ROOT, travel
from tests.shape.life import executed
from tests.shape.rooms import ROOMS


@pytest.fixture(scope="module")
def package() -> list[Source]:
    return figures.sources()


@pytest.mark.parametrize(
    "measure",
    [
        lambda package: table.counted(package),
        lambda _: table.travelled(travel()),
        lambda _: table.lived(executed(BOUNDS["life_functions"].most)),
    ],
    ids=["counted", "from a DONE to the next TASK", "from start to its exit"],
)
def test_no_figure_is_off_its_bound(
    measure: Callable[[list[Source]], table.Values], package: list[Source]
) -> None:
    faults = [f for name, now in measure(package).items() for f in BOUNDS[name].faults(name, now)]
    assert faults == []


def test_every_figure_has_a_bound_and_a_title() -> None:
    assert BOUNDS.keys() == table.TITLES.keys()


def test_no_room_is_over_its_budget(package: list[Source]) -> None:
    assert over_budget(figures.code_of_rooms(package)) == []
    assert sum(BUDGET.values()) == GRANTED


@pytest.mark.parametrize("room", BUDGET)
def test_a_room_grows_only_where_another_one_gives(room: str, package: list[Source]) -> None:
    rooms = figures.code_of_rooms(package)
    more = BUDGET[room] - rooms[room] + 1
    assert over_budget(rooms | {room: rooms[room] + more})
    assert over_budget(rooms | {"new": 1})


def test_what_is_deleted_with_a_feature_is_there() -> None:
    """Only ``.ci/run`` has the minutes to delete them (``scripts/shape --rooms all``)."""
    there = {file.stem for file in (ROOT / "tests" / "core").glob("test_*.py")}
    assert {f"test_{test}" for tests, _ in ROOMS.values() for test in tests} <= there
    features = ROOT / "beads_workers" / "core" / "workers" / "features"
    assert {file.stem for file in features.glob("*.py")} - {"__init__", "table"} == ROOMS.keys()


def test_no_circle_is_new_and_none_grows(package: list[Source]) -> None:
    found = circles(package)
    assert len(found) <= CIRCLES_MAX <= len(KNOWN_CIRCLES)
    assert [c for c in found if not any(is_part(c, known) for known in KNOWN_CIRCLES)] == []


def test_no_integration_is_named_outside_of_its_room(package: list[Source]) -> None:
    assert figures.names_outside(package) == []


def test_one_class_name_means_one_thing(package: list[Source]) -> None:
    # Each system has its own.
    kernels = ["runtime/kernel/darwin.py", "runtime/kernel/linux.py"]
    assert figures.duplicate_classes(package) == {"Stat": kernels}


def test_records_are_told_apart_only_where_they_are_shown(package: list[Source]) -> None:
    """Whoever else wants to know how an issue stands asks the reducer, ``core.records.issues``."""
    shown = {
        "chaos/account.py",
        "core/views/history.py",
        "core/views/snapshot.py",
        "demo/account.py",
    }
    # Of branches that runs have left, over several journals: landing/left_branches.py.
    shown |= {"integrations/envelopes/fold.py", "landing/left_branches.py", "ui/lines.py"}
    assert set(figures.folds(package)) <= shown


# --- each measure sees a change ------------------------------------------------------------------


def module(file: str, text: str) -> Source:
    return Source(Path(file), file, text, ast.parse(text))


def test_a_bound_catches_a_rise_and_a_fall_that_it_did_not_follow() -> None:
    bound = Bound(10, slack=2)
    assert [now for now in range(5, 15) if not bound.faults("x", now)] == [8, 9, 10]


@pytest.mark.parametrize(
    "text",
    [
        "from beads_workers.core import b",
        "from beads_workers.core.b import name",
        "import beads_workers.core.b",
        "from . import b",
        "from .b import name",
        "if TYPE_CHECKING:\n    from beads_workers.core import b",
        "def f():\n    from beads_workers.core.b import name",
    ],
)
def test_every_way_of_importing_is_an_edge(text: str) -> None:
    a, b = "beads_workers.core.a", "beads_workers.core.b"
    assert edges(a, module("core/a.py", text), {a, b, "beads_workers.core"}) == {b}


def test_a_circle_is_found_and_a_chain_is_none() -> None:
    graph = {"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a", "e"}, "e": set[str]()}
    assert circles_of(graph) == [["a", "b", "c"]]
    assert circles_of({**graph, "c": set()}) == []
    assert circles_of({**graph, "e": {"d"}}) == [["a", "b", "c"], ["d", "e"]]


def test_blank_lines_comments_and_docstrings_are_no_code() -> None:
    text = '"""Module."""\n\n# why\ndef f(\n    a,  # beside\n):\n    """Two\n\n    lines."""\n'
    text += '    return """x\n\n    y"""\nclass A:\n    b: int\n    """Of it."""\n'
    assert figures.code_lines(module("a.py", text)) == 7


def test_what_is_copied_by_hand_or_explained_elsewhere_is_counted() -> None:
    explained = '"""``a``: one. ``b``: two. ``c``: three."""'
    text = f"class A:\n    {explained}\n    a: int\n    b: int\n    c: int\n"
    text += "f(a=x.a, b=x.b, c=x.c, d=y.d)\nf(a=x.a, b=x.b, c=x.c, d=x.e)\n"
    text += "def _once():\n    return 1\ndef _twice():\n    return _once() + _twice()\n"
    package = [module("a.py", text)]
    assert habits.paragraphs(package) == {"a.py:A": 3}
    assert habits.repacking(package) == [("a.py:6", 4)]
    assert habits.names_for_nothing(package) == ["a.py:_once", "a.py:_twice"]
    assert habits.mean_lines(package) == 20
    assert habits.long_functions([module("a.py", "def f():\n" + "    x\n" * 60)]) == ["a.py:f"]


def test_a_list_that_names_what_is_gone_fails(package: list[Source]) -> None:
    without = [replace(s, tree=ast.Module([], [])) for s in package if s.file != "ui/lines.py"]
    with pytest.raises(AssertionError, match="mend the list"):
        figures.fate_lines(without)
    with pytest.raises(AssertionError, match="mend READ_MODELS"):
        figures.read_model_lines(without)
