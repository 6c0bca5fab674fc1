"""Records of every worktree that we made: only worktrees with a record are ever removed.

    .beads-workers/worktree-records/
      <name>.json    the worktree's attempt; written before git is called; locked (flock) while the
                     worktree is made
      <name>.ready   exists once a task may run in the worktree
      <name>.seal    digest of what reuse has noted of the worktree
      <name>.over    exists once nobody needs the worktree: the commit of its branch

A worktree is ours only while its git directory holds the token of its record. Without this token,
anything at the path of the worktree is a stranger's.
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

from beads_workers.core.base.model import value
from beads_workers.core.base.plain import BAD_VALUE, from_plain, to_plain
from beads_workers.core.base.settings import Worktrees
from beads_workers.executors.files import file_name, place_file
from beads_workers.runtime.locks import try_lock
from beads_workers.runtime.project import WORKTREE_MARK

RECORDS = "worktree-records"
LOOKS = 1000

AHEAD = "BW_AHEAD"
"""Variable in the environment of a set-up hook that runs ahead of an attempt: the path of the
worktree that the hook sets up."""


REFS_FILE = "bw-refs"
"""Name of a file in the git directory of a worktree. The file holds the refs as they were before
the first attempt in this worktree."""


@value
class WorktreeRecord:
    """Record of one worktree.

    ``base``: the commit with which the worktree began. ``common``: git's common folder of the
    repository.

    The record of a worktree that nobody has yet has no issue and no branch. An attempt that takes
    it writes a second record, with the same path and token. Only then is the first one forgotten.
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
        """Return all readable records, sorted by name.

        A worktree that was made ahead and then taken may have two records: in this case, return
        only the record of the attempt.
        """
        found = self._read()
        taken = {record.token for record in found if record.issue_id}
        return [record for record in found if record.issue_id or record.token not in taken]

    def of_issue(self, issue_id: str) -> list[WorktreeRecord]:
        """Return the records of this issue's worktrees; reads no others."""
        names = (path.stem for path in self.folder.glob(f"{file_name(issue_id)}.*.json"))
        found = (self.find(name) for name in sorted(names))
        return [each for each in found if each is not None and each.issue_id == issue_id]

    def forget_taken(self) -> None:
        """Remove what killed processes left: half-written records, and the first record of each
        worktree that was made ahead and for which an attempt has written a second record."""
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
        """Return the record of this name; None if no readable record has this name."""
        try:
            return read_record((self.folder / f"{name}.json").read_bytes())
        except OSError:
            return None

    def begin(self, record: WorktreeRecord) -> int:
        """Write a new record; return a lock on it, which the caller holds while it makes the
        worktree."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        fresh = self.folder / f"{record.name}.new"
        for _ in range(LOOKS):
            if (lock := _lock_this(fresh, create=True)) is not None:
                break
            time.sleep(0.001)  # Another process is removing a half-written file.
        else:
            raise BlockingIOError(errno.EBUSY, os.strerror(errno.EBUSY), str(fresh))
        fresh.write_text(json.dumps(to_plain(record)) + "\n")
        fresh.rename(self.folder / f"{record.name}.json")
        return lock

    def take_over(
        self, record: WorktreeRecord, run_id: str, worker_id: str
    ) -> tuple[WorktreeRecord, int]:
        """Give the worktree to another worker; return the new record, and the lock on it.

        The caller holds the lock on the old record. Another process that has read the old record
        can no longer lock that record, so the process does not remove the worktree.
        """
        taken = replace(record, run_id=run_id, worker_id=worker_id)
        return taken, self.begin(taken)

    def rewrite(self, record: WorktreeRecord) -> None:
        """Replace the record by one with new paths. The file keeps its modification time. The
        caller holds the lock on the old record."""
        file = self.folder / f"{record.name}.json"
        written = file.stat()
        os.close(self.begin(record))
        os.utime(file, ns=(written.st_atime_ns, written.st_mtime_ns))

    def written_at(self, record: WorktreeRecord) -> float:
        """Return when the record was begun or last taken over, in epoch seconds; 0 if there is no
        record."""
        try:
            return (self.folder / f"{record.name}.json").stat().st_mtime
        except OSError:
            return 0.0

    def mark(self, record: WorktreeRecord, git_directory: Path, settings: Worktrees) -> None:
        """Mark the worktree as ours. The mark also names the project of the worktree."""
        mark = {
            "token": record.token,
            "project": settings.checkout,
            "prefix": settings.prefix,
            "state": settings.state_directory,
        }
        (git_directory / WORKTREE_MARK).write_text(json.dumps(mark) + "\n")

    def ready(self, record: WorktreeRecord) -> None:
        """Record that a task may run in the worktree from now on, so its contents may be work."""
        (self.folder / f"{record.name}.ready").touch()

    def is_ready(self, record: WorktreeRecord) -> bool:
        """Return whether a task may have run in the worktree."""
        return (self.folder / f"{record.name}.ready").exists()

    def ready_at(self, record: WorktreeRecord) -> float:
        """Return when ``ready`` was called, in epoch seconds; raises ``OSError``."""
        return (self.folder / f"{record.name}.ready").stat().st_mtime

    def unready(self, record: WorktreeRecord) -> None:
        """Record that the contents of the worktree are no work; the caller has looked."""
        (self.folder / f"{record.name}.ready").unlink(missing_ok=True)

    def unfinished(self) -> list[WorktreeRecord]:
        """Return the records of worktrees that nobody makes, and that neither are ready nor wait
        for an attempt: their makers were killed. Only these records are read."""
        there = {path.name for path in self.folder.iterdir()} if self.folder.is_dir() else set()
        named = (name.removesuffix(".json") for name in there if name.endswith(".json"))
        left = [n for n in named if not there & {f"{n}.ready", f"{n}.over"}]
        found = [record for name in sorted(left) if (record := self.find(name)) is not None]
        return [record for record in found if not self.is_locked(record)]

    def set_over(self, record: WorktreeRecord, tip: str | None) -> None:
        """Record that nobody needs the worktree as long as its branch is at ``tip``; None: somebody
        does."""
        file = self.folder / f"{record.name}.over"
        if tip is None:
            file.unlink(missing_ok=True)
        else:
            file.write_text(tip)

    def seal(self, record: WorktreeRecord, digest: str) -> None:
        """Store the digest of what was noted of the worktree before its attempt."""
        (self.folder / f"{record.name}.seal").write_text(digest)

    def sealed(self, record: WorktreeRecord) -> str:
        """Return the digest that ``seal`` stored; "" for none."""
        try:
            return (self.folder / f"{record.name}.seal").read_text()
        except OSError:
            return ""

    def over(self) -> list[str]:
        """Return the names of the records of worktrees that nobody needs."""
        return [path.stem for path in sorted(self.folder.glob("*.over"))]

    def over_at(self, record: WorktreeRecord) -> str:
        """Return the commit that ``set_over`` stored; "" for none."""
        try:
            return (self.folder / f"{record.name}.over").read_text()
        except OSError:
            return ""

    def lock(self, record: WorktreeRecord) -> int | None:
        """Lock the record, and return a file descriptor that holds the lock until it is closed.

        Return None in each of these cases: the worktree is being made or removed, the record is
        gone, or the record has changed since it was read.
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
        """Delete the record: its worktree is gone, or has another record."""
        for ending in (".over", ".seal", ".ready", ".json"):
            (self.folder / f"{record.name}{ending}").unlink(missing_ok=True)

    def in_use(self, record: WorktreeRecord) -> bool:
        """Return whether the worktree is in use.

        A worktree made ahead is in use while its run lives. Any other worktree is in use while its
        run lives and its worker has not entered another worktree.
        """
        # Imported here: the programs of attempts, which make worktrees, start often and never call
        # this method.
        from beads_workers.runtime.run_directory import RunDirectory

        runs = RunDirectory(self.state_directory)
        if not runs.is_alive(record.run_id):
            return False
        if not record.issue_id:
            return True  # An attempt may still take the worktree.
        place = Path(place_file(str(runs.run(record.run_id)), record.worker_id))
        return named_in(place) == record.name


