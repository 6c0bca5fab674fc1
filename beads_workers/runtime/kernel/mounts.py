"""Broken files mounted over the sources of the user's checkout, seen by this process and its
children only.

A mount namespace of our own; root is not needed if the kernel lets users have one.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

CLONE_NEWNS = 0x00020000
CLONE_NEWUSER = 0x10000000
MS_BIND = 0x1000
MS_REC = 0x4000
MS_PRIVATE = 0x40000


def bind(mounts: Mapping[Path, Path]) -> None:
    """Bind each value over its key, for all processes that this one starts from now on. Raises
    ``OSError`` if the kernel does not allow it. The process must have one thread, and end soon."""
    try:
        _call("unshare", CLONE_NEWNS)
    except OSError:
        user, group = os.getuid(), os.getgid()
        _call("unshare", CLONE_NEWUSER | CLONE_NEWNS)
        # The same user as before: no program may take itself for root.
        for name, text in (
            ("setgroups", "deny"),
            ("uid_map", f"{user} {user} 1"),
            ("gid_map", f"{group} {group} 1"),
        ):
            Path("/proc/self", name).write_text(text)
    _mount("none", "/", MS_REC | MS_PRIVATE)
    for place, file in mounts.items():
        _mount(str(file), str(place), MS_BIND)


def _mount(source: str, target: str, flags: int) -> None:
    _call("mount", os.fsencode(source), os.fsencode(target), None, flags, None)


def _call(name: str, *arguments: object) -> None:
    import ctypes

    library = ctypes.CDLL(None, use_errno=True)
    converted = [ctypes.c_ulong(each) if isinstance(each, int) else each for each in arguments]
    if getattr(library, name)(*converted) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), name)
