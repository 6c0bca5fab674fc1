"""The run directory ``.beads-workers``: locks, run.json, and one folder per run."""

from __future__ import annotations

import fcntl
import json
import os
import re
import socket
import time
from collections.abc import Mapping
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

from beads_workers.core.base.model import value
from beads_workers.core.base.plain import BAD_VALUE, from_plain, to_plain
from beads_workers.core.base.settings import FleetSettings
from beads_workers.core.records.journal import RunStarted
from beads_workers.core.views.recovery import RecoveryState, host_of, left_over, recovery_state
from beads_workers.runtime.journal_file import read_end, segments
from beads_workers.runtime.kernel import system
from beads_workers.runtime.locks import is_locked, try_lock

RUNTIME = Path(f"/tmp/beads-workers-{os.getuid()}")
"""Folder for control sockets whose own path would be too long."""

SETTINGS_FILE = "settings.json"
"""Name of a file in the folder of a run."""

SOCKET_PATH_MAX = 107
"""The kernel's limit for the path of a Unix socket, without the closing zero."""


@value
class RunInfo:
    """run.json: enough to find and to name the running orchestrator."""

    pid: int
    start_time: int
    run_id: str
    socket: str
    control_socket: str
    project: str
    source: str
    argv: tuple[str, ...] = ()
    folder: str = ""


LOCK_TRIES, LOCK_TRY_SECONDS = 5, 0.01
"""A process that only checks the lock holds it for some microseconds."""


class AlreadyRunning(Exception):
    """Another process holds the lock. ``str()`` says which, ``hint`` how to see and end it."""

    def __init__(self, text: str, hint: str = "") -> None:
        super().__init__(text)
        self.hint = hint or "see it with 'beads-workers status', end it with 'beads-workers stop'"


def read_info(text: bytes) -> RunInfo | None:
    """Return what ``write_info`` wrote; None for anything else."""
    try:
        return from_plain(RunInfo, json.loads(text.decode()))
    except (*BAD_VALUE, RecursionError):
        return None


HEAD_RECORDS = 100
"""Number of entries searched for a run's first record: only tracker calls stand before it."""


