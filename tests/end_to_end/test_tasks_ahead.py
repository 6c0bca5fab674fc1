"""Short functions are handed out ahead; one that lasts, or kills its worker, harms no other."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from tests.end_to_end.conftest import StartFleet
from tests.support.embedded import EmbeddedProject
from tests.support.fleet import Fleet, until

SHOP = """
import os, signal, time
from pathlib import Path

def mark(number):
    with open("marks", "a") as marks:
        marks.write(f"{number}\\n")

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
