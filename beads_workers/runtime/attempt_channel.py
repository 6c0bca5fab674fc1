"""Channel from an agent's attempt to its worker: progress as it comes, and one answer.

JSON Lines (``core.records.assignment``) through a pipe, which the worker reads in its loop. A line
of any other kind is skipped: only our own program writes here.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from beads_workers.core.base.framing import Line, LineReader
from beads_workers.core.base.model import NOTE_CHARS_MAX, Outcome, OutcomeKind
from beads_workers.core.workers.worker_events import StepAnswered
from beads_workers.runtime.output import StepPipe


class AttemptChannel(StepPipe):
    """Reader of the lines of one attempt."""

    def __init__(self) -> None:
        super().__init__()
        self._lines = LineReader()
        self._progress: Mapping[str, Any] | None = None
        self._answer: Mapping[str, Any] | None = None

    def take(self, data: bytes) -> None:
        """Read each whole line of the data so far."""
        for framed in self._lines.feed(data):
            if isinstance(framed, Line):
                self._read(framed.text)

    def progress(self) -> Mapping[str, Any] | None:
        """Return the newest progress since the last call; None: no progress."""
        newest, self._progress = self._progress, None
        return newest

    def end(self) -> StepAnswered | None:
        """Close the channel after the process group has ended; return the answer, None: no
        answer."""
        self.close()
        return None if self._answer is None else answered(self._answer)

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


def answered(answer: Mapping[str, Any]) -> StepAnswered:
    """Return what an answer says; raises ``ValueError`` and ``LookupError``."""
    kind, receipt = OutcomeKind(answer["outcome"]), answer["receipt"]
    error = str(answer["error"])
    if kind is not OutcomeKind.SUCCESS:
        unprepared, again = answer.get("unprepared") is True, answer.get("retry_after_seconds")
        return StepAnswered(Outcome(kind, error, again, unprepared=unprepared), receipt=receipt)
    if "result" in answer or "result_file" in answer:  # Of a worker on another machine.
        result, file = answer.get("result"), answer.get("result_file", "")
        text = "" if result is None else json.dumps(result)
        return StepAnswered(Outcome(kind, result=text, result_file=file), receipt=receipt)
    return StepAnswered(Outcome(kind, note=note_of_work(receipt)), receipt=receipt)


def note_of_work(receipt: Mapping[str, Any]) -> str:
    """Return one line on what the work produced: ``2 commits on bw/a-1/1: 3 files changed,
    ...``."""
    commits = len(receipt.get("commits", ()))
    if not commits:
        return str(receipt.get("diffstat") or receipt.get("why") or "no change")[:NOTE_CHARS_MAX]
    on = f" on {receipt['branch']}" if receipt.get("branch") else ""
    what = f": {receipt['diffstat']}" if receipt.get("diffstat") else ""
    return f"{commits} commit{'' if commits == 1 else 's'}{on}{what}"[:NOTE_CHARS_MAX]
