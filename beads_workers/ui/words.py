"""Words of states and outcomes: what dashboard, page, report and lines call them."""

from __future__ import annotations

import re
from enum import Enum

# --- states --------------------------------------------------------------------------------------

TROUBLE_WORDS = {
    "limited": "its limit is reached",
    "needs_person": "it needs a person",
    "backing_off": "it is overloaded",
}
"""Texts for an account's state if the agent gave no reason."""

VERDICT_WORDS = {
    "done": "done",
    "no_change": "changed nothing",
    "unfinished": "unfinished",
    "question": "asks a person",
    "capped": "stopped at our limit",
    "limited": "account limited",
    "needs_person": "account needs a person",
    "transient": "overloaded",
}

OUTCOME_WORDS = {
    "success": "done",
    "error": "failed",
    "timeout": "timed out",
    "lost": "worker died",
    "not_found": "not found",
    "retry": "asked for a retry",
    "cancelled": "cancelled",
    "question": "asked a question",
    "cut_off": "cut off",
    "running": "running",
    "not_ours": "done in vain",
}
"""Words for outcomes. ``cut_off``: the orchestrator was killed; ``not_ours``: see ``waste_of``."""

FATE_WORDS = {
    "closed": "closed",
    "quarantined": "quarantined",
    "asked": "waits for an answer",
    "awaits_approval": "awaits approval",
    "in_review": "in review",
    "unclosed": "unclosed",
    "waiting_to_land": "waiting to land",
    "requeued": "requeued",
    "unfinished": "unfinished",
    "not_ours": "not ours",
}
"""Words for the values of ``history.Fate``."""


def fate_count(count: int, fate: str) -> str:
    """Return ``3 closed``, ``1 waits for an answer``, ``2 wait for an answer``."""
    words = FATE_WORDS[fate]
    if count != 1:
        words = re.sub("^(a?wait)s", r"\1", words)
    return f"{count:,} {words}"


QUEUE_WORDS = {
    "running": "running",
    "ready": "ready",
    "retrying": "waiting for a retry",
    "settling": "settling",
    "blocked": "blocked",
    "waiting_to_land": "to land",
    "unclosed": "unclosed",
    "questions": "asking you",
    "awaiting_approval": "awaiting approval",
    "in_review": "in review",
    "occupied": "waiting until you leave",
    "on_hold": "on hold",
    "quarantined": "quarantined",
}
"""Words for the counts of ``queue`` in ``status``, whose sum is the issues that are not closed."""

GOES_ON = {"running": "in progress"} | {
    key: QUEUE_WORDS[key]
    for key in ("ready", "retrying", "settling", "waiting_to_land", "unclosed")
}
"""Of these, the ones that another start goes on with, after a run."""

DID_NOT_LAND = "did not land"
"""What became of a finished branch that was refused: its issue is quarantined, or goes back."""

NO_ERROR = "no error was given"

# --- backlog -------------------------------------------------------------------------------------


class State(Enum):
    """States of issues, in the order of their groups: the first two wait for a person."""

    NEEDS_YOU = "needs_you"
    QUARANTINED = "quarantined"
    RUNNING = "running"
    LANDING = "landing"
    RETRYING = "retrying"
    READY = "ready"
    BLOCKED = "blocked"
    LEFT_ALONE = "left_alone"
    CLOSED = "closed"


STATE_TITLES = {
    State.NEEDS_YOU: "needs you",
    State.QUARANTINED: "quarantined",
    State.RUNNING: "in progress",
    State.LANDING: FATE_WORDS["waiting_to_land"],
    State.RETRYING: "waiting for a retry",
    State.READY: "ready",
    State.BLOCKED: "blocked",
    State.LEFT_ALONE: "left alone",
    State.CLOSED: "closed",
}

ORDER_NAMES = ("priority", "time", "id", "title")
"""Orders of issues; the first one is the usual one."""
