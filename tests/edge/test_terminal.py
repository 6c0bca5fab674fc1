"""A program that takes the terminal gives it back, whatever happens: in a real shell in tmux."""

from __future__ import annotations

import os
import re
import shlex
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.screens import TmuxScreen, counters

SHELL = re.compile(r"^\$$", re.MULTILINE)


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
    screen.type("clear; stty -g")
    shown = screen.wait_for(
        lambda text: bool(re.search(r"^[0-9a-f]+:[0-9a-f:\n]+\n\$$", text, re.M))
    )
    return "".join(shown.split("$")[0].split())


def begin(screen: TmuxScreen, log: Path, end: str = "; echo status $?") -> None:
    """Start the program in the shell, and wait for its picture."""
    screen.type("clear; " + shlex.join(counters(log)) + end)
    screen.wait_for("turn 0")
    assert is_taken(screen)


def is_taken(screen: TmuxScreen) -> bool:
    """Whether the screen is a program's; False where it is a shell's in every respect."""
    facts = [screen.has(f) for f in ("alternate_on", "cursor_flag", "wrap_flag")]
    assert facts in ([True, False, False], [False, True, True]), facts
    return facts[0]


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
def test_the_terminal_is_given_back_on_every_way_out(
    screen: TmuxScreen, log: Path, keys: tuple[str, ...], status: int
) -> None:
    before = modes(screen)
    begin(screen, log)
    screen.keys(*keys)
    screen.wait_for(f"status {status}")
    assert not is_taken(screen)
    assert modes(screen) == before


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGINT])
def test_the_terminal_is_given_back_when_a_signal_ends_the_program(
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
