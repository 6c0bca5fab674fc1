"""The dashboard in real terminals: looked at, steered by keys, left in every way."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
from collections.abc import Iterator
from math import floor
from pathlib import Path

import pytest

from beads_workers.core.views.status import FRAME_SECONDS
from tests.end_to_end.conftest import StartFleet
from tests.end_to_end.test_landing import repository
from tests.support.embedded import EmbeddedProject
from tests.support.fleet import call, until
from tests.support.screens import TmuxScreen

STEP = 'echo "hello from $BW_ISSUE_ID"; while [ ! -e "$PWD/go" ]; do sleep 0.2; done'


@pytest.fixture
def screens() -> Iterator[list[TmuxScreen]]:
    """Terminals; what runs in them ends with the test."""
    opened: list[TmuxScreen] = []
    yield opened
    for screen in opened:
        screen.close()


def open_screen(
    screens: list[TmuxScreen], project: EmbeddedProject, width: int = 80, height: int = 24
) -> TmuxScreen:
    """A shell in the project, with ``bw`` for ``beads-workers``."""
    screens.append(TmuxScreen())
    shell = screens[-1].start("", width, height, {"NO_COLOR": "1"}, project.folder)
    shell.type(f'bw() {{ {sys.executable} -m beads_workers "$@"; }}; stty -g > before; clear')
    return shell


def as_before(screen: TmuxScreen, project: EmbeddedProject) -> None:
    """The terminal is a shell's again: modes, cursor, screen."""
    # What is typed with the last key, in one read, is taken for text that was pasted.
    screen.wait_for(lambda text: text.rstrip().endswith("$"))
    screen.type("stty -g > after; echo back")
    screen.wait_for(lambda text: "\nback" in text)
    assert not screen.has("alternate_on") and screen.has("cursor_flag")
    assert not screen.has("mouse_any_flag") and not screen.has("mouse_sgr_flag")
    read = [(project.folder / name).read_text() for name in ("before", "after")]
    assert read[0] == read[1]


def test_a_whole_run_is_seen_steered_and_summed_up(
    embedded: EmbeddedProject, screens: list[TmuxScreen]
) -> None:
    embedded.create_many([{"title": f"Mend number {n}"} for n in range(6)])
    screen = open_screen(screens, embedded)
    screen.type(f"bw start -n 2 --until-empty -- sh -c '{STEP}'")
    shown = screen.wait_for(lambda text: "2 busy" in text and "bw-2" in text)
    assert "ready 4" in shown and "Mend number 1" in shown and "0/6 closed" in shown
    # Whichever worker was ready first has the first issue.
    (of_first,) = re.findall(r"W1 .* (bw-[12]) ", shown)
    (of_second,) = re.findall(r"W2 .* (bw-[12]) ", shown)

    screen.keys("Down", "l")
    # Not before the log is there: Escape and a key after it in one read are another key.
    screen.wait_for(lambda text: "/ find" in text and f"hello from {of_second}" in text)
    screen.keys("Escape")
    screen.wait_for("workers 1-2 of 2")
    screen.keys("p")
    screen.wait_for(lambda text: "paused" in text and "-> resume" in text)
    screen.keys("p")
    screen.wait_for(lambda text: "paused" not in text)
    screen.keys("+")
    screen.wait_for("workers 1-3 of 3, 3 busy")
    screen.keys("x")
    screen.wait_for(lambda text: f"release {of_second} (" in text and "y yes, n no" in text)
    screen.keys("y")
    screen.wait_for("requeued")
    screen.resize(120, 30)
    screen.wait_for(
        lambda text: len(text.splitlines()) == 30 and "q leave" in text.splitlines()[29]
    )
    screen.keys("?")
    screen.wait_for("open the attempt of the row")
    screen.keys("?")
    screen.resize(160, 40)
    screen.keys("/")
    screen.type(of_first)
    screen.wait_for(lambda text: f"W1 runs {of_first}, attempt 1" in text and "with '" in text)
    screen.wait_for(f"hello from {of_first}")
    screen.keys("Escape")

    (embedded.folder / "go").touch()
    shown = screen.wait_for("next: ")
    assert re.search(r"closed 5, failed attempts 0, quarantined 0, requeued [01]", shown)
    as_before(screen, embedded)


