"""Every byte of a whole run's dashboard: how many frames, how framed, and where each row stands."""

from __future__ import annotations

import re
import shlex
import sys
import time

import pytest

from beads_workers.core.base.text import columns
from tests.support.embedded import EmbeddedProject
from tests.support.screens import on_pty

ENTER, LEAVE = (
    b"\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[m\x1b]11;?\x1b\\\x1b[H\x1b[2J",
    b"\x1b[?2026l\x1b[?1006l\x1b[?1000l\x1b[m\x1b[?7h",
)
MOUSE = b"\x1b[?1000h\x1b[?1006h"
FRAME = re.compile(rb"\x1b\[\?2026h(.*?)\x1b\[\?2026l", re.DOTALL)
TASK = '[ $((${BW_ISSUE_ID##*-} % 9)) = 4 ] && exit 1; sleep "0.$((${BW_ISSUE_ID##*-} % 4 + 1))"'
START = ("start", "-n", "8", "--until-empty", "--max-attempts", "1", "--", "sh", "-c", TASK)
FRAMES_PER_SECOND = 4


@pytest.mark.share(2)
@pytest.mark.parametrize("size", [(80, 24), (200, 50)], ids=["80x24", "200x50"])
def test_frames_are_few_and_whole_and_each_row_has_its_place(
    embedded: EmbeddedProject, size: tuple[int, int]
) -> None:
    title = "wide \u6f22\u5b57 and joined \U0001f469\u200d\U0001f4bb, longer than any row " * 4
    embedded.create_many([{"title": title} for _ in range(60)])
    command = shlex.join([sys.executable, "-m", "beads_workers", *START])
    began = time.monotonic()
    shell = f"cd {shlex.quote(str(embedded.folder))} && exec {command}"
    with on_pty("/bin/sh", "-c", shell, width=size[0], height=size[1]) as terminal:
        terminal.read_until(ENTER)
        drawn = terminal.read_until(LEAVE)
        seconds = time.monotonic() - began
        assert terminal.exit_status() == 7

    frames = FRAME.findall(drawn)
    assert FRAME.sub(b"", drawn) == MOUSE + LEAVE, "nothing is written but whole frames"
    assert 4 < len(frames) <= FRAMES_PER_SECOND * seconds + 1
    for frame in frames:
        for number, row in rows(frame):
            assert 1 <= number <= size[1]
            assert columns(row) <= size[0] and row.isprintable(), row
    assert len(rows(frames[0])) == size[1], "the first one is drawn in full"
    assert sum(len(rows(frame)) for frame in frames) < len(frames) * size[1], "the others are not"


def rows(frame: bytes) -> list[tuple[int, str]]:
    """Number and text of each row that it writes; everything in it belongs to one."""
    before, *pieces = re.split(r"\x1b\[(\d+);1H", frame.decode())
    assert before == ""
    texts = [re.sub(r"\x1b\[[0-9;]*[mK]", "", text) for text in pieces[1::2]]
    numbers = [int(number) for number in pieces[::2]]
    assert numbers == sorted(set(numbers)), "from top to bottom, each once"
    return list(zip(numbers, texts, strict=True))
