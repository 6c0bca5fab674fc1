"""The workspace of a demo: a folder in the cache, kept after a success until the next demo.

Nothing else is touched, in particular no project in the current folder.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from beads_workers.cli.throwaway import Throwaway, make_tracker, statuses
from beads_workers.demo import backlog
from beads_workers.errors import CommandError
from beads_workers.runtime.locks import alone, try_lock
from beads_workers.runtime.project import STATE_FOLDER, TRACKER_FILE
from beads_workers.runtime.run_directory import RunDirectory

NAME = "demo-"
ALIVE = "demo.lock"
"""Lock file, held by the client of a demo as long as it lives."""

SETTINGS = f"""\
# The demo ran with these; 'beads-workers start' in this folder does, too.
workers = {backlog.WORKERS}
command = ["sh", "work/{{id}}.sh"]
retry_delay = {backlog.RETRY_DELAY_SECONDS}
term_grace = {backlog.TERM_GRACE_SECONDS}
"""


class DemoWorkspace(Throwaway):
    """A folder with a tracker, its issues and their scripts; removed at the end unless kept.

    The fleet in it must have ended by then; otherwise the folder has to be kept.
    """

    def __init__(self) -> None:
        base = _base()
        with alone(base / ALIVE):  # A new folder is locked before others look at it.
            for folder in base.glob(f"{NAME}*"):
                if not folder.is_dir() or folder.is_symlink():
                    continue
                lock = try_lock(folder / ALIVE)
                if lock is None:
                    continue  # Another demo runs there.
                if not RunDirectory(folder / STATE_FOLDER).is_locked():
                    shutil.rmtree(folder, ignore_errors=True)
                os.close(lock)
            super().__init__(Path(tempfile.mkdtemp(prefix=NAME, dir=base)))
            self._alive = try_lock(self.folder / ALIVE)

    @property
    def state(self) -> RunDirectory:
        """The run directory, which also holds the tracker."""
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
        """Return the current status of every issue in the tracker."""
        return statuses(self.tracker)

    def __exit__(self, *raised: object) -> None:
        super().__exit__(*raised)
        if self._alive is not None:
            os.close(self._alive)


def _base() -> Path:
    """Return the first writable folder: the cache, else one in the folder for temporary files."""
    home = os.environ.get("HOME", "")
    cache = os.environ.get("BW_CACHE") or (f"{home}/.cache/beads-workers" if home else "")
    # All users share the folder for temporary files: the user gets a subfolder.
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
