"""What a check finds, and the rules that need nothing but numbers."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from enum import Enum
from typing import TypeVar

from beads_workers.core import limits
from beads_workers.core.model import value
from beads_workers.core.text import counted, size
from beads_workers.exits import EXIT_ERROR, EXIT_USAGE

T = TypeVar("T")


class Grade(Enum):
    """How a check ended. A warning is something to know, a failure something that will hurt."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@value
class Check:
    """One line of ``doctor``, and the reason for which ``start`` refuses.

    ``remedy``: a shell command that mends it; empty if no single command does, or nothing is wrong.
    ``hint``: what to do, in words. ``exit_code``: with which ``start`` ends.
    """

    name: str
    status: Grade
    text: str
    remedy: str = ""
    hint: str = ""
    exit_code: int = EXIT_ERROR


def ok(name: str, text: str) -> Check:
    """All is well."""
    return Check(name, Grade.OK, text)


def warn(name: str, text: str, remedy: str = "", hint: str = "") -> Check:
    """Worth knowing; nothing is kept from working."""
    return Check(name, Grade.WARN, text, remedy, hint)


def fail(
    name: str, text: str, remedy: str = "", hint: str = "", exit_code: int = EXIT_ERROR
) -> Check:
    """This will not work until somebody does something."""
    return Check(name, Grade.FAIL, text, remedy, hint, exit_code)


def misused(name: str, text: str, hint: str = "", remedy: str = "") -> Check:
    """What was said cannot be done: a usage error of ``start``."""
    return Check(name, Grade.FAIL, text, remedy, hint, EXIT_USAGE)


def met(found: T | Check | None) -> T | None:
    """What was found; None if it was not, and a check says why."""
    return None if isinstance(found, Check) else found


def any_failed(checks: Iterable[Check]) -> bool:
    """Whether anything failed; warnings are fine."""
    return any(check.status is Grade.FAIL for check in checks)


# --- files ------------------------------------------------------------------------------------

FILES_BASE = 24
"""Descriptors of an orchestrator without workers (17 were counted), and a client or two."""
FILES_BASE_AT_EASE = 64
"""With dashboards that watch, and a tracker's files."""
FILES_PER_WORKER_AT_EASE = 2
"""One connection each; a second where its process is watched, or a new one comes early."""
FILES_SOFT_MIN = 256
"""Tasks get the soft limit back; compilers and agents open hundreds of files."""


def files_needed(workers: int, *, at_ease: bool) -> int:
    """How many files the orchestrator has open with so many workers: at least, or at the most."""
    if at_ease:
        return FILES_BASE_AT_EASE + FILES_PER_WORKER_AT_EASE * workers
    return FILES_BASE + workers


def file_limit(soft: int | None, hard: int | None, workers: int, *, root: bool) -> Check:
    """The limit of open files; None is no limit. The orchestrator raises the soft one itself."""
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
"""The worker, its task, and one that this starts."""
PROCESSES_PER_AGENT = 40
"""Threads count too, and an agent on Node.js has dozens, with a build below it."""
AGENT_BYTES = 500_000_000
"""A rough figure: resident memory of an agent at work, without what it builds."""
WORKER_BYTES = 10_000_000


def process_limit(used: int, limit: int | None, workers: int, *, agent: bool) -> Check:
    """Processes and threads of this user against the limit; None is no limit."""
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
    """Bytes available against a rough need."""
    each = AGENT_BYTES if agent else WORKER_BYTES
    what = counted(workers, "agent" if agent else "worker")
    text = f"{size(available)} available; {what} need about {size(each * workers)}"
    if available < each * workers:
        fitting = max(available // each, 1)
        return warn("memory", text, f"beads-workers start -n {fitting}")
    return ok("memory", text if agent else text + " besides their tasks")


# --- disk -------------------------------------------------------------------------------------

DISK_BYTES_MIN = 32_000_000
"""The journal of a long run, and the copies that a tracker makes while it writes."""
DISK_BYTES_LOW = 1_000_000_000
INODES_MIN = 200
INODES_LOW = 10_000


@value
class FreeSpace:
    """What is free to this user at ``path``; ``inodes`` is None where they are not counted."""

    path: str
    what: str
    free: int
    inodes: int | None


def disk(rooms: Iterable[FreeSpace]) -> list[Check]:
    """One line per file system that is short of room, or one for all that are not."""
    rooms = list(rooms)
    short = [check for room in rooms if (check := _short(room)) is not None]
    fine = ", ".join(
        f"{size(room.free)} free for {room.what}" for room in rooms if not _short(room)
    )
    return short + ([ok("disk", fine)] if fine else [])


def worktree_room(path: str, free: int, floor: int) -> Check | None:
    """What is wrong where less is free than an attempt in a worktree of its own begins with."""
    if free >= floor:
        return None
    text = f"{size(free)} free at {path}, and no attempt begins below {size(floor)} (disk_floor)"
    return fail("worktree", text, _largest(path))


def _largest(path: str) -> str:
    # What takes the room there, largest last: nobody else can say what may go.
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
"""The year 2025: this program is younger than that."""
SET_CLOCK = "sudo timedatectl set-ntp true"


def clock(now: float, last_seen: float | None) -> Check:
    """``now`` and ``last_seen`` (what the last run wrote down) in seconds since 1970."""
    if now < NOT_BEFORE:
        return fail(
            "clock", "the clock stands before 2025: issues would get wrong dates", SET_CLOCK
        )
    if last_seen is not None and now < last_seen - 1.0:
        behind = span(last_seen - now)
        text = f"the clock stands {behind} before the end of the last run: retries wait so long"
        return warn("clock", text, SET_CLOCK)
    return ok("clock", "sane")


def ntp(synchronised: bool | None) -> Check:
    """Whether anything keeps the clock; None: the kernel does not say."""
    told = {True: "the clock is kept by NTP", False: "the clock is not kept by NTP"}
    if synchronised is None:
        return ok("ntp", "not checked")
    more = "" if synchronised else " (matters if several machines share a tracker)"
    return ok("ntp", f"{told[synchronised]}{more}")


def span(seconds: float) -> str:
    """A duration, roughly: ``40 s``, ``12 min``, ``3 h``, ``2 days``."""
    for limit, unit, each in ((120, "s", 1), (7200, "min", 60), (172_800, "h", 3600)):
        if seconds < limit:
            return f"{seconds / each:.0f} {unit}"
    return f"{seconds / 86_400:.0f} days"


assert FILES_BASE < FILES_BASE_AT_EASE < FILES_SOFT_MIN
assert files_needed(limits.LISTEN_BACKLOG, at_ease=True) < 65_536
assert DISK_BYTES_MIN < DISK_BYTES_LOW and INODES_MIN < INODES_LOW
