"""The same script against the real dispatcherd and against a fleet of ours, over both brokers; and
what tasks may do to their worker and ask of it.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end.conftest import StartFleet
from tests.support.dispatched_place import DispatchedPlace
from tests.support.dispatcherd import HANDLERS_FOLDER, Server
from tests.support.fleet import Fleet, until
from tests.support.postgres import Postgres
from tests.support.versions import BROKERS

COMMANDS = (
    "running", "cancel", "alive", "aio_tasks", "workers", "producers", "metrics", "main", "status",
    "chunks",
)  # fmt: skip
"""Of ``dispatcherctl``, all that need no options."""

pytestmark = pytest.mark.peers

HELP = """
import re, time
import dispatched as d
from dispatcherd.control import Control
from dispatcherd.factories import get_control_from_settings
from dispatcherd.processors.delayer import Delayer
from dispatcherd.publish import submit_task
file = sys.argv[2]
control = get_control_from_settings()
def ask(command, **data):
    (reply,) = control.control_with_reply(command, data=data, timeout=30)
    return reply
def until(holds):
    end = time.monotonic() + 100
    while not holds():
        assert time.monotonic() < end, (counts(), places(), open(file).read())
        time.sleep(0.05)
def shown(reply):
    found = [(re.sub(r"-\\d+$", "", n), m) for n, m in reply.items() if n != "node_id"]
    told = [(p, m["task"], m.get("args"), m.get("kwargs"), sorted(m)) for p, m in found]
    return sorted(told, key=json.dumps)
def places():
    return sorted(row[0] for row in shown(ask("running")))
def counts():
    pool = ask("main")["pool"]
    return pool["finished_count"], pool["canceled_count"]
def later(fn, *args):
    return submit_task(fn, args=args, processor_options=[Delayer.Params(delay=1000)])
out = []
"""

SCRIPT = """
long = [d.sleep.delay(1000 + n, file)[0]["uuid"] for n in range(2)]
until(lambda: places() == ["worker"] * 2)
for n in range(3):
    d.echo.delay(n, key=n)
d.one_by_one.delay(1000, file), d.one_by_one.delay(1000, file)
later(d.nothing), later(d.echo, 7)
until(lambda: len(places()) == 9)
out.append(["all", shown(ask("running"))])
for wanted in ({"task": "dispatched.echo"}, {"args": [1]}, {"kwargs": {"key": 2}}, {"args": [9]},
               {"task": "dispatched.echo", "args": [7]}, {"uuid": long[0]}, {"kwargs": {"key": 9}}):
    out.append([wanted, shown(ask("running", **wanted))] if "uuid" not in wanted else len(
        shown(ask("running", **wanted))))
for wanted in ({"args": [1]}, {"task": "dispatched.one_by_one"}, {"task": "dispatched.nothing"}):
    out.append(["cancelled", wanted, shown(ask("cancel", **wanted))])
    out.append(shown(ask("running")))
out.append(shown(ask("cancel", uuid=long[0])))
until(lambda: counts() == (2, 1))
until(lambda: places() == ["delayed", "worker"])
d.one_by_one.delay(1000, file)
until(lambda: places() == ["delayed", "worker", "worker"])
until(lambda: "begin" in open(file).read())
out.append(shown(ask("cancel")))
until(lambda: places() == [] and counts() == (2, 3))
out.append(["run", sorted(ask("run", task="dispatched.write_down", args=[file, "ran"]))])
until(lambda: "ran" in open(file).read())
d.publish.delay(file)
# Not by asking: what comes over PostgreSQL while it answers, the real one may lose.
until(lambda: "from a task" in open(file).read())
d.fail.delay("oh"), d.too_long.delay(), d.ask.delay(file, "alive"), d.ask.delay(file, "dance")
d.somewhere.delay(file)
until(lambda: counts() == (9, 4))
out.append(sorted(open(file).read().splitlines()))
d.leave.delay()
until(lambda: counts() == (10, 4))
d.write_down.delay(file, "after it"), d.Adder.delay(file, 20, 22)
until(lambda: counts() == (12, 4))
out.append(sorted(open(file).read().splitlines()))
until(lambda: sum(w["status"] == "ready" for n, w in ask("workers").items() if n != "node_id") == 2)
def shape(value):
    if not isinstance(value, dict):
        return type(value).__name__
    return {re.sub(r"-\\d+$", "-N", name): shape(inner) for name, inner in value.items()}
