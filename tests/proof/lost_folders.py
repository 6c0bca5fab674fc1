"""What befalls the folders under a living fleet, and what it must do about it.

Its state folder or its project is removed, moved away, replaced by another folder or by a link, or
becomes read-only, also while the disk is full; its tracker alone is removed. It notices within 5 s
and says so, ends within 10 s of TERM with all that it started, and each issue that it held is open
again or named in its last words.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from beads_workers.runtime import sessions
from tests.support.bd import BdProject
from tests.support.embedded import EmbeddedProject
from tests.support.fleet import Fleet, until
from tests.support.shortage import small_disk
from tests.support.small_disk import filled

NOTICED_SECONDS, ENDED_SECONDS = 5.0, 10.0
EMBEDDED = "embedded"
DISK = "96m"
"""A tracker of bd 1.3.0 has room there."""


@contextmanager
def mortal_disk(folder: Path) -> Iterator[Path]:
    """An ext4 of its own that the kernel can be made to give up (``read_only``)."""
    image = folder.with_suffix(".img")
    with image.open("wb") as file:
        file.truncate(96 << 20)
    folder.mkdir()
    subprocess.run(["mkfs.ext4", "-q", image], check=True)
    subprocess.run(["mount", "-o", "loop,errors=remount-ro", image, folder], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


def _state(project: Path) -> Path:
    return project / ".beads-workers"


def _away(folder: Path) -> Path:
    return folder.rename(folder.parent / f"{folder.name}-away")


def _linked(folder: Path) -> None:
    _away(folder)
    other = folder.parent / f"{folder.name}-other"
    other.mkdir()
    folder.symlink_to(other)


def _replaced(folder: Path) -> None:
    _away(folder)
    folder.mkdir()


def _read_only(folder: Path) -> None:
    device = folder.stat().st_dev
    name = Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}").resolve().name
    Path(f"/sys/fs/ext4/{name}/trigger_fs_error").write_text("1")


def _no_tracker(project: Path) -> None:
    (_state(project) / "tracker.db").unlink(missing_ok=True)
    shutil.rmtree(project / ".beads", ignore_errors=True)


INJURIES: Mapping[str, Callable[[Path], object]] = {
    "state folder removed": lambda project: shutil.rmtree(_state(project), ignore_errors=True),
    "state folder moved away": lambda project: _away(_state(project)),
    "state folder replaced by another": lambda project: _replaced(_state(project)),
    "state folder replaced by a link": lambda project: _linked(_state(project)),
    "tracker removed": _no_tracker,
    "runs removed": lambda project: shutil.rmtree(_state(project) / "runs"),
    "project removed": lambda project: shutil.rmtree(project, ignore_errors=True),
    "project moved away": _away,
    "project replaced by another": _replaced,
    "project replaced by a link": _linked,
}
"""What is done to a project; each also on a full disk."""
READ_ONLY = "read-only"
FULL = "on a full disk: "


def names() -> list[str]:
    """All that is done."""
    return [*INJURIES, READ_ONLY, FULL.rstrip(": "), *(f"{FULL}{name}" for name in INJURIES)]


def tried(folder: Path, tracker: str, name: str) -> list[str]:
    """What is wrong after it."""
    with ExitStack() as stack:
        disk = folder / "disk"
        if name == READ_ONLY:
            stack.enter_context(mortal_disk(disk))
        else:
            stack.enter_context(small_disk(disk, DISK))
        return _tried(folder, disk, tracker, name, stack)


def _tried(folder: Path, disk: Path, tracker: str, name: str, stack: ExitStack) -> list[str]:
    bd = tracker != EMBEDDED
    project: Any = BdProject(disk, tracker) if bd else EmbeddedProject(disk)
    project.create_many([{} for _ in range(3)])
    fleet = Fleet(project, "-n", "2", "--", "sleep", "1000", scratch=folder)
    try:
        until(lambda: len(fleet.journal("started")) == 2)
        held = [str(record["issue_id"]) for record in fleet.journal("started")]
        if name.startswith(FULL.rstrip(": ")):
            stack.enter_context(_without_room(disk))
        before, began = len(fleet.output), time.monotonic()
        injury = name.removeprefix(FULL.rstrip(": ")).removeprefix(": ")
        if injury == READ_ONLY:
            _read_only(project.folder)
        elif injury:
            INJURIES[injury](project.folder)
        return list(_judged(fleet, held, before, began))
    finally:
        fleet.end()


@contextmanager
def _without_room(disk: Path) -> Iterator[None]:
    with suppress(FileNotFoundError), filled(disk):
        yield


def _judged(fleet: Fleet, held: list[str], before: int, began: float) -> Iterator[str]:
    while len(fleet.output) == before and time.monotonic() < began + NOTICED_SECONDS:
        time.sleep(0.05)
    if len(fleet.output) == before:
        yield f"nothing was said for {NOTICED_SECONDS:g} s"
    asked = time.monotonic()
    with suppress(ProcessLookupError):
        os.kill(fleet.pid, signal.SIGTERM)
    while sessions.start_time(fleet.pid) is not None and time.monotonic() < asked + 60:
        time.sleep(0.05)
    if (took := time.monotonic() - asked) > ENDED_SECONDS:
        yield f"it ended {took:.1f} s after TERM"
    fleet.wait()
    if left := fleet.token_holders():
        yield f"processes are left: {left}"
    last = fleet.output[before:]
    named = last[last.rindex("closed ") :] if "closed " in last else ""
    again = {row.split()[-1] for row in last.splitlines() if " requeued " in row[:30]}
    with suppress(Exception):  # A tracker that is gone.
        again |= {i for i, (status, _) in fleet.project.read_all().items() if status == "open"}
    for issue_id in held:
        if issue_id not in named.split() and issue_id not in again:
            yield f"{issue_id} was held, and is neither open nor named"
