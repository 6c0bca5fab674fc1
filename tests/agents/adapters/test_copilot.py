"""Copilot's stream, as 1.0.102 wrote it, and its file of usage."""

from __future__ import annotations

import pytest

from beads_workers.agents.adapter import AgentRequest
from beads_workers.agents.events import Kind, Retrying, Usage
from beads_workers.agents.verdict import RunEnding
from tests.agents.streams import GOOD, adapter, events, stream, tally_of


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        ({"errorType": "rate_limit", "message": "Too many", "statusCode": 429}, Kind.TRANSIENT),
        ({"errorType": "quota", "message": "No premium requests left"}, Kind.LIMITED),
        ({"errorType": "authentication", "statusCode": 401}, Kind.NEEDS_PERSON),
        ({"errorType": "query", "message": "No", "statusCode": 500}, Kind.TRANSIENT),
        ({"errorType": "query", "message": "No"}, Kind.UNFINISHED),
    ],
)
def test_an_error_of_the_session_is_its_end(error: dict[str, object], expected: Kind) -> None:
    lines = {"type": "session.error", "data": error}, {"type": "result", "exitCode": 1}
    for data in (stream(*lines), stream(lines[0])):
        verdict = adapter("copilot").verdict(tally_of("copilot", data), RunEnding(1))
        assert verdict.kind is expected


def test_a_retry_is_told() -> None:
    data = stream(
        {"type": "model.call_failure", "data": {"statusCode": 401}},
        {"type": "assistant.turn_retry", "data": {"reason": "network"}},
    )
    assert events("copilot", data) == [
        Retrying("status 401", Kind.NEEDS_PERSON),
        Retrying("network"),
    ]


def test_an_exit_code_in_the_result_counts() -> None:
    data = GOOD["copilot"].replace(b'"exitCode": 0', b'"exitCode": 1')
    assert (
        adapter("copilot").verdict(tally_of("copilot", data), RunEnding(0)).kind is Kind.UNFINISHED
    )


def test_a_run_that_was_interrupted_tells_exit_code_0() -> None:
    lines = {"type": "abort", "data": {"reason": "user_initiated"}}, {"type": "result"}
    tally = tally_of("copilot", stream(lines[0], {**lines[1], "exitCode": 0}))
    verdict = adapter("copilot").verdict(tally, RunEnding(0, changed=True))
    assert (verdict.kind, verdict.why) == (Kind.UNFINISHED, "it was interrupted")


def test_no_output_at_all_is_unfinished() -> None:
    verdict = adapter("copilot").verdict(tally_of("copilot", b""), RunEnding(1))
    assert (verdict.kind, verdict.why) == (Kind.UNFINISHED, "it exited with status 1")


def test_its_tokens_stand_in_a_file() -> None:
    asked = adapter("copilot").arguments(AgentRequest("x", usage_file="/run/usage.json"))
    assert asked.argv[-2:] == ("--usage-output-file", "/run/usage.json")
    text = (
        '{"modelMetrics": {"gpt-9": {"usage": {"inputTokens": 10, "outputTokens": 2,'
        ' "cacheReadTokens": 3, "cacheWriteTokens": 4}}}}'
    )
    parser = adapter("copilot").parser()
    assert parser.usage_told(text) == [Usage("gpt-9", 10, 2, 3, 4)]
    again = adapter("copilot").parser(last=parser.totals())
    assert again.usage_told(text.replace("10", "25")) == [Usage("gpt-9", 15)]
    for junk in ("", "[]", "{", '{"modelMetrics": 7}'):
        assert adapter("copilot").parser().usage_told(junk) == []
