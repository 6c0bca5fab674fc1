"""Sessions: finding and killing the processes that belong to a worker, and no others."""

from __future__ import annotations

import os
import select
import selectors
import signal
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path

from beads_workers.core.base.model import value
from beads_workers.runtime.kernel import system

# --- orphans -------------------------------------------------------------------------------------
# Orphans of tasks become our children: the kernel gives them to the nearest subreaper above them.
#
# Source: docs/SEMANTICS.md, "Attempts". A task that double-forks, calls ``setsid`` and clears its
# environment carries no mark of ours, but it cannot choose its parent. When its parent dies, it
# becomes a child of its worker, or of the zygote if the worker is dead. Children that are not
# reaped keep their pids, so a signal to them can hit no other process.


ROUNDS_MAX = 20
"""Generations of children: the death of each generation makes the next one ours."""
DIES_SECONDS = 1.0
"""Seconds within which a killed process ends, unless the kernel itself holds it (a dead disk)."""


def reap(keep: Collection[int]) -> None:
    """Reap orphans that have ended; ``keep``: children that other code waits for."""
    for pid in _children():
        if pid not in keep:
            _bury(pid)


def end(keep: Collection[int]) -> int:
    """KILL every child but ``keep``, and their children as they become ours; return how many."""
    ended: set[int] = set()
    for _ in range(ROUNDS_MAX):
        found = [pid for pid in _children() if pid not in keep and pid not in ended]
        if not found:
            break
        for pid in found:
            ended.add(pid)
            _end(pid)
    return len(ended)


def _end(pid: int) -> None:
    descriptor = system.exit_descriptor(pid)  # A child of ours that is not reaped: it exists.
    try:
        system.send(descriptor, signal.SIGKILL)
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        poll.poll(DIES_SECONDS * 1000)
    except PermissionError:
        pass  # It changed its user (sudo): beyond our reach.
    finally:
        os.close(descriptor)
    _bury(pid)


def _bury(pid: int) -> None:
    try:
        os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        pass


def _children() -> list[int]:
    # No child at all is the rule, and needs no further look.
    return system.own_children() if system.has_children() else []


# --- sessions ------------------------------------------------------------------------------------
# Source: docs/SEMANTICS.md, "Attempts". A worker leads a session. Processes that its tasks start
# lie in that session, or carry the worker's token in their environment. Processes are identified by
# pid and start time, checked through a descriptor right before a signal, so that a reused pid is
# never hit. Processes are never found by name.


@value
class Process:
    """One process, identified for good by its pid and ``started``, in clock ticks since boot."""

    pid: int
    started: int
    session: int
    zombie: bool
    parent: int
    group: int


def read_process(pid: int) -> Process | None:
    """Return what the system says about a pid; None when there is no such process (any more)."""
    stat = system.stat_of(pid)
    if stat is None:
        return None
    return Process(pid, stat.started, stat.session, stat.is_dead, stat.parent, stat.group)


def start_time(pid: int) -> int | None:
    """Return when the process started, in clock ticks since boot; None if it is gone or a
    zombie."""
    process = read_process(pid)
    return None if process is None or process.zombie else process.started


def lives(pid: int, started: int) -> bool:
    """Return whether exactly this process exists and is no zombie."""
    return start_time(pid) == started


# Processes that others have started: known, and never sent a signal.


def descendants(pid: int) -> list[Process]:
    """Return the living children of a process, and theirs; empty if it has just ended."""
    found: dict[int, Process] = {}
    waiting = [pid]
    while waiting:
        for child in system.children_of(waiting.pop()):
            process = None if child in found else read_process(child)
            if process is not None and not process.zombie:
                found[child] = process
                waiting.append(child)
    return list(found.values())


def kin(
    pid: int, noted: Mapping[int, int], entries: Collection[str], fleet: Collection[str]
) -> set[int]:
    """Return the living processes that ``pid``, which is gone, has started.

    These are the ``noted`` processes (pids and start times); processes in a session or group that a
    found process leads; processes with one of these ``entries`` and one of ``fleet`` in their
    environment; and the children of all of these.
    """
    processes = [p for p in _processes() if not p.zombie and p.pid != os.getpid()]
    found = {p.pid for p in processes if noted.get(p.pid) == p.started}
    found |= {p.pid for p in processes if _is_meant(p.pid, entries, fleet)}
    # The kernel never reuses the pid of a session or group that exists: ``pid`` itself led those.
    itself = {pid} - {os.getpid(), *(p.pid for p in processes)}
    while True:
        leaders = found | itself
        more = {
            p.pid
            for p in processes
            if p.pid not in found and {p.session, p.group, p.parent} & leaders
        }
        if not more:
            return found
        found |= more


def _is_meant(pid: int, entries: Collection[str], fleet: Collection[str]) -> bool:
    environment = {*_environment(pid)}
    wanted = ({os.fsencode(entry) for entry in group} for group in (entries, fleet))
    return all(environment & group for group in wanted)


def sweep(run_id: str, worker_id: str | None) -> int:
    """KILL the processes that carry the token of a worker (None: of any worker of that run); return
    how many."""
    return kill_sessions((), run_id, None if worker_id is None else {worker_id})


