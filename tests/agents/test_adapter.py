"""Adapters are found by their files, and the file that is asked for is all that is imported."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from beads_workers.agents import events
from beads_workers.agents.adapter import (
    ARGUMENT_BYTES_MAX,
    AgentRequest,
    Permission,
    load,
    names,
    shown,
)
from tests.agents.streams import GOOD, adapter, tally_of
from tests.test_tidy import PACKAGE, impurities, loaded, tree

SESSION = "00000000-0000-4000-8000-000000000001"
ASKED = AgentRequest("Do it.", SESSION, model="big-1", arguments=("--more",))


def test_the_adapters_are_these() -> None:
    assert names() == [
        *("aider", "amp", "claude", "codex", "copilot", "cursor", "gemini", "kimi", "opencode"),
        *("pi", "plain", "qwen"),
    ]
    assert [name for name in names() if adapter(name).untried] == ["amp", "cursor"]
    assert all(adapter(name).name == name for name in names())


def test_another_name_is_nobody() -> None:
    assert [load(name) for name in ("", "nobody", "..events", "claude.x", "__init__")] == [None] * 5


def test_only_the_one_that_is_asked_for_is_imported() -> None:
    modules = loaded("from beads_workers.agents.adapter import load\nload('codex')")
    ours = {m.rpartition(".")[2] for m in modules if m.startswith("beads_workers.agents.adapters.")}
    assert ours == {"codex"}
    assert not modules & {"zoneinfo", "pkgutil", "typer", "rich"}


LOOKS_AROUND = "presets.py"
"""Looks for programs on PATH; everything else here is told what it needs to know."""


@pytest.mark.parametrize(
    "path", sorted((PACKAGE / "agents").rglob("*.py")), ids=lambda path: str(path.name)
)
def test_an_adapter_only_computes(path: Path) -> None:
    assert (impurities(tree(path)) == []) is (path.name != LOOKS_AROUND)


def test_help_imports_none() -> None:
    code = """
sys.argv = ["beads-workers", "start", "--help"]
try:
    from beads_workers.cli.app import main
    main()
except SystemExit as ended:
    assert not ended.code, ended.code
"""
    assert not [m for m in loaded(code) if m.startswith("beads_workers.agents.adapters.")]


@pytest.mark.parametrize("name", sorted(GOOD))
def test_the_prompt_goes_one_way_and_the_users_arguments_are_passed_on(name: str) -> None:
    found = adapter(name).arguments(ASKED)
    in_arguments = "Do it." in found.argv
    assert in_arguments is not (found.stdin == "Do it.")
    assert in_arguments is (adapter(name).prompt_bytes_max == ARGUMENT_BYTES_MAX)
    assert "--more" in found.argv


@pytest.mark.parametrize("name", sorted(GOOD))
def test_each_permission_is_said(name: str) -> None:
    asked = [adapter(name).arguments(AgentRequest("x", permission=each)) for each in Permission]
    assert asked[0] != asked[1]


@pytest.mark.parametrize("name", sorted(GOOD))
def test_a_session_is_resumed_and_ours_is_given_where_it_takes_one(name: str) -> None:
    begun = adapter(name).arguments(ASKED)
    resumed = adapter(name).arguments(AgentRequest("Go on.", SESSION, resume=True))
    assert (SESSION in begun.argv) is adapter(name).own_session
    assert (SESSION in resumed.argv) is adapter(name).resumes


@pytest.mark.parametrize("name", sorted(GOOD))
def test_a_good_run_is_understood(name: str) -> None:
    tally = tally_of(name, GOOD[name])
    assert tally.result == events.FinalResult("All is there.", True)
    assert tally.session and tally.activity
    assert tally.failure is None and not tally.printed and not tally.denied


def test_a_line_is_readable() -> None:
    lines = GOOD["claude"].decode().splitlines()
    assert [adapter("claude").readable(line) for line in lines] == [
        [],
        ["> Adding it up."],
        ["editing /repo/shop/cart.py"],
        ["  | ok"],
        ["> All is there."],
        ["> All is there."],
    ]
    assert adapter("codex").readable(GOOD["codex"].decode().splitlines()[2]) == ["$ pytest -q"]
    assert adapter("codex").readable("error: \x1b[31mno") == ["error: no"]
    assert adapter("codex").readable("") == []


def test_words_and_commands_are_whole_and_what_tools_print_is_folded() -> None:
    printed = "\n".join(f"line {number}" for number in range(20))
    words = {"type": "text", "text": "It is done.\n\nOutcome: blocked: a token is missing"}
    command = {"command": "cd shop &&\n  pytest -q"}
    call = {"type": "tool_use", "id": "t", "name": "Bash", "input": command}
    answer = {"type": "assistant", "message": {"id": "m", "content": [words, call]}}
    result = {"type": "tool_result", "tool_use_id": "t", "is_error": True, "content": printed}
    told = {"type": "user", "message": {"content": [result]}}
    claude = adapter("claude")
    assert claude.readable(json.dumps(answer)) == [
        "> It is done.",
        "",
        "  Outcome: blocked: a token is missing",
        "$ cd shop &&",
        "    pytest -q",
    ]
    folded = claude.readable(json.dumps(told))
    assert folded[:3] == ["  ! line 0", "  ! line 1", "  ! ... 14 lines: logs --full"]
    assert folded[-1] == "  ! line 19" and len(folded) == 7
    assert len(claude.readable(json.dumps(told), full=True)) == 20
    item = {"type": "command_execution", "aggregated_output": "ok\n", "exit_code": 0}
    done = json.dumps({"type": "item.completed", "item": item})
    assert adapter("codex").readable(done) == ["  | ok"]
    # What the attempt itself reads is as before.
    assert not any(
        isinstance(e, events.ToolOutput)
        for e in claude.parser().feed(json.dumps(told).encode() + b"\n")
    )


def test_events_are_shown_as_people_say_them() -> None:
    assert shown(events.OpenQuestion("In euros?\nOr not?")) == ["asks: In euros?", "  Or not?"]
    assert shown(events.Denied("Bash")) == ["refused: Bash"]
    assert shown(events.Retrying("overloaded 529")) == ["tries again: overloaded 529"]
    assert shown(events.Limit("five_hour", rejected=True)) == ["reached: 5-hour limit"]
    assert shown(events.Limit("five_hour", 0.9)) == []
    assert shown(events.FinalResult("\n It broke.\nmore", False)) == ["failed: It broke.", "  more"]
    assert shown(events.Printed("  ")) == [] and shown(events.Usage("a", 1)) == []
