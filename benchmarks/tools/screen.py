"""A program on a pseudo-terminal that is always read, and what it costs: somebody's terminal.

    python -m benchmarks.tools.screen COLUMNS ROWS OUTPUT PROGRAM ARGUMENT...

A process of its own, so that reading does not disturb whoever measures. Each line on its stdin is
answered with one JSON object (``Reading``); its end presses ``q`` and waits for the program's end.
What was written goes to the file OUTPUT.
"""

from __future__ import annotations

import json
import os
import pty
import select
import subprocess
import sys
import termios
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass

from benchmarks.tools.fleets import Broken, Project, ours
from benchmarks.tools.processes import cpu_seconds

END_OF_FRAME = b"\x1b[?2026l"


@dataclass(frozen=True, slots=True)
class Reading:
    """Since its start: wall and CPU seconds, bytes and frames written."""

    wall: float
    cpu: float
    bytes: int
    frames: int

    def since(self, before: Reading) -> Reading:
        """What has come to it in between."""
        return Reading(
            self.wall - before.wall,
            self.cpu - before.cpu,
            self.bytes - before.bytes,
            self.frames - before.frames,
        )


class Screen:
    """The asking side."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stdin is not None and process.stdout is not None
        self._asked, self._told = process.stdin, process.stdout

    def read(self) -> Reading:
        """What it has come to; raises ``Broken`` where the program has ended."""
        self._asked.write("\n")
        self._asked.flush()
        if not (line := self._told.readline()):
            raise Broken("what is watched on a terminal has ended")
        return Reading(**json.loads(line))

    def over(self, seconds: float) -> Reading:
        """What comes to it in so many seconds."""
        before = self.read()
        time.sleep(seconds)
        return self.read().since(before)

    def leave(self) -> None:
        """Press ``q``; does not wait."""
        self._asked.close()


@contextmanager
def watching(
    project: Project, columns: int, rows: int, output: str = os.devnull
) -> Iterator[Screen]:
    """``beads-workers watch`` on a terminal of this size; it takes a moment to show something.

    ``output``: the file that gets what it writes.
    """
    program = [sys.executable, "-m", "benchmarks.tools.screen", str(columns), str(rows), output]
    with subprocess.Popen(
        [*program, ours(), "watch", f"--state-dir={project.folder}/.beads-workers"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        screen = Screen(process)
        try:
            yield screen
        finally:
            screen.leave()


def main(arguments: Sequence[str]) -> int:
    """See the module text."""
    columns, rows, output, *command = arguments
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ["TERM"] = "xterm-256color"
        os.execv(command[0], command)
    # Before it has begun: Python takes longer than this.
    termios.tcsetwinsize(terminal, (int(rows), int(columns)))
    began = time.monotonic()
    written = frames = 0
    with open(output, "wb") as file:
        for data in _until_asked_to_leave(terminal):
            if data is not None:
                file.write(data)
                written, frames = written + len(data), frames + data.count(END_OF_FRAME)
                continue
            reading = Reading(time.monotonic() - began, cpu_seconds(pid), written, frames)
            print(json.dumps(asdict(reading)), flush=True)
    os.waitpid(pid, 0)
    return 0


def _until_asked_to_leave(terminal: int) -> Iterator[bytes | None]:
    """What is written to the terminal, until its program ends; None for each question."""
    sources = [terminal, 0]
    while True:
        ready = select.select(sources, [], [])[0]
        if 0 in ready:
            if os.read(0, 1):
                yield None
            else:
                os.write(terminal, b"q")
                sources.remove(0)
        if terminal in ready:
            try:
                data = os.read(terminal, 65536)
            except OSError:
                return  # The end of a terminal is an error.
            yield data


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
