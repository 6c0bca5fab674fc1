"""The input of an agent's attempt and its answer: JSON on stdin, JSON Lines on stdout.

The worker writes one ``Assignment``. The attempt prints ``{"progress": {...}}`` whenever there is
news, at most once a second, and at its end one ``{"answer": {...}}``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import field
from typing import Any

from beads_workers.core.base import limits
from beads_workers.core.base.commit_form import OWN_TRAILERS
from beads_workers.core.base.model import OutcomeKind, value
from beads_workers.core.base.plain import from_plain, to_plain
from beads_workers.core.base.settings import AgentRules
from beads_workers.core.records.landing import Mend
from beads_workers.core.records.receipts import Receipt, to_json


@value
class AgentSpec:
    """An agent, with how it is to be run."""

    # The user's name for it.
    name: str
    # One of ``agents.adapters``.
    adapter: str
    model: str = ""
    arguments: tuple[str, ...] = ()
    # Dollars for a million tokens (input, output, cached input), by a pattern of models.
    prices: Mapping[str, tuple[float, ...]] = field(default_factory=dict, hash=False)
    # The user's template; "" for ours.
    prompt: str = ""
    # The user's program; "" for the adapter's.
    program: str = ""


@value
class Assignment:
    """The input of an agent's attempt."""

    issue_id: str
    title: str
    # As the tracker shows it (JSON object).
    issue: Mapping[str, Any] = field(hash=False)
    attempt: int
    request_id: str
    run_id: str
    worker_id: str
    agent: AgentSpec
    # A folder of ours.
    guards: str
    # The file to which usage is written as it comes.
    usage_file: str
    # The folder with the journals of all runs; "" for none.
    runs: str = ""
    review: AgentSpec | None = None
    verify: str | None = None
    independent: bool = False
    asking: AgentRules = field(default_factory=AgentRules)
    term_seconds: float = 5.0
    # The issue says that nothing may have to be changed.
    allows_no_change: bool = False
    # The receipt of the attempt before this one, whose session goes on with ``resumes``.
    earlier: Receipt | None = None
    error: str = ""
    resumes: bool = False
    # Dollars that are left for it; None: no budget.
    money: float | None = None
    # Why its branch did not land.
    repair: Mend | None = None
    # A person answers questions.
    may_ask: bool = False
    # What it asked at ``asked_at``, if it is not done since: newer comments of ``issue`` answer it.
    question: str = ""
    # Epoch seconds.
    asked_at: float = 0.0
    # Of the commit that is made of what the attempt leaves, as in ``Worktrees``.
    trailers: tuple[str, ...] = OWN_TRAILERS
    # As in ``WorktreeRules``.
    pushes_submodules: bool = False


@value
class AttemptAnswer:
    """The answer of an agent's attempt, at its end."""

    # As in DONE and FAILED.
    outcome: OutcomeKind
    # One line.
    error: str
    receipt: Receipt
    # See ``model.Outcome``.
    unprepared: bool = False


def not_kept(error: str, receipt: Receipt) -> AttemptAnswer:
    """Return the answer if git or the machine failed, through no fault of the issue."""
    return AttemptAnswer(OutcomeKind.RETRY, error, receipt, unprepared=True)


def to_fields(answer: AttemptAnswer) -> dict[str, Any]:
    """Return an answer as a JSON object."""
    return {
        "outcome": answer.outcome.value,
        "error": answer.error[: limits.ERROR_CHARS_MAX],
        "receipt": to_json(answer.receipt),
        "unprepared": answer.unprepared,
    }


def write_assignment(assignment: Assignment) -> str:
    """Return an assignment as JSON text."""
    return json.dumps(to_plain(assignment))


def read_assignment(text: str) -> Assignment:
    """Read the text that ``write_assignment`` wrote; raise one of ``BAD_VALUE`` if it is bad."""
    return from_plain(Assignment, json.loads(text))
