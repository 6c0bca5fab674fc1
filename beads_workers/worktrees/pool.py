"""Worktrees made ahead of attempts, set up, and moved to the newest commit when one is taken.

``make`` and ``take`` are the two ends. In between, a worktree has a record without an issue, and,
as long as it may be taken, its state ``MadeAhead`` beside the record. A worktree is never given
back: changes of one attempt must not reach the next one.

As a program (``python -m``), which reads a ``Refill`` from its stdin, the module makes missing
worktrees each time an attempt has begun, and ends with its stdin. Each worktree is made by another
process, which ends with the program. Source: docs/SEMANTICS.md, "Worktrees".
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from beads_workers.core.base.model import value
from beads_workers.core.base.plain import BAD_VALUE, from_plain, to_plain
from beads_workers.core.base.settings import Worktrees
from beads_workers.runtime import sessions
from beads_workers.runtime.beside import MODULE, POOL
from beads_workers.runtime.processes import received_signals, wake_on
from beads_workers.worktrees import making, removal
from beads_workers.worktrees.git import GitError, answers, git, questions
from beads_workers.worktrees.records import AHEAD, Records, WorktreeRecord, new_token, token_in
from beads_workers.worktrees.warm import changed_files, clear_gone, must_set_up, recipe

FIFO = "pool.wake"
NICE = 19
MAKE = "make"
LOOKED_AT_SECONDS = 5.0
NEVER = 3
"""Exit status of a maker if worktrees of this project can never be made ahead."""


class CannotTake(Exception):
    """An attempt cannot begin with this worktree; ``str()`` says why."""


@value
class Refill:
    """Order for the program."""

    worktrees: Worktrees
    run_id: str


@value
class MadeAhead:
    """State of a worktree made ahead."""

    # The commit that is checked out.
    at: str
    # Hash of the settings that the worktree was made with.
    recipe: str
    # The copied files, with their modes and hashes.
    copied: list[tuple[str, int, str]]


@value
class TakenWorktree:
    """A worktree that an attempt has taken. ``lock``: on its record, until it is handed over.
    ``sets_up``: the set-up hook has to run again."""

    record: WorktreeRecord
    lock: int
    sets_up: bool


# --- taking --------------------------------------------------------------------------------------


def take(settings: Worktrees, records: Records, base: str) -> TakenWorktree | None:
    """Take a worktree, and move it to ``base``; None if none can be taken."""
    for record in records.made_ahead():
        lock = _lock_soon(records, record)
        if lock is None:
            continue
        state = _state(records, record)
        # From here on nobody else takes it, whatever happens to us: it is removed.
        records.set_ahead(record, None)
        try:
            if state is None or state.recipe != recipe(settings):
                raise CannotTake("it was made in another way")
            sets_up = _move(settings, record, state, base)
        except (GitError, OSError, CannotTake) as error:
            making.say(f"a worktree that was made ahead is of no use: {error}")
            os.close(lock)
            continue
        if sets_up:
            making.say(f"made ahead, but {sets_up} has changed since: set up again")
        return TakenWorktree(record, lock, sets_up != "")
    return None


def hand_over(taken: TakenWorktree, records: Records, record: WorktreeRecord) -> None:
    """Give the worktree to this record, on its branch; raises ``GitError``."""
    ref = f"refs/heads/{record.branch}"
    git(record.path, "update-ref", ref, record.base, "")
    git(record.path, "symbolic-ref", "HEAD", ref)
    records.forget(taken.record)
    os.close(taken.lock)


def wake(records: Records) -> None:
    """Wake the process that fills the pool, if there is one."""
    try:
        fifo = os.open(records.folder / FIFO, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return
    with suppress(OSError):
        os.write(fifo, b"\n")
    os.close(fifo)


def _lock_soon(records: Records, record: WorktreeRecord) -> int | None:
    """Lock the record; wait for a lock that is only held to look at it. None if it cannot be
    locked."""
    until = time.monotonic() + LOOKED_AT_SECONDS
    # Another run's filler may take over the record meanwhile: read it again.
    while (lock := records.lock(records.find(record.name) or record)) is None:
        if records.ahead(record) is None or time.monotonic() > until:
            return None
        time.sleep(0.01)
    return lock


def _move(settings: Worktrees, record: WorktreeRecord, state: MadeAhead, base: str) -> str:
    """Check out another commit; return why the set-up hook must run again, or ""."""
    path = record.path
    asked = questions("--show-toplevel", "--absolute-git-dir", "HEAD")
    top, directory, head = answers(git(path, *asked), 3)
    if Path(top) != Path(path).resolve() or token_in(Path(directory)) != record.token:
        raise CannotTake("it is not what we made any more")
    changed = changed_files(path, state.at, base) if head == state.at else None
    if changed is None:
        raise CannotTake(f"it cannot be moved to {base[:12]}")
    git(path, "checkout", "--quiet", "--force", "--detach", base)
    git(path, "clean", "--quiet", "-ffd")
    clear_gone(path, changed)
    sets_up = must_set_up(settings, changed)
    ignores = any(name.rpartition("/")[2] == ".gitignore" for _, name in changed)
    if ignores or making.copied_state(settings) != state.copied:
        for warning in making.refresh_copies(settings, path, (name for name, *_ in state.copied)):
            making.say(f"warning: {warning}")
        sets_up = sets_up or (settings.rules.setup and "a copied file") or ""
    os.makedirs(os.path.normpath(f"{path}/{settings.prefix}"), exist_ok=True)  # noqa: PTH103
    return sets_up


def _state(records: Records, record: WorktreeRecord) -> MadeAhead | None:
    try:
        return from_plain(MadeAhead, json.loads(records.ahead(record) or ""))
    except BAD_VALUE:
        return None


# --- making --------------------------------------------------------------------------------------


class NotAhead(making.CannotPrepare):
    """This project's worktrees cannot be made ahead; ``str()`` says why."""


