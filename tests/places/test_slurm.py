"""Attempts on nodes of a real Slurm cluster, whose parts are killed, stopped and cut off."""

from __future__ import annotations

import asyncio
import base64
import functools
import json
import os
import secrets
import signal
import sys
from collections.abc import Iterator, Mapping
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest

from beads_workers.core.base.plain import to_plain
from beads_workers.core.base.settings import PlaceSettings
from beads_workers.places.line import REMOTE, Unreached
from beads_workers.places.slurm import FOLDER, Slurm
from beads_workers.runtime.places import LineSettings
from tests.places.placed import BASE, Attempt, ClusterHome, Json, count_lines
from tests.support import loops, processes
from tests.support.hosts import need_hosts
from tests.support.loops import in_loop
from tests.support.slurm import CPUS, Cluster

pytestmark = [pytest.mark.peers, pytest.mark.daily(4)]

PATIENCE_SECONDS = 40.0
LEASE = 60.0
COUNTED = "echo $$ >>~/begun; sleep 3; echo end"
"""Says how often it was begun."""


@pytest.fixture(autouse=True)
def _possible() -> None:
    need_hosts()


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """Two nodes; the test fails if any process of theirs, or of the controller, is left."""
    with Cluster(tmp_path) as made:
        for name, text in made.env.items():
            monkeypatch.setenv(name, text)
        yield made
        pids = [*made["n1"].pids(), *made["n2"].pids(), *made.pids()]
    assert [pid for pid in pids if processes.alive(pid)] == []


class Home(ClusterHome):
    """An engine of Slurm."""

    lease, patience, end_within = LEASE, PATIENCE_SECONDS, PATIENCE_SECONDS

    def __init__(self, resources: Mapping[str, float] | None = None, address: str = "") -> None:
        place = PlaceSettings("cluster", "slurm", 8, address=address, resources=resources or {})
        super().__init__(Slurm(place, REMOTE))

    async def forget(self, attempt: Attempt) -> None:
        await self.engine.drop(attempt.nonce)
        await attempt.ask(bye=True)


until = functools.partial(loops.until, seconds=PATIENCE_SECONDS)


def holders(cluster: Cluster, node: str) -> list[int]:
    """The outer processes and guards of a node, the older ones first."""
    return [p for p in cluster[node].pids() if "serve" in processes.words(p)]


def stepds(cluster: Cluster, node: str, kind: str) -> list[int]:
    """Slurm's processes on a node that hold scripts (``batch``), or steps (another word)."""
    named = {p: processes.command(p) for p in cluster[node].pids()}
    return [
        p
        for p, text in named.items()
        if "slurmstepd" in text and (".batch" in text) == (kind == "batch")
    ]


def jobs(cluster: Cluster) -> list[str]:
    """The jobs that run or wait."""
    said = cluster.call("squeue", "-h", "-t", "PENDING,RUNNING", "-o", "%j %T %R").splitlines()
    return sorted(said)


def begun(cluster: Cluster, node: str) -> int:
    """How often the attempt has begun on a node."""
    return count_lines(cluster[node].home / "begun")


# --- an attempt -----------------------------------------------------------------------------------


@in_loop
async def test_an_attempt_runs_in_a_job_which_lasts_until_its_files_are_home(
    cluster: Cluster,
) -> None:
    for node in ("n1", "n2"):
        (cluster[node].home / ".profile").write_text("echo welcome; export PATH=$PATH:/opt/own\n")
    issue_id, nonce = "bw-1 '\"$(id)\nEND OF GUARD é", secrets.token_hex(16)
    async with Home({"cpus-per-task": 1.0, "mem": 64}) as home:
        node = await home.engine.place(issue_id, nonce, BASE)
        attempt = Attempt(home, nonce, node)
        folder = f"/root/{BASE[2:]}/attempts/{nonce}"
        words = [processes.words(pid)[-4:] for pid in holders(cluster, node)]
        assert words == [["serve", folder, issue_id, nonce]] * 2
        said = await home.ask(node, hello={"programs": ["sh"]})
        assert said["hello"]["host"] == node and said["hello"]["home"] == "/root"

        await attempt.go('echo "$PATH $SLURM_JOB_ID$SLURM_CONF"; echo no >&2; exit 3')
        ended = await attempt.ended()
        assert (ended["exit"], ended["why"], ended["left"]) == (3, "it ended", 0)
        assert (await attempt.output()).strip().endswith(":/opt/own")
        assert len(jobs(cluster)) == 1
        await attempt.bye()
        await until(lambda: not jobs(cluster), seconds=5.0)
    assert not (cluster[node].home / BASE[2:] / "attempts" / nonce).exists()


