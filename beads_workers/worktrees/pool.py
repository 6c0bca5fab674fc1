"""Worktrees made before anybody needs them, with the set-up run in them.

Each is a worktree that nobody needs, as an attempt leaves one that is over: ``reuse`` notes what it
is like, and says whether the next attempt may take it. Two programs make them. While a start runs
the base check, ``MadeMeanwhile`` makes what is missing for the first attempts. With ``[worktree]
pool``, a ``Filler`` of the run makes one whenever an attempt has begun, each in another process,
which ends with the program. Source: docs/SEMANTICS.md, "Worktrees".
"""

from __future__ import annotations

import json
import os
import select
import selectors
import signal
import subprocess
import sys
from contextlib import ExitStack, suppress
from dataclasses import replace
from itertools import count
from pathlib import Path
from threading import Thread

from beads_workers.core.base.model import value
from beads_workers.core.base.plain import from_plain, to_plain
from beads_workers.core.base.settings import Worktrees
from beads_workers.runtime.kernel import system
from beads_workers.runtime.processes import received_signals, wake_on
from beads_workers.runtime.run_directory import RunDirectory
from beads_workers.runtime.side_programs import MODULE, POOL
from beads_workers.worktrees import making, preparation, removal, reuse
from beads_workers.worktrees.checkout_slots import turn
from beads_workers.worktrees.git import GitError, answers, git, questions
from beads_workers.worktrees.records import AHEAD, Records, WorktreeRecord, new_token

NICE = 19
MAKE, MEANWHILE = "make", "meanwhile"
"""What the module does as a program: make one worktree, or those for the first attempts."""
AT_ONCE = 2
NEVER = 3
"""Exit status of a maker if worktrees of this project can never be made ahead."""


class NotAhead(making.CannotPrepare):
    """This project's worktrees cannot be made ahead; ``str()`` says why."""


# --- one -----------------------------------------------------------------------------------------


def make_free(
    settings: Worktrees, records: Records, run_id: str = "", nice: int = 0
) -> WorktreeRecord:
    """Make a worktree that nobody needs yet; return its record. Raises ``CannotPrepare``, and then
    removes it. ``nice``: added to the niceness of this process."""
    making.check_disk(settings)
    try:
        base = making.base_of(settings)
        with ExitStack() as held:
            with making.alone(settings.common):
                record = _begin(settings, records, base, run_id, held)
            # Not before: processes that wait for that lock must not wait for a slow one.
            os.nice(nice)
            with turn(record.common):
                git(record.path, "reset", "--hard", "--quiet")
            _fill(settings, record)
            reuse.note(settings, records, record)
            if not reuse.is_noted(record):
                raise NotAhead("what it is like cannot be noted, so that it could be taken")
            records.set_over(record, record.base)
    except GitError as error:
        raise making.CannotPrepare(str(error)) from None
    except OSError as error:
        raise making.CannotPrepare(f"{error.filename}: {error.strerror}") from None
    making.say(f"made ahead: {record.path} at {record.base[:12]}")
    return record


def _begin(
    settings: Worktrees, records: Records, base: str, run_id: str, held: ExitStack
) -> WorktreeRecord:
    """Have git add a worktree. ``held``: removes it again, unless it is free then."""
    token = new_token()
    name = f"again-{token[:8]}"
    path = preparation.new_path(settings, records, name)
    record = WorktreeRecord(name, "", 0, "", base, path, settings.common, run_id, POOL, token)
    lock = records.begin(record)  # From here on nobody else makes one at this path.
    held.callback(_end, records, record, lock)
    records.mark(record, making.add_worktree(settings, record), settings)
    return record


def _end(records: Records, record: WorktreeRecord, lock: int) -> None:
    os.close(lock)
    if not records.over_at(record):
        removal.discard(records, record)


def _fill(settings: Worktrees, record: WorktreeRecord) -> None:
    path = record.path
    claim = making.take_slot(settings, record)
    preparation.copy_files(settings, record)
    if settings.rules.setup is not None:
        added = making.environment(settings, record, claim)
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


# --- while a start runs the base check -----------------------------------------------------------


