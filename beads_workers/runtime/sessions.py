"""Sessions: finding and killing the processes that belong to a worker, and no others."""

from __future__ import annotations

import functools
import os
import select
import selectors
import signal
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path

from beads_workers.core.base.model import value

# --- orphans -------------------------------------------------------------------------------------
# Orphans of tasks become our children: the kernel gives them to the nearest subreaper above them.
#
# Source: docs/SEMANTICS.md, "Attempts". A task that double-forks, calls ``setsid`` and clears its
# environment carries no mark of ours, but it cannot choose its parent. When its parent dies, it
# becomes a child of its worker, or of the zygote if the worker is dead. Children that are not
# reaped keep their pids, so a signal to them can hit no other process.


PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
ROUNDS_MAX = 20
"""Generations of children: the death of each generation makes the next one ours."""
DIES_SECONDS = 1.0
"""Seconds within which a killed process ends, unless the kernel itself holds it (a dead disk)."""


def adopt() -> bool:
    """Become the parent of whatever is orphaned below this process; not inherited by a fork.

    Return False if the kernel refuses: then only sessions and the token identify processes.
    """
    try:
        return _prctl()(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0
    except (OSError, AttributeError):
        return False


def die_with_parent(number: int) -> None:
    """Receive this signal when the process that forked this one dies; not inherited by a fork."""
    try:
        _prctl()(PR_SET_PDEATHSIG, number, 0, 0, 0)
    except (OSError, AttributeError):
        pass  # The sweep by the token finds us all the same.


@functools.cache
def _prctl() -> Callable[..., int]:
    """Return libc's ``prctl``. Loading it costs as much as a fork of a hundred workers: the zygote
    does it for all."""
    import ctypes

    found: Callable[..., int] = ctypes.CDLL(None).prctl
    return found


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
    descriptor = os.pidfd_open(pid)  # A child of ours that is not reaped: it exists.
    try:
        signal.pidfd_send_signal(descriptor, signal.SIGKILL)
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
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return []  # No child at all, which is the rule and needs no look at /proc.
    try:
        with open(f"/proc/self/task/{os.getpid()}/children", "rb") as file:
            return [int(word) for word in file.read().split()]
    except FileNotFoundError:
        return list(_children_by_parent(os.getpid()))  # A kernel without that list.


def _children_by_parent(parent: int) -> Iterator[int]:
    for name in [entry.name for entry in os.scandir("/proc")]:
        if name.isdigit() and _parent_of(name) == parent:
            yield int(name)


def _parent_of(pid: str) -> int:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            stat = file.read()
    except OSError:
        return 0
    return int(stat[stat.rfind(b")") + 2 :].split()[1])


# --- sessions ------------------------------------------------------------------------------------
# Source: docs/SEMANTICS.md, "Attempts". A worker leads a session. Processes that its tasks start
# lie in that session, or carry the worker's token in their environment. Processes are identified by
# pid and start time, checked through a pidfd right before a signal, so that a reused pid is never
# hit. Processes are never found by name. Linux: reads /proc.


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
    """Return what /proc says about a pid; None when there is no such process (any more)."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            stat = file.read()
    except OSError:
        return None
    # The name is in parentheses and may hold any byte: fields count from the last parenthesis.
    fields = stat[stat.rfind(b")") + 2 :].split()
    parent, group, session = map(int, fields[1:4])
    return Process(pid, int(fields[19]), session, fields[0] in (b"Z", b"X"), parent, group)


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
        for child in _children_of(waiting.pop()):
            process = None if child in found else read_process(child)
            if process is not None and not process.zombie:
                found[child] = process
                waiting.append(child)
    return list(found.values())


def _children_of(pid: int) -> Iterator[int]:
    try:  # A child is listed with the thread that forked it.
        for thread in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208 - many looks
            with open(f"/proc/{pid}/task/{thread}/children", "rb") as file:
                yield from map(int, file.read().split())
    except OSError:
        return  # It has ended, or the kernel keeps no such list.


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
    return [p for p in _processes() if p.pid != os.getpid() and _holds(p.pid, wanted)]


def users_of(folder: Path) -> set[int]:
    """Return the processes, except this one, that have a file below ``folder`` open."""
    below = f"{folder.resolve()}/"
    return {p.pid for p in _processes() if p.pid != os.getpid() and _uses(p.pid, below)}


def _uses(pid: int, below: str) -> bool:
    try:
        names = [os.readlink(entry.path) for entry in os.scandir(f"/proc/{pid}/fd")]  # noqa: PTH115
    except OSError:
        return False  # It is gone, or not ours to look at.
    return any(name.startswith(below) for name in names)


def token_holders(run_id: str) -> list[int]:
    """Return the living processes that carry the token of any worker of that run."""
    return [p.pid for p in _processes() if not p.zombie and has_token(p.pid, run_id, None)]


def is_orchestrator(pid: int) -> bool:
    """Return whether that process is an orchestrator of beads-workers, of any project."""
    try:
        return b"beads_workers.runtime.main" in Path(f"/proc/{pid}/cmdline").read_bytes()
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
            (wanted is not None and _holds(process.pid, wanted))
            or has_token(process.pid, run_id, None)
        )
    ]


def holds(pid: int, file: Path) -> bool:
    """Return whether a process has ``file`` open; False if there is no such file."""
    try:
        return _holds(pid, file.stat())
    except FileNotFoundError:
        return False


def _holds(pid: int, wanted: os.stat_result) -> bool:
    try:
        with os.scandir(f"/proc/{pid}/fd") as descriptors:
            return any(_same(entry, wanted) for entry in descriptors)
    except OSError:
        return False  # It is gone, or not ours to look at.


def _same(entry: os.DirEntry[str], wanted: os.stat_result) -> bool:
    try:
        return os.path.samestat(entry.stat(), wanted)
    except OSError:
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
        descriptor = os.pidfd_open(pid)
    except OSError:
        return False
    try:
        # The pidfd holds on to the process: what it is now, it stays until the signal.
        process = read_process(pid)
        if process is None or process.started != started or process.zombie:
            return False
        signal.pidfd_send_signal(descriptor, number)
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
        if os.stat(f"/proc/{pid}").st_uid != os.getuid():  # noqa: PTH116 - thousands of looks
            return []
        with open(f"/proc/{pid}/environ", "rb") as file:
            return file.read().split(b"\0")
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
    names = [entry.name for entry in os.scandir("/proc")]
    for name in names:
        if name.isdigit() and (process := read_process(int(name))) is not None:
            yield process


def watch_exit(selector: selectors.BaseSelector, pid: int, gone: Callable[[], None]) -> None:
    """Call ``gone`` once, when the process has ended; at once if it has already."""
    try:
        fd = os.pidfd_open(pid)
    except (ProcessLookupError, ValueError):
        gone()
        return

    def ended(mask: int) -> None:
        selector.unregister(fd)
        os.close(fd)
        gone()

    selector.register(fd, selectors.EVENT_READ, ended)
