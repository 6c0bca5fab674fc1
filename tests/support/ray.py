"""A Ray cluster on this machine: its head and its nodes are hosts of ``hosts``.

Each has its own network, processes, host name, boot id and HOME. Their packets to each other go
through this machine.

``scripts/setup-ray`` installs Ray; without it tests fail rather than skip.
"""

from __future__ import annotations

import functools
import os
import signal
import subprocess
from ipaddress import IPv4Address
from pathlib import Path

from tests.support.hosts import Host, Hosts
from tests.support.processes import command, send

VERSION = "2.60.0"
CPUS = 8
"""Claimed by each node, so that as many attempts fit. The head has none."""
START_SECONDS = 60.0
HEAD = "head"
OWN = ("/ray/", "ray::", "ray.util.client")
"""What the command lines of Ray's own processes have."""
_COMMON = ("--object-store-memory=80000000", "--disable-usage-stats")
_HEAD = ("--head", "--port=6379", "--num-cpus=0", "--include-dashboard=false")


class Cluster(Hosts):
    """A head and nodes ``n1`` to ``nCOUNT``, within a ``with`` block.

    ``token``: what every connection must bring, also that of the test; "" if anybody may connect.
    """

    def __init__(self, folder: Path, count: int = 2, *, token: str = "") -> None:
        super().__init__(folder, count)
        self._names = [HEAD, *self._names]
        self._token = token

    def _begin(self) -> None:
        folder = need_ray()
        for name in self._names:
            host = self.add(name, sees=[folder, *_base(folder)])
            if self._token:
                (host.home / ".ray").mkdir()
                (host.home / ".ray/auth_token").write_text(self._token)
            self._route(host)
        for name in self._names:
            self._start(name)

    @property
    def address(self) -> str:
        """Where clients connect."""
        return f"ray://{self[HEAD].address}:10001"

    # --- what a test does to it -------------------------------------------------------------------

    def kill_head(self) -> None:
        """Kill the machine of the head, as by a power cut."""
        self[HEAD].kill()

    def kill_raylet(self, name: str) -> None:
        """Kill Ray's daemon on a node; the daemon's workers end by themselves."""
        send(self.pids(name, "/raylet"), signal.SIGKILL)

    def renew(self, *names: str) -> None:
        """End all that is Ray's, on these machines or on all, and start it again."""
        names = names or tuple(self._names)
        for name in names:
            if self[name].pids():
                send(self.pids(name, *OWN), signal.SIGKILL)
            else:
                self[name].start()
                self._route(self[name])
        for name in names:
            self._start(name)

    def pids(self, name: str, *parts: str) -> list[int]:
        """Return the processes of a node whose command line has any of these texts."""
        found = {pid: command(pid) for pid in self[name].pids()}
        return [pid for pid, text in found.items() if any(part in text for part in parts)]

    # --- how it is made ---------------------------------------------------------------------------

    def _route(self, host: Host) -> None:
        """Have this machine pass on the packets of a host, whose devices are new at each boot."""
        gateway = IPv4Address(host.address) - 1
        host.run("ip", "route", "add", "default", "via", str(gateway))
        found = subprocess.run(
            ["ip", "-o", "route", "get", host.address], capture_output=True, text=True, check=True
        )
        words = found.stdout.split()
        device = words[words.index("dev") + 1]
        Path(f"/proc/sys/net/ipv4/conf/{device}/forwarding").write_text("1")

    def _start(self, name: str) -> None:
        host = self[name]
        if name == HEAD:
            role = _HEAD
        else:
            role = (f"--address={self[HEAD].address}:6379", f"--num-cpus={CPUS}")
        mode = "token" if self._token else "disabled"
        program = (str(need_ray() / "bin/python"), "-m", "ray.scripts.scripts", "start")
        address = f"--node-ip-address={host.address}"
        words = (
            "env",
            f"RAY_AUTH_MODE={mode}",
            "GRPC_ENABLE_FORK_SUPPORT=0",
            *program,
            address,
            *_COMMON,
            *role,
        )
        # On a busy machine Ray takes a daemon of its own for lost after 30 s.
        if host.run(*words, seconds=START_SECONDS, check=False).returncode:
            send(self.pids(name, *OWN), signal.SIGKILL)
            host.run(*words, seconds=START_SECONDS)


def need_ray() -> Path:
    """Return the folder of Ray's Python environment; raise ``RuntimeError`` without it."""
    cache = os.environ.get("BW_CACHE") or str(Path.home() / ".cache/beads-workers")
    folder = Path(cache, f"ray-{VERSION}")
    if not (folder / "complete").exists():
        raise RuntimeError(f"{folder}: not found: run scripts/setup-ray")
    return folder


@functools.cache
def _base(folder: Path) -> list[Path]:
    """Return the folder of the Python that the environment was made of, if hosts lack it."""
    asked = [str(folder / "bin/python"), "-ISc", "import sys; print(sys.base_prefix)"]
    prefix = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()
    return [] if prefix == "/usr" else [Path(prefix)]
