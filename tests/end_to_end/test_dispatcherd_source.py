"""The real publisher of dispatcherd against a fleet of ours, over both brokers."""

from __future__ import annotations

import json
import os
import random
import signal
import stat
from collections import Counter
from pathlib import Path

import pytest

from beads_workers.integrations.dispatcherd.wire_chunks import split_message
from tests.end_to_end.conftest import StartFleet
from tests.support.dispatched_place import DispatchedPlace, begun
from tests.support.fleet import Fleet, until
from tests.support.postgres import Postgres
from tests.support.versions import BROKERS

pytestmark = [pytest.mark.peers, pytest.mark.daily(3)]


@pytest.fixture(params=["socket", "postgres"], ids=BROKERS)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> DispatchedPlace:
    if request.param == "postgres":
        return DispatchedPlace(tmp_path, postgres=request.getfixturevalue("postgres"))
    return DispatchedPlace(tmp_path)


@pytest.fixture
def socket_place(tmp_path: Path) -> DispatchedPlace:
    return DispatchedPlace(tmp_path)


def serving(place: DispatchedPlace, start: StartFleet, *arguments: str) -> Fleet:
    """A fleet that listens."""
    fleet = start(place, *place.arguments, *arguments).started()
    fleet.wait_for("run_changed", state="running")
    return fleet


def lines_of(place: DispatchedPlace, count: int) -> list[str]:
    """Wait for so many lines of traces."""
    until(lambda: len(place.lines()) >= count, what=f"{count} lines")
    return place.lines()


def test_every_way_to_publish(place: DispatchedPlace, start: StartFleet) -> None:
    fleet = serving(place, start)
    sent = place.publish(
        """
noted = task()(deeds.note)
noted.delay(file, "delay")
noted.apply_async(args=(file,), kwargs={"text": "apply_async"})
submit_task(deeds.note, args=(file, "submit_task"))
submit_task(deeds.note, args=(file, "with an id"), uuid="my-own-id")
out = [submit_task(deeds.note, args=(file, "é\\n👩‍👩‍👧"), timeout=30)[0]["uuid"]]
"""
    )
    lines = lines_of(place, 11)
    texts = ["delay", "apply_async", "submit_task", "with an id", "é"]
    assert Counter(begun(lines)) == Counter(texts)
    done = {record["issue_id"] for record in fleet.journal("finished")}
    until(lambda: len(fleet.journal("finished")) == 5)
    done = {record["issue_id"] for record in fleet.journal("finished")}
    assert {"my-own-id", *sent} <= done
    assert fleet.call("stop").returncode == 0
    fleet.leaves_nothing()


def test_what_is_done_with_duplicates(place: DispatchedPlace, start: StartFleet) -> None:
    serving(place, start)
    place.publish(
        """
for rule in ("discard", "serial", "queue_one"):
    for number in range(3):
        submit_task(deeds.note, args=(file, rule, 0.3), processor_options=[on(rule)])
for number in range(3):
    submit_task(deeds.note, args=(file, "parallel"), processor_options=[on("parallel")])
submit_task(deeds.note, args=(file, "last"), processor_options=[after(2.5)])
"""
    )
    until(lambda: "end last" in place.lines())
    lines = place.lines()
    expected = {"discard": 1, "serial": 3, "queue_one": 2, "parallel": 3, "last": 1}
    assert Counter(begun(lines)) == expected
    for rule in ("serial", "queue_one"):
        its = [line.split()[0] for line in lines if line.endswith(rule)]
        assert its == ["begin", "end"] * expected[rule], "never two at a time"


def test_a_delay_a_timeout_and_a_failure(place: DispatchedPlace, start: StartFleet) -> None:
    fleet = serving(place, start)
    place.publish(
        """
submit_task(deeds.note, args=(file, "late"), uuid="late", processor_options=[after(1.0)])
submit_task(deeds.note, args=(file, "soon"), uuid="soon")
submit_task(deeds.note, args=(file, "slow", 60), uuid="slow", timeout=0.5)
submit_task(deeds.fail, args=(file,), uuid="fails")
"""
    )
    ended = {
        name: fleet.wait_for("finished", issue_id=name)
        for name in ("late", "soon", "slow", "fails")
    }
    assert ended["slow"]["outcome"] == "timeout"
    assert "ValueError: no" in ended["fails"]["error"]
    assert ended["late"]["t"] - ended["soon"]["t"] > 0.5
    assert place.lines().count("tried") == 1, "once, unless it is allowed more"


SLOW_START = """
import time
from dispatcherd.worker.task import TaskWorker

class Slow(TaskWorker):
    def __init__(self, *, file, **rest):
        super().__init__(**rest)
        self.file = file

    def on_start(self):
        time.sleep(2)
        with open(self.file, "a") as out:
            print("ready", file=out)
"""