class MadeMeanwhile:
    """While entered, worktrees are made, until as many are free as stay at the end of a run."""

    def __init__(self, worktrees: Worktrees) -> None:
        self._worktrees = worktrees
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> None:
        if not self._worktrees.reuse or self._worktrees.rules.pool:
            return
        with suppress(OSError):  # Attempts make their own.
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", MODULE, MEANWHILE],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
            assert self._process.stdin is not None
            fields = {"worktrees": to_plain(self._worktrees), "run_id": ""}
            self._process.stdin.write(json.dumps(fields).encode() + b"\n")
            self._process.stdin.flush()

    def __exit__(self, *_: object) -> None:
        if self._process is not None and self._process.stdin is not None:
            with suppress(OSError):
                self._process.stdin.close()
            self._process.wait()  # It has left the work to its child.


def _make_missing(settings: Worktrees) -> None:
    """Make what is missing, until stdin ends; what is begun then is made."""
    directory = RunDirectory(Path(settings.state_directory))
    directory.create()
    records = Records(directory.root)
    reuse.settle(records)
    missing = settings.reuse - len(records.over())
    numbers = count()

    def work() -> None:
        while next(numbers) < missing and not select.select([0], [], [], 0)[0]:
            try:
                make_free(settings, records)
            except making.CannotPrepare:
                return  # The first attempt fails in the same way, and says why.

    threads = [Thread(target=work) for _ in range(AT_ONCE)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


# --- while a run goes on -------------------------------------------------------------------------


@value
class Refill:
    """Order for the program."""

    worktrees: Worktrees
    run_id: str


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
        """Listen, and remove what killed processes have left; raises ``OSError``."""
        folder = self._records.folder
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with suppress(FileExistsError):
            os.mkfifo(folder / preparation.FIFO, 0o600)
        # For reading and writing: so the FIFO has no end.
        self._fifo = os.open(folder / preparation.FIFO, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        self._selector.register(self._fifo, selectors.EVENT_READ, self._woken)
        self._records.forget_taken()
        reuse.settle(self._records)
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
        if self._never or self._useful() >= self._settings.rules.pool:
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
        self._pidfd = system.exit_descriptor(self._maker.pid)
        self._selector.register(self._pidfd, selectors.EVENT_READ, self._made)

    def _useful(self) -> int:
        """Return how many worktrees the next attempts may take. Remove the others that are free,
        and all if the disk is too full."""
        settings, found = self._settings, 0
        try:
            base = making.base_of(replace(settings, remote=""))
            room = making.free_bytes(Path(settings.folder)) >= settings.rules.disk_floor_bytes
        except (GitError, OSError):
            return 0
        for record in reuse.candidates(settings, self._records):
            if room and reuse.serves(settings, self._records, record, base):
                found += 1
            elif not record.issue_id and (lock := self._records.lock(record)) is not None:
                self._records.set_over(record, None)
                os.close(lock)
                removal.discard(self._records, record)
        return found

    def _made(self) -> None:
        maker, self._maker = self._maker, None
        assert maker is not None
        self._selector.unregister(self._pidfd)
        os.close(self._pidfd)
        status = maker.wait()
        self._never = status == NEVER
        # A failed worktree is tried again when the next attempt has begun.
        self._wanted = status == 0
        if status == 0 and self._useful() == 0:
            self._wanted = False  # The new one was removed: below the disk floor.
        self.work()

    def close(self) -> None:
        """End the maker, with every process it started."""
        maker, self._maker = self._maker, None
        if maker is not None:
            with suppress(ProcessLookupError):
                os.killpg(maker.pid, signal.SIGKILL)
            maker.wait()
        reuse.settle(self._records)


# --- the programs --------------------------------------------------------------------------------


def main() -> int:
    """Run a program: see the module text. Return 0, or 1 after printing why."""
    asked = from_plain(Refill, json.loads(sys.stdin.readline()))
    if sys.argv[1:] == [MEANWHILE]:
        if not os.fork():
            _make_missing(asked.worktrees)
        return 0
    if sys.argv[1:] == [MAKE]:
        system.die_with_parent(signal.SIGKILL)
        try:
            records = Records(Path(asked.worktrees.state_directory))
            # The attempt asks the remote for newer commits.
            make_free(replace(asked.worktrees, remote=""), records, asked.run_id, NICE)
        except making.CannotPrepare as error:
            making.say(f"cannot make a worktree ahead: {error}")
            return NEVER if isinstance(error, NotAhead) else 1
        return 0
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


if __name__ == "__main__":
    sys.exit(main())
