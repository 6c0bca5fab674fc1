"""Resources of the machine: file limit, processes, memory, disk, clock. Changes nothing.

``start`` checks nearly all of them every time, so this module imports little.
"""

from __future__ import annotations

import os
import resource
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

import beads_workers
from beads_workers.checks import rules
from beads_workers.checks.rules import Check, FreeSpace, fail, ok
from beads_workers.runtime.kernel import system

CGROUP = Path("/sys/fs/cgroup")


def python() -> Check:
    """Report the versions of Python and of this package, and its folder."""
    version = sys.version.split()[0]
    place = Path(beads_workers.__file__).parent
    return ok("python", f"{version}, beads-workers {beads_workers.__version__} ({place})")


def kernel() -> Check:
    """Check that the system has what the orchestrator needs, by calling it."""
    text, mend = system.missing()
    if text:
        return fail("kernel", text, mend)
    name = os.uname()
    return ok("kernel", f"{name.sysname} {name.release}")


def file_limit(workers: int) -> Check:
    """Check the limit of open files: the orchestrator raises its soft limit to the hard one."""
    soft, hard = map(_finite, resource.getrlimit(resource.RLIMIT_NOFILE))
    return rules.file_limit(soft, hard, workers, root=os.geteuid() == 0)


def processes(workers: int, *, agent: bool) -> Check:
    """Check the number of processes against the limits of the user and of the container."""
    limits = []
    of_container = _number(CGROUP / "pids.max")
    if of_container is not None:
        limits.append((_number(CGROUP / "pids.current") or 0, of_container))
    of_user = _finite(resource.getrlimit(resource.RLIMIT_NPROC)[0])
    if of_user is not None and os.geteuid() != 0:  # The kernel does not apply this limit to root.
        limits.append((sum(map(system.threads_of, _processes_of(os.getuid()))), of_user))
    if not limits:
        return rules.process_limit(0, None, workers, agent=agent)
    used, limit = min(limits, key=lambda each: each[1] - each[0])
    return rules.process_limit(used, limit, workers, agent=agent)


def memory(workers: int, *, agent: bool) -> Check:
    """Check the memory that the kernel reports as available, or the container still allows."""
    available = system.available_memory()
    limit, used = _number(CGROUP / "memory.max"), _number(CGROUP / "memory.current")
    if limit is not None and used is not None:
        available = min(available, max(limit - used, 0))
    return rules.memory(available, workers, agent=agent)


def disk(places: Iterable[tuple[Path, str]]) -> list[Check]:
    """Check free space, once per file system; a file system that cannot be read is left out."""
    found: dict[int, FreeSpace] = {}
    for path, what in places:
        there = nearest(path)
        try:
            device, state = there.stat().st_dev, os.statvfs(there)
        except OSError:
            continue  # Other checks report why the folder cannot be read.
        known = found.get(device)
        found[device] = FreeSpace(
            path=known.path if known else str(there),
            what=f"{known.what}, {what}" if known else what,
            free=state.f_bavail * state.f_frsize,
            # Some file systems (btrfs) make inodes as they need them, and say 0.
            inodes=state.f_favail if state.f_files else None,
        )
    return rules.disk(found.values())


def below_floor(folder: Path, floor: int) -> Check | None:
    """Report too little space for a worktree; None: there is enough."""
    there = nearest(folder)
    try:
        state = os.statvfs(there)
    except OSError:
        return None  # As in ``disk``: other checks report why the folder cannot be read.
    return rules.worktree_room(str(there), state.f_bavail * state.f_frsize, floor)


def clock(last_seen: float | None) -> Check:
    """Check the wall clock against the last run, and that a clock counts during sleep."""
    try:
        system.clock()
    except (AttributeError, OSError):
        return fail("clock", "no clock counts while the machine sleeps", "uname -sr")
    return rules.clock(time.time(), last_seen)


def ntp() -> Check:
    """Report whether the clock is synchronised."""
    return rules.ntp(synchronised())


def synchronised() -> bool | None:
    """Return whether the kernel's clock is synchronised; None if the kernel does not say."""
    return system.is_clock_synchronised()


def nearest(path: Path) -> Path:
    """Return the path itself, or the nearest folder above it that exists and is visible."""
    path = path.absolute()
    while path != path.parent and not _is_there(path):
        path = path.parent
    return path


def _is_there(path: Path) -> bool:
    try:
        path.stat()
    except OSError:
        return False
    return True


def _finite(limit: int) -> int | None:
    return None if limit == resource.RLIM_INFINITY else limit


def _number(file: Path) -> int | None:
    try:
        return int(file.read_text())
    except (OSError, ValueError):
        return None  # There is no such limit here, or it is "max".


def _processes_of(uid: int) -> Iterator[int]:
    for pid in system.pids():
        with suppress(FileNotFoundError):  # The process has ended meanwhile.
            if system.user_of(pid) == uid:
                yield pid