@in_loop
async def test_long_lines_pass_both_ways(cluster: Cluster) -> None:
    async with Home() as home:
        attempt = await home.placed()
        data = os.urandom(200_000)
        names = [f"f{number}" for number in range(20)]
        piece = base64.b64encode(data).decode()
        await asyncio.gather(*(attempt.ask(put=name, at=0, data=piece) for name in names))
        said = await asyncio.gather(*(attempt.ask(get=name, at=0) for name in names))
        assert {each["data"] for each in said} == {piece}


@in_loop
async def test_a_line_goes_on_in_another_job_when_its_own_ends(cluster: Cluster) -> None:
    async with Home({"cpus-per-task": CPUS / 2}) as home:
        placed = await asyncio.gather(*(home.placed() for _ in range(4)))
        first, second = [each for each in placed if each.host == "n1"]
        for each in (first, second):
            await each.go(COUNTED)
        for each in (first, second):
            assert (await each.ended())["exit"] == 0
            await each.bye()
        await until(lambda: len(jobs(cluster)) == 2)


@in_loop
async def test_folders_lie_where_a_line_has_them() -> None:
    settings = LineSettings(PlaceSettings("c", "slurm", 1), "0123456789ab", "", "", "", 0)
    assert fnmatch(f"{settings.base}/attempts/ff", FOLDER.format("ff"))


# --- what is killed -------------------------------------------------------------------------------


@in_loop
async def test_an_attempt_goes_on_while_slurms_daemons_are_killed(cluster: Cluster) -> None:
    async with Home() as home:
        attempt = await home.placed()
        await attempt.go(COUNTED.replace("3", "15"))
        await asyncio.to_thread(cluster.wait_until_saved)
        for pid in cluster.slurmd(attempt.host):
            os.kill(pid, signal.SIGKILL)
        cluster.kill_controller()
        assert not (await attempt.ask())["ended"]
        cluster.start_controller()
        cluster.start_slurmd(attempt.host)
        assert (await attempt.ended())["exit"] == 0
        assert (await attempt.output()).split() == ["end"]
        await attempt.bye()
        await until(lambda: not jobs(cluster))
    assert begun(cluster, attempt.host) == 1


@pytest.mark.parametrize("which", ["outer", "guard", "batch", "line"])
@in_loop
async def test_an_attempt_goes_on_or_is_over_whatever_of_its_job_is_killed(
    cluster: Cluster, which: str
) -> None:
    async with Home() as home:
        attempt = await home.placed()
        await attempt.go(COUNTED)
        outer, guard = holders(cluster, attempt.host)
        killed = {"outer": [outer], "guard": [guard]}.get(which) or stepds(
            cluster, attempt.host, which
        )
        assert killed
        for pid in killed:
            os.kill(pid, signal.SIGKILL)
        ended = await attempt.ended()
        if which == "line":
            assert ended["exit"] == 0
        elif which != "batch" or ended["exit"] is None:
            # Slurm may leave the processes of a script alone that nobody waits for any more.
            assert "killed" in ended["why"] and ended["left"] == 0
        await attempt.bye()
    assert begun(cluster, attempt.host) == 1


@in_loop
async def test_the_end_of_a_cancelled_job_is_known_and_a_second_start_begins_nothing(
    cluster: Cluster,
) -> None:
    async with Home() as home:
        attempt = await home.placed()
        await attempt.go(f"{COUNTED}; sleep 60")
        await until(lambda: begun(cluster, attempt.host))
        cluster.call("scancel", f"--name=bw.{attempt.nonce}")
        ended = await attempt.ended()
        assert "killed" in ended["why"] and ended["left"] == 0
        again = await home.ask(attempt.host, serve=["bw-1", attempt.nonce])
        assert again["begun"] and again["ended"] == ended
        await attempt.bye()
        await until(lambda: not jobs(cluster))
    assert begun(cluster, attempt.host) == 1


@in_loop
async def test_the_end_of_an_attempt_on_a_restarted_node_is_known(cluster: Cluster) -> None:
    async with Home() as home:
        attempt = await home.placed()
        boot = (await attempt.go(f"{COUNTED}; sleep 60"))["boot"]
        await until(lambda: begun(cluster, attempt.host))
        cluster.kill_node(attempt.host)
        cluster.start_node(attempt.host)
        ended = await attempt.ended()
        assert ended["why"] == "the host was restarted" and ended["boot"] != boot
        await attempt.bye()
    assert begun(cluster, attempt.host) == 1


