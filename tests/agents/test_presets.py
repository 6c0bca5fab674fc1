"""Which agents can be named, and that they are found without being run."""

from __future__ import annotations

from pathlib import Path

import pytest

from beads_workers.agents import presets


def test_those_that_can_be_named_are_these() -> None:
    assert dict(presets.PRESETS) == {
        name: name
        for name in (
            *("aider", "claude", "codex", "copilot", "gemini", "kimi", "opencode", "pi", "qwen"),
        )
    }


@pytest.mark.parametrize("prompt", [presets.PLAIN_PROMPT, presets.PLAIN_PROMPT_IN_WORKTREE])
def test_the_prompt_of_a_command_that_nobody_knows_holds_the_whole_issue(prompt: str) -> None:
    for placeholder in ("{id}", "{title}", "{description}", "{priority}", "{attempt}"):
        assert placeholder in prompt
    assert "{place}" not in prompt


def test_agents_are_found_on_path_only_where_they_can_be_run(tmp_path: Path) -> None:
    (tmp_path / "claude").write_text("")
    (tmp_path / "codex").mkdir()
    assert presets.find_agents(f"/none:{tmp_path}") == []
    (tmp_path / "claude").chmod(0o755)
    assert presets.find_agents(f"/none:{tmp_path}") == ["claude"]
