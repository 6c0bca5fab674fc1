"""A program between home and a Ray cluster, run by the cluster's Python: ``ADDRESS SOCKET``.

One file: the standard library and ray, never the package. It may be killed at any time. If
RAY_AUTH_MODE is ``token``, it refuses a cluster that answers without one, and exits with 2.

A line on stdin is about rooms: ``{"fleet", "reserve": {nonce: resources}, "release": [nonce]}``.
It is answered by the fleet's rooms, ``{nonce: {"host": name}}`` or ``{nonce: {"why": reason}}``.

A connection to SOCKET names a host in its first line. All that follows goes to a relay there, and
what the relay says comes back. If that ends, a NUL and the reason come.
"""

# Neither ray nor grpc is there when this is checked.
# mypy: disable-error-code="import-not-found, import-untyped"

from __future__ import annotations

import itertools
import json
import os
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar

import grpc
import ray
from ray.exceptions import RayError
from ray.util import get_placement_group, placement_group_table, remove_placement_group
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

CONNECT_SECONDS = 15.0
"""Time in which a cluster must have answered."""
PLACE_SECONDS = 0.1
"""Time in which Ray makes a room for which there are resources."""
START_SECONDS = 20.0
"""Time in which an actor must have started."""
SILENT_SECONDS = 4.0
"""Silence after which an actor does not work; home gives up a silent line after 5 s."""
CALLS_MAX = 100
"""Calls of an actor at once: two for each connection."""
PIECE_MAX = 1 << 20
LOADER = "import os,sys;os.fork()and os._exit(0);os.setsid();exec(sys.stdin.buffer.readline())"
"""Runs what home sends, in a process that is no child of its caller, nor in its session."""
OPEN = "anybody on its network may use this Ray cluster: start it with RAY_AUTH_MODE=token, "
OPEN += "or set insecure = true"

Json = dict[str, Any]


class Feeder:
    """An actor that feeds relays of its node, one for each connection; they end with it.

    A relay is a process of its own, because Ray kills the children of an actor that ends, and
    guards are children of a relay.
    """

    def __init__(self) -> None:
        self.relays: dict[int, Any] = {}

    def begin(self, number: int) -> None:
        """Start a relay."""
        pipe, command = subprocess.PIPE, [sys.executable, "-IS", "-c", LOADER]
        relay = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe)
        relay.wait()  # It has forked.
        self.relays[number] = relay

    def write(self, number: int, data: bytes) -> None:
        """Pass on what home says; without data, let the relay end. May raise ``OSError``."""
        relay = self.relays[number]
        relay.stdin.write(data)
        relay.stdin.flush() if data else relay.stdin.close()

    def read(self, number: int) -> bytes:
        """Return what a relay says next; once it has ended, a NUL and its last words."""
        relay = self.relays[number]
        said = os.read(relay.stdout.fileno(), PIECE_MAX)
        return said or b"\0" + (relay.stderr.read()[-300:] or b"its relay has ended")


ACTOR: Any = ray.remote(num_cpus=0, max_restarts=0, max_task_retries=0, max_concurrency=CALLS_MAX)(
    Feeder
)


class HostConnection:
    """A connection of home to one host; ``serve`` returns when it has ended."""

    feeders: ClassVar[dict[str, Any]] = {}
    """Actors that may still start, by host: another connection need not wait as long."""
    lock = threading.Lock()
    numbers = itertools.count()

    def __init__(self, peer: socket.socket) -> None:
        self.peer, self.number = peer, next(self.numbers)
        self.heard = 0.0
        """``time.monotonic()`` of the last answer."""

    def serve(self) -> None:
        """Carry what home says to a relay, and back."""
        with self.peer, self.peer.makefile("rb") as file, suppress(BrokenPipeError):
            host, said = file.readline().decode().strip(), b""
            try:
                feeder = self.feeder(host)
                ray.get(feeder.begin.remote(self.number), timeout=START_SECONDS)
                self.heard = time.monotonic()
                threading.Thread(target=self.feed, args=(file, host), daemon=True).start()
                while b"\0" not in said:
                    said = ray.get(feeder.read.remote(self.number))
                    self.heard = time.monotonic()
                    self.peer.sendall(said)
            except (RayError, LookupError) as error:
                self.give_up(host)
                self.peer.sendall(b"\0" + reason(error).encode())

    def feeder(self, host: str) -> Any:
        """Return the actor on a host; raises ``LookupError`` without such a node."""
        with self.lock:
            if host not in self.feeders:
                node = nodes().get(host)
                if node is None:
                    raise LookupError(f"the cluster has no node {host}")
                there = NodeAffinitySchedulingStrategy(node, soft=False)
                self.feeders[host] = ACTOR.options(scheduling_strategy=there).remote()
            return self.feeders[host]

    def feed(self, file: Any, host: str) -> None:
        """Pass on what home says until it gives up the line; end an actor that is silent."""
        feeder = self.feeder(host)
        with suppress(RayError):
            while data := file.read1(PIECE_MAX):
                ray.get(feeder.write.remote(self.number, data))
            if time.monotonic() > self.heard + SILENT_SECONDS:
                self.give_up(host)
            else:
                ray.get(feeder.write.remote(self.number, b""))

    def give_up(self, host: str) -> None:
        """End the actor on a host; the next connection begins another one."""
        with self.lock:
            if (feeder := self.feeders.pop(host, None)) is not None:
                ray.kill(feeder)


