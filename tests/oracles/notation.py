"""Values in a notation that renames do not touch: tags for classes, positions for fields.

Only a commit that renames something may edit the tables here; a digest that changes otherwise is
a change of behaviour.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import json
from collections.abc import Callable, Mapping
from typing import Any

from beads_workers.core.base.model import Arguments
from beads_workers.core.base.plain import to_plain
from beads_workers.core.records.receipts import Receipt
from beads_workers.core.schedule.commands import Write

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


ADDED: dict[str, tuple[str, ...]] = {
    "Add": ("awaits",),
    "Answered": ("commented",),
    "Checkpointed": ("question", "asked_at", "questions", "answered", "occupied", "ahead"),
    "CrashedRun": ("asked", "answered", "awaiting"),
    "Finished": ("questions", "awaits", "occupied"),
    "Outcome": ("occupied",),
    "Policy": ("questions_max",),
    "Receipt": ("question", "call"),
    "RetryAskedFor": ("cause",),
    "RunStarted": ("approves",),
    "Settlement": ("awaits",),
    "RoundTrip": ("listen", "remarks"),
    "RoundTripEnded": ("conversations", "remarks"),
    "AttemptHistory": ("questions",),
    "Land": ("awaits",),
}
"""Fields that are younger than the digests: left out where they hold their default."""

TEXTS = ("Add | None", "Arguments | None", "Mend | None", "Receipt | None")
"""Fields of records that were texts of JSON when the digests were made."""


def _text(found: Any) -> str:
    if found is None:
        return ""
    if isinstance(found, Arguments):
        fields = [None if found.args is None else list(found.args), found.kwargs]
    else:
        fields = to_plain(found, sparse=isinstance(found, Receipt))
        for name in ADDED.get(type(found).__name__, ()):
            if not fields.get(name):
                fields.pop(name, None)
    return json.dumps(fields, separators=(",", ":"))


def neutral(value: Any) -> Any:
    """The value as nested lists: JSON can write it, and no name of a field is in it.

    Prose (a text with a space in it) is only said to be there: its words may be bettered.
    """
    return _notation(type(value))(value)


@functools.cache
def _notation(kind: type) -> Callable[[Any], Any]:
    """How all values of this class are written."""
    if kind is str:
        return lambda value: "~" if " " in value else WORDS.get(value, value)
    if kind is float:
        return lambda value: round(value, 6)
    if kind in (type(None), int, bool):
        return lambda value: value
    tag = _tag(kind)
    if issubclass(kind, Write):
        # What it changes follows from the record.
        return lambda value: [tag, neutral(value.record)]
    if issubclass(kind, enum.Enum):
        numbers = {each: [tag, number] for number, each in enumerate(kind)}
        return lambda value: numbers[value]
    if dataclasses.is_dataclass(kind):
        fields = [(f.name, str(f.type) in TEXTS) for f in dataclasses.fields(kind)]
        added = {
            f.name: f.default
            for f in dataclasses.fields(kind)
            if f.name in ADDED.get(kind.__name__, ())
        }
        return lambda value: [
            tag,
            *[
                neutral(_text(got) if old else got)
                for n, old in fields
                for got in (getattr(value, n),)
                if n not in added or got != added[n]
            ],
        ]
    if issubclass(kind, Mapping):
        # By position, too: a mapping of ours has the same order each time.
        return lambda value: ["map", *[[neutral(key), neutral(v)] for key, v in value.items()]]
    if issubclass(kind, set | frozenset):
        return lambda value: ["set", *sorted(map(repr, map(neutral, value)))]
    if issubclass(kind, tuple | list):
        return lambda value: [neutral(item) for item in value]
    raise TypeError(f"no notation for {kind}")


@functools.cache
def _tag(kind: type) -> str:
    return TAGS.get(kind.__name__, kind.__name__)
