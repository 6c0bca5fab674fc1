"""Values in a notation that renames do not touch: tags for classes, positions for fields.

Only a commit that renames something may edit the tables here; a digest that changes otherwise is
a change of behaviour.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
from collections.abc import Mapping
from typing import Any

from beads_workers.core.commands import Write

TAGS: dict[str, str] = {
    "Acceptor": "Door",
    "CapturedOutput": "Spoken",
    "Checkpointed": "Carried",
    "CircuitBreaker": "Storm",
    "ClaimDelegated": "HandingOver",
    "ClaimScheduler": "Intake",
    "ConditionRecovered": "Eased",
    "ConnectionRegistry": "Roster",
    "Connections": "Floor",
    "CrashedRun": "DeadRun",
    "Degraded": "Hindered",
    "DegradedBegan": "Hindrance",
    "DegradedConditions": "Hindrances",
    "DegradedEnded": "HindranceOver",
    "HelloTimeout": "HelloDue",
    "HoldTimeout": "HoldOver",
    "InFlight": "Held",
    "ListedIssue": "Listed",
    "LogTee": "PassingOn",
    "MessageReceived": "Received",
    "NoOwnerCheck": "NoHolderCheck",
    "OrchestratorConnected": "Connected",
    "OwnerGone": "HolderGone",
    "OwnerLost": "HolderLost",
    "PromptTrackerThread": "PromptLane",
    "PutOnHold": "Withheld",
    "Quarantine": "SetAside",
    "RecoveryState": "Remains",
    "Refunded": "Forgiven",
    "RespawnDue": "StartAgain",
    "RetryDue": "DueAgain",
    "RetryEntry": "Page",
    "RetryState": "Ledger",
    "RoundTrip": "Turn",
    "RoundTripBegan": "TurnBegan",
    "RoundTripEnded": "TurnEnded",
    "Running": "Lane",
    "SendMessage": "Send",
    "Sender": "Replies",
    "Served": "Desk",
    "SpooledResults": "Words",
    "Supervisor": "Crew",
    "TrackerThread": "LaneThread",
    "TripTimes": "Turns",
    "Unanswered": "Owed",
    "UnsafePath": "NotConfined",
    "Unsettled": "Owing",
    "WatchOwner": "WatchHolder",
    "WriteRetryDue": "OwedAgain",
    "ZygoteClient": "Nursery",
}
"""Name of a class today -> what it was called when the digests were made."""

WORDS: dict[str, str] = {
    "checkpointed": "carried",
    "degraded": "hindrances",
    "degraded_began": "hindrance",
    "degraded_ended": "hindrance_over",
    "delegating": "handing",
    "on_hold": "withheld",
    "orphaned": "loose",
    "owner_lost": "holder_lost",
    "pending": "owed",
    "quarantined": "set_aside",
    "quarantining": "shelving",
    "refunded": "forgiven",
    "requeued": "given_back",
    "returned_unstarted": "not_begun",
    "revoked": "recalled",
    "round_trip_began": "turn_began",
    "unclosed": "not_closed",
    "unsettled": "owing",
}
"""A text that the program decides by, today -> what it was then (``"set_aside"`` and the like)."""


def neutral(value: Any) -> Any:
    """The value as nested lists: JSON can write it, and no name of a field is in it.

    Prose (a text with a space in it) is only said to be there: its words may be bettered.
    """
    kind = type(value)
    if kind is str:
        return "~" if " " in value else WORDS.get(value, value)
    if kind is float:
        return round(value, 6)
    if value is None or kind is int or kind is bool:
        return value
    if isinstance(value, Write):
        return [_tag(Write), neutral(value.record)]  # What it changes follows from the record.
    if isinstance(value, enum.Enum):
        return [_tag(kind), list(kind).index(value)]
    if (names := _fields(kind)) is not None:
        return [_tag(kind), *(neutral(getattr(value, name)) for name in names)]
    if isinstance(value, Mapping):
        # By position, too: a mapping of ours has the same order each time.
        return ["map", *([neutral(key), neutral(v)] for key, v in value.items())]
    if isinstance(value, set | frozenset):
        return ["set", *sorted(map(repr, map(neutral, value)))]
    if isinstance(value, tuple | list):
        return [neutral(item) for item in value]
    raise TypeError(f"no notation for {kind}")


@functools.cache
def _fields(kind: type) -> tuple[str, ...] | None:
    """The names of its fields; None where it is no dataclass."""
    if not dataclasses.is_dataclass(kind):
        return None
    return tuple(field.name for field in dataclasses.fields(kind))


@functools.cache
def _tag(kind: type) -> str:
    return TAGS.get(kind.__name__, kind.__name__)
