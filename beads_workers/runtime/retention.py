"""Retention: which runs that are over are kept or removed, and what is forgotten on request.

Source: docs/OPERATIONS.md, "What is kept". A run's folder is removed only if nobody needs it:
nothing is pending for its tracker, no process of it lives, it is this machine's, and a later run
remembers what it knew. A file that somebody is reading can be read to its end: the kernel keeps it
until it is closed.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from beads_workers.core.base import limits
from beads_workers.core.base.model import IssueId, value
from beads_workers.core.base.source import Action, Result
from beads_workers.core.records.journal import (
    CheckpointEnded,
    Entry,
    Record,
    RetryAsked,
    SettledRecord,
)
from beads_workers.runtime.journal_file import add_to, read_end
from beads_workers.runtime.night import runs_of_night
from beads_workers.runtime.run_directory import AlreadyRunning, RunDirectory, host_name

REMOVED = "removed"
"""Folder beside ``runs``: runs that are being removed."""


@value
class Keep:
    """Limits of what is kept."""

    # So many of the last runs stay; with ``night``, all of the last night stay, too.
    runs: int = limits.KEEP_RUNS
    # The runs stay only while all together are below this size; None: no limit.
    size_bytes: int | None = limits.RUNS_BYTES_MAX
    night: bool = True


def disposable(directory: RunDirectory, keep: Keep) -> list[Path]:
    """Return the folders of runs that may go, oldest first; nothing is removed yet."""
    run_ids = directory.run_ids()
    needed = set(_remembering(directory, run_ids))
    night = set(runs_of_night(directory, directory.last_run())) if keep.night else set()
    sizes = {i: _size(directory.run(i)) for i in run_ids} if keep.size_bytes is not None else {}
    total, excess = sum(sizes.values()), len(run_ids) - max(1, keep.runs)
    gone = []
    for number, run_id in enumerate(run_ids):
        too_big = keep.size_bytes is not None and total > keep.size_bytes
        too_old = number < excess and run_id not in night
        if (too_old or too_big) and run_id not in needed and _is_over(directory, run_id):
            gone.append(directory.run(run_id))
            total -= sizes.get(run_id, 0)
    return gone


def remove(folders: list[Path]) -> None:
    """Remove these folders; a folder that cannot be removed now goes the next time.

    Each is moved away in one step first: half a run must never be taken for a whole one.
    """
    for folder in folders:
        away = folder.parent.parent / REMOVED
        try:
            away.mkdir(exist_ok=True)
            folder.rename(away / folder.name)
        except OSError:
            continue  # Another process removes it just now, or the disk is read-only.
    for away in {folder.parent.parent / REMOVED for folder in folders}:
        # Imported here: it loads modules for archives, and most starts remove nothing.
        import shutil

        shutil.rmtree(away, ignore_errors=True)


def rotate(directory: RunDirectory, keep: Keep) -> threading.Thread:
    """Remove old runs in a thread of its own, so that a large one delays no start."""
    thread = threading.Thread(
        target=lambda: remove(disposable(directory, keep)), name="retention", daemon=True
    )
    thread.start()
    return thread


def trim_attempts(folder: Path) -> None:
    """Remove the oldest logs and results below ``folder``, of a run that may go on for months.

    A file that a worker still writes to has a name that begins with a dot, and stays.
    """
    for name in ("logs", "results"):
        with suppress(OSError):  # Not there, or a disk that refuses: the next time.
            _trim(folder / name)


def _trim(folder: Path) -> None:
    with os.scandir(folder) as found:
        files = [entry for entry in found if not entry.name.startswith(".")]
    if len(files) <= limits.ATTEMPT_FILES_MAX:
        return
    by_age = sorted((entry.stat(follow_symlinks=False).st_mtime, entry.path) for entry in files)
    # A tenth more than must go, so that the next file does not bring us here again.
    for _, path in by_age[: len(files) - limits.ATTEMPT_FILES_MAX * 9 // 10]:
        with suppress(FileNotFoundError):
            Path(path).unlink()


def _is_over(directory: RunDirectory, run_id: str) -> bool:
    if not directory.is_settled(run_id) or directory.is_alive(run_id):
        return False
    # If several machines share a disk, each of them removes its own runs.
    return directory.host(run_id) in ("", host_name())


def _remembering(directory: RunDirectory, run_ids: list[str]) -> Iterator[str]:
    """Yield the last run whose checkpoint is whole, and the runs after it: no other has it all."""
    for run_id in reversed(run_ids):
        yield run_id
        entries = read_end(directory.run(run_id) / "journal.jsonl")
        if any(isinstance(entry.record, CheckpointEnded) for entry in entries):
            return


def _size(folder: Path) -> int:
    """Return the bytes on disk: a file with holes counts only what it takes."""
    total = 0
    for path, _, names in os.walk(folder):
        for name in names:
            try:
                total += (Path(path) / name).lstat().st_blocks * 512
            except FileNotFoundError:
                pass  # Removed while we looked.
    return total


# --- retry without a fleet -----------------------------------------------------------------------
# ``retry`` without a fleet: what earlier runs remember of an issue is reset in their journals.


def forget(
    directory: RunDirectory, issue_ids: Sequence[IssueId], to_land: Result = Result.NOT_OURS
) -> None:
    """Give these issues a clean history for the next start: no attempts, no cooling down, nothing
    to land.

    ``to_land``: what became of issues whose branches wait to land: closed, or a person's again; or
    ``APPLIED`` if what runs have closed is opened again, and does not count as done. Do nothing if
    a fleet has just been started: it has read the journals already.
    """
    try:
        lock = directory.lock() if directory.root.is_dir() else None
    except AlreadyRunning:
        return
    if lock is None:
        return
    try:
        remembered = directory.left_over()[1].retry_entries
        asked = [issue_id for issue_id in issue_ids if issue_id in remembered]
        records = [
            SettledRecord(each, Action.CLOSE.value, to_land.value)
            if remembered[each].landing and not remembered[each].quarantined
            else RetryAsked(each)
            for each in asked
        ]
        if to_land is Result.APPLIED:
            records += [SettledRecord(i, Action.REOPEN.value, to_land.value) for i in issue_ids]
        # In every run that remembers it: which run the next start reads depends on what is whole.
        for run_id in directory.run_ids() if records else ():
            journal = directory.run(run_id) / "journal.jsonl"
            # With the time of the run's last entry: a later request does not make the run longer.
            add_to(journal, [Entry(record, time.time(), 0.0) for record in records])
    finally:
        os.close(lock)


def decided(directory: RunDirectory, record: Record) -> None:
    """Add what a person has decided about an issue to the newest journal that knows the issue: what
    older ones know, the next start does not read. The caller holds the lock of ``directory``."""
    for run_id in reversed(directory.run_ids()):
        left = directory.left_by(run_id)
        if left is not None and getattr(record, "issue_id", "") in left.issues.known:
            add_to(directory.run(run_id) / "journal.jsonl", [Entry(record, time.time(), 0.0)])
            return
