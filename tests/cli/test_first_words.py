"""Mistakes of the first hour: each is answered by a line that says what is wrong, and the line that
mends it. In a folder with a tracker of one issue, in this process; nothing is started."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from pathlib import Path

import pytest

from beads_workers.cli.app import main
from tests.support.repository import git

MINE = '[agents.mine]\nargv = ["no-such-agent"]\n'
CLAUDE = '[agents.claude]\nargv = ["no-such-claude"]\nadapter = "claude"\n'

MISTAKES = [
    # beads-workers.toml, what is typed, words of the error, words of the hint
    ("", "start --dry-run -n 2 sh do.sh", "sh is a program", "start --dry-run -n 2 -- sh do.sh"),
    ("", "start --dry-run ./do.sh {id}", "./do.sh is a program", "-- ./do.sh '{id}'"),
    ("", "start --dry-run do.sh", "do.sh is a program", "start --dry-run -- ./do.sh"),
    ("", "start --dry-run bw-1 sh", "sh is a program", "start --dry-run bw-1 -- sh"),
    ("", "start --dry-run claude", "and no issue", "start --dry-run --agent claude"),
    ("", "start --dry-run bw-2", "no such issue: bw-2", "did you mean bw-1?"),
    ("", "start --dry-run frob", "no such issue: frob", "a command goes after --"),
    ("", "start --dry-run -- 'sh do.sh'", "no program 'sh do.sh'", "without the quotes: -- sh do"),
    ("", "start --dry-run -- do.sh", "not on PATH, but here", "write ./do.sh"),
    ("", "start --dry-run -- sh x '&&' y", "&& is an argument of sh", "-- sh -c 'sh x && y'"),
    ("", "start --dry-run -- echo '$BW_ISSUE_ID'", "no shell is", """-- sh -c 'echo "$BW_ISSUE_"""),
    ("", "start --dry-run --agent claud", "no such agent: claud", "did you mean claude?"),
    ("", "start --dry-run --budget 20 -- true", "--budget has no effect", "or say --agent"),
    ("", "start --dry-run --issue-budget 1 -- true", "--issue-budget has no", "or say --agent"),
    ("budget = 20", "start --dry-run -- true", "budget in ", "has no effect without an agent"),
    (MINE, "start --dry-run --agent mine", "[agents.mine] argv: no-such-agent was", "install no-"),
    (CLAUDE, "start --dry-run --agent claude", "[agents.claude] argv: no-", "install no-such-clau"),
    (
        CLAUDE,
        "start --dry-run --agent claude --timeout 30",
        "ends after 30 seconds",
        "-timeout 30m",
    ),
    ('command = ["no-such"]', "start --dry-run", "beads-workers.toml: no-such was not found", ""),
    ("", "doctor sh do.sh", "too many arguments", "beads-workers doctor -- sh do.sh"),
    ("", "add Fix the bug", "more than one title", "beads-workers add 'Fix the bug'"),
    ("", "add ''", "it has no title", "beads-workers add 'Say hello'"),
    ("", "add x --timeout soon", "--timeout cannot be 'soon'", "a duration: 90, 90s, 5m"),
    ("", "retry nope", "not retried: nope", "beads-workers retry --all"),
    ("", "show bw-2", "no such issue: bw-2", "beads-workers list"),
    ("", "add Fix the bug -- sh do.sh", "more than one title", "add 'Fix the bug' -- sh do.sh"),
]


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with a tracker of one issue, and a script."""
    folder = tmp_path_factory.mktemp("first")
    git(folder, "init", "-q")
    (folder / "do.sh").write_text("#!/bin/sh\n")
    (folder / "do.sh").chmod(0o755)
    (folder / "issues.jsonl").write_text('{"id": "bw-1", "title": "one"}')
    here, words = Path.cwd(), sys.argv
    try:
        os.chdir(folder)
        for typed in (["init", "--prefix", "bw"], ["import", "issues.jsonl"]):
            sys.argv = ["beads-workers", *typed]
            with pytest.raises(SystemExit):
                main()
    finally:
        os.chdir(here)
        sys.argv = words
    return folder


@pytest.mark.parametrize(("settings", "typed", "message", "hint"), MISTAKES)
def test_a_mistake_of_the_first_hour_is_answered_with_what_was_meant(
    template: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    settings: str,
    typed: str,
    message: str,
    hint: str,
) -> None:
    folder = shutil.copytree(template, tmp_path / "p")
    (folder / "beads-workers.toml").write_text(settings)
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "argv", ["beads-workers", *shlex.split(typed)])
    capsys.readouterr()
    with pytest.raises(SystemExit):
        main()
    said = capsys.readouterr().err
    at = said.find(message)
    assert at >= 0, said
    assert hint in said[at:], said


@pytest.mark.parametrize("name", ["beads-worker.toml", "beads-workers.yaml"])
def test_settings_under_another_name_are_said_to_be_unread(
    template: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    name: str,
) -> None:
    folder = shutil.copytree(template, tmp_path / "p")
    (folder / "beads-workers.toml").rename(folder / name)
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "argv", ["beads-workers", "start", "--dry-run", "--", "true"])
    with pytest.raises(SystemExit):
        main()
    assert f"hint: mv {folder / name} {folder / 'beads-workers.toml'}" in capsys.readouterr().err
