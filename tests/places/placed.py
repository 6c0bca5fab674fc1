"""Attempts on nodes of a real cluster, and what an orchestrator has to reach them."""

from __future__ import annotations

import asyncio
import base64
import math
import secrets
import time
from pathlib import Path
from typing import Any, ClassVar, Self

from beads_workers.places.line import HostLine
from beads_workers.places.ray import Ray
from beads_workers.places.slurm import Slurm

BASE = "~/.cache/beads-workers/away/0123456789ab"

Json = dict[str, Any]


class ClusterHome:
    """An engine, and its lines to nodes: what an orchestrator has, until it is killed."""

    lease: ClassVar[float]
    """Of attempts."""
    patience: ClassVar[float]
    """Seconds within which a node is reached."""
    end_within: ClassVar[float] = math.inf
    """Seconds within which an attempt ends whose end is waited for."""

    def __init__(self, engine: Ray | Slurm) -> None:
        self.engine = engine
        self._lines: dict[str, HostLine] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await asyncio.gather(*(line.close() for line in self._lines.values()))

    def line(self, host: str) -> HostLine:
        if host not in self._lines:
            self._lines[host] = HostLine(self.engine.argv(host), BASE, (), lambda: None)
        return self._lines[host]

    async def ask(self, host: str, **word: Any) -> Json:
        """Return the answer of a node's relay or guard, once it is reached."""
        return await self.line(host).ask_patiently(word, self.patience)

    async def placed(self, nonce: str = "") -> Attempt:
        nonce = nonce or secrets.token_hex(16)
        return Attempt(self, nonce, await self.engine.place("bw-1", nonce, BASE))

    async def forget(self, attempt: Attempt) -> None:
        """Give up the room of an attempt that has ended, and let its files be removed."""
        raise NotImplementedError


class Attempt:
    """An attempt that was placed, with the words that home has for it."""

    def __init__(self, home: ClusterHome, nonce: str, host: str) -> None:
        self.home, self.nonce, self.host = home, nonce, host

    async def ask(self, **word: Any) -> Json:
        return await self.home.ask(self.host, nonce=self.nonce, **word)

    async def go(self, script: str, lease: float | None = None) -> Json:
        said = await self.home.ask(self.host, serve=["bw-1", self.nonce])
        lease = self.home.lease if lease is None else lease
        order = {"argv": ["/bin/bash", "-c", script], "env": {}, "lease": lease, "grace": 0.2}
        answer = await self.ask(go=order, clock=said["clock"])
        assert answer["begun"], answer
        return answer

    async def ended(self) -> Json:
        """Renew the lease until it has ended; return how."""
        said: Json = {}
        deadline = time.monotonic() + self.home.end_within
        while not said.get("ended"):
            said = await self.ask(**({"clock": said["clock"]} if said else {}))
            await asyncio.sleep(0.2)
        assert time.monotonic() < deadline, "it did not happen"
        ended: Json = said["ended"]
        return ended

    async def output(self) -> str:
        said = await self.ask(out=[0, 0])
        return base64.b64decode(said["out"][0]).decode()

    async def bye(self) -> None:
        await self.home.forget(self)


def count_lines(file: Path) -> int:
    """How many lines a task has written so far."""
    return len(file.read_text().splitlines()) if file.exists() else 0
