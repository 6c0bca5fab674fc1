"""The control socket's language: one JSON object a line, and what each asks of the core.

Source: docs/PROTOCOL.md, "The control socket". ``{"control": "bw.status", "control_data": {...}}``
is answered by one JSON object; for ``bw.follow`` the journal's lines come after it as they are
written, or only those of some kinds; for ``bw.watch`` snapshots.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from beads_workers.core import events as ev
from beads_workers.core.events import Event, Ticket
from beads_workers.core.jobs import IssueId
from beads_workers.core.journal_lines import KINDS
from beads_workers.core.json_fields import ProtocolError, as_integer, as_number
from beads_workers.edge.followers import ALL, Kinds

PREFIX = "bw."
STATUS = "bw.status"
FOLLOW = "bw.follow"
WATCH = "bw.watch"
METRICS = "bw.metrics"
STOP = "bw.stop"
WORKERS_MAX = 1000
EXIT_CODE_MAX = 255


def is_ours(fields: Mapping[str, Any]) -> bool:
    """Whether it is one of our own requests; all others are dispatcherd's."""
    name = fields.get("control")
    return isinstance(name, str) and name.startswith(PREFIX)


def parse_request(fields: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """The control's name and its data; raises ``ProtocolError``."""
    name = fields.get("control")
    data = fields.get("control_data")
    if not isinstance(name, str):
        raise ProtocolError("no control")
    return name, data if isinstance(data, dict) else {}


def followed(data: Mapping[str, Any]) -> Kinds:
    """Which lines a follower is to get; raises ``ProtocolError``."""
    only = data.get("only")
    if only is None:
        return ALL
    if not isinstance(only, list) or not all(isinstance(kind, str) for kind in only):
        raise ProtocolError("only must be a list of kinds")
    # A newer client may know kinds that nothing here writes: they are no reason to refuse it.
    return frozenset(only).intersection(KINDS)


def event_for(name: str, data: dict[str, Any], ticket: Ticket) -> Event:
    """The event that a request stands for; raises ``ProtocolError`` with a reason."""
    maker = _EVENTS.get(name)
    if maker is None:
        raise ProtocolError(f"No control method {name[:60]}")
    return maker(data, ticket)


def _stop(data: dict[str, Any], ticket: Ticket) -> Event:
    seconds = as_number(data.get("seconds"))
    if seconds is not None and seconds < 0:
        raise ProtocolError("seconds must not be negative")
    code = as_integer(data.get("exit_code", 0))
    if code is None or not 0 <= code <= EXIT_CODE_MAX:
        raise ProtocolError(f"exit_code must be a whole number from 0 to {EXIT_CODE_MAX}")
    return ev.StopAsked(drain=data.get("drain") is True, seconds=seconds, exit_code=code)


def _scale(data: dict[str, Any], ticket: Ticket) -> Event:
    workers = as_integer(data.get("workers"))
    if workers is None or not 0 <= workers <= WORKERS_MAX:
        raise ProtocolError(f"workers must be a whole number from 0 to {WORKERS_MAX}")
    return ev.ScaleAsked(ticket, workers)


def _issue_ids(data: dict[str, Any]) -> tuple[IssueId, ...]:
    ids = data.get("issue_ids")
    if not isinstance(ids, list) or not ids or not all(isinstance(i, str) and i for i in ids):
        raise ProtocolError("issue_ids must be a list of ids")
    return tuple(IssueId(i) for i in ids)


def _why(data: dict[str, Any], ticket: Ticket) -> Event:
    # No ids: everything that the scheduler remembers.
    return ev.WhyAsked(ticket, _issue_ids(data) if data.get("issue_ids") else ())


_EVENTS: dict[str, Callable[[dict[str, Any], Ticket], Event]] = {
    STOP: _stop,
    "bw.pause": lambda data, ticket: ev.PauseAsked(ticket),
    "bw.resume": lambda data, ticket: ev.ResumeAsked(ticket),
    "bw.scale": _scale,
    "bw.retry": lambda data, ticket: ev.RetryAskedFor(ticket, _issue_ids(data)),
    "bw.release": lambda data, ticket: ev.ReleaseAskedFor(ticket, _issue_ids(data)),
    "bw.why": _why,
}
