"""Making a failing input small, so that a person sees what it is about."""

from __future__ import annotations

import time
from collections.abc import Callable

SECONDS = 10.0


def minimised(data: bytes, fails: Callable[[bytes], bool]) -> bytes:
    """The least that still fails: parts are left out, large ones first, then bytes made plain."""
    end = time.monotonic() + SECONDS
    size = len(data) // 2
    while size and time.monotonic() < end:
        at = 0
        while at < len(data) and time.monotonic() < end:
            shorter = data[:at] + data[at + size :]
            if fails(shorter):
                data = shorter
            else:
                at += size
        size //= 2
    for at in range(len(data)):
        if data[at : at + 1] not in b"a0" and time.monotonic() < end:
            plain = data[:at] + b"a" + data[at + 1 :]
            data = plain if fails(plain) else data
    return data
