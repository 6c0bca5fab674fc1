"""The hook: what it refuses in time, and what it leaves alone."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from beads_workers.attempts.guards import write_settings
from beads_workers.attempts.hook import refusal


@pytest.mark.parametrize(
    "line",
    [
        "git push",
        "git -C /x -c a.b=c push origin HEAD:main",
        "make test && git push",
        "sh -c 'git add -A; /usr/bin/git push'",
        "bash -ec \"sh -c 'git push'\"",
        "GIT_TRACE=1 env A=b git push",
        "cd x\ngit push",
        "(git push)",
        "bd close i-1",
        "bd --actor me update --status closed i-1",
        "/opt/bd close",
        "true; bd label add i-1 no-change",
        "bd batch",
    ],
)
def test_it_refuses(line: str) -> None:
    assert "refused" in refusal(line, "i-1")


@pytest.mark.parametrize(
    "line",
    [
        "git commit -m 'then git push'",
        "git log push",
        "echo git push",
        "git stash push",
        "grep -rn 'bd close i-1' docs",
        "bd show i-1",
        "bd close i-2",
        "bd create --title 'close i-1'",
        "echo 'without an end",
        "",
        ";;&&|",
    ],
)
def test_it_leaves_alone(line: str) -> None:
    assert refusal(line, "i-1") == ""


@given(st.text(), st.text())
def test_no_line_breaks_it(line: str, issue: str) -> None:
    assert isinstance(refusal(line, issue), str)


def called(folder: Path, issue_id: str, stdin: str) -> subprocess.CompletedProcess[str]:
    """The hook as claude calls it: by a shell, with the call of a tool on its stdin."""
    settings = json.loads(Path(write_settings(issue_id, folder)).read_text())
    hooks = {entry["matcher"]: entry["hooks"] for entry in settings["hooks"]["PreToolUse"]}
    (hook,) = hooks["Bash"]
    return subprocess.run(
        ["sh", "-c", hook["command"]], cwd="/", input=stdin, capture_output=True, text=True
    )


@pytest.mark.parametrize("issue_id", ["i-1", "-x", "it's $(x)", "--"])
def test_it_is_called_by_its_settings_whatever_the_issue(tmp_path: Path, issue_id: str) -> None:
    def call(line: object) -> str:
        return json.dumps({"tool_name": "Bash", "tool_input": {"command": line}})

    refused = called(tmp_path, issue_id, call("git push"))
    assert (refused.returncode, "nothing is pushed" in refused.stderr) == (2, True)
    assert called(tmp_path, issue_id, call("ls")).returncode == 0
    assert called(tmp_path, issue_id, call(["ls"])).returncode == 0
    assert called(tmp_path, issue_id, "no JSON").returncode == 0
    assert called(tmp_path, issue_id, "[]").returncode == 0
