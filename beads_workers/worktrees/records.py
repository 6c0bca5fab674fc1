"""Records of every worktree that we made: only worktrees with a record are ever removed.

    .beads-workers/worktree-records/
      <name>.json    the worktree's attempt; written before git is called, locked (flock) meanwhile
      <name>.ready   exists once a task may run in the worktree
      <name>.ahead   state of a worktree that was made before an attempt needed it, and that is free

A worktree is ours only while the git directory that git keeps for it holds the record's token.
Without the token, whatever stands at that path is a stranger's.
"""

from __future__ import annotations

import errno
import json
import os
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from beads_workers.core.model import value
from beads_workers.core.plain import BAD_VALUE, from_plain, to_plain
from beads_workers.core.settings import Worktrees
from beads_workers.executors.files import place_file
from beads_workers.runtime.locks import try_lock
from beads_workers.runtime.project import WORKTREE_MARK

RECORDS = "worktree-records"
LOOKS = 1000

AHEAD = "BW_AHEAD"
"""Variable in the environment of a set-up hook that runs ahead: the path of its worktree."""


REFS_FILE = "bw-refs"
"""File in a worktree's own git directory: the refs as they were before its first attempt."""


@value
class WorktreeRecord:
    """Record of one worktree. ``base``: the commit that it began with; ``common``: the repository.

    A worktree made ahead of an attempt has no issue and no branch yet. The attempt that takes it
    writes a record of its own, with the same path and token, before this one is forgotten.
    """

    name: str
    issue_id: str
    attempt: int
    branch: str
    base: str
    path: str
    common: str
    run_id: str
    worker_id: str
    token: str


