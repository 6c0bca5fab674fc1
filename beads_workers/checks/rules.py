"""Results of checks, and the rules that need nothing but numbers."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from enum import Enum
from typing import TypeVar

from beads_workers.core.base import limits
from beads_workers.core.base.model import value
from beads_workers.core.base.text import counted, size
from beads_workers.exits import EXIT_ERROR, EXIT_USAGE
from beads_workers.ui.time_text import duration

T = TypeVar("T")


class Grade(Enum):
    """Result of a check: a warning is worth knowing, a failure prevents the start or the work."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@value
class Check:
    """A line of ``doctor``, and the reason why ``start`` refuses."""

    name: str
    status: Grade
    text: str
    # A shell command that fixes the problem; empty if no single command does, or nothing is wrong.
    remedy: str = ""
    # What to do, in words.
    hint: str = ""
    # The exit code of ``start``.
    exit_code: int = EXIT_ERROR
    # ``doctor`` does not know it: only a start tries it.
    pending: bool = False


def ok(name: str, text: str) -> Check:
    """Return a check that passed."""
    return Check(name, Grade.OK, text)


def warn(name: str, text: str, remedy: str = "", hint: str = "") -> Check:
    """Return a warning: worth knowing, but the fleet can work."""
    return Check(name, Grade.WARN, text, remedy, hint)


def fail(
    name: str, text: str, remedy: str = "", hint: str = "", exit_code: int = EXIT_ERROR
) -> Check:
    """Return a failure: this does not work until somebody fixes it."""
    return Check(name, Grade.FAIL, text, remedy, hint, exit_code)


def misused(name: str, text: str, hint: str = "", remedy: str = "") -> Check:
    """Return a usage error of ``start``: these options cannot be used."""
    return Check(name, Grade.FAIL, text, remedy, hint, EXIT_USAGE)


def met(found: T | Check | None) -> T | None:
    """Return what was found; None if a check says why nothing was."""
    return None if isinstance(found, Check) else found


def any_failed(checks: Iterable[Check]) -> bool:
    """Return whether a check failed; warnings do not count."""
    return any(check.status is Grade.FAIL for check in checks)


# --- files ------------------------------------------------------------------------------------

FILES_BASE = 24
"""Descriptors of an orchestrator without workers (17 were counted), and one or two clients."""
FILES_BASE_AT_EASE = 64
"""Descriptors with dashboards that watch, and a tracker's files."""
FILES_PER_WORKER_AT_EASE = 2
"""Connection of each worker, and a second descriptor to watch its process or to replace it."""
FILES_SOFT_MIN = 256
"""Least soft limit for tasks, which get it back; compilers and agents open hundreds of files."""


def files_needed(workers: int, *, at_ease: bool) -> int:
    """Return how many files an orchestrator with so many workers has open.

    ``at_ease``: the maximum; otherwise the minimum.
    """
    if at_ease:
        return FILES_BASE_AT_EASE + FILES_PER_WORKER_AT_EASE * workers
    return FILES_BASE + workers


def file_limit(soft: int | None, hard: int | None, workers: int, *, root: bool) -> Check:
    """Check the limits of open files; None: no limit. The orchestrator raises the soft one."""
    needed = files_needed(workers, at_ease=True)
    if hard is not None and hard < needed:
        raised = max(1024, needed)
        remedy = f"ulimit -n {raised}"
        if not root:
            remedy = f"sudo prlimit --pid $$ --nofile={raised}:{raised}"
        text = f"at most {hard} open files; {counted(workers, 'worker')} may need {needed}"
        impossible = hard < files_needed(workers, at_ease=False)
        return Check("files", Grade.FAIL if impossible else Grade.WARN, text, remedy)
    shown = " and ".join(
        f"{word} {'unlimited' if limit is None else limit}"
        for word, limit in (("soft", soft), ("hard", hard))
    )
    if soft is not None and soft < FILES_SOFT_MIN:
        text = f"tasks may open {soft} files only (limits: {shown})"
        target = "$(ulimit -Hn)" if hard is None or hard >= FILES_SOFT_MIN else ""
        return warn("files", text, f"ulimit -Sn {target}" if target else "")
    return ok("files", f"limits of open files: {shown}; {counted(workers, 'worker')} need {needed}")


# --- processes and memory ---------------------------------------------------------------------

PROCESSES_BASE = 4
PROCESSES_PER_WORKER = 3
"""Processes of a worker: itself, its task, and one that the task starts."""
PROCESSES_PER_AGENT = 40
"""Threads of an agent, which count too: Node.js has dozens, and a build runs below it."""
AGENT_BYTES = 500_000_000
"""Rough resident memory of a working agent, without its builds."""
WORKER_BYTES = 10_000_000


