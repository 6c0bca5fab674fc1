"""Which variables hold secrets, and how these are masked."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from beads_workers.core.base.redaction import is_secret, masked, secrets_of, shown


@pytest.mark.parametrize(
    "name",
    [
        *(
            "PASSWORD",
            "DB_PASS",
            "api_key",
            "GITHUB_TOKEN",
            "AWS_SECRET_ACCESS_KEY",
            "DATABASE_URL",
        ),
        *("HTTP_AUTHORIZATION", "REDISCLI_AUTH", "GIT_AUTHOR_TOKEN", "SESSION_ID"),
    ],
)
def test_a_variable_is_known_to_hold_a_secret_by_its_name(name: str) -> None:
    assert is_secret(name)


OTHERS = ["HOME", "LANG", "SHOP", "URL_PREFIX", "NUMBER", "GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL"]
DESKTOP = ["DESKTOP_SESSION", "XDG_SESSION_TYPE", "GDMSESSION", "SSH_AUTH_SOCK", "XKB_KEYMAP"]


@pytest.mark.parametrize("name", OTHERS + DESKTOP)
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


ADDRESSES = [
    # the value, what is shown of it
    ("https://packages.example/simple", "https://packages.example/simple"),
    ("postgres://me:hunter2@db.local/shop", "postgres://***********db.local/shop"),
    ("redis://:pw@localhost:6379/0", "redis://****localhost:6379/0"),
    ("https://abc@host/x", "https://****host/x"),
    ("https://host/x?page=2&token=hunter2#top", "https://host/x?page=2&token=*******#top"),
    ("https://host/x?sig=a%2Fbc", "https://host/x?sig=******"),
    ("https://h.com/T0/B0/a1b2c3d4e5f6g7h8i9j0k1", f"https://h.com/T0/B0/{'*' * 22}"),
    ("host=db password=hunter2", "*" * 24),
    ("me@hunter2:x/y", "*" * 14),
]


@pytest.mark.parametrize(("value", "seen"), ADDRESSES)
def test_of_an_address_the_login_and_what_is_a_key_are_masked(value: str, seen: str) -> None:
    secrets = [each.encode() for each in secrets_of({"SHOP_URL": value})]
    assert masked(value.encode(), secrets) == seen.encode()


def test_a_password_of_an_address_is_masked_wherever_it_is_printed() -> None:
    secrets = secrets_of({"SHOP_DSN": "x://me:hunt%40r2@db"})
    assert {"hunt%40r2", "hunt@r2"} <= {*secrets}


def test_the_address_of_a_hook_is_the_secret() -> None:
    assert "https://h.com/x" in secrets_of({"SLACK_WEBHOOK_URL": "https://h.com/x"})


@given(st.binary(max_size=60), st.lists(st.binary(min_size=4, max_size=8), max_size=3))
def test_masking_keeps_the_length_and_no_secret(data: bytes, secrets: list[bytes]) -> None:
    ordered = sorted(secrets, key=len, reverse=True)
    found = masked(data, ordered)
    assert len(found) == len(data)
    assert not any(s in found for s in ordered if set(s) - set(b"*\r\n"))


def test_nobody_is_shown_a_value() -> None:
    assert shown({"A": "b", "TOKEN": "c"}) == {"A": "***", "TOKEN": "***"}
