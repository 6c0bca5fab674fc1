"""Attempts on nodes of a real Ray cluster, whose parts are killed, stopped and cut off."""

from __future__ import annotations

import ast
import asyncio
import base64
import functools
import secrets
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from beads_workers.core.base.settings import PlaceSettings
from beads_workers.places import ray
from beads_workers.places.line import REMOTE, Unreached
from beads_workers.places.ray import Ray
from tests.places.placed import BASE, Attempt, ClusterHome, count_lines
from tests.support import loops
from tests.support.hosts import need_hosts
from tests.support.loops import in_loop
from tests.support.processes import living, send
from tests.support.ray import CPUS, Cluster, need_ray

pytestmark = [pytest.mark.peers, pytest.mark.daily(6)]

PATIENCE_SECONDS = 60.0
LEASE = 90.0
COUNTED = (
    'echo $$ >>~/begun; while [ ! -e ~/end ]; do date +%s >>~/alive; sleep 0.2; done; echo "end"'
)
"""Says how often it was begun, and for how long it lived; ends once it may."""
RAY = ("/ray/", "ray::")
"""What the command lines of Ray's own processes have."""


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two nodes; no process of theirs may be left."""
    need_hosts()
    with Cluster(tmp_path_factory.mktemp("ray")) as made:
        yield made
        pids = [pid for name in ("head", "n1", "n2") for pid in made[name].pids()]
    assert living(pids) == []


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The helper's socket lies in the working directory."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def cluster(shared: Cluster) -> Iterator[Cluster]:
    """The same nodes without files of an earlier test; no guard or relay may be left on them."""
    for name in ("n1", "n2"):
        for file in ("begun", "alive", "end"):
            (shared[name].home / file).unlink(missing_ok=True)
    yield shared
    assert [_guards(shared, name) for name in ("n1", "n2")] == [[], []]


class Home(ClusterHome):
    """An engine of Ray, whose helper ends with it."""

    lease, patience = LEASE, PATIENCE_SECONDS

    def __init__(self, address: str, *, insecure: bool = True, **resources: float) -> None:
        python = str(need_ray() / "bin/python")
        place = PlaceSettings("cluster", "ray", 8, address, python, resources, insecure=insecure)
        self._ray = Ray(place, REMOTE)
        super().__init__(self._ray)

    async def __aexit__(self, *error: object) -> None:
        await super().__aexit__(*error)
        if self._ray._helping is not None:
            self._ray._helping.cancel()
            await asyncio.gather(self._ray._helping, return_exceptions=True)

    async def forget(self, attempt: Attempt) -> None:
        assert "why" not in await attempt.ask(bye=True)
        await self.engine.drop(attempt.nonce)


until = functools.partial(loops.until, seconds=PATIENCE_SECONDS)


def _helpers() -> list[int]:
    found = Path("/proc").glob("[0-9]*/cmdline")
    mine = (int(path.parent.name) for path in found if b"ray_helper.py" in path.read_bytes())
    return [pid for pid in mine if Path(f"/proc/{pid}/cwd").resolve() == Path.cwd()]


def _guards(cluster: Cluster, name: str) -> list[int]:
    return cluster.pids(name, " serve ")


async def _waits_in_vain(home: Home, why: str) -> None:
    """Place an attempt, and give it up while it waits for this reason."""
    nonce = secrets.token_hex(16)
    task = asyncio.create_task(home.engine.place("bw-1", nonce, BASE))
    await until(lambda: why in home.engine.waiting.values())
    await home.engine.drop(nonce)
    with pytest.raises(asyncio.CancelledError):
        await task


# --- an attempt -----------------------------------------------------------------------------------


@in_loop
async def test_an_attempt_runs_where_its_room_is(cluster: Cluster) -> None:
    async with Home(cluster.address, CPU=2) as home:
        attempt = await home.placed()
        name, _, address = attempt.host.partition("/")
        assert cluster[name].address == address
        hello = (await home.ask(attempt.host, hello={"programs": ["sh", "none"]}))["hello"]
        assert (hello["host"], hello["home"], hello["programs"]["none"]) == (name, "/root", None)
        await home.ask(attempt.host, serve=["bw-1", attempt.nonce])
        data = base64.b64encode(b"given").decode()
        assert "why" not in await attempt.ask(put="in", at=0, data=data)
        await attempt.go("cat; echo; echo $BW_AWAY; env | grep ^RAY_")
        assert (await attempt.ended())["exit"] == 1
        assert await attempt.output() == f"given\n{attempt.nonce}\n"
        await attempt.bye()
        assert (await attempt.ask())["id"] is None


@in_loop
async def test_an_attempt_waits_for_a_room_and_says_why(cluster: Cluster) -> None:
    async with Home(cluster.address, CPU=CPUS) as home:
        first, second = await home.placed(), await home.placed()
        assert first.host != second.host
        third = asyncio.create_task(home.placed())
        await until(lambda: "no node has free CPU 8" in home.engine.waiting.values())
        await home.engine.drop(first.nonce)
        assert (await third).host == first.host
        assert home.engine.waiting == {}
        await home.engine.drop(second.nonce)
        await home.engine.drop(third.result().nonce)
    async with Home(cluster.address, CPU=100) as home:
        await _waits_in_vain(home, "no node is large enough for CPU 100")


@in_loop
async def test_a_new_home_gives_up_rooms_for_which_it_does_not_look(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Home(cluster.address, CPU=CPUS) as home:
        _, kept = await home.placed(), await home.placed()
    monkeypatch.setattr(ray, "SWEEP_SECONDS", 1.0)
    async with Home(cluster.address, CPU=CPUS) as later:
        assert await later.engine.find(kept.host, kept.nonce) == kept.host
        third = await later.placed()
        assert third.host != kept.host
        await later.engine.drop(kept.nonce)
        await later.engine.drop(third.nonce)


# --- what is killed -------------------------------------------------------------------------------


def _kill_actor(cluster: Cluster, home: Home, name: str) -> None:
    send(cluster.pids(name, "ray::Feeder"), signal.SIGKILL)


def _kill_relay(cluster: Cluster, home: Home, name: str) -> None:
    send(cluster.pids(name, "os.fork()"), signal.SIGKILL)


def _end_actor(cluster: Cluster, home: Home, name: str) -> None:
    send(cluster.pids(name, "ray::Feeder"), signal.SIGTERM)


def _kill_helper(cluster: Cluster, home: Home, name: str) -> None:
    send(_helpers(), signal.SIGKILL)


def _kill_raylet(cluster: Cluster, home: Home, name: str) -> None:
    cluster.kill_raylet(name)


def _kill_head(cluster: Cluster, home: Home, name: str) -> None:
    cluster.kill_head()


def _kill_ray(cluster: Cluster, home: Home, name: str) -> None:
    for each in ("head", "n1", "n2"):
        send(cluster.pids(each, *RAY), signal.SIGKILL)


@pytest.mark.parametrize("kill", [_kill_actor, _end_actor, _kill_relay, _kill_helper])
@in_loop
async def test_an_attempt_goes_on_without_what_leads_to_it(
    cluster: Cluster, kill: Callable[[Cluster, Home, str], None]
) -> None:
    await _survives(cluster, kill, lambda: None)


@pytest.mark.timeout(240)
@pytest.mark.parametrize("kill", [_kill_raylet, _kill_head, _kill_ray])
@in_loop
async def test_an_attempt_is_found_by_a_new_cluster(
    cluster: Cluster, kill: Callable[[Cluster, Home, str], None]
) -> None:
    await _survives(cluster, kill, cluster.renew)


async def _survives(
    cluster: Cluster, kill: Callable[[Cluster, Home, str], None], repair: Callable[[], None]
) -> None:
    async with Home(cluster.address) as home:
        attempt = await home.placed()
        name = attempt.host.partition("/")[0]
        folder = cluster[name].home
        await attempt.go(COUNTED)
        guards = _guards(cluster, name)
        kill(cluster, home, name)
        lived = count_lines(folder / "alive")
        await until(lambda: count_lines(folder / "alive") > lived + 10)
        await asyncio.to_thread(repair)
        assert (await attempt.ask())["begun"]
        assert _guards(cluster, name) == guards
        (folder / "end").touch()
        assert (await attempt.ended())["exit"] == 0
        assert await attempt.output() == "end\n"
        assert count_lines(folder / "begun") == 1
        await attempt.bye()


@pytest.mark.timeout(240)
@in_loop
async def test_a_silent_node_cuts_no_other_off(cluster: Cluster) -> None:
    async with Home(cluster.address, CPU=CPUS) as home:
        silent, other = await home.placed(), await home.placed()
        await silent.ask()
        await other.ask()
        node = cluster[silent.host.partition("/")[0]]
        node.cut()
        try:
            with pytest.raises(Unreached, match="has not answered"):
                await home.line(silent.host).ask({"nonce": silent.nonce})
            assert (await home.line(other.host).ask({"nonce": other.nonce}))["gone"]
        finally:
            node.mend()
        assert (await silent.ask())["gone"]
        await home.engine.drop(silent.nonce)
        await home.engine.drop(other.nonce)


# --- what is refused ------------------------------------------------------------------------------


@in_loop
async def test_a_cluster_that_lets_anybody_in_is_refused(cluster: Cluster) -> None:
    async with Home(cluster.address, insecure=False) as home:
        with pytest.raises(Unreached, match="set insecure = true"):
            await home.placed()


@in_loop
async def test_a_cluster_that_wants_a_token_gets_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    need_hosts()
    with Cluster(tmp_path, count=1, token="t" * 40) as cluster:
        monkeypatch.setenv("RAY_AUTH_TOKEN", "t" * 40)
        async with Home(cluster.address, insecure=False) as home:
            assert (await (await home.placed()).ask())["gone"]
        monkeypatch.setenv("RAY_AUTH_TOKEN", "f" * 40)
        async with Home(cluster.address, insecure=False) as home:
            task = asyncio.create_task(home.placed())
            await until(lambda: "refuses the token" in str(home.engine.waiting))
            task.cancel()


@in_loop
async def test_an_attempt_waits_for_a_cluster_that_is_not_there() -> None:
    async with Home("ray://127.0.0.1:9", insecure=False) as home:
        await _waits_in_vain(home, "127.0.0.1:9 does not answer")


@in_loop
async def test_a_place_needs_the_python_of_its_cluster() -> None:
    with pytest.raises(Unreached, match="set python"):
        await Ray(PlaceSettings("cluster", "ray", 8), REMOTE).place("bw-1", "0" * 32, BASE)


def test_the_helper_imports_nothing_of_ours() -> None:
    path = Path(__file__).parents[2] / "beads_workers/places/ray_helper.py"
    tree = ast.walk(ast.parse(path.read_text()))
    names = {n.module or "" for n in tree if isinstance(n, ast.ImportFrom)}
    assert not [name for name in names if name.startswith("beads_workers")]
