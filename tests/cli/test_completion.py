"""What Tab proposes: bash is given the script that is installed, and asks with it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from beads_workers.runtime import sessions
from tests.support.embedded import EmbeddedProject
from tests.support.fleet import call, until


class Shell:
    """A bash in a project, whose ``beads-workers`` is this checkout's."""

    def __init__(self, project: Any, scratch: Path, script: str = "") -> None:
        self.project = project
        program = scratch / "bin" / "beads-workers"
        program.parent.mkdir()
        program.write_text(f'#!/bin/sh\nexec {sys.executable} -m beads_workers "$@"\n')
        program.chmod(0o755)
        self.environment = dict(project.environment)
        self.environment["PATH"] = f"{program.parent}:{self.environment['PATH']}"
        self.script = script or self.installed()

    def installed(self) -> str:
        """What bash is given once, whatever the project."""
        # The shell is found among the ancestors: beneath cron or nohup there is none but this.
        return self._bash("beads-workers --show-completion; exit")

    def tab(self, line: str) -> list[str]:
        """What is proposed for the last word of a line; nothing is ever printed."""
        last = '""' if line.endswith(" ") else ""
        asked = (
            f"{self.script}\nCOMP_WORDS=(beads-workers {line} {last}); "
            "COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _beads_workers_completion beads-workers; "
            'printf "%s\\n" "${COMPREPLY[@]}"'
        )
        return self._bash(asked).split()

    def _bash(self, script: str) -> str:
        done = subprocess.run(
            ["bash", "-c", script],
            cwd=self.project.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        assert done.stderr == "", script
        return done.stdout


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What is installed."""
    folder = tmp_path_factory.mktemp("installed")
    return Shell(EmbeddedProject(folder), folder).script


@pytest.fixture
def shell(tmp_path: Path, script: str) -> Shell:
    """With two issues that are open, and one that is closed after a run of W1."""
    project = EmbeddedProject(tmp_path)
    project.create_many([{"id": "bw-done"}])
    assert call(project, "start", "-n", "1", "--until-empty", "--", "true").returncode == 0
    project.create_many([{"id": "bw-a"}, {"id": "bw-b"}])
    return Shell(project, tmp_path, script)


def test_issues_runs_workers_and_agents_are_proposed(shell: Shell) -> None:
    (run_id,) = (each.name for each in (shell.project.folder / ".beads-workers/runs").iterdir())
    assert shell.tab("show ") == ["bw-a", "bw-b"]
    assert shell.tab("start bw-a bw-b") == ["bw-b"]
    assert shell.tab("logs ") == ["W1", "bw-done"]
    assert shell.tab("report 2") == shell.tab("wait ") == [run_id]
    assert shell.tab("undo ") == [run_id, "bw-done"]
    assert shell.tab("start --agent claude,co") == ["claude,codex", "claude,copilot"]
    assert shell.tab("start --retry ") == ["continue", "fresh"]
    assert {*shell.tab("rep")} == {"report", "replay"} and shell.tab("report --ht") == ["--html"]


def test_agents_of_the_settings_are_proposed(shell: Shell) -> None:
    settings = shell.project.folder / "beads-workers.toml"
    settings.write_text('[agents.robin]\nargv = ["true"]\n')
    assert shell.tab("start --review ro") == ["robin"]


def test_what_is_quarantined_is_proposed_for_a_retry(shell: Shell) -> None:
    end = ("--limit", "1", "--max-attempts", "1")
    assert call(shell.project, "start", "bw-a", "-n", "1", *end, "--", "false").returncode
    assert shell.tab("retry ") == ["bw-a"]


def test_of_each_cause_a_word_is_proposed_that_no_other_has(shell: Shell) -> None:
    fails = "case $BW_ISSUE_ID in bw-a) echo AssertionError: no b;; *) echo KeyError: no a;; esac"
    end = ("--limit", "2", "--max-attempts", "1")
    task = ("sh", "-c", f"({fails}) >&2; exit 1")
    assert call(shell.project, "start", "-n", "1", *end, "--", *task).returncode
    assert shell.tab("retry --cause ") == ["AssertionError", "KeyError"]
    assert call(shell.project, "retry", "--cause", "KeyError").stdout.count("bw-b") == 1


def test_a_running_fleet_is_asked_for_its_workers(shell: Shell) -> None:
    call(shell.project, "start", "-d", "bw-a", "-n", "2", "--", "sleep", "600")
    try:
        assert shell.tab("pause ") == ["W1", "W2"] and shell.tab("resume W2") == ["W2"]
        assert until(lambda: shell.tab("release ")) == ["bw-a"]
    finally:
        assert call(shell.project, "stop", "--now").returncode == 0


def test_after_the_dashes_the_shell_proposes_its_files(shell: Shell) -> None:
    assert shell.tab("start -n 2 -- ") == shell.tab("start -- sh --agent ") == []


def test_nothing_is_said_where_nothing_can_be_had(shell: Shell) -> None:
    asked = ("show ", "retry ", "logs ", "report ", "land ", "pause ", "start --agent cl")
    (shell.project.folder / ".beads-workers" / "tracker.db").write_bytes(b"no database" * 99)
    assert shell.tab("show ") == []
    (shell.project.folder / "beads-workers.toml").write_text("[")
    for line in asked:
        shell.tab(line)
    shell.project.folder = shell.project.folder.parent
    assert [shell.tab(line) for line in asked[:-1]] == [[]] * 6


@pytest.fixture
def bd(shell: Shell, tmp_path: Path) -> Path:
    """The program that the shell finds for ``bd``, in a project of its."""
    (shell.project.folder / ".beads").mkdir()
    bd = tmp_path / "bin" / "bd"
    bd.touch(0o755)
    return bd


def test_no_id_is_proposed_that_a_shell_would_not_take_as_it_is(shell: Shell, bd: Path) -> None:
    ids = ("x-$(x)", "x y", "x-'", "-x", "x-\n", "x-c")
    rows = [{"id": each, "status": "open"} for each in ids]
    bd.write_text(f"#!/bin/sh\ncat <<'END'\n{json.dumps(rows)}\nEND\n")
    assert shell.tab("why ") == ["x-c"]


def test_a_bd_that_does_not_answer_is_not_waited_for(shell: Shell, bd: Path) -> None:
    bd.write_text("#!/bin/sh\necho $$ >pid\nexec sleep 600\n")
    assert shell.tab("why ") == []
    pid = int((shell.project.folder / "pid").read_text())
    until(lambda: sessions.start_time(pid) is None)
