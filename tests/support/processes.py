"""Processes by their pids: what the kernel says of them, and signals to them."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from beads_workers.runtime import sessions


def read(pid: int | str, name: str) -> bytes:
    """A file of ``/proc/PID``; empty once the process has ended."""
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:
        return b""


def words(pid: int) -> list[str]:
    """The command line; one empty word once the process has ended."""
    return os.fsdecode(read(pid, "cmdline")).removesuffix("\0").split("\0")


def command(pid: int) -> str:
    """The command line as one text; empty once the process has ended."""
    return " ".join(words(pid))


def parent(pid: int) -> int:
    """The pid of the parent; 0 once the process has ended."""
    process = sessions.read_process(pid)
    return process.parent if process is not None else 0


def alive(pid: int) -> bool:
    """Whether it is there, and no zombie."""
    return sessions.start_time(pid) is not None


def living(pids: Iterable[int]) -> list[int]:
    """Those that are still there, zombies too."""
    return [pid for pid in pids if Path(f"/proc/{pid}").exists()]


def send(pids: Iterable[int], number: int) -> None:
    """Send a signal to all of these that live."""
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            pass  # It has ended by itself.