def process_limit(used: int, limit: int | None, workers: int, *, agent: bool) -> Check:
    """Check the user's processes and threads against the limit; None: no limit."""
    if limit is None:
        return ok("processes", "no limit on processes")
    room = limit - used
    needed = PROCESSES_BASE + PROCESSES_PER_WORKER * workers
    text = f"{used} of {limit} processes and threads are in use"
    fitting = max((room - PROCESSES_BASE) // PROCESSES_PER_WORKER, 0)
    if room < needed:
        fewer = f"beads-workers start -n {fitting}" if fitting else "ps -eLo user= | sort | uniq -c"
        return fail("processes", f"{text}; {counted(workers, 'worker')} need {needed} more", fewer)
    likely = PROCESSES_BASE + PROCESSES_PER_AGENT * workers
    if agent and room < likely:
        fitting = max((room - PROCESSES_BASE) // PROCESSES_PER_AGENT, 1)
        about = f"{text}; {counted(workers, 'agent')} may need {likely}"
        return warn("processes", about, f"beads-workers start -n {fitting}")
    return ok("processes", text)


def memory(available: int, workers: int, *, agent: bool) -> Check:
    """Check the available bytes against a rough estimate."""
    each = AGENT_BYTES if agent else WORKER_BYTES
    what = counted(workers, "agent" if agent else "worker")
    text = f"{size(available)} available; {what} need about {size(each * workers)}"
    if available < each * workers:
        fitting = max(available // each, 1)
        return warn("memory", text, f"beads-workers start -n {fitting}")
    return ok("memory", text if agent else text + " besides their tasks")


# --- disk -------------------------------------------------------------------------------------

DISK_BYTES_MIN = 32_000_000
"""Space for the journal of a long run, and for the copies a tracker makes while it writes."""
DISK_BYTES_LOW = 1_000_000_000
INODES_MIN = 200
INODES_LOW = 10_000


@value
class FreeSpace:
    """Free space for this user at ``path``; ``inodes`` is None if they are not counted."""

    path: str
    what: str
    free: int
    inodes: int | None


def disk(rooms: Iterable[FreeSpace]) -> list[Check]:
    """Return one line per file system that is short of space, and one for all others."""
    rooms = list(rooms)
    short = [check for room in rooms if (check := _short(room)) is not None]
    fine = ", ".join(
        f"{size(room.free)} free for {room.what}" for room in rooms if not _short(room)
    )
    return short + ([ok("disk", fine)] if fine else [])


def worktree_room(path: str, free: int, floor: int) -> Check | None:
    """Report less free space than the minimum with which an attempt in a worktree begins."""
    if free >= floor:
        return None
    text = f"{size(free)} free at {path}, and no attempt begins below {size(floor)} (disk_floor)"
    return fail("worktree", text, _largest(path))


def _largest(path: str) -> str:
    # The largest folders last: only the user knows what may be deleted.
    return f"du -xah --max-depth=2 {shlex.quote(path)} | sort -h | tail"


def _short(room: FreeSpace) -> Check | None:
    remedy = _largest(room.path)
    where = f"at {room.path} ({room.what})"
    if room.free < DISK_BYTES_MIN:
        return fail("disk", f"only {size(room.free)} free {where}", remedy)
    if room.inodes is not None and room.inodes < INODES_MIN:
        return fail("disk", f"only {counted(room.inodes, 'more file')} fit {where}", remedy)
    if room.free < DISK_BYTES_LOW:
        return warn("disk", f"{size(room.free)} free {where}: logs may fill it", remedy)
    if room.inodes is not None and room.inodes < INODES_LOW:
        return warn("disk", f"{room.inodes} more files fit {where}", remedy)
    return None


# --- the clock --------------------------------------------------------------------------------

NOT_BEFORE = 1_735_689_600.0
"""Start of 2025 in seconds since 1970: this program is younger."""
SET_CLOCK = "sudo timedatectl set-ntp true"


def clock(now: float, last_seen: float | None) -> Check:
    """Check the clock; ``now`` and ``last_seen`` (from the last run) in seconds since 1970."""
    if now < NOT_BEFORE:
        return fail(
            "clock", "the clock stands before 2025: issues would get wrong dates", SET_CLOCK
        )
    if last_seen is not None and now < last_seen - 1.0:
        behind = duration(last_seen - now)
        text = f"the clock stands {behind} before the end of the last run: retries wait so long"
        return warn("clock", text, SET_CLOCK)
    return ok("clock", "sane")


def ntp(synchronised: bool | None) -> Check:
    """Report whether the clock is synchronised; None: the kernel does not say."""
    texts = {True: "the clock is kept by NTP", False: "the clock is not kept by NTP"}
    if synchronised is None:
        return ok("ntp", "not checked")
    more = "" if synchronised else " (matters if several machines share a tracker)"
    return ok("ntp", f"{texts[synchronised]}{more}")


assert FILES_BASE < FILES_BASE_AT_EASE < FILES_SOFT_MIN
assert files_needed(limits.LISTEN_BACKLOG, at_ease=True) < 65_536
assert DISK_BYTES_MIN < DISK_BYTES_LOW and INODES_MIN < INODES_LOW