def test_what_a_worker_class_does_at_its_start_is_done_ahead_and_outside_of_timeouts(
    socket_place: DispatchedPlace, start: StartFleet
) -> None:
    place = socket_place
    (place.folder / "slow.py").write_text(SLOW_START)
    config = json.loads(place.config.read_text())
    config["worker"] = {"worker_cls": "slow.Slow", "worker_kwargs": {"file": str(place.file)}}
    place.config.write_text(json.dumps(config))
    place.environment["PYTHONPATH"] = str(place.peer.packages)
    fleet = serving(place, start)
    place.publish(
        """
for number in range(8):
    submit_task(deeds.note, args=(file, f"n{number}", 0.2), uuid=f"n{number}", timeout=1.5)
submit_task(deeds.note, args=(file, "long", 60), uuid="long", timeout=1.5)
"""
    )
    ended = [fleet.wait_for("finished", issue_id=f"n{number}") for number in range(8)]
    assert {record["outcome"] for record in ended} == {"success"}
    assert fleet.wait_for("finished", issue_id="long")["outcome"] == "timeout"
    until(lambda: place.lines().count("ready") == 3, what="the next one is there ahead of a task")


def test_what_all_tasks_print_is_one_stream(
    socket_place: DispatchedPlace, start: StartFleet
) -> None:
    place = socket_place
    with (place.folder / "deeds.py").open("a") as deeds:
        deeds.write("\ndef talk(text, fails=False):\n    print(text, 'é')\n    assert not fails\n")
    fleet = serving(place, start, "--max-attempts", "2", "--retry-delay", "0.05")
    place.publish(
        """
for name in "ab":
    submit_task(deeds.talk, args=(f"from {name}",), uuid=name)
submit_task(deeds.talk, args=("tried", True), uuid="c")
submit_task(deeds.nothing, uuid="silent")
"""
    )
    fleet.wait_for("finished", issue_id="c", attempt=2)
    for name in ("a", "b", "silent"):
        fleet.wait_for("finished", issue_id=name)
    said = fleet.call("logs", "--output").stdout.splitlines()
    assert {"a: from a é", "b: from b é"} <= set(said)
    assert said.count("c: tried é") == 2
    assert any(line.startswith("c: AssertionError") for line in said)
    assert not any(line.startswith("silent") for line in said)


def test_retries_are_a_setting(socket_place: DispatchedPlace, start: StartFleet) -> None:
    fleet = serving(socket_place, start, "--max-attempts", "3", "--retry-delay", "0.05")
    socket_place.publish(
        'submit_task(deeds.fail, args=(file, 2), uuid="at last")\n'
        'submit_task(deeds.nothing, args=(file,), uuid="other")'
    )
    fleet.wait_for("finished", issue_id="at last", outcome="success")
    assert socket_place.lines() == ["tried"] * 3


def test_the_same_id_twice_runs_twice_and_none_gets_one(
    socket_place: DispatchedPlace, start: StartFleet
) -> None:
    fleet = serving(socket_place, start)
    place = socket_place
    message = {"task": "deeds.note", "args": [str(place.file), "same", 0.2], "uuid": "same"}
    place.send(json.dumps(message).encode(), json.dumps(message).encode(), b"deeds.nothing")
    lines_of(place, 4)
    assert Counter(place.lines()) == {"begin same": 2, "end same": 2}
    fleet.wait_for("finished", issue_id="internal-3")


def test_a_lambda_is_refused_and_shown(socket_place: DispatchedPlace, start: StartFleet) -> None:
    fleet = serving(socket_place, start)
    evil = f"lambda: open({str(socket_place.file)!r}, 'w').write('evaluated')"
    socket_place.send(json.dumps({"task": evil}).encode())
    socket_place.publish('submit_task(deeds.note, args=(file, "good"))')
    lines_of(socket_place, 2)
    assert socket_place.lines() == ["begin good", "end good"]
    warnings = [record["text"] for record in fleet.journal("noted")]
    assert any("nothing is evaluated here" in text for text in warnings), warnings


def test_the_socket_is_ours_alone_and_gone_at_the_end(
    socket_place: DispatchedPlace, start: StartFleet
) -> None:
    fleet = serving(socket_place, start)
    assert stat.S_IMODE(socket_place.socket.stat().st_mode) == 0o600
    assert "node_id" in socket_place.ask("alive")
    assert fleet.call("stop").returncode == 0
    assert not socket_place.socket.exists()