def kill_owners(file: Path) -> int:
    """KILL every process, except this one, that holds ``file`` open; return how many were hit.

    For a file that only processes of ours ever open, like a run's ``alive``.
    """
    return sum(kill(p.pid, p.started, signal.SIGKILL) for p in owners(file))


def owners(file: Path) -> list[Process]:
    """Return the processes, except this one, that hold ``file`` (or a folder) open."""
    wanted = file.stat()
    return [p for p in _processes() if p.pid != os.getpid() and system.holds(p.pid, wanted)]


def users_of(folder: Path) -> set[int]:
    """Return the processes, except this one, that have a file below ``folder`` open."""
    below = f"{folder.resolve()}/"
    return {p.pid for p in _processes() if p.pid != os.getpid() and _uses(p.pid, below)}


def _uses(pid: int, below: str) -> bool:
    try:
        return any(name.startswith(below) for name in system.files_of(pid))
    except OSError:
        return False  # It is gone, or not ours to look at.


def token_holders(run_id: str) -> list[int]:
    """Return the living processes that carry the token of any worker of that run."""
    return [p.pid for p in _processes() if not p.zombie and has_token(p.pid, run_id, None)]


def is_orchestrator(pid: int) -> bool:
    """Return whether that process is an orchestrator of beads-workers, of any project."""
    try:
        return any(b"beads_workers.runtime.main" in word for word in system.command_of(pid))
    except OSError:
        return False


def with_variable(entry: str) -> list[Process]:
    """Return the living processes of this user that were started with ``NAME=value`` in their
    environment.

    This process is left out.
    """
    wanted, us = os.fsencode(entry), os.getpid()
    return [
        process
        for process in _processes()
        if not process.zombie and process.pid != us and wanted in _environment(process.pid)
    ]


def living(run_id: str, alive: Path) -> list[int]:
    """Return the living processes of a run: they hold its lock, or carry its token."""
    try:
        wanted = alive.stat()
    except FileNotFoundError:
        wanted = None  # The run directory is gone; the token is still there.
    return [
        process.pid
        for process in _processes()
        if not process.zombie
        and process.pid != os.getpid()
        and (
            (wanted is not None and system.holds(process.pid, wanted))
            or has_token(process.pid, run_id, None)
        )
    ]


def holds(pid: int, file: Path) -> bool:
    """Return whether a process has ``file`` open; False if there is no such file."""
    try:
        return system.holds(pid, file.stat())
    except FileNotFoundError:
        return False


def kill_sessions(
    sessions: Collection[int], run_id: str, worker_ids: Collection[str] | None
) -> int:
    """KILL several sessions, and every process that carries a token, in as few scans as possible.

    ``worker_ids``: workers whose token counts, within ``run_id``; None: any worker's. Scans again
    until a scan finds nothing new: a process forked during one scan is seen by the next. Return the
    number of processes hit.
    """
    hit: set[tuple[int, int]] = set()
    for _ in range(ROUNDS_MAX):
        found = False
        for process in _ours(sessions, run_id, worker_ids):
            if kill(process.pid, process.started, signal.SIGKILL):
                found = found or (process.pid, process.started) not in hit
                hit.add((process.pid, process.started))
        if not found:
            break
    return len(hit)


def kill(pid: int, started: int, number: int) -> bool:
    """Send a signal to exactly this process; return False if it is gone, or not ours to signal."""
    try:
        descriptor = system.exit_descriptor(pid)
    except OSError:
        return False
    try:
        # The descriptor holds on to the process: what it is now, it stays until the signal.
        process = read_process(pid)
        if process is None or process.started != started or process.zombie:
            return False
        system.send(descriptor, number)
    except (ProcessLookupError, PermissionError):
        return False
    finally:
        os.close(descriptor)
    return True


def has_token(pid: int, run_id: str, worker_ids: Collection[str] | None) -> bool:
    """Return whether a process of this user was started with the token of such a worker."""
    environment = _environment(pid)
    if b"BW_RUN_ID=" + os.fsencode(run_id) not in environment:
        return False
    if worker_ids is None:
        return True
    return any(b"BW_WORKER_ID=" + os.fsencode(name) in environment for name in worker_ids)


def _environment(pid: int) -> list[bytes]:
    """Return the environment with which a process of this user was started; empty for others."""
    try:
        return system.environment_of(pid) if system.user_of(pid) == os.getuid() else []
    except OSError:
        return []


def _ours(
    sessions: Collection[int], run_id: str, worker_ids: Collection[str] | None
) -> Iterator[Process]:
    for process in _processes():
        if process.zombie or process.pid == os.getpid():
            continue
        if process.session in sessions or (run_id and has_token(process.pid, run_id, worker_ids)):
            yield process


def _processes() -> Iterator[Process]:
    found = map(read_process, system.pids())
    yield from (process for process in found if process is not None)


def watch_exit(selector: selectors.BaseSelector, pid: int, gone: Callable[[], None]) -> None:
    """Call ``gone`` once, when the process has ended; at once if it has already."""
    try:
        fd = system.exit_descriptor(pid)
    except (ProcessLookupError, ValueError):
        gone()
        return

    def ended(mask: int) -> None:
        selector.unregister(fd)
        os.close(fd)
        gone()

    selector.register(fd, selectors.EVENT_READ, ended)
