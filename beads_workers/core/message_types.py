"""The messages of the worker protocol as frozen dataclasses: what each of them says.

Source: docs/PROTOCOL.md, "Messages". ``core.messages`` reads and writes them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any

from beads_workers.core.jobs import IssueId
from beads_workers.core.outcomes import OutcomeKind
from beads_workers.core.values import value

VERSION = "1.1"

GROUPED = "grouped"
"""Feature: the orchestrator claims and closes for this worker, which never calls the tracker."""

CANCEL = "cancel"
"""Feature: this worker understands CANCEL."""

CANNOT_START = "cannot_start"
"""``error_detail`` of a FAILED: the fleet's command is missing or may not be executed."""

RECALLED = "recalled"
"""``reason`` of a CANCEL that is meant only for a task which has not begun."""

NOT_BEGUN = "not_begun"
"""``error_detail`` of a FAILED: the task was kept for later, and comes back as it went."""


# --- worker -> orchestrator -------------------------------------------------------------------


@value
class Ready:
    """Idle: one READY is owed exactly one TASK, WAIT or SHUTDOWN.

    ``ahead``: 1.1; how many more TASKs it keeps while it works on one, and begins in their order
    without another READY.
    """

    worker_id: str
    version: str = "1"
    features: frozenset[str] = frozenset()
    ahead: int = 0


@value
class Done:
    """The task succeeded. ``duration_ms`` is None where the peer gave none that makes sense.

    ``result_file``: the path of a file (0600) with the JSON of a result that is too long.
    ``is_stopping``: 1.1; the worker takes no more tasks, and its READY is answered with SHUTDOWN.
    ``request_id``: of the TASK, where this is left as a word and not sent.
    """

    issue_id: IssueId
    worker_id: str = ""
    duration_ms: int | None = None
    result: Any = None
    result_file: str = ""
    is_stopping: bool = False
    request_id: str = ""
    warnings: tuple[str, ...] = ()


@value
class Failed:
    """The task did not succeed; 1.1 says how (``outcome``), a plain v1 FAILED is an error.

    ``is_stopping``: as in DONE. ``request_id``: of the TASK, where it was not begun.
    """

    issue_id: IssueId
    worker_id: str = ""
    error: str = ""
    duration_ms: int | None = None
    outcome: OutcomeKind = OutcomeKind.ERROR
    retry_after_seconds: float | None = None
    error_detail: str = ""
    is_stopping: bool = False
    request_id: str = ""
    warnings: tuple[str, ...] = ()


@value
class ControlAsked:
    """1.1: the task asks something of the orchestrator, in dispatcherd's words.

    It is no turn of the conversation: at any time, and answered by one ``ControlReply``.
    """

    command: str
    control_data: Mapping[str, Any] = field(default_factory=dict)


# --- orchestrator -> worker -------------------------------------------------------------------


@value
class Task:
    """Work on this issue. From ``description`` on: version 1.1 only.

    ``payload`` may hold ``command`` (list of str: the issue's own), ``issue`` (the tracker's
    object) or, when it is large, be replaced by ``payload_file`` (path to the same JSON, 0600).
    ``request_id``: of this attempt alone, so that a TASK that comes once more is known again.
    """

    issue_id: IssueId
    priority: int
    title: str
    description: str = ""
    issue_type: str = "task"
    labels: tuple[str, ...] = ()
    attempt: int = 1
    timeout_seconds: float | None = None
    payload: Mapping[str, Any] = field(default_factory=dict)
    payload_file: str | None = None
    request_id: str = ""


@value
class Wait:
    """Nothing to do now: send READY again after ``wait_seconds`` (1 to 3600)."""

    wait_seconds: int


@value
class Shutdown:
    """End: give back what runs, exit 0. ``user_requested``, ``idle_timeout`` or ``error``."""

    reason: str


@value
class Cancel:
    """1.1: end this one task, answer FAILED with outcome ``cancelled``, then READY."""

    issue_id: IssueId
    reason: str


@value
class ControlReply:
    """1.1: what a ``ControlAsked`` is answered, in their order."""

    reply: Mapping[str, Any]


FromWorker = Ready | Done | Failed
ToWorker = Task | Wait | Shutdown | Cancel
Message = FromWorker | ToWorker | ControlAsked | ControlReply

RESERVED = frozenset({"HEARTBEAT", "STATUS", "PAUSE", "RESUME", "PRIORITY", "BATCH", "PROGRESS"})
"""Named by the text for later versions; today unknown to both halves like any other type."""
