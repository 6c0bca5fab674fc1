"""A command that is described as an agent: exit status, and the last lines where that is not 0."""

from __future__ import annotations

import pytest

from beads_workers.agents.adapter import AgentRequest
from beads_workers.agents.events import Kind
from beads_workers.agents.verdict import RunEnding, Verdict
from tests.agents.streams import GOOD, NOW, adapter, tally_of

LIMIT = b"Claude AI usage limit reached|1795342974\n"


def judged(data: bytes, ending: RunEnding) -> Verdict:
    """The verdict on such a command."""
    return adapter("plain").verdict(tally_of("plain", data), ending)


def test_exit_status_0_is_done_unless_it_is_known_that_nothing_changed() -> None:
    assert judged(b"", RunEnding(0)).kind is Kind.DONE
    assert judged(b"Fine.\n", RunEnding(0, changed=True)) == Verdict(Kind.DONE, text="Fine.")
    assert judged(b"Fine.\n", RunEnding(0, changed=False)).kind is Kind.NO_CHANGE


def test_a_limit_in_its_last_line_is_one_whatever_its_exit_status() -> None:
    for status in (0, 1):
        found = judged(LIMIT, RunEnding(status, changed=False, at=NOW))
        assert (found.kind, found.until) == (Kind.LIMITED, 1_795_342_974.0)
    assert judged(LIMIT, RunEnding(0, changed=True)).kind is Kind.DONE
    assert judged(LIMIT + b"Waited, and went on.\n", RunEnding(0)).kind is Kind.DONE


@pytest.mark.parametrize(
    ("ending", "why"),
    [
        (RunEnding(3), "No such file."),
        (RunEnding(None, 9), "it was ended by signal 9"),
        (RunEnding(0, clock="timeout"), "it ran into its time-out"),
    ],
)
def test_any_other_end_is_unfinished(ending: RunEnding, why: str) -> None:
    found = judged(b"Looking.\nNo such file.\n", ending)
    assert (found.kind, found.why) == (Kind.UNFINISHED, why)


def test_75_asks_for_a_retry_that_charges_nothing() -> None:
    assert judged(b"Not now.\n", RunEnding(75)) == Verdict(
        Kind.TRANSIENT, "Not now.", text="Not now."
    )
    assert judged(b"", RunEnding(75)).why == "it asked for a retry"


def test_json_that_it_prints_means_nothing() -> None:
    tally = tally_of("plain", GOOD["claude"])
    assert tally.result is None and not tally.usage and len(tally.printed) == 6


def test_its_command_is_the_users() -> None:
    found = adapter("plain").arguments(AgentRequest("Do it.", arguments=("my-agent", "--fast")))
    assert (found.argv, found.stdin) == (("my-agent", "--fast"), "Do it.")
