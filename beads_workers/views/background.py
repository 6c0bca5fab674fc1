"""What the dashboard shows of attempts, read beside it: no call waits.

``AttemptReader`` has the view of the pinned attempt, its diff and ``why``; ``LogTail`` the log of
the selected one. What is not read yet comes later.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Generic, TypeVar

from beads_workers.core.base.text import counted, printable
from beads_workers.ui.attempt_view import AttemptView, Fields, Pin, running, stamp
from beads_workers.ui.time_text import clock
from beads_workers.ui.viewer import Screen, ShownAttempt, ShownLog, chosen_row, shown_attempt
from beads_workers.views.attempt_files import diff_lines, log_path, read_view, worktree_of
from beads_workers.views.logs import LOG_BYTES_MAX, LogFile
from beads_workers.worktrees.git import GitError, call, names
from beads_workers.worktrees.records import Records

T = TypeVar("T")


class BackgroundAnswer(Generic[T]):
    """The newest answer to one question, worked out in a thread beside the dashboard."""

    def __init__(self) -> None:
        self._key: Hashable = None
        self._asked: Hashable = None
        self._asked_at = 0.0
        self._answer: T | None = None
        self._thread: threading.Thread | None = None

    @property
    def answer(self) -> T | None:
        """The last answer, whatever its key."""
        return self._answer

    def of(
        self,
        key: Hashable,
        work: Callable[[], T],
        *,
        stamp: Hashable = None,
        seconds: float | None = None,
    ) -> T | None:
        """Return the answer for this key, None while there is none.

        It is worked out again if ``stamp`` changes, and after so many ``seconds``; meanwhile the
        answer before stands. ``work`` raises nothing.
        """
        now = time.monotonic()
        old = seconds is not None and now >= self._asked_at + seconds
        busy = self._thread is not None and self._thread.is_alive()
        if (same := self._key == key) and busy:
            return self._answer
        if not same or self._asked != stamp or old:
            if not same:
                self._answer = None
            self._key, self._asked, self._asked_at = key, stamp, now
            self._thread = threading.Thread(target=self._run, args=(key, work), daemon=True)
            self._thread.start()
        return self._answer

    def _run(self, key: Hashable, work: Callable[[], T]) -> None:
        answer = work()
        if self._key == key:
            self._answer = answer


DIFF_SECONDS = 3.0
"""Time between two diffs of a running attempt: in a large worktree git reads for a while."""


class AttemptReader:
    """Reader for a dashboard: no call waits; what is not read yet comes later.

    ``run_folder``: run id -> the folder of that run. ``why``: the lines of ``why``. ``replay``:
    the snapshots are of the past, so what began later is left out, and no tracker is asked.
    """

    def __init__(
        self,
        run_folder: Callable[[str], Path],
        why: Callable[[str, Path], list[str]],
        *,
        replay: bool = False,
    ) -> None:
        self._run_folder, self._why_lines = run_folder, why
        self._replay = replay
        self._view: BackgroundAnswer[AttemptView] = BackgroundAnswer()
        self._is_read = False
        self._diff: BackgroundAnswer[list[str]] = BackgroundAnswer()
        self._why: BackgroundAnswer[list[str]] = BackgroundAnswer()

    def _directory(self, run_id: str) -> Path:
        return self._run_folder(run_id).parent.parent

    def view(self, pin: Pin, snapshot: Fields) -> AttemptView:
        """Return the pinned attempt, as far as it is known."""

        def read() -> AttemptView:
            try:
                return read_view(self._directory(pin.run_id), pin)
            except Exception:  # Broken files must not end a thread without an answer.
                return AttemptView(pin)

        known = None if self._replay else stamp(pin.issue_id, snapshot)
        found = self._view.of(pin.issue_id, read, stamp=known)
        self._is_read = found is not None
        return (found or AttemptView(pin)).pinned(
            pin, snapshot["uptime_seconds"] if self._replay else None
        )

    def diff(self, view: AttemptView, snapshot: Fields) -> list[str] | None:
        """Return the lines of the attempt's diff; None while they are not known."""
        if not self._is_read:
            return None  # Nothing is known yet of its branch and its commits.
        runs = running(view.pin, snapshot) is not None
        directory = self._directory(view.pin.run_id)
        seconds = DIFF_SECONDS if runs else None
        key = view.pin
        receipt = view.tried.attempt.receipt if view.tried else None
        changes = (runs, receipt.head if receipt else "", view.landing)
        return self._diff.of(
            key,
            lambda: _said(lambda: diff_lines(directory, view, runs=runs)),
            stamp=changes,
            seconds=seconds,
        )

    def why(self, issue_id: str, snapshot: Fields) -> list[str] | None:
        """Return what ``why`` says of the issue; None while it is not known."""
        if self._replay:
            return ["(a replay does not ask the tracker)"]
        directory = self._directory(snapshot["run_id"])
        return self._why.of(
            issue_id,
            lambda: _said(lambda: self._why_lines(issue_id, directory)),
            stamp=stamp(issue_id, snapshot),
        )


