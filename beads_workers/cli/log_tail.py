"""The log of the selected attempt. Lines are kept, so that only new data is read."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from beads_workers.cli.agent_logs import of_tail, said_at
from beads_workers.cli.attempts import log_path
from beads_workers.core.base.text import as_shown, counted
from beads_workers.ui.agents import epoch_of
from beads_workers.ui.attempt import Pin
from beads_workers.ui.rows import wrapped
from beads_workers.ui.viewer import Look, ShownAttempt, ShownLog, chosen_row, shown_attempt
from beads_workers.ui.words import clock
from beads_workers.worktrees.git import GitError, call

LOG_BYTES_MAX = 8 << 20
"""Largest part of a log that is shown here: its end; ``logs`` shows all of it."""

LOG_LINES_MAX = 50_000


class LogFile:
    """A log that may grow. Raises ``OSError`` if it cannot be read."""

    def __init__(self, path: Path, bytes_max: int = LOG_BYTES_MAX) -> None:
        self.path = path
        self.lines: list[str] = []
        self.first = 0
        """Number of lines that were dropped."""
        self.times: list[str] = []
        """When each line came: as the agent says, or when it was read, "" for a line that was there
        when the log was opened."""
        self._opened = False
        self._rest = b""
        self._at = max(0, path.stat().st_size - bytes_max)
        self._cut = self._at > 0
        self._readable = of_tail(path)

    def read(self) -> None:
        """Read the data that was added."""
        with self.path.open("rb") as file:
            file.seek(self._at)
            data = file.read(LOG_BYTES_MAX)
        self._at += len(data)
        *whole, self._rest = (self._rest + data).split(b"\n")
        if self._cut and whole:
            self._cut = False
            del whole[0]
        now = clock(time.time()) if self._opened else ""
        self._opened = True
        for line in whole:
            # Noise of agents is left out.
            if (shown := self._readable.line(line.decode("utf-8", "replace"))) is not None:
                self.lines.append(as_shown(shown))
                said = said_at(line)
                at = epoch_of(said) if said else None
                self.times.append(now if not said else "" if at is None else clock(at))
        if (dropped := len(self.lines) - LOG_LINES_MAX) > 0:
            self.first += dropped
            del self.lines[:dropped]
            del self.times[:dropped]

    def goes_on_with(self, before: LogFile) -> None:
        """Take over the times of lines that this file has as well: it is the same log, renamed."""
        if before.first == self.first and self.lines[: len(before.lines)] == before.lines:
            self.times[: len(before.times)] = before.times

    def shrank(self) -> bool:
        """Return whether the file was replaced or cut."""
        return self.path.stat().st_size < self._at

    @property
    def shown(self) -> list[str]:
        """The lines, and the last line if it is incomplete."""
        begun = as_shown(self._rest[:4096].decode("utf-8", "replace"))
        return [*self.lines, begun] if begun and not begun.startswith("{") else self.lines


class LogTail:
    """Reader of attempts' logs.

    ``run_folder``: run id -> the folder of that run. ``changes``: returns diffs of worktrees.
    """

    def __init__(
        self,
        run_folder: Callable[[str], Path],
        bytes_max: int = LOG_BYTES_MAX,
        changes: WorktreeDiff | None = None,
    ) -> None:
        self._run_folder = run_folder
        self._bytes_max = bytes_max
        self._file: LogFile | None = None
        self._of: tuple[str, int, Path] | None = None
        """Issue, attempt and path of the open log."""
        self._changes = changes

    def read(self, look: Look, snapshot: Mapping[str, Any]) -> ShownLog:
        """Return the log of the selected attempt. Raise ``OSError`` if it cannot be read."""
        shown = shown_attempt(look, snapshot)
        if shown is None:
            row = chosen_row(look, snapshot, look.part)
            if row is None or "folded" in row:
                return ShownLog("nothing to show")
            return ShownLog(f"{row['worker_id']} has run nothing yet")
        folder = self._run_folder(shown.run_id or snapshot["run_id"])
        changes = self._changes.of(shown, folder) if self._changes and shown.running else ""
        pin = Pin(
            shown.issue_id, "", shown.attempt, shown.worker_id, None, shown.row.get("at") or None
        )
        seconds = shown.row.get("seconds") or 0.0
        path = log_path(folder, pin, runs=shown.running, seconds=seconds)
        try:
            # A worker's next attempt writes into the same file, from its beginning.
            of = (shown.issue_id, shown.attempt, path)
            if self._file is None or self._of != of or self._file.shrank():
                before, same = self._file, self._of is not None and self._of[:2] == of[:2]
                self._file, self._of = LogFile(path, self._bytes_max), of
                self._file.read()
                if before is not None and same:
                    self._file.goes_on_with(before)
            self._file.read()
        except FileNotFoundError:
            self._file = None
        lines = self._file.shown if self._file else []
        nothing = "nothing printed yet" if shown.running else "it printed nothing"
        title = f"{shown.title}: {path.name if lines else nothing}"
        if self._file is None:
            return ShownLog(title, changes=changes)
        times = [*self._file.times, *[""] * (len(lines) - len(self._file.times))]
        return ShownLog(title, lines, self._file.first, changes, times=times)

    @property
    def path(self) -> Path | None:
        """The file of the log that was read last; None if there is none."""
        return self._file.path if self._file is not None else None


class Wrapping:
    """The rows of one text for one width. Only new lines are wrapped."""

    def __init__(self) -> None:
        self._of: tuple[int, int] = (0, 0)
        """Number of lines before the text, and the width."""
        self._lines: list[str] = []
        """The lines that were wrapped: all but the last one, which may be incomplete."""
        self._rows: list[str] = []
        self._cuts: list[int] = []
        self._times: list[str] = []

    def of(self, log: ShownLog, width: int) -> ShownLog:
        """Return the same text in rows of at most ``width`` columns."""
        self._forget(log.first, width)
        known, of = len(self._lines), (log.first, width)
        shrank = known >= len(log.lines)
        if shrank or self._of != of or list(log.lines[:known]) != self._lines:
            self._of, known = of, 0
            self._lines, self._rows, self._cuts, self._times = [], [], [], []
        for number in range(known, len(log.lines) - 1):
            self._add(log, number, self._rows, self._cuts, self._times)
        self._lines += log.lines[known:-1]
        rows, cuts, times = self._rows[:], self._cuts[:], self._times[:]
        if log.lines:
            self._add(log, len(log.lines) - 1, rows, cuts, times)
        return replace(log, lines=rows, cuts=cuts, times=times)

    def _forget(self, first: int, width: int) -> None:
        """Drop the rows of lines that a long text has lost at its beginning."""
        before, same_width = self._of[0], self._of[1] == width
        if not same_width or not before < first <= before + len(self._lines):
            return
        rows = ShownLog("", self._rows, before, cuts=self._cuts).row_of(first + 1) - 1 - before
        self._cuts = [cut - rows for cut in self._cuts if cut >= rows]
        del self._rows[:rows], self._times[:rows], self._lines[: first - before]
        self._of = (first, width)

    def _add(
        self, log: ShownLog, number: int, rows: list[str], cuts: list[int], times: list[str]
    ) -> None:
        new = wrapped(log.lines[number], self._of[1])
        cuts += range(len(rows) + 1, len(rows) + len(new))
        rows += new
        times += [log.times[number] if number < len(log.times) else "", *[""] * (len(new) - 1)]


CHANGES_SECONDS = 3.0
"""Time between two diffs of a worktree: in a large one git reads for a while."""


class WorktreeDiff:
    """Diff of a running attempt's worktree; git runs in a thread beside the dashboard."""

    def __init__(self) -> None:
        self._known: tuple[str, int, str] = ("", 0, "")
        self._asked_at = 0.0
        self._asking: threading.Thread | None = None

    def of(self, shown: ShownAttempt, run_folder: Path) -> str:
        """Return git's summary of the last diff, "" while unknown; start another if it is old."""
        issue_id, attempt, changes = self._known
        now = time.monotonic()
        same = (issue_id, attempt) == (shown.issue_id, shown.attempt)
        if (not same or now >= self._asked_at + CHANGES_SECONDS) and (
            self._asking is None or not self._asking.is_alive()
        ):
            self._asked_at = now
            self._asking = threading.Thread(target=self._ask, args=(shown, run_folder), daemon=True)
            self._asking.start()
        return changes if same else ""

    def _ask(self, shown: ShownAttempt, run_folder: Path) -> None:
        from beads_workers.worktrees.records import Records

        # An attempt may continue in the worktree of an earlier one.
        record = max(
            (
                each
                for each in Records(run_folder.parent.parent).all()
                if each.issue_id == shown.issue_id and each.attempt <= shown.attempt
            ),
            key=lambda each: each.attempt,
            default=None,
        )
        changes = _changes(record.path, record.base) if record else ""
        self._known = (shown.issue_id, shown.attempt, changes)


def _changes(worktree: str, base: str) -> str:
    """Return ``2 files changed, 10 insertions(+), 1 new file``; "" if git fails."""
    outputs = []
    for words in (("diff", "--shortstat", base), ("ls-files", "--others", "--exclude-standard")):
        try:
            asked = call(worktree, *words, seconds=30)
        except GitError:
            return ""
        outputs.append(asked.output.strip() if asked.status == 0 else "")
    new = len(outputs[1].splitlines())
    return ", ".join(part for part in (outputs[0], counted(new, "new file") if new else "") if part)
