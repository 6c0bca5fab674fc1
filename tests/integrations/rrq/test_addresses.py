"""Where an executor listens: one address, of this machine alone."""

from __future__ import annotations

import pytest

from beads_workers.integrations.rrq import source
from beads_workers.integrations.rrq.wire import SOCKET_VARIABLE, TCP_VARIABLE


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:9000", source.Tcp("127.0.0.1", 9000)),
        ("localhost:9000", source.Tcp("127.0.0.1", 9000)),
        ("127.8.9.1:1", source.Tcp("127.8.9.1", 1)),
        ("[::1]:65535", source.Tcp("::1", 65535)),
        ("::1:80", source.Tcp("::1", 80)),
    ],
)
def test_a_loopback_address_with_a_port(text: str, address: source.Tcp) -> None:
    assert source.tcp(text) == address


@pytest.mark.parametrize(
    "text",
    ["", "9000", ":9000", "0.0.0.0:9000", "192.168.0.1:9000", "example.org:80", "[::]:80",
     "127.0.0.1:0", "127.0.0.1:65536", "127.0.0.1:", "127.0.0.1:٣", "127.0.0.1:99999999999"],
)  # fmt: skip
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"no host:port|not this machine|no port"):
        source.tcp(text)


@pytest.mark.parametrize("text", ["/tmp/" + "x" * source.PATH_BYTES_MAX, "/tmp/a\0b"])
def test_a_path_that_the_kernel_does_not_take_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="107 bytes"):
        source.unix(text)


@pytest.mark.parametrize(
    "address", [source.Unix("/tmp/x.sock"), source.Tcp("127.0.0.1", 9), source.Tcp("::1", 9)]
)
def test_an_address_survives_its_text(address: source.Address) -> None:
    assert source.from_text(str(address)) == address


def test_arguments_go_before_the_environment() -> None:
    environment = {SOCKET_VARIABLE: "/tmp/a", TCP_VARIABLE: "127.0.0.1:1"}
    assert source.choose("/tmp/b", None, environment) == source.Unix("/tmp/b")
    assert source.choose(None, "127.0.0.1:2", environment) == source.Tcp("127.0.0.1", 2)


def test_a_variable_that_is_empty_is_not_set() -> None:
    assert source.choose(
        None, None, {SOCKET_VARIABLE: "", TCP_VARIABLE: "127.0.0.1:1"}
    ) == source.Tcp("127.0.0.1", 1)


@pytest.mark.parametrize(
    ("environment", "says"),
    [({}, "neither"), ({SOCKET_VARIABLE: "/tmp/a", TCP_VARIABLE: "127.0.0.1:1"}, "both")],
)
def test_none_and_two_are_refused(environment: dict[str, str], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        source.choose(None, None, environment)


def test_an_address_behind_the_command_is_not_of_the_command() -> None:
    assert source.split_command(("make", "{id}", "--tcp-socket", "127.0.0.1:1")) == (
        ("make", "{id}"),
        "127.0.0.1:1",
    )
    assert source.split_command(("make", "--tcp-socket", "x", "y")) == (
        ("make", "--tcp-socket", "x", "y"),
        None,
    )
