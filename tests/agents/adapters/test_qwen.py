"""Qwen Code's stream, as 0.24.4 wrote it."""

from __future__ import annotations

import pytest

from beads_workers.agents.adapter import AgentRequest
from beads_workers.agents.events import Kind, Usage
from beads_workers.agents.verdict import RunEnding
from tests.agents.streams import CLAUDE_INIT, GOOD, TOOL, adapter, claude_answer, stream, tally_of


def test_each_answer_counts_once() -> None:
    assert tally_of("qwen", GOOD["qwen"]).usage == {"opus-1": Usage("opus-1", 1990, 40, 10)}


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        ('[API Error: 401 {"type":"error"}]', Kind.NEEDS_PERSON),
        ("[API Error: 529 Overloaded]", Kind.TRANSIENT),
        ("[API Error: 400 no]", Kind.UNFINISHED),
        ("[API Error: no connection]", Kind.UNFINISHED),
    ],
)
def test_an_error_stands_in_an_answer_as_well(error: str, expected: Kind) -> None:
    result = {"type": "result", "subtype": "error_during_execution", "is_error": True}
    words = claude_answer("m1", {"type": "text", "text": error})
    tally = tally_of("qwen", stream(CLAUDE_INIT, words, {**result, "error": {"message": error}}))
    assert adapter("qwen").verdict(tally, RunEnding(1)).kind is expected


@pytest.mark.parametrize("status", [53, 55])
def test_its_caps_are_exit_statuses(status: int) -> None:
    verdict = adapter("qwen").verdict(tally_of("qwen", stream(CLAUDE_INIT)), RunEnding(status))
    assert verdict.kind is Kind.CAPPED


def test_its_silence_is_that_of_its_model_unless_a_tool_runs() -> None:
    said = [CLAUDE_INIT, claude_answer("m1", TOOL), {"type": "user", "message": {}}]
    ends = [
        adapter("qwen")
        .verdict(tally_of("qwen", stream(*said[:n])), RunEnding(None, 15, clock))
        .kind
        for n, clock in ((1, "stall"), (2, "stall"), (3, "stall"), (3, "timeout"))
    ]
    assert ends == [Kind.TRANSIENT, Kind.UNFINISHED, Kind.TRANSIENT, Kind.UNFINISHED]


def test_it_makes_no_worktree_of_its_own() -> None:
    argv = adapter("qwen").arguments(AgentRequest("x", turns=3)).argv
    assert "enter_worktree" in argv[argv.index("--exclude-tools") + 1]
    assert argv[argv.index("--max-session-turns") + 1] == "3"
