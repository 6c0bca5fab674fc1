"""``start --executor``: programs that serve functions and are driven by the fleet."""

from __future__ import annotations

import re
import shlex
from typing import Any

FORM = re.compile(
    r"(?:(?P<name>[A-Za-z0-9_-]{1,32})=)?(?P<protocol>rrq(?:-tcp|2)?):(?P<command>\s*\S.*)",
    re.DOTALL,
)
ALLOWED = '"rrq:PROGRAM ARGUMENT...", or with rrq-tcp: or rrq2:, or with NAME= before it'


def read_executor(value: Any) -> str:
    """Return ``[NAME=]PROTOCOL:COMMAND``; ``value`` is that text or a table.

    The table has ``name``, ``protocol`` and ``command``. Raises ``ValueError`` whose text says what
    is allowed.
    """
    text = _as_text(value) if isinstance(value, dict) else value
    if not isinstance(text, str) or "\0" in text or not (form := FORM.fullmatch(text)):
        raise ValueError(ALLOWED)
    try:
        shlex.split(form["command"])
    except ValueError as error:
        raise ValueError(f"{ALLOWED} ({error})") from None
    return text


def _as_text(table: dict[str, Any]) -> str | None:
    command = table.get("command")
    if isinstance(command, list) and all(isinstance(each, str) for each in command):
        command = shlex.join(command)
    if not isinstance(command, str) or not table.keys() <= {"name", "protocol", "command"}:
        return None
    name = f"{table['name']}=" if "name" in table else ""
    return f"{name}{table.get('protocol', 'rrq')}:{command}"
