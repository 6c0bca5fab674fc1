"""Facts about the scheduler and single issues, for people who ask why an issue does not run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any

from beads_workers.core.base.model import Filters, value
from beads_workers.core.base.settings import FleetSettings

NO_FLEET = "none"
"""``Facts.state`` if no fleet runs."""


@value
class IssueFacts:
    """One issue. Seconds count from the moment of the answer; None if there is no such time."""

    issue_id: str
    # The name of its ``IssueState`` in lower case; empty if it is not in our hands.
    in_flight: str = ""
    worker_id: str = ""
    owner_pid: int = 0
    running_seconds: float | None = None
    # In the queue of claimed issues; 1 is next.
    position: int = 0
    # The name of its ``Standing`` in lower case; empty if nothing is remembered.
    standing: str = ""
    # The one under way, or the next one.
    attempt: int = 1
    # How many attempts have been counted.
    charged: int = 0
    again_seconds: float | None = None
    error: str = ""
    # The ``Action`` of its pending write.
    pending: str = ""
    # How often that write was refused so far.
    pending_tries: int = 0
    # The accounts of its agents are closed.
    parked: bool = False
    # Issues that are to land before it.
    behind: tuple[str, ...] = ()
    # For how long the gate has run that it is in, or waits for.
    gate_seconds: float | None = None
    # Why no gate had a verdict on it so far.
    no_verdict: str = ""
    # Who makes this attempt, the last one, in the place of its usual agent.
    by: str = ""
    # The gate's verdict ahead of approval, for people.
    ahead: str = ""


@value
class AccountFacts:
    """An account of an agent that is closed."""

    agent: str
    # This, ``model`` and ``todo``: as in ``journal.AccountClosed``.
    trouble: str
    why: str
    model: str = ""
    todo: str = ""
    # To its reset, if that is known.
    until_seconds: float | None = None
    # Until it is tried again.
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
    """The scheduler; ``facts_of`` makes them."""

    # Of the run, as in ``RunState`` in lower case, or ``none``.
    state: str
    run_id: str = ""
    source: str = ""
    tracker: str = ""
    project: str = ""
    filters: Filters = field(default_factory=Filters)
    # Zero if the fleet does not decide that.
    attempts_max: int = 0
    issues_max: int | None = None
    # Issues that came to their end in this run, of ``issues_max``.
    ended: int = 0
    # Workers that could have a task; ``busy`` of them have one.
    slots: int = 0
    busy: int = 0
    # Processes of ours that are not connected yet.
    starting: int = 0
    # Claimed and not yet with a worker.
    unsent: int = 0
    # Until the tracker is asked again at the latest; None if only an event leads to that.
    look_seconds: float | None = None
    # What else could be taken by the last listing, by priority.
    listed: tuple[int, ...] = (0, 0, 0, 0, 0)
    trouble: TrackerTrouble | None = None
    issues: tuple[IssueFacts, ...] = ()
    # There are more issues than were asked for or fit.
    more: bool = False
    # Why ``state`` is so, if there is more to say.
    state_reason: str = ""
    # Epoch seconds at which a waiting run begins.
    begins_at: float | None = None
    # As in ``FleetSettings``.
    source_options: Mapping[str, Any] = field(default_factory=dict, hash=False)
    # Those of agents that are closed.
    accounts: tuple[AccountFacts, ...] = ()
    # No agent is left that could work.
    all_closed: bool = False


def facts_of(settings: FleetSettings, state: str, **known: Any) -> Facts:
    """Return the facts of a fleet with these settings, and what else is ``known``."""
    return Facts(
        state,
        source=settings.source,
        tracker=settings.tracker,
        project=settings.project,
        filters=settings.filters,
        source_options=settings.source_options,
        attempts_max=0 if settings.policy.hand_back else settings.policy.attempts_max,
        **known,
    )
