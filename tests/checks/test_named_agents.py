"""Agents by their names: who makes the last attempt, and names that mean nobody."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from beads_workers.checks.named_agents import find_fleet_agents
from beads_workers.checks.rules import Check
from beads_workers.cli.config import read_text
from beads_workers.core.base.settings import StrongerTry
from beads_workers.options import AgentTable, Options, Resolved


def found(agent: str = "claude", **tables: AgentTable) -> Any:
    """The agents of a fleet, or why there are none."""
    return find_fleet_agents(Resolved(Options(agent=agent), {}, tables))


def to(escalate: str, agent: str = "claude", **tables: AgentTable) -> Any:
    """The same, if claude's table says so."""
    return found(agent, claude=AgentTable(escalate=escalate), **tables)


@pytest.mark.parametrize(
    ("text", "stronger"),
    [
        ("opus", StrongerTry("claude", "opus")),
        ("claude-opus-4-8", StrongerTry("claude", "claude-opus-4-8")),
        ("gemini-3", StrongerTry("claude", "gemini-3")),
        ("model:codex", StrongerTry("claude", "codex")),
        ("codex", StrongerTry("codex")),
        ("agent:codex", StrongerTry("codex")),
        ("mine", StrongerTry("mine")),
    ],
)
def test_a_name_of_an_agent_is_that_agent_and_any_other_a_model(
    text: str, stronger: StrongerTry
) -> None:
    agents = to(text, mine=AgentTable(adapter="codex", escalate="never used"))
    assert agents[0].escalate == stronger
    others = agents[1:]
    expected = [] if stronger.agent == "claude" else [stronger.agent]
    assert [each.name for each in others] == expected
    assert all(each.reserve and each.escalate is None for each in others)


def test_an_agent_that_works_anyway_is_not_kept_in_reserve() -> None:
    agents = to("codex", "claude,codex")
    assert [(each.name, each.reserve) for each in agents] == [("claude", False), ("codex", False)]


@pytest.mark.parametrize(
    ("text", "said", "hint"),
    [
        ("codx", "no such agent", 'did you mean codex? A model of this name is "model:codx"'),
        ("agent:codx", "no such agent: codx", "did you mean codex?"),
        ("agent:nobody", "no such agent: nobody", "known are"),
        ("claude", "names the agent itself", "name a model"),
        ("plainly", "plainly has no adapter", "give [agents.plainly] an adapter"),
        ("broken", "names an adapter that is not there", "leave it out"),
    ],
)
def test_an_agent_that_cannot_make_the_last_attempt_is_refused_before_the_first_one(
    text: str, said: str, hint: str
) -> None:
    tables = {"plainly": AgentTable(("./x",)), "broken": AgentTable(adapter="nothing")}
    wrong = to(text, **tables)
    assert isinstance(wrong, Check)
    assert said in wrong.text and hint in wrong.hint


def test_a_command_without_an_adapter_has_no_stronger_try() -> None:
    wrong = found("mine", mine=AgentTable(("./x",), escalate="codex"))
    assert isinstance(wrong, Check) and "with an adapter only" in wrong.text


def test_the_key_is_read_from_the_file() -> None:
    _, agents = read_text(Path("f.toml"), b'[agents.claude]\nescalate = "opus"\n')
    assert agents["claude"].escalate == "opus"
