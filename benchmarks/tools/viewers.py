"""Viewers of a live page, which read all that they are sent and show nothing.

    python -m benchmarks.tools.viewers URL

A process of its own, so that reading does not disturb whoever measures. Each line on its stdin says
how many there are to be from now on, and is answered with the number of snapshots that have come to
all of them; its end ends them.
"""

from __future__ import annotations

import select
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from urllib.parse import urlsplit

from benchmarks.tools.fleets import Broken, Project, ours

SNAPSHOT = b"event: snapshot\n"


class Viewers:
    """The asking side."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stdin is not None and process.stdout is not None
        self._asked, self._told = process.stdin, process.stdout

    def have(self, count: int) -> int:
        """Be so many; returns how many snapshots have come. Raises ``Broken`` where a stream has
        ended."""
        self._asked.write(f"{count}\n")
        self._asked.flush()
        if not (line := self._told.readline()):
            raise Broken("a stream of the page has ended")
        return int(line)

    def leave(self) -> None:
        """End them; does not wait."""
        self._asked.close()


@contextmanager
def served(project: Project) -> Iterator[tuple[str, int]]:
    """``beads-workers watch --web``: its address, and its process."""
    with subprocess.Popen(
        [ours(), "watch", "--web", f"--state-dir={project.folder}/.beads-workers"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip(), process.pid
        finally:
            process.terminate()


@contextmanager
def viewing(url: str) -> Iterator[Viewers]:
    """Viewers of a page, none at first."""
    with subprocess.Popen(
        [sys.executable, "-m", "benchmarks.tools.viewers", url],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        viewers = Viewers(process)
        try:
            yield viewers
        finally:
            viewers.leave()


def main(arguments: Sequence[str]) -> int:
    """See the module text."""
    parts = urlsplit(arguments[0])
    request = f"GET {parts.path}events HTTP/1.1\r\nHost: {parts.netloc}\r\n\r\n".encode()
    snapshots, ends = 0, dict[socket.socket, bytes]()
    while True:
        for ready in select.select([sys.stdin, *ends], [], [])[0]:
            if ready is sys.stdin:
                if not (line := sys.stdin.readline()):
                    return 0
                while len(ends) > int(line):
                    ends.popitem()[0].close()
                while len(ends) < int(line):
                    sock = socket.create_connection((parts.hostname or "", parts.port or 0))
                    sock.sendall(request)
                    ends[sock] = b""
                print(snapshots, flush=True)
                break  # Some of what was ready may be closed.
            if not (data := ready.recv(1 << 16)):
                return 1
            # An event's first line may come in two pieces.
            data = ends[ready] + data
            snapshots += data.count(SNAPSHOT)
            ends[ready] = b"" if data.endswith(SNAPSHOT) else data[1 - len(SNAPSHOT) :]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
