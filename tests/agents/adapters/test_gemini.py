"""Gemini's stream and exit statuses, as 0.61.0 had them."""

from __future__ import annotations

import pytest

from beads_workers.agents.adapter import AgentRequest
from beads_workers.agents.events import Kind, Usage
from beads_workers.agents.verdict import RunEnding
from tests.agents.streams import GOOD, adapter, stream, tally_of

QUOTA = "[API Error: You have exhausted your daily quota on this model.]"


def test_its_answer_comes_in_pieces() -> None:
    tally = tally_of("gemini", GOOD["gemini"])
    assert tally.text == "All is there."
    assert tally.usage == {"gemini-3": Usage("gemini-3", 600, 20, 400)}


def test_usage_is_told_by_model_where_it_has_models() -> None:
    stats = {"input_tokens": 9, "models": {"a": {"input_tokens": 5, "output_tokens": 1}}}
    data = stream({"type": "result", "status": "success", "stats": stats})
    parser = adapter("gemini").parser()
    assert parser.feed(data)[0] == Usage("a", 5, 1)
    assert adapter("gemini").parser(last=parser.totals()).feed(data)[0] == Usage("a", 5, 1)


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        *((173, Kind.TRANSIENT), (145, Kind.NEEDS_PERSON), (41, Kind.NEEDS_PERSON)),
        *(
            (53, Kind.CAPPED),
            (55, Kind.NEEDS_PERSON),
            (244, Kind.TRANSIENT),
            (1, Kind.UNFINISHED),
            (0, Kind.UNFINISHED),
        ),
    ],
)
def test_where_it_says_nothing_its_exit_status_does(status: int, expected: Kind) -> None:
    tally = tally_of("gemini", b"")
    assert adapter("gemini").verdict(tally, RunEnding(status)).kind is expected
    assert tally.failure is None


def test_what_it_says_goes_before_its_exit_status() -> None:
    error = {"type": "result", "status": "error", "error": {"type": "x", "message": QUOTA}}
    for data in (stream(error), QUOTA.encode()):
        verdict = adapter("gemini").verdict(tally_of("gemini", data), RunEnding(173))
        assert (verdict.kind, verdict.until) == (Kind.LIMITED, None)


def test_the_code_in_what_it_quotes_counts() -> None:
    quoted = '[API Error: {"error":{"code":403,"message":"Billing is disabled."}}]'
    data = stream({"type": "result", "status": "error", "error": {"message": quoted}})
    assert (
        adapter("gemini").verdict(tally_of("gemini", data), RunEnding(1)).kind is Kind.NEEDS_PERSON
    )


def test_a_result_without_a_message_is_what_was_said_before() -> None:
    data = stream({"type": "error", "message": "Empty."}, {"type": "result", "status": "error"})
    assert adapter("gemini").verdict(tally_of("gemini", data), RunEnding(0)).why == "Empty."


def test_the_prompt_is_read_from_stdin_before_what_is_behind_p() -> None:
    found = adapter("gemini").arguments(AgentRequest("Do it."))
    assert (found.argv[-2:], found.stdin) == (("-p", "Do this."), "Do it.")
