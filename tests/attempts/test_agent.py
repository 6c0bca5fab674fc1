"""An agent of an attempt, where its own command line could not be made to say it on a stub."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from beads_workers.agents.events import Kind
from beads_workers.attempts.agent import AttemptContext, WorkingAgent
from beads_workers.attempts.assignment import AgentSpec
from beads_workers.attempts.log import MaskedLog
from beads_workers.attempts.process import Clocks
from beads_workers.runtime.usage_file import UsageFile

OVERAGE = {
    "type": "rate_limit_event",
    "rate_limit_info": {
        "status": "allowed",
        "rateLimitType": "five_hour",
        "resetsAt": 1_800_000_000,
        "isUsingOverage": True,
    },
}
RESULT = {"type": "result", "subtype": "success", "is_error": False, "num_turns": 1, "result": "ok"}


@pytest.fixture
def paying(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A ``claude`` that begins to be paid for, and goes on if it may."""
    lines = [json.dumps(OVERAGE), json.dumps(RESULT)]
    program = tmp_path / "claude"
    program.write_text(f"#!/bin/sh\necho '{lines[0]}'\nsleep 2\necho '{lines[1]}'\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    return tmp_path


@pytest.mark.parametrize(("pays", "kind"), [(False, Kind.LIMITED), (True, Kind.DONE)])
def test_work_that_would_be_paid_for_counts_as_limited_unless_it_may_be(
    paying: Path, pays: bool, kind: Kind
) -> None:
    with (paying / "log").open("wb") as log:
        around = AttemptContext(
            environment=dict(os.environ),
            log=MaskedLog({}, log.fileno()),
            usage=UsageFile(str(paying / "usage")),
            clocks=Clocks(term_seconds=0.5),
            told=lambda: False,
            pays_overage=pays,
            changed=lambda: True,
            tell=lambda activity: None,
        )
        verdict = WorkingAgent(AgentSpec("claude", "claude"), around).work(
            "do it", resume=False, money=None
        )
    assert verdict.kind is kind
    assert (verdict.until == 1_800_000_000) is not pays