out.append([shape(ask(c)) for c in ("workers", "producers", "chunks", "metrics", "alive", "dance")])
"""


def place_of(broker: str, folder: Path, request: pytest.FixtureRequest) -> DispatchedPlace:
    """Where tasks of ``dispatched`` are published, and run by dispatcherd's own worker class."""
    postgres = request.getfixturevalue("postgres") if broker == "postgres" else None
    folder.mkdir(exist_ok=True)
    assert postgres is None or isinstance(postgres, Postgres)
    place = DispatchedPlace(folder, postgres=postgres)
    shutil.copy(HANDLERS_FOLDER / "dispatched.py", place.folder)
    place.environment["PYTHONPATH"] = str(place.peer.packages)
    return place


def serving(place: DispatchedPlace, start: StartFleet, *arguments: str) -> Fleet:
    """A fleet that listens."""
    fleet = start(place, *place.arguments, "--allow-module", "dispatched", *arguments).started()
    fleet.wait_for("run_changed", state="running")
    return fleet


def ask_all(place: DispatchedPlace, script: str) -> Any:
    """What the script leaves in ``out``; paths are the same for all places."""
    found = place.peer.script(place.config, HELP + script, str(place.file))
    return _with(found, str(place.file))


def _with(value: Any, path: str) -> Any:
    if isinstance(value, list):
        return [_with(each, path) for each in value]
    if isinstance(value, dict):
        return {key: _with(each, path) for key, each in value.items()}
    return re.sub(re.escape(path), "FILE", value) if isinstance(value, str) else value


@pytest.mark.parametrize("broker", ["socket", "postgres"], ids=BROKERS)
def test_one_script_hears_the_same_from_both(
    broker: str, tmp_path: Path, request: pytest.FixtureRequest, start: StartFleet
) -> None:
    place = place_of(broker, tmp_path, request)
    real = Server(place.peer, place.config)
    try:
        theirs = ask_all(place, SCRIPT)
    finally:
        real.close()
    place.file.write_text("")
    fleet = serving(place, start)
    ours = ask_all(place, SCRIPT)
    for one, other in zip(ours, theirs, strict=True):
        assert one == other
    if broker == "postgres":
        calls = [*((command,) for command in COMMANDS), ("set_log_level", "--level", "INFO")]
        *replies, level = place.peer.replies_of(place.config, *calls)
        assert {reply["node_id"] for reply in replies} == {"the-node"}
        assert level["level"] == "INFO"
    (failure,) = [f for f in fleet.journal("finished") if f["outcome"] == "error"]
    assert failure["error"] == "ValueError: oh"


def test_a_worker_that_stops_is_marked_before_its_task_is_over_and_replaced(
    tmp_path: Path, request: pytest.FixtureRequest, start: StartFleet
) -> None:
    place = place_of("socket", tmp_path, request)
    fleet = serving(place, start, "-n", "1")
    first = fleet.worker_pid("W1")
    place.peer.script(
        place.config, HELP + "d.leave.delay(), d.write_down.delay(file)", str(place.file)
    )
    until(lambda: len(fleet.journal("finished")) == 2)
    order = [
        r["e"] for r in fleet.journal() if r["e"] in ("worker_stopping", "finished", "started")
    ]
    assert order == ["started", "worker_stopping", "finished", "started", "finished"]
    assert [r["pid"] for r in fleet.journal("worker_exited")] == [first]
    (left,) = fleet.journal("finished")[:1]
    assert left["result"] == '"<exit>"'
    assert place.lines() == ["ran"]
    assert fleet.call("stop").returncode == 0
    fleet.leaves_nothing()


def test_what_a_bound_task_asks_is_answered_without_a_broker(
    tmp_path: Path, request: pytest.FixtureRequest, start: StartFleet
) -> None:
    place = place_of("socket", tmp_path, request)
    fleet = serving(place, start, "-n", "1")
    place.peer.script(place.config, HELP + "d.ask.delay(file, 'running')", str(place.file))
    until(lambda: len(fleet.journal("finished")) == 1)
    (line,) = place.lines()
    assert line.startswith("{'worker-1': {") and "'task': 'dispatched.ask'" in line
    assert "node_id" not in line