# --- what is stopped or cut off -------------------------------------------------------------------


@in_loop
async def test_a_node_that_is_cut_off_ends_the_attempt_when_its_lease_is_over(
    cluster: Cluster,
) -> None:
    async with Home() as home:
        attempt = await home.placed()
        await attempt.go("sleep 60", lease=2.0)
        cluster[attempt.host].cut()
        await until(lambda: not holders(cluster, attempt.host))
        assert len(jobs(cluster)) == 1, "Slurm has not noticed, and was not asked"
        cluster[attempt.host].mend()
        assert (await attempt.ended())["why"] == "the lease was over"
        await attempt.bye()


@in_loop
async def test_a_node_that_slurm_takes_for_lost_goes_on_and_is_read_once_it_is_back(
    cluster: Cluster,
) -> None:
    async with Home() as home:
        attempt = await home.placed()
        await attempt.go(COUNTED.replace("3", "300"), lease=300.0)
        cluster[attempt.host].cut()
        await until(lambda: "DOWN" in cluster.state(attempt.host))
        await until(lambda: not any("RUNNING" in each for each in jobs(cluster)))
        assert len(holders(cluster, attempt.host)) == 2, "what Slurm says ends nothing"
        cluster[attempt.host].mend()
        # Slurm kills what is left of a job that it has given up.
        ended = await attempt.ended()
        assert "killed" in ended["why"] and ended["left"] == 0
        await attempt.bye()
    assert begun(cluster, attempt.host) == 1


@in_loop
async def test_a_node_that_was_stopped_ends_the_attempt_at_once(cluster: Cluster) -> None:
    async with Home() as home:
        attempt = await home.placed()
        await attempt.go("sleep 60", lease=2.0)
        await asyncio.to_thread(cluster.stop_node, attempt.host, 5.0)
        assert (await attempt.ended())["why"] == "the lease was over"
        await attempt.bye()


# --- another start of home ------------------------------------------------------------------------


@in_loop
async def test_another_home_finds_an_attempt_that_runs(cluster: Cluster) -> None:
    async with Home() as home:
        attempt = await home.placed()
        await attempt.go(COUNTED)
    async with Home() as home:
        node = await home.engine.find(attempt.host, attempt.nonce)
        found = Attempt(home, attempt.nonce, node)
        assert (await found.ended())["exit"] == 0
        await found.bye()
        await until(lambda: not jobs(cluster))
    assert begun(cluster, node) == 1


@in_loop
async def test_another_home_finds_what_an_attempt_left_whose_job_is_gone(cluster: Cluster) -> None:
    async with Home() as home:
        attempt = await home.placed()
        await attempt.go("echo done")
        await attempt.ended()
    cluster.call("scancel", f"--name=bw.{attempt.nonce}")
    await until(lambda: not jobs(cluster))
    async with Home() as home:
        node = await home.engine.find(attempt.host, attempt.nonce)
        found = Attempt(home, attempt.nonce, node)
        assert (await found.ended())["exit"] == 0
        assert await found.output() == "done\n"
        await found.bye()
        await until(lambda: not jobs(cluster))


# --- room -----------------------------------------------------------------------------------------


@in_loop
async def test_a_full_cluster_and_a_closed_partition_give_the_reason(cluster: Cluster) -> None:
    async with Home({"cpus-per-task": CPUS}) as home, Home(address="closed") as closed:
        placed = [await home.placed(), await home.placed()]
        assert {each.host for each in placed} == {"n1", "n2"}
        third = asyncio.create_task(home.placed("3" * 32))
        fourth = asyncio.create_task(closed.placed("4" * 32))
        await until(lambda: home.engine.waiting.get("3" * 32) == "Resources")
        await until(lambda: closed.engine.waiting.get("4" * 32) == "PartitionDown")

        await home.engine.drop(placed[0].nonce)  # It has not begun.
        assert (await third).host == placed[0].host
        assert home.engine.waiting == {}
        await closed.engine.drop("4" * 32)
        with pytest.raises(Unreached, match="its job is CANCELLED"):
            await fourth
        assert closed.engine.waiting == {}
        for nonce in (placed[1].nonce, "3" * 32):
            await home.engine.drop(nonce)
        await until(lambda: not jobs(cluster))
        await home.engine.drop("5" * 32)  # It was never placed.


