"""Worlds of ``tests.proof.machines`` whose hosts are nodes of a real Ray or Slurm cluster.

All nodes are one place. Each has room for two attempts, so that three are on both nodes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.proof.machines_rig import Reach
from tests.support import ray, slurm
from tests.support.hosts import Hosts, need_hosts

PLACE = "cluster"


class _Cluster(Reach):
    """A cluster that is one place; ``table``: its settings but the lease."""

    def __init__(self, hosts: Hosts, table: str) -> None:
        super().__init__(hosts)
        self._table = table

    def tables(self, lease: float) -> str:
        """Return what the project's settings say of the place."""
        return f'[places.{PLACE}]\nlease = "{lease:g}s"\n{self._table}'

    def on(self, words: Sequence[str]) -> Sequence[str]:
        """Return as many slots of the place."""
        slots = sum(int(word.rpartition(":")[2]) for word in words)
        return [f"{PLACE}:{slots}"] if words else []

    def place(self, host: str) -> str:
        """Return the one place."""
        return PLACE


class Ray(_Cluster):
    """A Ray cluster."""

    programs: Mapping[str, str] = {"helper": "ray_helper.py", "connection": f"ray-{PLACE}"}

    def __init__(self, cluster: ray.Cluster) -> None:
        python = ray.need_ray() / "bin/python"
        table = f'engine = "ray"\naddress = "{cluster.address}"\npython = "{python}"\n'
        room = f"resources = {{ CPU = {ray.CPUS // 2} }}\ninsecure = true\n"
        super().__init__(cluster, table + room)
        self._cluster = cluster

    def is_daemon(self, words: str) -> bool:
        """Return whether it is a process of sshd or Ray."""
        return super().is_daemon(words) or any(each in words for each in ray.OWN)

    def boot(self, host: str) -> None:
        """Start a node that was killed, and its raylet."""
        self._cluster.renew(host)

    def parts(self, name: str, host: str) -> list[int]:
        """Return the raylet of a node, or all processes of the head."""
        if name == "raylet":
            return self._cluster.pids(host, "/raylet/raylet")
        return self._cluster.pids(ray.HEAD, *ray.OWN)

    def repair(self, name: str, host: str) -> None:
        """Start a raylet again; instead of a head, start a new cluster."""
        if name == "raylet":
            self._cluster.renew(host)
        elif name == "head":
            self._cluster.renew()


class Slurm(_Cluster):
    """A Slurm cluster."""

    programs: Mapping[str, str] = {"srun": "srun"}

    def __init__(self, cluster: slurm.Cluster) -> None:
        room = f"resources = {{ cpus-per-task = {slurm.CPUS // 2} }}\n"
        super().__init__(cluster, f'engine = "slurm"\n{room}')
        self._cluster = cluster
        self.environment = dict(cluster.env)

    def is_daemon(self, words: str) -> bool:
        """Return whether it is a process of sshd or Slurm."""
        return super().is_daemon(words) or words.startswith(("slurmd", "slurmstepd"))

    def boot(self, host: str) -> None:
        """Start a node that was killed, and its slurmd."""
        self._cluster.start_node(host)

    def parts(self, name: str, host: str) -> list[int]:
        """Return the daemon of a node, or the controller."""
        if name == "slurmd":
            return self._cluster.slurmd(host)
        controller = self._cluster.controller
        return [] if controller is None else [controller.pid]

    def repair(self, name: str, host: str) -> None:
        """Start a daemon again."""
        if name == "slurmd":
            self._cluster.start_slurmd(host)
        elif name == "slurmctld":
            self._cluster.restart_controller()


@contextmanager
def by_ray(folder: Path, count: int) -> Iterator[Reach]:
    """Make a Ray cluster of so many nodes."""
    need_hosts()
    with ray.Cluster(folder, count) as cluster:
        yield Ray(cluster)


@contextmanager
def by_slurm(folder: Path, count: int) -> Iterator[Reach]:
    """Make a Slurm cluster of so many nodes."""
    with slurm.Cluster(folder, count) as cluster:
        yield Slurm(cluster)
