"""Disks that are small enough to be filled: a file system in memory, mounted for one test."""

from __future__ import annotations

import contextlib
import errno
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from beads_workers.runtime.journal import DISK_FULL


@contextlib.contextmanager
def small_disk(folder: Path, megabytes: int) -> Iterator[Path]:
    """A disk of this size at ``folder``, which is made; skips where nothing may be mounted."""
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m,mode=700", "none", str(folder)]
    if os.geteuid() != 0:
        pytest.skip("mounting a small disk needs root, as in CI")
    mounted = subprocess.run(command, capture_output=True, text=True, check=False)
    if mounted.returncode:
        pytest.skip(f"no disk can be mounted here: {mounted.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


@contextlib.contextmanager
def filled(folder: Path) -> Iterator[None]:
    """To the last byte, for as long as this holds."""
    filler = folder / "filler"
    try:
        with filler.open("wb", buffering=0) as file:
            for chunk in (bytes(1 << 20), bytes(1 << 12)):
                with contextlib.suppress(OSError):
                    while file.write(chunk) == len(chunk):
                        pass
        with pytest.raises(OSError) as refused:
            filler.with_name("another").write_bytes(b"x" * 8192)
        assert refused.value.errno in DISK_FULL, errno.errorcode[refused.value.errno or 0]
        filler.with_name("another").unlink(missing_ok=True)
        yield
    finally:
        filler.unlink()
