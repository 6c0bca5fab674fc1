"""aider's text, as 0.86.2 printed it."""

from __future__ import annotations

import pytest

from beads_workers.agents.adapter import AgentRequest, Permission
from beads_workers.agents.events import Kind, Usage
from beads_workers.agents.verdict import RunEnding, Verdict
from tests.agents.streams import adapter, stream, tally_of

COUNTED = "Tokens: 1.2k sent, 1,020 cache hit, 20 received. Cost: $0.0033 message, $0.01 session."
BUSY = "The API provider's servers are down or overloaded."
LOST = "The API provider is not able to authenticate you. Check your API key."


def judged(*lines: str, changed: bool = True, clock: str = "") -> Verdict:
    ending = RunEnding(143 if clock else 0, changed=changed, clock=clock)
    return adapter("aider").verdict(tally_of("aider", stream("Aider v0.86.2", *lines)), ending)


def test_an_answer_is_known_by_its_count_of_tokens() -> None:
    lines = (
        "Aider v0.86.2",
        "It is there.",
        "",
        "Outcome: done",
        "",
        COUNTED,
        "Applied edit to a.py",
    )
    tally = tally_of("aider", stream(*lines))
    assert tally.usage == {"": Usage("", 180, 20, 1020, 0, 0.0033)}
    assert tally.activity == "editing a.py"
    assert judged(*lines).kind is Kind.DONE
    assert judged(*lines).text.endswith("Outcome: done")
    assert judged(*lines, changed=False).kind is Kind.NO_CHANGE


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ((LOST,), Kind.NEEDS_PERSON),
        ((COUNTED, LOST), Kind.NEEDS_PERSON),
        ((BUSY, "Retrying in 0.2 seconds...", "Hello.", COUNTED), Kind.DONE),
        (("Repo-map: disabled",), Kind.UNFINISHED),
    ],
    ids=["login", "midway", "got over", "nothing"],
)
def test_its_exit_status_is_not_believed(lines: tuple[str, ...], expected: Kind) -> None:
    assert judged(*lines).kind is expected


def test_a_run_that_is_ended_while_it_tries_again_is_transient() -> None:
    assert judged(BUSY, "Retrying in 16.0 seconds...", clock="stall").kind is Kind.TRANSIENT
    assert judged("what?", "Retrying in 1.0 seconds...", clock="stall").kind is Kind.TRANSIENT


def test_it_leaves_nothing_but_its_work() -> None:
    called = adapter("aider").arguments(
        AgentRequest("Do it.", permission=Permission.READ, model="m")
    )
    for option in ("--no-gitignore", "--no-auto-commits", "--yes-always", "ask", "m"):
        assert option in called.argv
    assert (called.argv[-2:], called.stdin) == (("--message-file", "/dev/stdin"), "Do it.")
