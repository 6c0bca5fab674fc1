"""Bad frames to our ``rrq-executor``: a whole fleet, over its Unix socket."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random

from beads_workers.integrations.rrq.wire import FRAME_BYTES_MAX, V1, V2
from tests.fuzz.frames.making import Stream, connection
from tests.fuzz.frames.watching import descriptors, peak, resident
from tests.support.peers import HANDLERS_FOLDER
from tests.support.rrq_client import Client, request

PATIENCE_SECONDS = 60.0
LOOK_FRAMES = 10_000
"""So often it is looked at, and asked for something."""
GROWTH_BYTES_MAX = 160 << 20
"""Sixteen megabytes a frame, four of them unfinished at a time, and what is made of one."""
GROWN_BYTES_MAX = 48 << 20
"""What may be left of all that once it is over."""
DESCRIPTORS_MAX = 8
"""That it may have more at the end: workers of its own come and go."""

Told = Callable[[int], None]


def try_executor(frames: int, seed: int, told: Told) -> list[str]:
    """Send so many; returns what did not hold. ``told`` of the progress."""
    with _serving() as (place, pid):
        with Client(place) as client:
            client.ask(request("add", a=1, b=2))
        return list(_Trial(place, pid, Random(f"{seed} executor"), told).run(frames))


class _Trial:
    def __init__(self, place: Path, pid: int, rng: Random, told: Told) -> None:
        self._place, self._pid, self._rng, self._told = place, pid, rng, told
        self._before = resident(pid)
        self._opened = descriptors(pid)

    def run(self, frames: int) -> Iterator[str]:
        sent = looked = 0
        while sent < frames:
            stream = connection(self._rng, for_executor=True)
            if not self._ended(stream):
                yield f"a connection was left open after {stream.data[-80:]!r}"
            sent += stream.frames
            if sent - looked >= LOOK_FRAMES or sent >= frames:
                looked = sent
                self._told(sent)
                yield from self._look()
        yield from self._flood()
        grown = resident(self._pid) - self._before
        if grown > GROWN_BYTES_MAX:
            yield f"{grown >> 20} MB more than at first"
        if (more := descriptors(self._pid) - self._opened) > DESCRIPTORS_MAX:
            yield f"{more} descriptors more than at first"

    def _ended(self, stream: Stream) -> bool:
        """Send it, in one piece or two, and read until it hangs up."""
        with socket.socket(socket.AF_UNIX) as bad:
            bad.settimeout(PATIENCE_SECONDS)
            bad.connect(str(self._place))
            data, cut = stream.data, 0
            if self._rng.random() < 0.1:
                cut = int(self._rng.random() * len(data))
            try:
                for piece in (data[:cut], data[cut:]):
                    bad.sendall(piece)
                if not stream.ends:
                    bad.shutdown(socket.SHUT_WR)
                while bad.recv(1 << 16):
                    pass
            except TimeoutError:
                return False
            except OSError:
                pass  # It has hung up before it had read all.
            return True

    def _flood(self) -> Iterator[str]:
        """Large frames that are begun on many connections, and never finished."""
        with suppress(OSError):
            for _ in range(24):
                with socket.socket(socket.AF_UNIX) as bad:
                    bad.settimeout(PATIENCE_SECONDS)
                    bad.connect(str(self._place))
                    bad.sendall(FRAME_BYTES_MAX.to_bytes(4, "big") + b" " * (FRAME_BYTES_MAX - 1))
        yield from self._look()

    def _look(self) -> Iterator[str]:
        for version in (V1, V2):
            with Client(self._place) as client:
                answer = client.ask(request("add", version=version, a=20, b=22))
                if answer is None or answer.result != 42:
                    yield f"a good request of version {version} was answered {answer}"
        if (grown := peak(self._pid) - self._before) > GROWTH_BYTES_MAX:
            yield f"its memory grew by {grown >> 20} MB"


@contextmanager
def _serving() -> Iterator[tuple[Path, int]]:
    """The address, and the pid of the orchestrator."""
    with tempfile.TemporaryDirectory(prefix="beads-workers-frames-") as folder:
        shutil.copy(HANDLERS_FOLDER / "work.py", folder)
        place = Path(folder) / "s"
        argv = [sys.executable, "-m", "beads_workers", "rrq-executor", "-n", "2", "--allow-module"]
        argv += ["work", "--prefix", "work", "--socket", str(place), "--state-dir", f"{folder}/b"]
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("RRQ_", "BW_", "OTEL_"))}
        with (Path(folder) / "said").open("wb") as said:
            process = subprocess.Popen(argv, cwd=folder, env=kept, stdout=said, stderr=said)
        try:
            yield place, _pid(Path(folder) / "b" / "run.json", place)
        finally:
            process.terminate()
            process.wait(PATIENCE_SECONDS)


def _pid(info: Path, place: Path) -> int:
    until = time.monotonic() + PATIENCE_SECONDS
    while not (info.exists() and place.exists()):
        assert time.monotonic() < until, "it did not start"
        time.sleep(0.02)
    return int(json.loads(info.read_text())["pid"])
