"""A cluster of Redis: all keys lie on one node, because they share a hash tag."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from beads_workers.integrations.hero.client import HeroClient
from beads_workers.integrations.hero.connection import Address, CannotReach
from beads_workers.integrations.hero.wire import CLUSTER, DEFAULT, HeroJob, JobStatus
from tests.support.fleet import until
from tests.support.peers import Redis

SLOTS = 16384
JOB = HeroJob(worker_id="w1", script="x")


@pytest.fixture
def nodes() -> Iterator[tuple[Redis, Redis]]:
    """Two: the second one has the keys."""
    folder = Path(tempfile.mkdtemp(prefix="bw-redis-"))
    made = []
    for name in "ab":
        (folder / name).mkdir()
        made.append(Redis(folder / name, node=True))
    other, ours = made
    slot = int(other.command("cluster", "keyslot", "{hero}"))
    other.command("cluster", "addslotsrange", "0", str(slot - 1), str(slot + 1), str(SLOTS - 1))
    ours.command("cluster", "addslots", str(slot))
    bus = ours.command("config", "get", "cluster-port").split()[1]
    other.command("cluster", "meet", "127.0.0.1", str(ours.port), bus)
    for node in made:
        until(lambda node=node: "cluster_state:ok" in node.command("cluster", "info"))  # type: ignore[misc]
    yield other, ours
    for node in made:
        node.close()
    shutil.rmtree(folder, ignore_errors=True)


def test_one_node_has_all_that_a_client_needs(nodes: tuple[Redis, Redis]) -> None:
    other, ours = nodes
    with HeroClient(Address(port=ours.port), CLUSTER, 0.0) as client:
        first, second = client.submit([JOB, JOB])
        assert client.depths("w1") == (2, 0)
        assert {row.id for row in client.rows()} == {first, second}
        client.stop(first)
        ours.command("hset", f"{{hero}}:job:{second}", "status", "finished", "output", "42")
        assert client.wait(second, 60.0).status is JobStatus.FINISHED
    for port, keys in ((other.port, CLUSTER), (ours.port, DEFAULT)):
        with (
            HeroClient(Address(port=port), keys, 0.0) as client,
            pytest.raises(CannotReach, match="is not the node with these keys") as raised,
        ):
            client.submit([JOB] * 20)
        assert "--naming cluster" in raised.value.hint