def answer(fleet: str, reserve: dict[str, Json], release: list[str]) -> Json:
    """Return all rooms of a fleet, after some were asked for, and others given up."""
    known = rooms("")
    for nonce in known.keys() & set(release):
        remove_placement_group(get_placement_group(known[nonce]["name"]))
    for nonce in reserve.keys() - known.keys():
        name = f"bw.{fleet}.{nonce}"
        ray.util.placement_group([reserve[nonce]], lifetime="detached", name=name)
    time.sleep(PLACE_SECONDS)
    names = {node: name for name, node in nodes().items()}
    found: Json = {}
    for nonce, room in rooms(fleet).items():
        host = names.get(room["bundles_to_node_id"][0])
        if room["state"] == "CREATED" and host is not None:
            found[nonce] = {"host": host}
        else:
            asked = ", ".join(f"{name} {amount:g}" for name, amount in room["bundles"][0].items())
            is_too_large = room["stats"]["scheduling_state"] == "INFEASIBLE"
            verb = "is large enough for" if is_too_large else "has free"
            found[nonce] = {"why": f"no node {verb} {asked}"}
    return found


def rooms(fleet: str) -> Json:
    """Return what Ray knows of a fleet's rooms, by nonce; "" means all fleets."""
    found = {}
    for room in placement_group_table().values():
        ours, _, name = room["name"].partition(".")
        owner, _, nonce = name.partition(".")
        if ours == "bw" and room["state"] != "REMOVED" and fleet in ("", owner):
            found[nonce] = room
    return found


def nodes() -> dict[str, str]:
    """Return the ids of the cluster's nodes, by the names of their machines."""
    return {
        f"{node['NodeManagerHostname']}/{node['NodeManagerAddress']}": node["NodeID"]
        for node in ray.nodes()
        if node["Alive"]
    }


def connect(address: str) -> None:
    """Connect to the cluster; raises ``PermissionError`` if anybody may connect."""
    needs_token = os.environ.get("RAY_AUTH_MODE") == "token"
    _, is_client, port = address.rpartition("ray://")
    if needs_token and is_client:
        refuse_open(port, "/ray.rpc.RayletDriver/ClusterInfo")
    # Ray tries for a minute, and tells no reason; another try may succeed at once.
    late = TimeoutError(f"{address} does not answer, or refuses the token")
    timer = threading.Timer(CONNECT_SECONDS, leave, [late])
    timer.start()
    ray.init(address, namespace="beads-workers", log_to_driver=False, logging_level="CRITICAL")
    timer.cancel()
    if needs_token and not is_client:
        gcs = ray.get_runtime_context().gcs_address
        refuse_open(gcs, "/ray.rpc.NodeInfoGcsService/CheckAlive")


def refuse_open(port: str, method: str) -> None:
    """Raise ``PermissionError`` if the cluster answers without a token."""
    try:
        with grpc.insecure_channel(port) as channel:
            channel.unary_unary(method)(b"", timeout=CONNECT_SECONDS)
    except grpc.RpcError as error:
        if error.code() == grpc.StatusCode.UNAUTHENTICATED:
            return
        if error.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED):
            raise ConnectionError(f"{port} does not answer") from None
    raise PermissionError(OPEN)


def reason(error: BaseException) -> str:
    """Return why something failed, in one line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__


def leave(error: BaseException) -> None:
    """End the process, whose threads may hang in Ray."""
    os.write(STDERR, reason(error).encode())
    os._exit(2 if isinstance(error, PermissionError) else 1)


def listen(listener: socket.socket) -> None:
    """Serve connections, each in a thread."""
    while True:
        connection = HostConnection(listener.accept()[0])
        threading.Thread(target=connection.serve, daemon=True).start()


def main(address: str, path: str) -> None:
    """Serve until stdin ends or the cluster is gone."""
    try:
        connect(address)
        with suppress(FileNotFoundError):
            Path(path).unlink()
        os.umask(0o077)
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(path)
        listener.listen(100)
        threading.Thread(target=listen, args=(listener,), daemon=True).start()
        for line in sys.stdin:
            said = answer(**json.loads(line))
            os.write(STDOUT, json.dumps(said).encode() + b"\n")
    except (RayError, OSError, RuntimeError) as error:
        leave(error)
    os._exit(0)


if __name__ == "__main__":
    STDOUT, STDERR = os.dup(1), os.dup(2)
    for number in (1, 2):
        os.dup2(os.open(os.devnull, os.O_WRONLY), number)  # What Ray prints is no answer.
    main(*sys.argv[1:])
