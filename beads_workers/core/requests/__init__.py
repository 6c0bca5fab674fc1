"""Requests to a running fleet, a file each: ``core/requests/NAME.py`` answers ``bw.NAME``.

``pause`` and ``resume`` are in ``core.schedule.events``, as a feature handles them, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from beads_workers.core.base.framing import ProtocolError
from beads_workers.core.base.model import IssueId


def issue_ids(data: Mapping[str, Any]) -> tuple[IssueId, ...]:
    """Return the issues that a request names; raise ``ProtocolError`` for any other value."""
    ids = data.get("issue_ids")
    if not isinstance(ids, list) or not ids or not all(isinstance(i, str) and i for i in ids):
        raise ProtocolError("issue_ids must be a list of ids")
    return tuple(IssueId(i) for i in ids)
