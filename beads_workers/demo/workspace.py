"""Where a demo runs: a folder of its own in the cache, kept when it went well, until the next one.

Nothing else is touched: whatever project the demo is called in has no part in it.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from beads_workers.cli.errors import CommandError
from beads_workers.cli.throwaway import Throwaway, make_tracker, statuses
from beads_workers.demo import backlog
from beads_workers.runtime.locks import try_lock
from beads_workers.runtime.project import STATE_FOLDER, TRACKER_FILE
from beads_workers.runtime.run_directory import RunDirectory

NAME = "demo-"
ALIVE = "demo.lock"
"""Held by the client of a demo for as long as it lives."""

SETTINGS = f"""\
# The demo ran with these; 'beads-workers start' in this folder does, too.
workers = {backlog.WORKERS}
command = ["sh", "work/{{id}}.sh"]
retry_delay = {backlog.RETRY_DELAY_SECONDS}
term_grace = {backlog.TERM_GRACE_SECONDS}
"""


class DemoWorkspace(Throwaway):
    """A folder with a tracker, its issues and their scripts; gone at the end unless kept.

    The fleet in it must have ended by then, or it is to be kept.
    """

    def __init__(self) -> None:
        base = _base()
        with _only_one(base):
            _forget_old(base)
            super().__init__(Path(tempfile.mkdtemp(prefix=NAME, dir=base)))
            self._alive = try_lock(self.folder / ALIVE)

    @property
    def state(self) -> RunDirectory:
        """Its run directory, which holds the tracker as well."""
        return RunDirectory(self.folder / STATE_FOLDER)

    @property
    def tracker(self) -> Path:
        """The tracker's file."""
        return self.folder / STATE_FOLDER / TRACKER_FILE

    def fill(self) -> None:
        """Write the settings, the tasks and the tracker."""
        (self.folder / "beads-workers.toml").write_text(SETTINGS)
        work = self.folder / "work"
        work.mkdir()
        for item in backlog.BACKLOG:
            (work / f"{item.issue_id}.sh").write_text(backlog.script(item))
        self.state.create()
        make_tracker(self.tracker, backlog.PREFIX, backlog.issue_lines())

    def statuses(self) -> dict[str, str]:
        """The status of every issue, as its tracker has it now."""
        return statuses(self.tracker)

    def __exit__(self, *raised: object) -> None:
        super().__exit__(*raised)
        if self._alive is not None:
            os.close(self._alive)


def _base() -> Path:
    """The first folder that can be written to: our cache, else the one for temporary files."""
    home = os.environ.get("HOME", "")
    cache = os.environ.get("BW_CACHE") or (f"{home}/.cache/beads-workers" if home else "")
    # The folder for temporary files is everybody's: in it, one of the user's own.
    shared = Path(tempfile.gettempdir(), f"beads-workers-demos-{os.getuid()}")
    for folder in (*([Path(cache)] if cache else []), shared):
        if _usable(folder):
            return folder.absolute()
    raise CommandError(
        "there is no folder to run a demo in", "set BW_CACHE to a folder that you may write to"
    )


def _usable(folder: Path) -> bool:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if folder.lstat().st_uid != os.getuid():
            return False
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


@contextmanager
def _only_one(base: Path) -> Iterator[None]:
    """Nobody takes a folder for a dead one's before its own demo has locked it."""
    fd = os.open(base / ALIVE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def _forget_old(base: Path) -> None:
    for folder in base.glob(f"{NAME}*"):
        if not folder.is_dir() or folder.is_symlink():
            continue
        lock = try_lock(folder / ALIVE)
        if lock is None:
            continue  # Another demo runs there.
        if not RunDirectory(folder / STATE_FOLDER).is_locked():
            shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)
