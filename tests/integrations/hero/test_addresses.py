"""Where a Redis is, without its secrets."""

from __future__ import annotations

from pathlib import Path

import pytest

from beads_workers.integrations.hero import connection


@pytest.mark.parametrize(
    ("url", "place"),
    [
        ("redis://", connection.RedisAddress(connection.Address())),
        ("redis://localhost", connection.RedisAddress(connection.Address("localhost"))),
        (
            "redis://ann@db.example:7000/3",
            connection.RedisAddress(connection.Address("db.example", 7000, db=3, user="ann")),
        ),
        ("redis://[::1]:7000", connection.RedisAddress(connection.Address("::1", 7000))),
        (
            "rediss://h/1?ca=/ca.pem",
            connection.RedisAddress(connection.Address("h", db=1, tls=True, ca="/ca.pem")),
        ),
        (
            "redis://h?db=2&password_file=/p",
            connection.RedisAddress(connection.Address("h", db=2, password_file="/p")),
        ),
        (
            "redis+unix:///run/r.sock?db=4",
            connection.RedisAddress(connection.Address(path="/run/r.sock", db=4)),
        ),
        ("redis://a%40b@h", connection.RedisAddress(connection.Address("h", user="a@b"))),
        (
            "redis://h/0?worker=w1",
            connection.RedisAddress(connection.Address("h"), {"worker": "w1"}),
        ),
    ],
)
def test_a_url_says_where_it_is(url: str, place: connection.RedisAddress) -> None:
    assert connection.read_url(url) == place


@pytest.mark.parametrize(
    "address",
    [
        connection.Address("h", 7000, db=3, user="ann"),
        connection.Address("::1"),
        connection.Address(path="/run/r.sock", db=4),
        connection.Address("h", tls=True),
    ],
)
def test_what_people_are_shown_is_a_url_again(address: connection.Address) -> None:
    assert connection.read_url(str(address)).address == address


@pytest.mark.parametrize(
    "url",
    [
        "http://h",
        "redis://h:x",
        "redis://h:70000",
        "redis://[h",
        "redis://h/x",
        "redis://h/1000000",
        "redis+unix://h/run/r.sock",
        "redis+unix://",
        "redis+unix://:9/run/r.sock",
        "/run/r.sock",
        "",
    ],
)
def test_what_is_no_such_url_is_refused_in_one_line(url: str) -> None:
    with pytest.raises(ValueError, match="redis") as raised:
        connection.read_url(url)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("url", ["redis://:hunter2@h", "redis://ann:hunter2@h/0", "redis://:@h"])
def test_a_password_in_a_url_is_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(ValueError, match="password_file") as raised:
        connection.read_url(url)
    assert "hunter2" not in str(raised.value)


def test_a_broken_url_with_a_password_is_not_repeated_either() -> None:
    with pytest.raises(ValueError, match="URL") as raised:
        connection.read_url("redis://ann:hunter2@[h")
    assert "hunter2" not in str(raised.value)


def test_the_password_is_read_from_its_file_without_the_end_of_the_line(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("hunter2\n")
    file.chmod(0o600)
    address = connection.Address(password_file=str(file))
    assert connection.password_of(address, {"REDISCLI_AUTH": "other"}) == "hunter2"
    assert "hunter2" not in repr(address)


@pytest.mark.parametrize(
    ("content", "why"), [(b"", "empty"), (b"\n", "empty"), (b"\xff", "text"), (b"x" * 5000, "long")]
)
def test_a_file_that_holds_no_password_is_refused(tmp_path: Path, content: bytes, why: str) -> None:
    file = tmp_path / "password"
    file.write_bytes(content)
    file.chmod(0o600)
    with pytest.raises(ValueError, match=why):
        connection.password_of(connection.Address(password_file=str(file)), {})


def test_the_password_is_found_in_the_environment() -> None:
    found = {"REDISCLI_AUTH": "cli", "OURS": "named"}
    assert connection.password_of(connection.Address(), found) == "cli"
    assert (
        connection.password_of(
            connection.Address(), {**found, "BEADS_WORKERS_REDIS_PASSWORD": "bw"}
        )
        == "bw"
    )
    assert connection.password_of(connection.Address(password_env="OURS"), found) == "named"
    assert connection.password_of(connection.Address(), {}) is None
    with pytest.raises(ValueError, match="MISSING"):
        connection.password_of(connection.Address(password_env="MISSING"), found)
    assert "OURS" in connection.secret_variables(connection.Address(password_env="OURS"))
