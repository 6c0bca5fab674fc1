"""The PREPARE step: makes an attempt's git worktree. ``python -m`` with a preparation on stdin."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from beads_workers.core.model import value
from beads_workers.core.settings import Worktrees, worktrees_from_json
from beads_workers.core.text import size
from beads_workers.executors.files import branch_part, file_name
from beads_workers.worktrees import removal
from beads_workers.worktrees.git import BRANCHES, GitError, git
from beads_workers.worktrees.places import make_folder
from beads_workers.worktrees.records import Records, WorktreeRecord, named_in, new_token

# --- copies --------------------------------------------------------------------------------------
# Files that git ignores and an attempt needs all the same (``.env``): copied into its worktree.


def copy_files(settings: Worktrees, worktree: str) -> Iterator[str]:
    """Copy what ``settings.copy`` names; gives a warning for each part that is left out.

    Only what git ignores, here and there, so that no attempt commits it; only from inside the
    project, and over nothing that is there. Raises ``GitError`` and ``OSError``.
    """
    target = Path(worktree, settings.prefix)
    copied: set[str] = set()
    for pattern in settings.copy:
        found = matching(settings, pattern)
        if not found:
            yield f"copy: nothing that git ignores matches {pattern}"
        for name in found:
            if name in copied:
                continue
            if trouble := _copy(Path(settings.checkout), target, name):
                yield f"copy: {name} left out, {trouble}"
            else:
                copied.add(name)
    shown = git(str(target), "ls-files", "-z", "--others", "--exclude-standard").split("\0")
    for name in sorted(copied & set(shown)):
        (target / name).unlink()
        yield f"copy: {name} left out, the .gitignore of the base does not name it"


def matching(settings: Worktrees, pattern: str) -> list[str]:
    """The ignored files of the project that a pattern names, seen from the project's folder."""
    listed = git(
        settings.checkout,
        *("ls-files", "-z", "--others", "--ignored", "--exclude-standard"),
        *("--", f":(glob){pattern}"),
    )
    ours = [Path(place).resolve() for place in (settings.state_directory, settings.folder)]
    names = [name for name in listed.split("\0") if name and not name.endswith("/")]
    root = Path(settings.checkout).resolve()
    return [name for name in names if not any((root / name).is_relative_to(o) for o in ours)]


def _copy(project: Path, target: Path, name: str) -> str | None:
    """Copy one file; returns why not."""
    source, goal = project / name, target / name
    if not source.resolve().is_relative_to(project.resolve()):
        return "it leads out of the project"
    if os.path.lexists(goal):
        return "it is in the repository"
    goal.parent.mkdir(parents=True, exist_ok=True)
    if not goal.parent.resolve().is_relative_to(target.resolve()):
        return "its place leads out of the worktree"
    shutil.copy2(source, goal, follow_symlinks=False)
    return None


# --- worktrees -----------------------------------------------------------------------------------
# The PREPARE step: makes an attempt's git worktree.
#
# What it prints goes to the attempt's log, and the last line of a failure is the error that people
# see. It fails for reasons that are not the issue's: the worker asks for a free retry. Source:
# docs/SEMANTICS.md, "Worktrees".


NAMES_MAX = 1000
"""Worktrees that one attempt may leave behind before something must be wrong."""
TRIES_MAX = 5
TRY_AGAIN_SECONDS = 0.2
"""Somebody else's git may hold one of its short locks."""
SHOWN_MAX = 3


class CannotPrepare(Exception):
    """No worktree; ``str()`` is one line."""


@value
class Preparation:
    """What a worker asks for; ``place_file`` is where it looks for the answer.

    ``continues``: the attempt goes on with the work of the one before, in the same worktree, if
    that is still there.
    """

    worktrees: Worktrees
    issue_id: str
    attempt: int
    worker_id: str
    run_id: str
    place_file: str
    continues: bool = False


