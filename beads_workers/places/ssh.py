"""Hosts reached by OpenSSH: one line to the one host of a place. Whose host that is, ssh knows."""

from __future__ import annotations

from beads_workers.core.base.settings import PlaceSettings

OPTIONS = (
    *("-a", "-x", "-T", "-o", "BatchMode=yes", "-o", "ClearAllForwardings=yes"),
    *("-o", "ConnectTimeout=8", "-o", "ServerAliveInterval=5", "-o", "ServerAliveCountMax=2"),
)
"""No question is asked, nothing is forwarded, and a silent host is noticed."""


class Ssh:
    """``Engine`` of one host; it has room for as many attempts as the place has slots."""

    def __init__(self, place: PlaceSettings, remote: str) -> None:
        self._host = place.address or place.name
        self.waiting: dict[str, str] = {}
        self._remote = remote

    def known_hosts(self) -> list[str]:
        """Return the hosts to which lines are kept."""
        return [self._host]

    def argv(self, host: str) -> list[str]:
        """Return the command of the line; a host is never taken for an option."""
        return ["ssh", *OPTIONS, "--", host, self._remote]

    async def place(self, issue_id: str, nonce: str, base: str) -> str:
        """Return the host: the fleet has no more workers than it has slots."""
        return self._host

    async def drop(self, nonce: str) -> None:
        """Do nothing: room is counted by the fleet."""

    async def find(self, host: str, nonce: str) -> str:
        """Return the host: it has one name."""
        return host


ENGINE = Ssh
