"""Result spool: file of a run's directory for workers' last messages when the orchestrator is gone.

Source: docs/SEMANTICS.md, "Result spool". One line per message, as it would have been sent. A
killed worker leaves none, and the tasks sent to it count as begun.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Collection, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from beads_workers.core.base import limits
from beads_workers.core.base.wire import Done, Failed, encode

if TYPE_CHECKING:
    from pathlib import Path

    from beads_workers.core.records.journal import Entry
    from beads_workers.core.views.recovery import RecoveryState, SpooledResults


FILE = "result_spool"

_WRITE = os.O_WRONLY | os.O_APPEND | os.O_CREAT
# A task may have put anything in its place: do not block on a pipe, nor follow a link.
_SAFELY = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_CHUNK_BYTES = 64 << 10


def spool_result(run_directory: str, message: Done | Failed) -> None:
    """Write a result for the next start; if it cannot be written, the attempt counts as begun, and
    is lost."""
    line = _line(message)
    if len(line) > limits.WORD_BYTES_MAX and isinstance(message, Done):
        line = _line(replace(message, result=None, result_file=""))
    try:
        fd = os.open(f"{run_directory}/{FILE}", _WRITE | _SAFELY, 0o600)
    except OSError:
        return
    try:
        # One write, because others write too; after an end of line, because a full disk may have
        # left half a line.
        os.write(fd, b"\n" + line)
    except OSError:
        pass
    finally:
        os.close(fd)


def words_of(run_directory: Path, wanted: Collection[str]) -> SpooledResults:
    """Return the spooled results of these attempts, by their request ids."""
    # Imported here: no worker reads the spool.
    from beads_workers.core.views.recovery import read_spool

    return read_spool(_chunks(run_directory / FILE), wanted)


def replay_results(left: RecoveryState, run_directory: Path) -> dict[str, Entry]:
    """Apply the spooled results with ``recovery.replay``; complete once the run's workers are
    gone."""
    from beads_workers.core.views.recovery import replay

    if not left.begun:
        return {}
    wanted = {begun.started.request_id for begun in left.begun.values()}
    found = words_of(run_directory, wanted)
    if left.lands and found:
        # The tracker keeps a close, even if a power cut takes our files; a branch that waits to
        # land is recorded nowhere else until our own journal is synced.
        _sync(run_directory / FILE)
    return replay(left, found)


def _sync(path: Path) -> None:
    for each in (path, path.parent):
        try:
            fd = os.open(each, os.O_RDONLY | _SAFELY)
        except OSError:
            continue
        try:
            os.fsync(fd)
        except OSError:
            pass  # It was read all the same.
        finally:
            os.close(fd)


def _line(message: Done | Failed) -> bytes:
    return encode(message, message.worker_id, time.time(), v1=False)


def _chunks(path: Path) -> Iterator[bytes]:
    try:
        fd = os.open(path, os.O_RDONLY | _SAFELY)
    except OSError:
        return
    with open(fd, "rb") as file:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            return
        for _ in range(limits.WORDS_BYTES_MAX // _CHUNK_BYTES):
            try:
                chunk = file.read(_CHUNK_BYTES)
            except OSError:
                return
            if not chunk:
                return
            yield chunk
