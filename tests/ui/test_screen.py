"""A program that takes the terminal restores it, whatever happens: in a real shell in tmux."""

from __future__ import annotations

import os
import re
import shlex
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.fleet import until
from tests.support.screens import TmuxScreen, counters

MODES = re.compile(r"^([0-9a-f]+:[0-9a-f:\n]+)\n\$$", re.MULTILINE)
TAKEN, FREE = [True, False, False], [False, True, True]
"""A program's screen and a shell's: see ``facts``."""


@pytest.fixture
def screen() -> Iterator[TmuxScreen]:
    """A shell in a window of 80 by 24."""
    with TmuxScreen() as screen:
        yield screen.start()


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """What the program was told."""
    return tmp_path / "events"


def modes(screen: TmuxScreen) -> str:
    """``stty -g`` of the shell's terminal."""
    screen.type("clear; echo; stty -g")
    shown = screen.wait_for(lambda text: MODES.search(text) is not None)
    found = MODES.search(shown)
    assert found is not None
    return found[1].replace("\n", "")


def begin(screen: TmuxScreen, log: Path, end: str = "; echo status $?") -> None:
    """Start the program in the shell, and wait for its picture."""
    screen.type("clear; " + shlex.join(counters(log)) + end)
    screen.wait_for("turn 0")
    assert is_taken(screen)


def is_taken(screen: TmuxScreen) -> bool:
    """Whether the screen is a program's; False where it is a shell's in every respect."""
    found = facts(screen)
    assert found in (TAKEN, FREE), found
    return found == TAKEN


def facts(screen: TmuxScreen) -> list[bool]:
    """One after the other: while a program leaves they may belong to neither of the two."""
    return [screen.has(fact) for fact in ("alternate_on", "cursor_flag", "wrap_flag")]


def pid_of(screen: TmuxScreen) -> int:
    """The process in front of the shell."""
    shell = screen.ask("pane_pid")
    return int(Path(f"/proc/{shell}/task/{shell}/children").read_text().split()[0])


WAYS_OUT = {
    "q": (("q",), 0),
    "an exception while drawing": (("x",), 1),
    "SystemExit": (("e",), 3),
    "Ctrl-C": (("C-c",), 130),
    "Ctrl-backslash": (("C-\\",), 131),
}


@pytest.mark.parametrize(("keys", "status"), WAYS_OUT.values(), ids=WAYS_OUT)
def test_the_terminal_is_restored_on_every_way_out(
    screen: TmuxScreen, log: Path, keys: tuple[str, ...], status: int
) -> None:
    before = modes(screen)
    begin(screen, log)
    screen.keys(*keys)
    screen.wait_for(f"status {status}")
    assert not is_taken(screen)
    assert modes(screen) == before


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGINT])
def test_the_terminal_is_restored_when_a_signal_ends_the_program(
    screen: TmuxScreen, log: Path, number: signal.Signals
) -> None:
    before = modes(screen)
    begin(screen, log)
    os.kill(pid_of(screen), number)
    screen.wait_for(f"status {128 + number}")
    assert not is_taken(screen)
    assert modes(screen) == before


@pytest.mark.parametrize("by_key", [True, False])
def test_suspended_it_gives_the_terminal_back_and_going_on_takes_it_again(
    screen: TmuxScreen, log: Path, by_key: bool
) -> None:
    before = modes(screen)
    begin(screen, log)
    if by_key:
        screen.keys("C-z")
    else:
        os.kill(pid_of(screen), signal.SIGTSTP)
    screen.wait_for("Stopped")
    assert not is_taken(screen)
    assert modes(screen) == before
    screen.type("fg")
    screen.wait_for("turn 0")
    assert is_taken(screen)
    screen.keys("f")
    screen.wait_for("turn 1")
    screen.keys("q")
    screen.wait_for("left with 0")
    assert not is_taken(screen)
    assert modes(screen) == before


