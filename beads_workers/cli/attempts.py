"""What files tell of an attempt: all attempts of its issue, its log, its diff. Reads only.

``read_view``, ``log_path`` and ``diff_lines`` may take seconds, and raise ``CommandError``,
``GitError`` or ``OSError``. The dashboard calls them in threads, through ``AttemptReader``; the
server of the live page has a thread for each request.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Hashable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Generic, TypeVar

from beads_workers.cli.agent_logs import left_outputs
from beads_workers.core.records.receipts import SHA_CHARS
from beads_workers.executors.files import branch_part, log_file, output_file
from beads_workers.ui.attempt import AttemptView, Fields, Pin, attempt_view, running, stamp

if TYPE_CHECKING:
    from beads_workers.worktrees.records import WorktreeRecord

RUNS_MAX = 20
"""Number of runs before the night that are searched for an issue without attempts in it."""

# --- attempts ------------------------------------------------------------------------------------


def read_view(state_directory: Path, pin: Pin) -> AttemptView:
    """Return the pinned attempt among all attempts of its issue in the night of its run.

    If the night has none, they are those of the newest earlier run that has any.
    """
    from beads_workers.cli.histories import read_night, read_run
    from beads_workers.runtime.run_directory import RunDirectory

    directory = RunDirectory(state_directory)
    runs = read_night(directory, pin.run_id, about=pin.issue_id).runs
    view = attempt_view(pin, runs)
    if view.attempts:
        return view
    earlier = [each for each in directory.run_ids() if each < runs[0].start.run_id]
    for run_id in list(reversed(earlier))[:RUNS_MAX]:
        if directory.beginning(run_id) is None:
            continue
        older = attempt_view(pin, [read_run(directory, run_id, pin.issue_id)])
        if older.attempts:
            return older
    return view


def log_path(run_folder: Path, pin: Pin, *, runs: bool, seconds: float = 0.0) -> Path:
    """Return the path of an attempt's log, which may not be there.

    ``run_folder``: of the pinned run. ``runs``: whether the attempt runs now. ``seconds``: how long
    it ran.
    """
    folder = str(run_folder)
    log = Path(log_file(folder, pin.issue_id, pin.number))
    if log.exists():
        return log
    if runs:
        # An attempt whose first step has printed already has its own log.
        return Path(output_file(folder, pin.worker_id))
    # It was killed with its worker; a row of another list has no times.
    at = pin.ended_at or 0.0
    left = left_outputs(run_folder, pin.worker_id, at - seconds, at)
    return left[-1] if left else log


# --- diff ----------------------------------------------------------------------------------------


def diff_lines(state_directory: Path, view: AttemptView, *, runs: bool) -> list[str]:
    """Return the branch of an attempt, and what it changed, in lines that are safe to show.

    ``runs``: whether it runs now; then the diff is that of its worktree.
    """
    from beads_workers.worktrees.records import Records

    pin, records = view.pin, Records(state_directory)
    mine = [
        each
        for each in records.all()
        if each.issue_id == pin.issue_id and (each.attempt <= pin.number or not pin.number)
    ]
    record = max(mine, key=records.written_at, default=None)
    where = record.common if record else view.project
    tip = "" if runs else _tip(where, view)
    if not tip and record is not None and Path(record.path).is_dir():
        return _worktree_diff(record)  # Of a killed attempt, too: the next one goes on there.
    return _branch_diff(where, view, tip or _commit(where, f"refs/heads/{view.branch}"), record)


def _worktree_diff(record: WorktreeRecord) -> list[str]:
    from beads_workers.worktrees.diffs import diff, diff_line
    from beads_workers.worktrees.git import git, names

    base = git(record.path, "merge-base", record.base, "HEAD").strip()
    lines, cut = diff(record.path, "--stat=76", "--patch", base)
    new = names(git(record.path, "ls-files", "-z", "--others", "--exclude-standard"))
    head = [f"{diff_line(record.branch)}, in its worktree now: {diff_line(record.path)}"]
    head += [f"{NEW_FILE}{diff_line(name)}" for name in new[:NEW_FILES_MAX]]
    head += [f"and {len(new) - NEW_FILES_MAX} more"] if len(new) > NEW_FILES_MAX else []
    return _whole(head, lines, cut=cut)


NEW_FILES_MAX = 20
NEW_FILE = "new, not added: "


def _tip(where: str, view: AttemptView) -> str:
    """Return the commit that is kept of an ended attempt, "" if there is none."""
    from beads_workers.worktrees.landed import ATTEMPTS

    one = view.tried.attempt if view.tried else None
    kept = f"{ATTEMPTS}/{branch_part(view.pin.issue_id)}/{view.pin.number}"
    names = [kept, one.receipt.head if one and one.receipt else ""]
    if one is not None and one.outcome == "success":
        names.reverse()  # The commit that is approved and lands; else the tree as it was left.
    return next((found for name in names if (found := _commit(where, name))), "")


def _branch_diff(
    where: str, view: AttemptView, tip: str, record: WorktreeRecord | None
) -> list[str]:
    """Return the diff of an attempt's commit, else of what landed."""
    from beads_workers.worktrees.diffs import diff, diff_line
    from beads_workers.worktrees.git import git

    receipt = view.tried.attempt.receipt if view.tried else None
    landed = view.landing.commit if view.landing else ""
    head = [diff_line(f"{view.branch or 'attempt'} at {tip[:SHA_CHARS]}")] if tip else []
    head += [f"landed as {landed[:SHA_CHARS]}"] if landed else []
    if tip:
        said = (receipt.base if receipt else "") or (record.base if record else "")
        base = git(where, "merge-base", _commit(where, said) or "HEAD", tip).strip()
    elif tip := _commit(where, landed):
        base = f"{tip}^1"
    else:
        return [*head, "nothing of this attempt is in the repository: no branch, no worktree"]
    lines, cut = diff(where, "--stat=76", "--patch", base, tip)
    return _whole(head, lines, cut=cut)


