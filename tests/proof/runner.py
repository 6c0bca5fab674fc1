"""One proof while it runs: a process in a group of its own, what it prints, and its end."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.proof.parts import ROOT, Part
from tests.proof.table import Figure, figure_of

LEAVE_SECONDS = 60.0
"""A proof that is told to end ends its fleet, and removes what it has made."""
TAIL_BYTES = 4096


@dataclass(frozen=True, slots=True)
class Running:
    """Begun at ``since`` (monotonic); ``file`` with ``.out`` and ``.err`` is what it prints."""

    part: Part
    share: int
    process: subprocess.Popen[bytes]
    file: Path
    since: float

    def ended(self) -> bool:
        """Whether its process has."""
        return self.process.poll() is not None

    def said(self) -> str:
        """The last line on its stderr."""
        with self.file.with_suffix(".err").open("rb") as errors:
            errors.seek(max(0, errors.seek(0, os.SEEK_END) - TAIL_BYTES))
            lines = errors.read().decode(errors="replace").splitlines()
        return lines[-1] if lines else ""

    def done(self) -> tuple[int, int]:
        """How much of how much, as its last line begins: ``12 of 250 kills``."""
        found = re.match(r"([\d,]+) of ([\d,]+) ", self.said())
        if found is None:
            return 0, self.part.size(self.share)
        done, whole = (int(number.replace(",", "")) for number in found.groups())
        return done, whole

    def figure(self) -> Figure:
        """What it came to, once it has ended; one that said nothing is broken."""
        seconds, status = time.monotonic() - self.since, self.process.returncode
        try:
            told: Any = json.loads(self.file.with_suffix(".out").read_bytes())
        except ValueError:
            told = None
        if isinstance(told, dict):
            return figure_of(self.part, self.part.size(self.share), told, status, seconds)
        what = f"exit {status} without figures: {self.said() or 'it said nothing'}"
        return Figure(self.part.name, self.part.what, 0, seconds, (what,))


def begin(part: Part, share: int, file: Path) -> Running:
    """Start one, where Ctrl-C reaches it through us alone."""
    with file.with_suffix(".out").open("wb") as out, file.with_suffix(".err").open("wb") as err:
        process = subprocess.Popen(
            part.command(share),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            env=part.environment(),
            cwd=ROOT,
            start_new_session=True,
        )
    return Running(part, share, process, file, time.monotonic())


def end(running: Sequence[Running]) -> None:
    """Ask all to end, and wait until they have."""
    for each in running:
        if not each.ended():
            each.process.send_signal(signal.SIGTERM)
    for each in running:
        try:
            each.process.wait(LEAVE_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(each.process.pid, signal.SIGKILL)
            each.process.wait()
