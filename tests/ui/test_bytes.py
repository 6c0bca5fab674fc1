"""Every byte between a program and its terminal: how many, how framed, and when it is stuck."""

from __future__ import annotations

import os
import re
import shlex
import signal
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.fleet import until
from tests.support.screens import Pty, counters, on_pty

QUIET_SECONDS = 0.15
BEGIN, END = b"\x1b[?2026h", b"\x1b[?2026l"
LEFT = b"\x1b[?2026l\x1b[?1006l\x1b[?1000l\x1b[m\x1b[?7h\x1b[?25h\x1b[?1049l"
CTRL_S, CTRL_Q, CTRL_C = b"\x13", b"\x11", b"\x03"


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """What the program was told."""
    return tmp_path / "events"


@pytest.fixture
def terminal(log: Path) -> Iterator[Pty]:
    """The program, with its first frame read."""
    with on_pty(*counters(log)) as terminal:
        assert b"\x1b[?1049h" in terminal.read_until(b"turn 0")
        terminal.read_until(END)
        yield terminal


def wait_logged(log: Path, what: str) -> None:
    """Wait until the program has been told so."""
    until(lambda: what in log.read_text(), 20, f"{what} is not in {log.read_text()}")


def press(terminal: Pty, log: Path, key: bytes, times: int) -> None:
    """Press it so often, each time when the one before was heard."""
    name = repr(key.decode())
    for number in range(1, times + 1):
        terminal.send(key)
        until(lambda: log.read_text().count(name) >= number)  # noqa: B023 - it is called here


def frames(data: bytes) -> list[bytes]:
    """What stands between the marks; nothing but frames may be there."""
    assert re.fullmatch(rb"(\x1b\[\?2026h[^\x18]*?\x1b\[\?2026l)*", data, re.DOTALL), data
    return re.findall(rb"\x1b\[\?2026h(.*?)\x1b\[\?2026l", data, re.DOTALL)


def test_the_same_frame_writes_not_one_byte(terminal: Pty, log: Path) -> None:
    terminal.send(b"a")
    wait_logged(log, "'a'")
    assert terminal.read_while_quiet_for(QUIET_SECONDS) == b""


def test_a_new_frame_is_one_synchronized_write_of_the_rows_that_changed(terminal: Pty) -> None:
    terminal.send(b"f")
    [frame] = frames(terminal.read_while_quiet_for(QUIET_SECONDS))
    rows = [int(row) for row in re.findall(rb"\x1b\[(\d+);1H", frame)]
    assert rows == list(range(2, 24)), "neither the heading nor the last row has changed"


def test_a_frame_in_full_writes_every_row(terminal: Pty) -> None:
    terminal.send(b"r")
    [frame] = frames(terminal.read_while_quiet_for(QUIET_SECONDS))
    assert len(re.findall(rb"\x1b\[\d+;1H", frame)) == 24


def test_another_size_is_one_frame_of_every_row_and_nothing_of_the_old_one(terminal: Pty) -> None:
    for size in ((60, 10), (120, 40)):
        terminal.resize(*size)
        [frame] = frames(terminal.read_while_quiet_for(QUIET_SECONDS))
        rows = [int(row) for row in re.findall(rb"\x1b\[(\d+);1H", frame)]
        assert rows == list(range(1, size[1] + 1))


def test_a_storm_of_sizes_ends_with_a_picture_of_the_last(terminal: Pty) -> None:
    for step in range(200):
        terminal.resize(40 + step % 90, 10 + step % 30)
    terminal.resize(50, 12)
    seen = terminal.read_until(b"counters\x1b[0m 50x12") + terminal.read_until(END)
    last = frames(seen + terminal.read_while_quiet_for(QUIET_SECONDS))[-1]
    assert b"\x1b[13;1H" not in last
    assert b"=" * 49 + b"|" in last


# --- a terminal that takes no more ------------------------------------------------------------


def test_while_nobody_reads_keys_are_heard_and_frames_dropped(terminal: Pty, log: Path) -> None:
    """So many frames are several times what a pseudo-terminal holds."""
    press(terminal, log, b"f", 80)
    seen = frames(terminal.read_until(b"row 23 of turn 80") + terminal.read_until(END))
    assert 3 < len(seen) < 60
    for frame in seen:
        turns = set(re.findall(rb"turn (\d+)", frame))
        assert len(turns) == 1, "every frame is a whole one"
    assert turns == {b"80"}