def test_a_megabyte_in_chunks_shuffled_and_interleaved(
    place: DispatchedPlace, start: StartFleet
) -> None:
    serving(place, start)
    place.publish(
        """
import random
from dispatcherd.factories import get_publisher_from_settings
import dispatcherd.brokers.socket, dispatcherd.brokers.pg_notify
broker = get_publisher_from_settings()
# The real one cuts at 8000 bytes, which PostgreSQL refuses.
most = min(broker.max_message_bytes, 7999)
from dispatcherd.chunking import split_message
pieces = []
for size in (1_000_000, 300_000):
    message = {"task": "deeds.measure", "args": [file, "é" * (size // 6)], "uuid": str(size)}
    pieces += split_message(json.dumps(message), max_bytes=most)
random.Random(7).shuffle(pieces)
for piece in pieces:
    broker.publish_message(message=piece)
"""
    )
    lines = lines_of(place, 2)
    assert set(lines) == {str(1_000_000 // 6), str(300_000 // 6)}


def test_ten_thousand_orphans_do_not_stay_in_memory(
    socket_place: DispatchedPlace, start: StartFleet
) -> None:
    place = socket_place
    fleet = serving(place, start)
    before = _resident(fleet.pid)
    for batch in range(20):
        orphans = []
        for number in range(500):
            text = json.dumps({"task": "deeds.nothing", "args": ["x" * 4000]})
            pieces = split_message(text, max_bytes=3000, message_id=f"{batch}-{number}")
            orphans.append(random.Random(number).choice(pieces).encode())
        place.send(*orphans)
    place.publish('submit_task(deeds.note, args=(file, "good"))')
    lines_of(place, 2)
    assert _resident(fleet.pid) - before < 64 << 20


def test_queued_tasks_survive_a_kill_and_run_once(
    place: DispatchedPlace, start: StartFleet
) -> None:
    fleet = serving(place, start)
    # To PostgreSQL the real publisher connects for each of them.
    count = 1000 if place.socket.exists() else 200
    place.publish(
        f"""
submit_task(deeds.note, args=(file, "slow", 30), uuid="slow-1")
submit_task(deeds.note, args=(file, "slow", 30), uuid="slow-2")
for number in range({count}):
    submit_task(deeds.note, args=(file, f"n{{number}}"))
submit_task(deeds.note, args=(file, "delayed"), processor_options=[after(1.0)])
"""
    )
    spool = fleet.state_directory / "dispatcherd.jsonl"
    until(lambda: spool.read_bytes().count(b"\n") >= count + 3, what="all are on file")
    lines_of(place, 2)
    os.kill(fleet.pid, signal.SIGKILL)
    fleet.wait()
    again = serving(place, start)
    until(lambda: len(place.lines()) >= 2 * count + 4, what="all have run")
    counted = Counter(begun(place.lines()))
    assert counted.pop("slow") == 2, "what had begun is not run twice"
    assert set(counted.values()) == {1} and len(counted) == count + 1
    warnings = [record["text"] for record in again.journal("noted")]
    assert any("slow-1" in text and "not run twice" in text for text in warnings), warnings


def test_a_stop_keeps_what_has_not_begun(socket_place: DispatchedPlace, start: StartFleet) -> None:
    place = socket_place
    fleet = serving(place, start)
    place.publish(
        """
for number in range(2):
    submit_task(deeds.note, args=(file, "slow", 30))
for number in range(20):
    submit_task(deeds.note, args=(file, f"n{number}"))
"""
    )
    lines_of(place, 2)
    assert fleet.call("stop").returncode == 0
    serving(place, start, "--until-empty")
    until(lambda: len(begun(place.lines())) == 22)
    counted = Counter(begun(place.lines()))
    assert counted.pop("slow") == 2
    assert counted == {f"n{number}": 1 for number in range(20)}


def test_postgres_may_go_and_come_back(
    tmp_path: Path, lonely_postgres: Postgres, start: StartFleet
) -> None:
    place = DispatchedPlace(tmp_path, postgres=lonely_postgres)
    fleet = serving(place, start)
    place.publish('submit_task(deeds.note, args=(file, "before"))')
    lines_of(place, 2)
    lonely_postgres.server.kill()
    fleet.wait_for("degraded_began")
    lonely_postgres.server.start()
    fleet.wait_for("degraded_ended")
    place.publish('submit_task(deeds.note, args=(file, "after"))')
    assert begun(lines_of(place, 4)) == ["before", "after"]


def _resident(pid: int) -> int:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def test_producers_of_the_configuration_run_and_what_is_ignored_is_named(
    socket_place: DispatchedPlace, start: StartFleet
) -> None:
    place = socket_place
    config = json.loads(place.config.read_text())
    again = {"schedule": 0.2, "args": [str(place.file), "again"]}
    config["producers"] = {
        "ScheduledProducer": {"task_schedule": {"deeds.note": again}},
        "OnStartProducer": {"task_list": {"deeds.measure": {"args": [str(place.file), "four"]}}},
    }
    config["service"]["pool_kwargs"]["max_worker"] = 9
    place.config.write_text(json.dumps(config))
    fleet = serving(place, start)
    assert "service.pool_kwargs.max_worker is ignored" in fleet.errors
    assert "min_workers" not in fleet.errors, "as many as there are"
    until(lambda: place.lines().count("end again") >= 3)
    assert place.lines().count("4") == 1, "once, at the start"
    for name in ("on-start-0", "sch-1", "sch-2", "sch-3"):
        fleet.wait_for("finished", issue_id=name)
    assert place.ask("producers")["OnStartProducer"]["produced_count"] == 1
    assert fleet.call("stop").returncode == 0
    first = place.lines().count("4")
    serving(place, start)
    until(lambda: place.lines().count("4") == first + 1, what="each start has its own")
