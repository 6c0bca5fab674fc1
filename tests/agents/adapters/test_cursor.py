"""Cursor's stream, by its documentation: nobody here has run it."""

from __future__ import annotations

from beads_workers.agents.adapter import AgentRequest, Permission
from beads_workers.agents.events import Kind
from beads_workers.agents.verdict import RunEnding
from tests.agents.streams import GOOD, adapter, tally_of


def test_a_failure_is_a_text_and_a_status() -> None:
    tally = tally_of("cursor", b"Error: something broke. Sorry.\n")
    verdict = adapter("cursor").verdict(tally, RunEnding(1))
    assert (verdict.kind, verdict.why) == (Kind.UNFINISHED, "Error: something broke.")


def test_an_error_in_the_result_is_believed() -> None:
    data = GOOD["cursor"].replace(b'"is_error": false', b'"is_error": true')
    verdict = adapter("cursor").verdict(tally_of("cursor", data), RunEnding(0, changed=True))
    assert verdict.kind is Kind.UNFINISHED


def test_it_writes_only_with_force() -> None:
    asked = [adapter("cursor").arguments(AgentRequest("-x", permission=p)).argv for p in Permission]
    assert ["--force" in argv for argv in asked] == [False, True, True]
    assert all(argv[-2:] == ("--", "-x") for argv in asked)
