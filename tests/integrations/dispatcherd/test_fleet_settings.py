"""``start --source dispatcherd:...``: what file and options come to, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from beads_workers.cli.config import resolve
from beads_workers.cli.kinds import kind_said
from beads_workers.core.base.plain import to_plain
from beads_workers.core.base.policy import Policy
from beads_workers.core.base.settings import FleetSettings
from beads_workers.errors import CommandError
from beads_workers.exits import EXIT_USAGE
from beads_workers.integrations.dispatcherd.configuration import Brokers
from beads_workers.integrations.dispatcherd.fleet_settings import prepare_dispatcherd
from tests.support.trust import TRUSTED

YAML = """
version: 2
brokers:
  socket: {socket_path: d.sock}
service:
  pool_kwargs: {max_workers: 7}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "deeds.py").touch()
    (tmp_path / "d.yml").write_text(YAML)
    return tmp_path


def prepared(folder: Path, issues: tuple[str, ...] = (), **options: Any) -> FleetSettings:
    said = {"source": "dispatcherd:d.yml", "allow_module": ("deeds",), **options}
    return prepare_dispatcherd(resolve(said, folder, TRUSTED), issues, owned=True)


def test_what_gives_it_something_to_run_is_said(folder: Path) -> None:
    with pytest.raises(CommandError) as caught:
        prepared(folder, allow_module=())
    assert "--allow-module" in caught.value.hint


def refused(folder: Path, issues: tuple[str, ...] = (), **options: Any) -> str:
    with pytest.raises(CommandError) as caught:
        prepared(folder, issues, **options)
    assert caught.value.exit_code == EXIT_USAGE
    return str(caught.value)


@pytest.mark.parametrize(
    ("source", "ours"),
    [
        ("dispatcherd:d.yml", True),
        ("dispatcherd+unix:///d", True),
        ("postgresql://h/d?channel=a", True),
        ("postgres://h/d?channel=a", True),
        ("redis://h", False),
        ("bd", False),
        (None, False),
    ],
)
def test_which_sources_these_are(source: str | None, ours: bool) -> None:
    kind = kind_said(source)
    assert (kind is not None and kind.name == "dispatcherd") is ours


def test_a_file_gives_brokers_and_workers_and_tasks_are_tried_once(folder: Path) -> None:
    settings = prepared(folder)
    assert settings.source_private == to_plain(Brokers((str(folder / "d.sock"),)))
    assert (settings.source, settings.workers, settings.awaited) == ("dispatcherd", 7, False)
    assert settings.state_directory == str(folder / ".beads-workers")
    assert settings.policy == Policy(attempts_max=1, hand_back=True)


def test_what_is_said_wins_over_the_file(folder: Path) -> None:
    settings = prepared(folder, workers=3, max_attempts=4, retry_delay=0.5)
    assert settings.workers == 3
    policy = settings.policy
    assert (policy.attempts_max, policy.hand_back_after, policy.retry_delay_seconds) == (4, 4, 0.5)


def test_a_file_that_is_json_is_read_too(folder: Path) -> None:
    config = {"version": 2, "brokers": {"socket": {"socket_path": "/x/d.sock"}}}
    (folder / "d.json").write_text(json.dumps(config))
    settings = prepared(folder, source="dispatcherd:d.json")
    assert settings.source_private == to_plain(Brokers(("/x/d.sock",)))
    assert settings.workers == 4


@pytest.mark.parametrize("text", ["brokers: [", "a: *b", "{" * 2000, "version: 1", "- x", "\0"])
def test_a_file_that_says_nothing_is_refused(folder: Path, text: str) -> None:
    (folder / "d.yml").write_text(text)
    assert refused(folder).startswith("--source: ")


def test_a_file_that_is_not_there_is_refused(folder: Path) -> None:
    assert "cannot be read" in refused(folder, source="dispatcherd:missing.yml")


@pytest.mark.parametrize(
    "option", [{"label": ("a",)}, {"agent": "claude"}, {"worktree": True}, {"shared": True}]
)
def test_what_belongs_to_a_tracker_is_refused(folder: Path, option: dict[str, Any]) -> None:
    assert "does not go with tasks of dispatcherd" in refused(folder, **option)


def test_issues_cannot_be_named(folder: Path) -> None:
    assert "ISSUE does not go with" in refused(folder, ("a-1",))


def test_there_must_be_something_to_run(folder: Path) -> None:
    assert "nothing to run" in refused(folder, allow_module=())