def make(settings: Worktrees, records: Records, run_id: str, nice: int = 0) -> WorktreeRecord:
    """Make a worktree; raises ``CannotPrepare``, and then removes it. ``nice``: added to the
    niceness of this process."""
    making.check_disk(settings)
    token = new_token()
    name = f"ready-{token[:8]}"
    try:
        base = making.base_of(replace(settings, remote=""))  # The attempt asks for newer commits.
        path = f"{settings.folder}/{name}"
        record = WorktreeRecord(name, "", 0, "", base, path, settings.common, run_id, POOL, token)
        with added(settings, records, record, records.begin(record)):
            # Not before: processes that wait for that lock must not wait for a slow one.
            os.nice(nice)
            copied = _fill(settings, record)
            state = MadeAhead(base, recipe(settings), copied)
            records.set_ahead(record, json.dumps(to_plain(state)))
    except GitError as error:
        raise making.CannotPrepare(str(error)) from None
    except OSError as error:
        raise making.CannotPrepare(f"{error.filename}: {error.strerror}") from None
    making.say(f"made ahead: {path} at {base[:12]}")
    return record


@contextmanager
def added(
    settings: Worktrees, records: Records, record: WorktreeRecord, lock: int
) -> Iterator[None]:
    """Have git add a worktree that is nobody's, to be filled meanwhile; remove it if it is not kept
    for an attempt then. ``lock``: on the record, which is unlocked at the end."""
    try:
        with making.alone(settings.common):
            records.mark(record, making.add_worktree(settings, record), settings)
        yield
    finally:
        os.close(lock)
        if records.ahead(record) is None and not records.over_at(record):
            removal.discard(records, record)


def _fill(settings: Worktrees, record: WorktreeRecord) -> list[tuple[str, int, str]]:
    path, added = record.path, making.environment(settings, record)
    git(path, "reset", "--hard", "--quiet")
    os.makedirs(added["PWD"], exist_ok=True)  # noqa: PTH103
    copied = making.copied_state(settings)
    for warning in making.copy_files(settings, path):
        making.say(f"warning: {warning}")
    if settings.rules.setup is not None:
        try:
            making.set_up(settings.rules.setup, added["PWD"], added | {AHEAD: path})
        finally:
            removal.end_set_up(path)
    if left := making.left_by_set_up(path):
        raise NotAhead(f"setup left what git does not ignore: {left}")
    head, directory = answers(git(path, *questions("HEAD", "--absolute-git-dir")), 2)
    if head != record.base or removal.has_submodules(Path(directory), Path(path)):
        # The commit of the hook is nobody's work: the worktree is not kept for it.
        git(path, "checkout", "--quiet", "--force", "--detach", record.base)
        raise NotAhead("setup commits, or fetches submodules")
    return copied


# --- filling -------------------------------------------------------------------------------------


