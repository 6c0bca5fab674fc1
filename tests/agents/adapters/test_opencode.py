"""OpenCode's stream, as 1.18.33 wrote it."""

from __future__ import annotations

import pytest

from beads_workers.agents.events import Kind, Usage
from beads_workers.agents.verdict import RunEnding
from tests.agents.streams import GOOD, adapter, stream, tally_of


def test_each_step_costs_its_own() -> None:
    tally = tally_of("opencode", GOOD["opencode"])
    assert tally.usage == {"": Usage("", 1000, 20, 400, 0, 0.03)}
    assert tally.money() == 0.03


@pytest.mark.parametrize(
    ("status", "expected"),
    [(401, Kind.NEEDS_PERSON), (529, Kind.TRANSIENT), (400, Kind.UNFINISHED)],
)
def test_an_error_is_its_end(status: int, expected: Kind) -> None:
    data = {"message": "It broke.", "statusCode": status, "isRetryable": False}
    line = {"type": "error", "sessionID": "o1", "error": {"name": "APIError", "data": data}}
    tally = tally_of("opencode", stream(line))
    verdict = adapter("opencode").verdict(tally, RunEnding(1))
    assert (verdict.kind, verdict.why, tally.session) == (expected, "It broke.", "o1")


def test_a_run_between_two_steps_is_unfinished() -> None:
    lines = GOOD["opencode"].splitlines(keepends=True)
    tally = tally_of("opencode", b"".join(lines[:3]))
    assert adapter("opencode").verdict(tally, RunEnding(0, changed=True)).kind is Kind.UNFINISHED


def test_a_wait_for_a_quota_is_silence() -> None:
    verdict = adapter("opencode").verdict(tally_of("opencode", b""), RunEnding(None, 15, "stall"))
    assert verdict.why == "it said nothing for too long"
