"""What must not be read by whoever reads logs, and which paths below a root logs may have."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

SECRET_CHARS_MIN = 4
"""Shorter ones hide nothing, and would be found in every other word."""

LINE_CHARS_MIN = 8
"""Of a secret with several lines, a key for instance, each line that is as long is one."""

_NAMES = re.compile(
    "PASS|PWD$|SECRET|TOKEN|KEY|CREDENTIAL|AUTH|PRIVATE|COOKIE|SESSION|SIGNATURE|DSN|_URL$|_URI$",
    re.IGNORECASE,
)

_MASK = ord("*")
_KEPT = frozenset(b"\r\n")
"""Lines stay lines."""


def is_secret(name: str) -> bool:
    """Whether a variable of this name holds a secret, as far as one can tell."""
    return _NAMES.search(name) is not None


def secrets_of(environment: Mapping[str, str]) -> tuple[str, ...]:
    """The texts in these variables that are to be masked, the longest first."""
    found: set[str] = set()
    for name, value in environment.items():
        if is_secret(name) and len(value) >= SECRET_CHARS_MIN:
            found.add(value)
            found.update(line for line in value.splitlines() if len(line) >= LINE_CHARS_MIN)
    return tuple(sorted(found, key=lambda secret: (-len(secret), secret)))


def shown(environment: Mapping[str, str]) -> dict[str, str]:
    """Variables as people may see them: names, and no values."""
    return dict.fromkeys(environment, "***")


def masked(data: bytes, secrets: Sequence[bytes]) -> bytes:
    """The same, of the same length, with ``*`` in the place of every secret."""
    for secret in secrets:
        if secret in data:
            data = data.replace(secret, bytes(b if b in _KEPT else _MASK for b in secret))
    return data


# --- log paths -----------------------------------------------------------------------------------
# What a path below a root may be: the part that needs no look at the disk.


PARTS_MAX = 32
NAME_BYTES_MAX = 240
"""A rotated log has a number behind its name, and a name has 255 bytes."""


class UnsafePath(Exception):
    """The path does not lead to a file of ours below the root; ``str()`` is one line."""


def parts_below(root: str, path: str) -> tuple[str, ...]:
    """The names from the root to the file: ``path`` is relative to it, or begins with it.

    Raises ``UnsafePath``.
    """
    if path.startswith("/"):
        base = root.rstrip("/") + "/"
        if not path.startswith(base):
            raise UnsafePath(f"it is not below {root}")
        path = path.removeprefix(base)
    parts = [part for part in path.split("/") if part]
    if not parts or path.endswith("/"):
        raise UnsafePath("it names no file")
    if len(parts) > PARTS_MAX:
        raise UnsafePath(f"it has more than {PARTS_MAX} parts")
    for part in parts:
        if part in (".", ".."):
            raise UnsafePath(f"it holds {part!r}")
        if not part.isprintable() or len(part.encode("utf-8", "replace")) > NAME_BYTES_MAX:
            raise UnsafePath("it holds a name that is too long, or cannot be printed")
    return tuple(parts)
