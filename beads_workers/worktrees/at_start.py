"""Worktrees made while a start runs the base check, for its first attempts.

They are worktrees that nobody needs, as an attempt leaves them that is over (``reuse``). The start
enters ``MadeMeanwhile``. The program (``python -m``, the settings on stdin) makes them two at a
time, and begins no other once its stdin has ended.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from contextlib import suppress
from itertools import count
from pathlib import Path
from threading import Thread

from beads_workers.core.base.plain import from_plain, to_plain
from beads_workers.core.base.settings import Worktrees
from beads_workers.runtime.beside import POOL
from beads_workers.runtime.run_directory import RunDirectory
from beads_workers.worktrees import making, pool, preparation, reuse
from beads_workers.worktrees.git import GitError, git
from beads_workers.worktrees.records import Records, WorktreeRecord, new_token
from beads_workers.worktrees.turns import turn

AT_ONCE = 2


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
                [sys.executable, "-P", "-m", __name__],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
            assert self._process.stdin is not None
            self._process.stdin.write(json.dumps(to_plain(self._worktrees)).encode() + b"\n")
            self._process.stdin.flush()

    def __exit__(self, *_: object) -> None:
        if self._process is not None and self._process.stdin is not None:
            with suppress(OSError):
                self._process.stdin.close()
            self._process.wait()  # It has left the work to its child.


# --- the program ---------------------------------------------------------------------------------


def make(settings: Worktrees) -> None:
    """Make what is missing, until stdin ends."""
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
            except (making.CannotPrepare, GitError, OSError):
                return  # The first attempt fails in the same way, and says why.

    threads = [Thread(target=work) for _ in range(AT_ONCE)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def make_free(settings: Worktrees, records: Records) -> WorktreeRecord:
    """Make a worktree that nobody needs yet; return its record. Raises ``CannotPrepare``,
    ``GitError``, ``OSError``."""
    making.check_disk(settings)
    base, token = making.base_of(settings), new_token()
    with making.alone(settings.common):
        name = f"again-{token[:8]}"
        path = preparation.new_path(settings, records, name)
        record = WorktreeRecord(name, "", 0, "", base, path, settings.common, "", POOL, token)
        lock = records.begin(record)  # From here on nobody else makes one at this path.
    with pool.added(settings, records, record, lock):
        with turn(record.common):
            git(path, "reset", "--hard", "--quiet")
        preparation.fill(settings, record)
        reuse.note(settings, records, record)
        records.set_over(record, base)
    return record


def main() -> int:
    """Run the program: see the module text."""
    settings = from_plain(Worktrees, json.loads(sys.stdin.readline()))
    if not os.fork():
        make(settings)
    return 0


if __name__ == "__main__":
    sys.exit(main())
