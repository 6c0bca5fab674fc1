"""Numbers of worktrees and their worlds, with real git: unique, torn down once, never another's."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from beads_workers.agents import adapter
from beads_workers.checks import leftovers
from beads_workers.core.base.plain import to_plain
from beads_workers.core.base.settings import WorktreeRules
from beads_workers.core.base.worlds import REFUSED, WorldRules, read_slots, read_variables
from beads_workers.worktrees import pool, removal, slots
from beads_workers.worktrees.making import CannotPrepare
from tests.support.fleet import until
from tests.support.worktrees import Place, World, ruled

ENV = (("PORT", "{port}"), ("DB", "app_{slot}"), ("OF", "{issue} in {worktree}"))


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    made = tmp_path / "slots"
    monkeypatch.setenv(slots.VARIABLE, str(made))
    return made


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path)
    world.settings = replace(world.settings, folder=str(tmp_path / "trees"))
    yield world
    world.end_run()


def rules(project: World, **others: Any) -> World:
    """A project whose worlds are files ``db-N``, which may not be there twice."""
    base = Path(project.settings.checkout).parent
    lines = {
        "world": f'mkdir "{base}/db-$BW_SLOT" && echo "made $BW_SLOT" >>"{base}/said"',
        "teardown": f'rm -rf "{base}/db-$BW_SLOT"; echo "ended $BW_SLOT" >>"{base}/said"',
    }
    project.settings = ruled(project.settings, worlds=WorldRules(**{**lines, **others}))
    return project


def said(world: World) -> list[str]:
    return (Path(world.settings.checkout).parent / "said").read_text().splitlines()


def noted(world: World) -> list[tuple[str, int]]:
    lines = (world.state / slots.LOG).read_text().splitlines()
    return [(row["what"], row["slot"]) for row in map(json.loads, lines)]


def slot_of(place: Place) -> str:
    return place.environment["BW_SLOT"]


# --- numbers --------------------------------------------------------------------------------------


def test_each_worktree_has_its_own_number_and_what_is_derived(world: World) -> None:
    rules(world, env=ENV)
    one, two = world.make("bw-1.2"), world.make("bw-2", worker="W2")
    assert (slot_of(one), slot_of(two)) == ("0", "1")
    assert one.environment["PORT"] == "20000" and two.environment["PORT"] == "20010"
    assert two.environment["DB"] == "app_1"
    assert one.environment["OF"] == f"bw_1_2 in {one.record.path}"


def test_a_removed_worktree_gives_its_number_back_and_it_is_used_again(world: World) -> None:
    rules(world)
    one = world.make("bw-1")
    world.make("bw-2", worker="W2")
    removal.tidy(world.records, [one.record])
    assert slots.claim_of(one.record.path) is not None, "its run is alive, and so it stays"
    world.end_run()
    removal.tidy(world.records, [one.record])
    assert slots.claim_of(one.record.path) is None
    assert said(world) == ["made 0", "made 1", "ended 0"]


def test_two_projects_and_another_user_never_share_a_number(tmp_path: Path, folder: Path) -> None:
    first, second = rules(World(tmp_path / "a")), rules(World(tmp_path / "b"))
    one = first.make("bw-1")
    (folder / f"1.{os.getuid() + 1}").touch()
    two = second.make("bw-1")
    assert (slot_of(one), slot_of(two)) == ("0", "2")


def test_a_block_with_a_port_in_use_is_skipped(world: World) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        base = taken.getsockname()[1] - 3
        rules(world, env=(("PORT", "{port}"),), port_base=base)
        place = world.make("bw-1")
    assert int(slot_of(place)) >= 1
    assert place.environment["PORT"] == str(base + 10 * int(slot_of(place)))


def test_without_a_free_number_no_attempt_begins(world: World) -> None:
    rules(world, slots=(3, 3))
    one = world.make("bw-1")
    with pytest.raises(CannotPrepare, match="no slot of 3-3 is free"):
        world.make("bw-2", worker="W2")
    assert slot_of(one) == "3" and said(world) == ["made 3"]


def test_what_waits_gives_its_number_up_and_has_its_world_again(world: World) -> None:
    rules(world, slots=(3, 3))
    one = world.make("bw-1")
    (one.folder / "work").write_text("not committed")
    world.end_run()
    world.run_id, world._alive = world.runs.create_run()
    two = world.make("bw-2")
    assert slot_of(two) == "3" and said(world) == ["made 3", "ended 3", "made 3"]
    world.end_run()
    world.run_id, world._alive = world.runs.create_run()
    again = world.make("bw-1", continues=True)
    assert again.record.path == one.record.path and (again.folder / "work").exists()
    assert slot_of(again) == "3" and said(world)[3:] == ["ended 3", "made 3"]


# --- worlds ---------------------------------------------------------------------------------------


def test_a_worktree_used_again_has_a_new_world_and_its_set_up(world: World) -> None:
    rules(world, env=ENV)
    setup = 'echo "$PORT" >>set-up.local'
    world.settings = replace(ruled(world.settings, setup=setup), reuse=2)
    one = world.make("bw-1")
    world.records.set_over(one.record, one.record.base)
    two = world.make("bw-2")
    assert two.record.path == one.record.path and slot_of(two) == slot_of(one)
    assert (two.folder / "set-up.local").read_text() == "20000\n", "set-up ran once"
    assert said(world) == ["made 0", "ended 0", "made 0"]
    assert noted(world) == [("begun", 0), ("ended", 0), ("begun", 0)]


def test_the_pool_sets_up_with_a_number_and_makes_no_world(world: World) -> None:
    rules(world, env=ENV)
    world.settings = ruled(world.settings, setup='echo "$PORT" >set-up.local', pool=1)
    record = pool.make_free(world.settings, world.records, world.run_id)
    assert Path(record.path, "set-up.local").read_text() == "20000\n"
    assert not (Path(world.settings.checkout).parent / "said").exists()
    place = world.make("bw-1")
    assert place.record.path == record.path and said(world) == ["made 0"]


def test_a_world_that_fails_is_torn_down_and_no_attempt_begins(world: World) -> None:
    rules(world, world="false")
    with pytest.raises(CannotPrepare, match="world failed: exit status 1"):
        world.make("bw-1")
    assert said(world) == ["ended 0"]


def test_a_failed_tear_down_is_said_and_loses_nothing(
    world: World, capfd: pytest.CaptureFixture[str]
) -> None:
    rules(world, teardown="exit 3", world=None)
    world.make("bw-1")
    world.make("bw-2")
    assert "warning: teardown of slot 0: exit status 3" in capfd.readouterr().out
    assert noted(world)[:2] == [("begun", 0), ("ended", 0)]


@pytest.mark.parametrize("at", ["world", "teardown"])
def test_a_killed_step_leaves_a_debt_that_is_paid_once(
    world: World, at: str, tmp_path: Path
) -> None:
    hangs = f'touch "{tmp_path}/there"; exec sleep 1000'
    rules(world, **{at: hangs})
    asked = replace(world.asked("bw-1"), worktrees=world.settings)
    process = in_process(f"prepare(read_preparation({json.dumps(to_plain(asked))!r}))")
    if at == "teardown":
        assert process.wait(30) == 0
        world.end_run()
        process = in_process(f"slots.settle({str(world.state)!r})")
    until((tmp_path / "there").exists)
    process.send_signal(signal.SIGKILL)
    process.wait()
    world.end_run()
    (claim,) = slots.claims()
    assert claim.world
    for pid in subprocess.run(
        ["pgrep", "-f", "^sleep 1000$"], capture_output=True, text=True
    ).stdout.split():
        if Path(f"/proc/{pid}/cwd").readlink().is_relative_to(tmp_path):
            os.kill(int(pid), signal.SIGKILL)
    paid = replace(claim, teardown=f'echo "paid" >>"{tmp_path}/said"')
    slots._write(paid)
    assert slots.settle(str(world.state)) == [] and slots.settle(str(world.state)) == []
    assert (tmp_path / "said").read_text().splitlines().count("paid") == 1
    assert [what for what, _ in noted(world)] == ["begun", "ended"]


def in_process(line: str) -> subprocess.Popen[bytes]:
    code = f"""\