def _said(read: Callable[[], list[str]]) -> list[str]:
    """Return the lines, or what went wrong."""
    try:
        return read()
    except Exception as error:  # Whatever it is: the view says so, and the dashboard goes on.
        return [printable(f"this cannot be shown: {error}", 300)]


class LogTail:
    """Reader of attempts' logs.

    ``run_folder``: run id -> the folder of that run.
    """

    def __init__(self, run_folder: Callable[[str], Path], bytes_max: int = LOG_BYTES_MAX) -> None:
        self._run_folder = run_folder
        self._bytes_max = bytes_max
        self._file: LogFile | None = None
        self._of: tuple[str, int, Path] | None = None
        """Issue, attempt and path of the open log."""
        self._changes: BackgroundAnswer[str] = BackgroundAnswer()

    def read(self, screen: Screen, snapshot: Mapping[str, Any]) -> ShownLog:
        """Return the log of the selected attempt. Raise ``OSError`` if it cannot be read."""
        shown = shown_attempt(screen, snapshot)
        if shown is None:
            row = chosen_row(screen, snapshot, screen.part)
            if row is None or "folded" in row:
                return ShownLog("nothing to show")
            return ShownLog(f"{row['worker_id']} has run nothing yet")
        folder = self._run_folder(shown.run_id or snapshot["run_id"])
        work = partial(changes_in_worktree, folder.parent.parent, shown)
        key = shown.issue_id, shown.attempt
        changes = self._changes.of(key, work, seconds=DIFF_SECONDS) if shown.running else ""
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
                self._file.read(time.time())
                if before is not None and same:
                    self._file.goes_on_with(before)
            self._file.read(time.time())
        except FileNotFoundError:
            self._file = None
        lines = self._file.shown if self._file else []
        nothing = "nothing printed yet" if shown.running else "it printed nothing"
        title = f"{shown.title}: {path.name if lines else nothing}"
        if self._file is None:
            return ShownLog(title, changes=changes or "")
        times = ["" if at is None else clock(at) for at in self._file.times]
        times += [""] * (len(lines) - len(times))
        return ShownLog(title, lines, self._file.first, changes or "", times=times)

    @property
    def path(self) -> Path | None:
        """The file of the log that was read last; None if there is none."""
        return self._file.path if self._file is not None else None


def changes_in_worktree(state_directory: Path, shown: ShownAttempt) -> str:
    """Return what has changed in a running attempt's worktree: ``2 files changed, 10 insertions(+),
    1 new file``; "" if that cannot be read."""
    try:
        record = worktree_of(Records(state_directory), shown.issue_id, shown.attempt)
        if record is None:
            return ""
        changed = call(record.path, "diff", "--shortstat", record.base, seconds=30)
        added = call(record.path, "ls-files", "-z", "--others", "--exclude-standard", seconds=30)
    except (GitError, OSError):
        return ""
    said = [changed.output.strip()] if changed.status == 0 else []
    new = len(names(added.output)) if added.status == 0 else 0
    return ", ".join(each for each in (*said, counted(new, "new file") if new else "") if each)
