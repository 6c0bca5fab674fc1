"""Reaching a real Redis, or saying why not."""

from __future__ import annotations

import socket
import subprocess
from pathlib import Path

import pytest

from beads_workers.integrations.hero.connection import Address, CannotReach, connect, patiently
from tests.support.peers import Redis


def at(redis: Redis, **more: str) -> Address:
    return Address(port=redis.port, **more)  # type: ignore[arg-type]


def ping(address: Address, patience_seconds: float = 0.0) -> object:
    client = connect(address)
    try:
        return patiently(client.ping, address, patience_seconds)
    finally:
        client.close()


def test_a_redis_is_reached(redis: Redis) -> None:
    assert ping(at(redis)) is True


def test_a_password_opens_it_and_a_wrong_one_is_told_at_once(redis: Redis, tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.touch(0o600)
    address = at(redis, password_file=str(file))
    redis.command("config", "set", "requirepass", "hunter2")
    file.write_text("hunter2\n")
    assert ping(address) is True
    file.write_text("wrong-one\n")
    with pytest.raises(CannotReach, match="does not let us in") as raised:
        ping(address, patience_seconds=60.0)
    assert raised.value.lasting
    assert "wrong-one" not in str(raised.value)
    file.unlink()
    with pytest.raises(CannotReach, match="no password"):
        ping(address)


def test_a_user_that_may_not_is_told_so(redis: Redis, tmp_path: Path) -> None:
    redis.command("acl", "setuser", "ann", "on", ">hunter2", "-@all", "+get", "~x")
    file = tmp_path / "password"
    file.touch(0o600)
    file.write_text("hunter2")
    with pytest.raises(CannotReach, match="does not allow it") as raised:
        ping(at(redis, user="ann", password_file=str(file)), 60.0)
    assert raised.value.lasting


def test_a_redis_that_is_not_there_is_tried_again_until_the_patience_is_over(redis: Redis) -> None:
    address = at(redis)
    redis.close()
    with pytest.raises(CannotReach, match="does not answer"):
        ping(address, patience_seconds=0.3)


def test_a_connection_that_was_cut_is_made_anew(redis: Redis) -> None:
    address = at(redis)
    client = connect(address)
    assert patiently(client.ping, address, 0.0) is True
    redis.command("client", "kill", "type", "normal")
    assert patiently(client.ping, address, 30.0) is True
    client.close()


def test_tls_is_spoken_and_only_to_the_one_that_our_authority_has_signed(
    redis: Redis, tmp_path: Path
) -> None:
    port, ours = offer_tls(redis, tmp_path / "ours"), str(tmp_path / "ours.pem")
    _, other = certificate(tmp_path / "other"), str(tmp_path / "other.pem")
    assert ping(Address("localhost", port, tls=True, ca=ours)) is True
    with pytest.raises(CannotReach, match="cannot be trusted"):
        ping(Address("localhost", port, tls=True, ca=other))
    with pytest.raises(CannotReach, match="cannot be trusted"):
        ping(Address("127.0.0.1", port, tls=True, ca=ours))
    with pytest.raises(CannotReach):
        ping(Address("localhost", port))


def certificate(name: Path) -> tuple[str, str]:
    """A certificate that has signed itself, for localhost, and its key."""
    files = str(name.with_suffix(".pem")), str(name.with_suffix(".key"))
    words = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2"
    names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
    subprocess.run(
        ["openssl", *words.split(), *names, "-out", files[0], "-keyout", files[1]],
        check=True,
        capture_output=True,
    )
    return files


def offer_tls(redis: Redis, name: Path) -> int:
    """Have the Redis listen with TLS as well; the port."""
    file, key = certificate(name)
    options = ["tls-cert-file", file, "tls-key-file", key, "tls-ca-cert-file", file]
    redis.command("config", "set", *options, "tls-auth-clients", "no")
    while True:
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            port = int(listener.getsockname()[1])
        if redis.command("config", "set", "tls-port", str(port)).strip() == "OK":
            return port