class RunDirectory:
    """Paths in the run directory, and what its files alone tell of the runs."""

    def __init__(self, root: Path) -> None:
        self.root = root

    @property
    def runs(self) -> Path:
        """The folder of all runs."""
        return self.root / "runs"

    @property
    def control_socket(self) -> Path:
        """Path in the run directory, or in the runtime directory if the former would be too
        long."""
        path = self.root / "control.sock"
        if len(os.fsencode(path)) <= SOCKET_PATH_MAX:
            return path
        # Imported here: such paths are rare, and every start would pay for the import.
        import hashlib

        name = hashlib.sha256(os.fsencode(self.root)).hexdigest()[:16]
        return runtime_directory() / f"control-{name}.sock"

    def create(self) -> None:
        """Create the directory, for this user alone, and ignored by git."""
        self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.root.chmod(0o700)
        self.runs.mkdir(mode=0o700, exist_ok=True)
        ignore = self.root / ".gitignore"
        if not ignore.exists():
            write_private(ignore, "*\n")

    def lock(self) -> int:
        """Take the lock for the life of this process; raises ``AlreadyRunning``."""
        fd = try_lock(self.root / "lock")
        for _ in range(LOCK_TRIES):
            if fd is None:
                time.sleep(LOCK_TRY_SECONDS)
                fd = try_lock(self.root / "lock")
        if fd is None:
            info = self.read_info()
            who = f" (pid {info.pid}, run {info.run_id})" if info else ""
            raise AlreadyRunning(f"an orchestrator is already running here{who}")
        return fd

    def is_locked(self) -> bool:
        """Return whether an orchestrator is running here."""
        return is_locked(self.root / "lock")

    def read_info(self) -> RunInfo | None:
        """Return the info of the running orchestrator, or of the last one; None: there was none."""
        try:
            return read_info((self.root / "run.json").read_bytes())
        except OSError:
            return None

    def write_info(self, info: RunInfo) -> None:
        """Replace run.json in one step."""
        fresh = self.root / "run.json.new"
        write_private(fresh, json.dumps(to_plain(info)) + "\n")
        fresh.replace(self.root / "run.json")

    def write_settings(self, run_id: str, settings: FleetSettings) -> None:
        """Keep the settings of a run, except those that may hold a secret (``source_private``)."""
        fields = to_plain(replace(settings, source_private={}))
        write_private(self.run(run_id) / SETTINGS_FILE, json.dumps(fields) + "\n")

    def read_settings(self, run_id: str) -> FleetSettings | None:
        """Return the settings of a run; None if it kept none, or none that can be read."""
        try:
            text = (self.run(run_id) / SETTINGS_FILE).read_bytes()
            return from_plain(FleetSettings, json.loads(text))
        except (OSError, *BAD_VALUE, RecursionError):
            return None

    def run(self, run_id: str) -> Path:
        """Return the folder of one run."""
        return self.runs / run_id

    def create_run(self) -> tuple[str, int]:
        """Create a run; return its id, and the descriptor of its ``alive`` lock, which children
        inherit."""
        run_id = _next_run_id(max(self.run_ids(), default=""))
        folder = self.run(run_id)
        folder.mkdir(mode=0o700)
        for name in ("logs", "issues"):
            (folder / name).mkdir(mode=0o700)
        fd = try_lock(folder / "alive")
        assert fd is not None, "a new file cannot be locked by anybody else"
        return run_id, fd

    def run_ids(self) -> list[str]:
        """Return the ids of all runs, oldest first."""
        try:
            return sorted(p.name for p in self.runs.iterdir() if p.is_dir())
        except FileNotFoundError:
            return []

    def last_run(self) -> str:
        """Return the newest run that has begun: a refused start must not hide the run before.

        If none has begun, return the newest run; empty if there is no run at all.
        """
        run_ids = self.run_ids()
        begun = (each for each in reversed(run_ids) if self.beginning(each) is not None)
        return next(begun, run_ids[-1] if run_ids else "")

    def beginning(self, run_id: str) -> RunStarted | None:
        """Return the first record of that run; None if it has not begun."""
        head = islice(read_end(self.run(run_id) / "journal.jsonl"), HEAD_RECORDS)
        records = (entry.record for entry in head)
        return next((each for each in records if isinstance(each, RunStarted)), None)

    def is_alive(self, run_id: str) -> bool:
        """Return whether any process of that run, workers included, still lives."""
        return is_locked(self.run(run_id) / "alive")

    def is_settled(self, run_id: str) -> bool:
        """Return whether nothing is pending for the tracker from that run."""
        return (self.run(run_id) / "settled").exists()

    def mark_settled(self, run_id: str) -> None:
        """Note that nothing is pending for the tracker from that run."""
        try:
            (self.run(run_id) / "settled").touch(mode=0o600)
        except OSError:
            pass  # The folder is gone, or the disk full: the next start asks the tracker again.

    def is_told(self, run_id: str) -> bool:
        """Return whether a person has said that he was told of the night that ends with that
        run."""
        return (self.run(run_id) / "told").exists()

    def mark_told(self, run_id: str) -> None:
        """Note that a person was told of the night that ends with that run. Raises ``OSError``."""
        (self.run(run_id) / "told").touch(mode=0o600)

    def write_ending(self, run_id: str, words: Mapping[str, Any]) -> None:
        """Keep the end of a run that ended by itself, as its journal says it: ``status`` reads it
        fast."""
        fresh = self.run(run_id) / "ended.json.new"
        try:
            write_private(fresh, json.dumps(words) + "\n")
            fresh.replace(self.run(run_id) / "ended.json")
        except OSError:
            pass  # The disk is full or the folder is gone: the journal, if any, says the same.

    def has_ended(self, run_id: str) -> bool:
        """Return whether that run ended by itself; False also while it runs."""
        return (self.run(run_id) / "ended.json").exists()

    def foreign(self) -> list[tuple[str, str]]:
        """Return unsettled runs (run id, host) of other machines: only those machines settle
        them."""
        runs = []
        for run_id in self.run_ids():
            if not self.is_settled(run_id) and (host := self.host(run_id)) not in ("", host_name()):
                runs.append((run_id, host))
        return runs

    def host(self, run_id: str) -> str:
        """Return the machine of a run; empty if its journal does not say."""
        began = self.beginning(run_id)
        return host_of(began.actor) if began is not None else ""

    def left_over(self) -> tuple[list[RecoveryState], RecoveryState]:
        """Return ``recovery.left_over`` of the runs of this machine, with their journals synced
        first."""
        return left_over(self.run_ids(), self.is_settled, self.left_by)

    def left_by(self, run_id: str) -> RecoveryState | None:
        """Return what a run of this machine left, by its journal, which is synced first; None for
        another machine's, and for one without a record."""
        journal = self.run(run_id) / "journal.jsonl"
        left = recovery_state(read_end(journal))
        if host_of(left.actor) not in ("", host_name()):
            return None  # Only that machine can tell which of its processes still live.
        if not left.run_id:
            return None  # It died before it wrote anything.
        for segment in segments(journal):
            _keep(segment)
        return left