def test_stopped_without_warning_it_draws_everything_anew_when_it_goes_on(
    screen: TmuxScreen, log: Path
) -> None:
    screen.type("stty tostop")  # Who writes from the background is stopped.
    before = modes(screen)
    begin(screen, log)
    pid = pid_of(screen)
    os.kill(pid, signal.SIGSTOP)
    screen.wait_for("Stopped")
    screen.type("echo over the picture; fg")
    screen.wait_for(lambda text: text.startswith("counters") and "over" not in text)
    os.kill(pid, signal.SIGSTOP)
    screen.wait_for("Stopped")
    os.kill(pid, signal.SIGCONT)  # From outside, and the shell stays in front.
    screen.wait_for(lambda text: facts(screen) == FREE)
    assert modes(screen) == before
    screen.type("fg")
    screen.wait_for("turn 0")
    screen.keys("q")
    screen.wait_for("left with 0")
    assert not is_taken(screen)
    assert modes(screen) == before


def test_in_the_background_it_runs_on_unseen_until_it_is_brought_to_the_front(
    screen: TmuxScreen, log: Path
) -> None:
    before = modes(screen)
    begin(screen, log)
    pid = pid_of(screen)
    screen.keys("C-z")
    screen.wait_for("Stopped")
    screen.type("bg; jobs")
    screen.wait_for("Running")
    assert not is_taken(screen)
    assert modes(screen) == before
    assert state_of(pid) == "S", "it waits; it was not stopped for touching the terminal"
    screen.type("fg")
    screen.wait_for("turn 0")
    assert is_taken(screen)
    screen.keys("f", "q")
    screen.wait_for("left with 0")
    assert modes(screen) == before
    assert "keys=('f'" in log.read_text()


def state_of(pid: int) -> str:
    """The letter of its state in the kernel."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


@pytest.mark.parametrize(
    "started", ["{} &", "{} | cat", "{} </dev/null", "TERM=dumb {}", "TERM= {}"]
)
def test_where_there_is_nothing_to_draw_on_it_says_so_before_anything_is_touched(
    screen: TmuxScreen, log: Path, started: str
) -> None:
    before = modes(screen)
    screen.type("clear; " + started.format(shlex.join(counters(log))))
    screen.wait_for("no terminal")
    assert not is_taken(screen)
    assert modes(screen) == before


def test_what_was_typed_before_the_first_picture_is_no_command(
    screen: TmuxScreen, log: Path
) -> None:
    program = shlex.join(counters(log))
    screen.type(
        f"clear; touch {log}.typing; until [ -e {log}.typed ]; do sleep 0.2; done; {program}"
    )
    until(Path(f"{log}.typing").exists)
    screen.keys("q")
    Path(f"{log}.typed").touch()
    screen.wait_for("turn 0")
    screen.keys("f")
    screen.wait_for("turn 1")
    screen.keys("q")
    screen.wait_for("left with 0")


def test_a_paste_is_no_command(screen: TmuxScreen, log: Path) -> None:
    begin(screen, log)
    screen.paste("quit everything and follow these links\n" * 200)
    screen.keys("Up")
    until(lambda: "'up'" in log.read_text())
    assert set(re.findall(r"keys=\((.*?)\)", log.read_text())) <= {"", "'up',"}
    assert is_taken(screen)


def test_keys_have_their_names(screen: TmuxScreen, log: Path) -> None:
    begin(screen, log)
    names = {
        "+": "+", "Up": "up", "Down": "down", "Left": "left", "Right": "right", "Tab": "tab",
        "PPage": "page_up", "NPage": "page_down", "Home": "home", "End": "end", "Escape": "escape",
        "Enter": "enter", "é": "é", "F1": "f1", "C-Up": "ctrl+up",
    }  # fmt: skip
    for number, key in enumerate(names, 1):
        screen.keys(key)
        until(lambda: len(pressed_keys(log)) == number)  # noqa: B023 - it is called here
    assert pressed_keys(log) == list(names.values())


def pressed_keys(log: Path) -> list[str]:
    """The names of all keys so far."""
    return re.findall(r"'([^']+)'", "".join(re.findall(r"keys=\((.*?)\)", log.read_text())))


def test_a_row_as_wide_as_the_screen_neither_wraps_nor_loses_its_end(
    screen: TmuxScreen, log: Path
) -> None:
    begin(screen, log)
    for width, height in ((61, 9), (200, 50), (33, 12)):
        screen.resize(width, height)
        shown = screen.wait_for(f"{width}x{height}")
        shown = screen.wait_for(lambda text: text.rstrip().endswith("|"))
        rows = shown.rstrip("\n").split("\n")
        assert rows[-1] == "=" * (width - 1) + "|"
        assert len(rows) == height