def test_the_backlog_is_looked_at_and_all_of_one_cause_is_tried_again_with_three_keys(
    embedded: EmbeddedProject, screens: list[TmuxScreen]
) -> None:
    waits = {"dependencies": [{"depends_on_id": "bw-4", "type": "blocks"}], "title": "Waits"}
    embedded.create_many([{"priority": 0}] * 3 + [{"title": "Runs"}, waits])
    script = (
        'case $BW_ISSUE_ID in bw-[123]) [ -e "$PWD/fixed" ] || { echo "no conf/$BW_ISSUE_ID.toml";'
        ' exit 1; };; *) while [ ! -e "$PWD/go" ]; do sleep 0.2; done;; esac'
    )
    screen = open_screen(screens, embedded)
    screen.type(f"bw start -n 1 --until-empty --max-attempts 1 -- sh -c '{script}'")
    screen.wait_for(lambda text: "1 busy" in text and "quar. 3" in text)
    screen.keys("5")
    shown = screen.wait_for(lambda text: "asked" in text and "blocked  1" in text)
    assert re.search(r"3 x +no #", shown) and re.search(r"bw-4 +P2 Runs +W1, ", shown)
    assert re.search(r"bw-5 +P2 Waits +by bw-4", shown)
    (embedded.folder / "fixed").touch()
    screen.keys("1")
    screen.wait_for("workers 1-1 of 1")
    screen.keys("3")
    screen.wait_for("quarantined: 3")
    screen.keys("r")
    screen.wait_for("try 3 issues again?")
    screen.keys("y")
    screen.wait_for("quarantined: 0")
    (embedded.folder / "go").touch()
    assert "closed 5, failed attempts 3, quarantined 3" in screen.wait_for("next: ")


def test_ctrl_c_requeues_what_runs_and_leaves_the_terminal_as_it_was(
    embedded: EmbeddedProject, screens: list[TmuxScreen]
) -> None:
    embedded.create_many([{}, {}])
    screen = open_screen(screens, embedded)
    screen.type(f"bw start -n 2 -- sh -c '{STEP}'; echo code $?")
    screen.wait_for("2 busy")
    screen.keys("C-c")
    screen.wait_for("code 130")
    assert "requeued 2" in screen.text()
    as_before(screen, embedded)
    assert {status for status, _ in embedded.read_all().values()} == {"open"}


@pytest.mark.parametrize("leaves", ["q", "C-c"])
def test_an_attempt_that_is_read_when_the_run_ends_stays_until_one_leaves(
    embedded: EmbeddedProject, screens: list[TmuxScreen], leaves: str
) -> None:
    embedded.create_many([{}])
    screen = open_screen(screens, embedded)
    screen.type(f"bw start -n 1 --until-empty -- sh -c '{STEP}; echo the end'; echo code $?")
    screen.wait_for("1 busy")
    screen.keys("Enter")
    screen.wait_for("hello from bw-1")
    (embedded.folder / "go").touch()
    shown = screen.wait_for("the run has ended; q goes back and leaves")
    assert " the end" in shown.splitlines() and "W1 ran bw-1, attempt 1" in shown
    until(lambda: call(embedded, "status").returncode == 3)
    screen.keys(leaves)
    shown = screen.wait_for(lambda text: re.search(r"^code \d", text, re.MULTILINE) is not None)
    assert "closed 1" in shown and "\ncode 0\n" in shown
    as_before(screen, embedded)


def test_leaving_the_fleet_in_the_background_lets_it_live(
    embedded: EmbeddedProject, screens: list[TmuxScreen]
) -> None:
    embedded.create_many([{}])
    screen = open_screen(screens, embedded)
    screen.type(f"bw start -n 1 -- sh -c '{STEP}'; echo code $?")
    screen.wait_for("1 busy")
    screen.keys("q")
    screen.wait_for("b let it run")
    screen.keys("b")
    screen.wait_for("code 0")
    as_before(screen, embedded)
    assert json.loads(call(embedded, "status", "--json").stdout)["running"]
    assert call(embedded, "stop", "--now").returncode == 0