from beads_workers.worktrees import slots
from beads_workers.worktrees.orders import read_preparation
from beads_workers.worktrees.preparation import prepare
{line}
"""
    return subprocess.Popen([sys.executable, "-c", code])


def test_the_doctor_names_a_debt_and_clean_pays_for_a_project_that_is_gone(
    world: World, tmp_path: Path
) -> None:
    rules(world)
    world.make("bw-1")
    assert leftovers.owed(world.state) == []
    world.end_run()
    (here,) = leftovers.owed(world.state)
    (there,) = leftovers.owed(tmp_path)
    assert (here.remedy, there.remedy) == ("beads-workers clean", "beads-workers clean --slot 0")
    shutil.rmtree(world.top)
    words = [sys.executable, "-m", "beads_workers", "clean", "--slot", "0"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0 and "freed slot 0" in done.stdout, done
    assert said(world) == ["made 0", "ended 0"] and slots.claims() == []
    assert subprocess.run(words, cwd=tmp_path, capture_output=True).returncode == 4


def test_nothing_is_torn_down_in_which_an_attempt_works(world: World) -> None:
    rules(world)
    one = world.make("bw-1")
    assert slots.settle(str(world.state)) == [] and said(world) == ["made 0"]
    world.end_run()
    (one.folder / "work").write_text("not committed")
    assert slots.settle(str(world.state)) == [] and said(world) == ["made 0", "ended 0"]
    assert (one.folder / "work").exists() and slots.claim_of(one.record.path) is not None


def test_a_world_is_torn_down_with_what_it_began_with(world: World, tmp_path: Path) -> None:
    ends = f'echo "$OF" >>"{tmp_path}/ended"'
    rules(world, env=(("OF", "{issue}"),), world="true", teardown=ends)
    world.settings = replace(world.settings, reuse=2)
    one = world.make("bw-1", worker="W1")
    world.end_run()
    world.records.set_over(one.record, one.record.base)
    world.run_id, world._alive = world.runs.create_run()
    two = world.make("bw-2", worker="W2")
    assert two.record.path == one.record.path and two.environment["OF"] == "bw_2"
    assert (tmp_path / "ended").read_text() == "bw_1\n"


def test_a_number_that_has_changed_hands_is_left_alone(world: World) -> None:
    rules(world, slots=(3, 3))
    one = world.make("bw-1")
    stale = slots.claim_of(one.record.path)
    assert stale is not None
    world.end_run()
    assert slots.give_up(stale) == ""
    other = rules(World(world.top.parent / "other"), slots=(3, 3))
    two = other.make("bw-1")
    assert slots.give_up(stale) is None and slots.claim_of(one.record.path) is None
    with pytest.raises(slots.NoSlot), slots.held(stale):
        pass
    assert slots.claim_of(two.record.path) is not None and said(other) == ["made 3"]
    other.end_run()


def test_nothing_of_others_is_written_to(world: World, folder: Path, tmp_path: Path) -> None:
    folder.mkdir()
    (tmp_path / "mine").write_text("precious")
    (folder / f"0.{os.getuid()}.new").symlink_to(tmp_path / "mine")
    assert slot_of(world.make("bw-1")) == "0"
    assert (tmp_path / "mine").read_text() == "precious"


# --- settings -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["PATH", "HOME", "GIT_DIR", "BW_SLOT", "LD_PRELOAD", "GH_TOKEN"])
def test_a_project_does_not_set_what_is_not_its_own(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name} is not the project's to set"):
        read_variables({name: "x"})


def test_no_account_of_an_agent_is_the_project_s_to_set() -> None:
    for each in adapter.names():
        for variable in adapter.load(each).account_variables:
            name = variable if not variable.endswith("_") else f"{variable}KEY"
            with pytest.raises(ValueError, match="is not the project's to set"):
                read_variables({name: "x"})
    assert len(REFUSED) == len({*REFUSED})


def test_templates_and_numbers_are_checked() -> None:
    assert read_variables({"PORT": "{port}"}) == (("PORT", "{port}"),)
    for wrong in ({"A": "{nothing}"}, {"A": 1}, {"a b": "x"}, "A", {"A": "x\ny"}):
        with pytest.raises(ValueError, match=r"\w"):
            read_variables(wrong)
    assert read_slots("20-39") == (20, 39)
    for text in ("9-1", "x", "0-1000", 3):
        with pytest.raises(ValueError, match="two numbers"):
            read_slots(text)
    assert WorktreeRules().worlds == WorldRules()
