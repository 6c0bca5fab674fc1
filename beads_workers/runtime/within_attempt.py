"""Whether a process is part of an attempt: if it is, it decides nothing for the person.

A process is part of an attempt if it, an ancestor of it or the leader of one of their sessions

- carries a worker's token in its environment, or
- is a worker or a zygote of ours, which holds ``alive`` of its run open.

No process can choose its ancestors, and our workers adopt the orphans below them. The processes
that are not seen are listed in docs/TRUST.md, "What an attempt may not decide". This module imports
none of ours but the kernel's: a command that decides looks here before it loads anything.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from beads_workers.runtime.kernel import system

GO_ON = "go on without it, and say at the end what a person has to decide"


def refusal(command: str) -> str:
    """Return what an attempt is told that asks for this command or request."""
    return f"an agent's attempt may not '{command}' in its own project, only a person may"


def is_within(state_directory: Path, pid: int) -> bool:
    """Return whether a process is part of an attempt of the project of this run directory.

    True for a process that is gone: nobody can tell any more. False for pid 0, by which the kernel
    means a process outside of our pid namespace.
    """
    if not pid:
        return False
    found = marks(pid)
    return found is None or belong(found, state_directory)


def belong(found: set[str], state_directory: Path) -> bool:
    """Return whether one of these marks is of a fleet of this run directory."""
    if not found:
        return False
    runs = state_directory / "runs"
    return any((runs / mark).is_dir() for mark in found) or _socket(state_directory) in found


def marks(pid: int) -> set[str] | None:
    """Return the marks of all attempts of which a process is part, of any project; None if the
    process is gone.

    A mark is the id of a run or, for workers that people start, the path of the fleet's socket.
    """
    found = _lineage(pid)
    return set().union(*(_token(each) | _run_of(each) for each in found)) if found else None


def _lineage(pid: int) -> set[int]:
    """Return a process, its ancestors and the leaders of their sessions; empty if it is gone."""
    while True:
        found, at = set[int](), pid
        while at and (above := _above(at)):
            found |= {at, above[1]}
            at = above[0]
        if at in (0, pid):
            return found
        # An ancestor ended meanwhile, and its children have another parent. Nobody gets more
        # ancestors that way, so this ends.


def _above(pid: int) -> tuple[int, int] | None:
    """Return the parent and the leader of the session; None if the process is gone."""
    stat = system.stat_of(pid)
    return (stat.parent, stat.session) if stat is not None else None


def _token(pid: int) -> set[str]:
    """Return the marks in the environment; empty for processes whose environment is not ours."""
    try:
        entries = system.environment_of(pid)
    except OSError:
        return set()
    variables = dict(entry.partition(b"=")[::2] for entry in entries)
    # The command of --notify has the run's id, too: only attempts have a worker.
    if b"BW_WORKER_ID" not in variables:
        return set()
    named = (variables.get(name, b"") for name in (b"BW_RUN_ID", b"BW_SOCKET"))
    return {os.fsdecode(mark) for mark in named if mark}


def _run_of(pid: int) -> set[str]:
    """Return the run of a worker or a zygote of ours.

    The orchestrator, which holds ``lock`` as well, is a person's: it runs --notify and ``bd``.
    """
    try:
        files = set(system.files_of(pid))
    except OSError:
        return set()
    folders = {Path(name).parent for name in files if name.endswith("/alive")}
    return {each.name for each in folders if f"{each.parent.parent}/lock" not in files}


def _socket(state_directory: Path) -> str:
    try:
        return str(json.loads((state_directory / "run.json").read_bytes())["socket"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return ""


# --- connections over loopback --------------------------------------------------------------------
# The kernel does not say who is at the other end of a TCP connection. Both ends are of this
# machine, so its table has the peer's socket, and /proc the processes that have it open.


def is_reached_from(state_directory: Path, peer: tuple[str, int], port: int) -> bool:
    """Return whether a process of an attempt of this project is the peer of our ``port``.

    True if the peer has closed its end, or is hidden and may be such a process. False if there is
    no such process to be seen.
    """
    if not system.tells_connections():
        return False
    inode = system.connection_of(peer, port)
    open_here, hidden = list[int](), list[int]()
    for pid in system.pids():
        try:
            if f"socket:[{inode}]" in system.files_of(pid):
                open_here.append(pid)
        except PermissionError:
            hidden.append(pid)
        except OSError:
            continue  # It has ended.
    if inode in ("", "0") or system.connection_of(peer, port) != inode:
        return True
    return any(is_within(state_directory, pid) for pid in open_here or hidden)
