"""Short functions are prefetched; one that lasts, or kills its worker, harms no other."""

from __future__ import annotations

import json
import os
import signal
import socket
from collections import Counter
from pathlib import Path

from tests.end_to_end.conftest import StartFleet
from tests.support.embedded import EmbeddedProject
from tests.support.fleet import PATIENCE_SECONDS, Fleet, listens, until

SHOP = """
import os, signal, time
from pathlib import Path

def mark(number):
    with open("marks", "a") as marks:
        marks.write(f"{number}\\n")

def mark_late(number):
    time.sleep(0.002)
    mark(number)

def held():
    while not Path("gate").exists():
        time.sleep(0.02)

def kills_its_worker():
    if not Path("killed").exists():
        Path("killed").touch()
        os.kill(os.getppid(), signal.SIGKILL)
        time.sleep(1000)
"""
MARKS = 300
START = ("-n", "2", "--retry-delay", "0.05s", "--until-empty", "--allow-module", "shop")


def with_one_between(embedded: EmbeddedProject, path: str) -> None:
    """Many issues whose functions take no time, and in their middle another one."""
    (embedded.folder / "shop.py").write_text(SHOP)
    rows = [
        {"id": f"bw-{n}", "job_path": "shop.mark", "args": [n], "priority": 1 + (n > MARKS // 2)}
        for n in range(MARKS)
    ]
    rows.insert(MARKS // 2, {"id": "bw-odd", "job_path": path, "priority": 1})
    embedded.create_many(rows)


def marks(folder: Path) -> Counter[int]:
    """How often each has been called."""
    file = folder / "marks"
    return Counter(map(int, file.read_text().split())) if file.exists() else Counter()


def test_nothing_waits_for_long_behind_a_function_that_does(
    embedded: EmbeddedProject, start: StartFleet
) -> None:
    with_one_between(embedded, "shop.held")
    fleet: Fleet = start(embedded, *START)
    until(
        lambda: len(marks(embedded.folder)) == MARKS, what="some wait behind the one that is held"
    )
    (embedded.folder / "gate").touch()
    assert fleet.wait() == 0, fleet.said()
    assert set(marks(embedded.folder).values()) == {1}
    assert {value for value, _ in embedded.read_all().values()} == {"closed"}
    sent = Counter(r["request_id"] for r in fleet.journal("started"))
    ended = Counter(r["request_id"] for r in fleet.journal("finished"))
    assert sent == ended and set(sent.values()) == {1}, "every TASK has one end"
    fleet.leaves_nothing()


def test_only_what_a_dead_worker_had_begun_is_charged(
    embedded: EmbeddedProject, start: StartFleet
) -> None:
    with_one_between(embedded, "shop.kills_its_worker")
    fleet: Fleet = start(embedded, *START)
    assert fleet.wait() == 0, fleet.said()
    assert set(marks(embedded.folder).values()) == {1} and len(marks(embedded.folder)) == MARKS
    lost = [r["issue_id"] for r in fleet.journal("finished") if r["outcome"] == "lost"]
    assert lost == ["bw-odd"]
    charged = {r["issue_id"] for r in fleet.journal("finished") if r.get("charged")}
    assert charged == {"bw-odd"}
    assert {value for value, _ in embedded.read_all().values()} == {"closed"}
    fleet.leaves_nothing()


def test_of_tasks_that_may_run_once_only_those_are_lost_that_were_begun(
    embedded: EmbeddedProject, start: StartFleet
) -> None:
    """A fleet is killed amid thousands of dispatcherd's tasks, which nobody sends a second time."""
    (embedded.folder / "shop.py").write_text(SHOP)
    where = embedded.folder / "socket"
    source = ("-n", "2", "--source", f"dispatcherd+unix://{where}", "--allow-module", "shop")
    first: Fleet = start(embedded, *source)
    until(lambda: listens(where))
    tasks = [{"task": "shop.mark_late", "args": [n], "uuid": f"u{n}"} for n in range(1000)]
    with socket.socket(socket.AF_UNIX) as publisher:
        publisher.settimeout(PATIENCE_SECONDS)
        publisher.connect(str(where))
        publisher.sendall(b"".join(json.dumps(task).encode() + b"\n" for task in tasks))
        publisher.sendall(b'{"control": "alive", "reply_to": "r"}\n')
        assert publisher.recv(4096), "all of it was read"
    until(lambda: len(marks(embedded.folder)) > 300)
    os.kill(first.pid, signal.SIGKILL)
    second: Fleet = start(embedded, *source, "--until-empty")
    assert second.wait() == 0, second.said()
    found = marks(embedded.folder)
    assert max(found.values()) == 1, "nothing runs twice"
    assert len(tasks) - len(found) <= 2, "what two workers were doing"
    second.leaves_nothing()
