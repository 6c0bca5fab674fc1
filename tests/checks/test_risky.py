"""What a settings file is asked about: the table, and what makes a line of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from beads_workers.checks.risky import RISKY, RISKY_OF_AGENTS, SettingsFile, table
from beads_workers.cli.config import read_text
from beads_workers.options import KEYS, AgentTable

ROOT = Path(__file__).resolve().parents[2]


def lines(folder: Path, text: str) -> list[str]:
    """What is asked about in such a file."""
    file = folder / "beads-workers.toml"
    said = SettingsFile(*read_text(file, text.encode()), file)
    return [each.line.text for each in said.risky()]


def test_the_document_has_the_table() -> None:
    assert table() in (ROOT / "docs/TRUST.md").read_text()


def test_the_table_names_keys_that_there_are() -> None:
    assert RISKY.keys() <= KEYS.keys()
    assert set(AgentTable.__slots__) >= RISKY_OF_AGENTS.keys()


@pytest.mark.parametrize(
    "text",
    [
        'source = "bd"',
        "workers = 3",
        "issue_commands = false",
        "skip_check = []",
        'discovered = "hold"',
        'state_dir = "below"',
        'prompt = "prompts/mine.md"',
        "[worktree]\nenabled = true",
        '[agents.claude]\nmodel = "m"',
    ],
)
def test_what_runs_nothing_is_not_asked_about(tmp_path: Path, text: str) -> None:
    assert lines(tmp_path, text) == []


def test_a_place_outside_is_asked_about_also_through_a_link(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (project / "link").symlink_to("..")
    for place in ("../beside", "/var/x", "~/x", "link/x"):
        assert lines(project, f'state_dir = "{place}"') == [f'state_dir = "{place}"']


def test_an_agent_goes_without_its_whole_table(tmp_path: Path) -> None:
    file = tmp_path / "beads-workers.toml"
    text = b'verify = "v"\nworkers = 2\n[agents.a]\nargv = ["a"]\nmodel = "m"\n'
    said = SettingsFile(*read_text(file, text), file)
    values, agents = said.without(said.risky())
    assert dict[str, Any](values) == {"workers": 2} and agents == {}