def test_after_ctrl_s_keys_are_heard_and_ctrl_q_shows_the_newest(terminal: Pty, log: Path) -> None:
    terminal.send(CTRL_S)
    terminal.send(b"fff")
    wait_logged(log, "'f', 'f', 'f'")
    assert terminal.read_while_quiet_for(QUIET_SECONDS) == b""
    terminal.send(CTRL_Q)
    seen = frames(terminal.read_until(b"row 23 of turn 3") + terminal.read_until(END))
    assert 1 <= len(seen) <= 2


def test_leaving_while_the_output_is_stopped_by_ctrl_s_gives_the_terminal_back(
    terminal: Pty, log: Path
) -> None:
    terminal.send(CTRL_S)
    terminal.send(b"f")
    wait_logged(log, "'f'")
    terminal.send(b"q")
    seen = terminal.read_until(LEFT)
    assert frames(seen.removesuffix(LEFT))
    terminal.read_until(b"left with 0")
    assert terminal.exit_status() == 0


def test_leaving_a_terminal_that_nobody_reads_takes_a_moment_and_resets_it(
    terminal: Pty, log: Path
) -> None:
    press(terminal, log, b"f", 60)
    begun = time.monotonic()
    terminal.send(b"e")
    assert terminal.exit_status(reading=False) == 3
    assert time.monotonic() - begun < 5
    assert terminal.read_while_quiet_for(QUIET_SECONDS).endswith(b"\x18" + LEFT)
    assert is_echoing(terminal)


def is_echoing(terminal: Pty) -> bool:
    """Whether the modes are those of a shell's terminal."""
    local = terminal.modes()[3]
    assert isinstance(local, int)
    wanted = termios.ECHO | termios.ICANON | termios.ISIG
    return local & wanted == wanted and not local & termios.NOFLSH


def test_a_terminal_that_vanishes_is_told_and_ends_quietly(terminal: Pty, log: Path) -> None:
    terminal.hang_up()
    assert terminal.exit_status() == 128 + signal.SIGHUP
    assert "SIGHUP" in log.read_text()


def test_a_vanished_terminal_without_a_signal_is_told_as_gone(log: Path) -> None:
    with on_pty("/bin/sh", "-c", f"trap '' HUP; {shlex.join(counters(log))}; :") as terminal:
        terminal.read_until(b"turn 0")
        terminal.hang_up()
        wait_logged(log, "gone=True")
        wait_logged(log, "left with 99")
        assert "signals=()" in log.read_text().splitlines()[-2]


def test_ctrl_c_does_not_throw_away_what_is_half_written(terminal: Pty, log: Path) -> None:
    """Without NOFLSH the kernel would drop what lies in between, and a frame would lack rows."""
    press(terminal, log, b"f", 60)
    terminal.send(CTRL_C)
    for frame in frames(terminal.read_until(LEFT).removesuffix(LEFT)):
        assert len(re.findall(rb"\x1b\[\d+;1H", frame)) == 22


# --- a program that does not listen -----------------------------------------------------------


def test_a_program_that_hangs_can_still_be_ended_and_gives_the_terminal_back(
    terminal: Pty, log: Path
) -> None:
    terminal.send(b"h")
    wait_logged(log, "hangs")
    until(lambda: terminal.send(CTRL_C) or LEFT in terminal.read_some(0.1), 20)
    assert terminal.exit_status() == -signal.SIGINT
    assert is_echoing(terminal)


# --- what it shares with others ---------------------------------------------------------------


def test_the_flags_of_the_descriptor_that_a_shell_shares_are_left_alone(log: Path) -> None:
    look = "grep flags /proc/self/fdinfo/0"
    program = shlex.join(counters(log))
    with on_pty("/bin/sh", "-c", f"{look}; {program}; {look}") as terminal:
        before = terminal.read_until(b"turn 0")
        running = Path(f"/proc/{terminal.pid}/fdinfo/0").read_text()
        terminal.send(b"q")
        terminal.exit_status()
        flags = re.findall(r"flags:\s*(\d+)", (before + terminal.received).decode() + running)
    assert len(flags) == 3
    assert not any(int(each, 8) & os.O_NONBLOCK for each in flags)