@in_loop
async def test_an_attempt_keeps_its_place_while_the_controller_is_away(cluster: Cluster) -> None:
    async with Home({"cpus-per-task": CPUS}) as home:
        placed = [await home.placed(), await home.placed()]
        third = asyncio.create_task(home.placed("3" * 32))
        await until(lambda: home.engine.waiting)
        await asyncio.to_thread(cluster.wait_until_saved)
        cluster.kill_controller()
        await until(lambda: "controller" in home.engine.waiting.get("3" * 32, ""))
        cluster.start_controller()
        await home.engine.drop(placed[0].nonce)
        assert (await third).host == placed[0].host


@in_loop
async def test_what_slurm_refuses_is_said(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Home({"mem": 1e9}) as home:
        with pytest.raises(Unreached, match="Requested node configuration is not available"):
            await home.placed()
    async with Home(address="none") as home:
        with pytest.raises(Unreached, match="Invalid partition name"):
            await home.placed()
    cluster.kill_controller()
    async with Home() as home:
        with pytest.raises(Unreached, match="Unable to contact slurm controller"):
            await home.placed()
        monkeypatch.setenv("PATH", "/bin")
        monkeypatch.setenv("SLURM_CONF", "/nonexistent")
        with pytest.raises(Unreached):
            await home.engine.drop("5" * 32)


# --- the process that speaks to a place -----------------------------------------------------------


class Line:
    """``python -m beads_workers.places.line``, told what an orchestrator tells it."""

    def __init__(self, folder: Path, address: str = "") -> None:
        self.socket = folder / "line"
        self._journal = folder / "journal"
        self._journal.touch()
        self._settings = LineSettings(
            place=PlaceSettings("cluster", "slurm", 8, address=address, lease_seconds=LEASE),
            fleet="0123456789ab",
            socket=str(self.socket),
            runs=str(folder),
            common="",
            orchestrator_pid=os.getpid(),
        )

    async def __aenter__(self) -> Line:
        pipe = asyncio.subprocess.PIPE
        module = "beads_workers.places.line"
        command = (sys.executable, "-P", "-m", module)
        self.process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe)
        self._send(to_plain(self._settings))
        await until(self.socket.exists)
        return self

    async def __aexit__(self, *error: object) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        await asyncio.wait_for(self.process.wait(), PATIENCE_SECONDS)

    def order(self, word: str, lease: Json) -> None:
        self._send({"word": word, "lease": lease, "journal": str(self._journal)})

    async def news(self, kind: str) -> Json:
        """Return the next news of this kind."""
        assert self.process.stdout is not None
        news: Json = await said(self.process.stdout, kind)
        return news

    def _send(self, fields: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(fields).encode() + b"\n")


async def said(reader: asyncio.StreamReader, kind: str) -> Any:
    """Return what the next line of this kind says."""
    while True:
        line = json.loads(await asyncio.wait_for(reader.readline(), PATIENCE_SECONDS))
        if kind in line:
            return line[kind]


@in_loop
async def test_the_process_of_a_place_runs_an_attempt(cluster: Cluster, tmp_path: Path) -> None:
    async with Line(tmp_path) as line:
        reader, writer = await asyncio.open_unix_connection(line.socket)

        def say(**fields: Any) -> None:
            writer.write(json.dumps(fields).encode() + b"\n")

        say(place={"issue_id": "bw-1", "attempt": 1, "request_id": "r.1"})
        placed = await said(reader, "placed")
        assert placed["host"] in ("n1", "n2")
        say(begin={"argv": ["/bin/bash", "-c", COUNTED], "env": {}, "grace": 1})
        line.order("go", await line.news("placed"))
        lease = await line.news("ended")
        line.order("heard", lease)
        assert (await said(reader, "ended"))["exit"] == 0
        writer.close()
        line.order("bye", lease)
        await until(lambda: not jobs(cluster))
    assert begun(cluster, placed["host"]) == 1
    attempts = cluster[placed["host"]].home / BASE[2:] / "attempts"
    assert list(attempts.iterdir()) == []


@in_loop
async def test_the_process_of_a_place_says_what_slurm_refuses(
    cluster: Cluster, tmp_path: Path
) -> None:
    async with Line(tmp_path, "none") as line:
        reader, writer = await asyncio.open_unix_connection(line.socket)
        place = {"issue_id": "bw-1", "attempt": 1, "request_id": "r.1"}
        writer.write(json.dumps({"place": place}).encode() + b"\n")
        assert "Invalid partition name" in await said(reader, "failed")
        writer.close()