def _keep(segment: Path) -> None:
    """Sync a segment, so that what is read and acted on survives a power cut: its own run may have
    died before it synced.

    An error is ignored: it must not keep a fleet from starting.
    """
    try:
        fd = os.open(segment, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return
    try:
        system.sync_data(fd)
    except OSError:
        pass
    finally:
        os.close(fd)


def _next_run_id(last: str) -> str:
    """Return an id that sorts after ``last``, even if the clock was set back."""
    stamp, count = time.strftime("%Y%m%d-%H%M%S", time.gmtime()), 0
    known = re.fullmatch(r"(\d{8}-\d{6})\.(\d{3})-[0-9a-f]+", last)
    if known and known[1] >= stamp:
        stamp, count = known[1], int(known[2]) + 1
    return f"{stamp}.{count:03d}-{os.urandom(3).hex()}"


def tracker_folder(tracker: str) -> Path:
    """Return the folder that is locked for the tracker at this path: the folder itself, or that of
    a database."""
    path = Path(tracker).resolve()
    return path if path.is_dir() else path.parent


def lock_tracker(folder: Path, *, shared: bool = False) -> int:
    """Lock the tracker: one orchestrator per tracker on this machine, whatever its state directory.

    ``folder`` holds the tracker; it is locked itself, so nobody can miss or delete the lock.
    ``shared``: any number of orchestrators that say so, and none that does not. Raises
    ``AlreadyRunning``.
    """
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        from beads_workers.runtime import sessions  # Only a refusal needs it.

        open_there = [p.pid for p in sessions.owners(folder) if sessions.is_orchestrator(p.pid)]
        who = hint = ""
        for pid in open_there[:1]:
            # Its run directory is not the one here, or was removed: no command here finds it.
            who, hint = f" (pid {pid})", f"see it with 'ps -fp {pid}', end it with 'kill {pid}'"
        message = f"another orchestrator on this machine{who} works on {folder}"
        raise AlreadyRunning(f"{message}{', without --shared' if shared else ''}", hint) from None
    return fd


def runtime_directory() -> Path:
    """Return, and create, the folder of this user for sockets whose own path would be too long.
    Raises ``PermissionError`` if other users can use it."""
    RUNTIME.mkdir(mode=0o700, exist_ok=True)
    status = RUNTIME.lstat()
    if status.st_uid != os.getuid() or status.st_mode & 0o077:
        why = "a --state-dir with a shorter path needs no socket there"
        raise PermissionError(f"{RUNTIME} is not ours alone; {why}")
    return RUNTIME


def host_name() -> str:
    """Return the name of this machine, as it stands in the actor of a claim.

    ``BEADS_WORKERS_HOST`` overrides it if the machine's own name changes each time (containers).
    """
    name = os.environ.get("BEADS_WORKERS_HOST") or socket.gethostname() or "localhost"
    return name.replace("/", "-")


def write_private(path: Path, text: str) -> None:
    """Write a file that this user alone can read, whatever the umask; raises ``OSError`` on a
    symbolic link."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
    with open(os.open(path, flags, 0o600), "w", encoding="utf-8") as file:
        file.write(text)
