"""What an attempt of an agent prints for its worker: progress as it comes, and one answer.

JSON Lines (``attempts.assignment``) through a pipe, which the worker reads in its loop. A line that
is none of these is passed over: nobody but our own program writes here.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

from beads_workers.core.framing import Line, LineReader
from beads_workers.core.model import NOTE_CHARS_MAX, Outcome, OutcomeKind
from beads_workers.core.worker_events import StepAnswered

_READ_BYTES = 1 << 16
_READS_AT_ONCE = 16


class AttemptChannel:
    """Give ``writing`` to the step, then call ``started``; watch ``fd``, and ``pump`` when it has
    something. Raises ``OSError`` when made."""

    def __init__(self) -> None:
        self.fd, self.writing = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(self.fd, False)
        self._lines = LineReader()
        self._progress: Mapping[str, Any] | None = None
        self._answer: Mapping[str, Any] | None = None

    def started(self) -> None:
        """The step has it now: whoever holds it besides us can speak."""
        os.close(self.writing)
        self.writing = -1

    def pump(self) -> bool:
        """Take what is there; False: nobody can print any more."""
        for _ in range(_READS_AT_ONCE):
            try:
                data = os.read(self.fd, _READ_BYTES)
            except BlockingIOError:
                return True
            if not data:
                return False
            for framed in self._lines.feed(data):
                if isinstance(framed, Line):
                    self._read(framed.text)
        return True

    def progress(self) -> Mapping[str, Any] | None:
        """The newest progress since the last call."""
        newest, self._progress = self._progress, None
        return newest

    def end(self) -> StepAnswered | None:
        """All of its process group have ended: what it answered; None where it did not."""
        if self.writing >= 0:
            self.started()
        self.pump()
        os.close(self.fd)
        return None if self._answer is None else _answered(self._answer)

    def _read(self, line: bytes) -> None:
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            return
        match row:
            case {"progress": dict() as progress}:
                self._progress = progress
            case {"answer": dict() as answer}:
                self._answer = answer


def _answered(answer: Mapping[str, Any]) -> StepAnswered:
    kind, receipt = OutcomeKind(answer["outcome"]), answer["receipt"]
    error = str(answer["error"])
    if kind is not OutcomeKind.SUCCESS:
        return StepAnswered(Outcome(kind, error), receipt=receipt)
    return StepAnswered(Outcome(kind, note=note_of_work(receipt)), receipt=receipt)


def note_of_work(receipt: Mapping[str, Any]) -> str:
    """One line on what came of it: ``2 commits on bw/a-1/1: 3 files changed, ...``."""
    commits = len(receipt.get("commits", ()))
    if not commits:
        return str(receipt.get("diffstat") or receipt.get("why") or "no change")[:NOTE_CHARS_MAX]
    on = f" on {receipt['branch']}" if receipt.get("branch") else ""
    what = f": {receipt['diffstat']}" if receipt.get("diffstat") else ""
    return f"{commits} commit{'' if commits == 1 else 's'}{on}{what}"[:NOTE_CHARS_MAX]