class Filler:
    """The program: when woken, it makes missing worktrees, one at a time."""

    def __init__(self, asked: Refill, selector: selectors.BaseSelector) -> None:
        self._asked, self._settings = asked, asked.worktrees
        self._records = Records(Path(asked.worktrees.state_directory))
        self._selector = selector
        self._wanted = False
        self._never = False
        self._maker: subprocess.Popen[bytes] | None = None

    def open(self) -> None:
        """Take over what earlier runs left, and listen; raises ``OSError``."""
        folder = self._records.folder
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with suppress(FileExistsError):
            os.mkfifo(folder / FIFO, 0o600)
        # For reading and writing: so the FIFO has no end.
        self._fifo = os.open(folder / FIFO, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        self._selector.register(self._fifo, selectors.EVENT_READ, self._woken)
        self._records.forget_taken()
        for record in self._records.made_ahead():
            if (lock := self._records.lock(record)) is not None:
                taken, held = self._records.take_over(record, self._asked.run_id, POOL)
                is_of_use = _state(self._records, taken) is not None
                os.close(lock)
                os.close(held)
                if not is_of_use:
                    removal.discard(self._records, taken)
        # Attempts that began before we listened have woken nobody.
        run_id = self._asked.run_id
        self._wanted = any(r.issue_id and r.run_id == run_id for r in self._records.all())
        self.work()

    def _woken(self) -> None:
        os.read(self._fifo, 1 << 12)
        self._wanted = True
        self.work()

    def work(self) -> None:
        """Start the next maker, if a worktree is missing."""
        if not self._wanted or self._maker is not None:
            return
        there = self._useful()
        if self._never or len(there) >= self._settings.rules.pool:
            self._wanted = False
            return
        self._maker = subprocess.Popen(
            [sys.executable, "-P", "-m", MODULE, MAKE],
            stdin=subprocess.PIPE,
            process_group=0,
        )
        assert self._maker.stdin is not None
        with suppress(BrokenPipeError), self._maker.stdin as pipe:
            pipe.write(json.dumps(to_plain(self._asked)).encode())
        self._pidfd = os.pidfd_open(self._maker.pid)
        self._selector.register(self._pidfd, selectors.EVENT_READ, self._made)

    def _useful(self) -> list[WorktreeRecord]:
        """Return the worktrees that wait for attempts. Remove the others, and all if the disk is
        too full."""
        records, settings = self._records, self._settings
        found = []
        for record in records.made_ahead():
            lock = records.lock(record)
            if lock is None:
                continue  # It is being taken.
            try:
                useful = making.free_bytes(Path(settings.folder)) >= settings.rules.disk_floor_bytes
                useful = useful and self._is_useful(record)
            except (GitError, OSError):
                useful = False
            if useful:
                found.append(record)
            else:
                records.set_ahead(record, None)
            os.close(lock)
            if not useful:
                removal.discard(records, record)
        return found

    def _is_useful(self, record: WorktreeRecord) -> bool:
        state = _state(self._records, record)
        if state is None or state.recipe != recipe(self._settings):
            return False
        changed = changed_files(
            record.path, state.at, making.base_of(replace(self._settings, remote=""))
        )
        return changed is not None and not must_set_up(self._settings, changed)

    def _made(self) -> None:
        maker, self._maker = self._maker, None
        assert maker is not None
        self._selector.unregister(self._pidfd)
        os.close(self._pidfd)
        status = maker.wait()
        self._never = status == NEVER
        # A failed worktree is tried again when the next attempt has begun.
        self._wanted = status == 0
        if status == 0 and len(self._useful()) == 0:
            self._wanted = False  # The new one was removed: below the disk floor.
        self.work()

    def close(self) -> None:
        """End the maker, with every process it started."""
        maker, self._maker = self._maker, None
        if maker is not None:
            with suppress(ProcessLookupError):
                os.killpg(maker.pid, signal.SIGKILL)
            maker.wait()
        for record in self._records.made_ahead():
            if _state(self._records, record) is None and not self._records.is_locked(record):
                removal.discard(self._records, record)


def main() -> int:
    """Run the program: see the module text. Return 0, or 1 after printing why."""
    asked = from_plain(Refill, json.loads(sys.stdin.readline()))
    if sys.argv[1:] == [MAKE]:
        return _main_of_maker(asked)
    wake_up = wake_on((signal.SIGTERM, signal.SIGINT, signal.SIGHUP))
    selector = selectors.DefaultSelector()
    filler, ends = Filler(asked, selector), False
    selector.register(0, selectors.EVENT_READ)
    selector.register(wake_up, selectors.EVENT_READ)
    try:
        filler.open()
        while not ends:
            for key, _ in selector.select():
                if key.data is None:
                    ends = key.fd == 0 or bool(received_signals(wake_up))
                else:
                    key.data()
    except OSError as error:
        making.say(f"no worktrees are made ahead: {error.filename}: {error.strerror}")
        return 1
    finally:
        filler.close()
    return 0


def _main_of_maker(asked: Refill) -> int:
    sessions.die_with_parent(signal.SIGKILL)
    try:
        records = Records(Path(asked.worktrees.state_directory))
        make(asked.worktrees, records, asked.run_id, NICE)
    except making.CannotPrepare as error:
        making.say(f"cannot make a worktree ahead: {error}")
        return NEVER if isinstance(error, NotAhead) else 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