def read_preparation(text: str) -> Preparation:
    """Read what ``executors.command.preparation`` wrote."""
    fields: dict[str, Any] = json.loads(text)
    return Preparation(**{**fields, "worktrees": worktrees_from_json(fields["worktrees"])})


def prepare(asked: Preparation) -> None:
    """Make the worktree and say so in the place file; raises ``CannotPrepare``."""
    settings = asked.worktrees
    records = Records(Path(settings.state_directory))
    place_file = Path(asked.place_file)
    last = named_in(place_file)
    # From here on the worktree of this worker's last task is in nobody's use.
    place_file.unlink(missing_ok=True)
    if last is not None and (record := records.find(last)) is not None:
        removal.tidy(records, [record])
    if asked.continues and (left := _left_by_the_last(asked, records)) is not None:
        _write_place(settings, records.take_over(left, asked.run_id, asked.worker_id), place_file)
        _say(f"worktree {left.path}, branch {left.branch}: the work goes on")
        return
    _check_disk(settings)
    try:
        base = _base_of(settings)
        with alone(settings.common):
            record, lock = _begin(asked, records, base)
            git_directory = _add(settings, record)
            records.mark(record, git_directory, settings)
    except GitError as error:
        raise CannotPrepare(str(error)) from None
    try:
        _fill(asked, record, place_file)
        records.ready(record)
    finally:
        os.close(lock)
        # What was not finished holds nobody's work; the log says what went wrong.
        if not records.is_ready(record):
            removal.tidy(records, [record])


def resolve_base(folder: str, base: str) -> str:
    """The commit that ``base`` names now; raises ``GitError``."""
    name = f"{base}^{{commit}}"
    try:
        return git(folder, "rev-parse", "--verify", "--end-of-options", name).split()[-1]
    except GitError as error:
        raise GitError(f"no such base, {base}: {error}") from None


def _base_of(settings: Worktrees) -> str:
    try:
        return resolve_base(settings.checkout, settings.base)
    except GitError:
        if not settings.base_else:
            raise
        return settings.base_else


def _fill(asked: Preparation, record: WorktreeRecord, place_file: Path) -> None:
    settings = asked.worktrees
    folder = os.path.normpath(f"{record.path}/{settings.prefix}")
    try:
        git(record.path, "reset", "--hard", "--quiet")
        os.makedirs(folder, exist_ok=True)  # noqa: PTH103 - no Path here
        for warning in copy_files(settings, record.path):
            _say(f"warning: {warning}")
    except GitError as error:
        raise CannotPrepare(str(error)) from None
    except OSError as error:
        raise CannotPrepare(f"{error.filename}: {error.strerror}") from None
    if settings.setup is not None:
        _set_up(settings.setup, folder, _environment(settings, record), record)
    _write_place(settings, record, place_file)
    _say(f"worktree {record.path}, branch {record.branch} from {record.base[:12]}")


def _left_by_the_last(asked: Preparation, records: Records) -> WorktreeRecord | None:
    """The newest worktree of the issue. Whoever had it last may be its last user still, and works
    in it no more: an issue is with one worker at a time."""
    of_issue = [record for record in records.all() if record.issue_id == asked.issue_id]
    for record in sorted(of_issue, key=records.written_at, reverse=True):
        usable = records.is_ready(record) and Path(record.path, ".git").exists()
        if usable and not records.is_locked(record):
            return record
    return None


def _environment(settings: Worktrees, record: WorktreeRecord) -> dict[str, str]:
    environment = {
        "BW_WORKTREE": record.path,
        "BW_BRANCH": record.branch,
        "BW_BASE": record.base,
        "BW_CHECKOUT": settings.checkout,
        "PWD": os.path.normpath(f"{record.path}/{settings.prefix}"),
    }
    if settings.beads is not None:
        # The worktree may hold a copy of ``.beads``; there is one tracker all the same.
        environment["BEADS_DIR"] = settings.beads
    return environment