def test_several_watch_and_come_and_go_and_the_fleet_does_not_notice(
    embedded: EmbeddedProject, screens: list[TmuxScreen], start: StartFleet
) -> None:
    embedded.create_many([{} for _ in range(3)])
    fleet = start(embedded, "-n", "3", "--", "sh", "-c", STEP).started()
    first, second = (open_screen(screens, embedded), open_screen(screens, embedded, 200, 50))
    for screen in (first, second):
        screen.type("echo $$ > pid; exec 3>&1; bw watch")
        screen.wait_for("3 busy")
    first.keys("w")
    first.wait_for("no live page")
    first.keys("x")  # Whatever the first worker has: they come in any order.
    first.wait_for(
        lambda text: re.search(r"release bw-\d \(number \d\)\? Its task", text) is not None
    )
    first.keys("n")
    first.wait_for("left as it is")
    first.keys("q")
    first.wait_for("left; the fleet goes on")
    as_before(first, embedded)
    # The other is killed: its terminal is lost for the moment, the fleet is not.
    pane = int(second.ask("pane_pid"))
    (watcher,) = [int(p) for p in Path(f"/proc/{pane}/task/{pane}/children").read_text().split()]
    os.kill(watcher, signal.SIGKILL)
    second.wait_for("Killed")
    status = fleet.status()
    assert status["running"] and status["queue"]["running"] == 3
    (embedded.folder / "go").touch()
    until(lambda: fleet.status()["totals"]["done"] == 3)


def test_the_mouse_the_palette_and_the_clipboard_and_every_way_out(
    embedded: EmbeddedProject, screens: list[TmuxScreen], start: StartFleet
) -> None:
    embedded.create_many([{"title": f"Mend number {n}"} for n in range(3)])
    fleet = start(embedded, "-n", "3", "--", "sh", "-c", STEP).started()
    screen = open_screen(screens, embedded, 100, 30)
    screen.type("bw watch")
    shown = screen.wait_for("3 busy").splitlines()
    assert screen.has("mouse_any_flag") and screen.has("mouse_sgr_flag")
    at = next(number for number, line in enumerate(shown, 1) if line.startswith(" W2 "))
    issue = re.findall(r"bw-\d", shown[at - 1])[0]
    screen.click(9, at)
    screen.wait_for(f"W2 runs {issue}, attempt 1")
    screen.click(9, at)
    screen.wait_for(lambda text: "/ find" in text and f"hello from {issue}" in text)
    screen.keys("c")
    screen.wait_for(f"copy: i {issue}; c beads-workers logs {issue}; l the line")
    screen.keys("c")
    screen.wait_for("the command was sent to the clipboard")
    until(lambda: screen.clipboard() == f"beads-workers logs {issue}", 10)
    screen.keys("C-z")
    screen.wait_for("Stopped")
    assert not screen.has("mouse_any_flag")
    screen.type("fg")
    screen.wait_for(f"hello from {issue}")
    until(lambda: screen.has("mouse_sgr_flag"), 10)
    screen.keys("Escape")
    screen.wait_for("3 busy")
    screen.keys(":")
    screen.wait_for("other list")
    screen.keys("p", "a", "u")
    screen.keys("Enter")
    screen.wait_for(lambda text: "paused" in text and "-> resume" in text)
    screen.keys("m")
    screen.wait_for("selects text again")
    assert not screen.has("mouse_any_flag")
    screen.keys("m")
    until(lambda: screen.has("mouse_sgr_flag"), 10)
    os.kill(fleet.status()["pid"], signal.SIGKILL)
    screen.wait_for("without a word")
    as_before(screen, embedded)


WORKS = (
    'echo "this is the long log of $BW_ISSUE_ID, which goes on beyond the screen: 3 and not 4";'
    ' echo "E: it failed";'
    ' case "$BW_ISSUE_ID" in bw-2) exit 1;; esac; echo "work of $BW_ISSUE_ID" >"$BW_ISSUE_ID.txt"'
)


