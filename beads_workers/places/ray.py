"""Hosts that a Ray cluster chooses: Ray has the queue and the resources, and starts no attempt.

An attempt has a *room*: a placement group, which Ray makes once a node has the resources. It needs
no process, and stays if home is gone. All nodes are reached through one process at home,
``ray_helper``, which runs on the cluster's Python: Ray lets no other version in.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from beads_workers.core.base.settings import PlaceSettings
from beads_workers.places.line import LINE_BYTES_MAX, Unreached

PAUSE_SECONDS = 1.0
"""Time between two questions whether there is room, and before the helper is started again."""
IDLE_SECONDS = 5.0
"""Time between two questions if no attempt waits: whether the helper lives."""
ANSWER_SECONDS = 30.0
"""Silence after which the helper is given up."""
REFUSED = 2
"""Exit code of a helper that must not use the cluster."""
DROP_SECONDS = 3.0
"""Time that ``drop`` waits for the cluster."""
SWEEP_SECONDS = 120.0
"""Time in which an orchestrator has looked for the attempts of earlier runs."""
NO_PYTHON = "set python to the cluster's Python, such as /opt/ray/bin/python"
# Connects a line's stdin and stdout to the helper, which sends a NUL before the reason of an end.
CONNECT = """
import os, socket, sys, threading
helper = socket.socket(socket.AF_UNIX)
try:
    helper.connect(sys.argv[1])
    helper.sendall(sys.argv[2].encode() + b"\\n")
except OSError:
    sys.exit("the cluster is not connected")
def answer():
    while data := helper.recv(1 << 18):
        said, _, why = data.partition(b"\\0")
        os.write(1, said), os.write(2, why)
    os._exit(1)
threading.Thread(target=answer, daemon=True).start()
while data := os.read(0, 1 << 18):
    helper.sendall(data)
"""

Json = dict[str, Any]


class Ray:
    """``Engine`` of a cluster. Its helper has a socket in the working directory."""

    def __init__(self, place: PlaceSettings, remote: str) -> None:
        self._place = place
        self.waiting: dict[str, str] = {}
        """Why attempts wait for a room, by nonce."""
        self._hosts: dict[str, asyncio.Future[str]] = {}
        """Where attempts have their rooms, by nonce."""
        self._unwanted: dict[str, asyncio.Future[None]] = {}
        """Set for an attempt, by nonce, once its room is given up."""
        self._fleet = ""
        """Begins the names of rooms, once an attempt is placed."""
        self._began = time.monotonic()
        self._changed = asyncio.Event()
        self._helping: asyncio.Task[None] | None = None

    def known_hosts(self) -> list[str]:
        """Return none: Ray knows them."""
        return []

    def argv(self, host: str) -> list[str]:
        """Return the command of a line: it leads through the helper."""
        self._wake()
        return [sys.executable, "-ISc", CONNECT, f"ray-{self._place.name}", host]

    async def place(self, issue_id: str, nonce: str, base: str) -> str:
        """Return the host once there is room, hours later if need be; ``drop`` cancels it.

        Raises ``Unreached`` if the cluster must not be used.
        """
        if not self._place.python:
            raise Unreached(NO_PYTHON)
        self._fleet = base.rpartition("/")[2]
        host: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._hosts[nonce] = host
        self.waiting[nonce] = "the cluster has not answered yet"
        self._wake()
        return await host

    async def drop(self, nonce: str) -> None:
        """Have the room given up; if the cluster does not answer now, that follows later."""
        if nonce in self._hosts:
            self._hosts.pop(nonce).cancel()
        self.waiting.pop(nonce, None)
        released = self._unwant(nonce)
        self._wake()
        await asyncio.wait([released], timeout=DROP_SECONDS)

    async def find(self, host: str, nonce: str) -> str:
        """Return the host: its name has its address, by which a new cluster knows it, too."""
        self._hosts.setdefault(nonce, asyncio.get_running_loop().create_future())
        self._wake()
        return host

    def _unwant(self, nonce: str) -> asyncio.Future[None]:
        future = asyncio.get_running_loop().create_future()
        return self._unwanted.setdefault(nonce, future)

    def _wake(self) -> None:
        self._changed.set()
        if self._helping is None and self._place.python:
            self._helping = asyncio.create_task(self._help())

    async def _help(self) -> None:
        """Keep a helper running; say why if it ends."""
        place, pipe = self._place, asyncio.subprocess.PIPE
        helper = str(Path(__file__).with_name("ray_helper.py"))
        command = [place.python, "-I", helper, place.address or "auto", f"ray-{place.name}"]
        if not place.insecure:
            command = ["env", "RAY_AUTH_MODE=token", *command]  # Ray reads it when it is imported.
        while True:
            process = await asyncio.create_subprocess_exec(
                *command, stdin=pipe, stdout=pipe, stderr=pipe, limit=LINE_BYTES_MAX
            )
            try:
                await self._converse(process)
            except (OSError, ValueError, TimeoutError):
                pass
            finally:
                with suppress(ProcessLookupError):
                    process.kill()
                _, said = await process.communicate()
            why = said.decode("utf-8", "replace").strip() or "the connection to the cluster broke"
            for nonce in [*self.waiting]:
                self.waiting[nonce] = why
                if process.returncode == REFUSED:
                    del self.waiting[nonce]
                    self._hosts[nonce].set_exception(Unreached(why))
            await asyncio.sleep(PAUSE_SECONDS)

    async def _converse(self, process: asyncio.subprocess.Process) -> None:
        """Speak of rooms while an attempt waits for one, or one is to be given up."""
        assert process.stdin is not None and process.stdout is not None
        while True:
            released = [*self._unwanted]
            reserve = {n: dict(self._place.resources) or {"CPU": 1} for n in self.waiting}
            word = {"fleet": self._fleet, "reserve": reserve, "release": released}
            process.stdin.write(json.dumps(word).encode() + b"\n")
            rooms = json.loads(await asyncio.wait_for(process.stdout.readline(), ANSWER_SECONDS))
            for nonce in released:
                self._unwanted.pop(nonce).set_result(None)
            for nonce in self.waiting.keys() & rooms.keys():
                self.waiting[nonce] = rooms[nonce].get("why", "")
                if "host" in rooms[nonce]:
                    del self.waiting[nonce]
                    self._hosts[nonce].set_result(rooms[nonce]["host"])
            if time.monotonic() > self._began + SWEEP_SECONDS:
                for nonce in rooms.keys() - self._hosts.keys() - set(released):
                    self._unwant(nonce)  # Nobody looked for it.
            self._changed.clear()
            with suppress(TimeoutError):
                is_busy = self.waiting or self._unwanted
                seconds = PAUSE_SECONDS if is_busy else IDLE_SECONDS
                await asyncio.wait_for(self._changed.wait(), seconds)


ENGINE = Ray
