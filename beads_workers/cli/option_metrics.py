"""Reads the option ``metrics``: a port of the loopback interface."""

from __future__ import annotations

import re
from typing import Any

PORT_MAX = 65_535
ALLOWED = "a port of this machine: 9464, 127.0.0.1:9464, or 0 for any that is free"


def read_port(value: Any) -> int:
    """The port; raises ``ValueError`` saying what may be. Nobody outside this machine is served."""
    if isinstance(value, str) and (form := re.fullmatch(r"(?:127\.0\.0\.1:)?([0-9]{1,5})", value)):
        value = int(form[1])
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= PORT_MAX:
        raise ValueError(ALLOWED)
    return value
