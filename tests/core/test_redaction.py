"""Which variables hold secrets, and how these are masked."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from beads_workers.core.redaction import is_secret, masked, secrets_of, shown


@pytest.mark.parametrize(
    "name",
    ["PASSWORD", "DB_PASS", "api_key", "GITHUB_TOKEN", "AWS_SECRET_ACCESS_KEY", "DATABASE_URL"],
)
def test_a_variable_is_known_to_hold_a_secret_by_its_name(name: str) -> None:
    assert is_secret(name)


@pytest.mark.parametrize("name", ["HOME", "LANG", "SHOP", "URL_PREFIX", "NUMBER"])
def test_other_variables_do_not(name: str) -> None:
    assert not is_secret(name)


def test_what_is_too_short_to_hide_anything_is_left_alone() -> None:
    assert secrets_of({"TOKEN": "abc", "PASSWORD": "", "NAME": "hunter2"}) == ()


def test_the_longest_comes_first_so_that_nothing_of_it_is_left() -> None:
    found = secrets_of({"A_KEY": "hunter", "B_KEY": "hunter2"})
    assert found == ("hunter2", "hunter")
    assert masked(b"say hunter2!", [s.encode() for s in found]) == b"say *******!"


def test_each_long_line_of_a_secret_with_several_is_one() -> None:
    found = secrets_of({"PRIVATE_KEY": "-----BEGIN-----\nMIIEabcdefgh\nx\n"})
    assert "MIIEabcdefgh" in found
    assert "x" not in found
    assert masked(b"  MIIEabcdefgh\n", [s.encode() for s in found]) == b"  ************\n"


@given(st.binary(max_size=60), st.lists(st.binary(min_size=4, max_size=8), max_size=3))
def test_masking_keeps_the_length_and_no_secret(data: bytes, secrets: list[bytes]) -> None:
    ordered = sorted(secrets, key=len, reverse=True)
    found = masked(data, ordered)
    assert len(found) == len(data)
    assert not any(s in found for s in ordered if set(s) - set(b"*\r\n"))


def test_nobody_is_shown_a_value() -> None:
    assert shown({"A": "b", "TOKEN": "c"}) == {"A": "***", "TOKEN": "***"}