def _write_place(settings: Worktrees, record: WorktreeRecord, place_file: Path) -> None:
    environment = _environment(settings, record)
    place = {"name": record.name, "folder": environment["PWD"], "environment": environment}
    place_file.write_text(json.dumps(place))


def _set_up(script: str, folder: str, environment: dict[str, str], record: WorktreeRecord) -> None:
    done = subprocess.run(
        ["sh", "-c", script],
        cwd=folder,
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        check=False,
    )
    if done.returncode != 0:
        raise CannotPrepare(f"setup failed: exit status {done.returncode}")
    try:
        left = removal.changes(record.path)
    except GitError as error:
        raise CannotPrepare(str(error)) from None
    if left:
        shown = ", ".join(left[:SHOWN_MAX])
        _say(f"warning: setup left what git does not ignore, so this worktree is kept: {shown}")


def _check_disk(settings: Worktrees) -> None:
    folder = Path(settings.folder)
    try:
        make_folder(folder)
        disk = os.statvfs(folder)
    except OSError as error:
        raise CannotPrepare(f"{folder}: {error.strerror}") from None
    free = disk.f_bavail * disk.f_frsize
    if free < settings.disk_floor_bytes:
        raise CannotPrepare(
            f"{size(free)} of disk are free at {folder}, and the floor is"
            f" {size(settings.disk_floor_bytes)}; 'beads-workers clean' may make room"
        )


@contextmanager
def alone(common: str) -> Iterator[None]:
    """One at a time for this repository: parallel ``git worktree add`` fail now and then."""
    lock = os.open(f"{common}/beads-workers.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def _begin(asked: Preparation, records: Records, base: str) -> tuple[WorktreeRecord, int]:
    settings = asked.worktrees
    for number in range(1, NAMES_MAX):
        # An attempt that was not charged has its number again: what it left is not touched.
        again = "" if number == 1 else f".{number}"
        record = WorktreeRecord(
            name=f"{file_name(asked.issue_id)}.{asked.attempt}{again}",
            issue_id=asked.issue_id,
            attempt=asked.attempt,
            branch=f"{BRANCHES}/{branch_part(asked.issue_id)}/{asked.attempt}{again}",
            base=base,
            path="",
            common=settings.common,
            run_id=asked.run_id,
            worker_id=asked.worker_id,
            token=new_token(),
        )
        record = _at(record, f"{settings.folder}/{record.name}")
        if (left := records.find(record.name)) is not None:
            if left.issue_id != record.issue_id or left.attempt != record.attempt:
                continue
            removal.tidy(records, [left])
        if records.find(record.name) is None and _is_free(settings, record):
            return record, records.begin(record)
    raise CannotPrepare(f"attempt {asked.attempt} has left {NAMES_MAX} worktrees")


def _at(record: WorktreeRecord, path: str) -> WorktreeRecord:
    return replace(record, path=path)


def _is_free(settings: Worktrees, record: WorktreeRecord) -> bool:
    if os.path.lexists(record.path):
        return False
    ref = f"refs/heads/{record.branch}"
    return not git(settings.checkout, "for-each-ref", "--format=%(refname)", ref).strip()


def _add(settings: Worktrees, record: WorktreeRecord) -> Path:
    add = ("worktree", "add", "--quiet", "--no-checkout", "--no-track", "-b", record.branch)
    for last in (*[False] * (TRIES_MAX - 1), True):
        try:
            git(settings.checkout, *add, record.path, record.base)
            break
        except GitError:
            if last:
                raise
            time.sleep(TRY_AGAIN_SECONDS)
    return Path(git(record.path, "rev-parse", "--absolute-git-dir").rstrip("\n"))


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def main() -> int:
    """See the module text; 0, or 1 after saying why."""
    try:
        prepare(read_preparation(sys.stdin.read()))
    except CannotPrepare as error:
        _say(str(error))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