def _lock_this(path: Path, *, create: bool = False) -> int | None:
    """Lock the file at this path, and return the lock.

    Return None if the file is already locked or gone, or if another file has taken its place
    meanwhile.
    """
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
    """Return the record that ``begin`` wrote as this text; None for any other text. Without a
    record, no worktree is removed."""
    try:
        return from_plain(WorktreeRecord, json.loads(text.decode()))
    except (*BAD_VALUE, RecursionError):
        return None


def named_in(place: Path) -> str | None:
    """Return the name of the worktree in a worker's place file; None if the file has no name."""
    try:
        name = json.loads(place.read_bytes())["name"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    return str(name)


def token_in(git_directory: Path) -> str | None:
    """Return the token of the worktree with this git directory.

    None if the worktree is not one of ours.
    """
    return _marked(git_directory, "token")


def run_of(git_directory: Path, run_id: str) -> Path | None:
    """Return the folder of this run of the fleet that made the worktree with this git directory."""
    return run_folder(_marked(git_directory, "state") or "", run_id)


def run_folder(state_directory: str, run_id: str) -> Path | None:
    """Return the folder of a run; None if there is none."""
    # As ``RunDirectory.run``, which the programs of attempts do not load.
    folder = Path(state_directory, "runs", run_id)
    return folder if state_directory and run_id and folder.is_dir() else None


def _marked(git_directory: Path, key: str) -> str | None:
    try:
        found = json.loads((git_directory / WORKTREE_MARK).read_bytes())[key]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    return str(found)


def git_directories(common: str) -> Iterator[tuple[Path, Path]]:
    """Yield each linked worktree of a repository: its git directory, and its own folder."""
    for folder in sorted(Path(common, "worktrees").glob("*")):
        try:
            dot_git = Path(os.fsdecode((folder / "gitdir").read_bytes()).rstrip("\n"))
        except OSError:
            continue  # The worktree is half made, or is being removed.
        if not dot_git.is_absolute():  # With ``worktree.useRelativePaths``.
            dot_git = Path(os.path.normpath(folder.resolve() / dot_git))
        yield folder, dot_git.parent


def led_to(folder: Path) -> Path | None:
    """Return the git directory that the ``.git`` file of a worktree names; None if the file cannot
    be read."""
    try:
        text = os.fsdecode((folder / ".git").read_bytes())
    except OSError:
        return None
    return folder / text.removeprefix("gitdir:").strip()


def new_token() -> str:
    """Return a token that distinguishes a worktree from every other worktree that may have the same
    path before or after it."""
    return os.urandom(16).hex()
