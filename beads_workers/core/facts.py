"""Facts about the scheduler and single issues, for people who ask why an issue does not run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any

from beads_workers.core.model import Filters, value

NO_FLEET = "none"
"""``Facts.state`` if no fleet runs."""


@value
class IssueFacts:
    """One issue. Seconds count from the moment of the answer; None if there is no such time.

    ``in_flight``: the name of its ``IssueState`` in lower case, empty if it is not in our hands.
    ``position``: in the queue of claimed issues, 1 is next. ``standing``: the name of its
    ``Standing`` in lower case, empty if nothing is remembered. ``attempt``: the one under way, or
    the next one; ``charged`` have been counted. ``pending``: the ``Action`` of its pending write,
    refused ``pending_tries`` times so far. ``parked``: the accounts of its agents are closed.
    ``behind``: issues that are to land before it; ``gate_seconds``: for how long the gate has run
    that it is in, or waits for; ``no_verdict``: why no gate had a verdict on it so far. ``by``: who
    makes this attempt, the last one, in the place of its usual agent. ``ahead``: the gate's verdict
    ahead of approval, for people.
    """

    issue_id: str
    in_flight: str = ""
    worker_id: str = ""
    owner_pid: int = 0
    running_seconds: float | None = None
    position: int = 0
    standing: str = ""
    attempt: int = 1
    charged: int = 0
    again_seconds: float | None = None
    error: str = ""
    pending: str = ""
    pending_tries: int = 0
    parked: bool = False
    behind: tuple[str, ...] = ()
    gate_seconds: float | None = None
    no_verdict: str = ""
    by: str = ""
    ahead: str = ""


@value
class AccountFacts:
    """An account of an agent that is closed.
    ``trouble``, ``model`` and ``todo`` as in ``journal.AccountClosed``. ``until_seconds``: to its
    reset, if that is known; ``probe_seconds``: until it is tried again."""

    agent: str
    trouble: str
    why: str
    model: str = ""
    todo: str = ""
    until_seconds: float | None = None
    probe_seconds: float = 0.0


@value
class TrackerTrouble:
    """The last failure to ask the tracker."""

    error: str
    hint: str = ""
    failures: int = 1
    since_seconds: float = 0.0
    again_seconds: float = 0.0


@value
class Facts:
    """The scheduler. ``state``: of the run, as in ``RunState`` in lower case, or ``none``.

    ``state_reason``: why that is so, if there is more to say; ``begins_at``: epoch
    seconds at which a waiting run begins. ``attempts_max``: 0 if the fleet does
    not decide that. ``slots``: workers that could have a task, ``busy`` of them have one;
    ``starting``: processes of ours that are not connected yet. ``unsent``: claimed and not yet with
    a worker. ``ended``: issues that came to their end in this run, of ``issues_max``.
    ``look_seconds``: until the tracker is asked again at the latest; None if only an event leads to
    that. ``listed``: what else could be taken by the last listing, by priority. ``more``: there are
    more issues than were asked for or fit. ``source_options``: as in ``FleetSettings``.
    ``accounts``: those of agents that are closed; ``all_closed``: no agent is left that could work.
    """

    state: str
    run_id: str = ""
    source: str = ""
    tracker: str = ""
    project: str = ""
    filters: Filters = field(default_factory=Filters)
    attempts_max: int = 0
    issues_max: int | None = None
    ended: int = 0
    slots: int = 0
    busy: int = 0
    starting: int = 0
    unsent: int = 0
    look_seconds: float | None = None
    listed: tuple[int, ...] = (0, 0, 0, 0, 0)
    trouble: TrackerTrouble | None = None
    issues: tuple[IssueFacts, ...] = ()
    more: bool = False
    state_reason: str = ""
    begins_at: float | None = None
    source_options: Mapping[str, Any] = field(default_factory=dict, hash=False)
    accounts: tuple[AccountFacts, ...] = ()
    all_closed: bool = False