class Records:
    """The records of one state directory."""

    def __init__(self, state_directory: Path) -> None:
        self.state_directory = state_directory
        self.folder = state_directory / RECORDS

    def all(self) -> list[WorktreeRecord]:
        """Return all readable records, sorted by name. A worktree that was made ahead and then
        taken may have two: of these, only the attempt's."""
        found = self._read()
        taken = {record.token for record in found if record.issue_id}
        return [record for record in found if record.issue_id or record.token not in taken]

    def made_ahead(self) -> list[WorktreeRecord]:
        """Return the records of worktrees made ahead that no attempt has taken."""
        return [record for record in self.all() if not record.issue_id]

    def forget_taken(self) -> None:
        """Remove what killed processes left: half-written records, and the made-ahead record of a
        worktree for which an attempt has a record of its own."""
        for fresh in self.folder.glob("*.new"):
            if (lock := _lock_this(fresh)) is not None:
                fresh.unlink()
                os.close(lock)
        kept = {record.name for record in self.all()}
        for record in self._read():
            if record.name not in kept:
                self.forget(record)

    def _read(self) -> list[WorktreeRecord]:
        found = (self.find(path.stem) for path in sorted(self.folder.glob("*.json")))
        return [record for record in found if record is not None]

    def find(self, name: str) -> WorktreeRecord | None:
        """Return the record of this name; None if there is none."""
        try:
            return read_record((self.folder / f"{name}.json").read_bytes())
        except OSError:
            return None

    def begin(self, record: WorktreeRecord) -> int:
        """Write a new record; return the lock on it, to be held while the worktree is made."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        fresh = self.folder / f"{record.name}.new"
        for _ in range(LOOKS):
            if (lock := _lock_this(fresh, create=True)) is not None:
                break
            time.sleep(0.001)  # The half-written file of a killed process is just being removed.
        else:
            raise BlockingIOError(errno.EBUSY, os.strerror(errno.EBUSY), str(fresh))
        fresh.write_text(json.dumps(to_plain(record)) + "\n")
        fresh.rename(self.folder / f"{record.name}.json")
        return lock

    def take_over(
        self, record: WorktreeRecord, run_id: str, worker_id: str
    ) -> tuple[WorktreeRecord, int]:
        """Give the worktree to another worker; return the new record, and the lock on it.

        The caller has the old record locked. A process that has read the old record can lock it
        no longer, so it does not remove the worktree.
        """
        taken = replace(record, run_id=run_id, worker_id=worker_id)
        return taken, self.begin(taken)

    def rewrite(self, record: WorktreeRecord) -> None:
        """Replace the record by one with new paths; the file keeps its time. The caller has it
        locked."""
        file = self.folder / f"{record.name}.json"
        written = file.stat()
        os.close(self.begin(record))
        os.utime(file, ns=(written.st_atime_ns, written.st_mtime_ns))

    def written_at(self, record: WorktreeRecord) -> float:
        """Return when the record was begun, or taken over last, in epoch seconds."""
        try:
            return (self.folder / f"{record.name}.json").stat().st_mtime
        except OSError:
            return 0.0

    def mark(self, record: WorktreeRecord, git_directory: Path, settings: Worktrees) -> None:
        """Mark the worktree as ours; the mark also leads from the worktree to the project."""
        mark = {
            "token": record.token,
            "project": settings.checkout,
            "prefix": settings.prefix,
            "state": settings.state_directory,
        }
        (git_directory / WORKTREE_MARK).write_text(json.dumps(mark) + "\n")

    def ready(self, record: WorktreeRecord) -> None:
        """Note that a task may run in the worktree from now on: its contents may be work."""
        (self.folder / f"{record.name}.ready").touch()

    def is_ready(self, record: WorktreeRecord) -> bool:
        """Return whether a task may ever have run in the worktree."""
        return (self.folder / f"{record.name}.ready").exists()

    def set_ahead(self, record: WorktreeRecord, state: str | None) -> None:
        """Store the state of a finished worktree that waits for an attempt; None: it does not wait
        any more.

        The caller has the record locked. ``pool.take`` refuses a half-written state, and
        ``removal.discard`` then removes the worktree.
        """
        file = self.folder / f"{record.name}.ahead"
        if state is None:
            file.unlink(missing_ok=True)
        else:
            file.write_text(state)

    def ahead(self, record: WorktreeRecord) -> str | None:
        """Return the state that ``set_ahead`` stored; None if the worktree may not be taken."""
        try:
            return (self.folder / f"{record.name}.ahead").read_text()
        except OSError:
            return None

    def lock(self, record: WorktreeRecord) -> int | None:
        """Lock the record, and return a descriptor: the lock holds until that is closed.

        None if the worktree is being made or removed, or if the record is gone or has changed since
        it was read.
        """
        lock = _lock_this(self.folder / f"{record.name}.json")
        if lock is not None and self.find(record.name) != record:
            os.close(lock)
            return None
        return lock

    def is_locked(self, record: WorktreeRecord) -> bool:
        """Return whether the worktree is being made or removed."""
        lock = self.lock(record)
        if lock is not None:
            os.close(lock)
        return lock is None and (self.folder / f"{record.name}.json").exists()

    def forget(self, record: WorktreeRecord) -> None:
        """Delete the record: there is no such worktree any more."""
        for ending in (".ready", ".ahead", ".json"):
            (self.folder / f"{record.name}{ending}").unlink(missing_ok=True)

    def in_use(self, record: WorktreeRecord) -> bool:
        """Return whether the worktree's run lives, and its worker has entered no other worktree
        since; one made ahead is in use while its run lives."""
        # Imported here: programs of attempts make worktrees, start often, and never call this.
        from beads_workers.runtime.run_directory import RunDirectory

        runs = RunDirectory(self.state_directory)
        if not runs.is_alive(record.run_id):
            return False
        if not record.issue_id:
            return True  # The attempts for it are still to come.
        place = Path(place_file(str(runs.run(record.run_id)), record.worker_id))
        return named_in(place) == record.name


def _lock_this(path: Path, *, create: bool = False) -> int | None:
    """Lock the file at this path; None if it is locked or gone, or if another file has
    taken its place meanwhile."""
    try:
        lock = try_lock(path, create=create)
    except FileNotFoundError:
        return None
    if lock is None:
        return None
    with suppress(FileNotFoundError):
        if os.path.samestat(os.fstat(lock), path.stat()):
            return lock
    os.close(lock)
    return None


def read_record(text: bytes) -> WorktreeRecord | None:
    """Parse what ``begin`` wrote; None for anything else: then nothing is removed."""
    try:
        return from_plain(WorktreeRecord, json.loads(text.decode()))
    except (*BAD_VALUE, RecursionError):
        return None


def named_in(place: Path) -> str | None:
    """Return the name of the worktree in a worker's place file; None if there is none."""
    try:
        name = json.loads(place.read_bytes())["name"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    return str(name)


def token_in(git_directory: Path) -> str | None:
    """Return the token of the worktree with this git directory; None if it is not one of ours."""
    try:
        token = json.loads((git_directory / WORKTREE_MARK).read_bytes())["token"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    return str(token)


def git_directories(common: str) -> Iterator[tuple[Path, Path]]:
    """Yield each linked worktree of a repository: its git directory, and its own folder."""
    for folder in sorted(Path(common, "worktrees").glob("*")):
        try:
            dot_git = Path(os.fsdecode((folder / "gitdir").read_bytes()).rstrip("\n"))
        except OSError:
            continue  # half made, or just being removed
        if not dot_git.is_absolute():  # As with ``worktree.useRelativePaths``.
            dot_git = Path(os.path.normpath(folder.resolve() / dot_git))
        yield folder, dot_git.parent


def led_to(folder: Path) -> Path | None:
    """Return the git directory that the ``.git`` file of a worktree names, if there is one."""
    try:
        text = os.fsdecode((folder / ".git").read_bytes())
    except OSError:
        return None
    return folder / text.removeprefix("gitdir:").strip()


def new_token() -> str:
    """Return a token that tells this worktree from any other that may ever have its path."""
    return os.urandom(16).hex()
