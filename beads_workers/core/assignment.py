"""The input of an agent's attempt and its answer: JSON on stdin, JSON Lines on stdout.

The worker writes one ``Assignment``. The attempt prints ``{"progress": {...}}`` whenever there is
news, at most once a second, and at its end one ``{"answer": {...}}``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import field
from typing import Any

from beads_workers.core import limits
from beads_workers.core.commit_form import OWN_TRAILERS
from beads_workers.core.landing import Mend
from beads_workers.core.model import OutcomeKind, value
from beads_workers.core.plain import from_plain, to_plain
from beads_workers.core.receipts import Receipt, to_json
from beads_workers.core.settings import Asking


@value
class AgentSpec:
    """``adapter``: one of ``agents.adapters``; ``name``: the user's name for it.

    ``prices``: dollars for a million tokens (input, output, cached input), by a pattern of models.
    ``prompt``: the user's template, "" for ours; ``program``: likewise, "" for the adapter's.
    """

    name: str
    adapter: str
    model: str = ""
    arguments: tuple[str, ...] = ()
    prices: Mapping[str, tuple[float, ...]] = field(default_factory=dict, hash=False)
    prompt: str = ""
    program: str = ""


@value
class Assignment:
    """``issue``: as the tracker shows it (JSON object).
    ``earlier``: the receipt of the attempt before this one, whose session goes on with ``resumes``.
    ``allows_no_change``: the issue says that nothing may have to be changed. ``money``: dollars
    that are left for it; None: no budget.
    ``guards``: a folder of ours; ``usage_file``: the file to which usage is written as it comes;
    ``runs``: the folder with the journals of all runs, "" for none. ``repair``: why its branch did
    not land. ``may_ask``: a person answers questions. ``question``: what it asked at ``asked_at``
    (epoch seconds), if it is not done since: newer comments of ``issue`` answer it. ``trailers``:
    trailers of the commit that is made of what the attempt leaves, and ``pushes_submodules``, as in
    ``Worktrees``."""

    issue_id: str
    title: str
    issue: Mapping[str, Any] = field(hash=False)
    attempt: int
    request_id: str
    run_id: str
    worker_id: str
    agent: AgentSpec
    guards: str
    usage_file: str
    runs: str = ""
    review: AgentSpec | None = None
    verify: str | None = None
    independent: bool = False
    asking: Asking = field(default_factory=Asking)
    term_seconds: float = 5.0
    allows_no_change: bool = False
    earlier: Receipt | None = None
    error: str = ""
    resumes: bool = False
    money: float | None = None
    repair: Mend | None = None
    may_ask: bool = False
    question: str = ""
    asked_at: float = 0.0
    trailers: tuple[str, ...] = OWN_TRAILERS
    pushes_submodules: bool = False


@value
class AttemptAnswer:
    """``outcome``: as in DONE and FAILED; ``error``: one line. ``unprepared``: see
    ``model.Outcome``."""

    outcome: OutcomeKind
    error: str
    receipt: Receipt
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
