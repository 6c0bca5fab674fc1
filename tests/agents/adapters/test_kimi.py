"""Kimi Code's stream, as 2.1.0 wrote it."""

from __future__ import annotations

import json
from pathlib import Path

from beads_workers.agents.adapter import AgentRequest, Permission
from beads_workers.agents.events import Kind
from beads_workers.agents.verdict import RunEnding
from tests.agents.streams import GOOD, adapter, stream, tally_of

CALL = {"function": {"name": "AskUserQuestion"}}
VERSION = {"role": "meta", "type": "system.version"}


def test_a_failure_stands_on_stderr() -> None:
    line = "error: failed to run prompt: provider.auth_error: 401 {}"
    verdict = adapter("kimi").verdict(tally_of("kimi", stream(VERSION, line)), RunEnding(1))
    assert verdict.kind is Kind.NEEDS_PERSON


def test_a_run_that_is_ended_while_it_tries_again_is_transient() -> None:
    again = {"role": "meta", "type": "turn.step.retrying", "status_code": 529}
    tally = tally_of("kimi", stream(VERSION, {**again, "error_message": "529 {}"}))
    verdict = adapter("kimi").verdict(tally, RunEnding(143, clock="stall"))
    assert (verdict.kind, verdict.why) == (Kind.TRANSIENT, "529 {}")


def test_a_run_that_names_no_session_is_unfinished() -> None:
    lines = GOOD["kimi"].splitlines(keepends=True)
    tally = tally_of("kimi", b"".join(lines[:-1]))
    assert adapter("kimi").verdict(tally, RunEnding(0, changed=True)).kind is Kind.UNFINISHED


def test_what_it_asks_by_a_tool_is_known() -> None:
    given = json.dumps({"questions": [{"question": "In euros?"}]})
    asked = {**CALL, "function": {**CALL["function"], "arguments": given}}
    calls = {"role": "assistant", "tool_calls": [asked, CALL, {"function": {"arguments": "["}}]}
    assert tally_of("kimi", stream(calls)).asked == ("In euros?",)


def test_a_reviewer_has_no_tool_that_writes_and_stays_so_when_it_is_resumed() -> None:
    begun = adapter("kimi").arguments(AgentRequest("x", permission=Permission.READ)).argv
    assert "--plan" not in begun, "kimi refuses it with a prompt"
    reader = Path(begun[begun.index("--agent-file") + 1]).read_text()
    assert "\ntools: [Read, Grep, Glob]\n" in reader
    again = AgentRequest("x", "session_1", resume=True, permission=Permission.READ)
    assert "--agent-file" not in adapter("kimi").arguments(again).argv, "kimi refuses that, too"
