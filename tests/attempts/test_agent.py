"""An agent of an attempt, where its own command line could not be made to say it on a stub, or says
it at moments of its own: a program replays what was recorded."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import IO, Any

import pytest

from beads_workers.agents.events import Kind
from beads_workers.agents.verdict import Verdict
from beads_workers.attempts.agent import AttemptContext, WorkingAgent
from beads_workers.attempts.log import MaskedLog
from beads_workers.attempts.process import Clocks
from beads_workers.core.records.assignment import AgentSpec
from beads_workers.core.records.receipts import Tokens
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


def context(folder: Path, log: IO[bytes], **others: Any) -> AttemptContext:
    """Of an attempt in this folder, which has work by now."""
    fields: dict[str, Any] = {
        "environment": dict(os.environ),
        "log": MaskedLog({}, log.fileno()),
        "usage": UsageFile(str(folder / "usage")),
        "clocks": Clocks(),
        "must_end": lambda: False,
        "pays_overage": False,
        "changed": lambda: True,
        "tell": lambda activity: None,
    }
    return AttemptContext(**{**fields, **others})


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
        around = context(paying, log, clocks=Clocks(term_seconds=0.5), pays_overage=pays)
        verdict = WorkingAgent(AgentSpec("claude", "claude"), around).work(
            "do it", resume=False, money=None
        )
    assert verdict.kind is kind
    assert (verdict.until == 1_800_000_000) is not pays


@pytest.mark.parametrize(
    ("ends", "was_cut"),
    [("kill -9 $$", True), (f"echo '{json.dumps(RESULT)}'; kill -9 $$", False), ("exit 1", False)],
)
def test_an_agent_that_is_killed_before_its_result_may_lack_its_last_answer(
    tmp_path: Path, ends: str, was_cut: bool
) -> None:
    program = tmp_path / "mine"
    program.write_text(f"#!/bin/sh\ncat >/dev/null\n{ends}\n")
    program.chmod(0o755)
    with (tmp_path / "log").open("wb") as log:
        around = context(tmp_path, log)
        spec = AgentSpec("claude", "claude", program=str(program))
        WorkingAgent(spec, around).work("do it", resume=False, money=None)
    assert around.usage.was_cut is was_cut


def test_a_program_that_the_user_names_is_the_one_that_is_run(tmp_path: Path) -> None:
    program = tmp_path / "my-claude"
    program.write_text(f"#!/bin/sh\necho '{json.dumps(RESULT)}'\n")
    program.chmod(0o755)
    with (tmp_path / "log").open("wb") as log:
        around = context(tmp_path, log)
        spec = AgentSpec("mine", "claude", program=str(program))
        verdict = WorkingAgent(spec, around).work("do it", resume=False, money=None)
    assert (verdict.kind, verdict.text) == (Kind.DONE, "ok")


def test_tokens_that_a_command_line_writes_to_a_file_at_its_end_count(tmp_path: Path) -> None:
    """copilot's stream has none."""
    used = {"inputTokens": 10, "outputTokens": 2, "cacheReadTokens": 3, "cacheWriteTokens": 4}
    written = json.dumps({"modelMetrics": {"gpt-9": {"usage": used}}})
    result = json.dumps({"type": "result", "sessionId": "s", "exitCode": 0})
    program = tmp_path / "my-copilot"
    script = 'while [ "$1" != --usage-output-file ]; do shift; done'
    program.write_text(f"#!/bin/sh\n{script}\necho '{written}' >\"$2\"\necho '{result}'\n")
    program.chmod(0o755)
    with (tmp_path / "log").open("wb") as log:
        around = context(tmp_path, log)
        spec = AgentSpec("mine", "copilot", program=str(program))
        WorkingAgent(spec, around).work("do it", resume=False, money=None)
    assert around.usage.spent()[0] == {"gpt-9": Tokens(10, 2, 3, 4)}


CORPUS = Path(__file__).resolve().parents[1] / "agents" / "corpus" / "claude-2.1.328"
WITH_BACKGROUND = CORPUS / "background.out"
"""It tells a result while a task of its own goes on, and a second one when that has ended."""


def lines_of(recorded: Path) -> tuple[list[str], list[str]]:
    """Up to the first result with it, and what comes behind."""
    lines = recorded.read_text().splitlines(keepends=True)
    end = 1 + next(i for i, line in enumerate(lines) if '"type":"result"' in line)
    return lines[:end], lines[end:]


class Replay:
    """A ``claude`` that is a script, in a folder with what was recorded ``before`` and ``behind``
    its first result."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        before, behind = lines_of(WITH_BACKGROUND)
        assert behind, "the recording has no second result"
        (folder / "before").write_text("".join(before))
        (folder / "behind").write_text("".join(behind))

    def run(self, script: str, **clocks: float) -> Verdict:
        """What comes of it."""
        program = self.folder / "claude"
        program.write_text(f"#!/bin/sh\ncd {self.folder}\n{script}\n")
        program.chmod(0o755)
        with (self.folder / "log").open("wb") as log:
            around = context(self.folder, log, clocks=Clocks(term_seconds=0.2, **clocks))
            agent = WorkingAgent(AgentSpec("claude", "claude"), around)
            return agent.work("Do it.", resume=False, money=None)


@pytest.fixture
def replay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Replay:
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    return Replay(tmp_path)


def test_a_result_is_not_the_end_while_a_task_in_the_background_goes_on(replay: Replay) -> None:
    verdict = replay.run("cat before; sleep 2; cat behind; touch ended", after_result_seconds=0.5)
    assert verdict.kind is Kind.DONE
    assert (replay.folder / "ended").exists()


def test_one_that_idles_after_its_last_result_is_ended(replay: Replay) -> None:
    verdict = replay.run("cat before behind; sleep 20; touch ended", after_result_seconds=0.5)
    assert verdict.kind is Kind.DONE
    assert not (replay.folder / "ended").exists()


@pytest.mark.parametrize(
    ("script", "kind"), [("cat before", Kind.DONE), ("head -n 5 before", Kind.UNFINISHED)]
)
def test_a_server_in_the_background_is_ended_by_silence_and_costs_no_attempt(
    replay: Replay, script: str, kind: Kind
) -> None:
    assert replay.run(f"{script}; sleep 20", stall_seconds=1.5).kind is kind
