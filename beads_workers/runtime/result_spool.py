"""The file of a run's directory with what workers have said last, once nobody reads it any more.

Source: docs/SEMANTICS.md, "Result spool". A line for each message, as it would have been sent.
Whoever was killed leaves none, and what it was sent is taken for begun.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Collection, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from beads_workers.core import limits
from beads_workers.core.wire import Done, Failed, encode

if TYPE_CHECKING:
    from pathlib import Path

    from beads_workers.core.journal import Entry
    from beads_workers.core.recovery import RecoveryState, SpooledResults


FILE = "result_spool"

_WRITE = os.O_WRONLY | os.O_APPEND | os.O_CREAT
# Whatever a task has put in its place: nobody is to wait for it, nor to be led elsewhere.
_SAFELY = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_CHUNK_BYTES = 64 << 10


def spool_result(run_directory: str, message: Done | Failed) -> None:
    """For the next start; where it cannot be written, the attempt is taken for begun, and lost."""
    line = _line(message)
    if len(line) > limits.WORD_BYTES_MAX and isinstance(message, Done):
        line = _line(replace(message, result=None, result_file=""))
    try:
        fd = os.open(f"{run_directory}/{FILE}", _WRITE | _SAFELY, 0o600)
    except OSError:
        return
    try:
        # In one write, because others do the same; behind an end of line, because a full disk
        # may have left the beginning of one.
        os.write(fd, b"\n" + line)
    except OSError:
        pass
    finally:
        os.close(fd)


def words_of(run_directory: Path, wanted: Collection[str]) -> SpooledResults:
    """What was left there of these attempts, by their request ids."""
    # Imported here: no worker reads them.
    from beads_workers.core.recovery import read_spool

    return read_spool(_chunks(run_directory / FILE), wanted)


def hear(left: RecoveryState, run_directory: Path) -> dict[str, Entry]:
    """``recovery.replay`` what was left there; all of it, once the run's workers are gone."""
    from beads_workers.core.recovery import replay

    if not left.begun:
        return {}
    wanted = {begun.started.request_id for begun in left.begun.values()}
    found = words_of(run_directory, wanted)
    if left.lands and found:
        # A close stands in the tracker, whatever a power cut takes from us; a branch that waits to
        # land stands nowhere else until our own journal is synced.
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
