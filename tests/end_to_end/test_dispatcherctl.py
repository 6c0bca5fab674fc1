"""The real ``dispatcherctl`` asks any fleet, and hears what the real dispatcherd would say."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end.conftest import StartFleet
from tests.end_to_end.test_rrq_executor import FUNCTIONS, Folder
from tests.support.bd import VERSIONS, BdProject
from tests.support.dispatcherd import Dispatcherd, Server, configuration, write
from tests.support.embedded import EmbeddedProject
from tests.support.fleet import Fleet, until
from tests.support.hero_client import HeroPlace, TextbookClient
from tests.support.peers import Redis
from tests.support.rrq_client import Client, request
from tests.support.versions import ANY

COMMANDS = (
    "running", "alive", "aio_tasks", "workers", "producers", "metrics", "main", "status", "chunks",
)  # fmt: skip
"""Those that change nothing and need no options."""

ASK_ALL = """
from dispatcherd.factories import get_control_from_settings
control = get_control_from_settings()
def ask(command, **data):
    (reply,) = control.control_with_reply(command, data=data, timeout=20)
    return reply
out = {command: ask(command) for command in sys.argv[2].split(",")}
out["level"] = [ask("set_log_level", level=level) for level in ("INFO", 10, "loud", True, None)]
out["unknown"] = ask("dance")
out["by_uuid"] = ask("running", uuid="nobody has this one")
out["again"] = [sorted(ask("running", task=name)) for name in ("dispatched", "dispatched.sleep")]
"""


def shape(value: Any) -> Any:
    """What an answer is made of: its keys, with numbers and names of producers left out."""
    if isinstance(value, dict):
        named = {re.sub(r"^\w+-producer$", "a-producer", key): v for key, v in value.items()}
        return {re.sub(r"-\d+$", "-N", key): shape(inner) for key, inner in named.items()}
    return type(value).__name__


@pytest.fixture
def real(tmp_path: Path) -> Iterator[tuple[Dispatcherd, Path]]:
    """A real dispatcherd whose two workers are busy."""
    dispatcherd = Dispatcherd()
    folder = tmp_path / "real"
    folder.mkdir()
    config = write(configuration(socket=folder / "socket", producers={}), folder)
    server = Server(dispatcherd, config)
    script = "for n in range(2): dispatched.sleep.delay(1000 + n)"
    dispatcherd.script(config, script)
    yield dispatcherd, config
    server.close()


def config_of(fleet: Fleet, *options: str) -> Path:
    """Where a person lets ``dispatcherctl`` look for it."""
    path = fleet.project.folder / "dispatcher.yml"
    assert fleet.call("dispatcherd-config", "--write", str(path), *options).returncode == 0
    return path


def busy(fleet: Fleet, workers: int) -> None:
    """Wait until so many tasks run."""
    until(lambda: len(fleet.journal("started")) >= workers, what=fleet.said())


def test_every_answer_is_made_as_the_real_one_makes_it(
    real: tuple[Dispatcherd, Path], tmp_path: Path, start: StartFleet
) -> None:
    dispatcherd, config = real
    project = EmbeddedProject(tmp_path)
    (project.folder / "dispatched.py").write_text(
        "from time import sleep as _s\ndef sleep(seconds): _s(seconds)\n"
    )
    project.create_many(
        [{"id": f"bw-{n}", "job_path": "dispatched.sleep", "args": [1000 + n]} for n in range(2)]
    )
    fleet = start(project, "-n", "2", "--allow-module", "dispatched")
    busy(fleet, 2)
    ours = dispatcherd.script(config_of(fleet), ASK_ALL, ",".join(COMMANDS))
    until(lambda: len(dispatcherd.reply(config, "running")) == 3)
    theirs = dispatcherd.script(config, ASK_ALL, ",".join(COMMANDS))
    for answers in (ours, theirs):
        # Of its own are the real one's asyncio, and what it remembers of sizes its pool has had.
        answers["aio_tasks"] = {"node_id": ""}
        answers["status"]["aio_tasks"] = {}
        for main in (answers["main"], answers["status"]["main"]):
            usage = main["pool"]["usage"]
            usage["top5"] = usage["near_worker_ct"] = {}
    assert shape(ours) == shape(theirs)
    assert [list(each) for each in ours["level"]] == [list(each) for each in theirs["level"]]
    assert ours["level"][:2] == [{**each, "node_id": fleet.run_id} for each in theirs["level"][:2]]
    assert ours["unknown"]["error"] == theirs["unknown"]["error"]
    assert [len(each) for each in ours["again"]] == [len(each) for each in theirs["again"]]
    assert ours["main"]["pool"]["running_ct"] == theirs["main"]["pool"]["running_ct"] == 2
    tasks = [
        sorted((m["task"], m["args"]) for name, m in each["running"].items() if name != "node_id")
        for each in (ours, theirs)
    ]
    assert tasks[0] == tasks[1]


@pytest.mark.parametrize("tracker", ["embedded", *VERSIONS], ids=ANY)
def test_all_its_commands_work_on_a_fleet_of_any_tracker(
    tracker: str, tmp_path: Path, start: StartFleet
) -> None:
    dispatcherd = Dispatcherd()
    project: EmbeddedProject | BdProject = (
        EmbeddedProject(tmp_path) if tracker == "embedded" else BdProject(tmp_path, tracker)
    )
    # Longer than one chunk of a reply, so that it comes in several.
    issue_ids = project.create_many([{"title": f"{n} " + "x" * 400} for n in range(3)])
    fleet = start(project, "-n", "3", "--", "sleep", "1000")
    busy(fleet, 3)
    config = config_of(fleet)
    assert dispatcherd.reply(config, "running")["node_id"] == fleet.run_id
    *shown, told, one = dispatcherd.replies_of(
        config,
        *((command,) for command in COMMANDS),
        ("set_log_level", "--level", "INFO"),
        ("cancel", "--uuid", issue_ids[0]),
    )
    assert {reply["node_id"] for reply in shown} == {fleet.run_id}
    assert (told["level"], told["previous_level"]) == ("INFO", "NOTSET")
    assert [m["uuid"] for name, m in one.items() if name != "node_id"] == [issue_ids[0]]
    fleet.wait_for("settled", issue_id=issue_ids[0], action="release")
    rest = dispatcherd.reply(config, "cancel")
    assert {m["uuid"] for name, m in rest.items() if name != "node_id"} == set(issue_ids[1:])
    for issue_id in issue_ids[1:]:
        fleet.wait_for("settled", issue_id=issue_id, action="release")
    assert dispatcherd.reply(config, "running") == {"node_id": fleet.run_id}
    assert fleet.status()["queue"]["on_hold"] == 3


def test_a_function_for_rrq_is_shown_and_cancelled(tmp_path: Path, start: StartFleet) -> None:
    dispatcherd = Dispatcherd()
    place = Folder(tmp_path)
    state = place.folder / ".beads-workers" / "rrq" / "1"
    options = ("--state-dir", str(state), "-n", "1", *FUNCTIONS)
    fleet = start(place, *options, verb="rrq-executor").started()
    with Client(place.socket) as client:
        resting = request("rest")
        client.send(resting)
        busy(fleet, 1)
        config = config_of(fleet, "--state-dir", str(state))
        shown = dispatcherd.reply(config, "running")
        assert shown["worker-1"]["task"].endswith("rest") and shown["worker-1"]["channel"] == "rrq"
        dispatcherd.reply(config, "cancel", "--task", shown["worker-1"]["task"])
        answer = client.answer()
        assert answer is not None and answer.error is not None
        assert answer.error.type == "cancelled"


def test_a_script_of_hero_is_shown_and_stopped_for_good(
    tmp_path: Path, redis: Redis, start: StartFleet
) -> None:
    dispatcherd = Dispatcherd()
    place, client = HeroPlace(tmp_path, redis), TextbookClient(redis)
    fleet = start(place, *place.arguments("-n", "1")).started()
    client.submit("long", "echo x >>ran; sleep 1000", retries="3")
    until(lambda: place.ran("ran"))
    config = config_of(fleet)
    shown = dispatcherd.reply(config, "running")
    assert (shown["worker-1"]["uuid"], shown["worker-1"]["task"]) == ("long", "hero.script")
    dispatcherd.reply(config, "cancel", "--uuid", "long")
    assert client.reply("long") == client.field("long", "error") == "stopped_by_request"
    assert place.ran("ran") == ["x"]
