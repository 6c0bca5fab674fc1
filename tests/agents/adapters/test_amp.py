"""Amp's stream, by its types: nobody here has run it."""

from __future__ import annotations

import pytest

from beads_workers.agents.adapter import AgentRequest
from beads_workers.agents.events import Kind, Usage
from beads_workers.agents.verdict import RunEnding
from tests.agents.streams import GOOD, adapter, stream, tally_of


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"subtype": "error_max_turns", "is_error": True, "error": "x"}, Kind.CAPPED),
        ({"subtype": "error_during_execution", "error": "Overloaded"}, Kind.TRANSIENT),
        ({"subtype": "error_during_execution", "error": "It broke."}, Kind.UNFINISHED),
    ],
)
def test_a_bad_result_is_its_end(fields: dict[str, object], expected: Kind) -> None:
    tally = tally_of("amp", stream({"type": "result", **fields}))
    assert adapter("amp").verdict(tally, RunEnding(1)).kind is expected


def test_answers_are_counted() -> None:
    assert tally_of("amp", GOOD["amp"]).usage == {"opus-1": Usage("opus-1", 1000, 20, 5)}


def test_a_thread_is_continued() -> None:
    found = adapter("amp").arguments(AgentRequest("Go on.", "T-1", resume=True))
    assert found.argv[:4] == ("amp", "threads", "continue", "T-1")
