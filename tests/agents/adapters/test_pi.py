"""pi's stream, as 0.73.1 wrote it."""

from __future__ import annotations

import pytest

from beads_workers.agents.events import Kind, Usage
from beads_workers.agents.verdict import RunEnding
from tests.agents.streams import GOOD, adapter, pi_answer, stream, tally_of

BEGAN = {"type": "session", "id": "p1"}
END = {"type": "agent_end"}


def test_each_answer_costs_its_own() -> None:
    tally = tally_of("pi", GOOD["pi"])
    assert tally.usage == {"m-1": Usage("m-1", 2000, 40, 10, 0, 0.01)}


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        ('401 {"type":"error"}', Kind.NEEDS_PERSON),
        ('429 {"error":{"type":"rate_limit_error"}}', Kind.TRANSIENT),
        ("400 no", Kind.UNFINISHED),
        ("", Kind.UNFINISHED),
    ],
)
def test_its_exit_status_is_not_believed(error: str, expected: Kind) -> None:
    line = {"type": "message_end", "message": pi_answer("r1", "error", errorMessage=error)}
    tally = tally_of("pi", stream(BEGAN, line, END))
    assert adapter("pi").verdict(tally, RunEnding(0, changed=True)).kind is expected


def test_an_error_that_it_tries_again_after_is_no_result() -> None:
    error = {"type": "message_end", "message": pi_answer("r1", "error", errorMessage="529 busy")}
    again = {"type": "auto_retry_start", "errorMessage": "529 busy"}
    waiting = tally_of("pi", stream(BEGAN, error, END, again))
    assert (waiting.result, waiting.is_over) == (None, False)
    answer = {"type": "message_end", "message": pi_answer("r2", "stop", "Done.")}
    tally = tally_of("pi", stream(BEGAN, error, END, again, answer, END))
    assert adapter("pi").verdict(tally, RunEnding(0, changed=True)).kind is Kind.DONE


@pytest.mark.parametrize("stopped", ["length", "aborted", "toolUse"])
def test_an_answer_that_was_cut_is_no_result(stopped: str) -> None:
    line = {"type": "message_end", "message": pi_answer("r1", stopped, "Half")}
    tally = tally_of("pi", stream(BEGAN, line, END))
    assert adapter("pi").verdict(tally, RunEnding(0, changed=True)).kind is Kind.UNFINISHED
