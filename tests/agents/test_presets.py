"""The presets say their permissions, read stdin, and are found without being run."""

from __future__ import annotations

from pathlib import Path

from beads_workers.agents.presets import DEFAULT_PROMPT, PRESETS, find_agents


def test_the_invocations_are_these() -> None:
    assert PRESETS["claude"].argv == (
        *("claude", "-p", "--output-format", "text", "--permission-mode", "acceptEdits"),
        *("--allowedTools", "Bash,Edit,Write,Read,Glob,Grep"),
    )
    assert PRESETS["codex"].argv == (
        *("codex", "exec", "--sandbox", "workspace-write", "-c", 'approval_policy="never"'),
        *("--color", "never", "-"),
    )


def test_the_default_prompt_holds_the_whole_issue() -> None:
    for placeholder in ("{id}", "{title}", "{description}", "{priority}", "{attempt}"):
        assert placeholder in DEFAULT_PROMPT


def test_agents_are_found_on_path_only_where_they_can_be_run(tmp_path: Path) -> None:
    (tmp_path / "claude").write_text("")
    (tmp_path / "codex").mkdir()
    assert find_agents(f"/none:{tmp_path}") == []
    (tmp_path / "claude").chmod(0o755)
    assert find_agents(f"/none:{tmp_path}") == ["claude"]
