"""Errors of one kind fold into one cause, which a person can name."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from beads_workers.core.base.causes import cause_of, folded, is_of


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("tests failed: 3 of 212", "tests failed: 17 of 9"),
        ("took 1.5 s", "took 22,000 s"),
        ("commit 3fa9c01 is missing", "commit 77b0e1d9aa is missing"),
        ("at 0x7f3a", "at 0x10"),
        ("no 01234567-89ab-cdef-0123-456789abcdef", "no fedcba98-89ab-cdef-0123-456789abcdef"),
        ("host 10.0.0.1:80  is down", "host 10.0.0.22:8080 is down"),
        ("bw-12: bad", "bw-7: bad"),
        ("cannot parse conf/a.toml", "cannot parse conf/deep/b.toml"),
        ("no such file: '/srv/w/a'", "no such file: '/tmp/b/c.txt'"),
        ("~/.cache/x is full", "/var/cache is full"),
        ("GET https://a.example/x?y=z failed", "GET http://b.example/ failed"),
        ("no conf/bw-12.toml", "no conf/bw-7.toml"),
        ("no conf/bw-12.toml", "no other/x.toml"),
        ("worktrees/bw-12/src/a.py is bad", "worktrees/bw-7/src/b.py is bad"),
    ],
)
def test_errors_of_one_kind_have_one_cause(one: str, other: str) -> None:
    assert cause_of(one, "bw-12") == cause_of(other, "bw-7")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("not found", "not allowed"),
        ("defaced", "effaced"),
        ("a 1 b", "a 1 c"),
        ("client and/or server", "client and/or peer"),
        ("cannot read a/b.c", "cannot write a/b.c"),
    ],
)
def test_errors_of_two_kinds_have_two_causes(one: str, other: str) -> None:
    assert cause_of(one) != cause_of(other)


def test_words_with_a_slash_are_no_path() -> None:
    assert cause_of("client and/or server, n/a") == "client and/or server, n/a"


@given(st.text(), st.text(max_size=5))
def test_the_cause_of_a_cause_is_itself(error: str, issue_id: str) -> None:
    once = cause_of(error, issue_id)
    assert cause_of(once) == once


@given(st.text(alphabet="a1#/.:~- e", max_size=30))
def test_the_cause_of_a_cause_is_itself_whatever_paths_are_in_it(error: str) -> None:
    once = cause_of(error)
    assert cause_of(once) == once


ERRORS = [("w-1", "boom"), ("w-2", "w-2: line 7"), ("w-3", "w-3: line 9"), ("w-4", "w-4: line 9")]


def test_the_largest_group_stands_first_and_equal_errors_are_named_as_they_are() -> None:
    found = folded(ERRORS, lambda row: (row[1], row[0]))
    assert [(cause, [row[0] for row in alike]) for cause, alike in found] == [
        ("#: line #", ["w-2", "w-3", "w-4"]),
        ("boom", ["w-1"]),
    ]
    assert folded([("w-9", "exit 3"), ("w-8", "exit 3")], lambda r: (r[1], r[0])) == [
        ("exit 3", [("w-9", "exit 3"), ("w-8", "exit 3")])
    ]


@pytest.mark.parametrize("named", ["#: line #", "line", "LINE 7", "w-2:  line 7", "Line #"])
def test_a_person_names_a_cause_by_any_part_of_it(named: str) -> None:
    assert is_of(named, "w-2: line 7", "w-2")


@pytest.mark.parametrize("named", ["lines", "boom", "line # of", "line 12", "#", "# #", ""])
def test_another_error_is_not_of_that_cause(named: str) -> None:
    assert not is_of(named, "w-2: line 7", "w-2")