def test_what_failed_and_what_landed_is_three_keys_away_and_stays_over_a_restart(
    embedded: EmbeddedProject, screens: list[TmuxScreen], start: StartFleet
) -> None:
    top = repository(embedded)
    embedded.create_many([{"title": f"Mend number {n}"} for n in (1, 2)])
    options = ("-n", "2", "--worktree", "--land", "--verify", "true", "--max-attempts", "2")
    fleet = start(embedded, *options, "--retry-delay", "0.1s", "--", "sh", "-c", WORKS).started()
    until(lambda: len(fleet.status()["quarantined"]) == 1 and fleet.status()["totals"]["done"])
    screen = open_screen(screens, embedded, 70, 24)
    screen.type("bw watch")
    screen.wait_for("quarantined after 2 attempts")

    screen.keys("Tab", "f", "Enter")
    screen.wait_for(lambda text: "ran bw-2, attempt 2 of 2" in text and "this is the" in text)
    assert "not 4" not in screen.text()
    screen.keys("w")
    screen.wait_for(lambda text: "not 4" in text and "bw-2 is quarantined: r try" in text)
    screen.keys("[")
    screen.wait_for("ran bw-2, attempt 1 of 2")
    screen.keys("y")
    screen.wait_for(lambda text: "quarantined after 2 attempts" in text and "> 1 " in text)
    screen.keys("S")
    screen.wait_for("save the why of bw-2: ~/bw-2.1.txt_")
    screen.keys("C-u")
    screen.wait_for("save the why of bw-2: _")
    for key in "saved":  # Many at once would be a paste.
        screen.keys(key)
    screen.wait_for("bw-2: saved_")
    screen.keys("Enter")
    screen.wait_for("lines in ")
    assert "> 1 " in (top / "saved").read_text()
    screen.keys("Escape")
    screen.wait_for("failed only")

    screen.keys("2", "f", "d")
    landed = screen.wait_for(lambda text: "+work of bw-1" in text)
    assert "ran bw-1, attempt 1: Mend number 1" in landed and "landed as " in landed
    first = fleet.status()["run_id"]
    assert call(embedded, "restart", "-d").returncode == 0
    until(lambda: json.loads(call(embedded, "status", "--json").stdout)["run_id"] != first)
    seen = screen.wait_for(lambda text: " running  1/2 closed" in text)
    assert seen.splitlines()[4:23] == landed.splitlines()[4:23]
    screen.keys("q")
    screen.wait_for("on bw-landing/main, landed only")
    assert call(embedded, "stop").returncode == 0
    as_before(screen, embedded)


def test_a_killed_client_of_start_is_a_graceful_stop(
    embedded: EmbeddedProject, screens: list[TmuxScreen]
) -> None:
    embedded.create_many([{}])
    screen = open_screen(screens, embedded)
    screen.type(f"bw start -n 1 -- sh -c '{STEP}'")
    screen.wait_for("1 busy")
    pane = int(screen.ask("pane_pid"))
    (client,) = [int(p) for p in Path(f"/proc/{pane}/task/{pane}/children").read_text().split()]
    os.kill(client, signal.SIGKILL)
    until(lambda: set(embedded.read_all().values()) == {("open", "")})
    until(lambda: call(embedded, "status").returncode == 3)


def test_watch_and_replay_show_the_same(
    embedded: EmbeddedProject, screens: list[TmuxScreen], start: StartFleet
) -> None:
    embedded.create_many([{"title": f"Mend number {n}", "priority": n % 5} for n in range(40)])
    script = '[ $(($(echo "$BW_ISSUE_ID" | tr -dc 0-9) % 7)) != 3 ] && sleep 0.3'
    options = ("-n", "2", "--until-empty", "--max-attempts", "2", "--retry-delay", "0.5s")
    fleet = start(embedded, *options, "--", "sh", "-c", script).started()
    watched = [json.loads(line) for line in call(embedded, "watch", "--json").stdout.splitlines()]
    assert fleet.process.wait(60) == 7
    lines = call(embedded, "replay", "--json").stdout.splitlines()
    replayed = [json.loads(line) for line in lines]
    # What workers answer to STATUS is asked while somebody looks, and kept nowhere; a frame in
    # which nothing else has come is shown live alone.
    for worker in (each for frame in watched for each in frame["workers"]):
        worker["status"] = worker["progress"] = None
    ends = {(floor(record["m"] / FRAME_SECONDS) + 1) * FRAME_SECONDS for record in fleet.journal()}
    of_records = [frame for frame in watched if frame["uptime_seconds"] in ends]
    # The first one is of the moment at which somebody came; the others are those of the run.
    others = [json.dumps(f) for f in of_records if f is not watched[0] and f not in replayed]
    assert len(watched) > 10 and not others, "\n".join([*others, "", *lines])
    last = replayed[-1]
    assert last["ended"] == {"exit_code": 7, "reason": "idle_timeout"}

    from beads_workers.ui.dashboard import draw
    from beads_workers.ui.viewer import Renderer, Role, Screen

    picture = draw(last, Screen(Role.REPLAY), 0.0, 80, 24)
    expected = Renderer({"NO_COLOR": "1", "TERM": "dumb"}).lines(picture, 80, 24)
    plain = [re.sub(r"\x1b\[[0-9;]*m", "", line).rstrip() for line in expected]
    screen = open_screen(screens, embedded)
    screen.type("bw replay --speed 1000")
    screen.wait_for(lambda text: [line.rstrip() for line in text.splitlines()[:24]] == plain)
    screen.keys("q")
    as_before(screen, embedded)
