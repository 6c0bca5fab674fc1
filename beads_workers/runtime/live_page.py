"""The live page of a run directory, as its server notes it in ``web.json``: where, whose, how long.

Imports little: ``status`` and ``stop`` look here before they load anything else.
"""

from __future__ import annotations

import json
import os
import signal
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from beads_workers.runtime.locks import is_locked
from beads_workers.ui.time_text import clock

FILE = "web.json"

TRIES, TRY_SECONDS = 5, 0.02
"""Tries to read the file, which its server may be writing just now."""

END_SECONDS = 5.0
"""Time in which a server that was told to end is gone."""


@dataclass(frozen=True, slots=True)
class LivePage:
    """A live page that is served."""

    url: str
    # Process id of the server.
    pid: int
    # The page can control the fleet.
    control: bool
    # ``start --web`` began it, so that no terminal waits for its end.
    beside: bool = False
    # Version of the program.
    version: str = ""
    # Epoch seconds at which the server ends by itself; None while that is not known, or never.
    until: float | None = None
    # Further names under which the page may be asked for.
    hosts: tuple[str, ...] = ()


def served(directory: Path) -> LivePage | None:
    """Return the page that is served here; None without one. Raise ``ValueError`` if its server
    does not say where it is."""
    file = directory / FILE
    for _ in range(TRIES):
        if not is_locked(file):
            return None
        try:
            fields = json.loads(file.read_bytes())
            fields["hosts"] = tuple(fields.get("hosts", ()))
            return LivePage(**{name: fields[name] for name in _NAMES if name in fields})
        except (OSError, ValueError, TypeError):
            time.sleep(TRY_SECONDS)
    raise ValueError(f"another server holds {file}, and does not say where it is")


_NAMES = tuple(LivePage.__dataclass_fields__)


def lingering(directory: Path) -> LivePage | None:
    """Return the page that a start left here, which ends by itself or by ``end``; None without
    one."""
    try:
        page = served(directory) if is_locked(directory / FILE) else None
    except ValueError:
        return None
    return page if page is not None and page.beside else None


def note(lock: int, page: LivePage, port: int, key: str) -> None:
    """Write down a page, in the file whose lock its server holds."""
    data = json.dumps(asdict(page) | {"port": port, "key": key}).encode() + b"\n"
    os.pwrite(lock, data, 0)
    os.ftruncate(lock, len(data))


def end(directory: Path, page: LivePage) -> bool:
    """End the server of this page; return whether it is gone."""
    from beads_workers.runtime import sessions

    file = directory / FILE
    # A pid that is none of this file's server is nobody to end.
    started = sessions.start_time(page.pid)
    if started is None or not sessions.holds(page.pid, file):
        return not is_locked(file)
    sessions.kill(page.pid, started, signal.SIGTERM)
    deadline = time.monotonic() + END_SECONDS
    while is_locked(file) and time.monotonic() < deadline:
        time.sleep(TRY_SECONDS)
    return not is_locked(file)


def shown(page: LivePage, now: float) -> str:
    """Return a sentence about a page that a start left: how long it is served, and what ends it."""

    until = (
        "the end of the run was read"
        if page.until is None
        else clock(page.until, now, seconds=False)
    )
    return (
        f"served until {until} (pid {page.pid}): 'watch --web' prints its address, 'stop' without"
        " a fleet ends it"
    )
