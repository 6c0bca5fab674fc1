"""What ended in the moment of the orchestrator's death is closed by the next start, and not done
again: its workers have left word of it.
"""

from __future__ import annotations

import json
import os
import signal
import socket
from collections import Counter
from pathlib import Path

import pytest

from tests.end_to_end.conftest import Ran, StartFleet
from tests.end_to_end.test_prefetch import SHOP, marks
from tests.support.bd import NEW, BdProject
from tests.support.embedded import EmbeddedProject
from tests.support.fleet import Fleet, listens, until

HELD = """
import time
from pathlib import Path

def held(number):
    with open("marks", "a") as marks:
        marks.write(f"{number}\\n")
    while not Path("gate").exists():
        time.sleep(0.01)
    print("over")
    return {"square": number * number}
"""
WAITS = 'until [ -e "$GATE" ]; do sleep 0.01; done; echo over'


def killed_unheard(fleet: Fleet, gate: Path, mourned: str = "") -> None:
    """The orchestrator is stopped, its tasks end and say so, and then it is killed.

    ``mourned``: a worker that is killed before it, after its task has ended.
    """
    pid = fleet.worker_pid(mourned) if mourned else 0
    running = len(fleet.journal("started"))
    os.kill(fleet.pid, signal.SIGSTOP)
    gate.touch()
    # A log gets its name when its worker has buried the task, which is when it says DONE.
    logs = fleet.run_folder / "logs"
    until(lambda: sum(log.name[0] != "." for log in logs.iterdir()) == running)
    if pid:
        os.kill(pid, signal.SIGKILL)
    os.kill(fleet.pid, signal.SIGKILL)


@pytest.mark.share(2)
@pytest.mark.parametrize("tracker", ["embedded", NEW])
def test_what_commands_had_done_is_closed_and_a_killed_workers_runs_again(
    tracker: str, tmp_path: Path, start: StartFleet, ran: Ran
) -> None:
    project = EmbeddedProject(tmp_path) if tracker == "embedded" else BdProject(tmp_path, tracker)
    ids = project.create_many([{} for _ in range(3)])
    gate = tmp_path / "gate"
    with_gate = {"environment": ran.environment | {"GATE": str(gate)}}
    command = ("--until-empty", "--", *ran.command(WAITS))
    first: Fleet = start(project, "-n", "3", *command, **with_gate)
    until(lambda: len(ran.begun()) == 3)
    killed_unheard(first, gate, mourned="W2")
    assert first.journal("finished") == []
    (mourned,) = (r["issue_id"] for r in first.journal("started") if r["worker_id"] == "W2")
    second: Fleet = start(project, "-n", "3", *command, **with_gate)
    assert second.wait(100) == 0, second.said()
    assert Counter(ran.ended()) == Counter([*ids, mourned]), "only a killed worker leaves no word"
    assert {state for state, _ in project.read_all().values()} == {"closed"}
    assert {r["issue_id"] for r in second.journal("started")} == {mourned}
    heard = {r["issue_id"]: r["outcome"] for r in first.journal("finished")}
    assert heard == dict.fromkeys({*ids} - {mourned}, "success")
    assert {r["issue_id"] for r in second.journal("settled") if r["action"] == "close"} == {*ids}
    second.leaves_nothing()


def test_what_functions_had_returned_is_kept_with_what_they_returned(
    embedded: EmbeddedProject, start: StartFleet
) -> None:
    (embedded.folder / "shop.py").write_text(HELD)
    rows = [{"job_path": "shop.held", "args": [number]} for number in (2, 3)]
    ids = embedded.create_many(rows)
    arguments = ("-n", "2", "--until-empty", "--allow-module", "shop")
    first: Fleet = start(embedded, *arguments)
    until(lambda: marks(embedded.folder).total() == 2)
    killed_unheard(first, embedded.folder / "gate")
    until(lambda: "never run again" in first.call("why", ids[0]).stdout)
    second: Fleet = start(embedded, *arguments)
    assert second.wait() == 0, second.said()
    assert marks(embedded.folder) == {2: 1, 3: 1}, "nothing was called twice"
    assert second.journal("started") == []
    for issue_id, square in zip(ids, (4, 9), strict=True):
        shown = json.loads(second.call("show", issue_id, "--json").stdout)
        assert (shown["status"], shown["result"]) == ("closed", {"square": square})
    report = json.loads(second.call("report", first.run_id, "--json").stdout)
    assert {each["outcome"] for each in report["attempts"]} == {"success"}
    assert {each["fate"] for each in report["issues"]} == {"closed"}
    second.leaves_nothing()


def test_a_task_of_dispatcherd_that_was_done_is_not_called_interrupted(
    embedded: EmbeddedProject, start: StartFleet
) -> None:
    (embedded.folder / "shop.py").write_text(HELD)
    where = embedded.folder / "socket"
    source = ("-n", "1", "--source", f"dispatcherd+unix://{where}", "--allow-module", "shop")
    first: Fleet = start(embedded, *source)
    until(lambda: listens(where))
    with socket.socket(socket.AF_UNIX) as publisher:
        publisher.connect(str(where))
        publisher.sendall(b'{"task": "shop.held", "args": [2], "uuid": "u2"}\n')
    until(lambda: marks(embedded.folder))
    killed_unheard(first, embedded.folder / "gate")
    second: Fleet = start(embedded, *source, "--until-empty")
    assert second.wait() == 0, second.said()
    assert marks(embedded.folder) == {2: 1} and "not run twice" not in second.said()
    assert [r["outcome"] for r in first.journal("finished")] == ["success"]
    second.leaves_nothing()


def test_of_thousands_of_short_functions_only_what_was_cut_off_runs_again(
    embedded: EmbeddedProject, start: StartFleet
) -> None:
    (embedded.folder / "shop.py").write_text(SHOP)
    count = 1500
    rows = [{"id": f"bw-{n}", "job_path": "shop.mark_late", "args": [n]} for n in range(count)]
    embedded.create_many(rows)
    arguments = ("-n", "2", "--allow-module", "shop")
    first: Fleet = start(embedded, *arguments)
    until(lambda: marks(embedded.folder).total() > 300)
    os.kill(first.pid, signal.SIGKILL)
    second: Fleet = start(embedded, *arguments, "--until-empty")
    assert second.wait() == 0, second.said()
    found = marks(embedded.folder)
    assert len(found) == count
    assert found.total() - count <= 2, "what two workers were in the middle of"
    second.leaves_nothing()
