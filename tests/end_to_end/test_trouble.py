"""``bd`` in trouble, switched on and off under a running fleet: a failure is never an answer."""

from __future__ import annotations

import os
import signal
from collections import Counter
from pathlib import Path

import pytest

from tests.end_to_end.conftest import Ran, StartFleet
from tests.support.bd import NEW, OLD, BdProject, bd_program
from tests.support.fleet import Fleet, call, until

pytestmark = pytest.mark.daily(2)

WRAPPER = """#!/bin/sh
# What "mode" holds decides; "mode-VERB" does for one subcommand only.
here={folder}
mode=$(cat $here/mode 2>/dev/null)
for word in "$@"; do
  [ -e "$here/mode-$word" ] && mode=$(cat "$here/mode-$word")
done
case $mode in
  exit) echo 'Error: the disk is on fire' >&2; exit 1 ;;
  hang) exec sleep 600 ;;
  garbage) printf 'Segmentation \\033[31mfault\\377\\n[[[{{'; exit 0 ;;
  object) echo '{{"error": "database is locked"}}'; exit 0 ;;
  empty) exit 0 ;;
esac
exec {bd} "$@"
"""


class SwitchableBd:
    """A ``bd`` in front of the real one; ``say`` makes it fail, for all calls or for some."""

    def __init__(self, project: BdProject, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        program = folder / "bd"
        program.write_text(WRAPPER.format(folder=folder, bd=bd_program(project.version)))
        program.chmod(0o755)
        self.environment = {"PATH": f"{folder}:{project.environment['PATH']}"}

    def say(self, mode: str, verb: str = "") -> None:
        """From the next call on."""
        fresh = self.folder / "fresh"
        fresh.write_text(mode)
        fresh.replace(self.folder / (f"mode-{verb}" if verb else "mode"))

    def heal(self) -> None:
        """All is well again."""
        for file in self.folder.glob("mode*"):
            file.unlink()


@pytest.fixture
def switchable(bd_project: BdProject, tmp_path: Path) -> SwitchableBd:
    return SwitchableBd(bd_project, tmp_path / "wrapped")


@pytest.mark.share(2)
@pytest.mark.parametrize(
    ("bd_project", "mode"),
    [(OLD, "exit"), (OLD, "garbage"), (OLD, "object"), (OLD, "empty"), (NEW, "object")],
    indirect=["bd_project"],
)
def test_workers_wait_while_bd_fails_and_go_on_when_it_works_again(
    bd_project: BdProject, switchable: SwitchableBd, start: StartFleet, ran: Ran, mode: str
) -> None:
    ids = bd_project.create_many([{} for _ in range(6)])
    fleet: Fleet = start(
        bd_project,
        *("-n", "2", "--until-empty", "--"),
        *ran.command('while ! [ -e "$RAN.gate" ]; do sleep 0.2; done'),
        environment={**ran.environment, **switchable.environment},
    )
    until(lambda: len(ran.begun()) == 2)
    switchable.say(mode)
    Path(f"{ran.file}.gate").touch()
    until(lambda: len(ran.ended()) >= 2)
    fleet.wait_for("source_trouble")
    source = fleet.status()["source_state"]
    assert source["state"] in ("backing_off", "failing")
    assert source["error"]
    assert source["retry_in_seconds"] is not None
    shown = fleet.call("status").stdout
    assert "tracker" in shown
    assert "\x1b" not in shown + fleet.output
    # Nobody did anything to what the fleet does not hold.
    statuses = [status for status, _ in bd_project.read_all().values()]
    assert statuses.count("closed") == 0
    assert fleet.process.poll() is None
    switchable.heal()
    assert fleet.wait() == 0, fleet.said()
    ran.each_once(ids)
    assert {s for s, _ in bd_project.read_all().values()} == {"closed"}
    assert "answers again" in fleet.output
    fleet.leaves_nothing()


@pytest.mark.parametrize("bd_project", [OLD], indirect=True)
def test_a_bd_that_hangs_holds_up_nobody_else(
    bd_project: BdProject, switchable: SwitchableBd, start: StartFleet, ran: Ran
) -> None:
    ids = bd_project.create_many([{} for _ in range(3)])
    fleet: Fleet = start(
        bd_project,
        *("-n", "1", "--until-empty", "--bd-timeout", "4s", "--"),
        *ran.command('while ! [ -e "$RAN.gate" ]; do sleep 0.2; done'),
        environment={**ran.environment, **switchable.environment},
    )
    until(ran.begun)
    switchable.say("hang")
    Path(f"{ran.file}.gate").touch()
    until(ran.ended)
    until(lambda: _running_call(fleet))
    # The fleet answers, and a worker in the middle of a conversation is told to wait.
    assert fleet.status()["queue"]["unclosed"] == 1
    switchable.heal()
    assert fleet.wait() == 0, fleet.said()
    assert "did not answer in 6 s" in fleet.output
    ran.each_once(ids)
    fleet.leaves_nothing()


@pytest.mark.parametrize("bd_project", [OLD], indirect=True)
def test_a_start_asks_again_what_may_pass(
    bd_project: BdProject, switchable: SwitchableBd, start: StartFleet, ran: Ran
) -> None:
    ids = bd_project.create_many([{}])
    switchable.say("object")
    environment = {**ran.environment, **switchable.environment}
    fleet: Fleet = start(
        bd_project, "-n", "1", "--until-empty", "--", *ran.command(), environment=environment
    )
    until(lambda: "asked again in 1 s" in fleet.errors)
    switchable.heal()
    assert fleet.wait() == 0, fleet.said()
    ran.each_once(ids)


def _running_call(fleet: Fleet) -> int:
    calls = [r for r in fleet.journal() if r["e"] in ("call_started", "call_ended")]
    return int(calls[-1]["pid"]) if calls and calls[-1]["e"] == "call_started" else 0


def test_a_close_that_fails_is_tried_again_and_its_work_is_not(
    bd_project: BdProject, switchable: SwitchableBd, start: StartFleet, ran: Ran
) -> None:
    ids = bd_project.create_many([{} for _ in range(4)])
    for verb in ("close", "batch", "--status=closed", "closed"):
        switchable.say("exit", verb)
    fleet: Fleet = start(
        bd_project,
        *("-n", "2", "--until-empty", "--"),
        *ran.command(),
        environment={**ran.environment, **switchable.environment},
    )
    until(lambda: len(ran.ended()) >= 2)
    until(lambda: fleet.status()["queue"]["unclosed"] >= 1)
    assert {s for s, _ in bd_project.read_all().values()} <= {"open", "in_progress"}
    switchable.heal()
    assert fleet.wait() == 0, fleet.said()
    ran.each_once(ids)
    assert {s for s, _ in bd_project.read_all().values()} == {"closed"}
    fleet.leaves_nothing()


def test_what_is_done_and_unclosed_is_closed_by_the_next_start_and_not_run_again(
    bd_project: BdProject, switchable: SwitchableBd, start: StartFleet, ran: Ran
) -> None:
    ids = bd_project.create_many([{} for _ in range(4)])
    for verb in ("close", "batch", "--status=closed", "closed"):
        switchable.say("exit", verb)
    arguments = ("-n", "2", "--until-empty", "--", *ran.command())
    first: Fleet = start(
        bd_project, *arguments, environment={**ran.environment, **switchable.environment}
    )
    until(lambda: len(ran.ended()) >= 2 and first.status()["queue"]["unclosed"] >= 2)
    os.kill(first.pid, signal.SIGKILL)
    first.wait()
    done = list(ran.ended())
    switchable.heal()
    second: Fleet = start(bd_project, *arguments, environment=ran.environment)
    assert second.wait() == 0, second.said()
    assert Counter(ran.ended()) == Counter(ids)
    assert set(done) <= set(ids)
    assert {s for s, _ in bd_project.read_all().values()} == {"closed"}
    second.leaves_nothing()


def test_a_fleet_that_is_stopped_while_bd_fails_ends_and_the_next_settles(
    bd_project: BdProject, switchable: SwitchableBd, start: StartFleet, ran: Ran
) -> None:
    ids = bd_project.create_many([{} for _ in range(3)])
    arguments = ("-n", "2", "--until-empty", "--")
    first: Fleet = start(
        bd_project,
        *arguments,
        *ran.command('[ -e "$RAN.gate" ] || { sleep 600 & wait; }'),
        environment={**ran.environment, **switchable.environment},
    )
    until(lambda: len(ran.begun()) == 2)
    switchable.say("exit")
    first.process.send_signal(signal.SIGINT)
    first.wait_for("run_changed", state="settling")
    first.wait_for("source_trouble")
    os.kill(first.pid, signal.SIGKILL)
    first.wait()
    switchable.heal()
    Path(f"{ran.file}.gate").touch()
    second: Fleet = start(bd_project, *arguments, *ran.command(), environment=ran.environment)
    assert second.wait() == 0, second.said()
    assert Counter(ran.ended()) == Counter(ids)
    second.leaves_nothing()


def test_a_start_that_the_tracker_refuses_does_not_hide_last_night(
    project_new: BdProject, start: StartFleet, ran: Ran, tmp_path: Path
) -> None:
    (issue,) = project_new.create_many([{}])
    switch = SwitchableBd(project_new, tmp_path / "switch")
    environment = {**ran.environment, **switch.environment}
    night = start(
        project_new, "-n", "1", "--until-empty", "--", *ran.command(), environment=environment
    )
    assert night.wait() == 0
    switch.say("exit")
    morning = start(
        project_new, "-n", "1", "--until-empty", "--", *ran.command(), environment=environment
    )
    assert (morning.wait(), "the disk is on fire" in morning.errors) == (6, True)
    assert len(list((project_new.folder / ".beads-workers" / "runs").iterdir())) == 2
    for command in ("report", "status", "runs"):
        assert night.run_id in call(project_new, command).stdout, command
    assert issue in call(project_new, "logs").stdout
    assert issue in call(project_new, "replay", "--speed", "1000").stdout
