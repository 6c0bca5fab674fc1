"""The view of an attempt: all attempts of its issue, which file is its log, its diff.

``read_view``, ``log_path`` and ``diff_lines`` may take seconds, and raise ``CommandError``,
``GitError`` or ``OSError``. The dashboard calls them in threads (``views.background``); the
server of the live page has a thread for each request.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from beads_workers.core.records.receipts import SHA_CHARS
from beads_workers.executors.files import branch_part, log_file, output_file
from beads_workers.ui.attempt_view import AttemptView, Pin, attempt_view
from beads_workers.views.logs import left_outputs

if TYPE_CHECKING:
    from beads_workers.core.views.history import History, IssueHistory
    from beads_workers.worktrees.records import Records, WorktreeRecord

RUNS_MAX = 20
"""Number of runs before the night that are searched for an issue without attempts in it."""

# --- attempts ------------------------------------------------------------------------------------


def read_view(state_directory: Path, pin: Pin) -> AttemptView:
    """Return the pinned attempt among all attempts of its issue in the night of its run.

    If the night has none, they are those of the newest earlier run that has any.
    """
    from beads_workers.runtime.run_directory import RunDirectory
    from beads_workers.views.histories import read_night, read_run

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
    record = worktree_of(records, pin.issue_id, pin.number)
    where = record.common if record else view.project
    tip = "" if runs else _tip(where, view)
    if not tip and record is not None and Path(record.path).is_dir():
        return _worktree_diff(record)  # Of a killed attempt, too: the next one goes on there.
    return _branch_diff(where, view, tip or _commit(where, f"refs/heads/{view.branch}"), record)


def landed_diff(state_directory: Path, view: AttemptView) -> tuple[str, list[str]] | None:
    """Return the commit as which the issue has landed, and its diff; None if it has not, or the
    repository has the commit no more."""
    from beads_workers.worktrees.git import GitError

    if view.landing is None or not view.landing.commit:
        return None
    try:
        return view.landing.commit, diff_lines(state_directory, view, runs=False)
    except GitError:
        return None


def landed_diffs(
    state_directory: Path, history: History
) -> Iterator[tuple[IssueHistory, str, list[str]]]:
    """Yield the issues of a history that have landed, each with its commit and its diff."""
    runs = history.runs or (history,)
    for issue in history.issues:
        view = attempt_view(Pin(issue.issue_id, runs[-1].start.run_id), runs)
        if (found := landed_diff(state_directory, view)) is not None:
            yield issue, *found


def worktree_of(records: Records, issue_id: str, number: int = 0) -> WorktreeRecord | None:
    """Return the newest worktree of an issue; ``number``: of this attempt, which may go on in that
    of an earlier one."""
    mine = (e for e in records.of_issue(issue_id) if e.attempt <= number or not number)
    return max(mine, key=records.written_at, default=None)


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
    from beads_workers.core.base.text import counted, printable
    from beads_workers.views.logs import readable_lines

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