def _commit(folder: str, name: str) -> str:
    """Return the commit of this name, "" if there is none."""
    from beads_workers.worktrees.git import GitError, git, is_object

    # Receipts come from workers: anything else might be an option of git.
    if not folder or not (name.startswith("refs/") or is_object(name)):
        return ""
    try:
        return git(folder, "rev-parse", "--verify", "--quiet", f"{name}^{{commit}}").strip()
    except GitError:
        return ""


def _whole(head: list[str], lines: list[str], *, cut: bool) -> list[str]:
    if not lines:
        other = "nothing else" if any(line.startswith(NEW_FILE) for line in head) else "nothing"
        return [*head, "", f"{other} is changed"]
    rest = ["", "(cut here: 'git diff' shows the rest)"] if cut else []
    return [*head, "", *lines, *rest]


# --- saving --------------------------------------------------------------------------------------


def save(path: str, log: Path | None, lines: Sequence[str]) -> str:
    """Write a text to a new file; return what a person is told about it.

    ``log``: the file of a whole log, of which ``lines`` may be only the end.
    """
    from beads_workers.cli.logs import readable_lines
    from beads_workers.core.base.text import counted, printable

    count = 0
    try:
        place = Path(path).expanduser().absolute()
        # A file that is there is not replaced, and a link is not followed.
        opened = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with open(opened, "w", encoding="utf-8") as file:
            for line in readable_lines(log) if log is not None else lines:
                file.write(f"{line}\n")
                count += 1
    except FileExistsError:
        return f"{printable(path)} is there already: choose another name"
    except (OSError, RuntimeError) as error:  # The second: nobody has the home of ``~name``.
        return printable(f"{path} cannot be written: {getattr(error, 'strerror', error)}", 300)
    return f"{counted(count, 'line')} in {printable(str(place))}"


# --- beside the dashboard ------------------------------------------------------------------------

T = TypeVar("T")


class Beside(Generic[T]):
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

    ``run_folder``: run id -> the folder of that run. ``replay``: the snapshots are of the past, so
    what began later is left out, and no tracker is asked.
    """

    def __init__(self, run_folder: Callable[[str], Path], *, replay: bool = False) -> None:
        self._run_folder = run_folder
        self._replay = replay
        self._view: Beside[AttemptView] = Beside()
        self._is_read = False
        self._diff: Beside[list[str]] = Beside()
        self._why: Beside[list[str]] = Beside()

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
        from beads_workers.cli.why import why_lines

        directory = self._directory(snapshot["run_id"])
        return self._why.of(
            issue_id,
            lambda: _said(lambda: why_lines(issue_id, directory)),
            stamp=stamp(issue_id, snapshot),
        )


def _said(read: Callable[[], list[str]]) -> list[str]:
    """Return the lines, or what went wrong."""
    try:
        return read()
    except Exception as error:  # Whatever it is: the view says so, and the dashboard goes on.
        from beads_workers.core.base.text import printable

        return [printable(f"this cannot be shown: {error}", 300)]
