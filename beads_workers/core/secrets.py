"""What must not be read by whoever reads logs: found by the names of variables, and masked."""

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
