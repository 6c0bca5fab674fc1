"""Too little memory and too little disk, by the kernel: a memory cgroup, and a small tmpfs."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import pytest

from tests.support.fleet import until

MEMORY_BYTES = 64 << 20
EATER = "import sys; held = bytearray(1 << 29)"
"""Python that the kernel ends in such a group."""

PLACES = {
    Path("/sys/fs/cgroup/memory"): ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes"),
    Path("/sys/fs/cgroup"): ("memory.max", "memory.swap.max"),
}
"""Of version 1 and 2, and what is written to limit memory, and memory with swap."""


@contextmanager
def memory_group() -> Iterator[Path]:
    """A memory cgroup of ours; whoever writes its pid to the file given is in it. Skips the test if
    none can be made here."""
    found = next(filter(None, (_made(*each) for each in PLACES.items())), None)
    if found is None:
        pytest.skip("no memory cgroup can be made here")
    try:
        yield found / "cgroup.procs"
    finally:
        until(partial(_removed, found), what="somebody is still in it")


def _removed(folder: Path) -> bool:
    with suppress(OSError):  # The kernel has not let go of the last process yet.
        folder.rmdir()
    return not folder.exists()


def _made(place: Path, limits: tuple[str, str]) -> Path | None:
    folder = place / f"bw-test-{os.getpid()}"
    try:
        folder.mkdir()
        for name, most in zip(limits, (MEMORY_BYTES, MEMORY_BYTES), strict=True):
            if (folder / name).exists() or name == limits[0]:
                (folder / name).write_text("0" if name == "memory.swap.max" else str(most))
    except OSError:
        if folder.is_dir():
            folder.rmdir()
        return None
    return folder


@contextmanager
def small_disk(folder: Path, size: str = "2m") -> Iterator[Path]:
    """A file system of this size, mounted there. Skips the test if it may not be mounted."""
    folder.mkdir(exist_ok=True)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "beads-workers-test", str(folder)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("no file system can be mounted here")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)
