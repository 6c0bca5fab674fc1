"""What a worker tells the program of an attempt is what that reads."""

from __future__ import annotations

import json

from beads_workers.core.assignment import (
    AgentSpec,
    Assignment,
    read_assignment,
    write_assignment,
)
from beads_workers.core.receipts import Receipt, Tokens

SPEC = AgentSpec("mine", "claude", "opus", ("--fast",), {"*": (1.25, 10.0, 0.125)}, "Mind {title}.")
WHOLE = Assignment(
    issue_id="a",
    title="t",
    issue={"id": "a", "labels": ["x"], "comments": [{"author": "ann"}]},
    attempt=2,
    request_id="r.1",
    run_id="r",
    worker_id="W1",
    agent=SPEC,
    guards="/g",
    usage_file="/u",
    runs="/runs",
    review=AgentSpec("codex", "codex"),
    verify="make test",
    fix_rounds=2,
    stall_seconds=900.0,
    term_seconds=3.0,
    allows_no_change=True,
    comments="owner",
    earlier=Receipt("unfinished", session="s", usage={"m": Tokens(1, 2)}, commits=("c",)),
    error="it failed",
    resumes=True,
    money=1.5,
    overage=True,
)


def test_it_is_read_as_it_was_written() -> None:
    assert read_assignment(write_assignment(WHOLE)) == WHOLE


def test_so_are_one_without_a_past_and_one_without_prices() -> None:
    plain = Assignment(
        *("a", "t", {}, 1, "r.1", "r", "W1", AgentSpec("codex", "codex"), "/g", "/u")
    )
    assert read_assignment(write_assignment(plain)) == plain
    assert json.loads(write_assignment(plain))["earlier"] is None
