"""Which version of a peer a test is run on."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.support import versions
from tests.support.bd import VERSIONS
from tests.support.shares import share


def test_of_tests_that_differ_in_the_version_alone_one_is_left() -> None:
    names = [f"t.py::test_{n}[{v}-{p}]" for n in range(40) for v in VERSIONS for p in "ab"]
    left = [name for name in names if name not in versions.not_drawn(names)]
    assert len({name.partition("[")[0] + name[-2] for name in left}) == len(left) == 80
    each = Counter(version for name in left for version in VERSIONS if version in name)
    assert min(each[version] for version in VERSIONS) > 4
    assert versions.not_drawn(left) == set(), "what was drawn is drawn again when it is run alone"


def test_what_differs_in_more_and_what_has_no_version_is_left() -> None:
    old, new = VERSIONS
    assert (
        versions.not_drawn(
            [f"t.py::test[{old}-1]", f"t.py::test[{new}-2]", "t.py::test", "t.py::u[9]"]
        )
        == set()
    )
    assert versions.not_drawn([f"t.py::test[{old}0]", f"t.py::test[{new}0]"]) == set()


def test_what_is_not_about_trackers_is_run_on_one_of_two() -> None:
    names = [f"t.py::test_{n}[{kind}]" for n in range(40) for kind in versions.EITHER]
    left = [name for name in names if name not in versions.not_drawn(names)]
    assert len({name.partition("[")[0] for name in left}) == len(left) == 40
    assert all(sum(kind in name for name in left) > 5 for kind in versions.EITHER)
    about = [f"t.py::test[{kind}]" for kind in ("embedded", *VERSIONS)]
    assert len(versions.not_drawn(about)) == 1, "the built-in tracker is no version of bd"


@pytest.mark.parametrize(
    "kinds",
    [
        versions.ANY,
        versions.AGENTS,
        versions.BROKERS,
        versions.EXECUTORS,
        versions.PROGRAMS,
        versions.WORKERS,
    ],
)
def test_of_each_kind_of_peer_one_is_drawn_and_each_of_them_somewhere(
    kinds: tuple[str, ...],
) -> None:
    names = [f"t.py::test_{n}[{kind}-x]" for n in range(80) for kind in kinds]
    left = [name for name in names if name not in versions.not_drawn(names)]
    assert len(left) == len({name.partition("[")[0] for name in left}) == 80
    assert all(any(f"[{kind}-" in name for name in left) for kind in kinds)


@pytest.mark.parametrize(("count", "left"), [(80, 20), (81, 21), (3, 1), (1, 1)])
def test_a_share_is_drawn_that_is_never_nothing_and_drawn_again_alone(
    count: int, left: int
) -> None:
    names = [f"t.py::test[{n}]" for n in range(count)]
    drawn = share(names, 4)
    assert len(drawn) == left and drawn <= set(names)
    assert share(names[::-1], 4) == drawn
    assert all(share([name], 4) == {name} for name in drawn)


def test_a_draw_of_another_day_is_another_one() -> None:
    names = [f"t.py::test_{n}" for n in range(40)]
    days = [share(names, 2, f"2026-11-{day}") for day in range(10, 24)]
    assert {len(drawn) for drawn in days} == {20}
    assert set().union(*days) == set(names), "in two weeks each has run"


def test_a_draw_by_another_word_runs_on_other_versions() -> None:
    names = [f"t.py::test_{n}[{v}]" for n in range(40) for v in VERSIONS]
    draws = [set(names) - versions.not_drawn(names, f"2026-11-{day}") for day in range(1, 31)]
    assert {len(left) for left in draws} == {40}
    assert set().union(*draws) == set(names), "in a month each has run"
