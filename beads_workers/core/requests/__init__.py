"""Requests to a running fleet, a file each: ``core/requests/NAME.py`` answers ``bw.NAME``.

``pause`` and ``resume`` are in ``core.events``, as a feature handles them, too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

from beads_workers.core.events import FleetRequest, Ticket
from beads_workers.core.framing import ProtocolError
from beads_workers.core.model import IssueId


def readers() -> dict[str, Callable[[Mapping[str, Any], Ticket], FleetRequest]]:
    """Return the reader of each request, by its name; import all files."""
    names = [each.name for each in iter_modules(__path__)]
    return {name: import_module(f"{__name__}.{name}").REQUEST.read for name in names}


def issue_ids(data: Mapping[str, Any]) -> tuple[IssueId, ...]:
    """Return the issues that a request names; raise ``ProtocolError`` for any other value."""
    ids = data.get("issue_ids")
    if not isinstance(ids, list) or not ids or not all(isinstance(i, str) and i for i in ids):
        raise ProtocolError("issue_ids must be a list of ids")
    return tuple(IssueId(i) for i in ids)
