"""Values in a notation that renames do not touch: tags for classes, positions for fields.

Only a commit that renames something may edit the tables here; a digest that changes otherwise is
a change of behaviour.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Mapping
from typing import Any

TAGS: dict[str, str] = {
    "Unanswered": "Owed",
    "WriteRetryDue": "OwedAgain",
    "Unsettled": "Owing",
    "Quarantine": "SetAside",
    "PutOnHold": "Withheld",
    "RoundTrip": "Turn",
    "RoundTripBegan": "TurnBegan",
    "RoundTripEnded": "TurnEnded",
    "TripTimes": "Turns",
    "TrackerThread": "LaneThread",
    "PromptTrackerThread": "PromptLane",
    "Running": "Lane",
    "Served": "Desk",
    "Connections": "Floor",
    "Sender": "Replies",
    "ConnectionRegistry": "Roster",
    "AttemptEnds": "Judging",
    "Supervisor": "Crew",
    "ZygoteClient": "Nursery",
    "OwnerGone": "HolderGone",
    "WatchOwner": "WatchHolder",
    "OwnerLost": "HolderLost",
    "NoOwnerCheck": "NoHolderCheck",
    "InFlight": "Held",
    "ClaimDelegated": "HandingOver",
    "RetryState": "Ledger",
    "RetryEntry": "Page",
    "Refunded": "Forgiven",
    "CircuitBreaker": "Storm",
    "DegradedBegan": "Hindrance",
    "DegradedEnded": "HindranceOver",
    "DegradedConditions": "Hindrances",
    "Degraded": "Hindered",
    "ConditionRecovered": "Eased",
    "ClaimScheduler": "Intake",
    "RetryDue": "DueAgain",
    "RespawnDue": "StartAgain",
    "Acceptor": "Door",
    "HelloTimeout": "HelloDue",
    "HoldTimeout": "HoldOver",
    "RecoveryState": "Remains",
    "CrashedRun": "DeadRun",
    "Checkpointed": "Carried",
    "SpooledResults": "Words",
    "CapturedOutput": "Spoken",
    "LogTee": "PassingOn",
    "UnsafePath": "NotConfined",
}
"""Name of a class today -> what it was called when the digests were made."""

WORDS: dict[str, str] = {
    "pending": "owed",
    "unsettled": "owing",
    "unclosed": "not_closed",
    "quarantined": "set_aside",
    "quarantining": "shelving",
    "on_hold": "withheld",
    "requeued": "given_back",
    "round_trip_began": "turn_began",
    "owner_lost": "holder_lost",
    "orphaned": "loose",
    "delegating": "handing",
    "refunded": "forgiven",
    "degraded": "hindrances",
    "degraded_began": "hindrance",
    "degraded_ended": "hindrance_over",
    "checkpointed": "carried",
}
"""A text that the program decides by, today -> what it was then (``"set_aside"`` and the like)."""


def neutral(value: Any) -> Any:
    """The value as nested lists: JSON can write it, and no name of a field is in it.

    Prose (a text with a space in it) is only said to be there: its words may be bettered.
    """
    if isinstance(value, enum.Enum):
        place = list(type(value)).index(value)
        return [_tag(type(value)), place]
    if dataclasses.is_dataclass(value):
        fields = [neutral(getattr(value, f.name)) for f in dataclasses.fields(value)]
        return [_tag(type(value)), *fields]
    if isinstance(value, bool) or value is None or isinstance(value, int):
        return value
    if isinstance(value, float):
        return round(value, 6)
    if isinstance(value, str):
        return "~" if " " in value else WORDS.get(value, value)
    if isinstance(value, Mapping):
        # By position, too: a mapping of ours has the same order each time.
        return ["map", *([neutral(key), neutral(v)] for key, v in value.items())]
    if isinstance(value, set | frozenset):
        return ["set", *sorted(map(repr, map(neutral, value)))]
    if isinstance(value, tuple | list):
        return [neutral(item) for item in value]
    raise TypeError(f"no notation for {type(value)}")


def _tag(kind: type) -> str:
    return TAGS.get(kind.__name__, kind.__name__)
