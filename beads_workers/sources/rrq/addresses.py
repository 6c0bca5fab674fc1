"""Where an executor is to listen: told by its environment, or in its arguments."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from ipaddress import ip_address

from beads_workers.core.values import value
from beads_workers.protocols.rrq import SOCKET_VARIABLE, TCP_OPTION, TCP_VARIABLE

PATH_BYTES_MAX = 107
"""The kernel's limit for the path of a Unix socket, without the closing zero."""


@value
class Unix:
    """A socket at this absolute path."""

    path: str

    def __str__(self) -> str:
        """For people, and for ``from_text``."""
        return f"unix:{self.path}"


@value
class Tcp:
    """A loopback address, in figures, and a port."""

    host: str
    port: int

    def __str__(self) -> str:
        """For people, and for ``from_text``."""
        return (
            f"tcp:[{self.host}]:{self.port}" if ":" in self.host else f"tcp:{self.host}:{self.port}"
        )


Address = Unix | Tcp


def choose(socket: str | None, tcp_socket: str | None, environment: Mapping[str, str]) -> Address:
    """What the arguments say, or else the environment. Raises ``ValueError``: one line for people.

    A variable that is set and empty is not set, as the real executors have it.
    """
    if not (socket or tcp_socket):
        socket, tcp_socket = environment.get(SOCKET_VARIABLE), environment.get(TCP_VARIABLE)
    if socket and tcp_socket:
        raise ValueError(
            f"both {SOCKET_VARIABLE} and {TCP_VARIABLE} are set: one address is enough"
        )
    if socket:
        return unix(socket)
    if tcp_socket:
        return tcp(tcp_socket)
    raise ValueError(f"no address: neither {SOCKET_VARIABLE} nor {TCP_VARIABLE} is set")


def unix(text: str) -> Unix:
    """A path that the kernel takes; raises ``ValueError``."""
    path = os.path.abspath(text)  # noqa: PTH100 - no file is looked at
    if "\0" in path or len(os.fsencode(path)) > PATH_BYTES_MAX:
        raise ValueError(f"the path of a socket has {PATH_BYTES_MAX} bytes at most: {text[:200]!r}")
    return Unix(path)


def tcp(text: str) -> Tcp:
    """``host:port`` or ``[host]:port`` on the loopback interface; raises ``ValueError``."""
    host, colon, port = text.strip().rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    try:
        address = ip_address("127.0.0.1" if host == "localhost" else host)
    except ValueError:
        raise ValueError(f"{text[:80]!r} is no host:port, like 127.0.0.1:9000") from None
    if not address.is_loopback:
        raise ValueError(f"{host} is not this machine alone: an executor listens on 127.0.0.1")
    if not (colon and port.isascii() and port.isdecimal() and 0 < int(port[:6]) < 65536):
        raise ValueError(f"{port[:20]!r} is no port from 1 to 65535")
    return Tcp(str(address), int(port))


def from_text(text: str) -> Address:
    """What ``str`` made of an address."""
    kind, _, rest = text.partition(":")
    return Unix(rest) if kind == "unix" else tcp(rest)


def split_command(words: Sequence[str]) -> tuple[tuple[str, ...], str | None]:
    """A command, and the address that rrq 0.11 has put behind it, if any."""
    if len(words) >= 2 and words[-2] == TCP_OPTION:
        return tuple(words[:-2]), words[-1]
    return tuple(words), None
