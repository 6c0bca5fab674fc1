"""``doctor`` from outside: what it shows, how it ends, and that it changes nothing."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.doctor_support import Patient, initialised, patient


@pytest.fixture
def project(tmp_path: Path) -> Patient:
    """A project with a built-in tracker."""
    return initialised(tmp_path)


def test_a_sound_project_is_ready(project: Patient) -> None:
    found = project.doctor("--", "true")
    assert (found.status, found.problems()) == (0, set())
    assert found.shown["ok"] is True
    names = {check["name"] for check in found.shown["checks"]}
    assert names >= {"python", "settings", "tracker", "issues", "command", "git", "disk", "files"}
    assert names >= {"processes", "memory", "state", "sockets", "leftovers", "fleet", "clock"}


def test_without_a_tracker_it_exits_6_and_its_remedy_makes_one(tmp_path: Path) -> None:
    nothing = patient(tmp_path)
    found = nothing.doctor("--", "true")
    assert (found.status, found.shown["ok"], found.problems()) == (6, False, {"tracker"})
    assert nothing.type(found.one("tracker")["remedy"]).returncode == 0
    assert nothing.doctor("--", "true").status == 0


def test_wrong_usage_exits_2(project: Patient) -> None:
    for arguments in ("--source nonsense", "-n -1", "--nonsense", "--agent claude -- true"):
        assert project.type(f"beads-workers doctor {arguments}").returncode == 2, arguments


@pytest.mark.parametrize("content", ["workers = 'many'", "wrkers = 2", "workers = [", "\0"])
def test_a_broken_settings_file_is_a_line_of_its_own(project: Patient, content: str) -> None:
    file = project.folder / "beads-workers.toml"
    file.write_text(content)
    found = project.doctor("--", "true")
    assert (found.status, found.problems()) == (1, {"settings"})
    project.environment["EDITOR"] = "truncate --size=0"
    assert project.type(found.one("settings")["remedy"]).returncode == 0
    assert project.doctor("--", "true").status == 0


def test_a_wrong_variable_is_a_line_of_its_own(project: Patient) -> None:
    project.environment["BEADS_WORKERS_COUNT"] = "many"
    found = project.doctor("--", "true")
    assert (found.status, found.problems()) == (1, {"settings"})
    remedy = found.one("settings")["remedy"]
    assert project.doctor("--", "true", before=remedy).status == 0


@pytest.mark.parametrize("content", [None, "", 'workers = 2\n[agents.mine]\nargv = ["true"]\n'])
def test_both_trackers_are_named_and_the_remedy_settles_on_one(
    project: Patient, content: str | None
) -> None:
    (project.folder / ".beads").mkdir()
    file = project.folder / "beads-workers.toml"
    file.unlink() if content is None else file.write_text(content)
    assert project.doctor("--source", "sqlite", "--", "true").problems() == set()
    (both,) = [c for c in project.doctor("--", "true").all("tracker") if c["status"] == "warn"]
    assert project.type(both["remedy"]).returncode == 0
    found = project.doctor("--", "true")
    assert [c for c in found.all("tracker") if c["status"] == "warn"] == []
    assert found.one("settings")["status"] == "ok"


def test_it_changes_nothing(project: Patient) -> None:
    assert project.type("git init -q . && beads-workers add one -- true").returncode == 0

    def state() -> dict[str, tuple[int, bytes]]:
        files = [p for p in project.folder.parent.rglob("*") if p.is_file()]
        return {str(p): (p.stat().st_mtime_ns, p.read_bytes()) for p in files}

    before = state()
    assert project.doctor("--verify", "true").status == 0
    assert state() == before


def test_a_nameless_command_costs_a_hint_only(project: Patient) -> None:
    found = project.doctor()
    assert (found.status, found.problems()) == (0, {"command"})
    assert found.one("command")["remedy"] == "beads-workers doctor -- ./do-issue.sh {id}"


def test_issues_with_commands_of_their_own_need_no_other(project: Patient) -> None:
    assert project.type("beads-workers add one -- true").returncode == 0
    found = project.doctor()
    assert found.one("command")["text"] == "each issue's own command"
    assert found.one("issues")["text"] == "1 ready, 0 blocked"


def test_a_pipe_gets_one_plain_line_per_check_with_the_remedy_below(project: Patient) -> None:
    del project.environment["NO_COLOR"]
    lines = project.type("beads-workers doctor").stdout.splitlines()
    # Dead sockets in /tmp may be anybody's, and are a warning of their own.
    assert lines[-1].startswith("ready if command holds, which only a start knows: 1 warning")
    at = next(i for i, line in enumerate(lines) if line.startswith("warn  command    "))
    assert lines[at + 1] == " " * 17 + "fix: beads-workers doctor -- ./do-issue.sh {id}"
    assert "\x1b" not in "".join(lines)


def on_terminal(project: Patient, **environment: str) -> str:
    """What it prints where it believes to be on a terminal of 80 columns."""
    ours, theirs = pty.openpty()
    done = subprocess.Popen(
        [sys.executable, "-m", "beads_workers", "doctor"],
        cwd=project.folder,
        env={**project.environment, "COLUMNS": "80", **environment},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    said = b""
    while True:
        try:
            said += os.read(ours, 65536)
        except OSError:  # The other end is closed: Linux says EIO.
            break
    os.close(ours)
    done.wait(30)
    return said.decode().replace("\r\n", "\n")


def test_a_terminal_gets_colours_and_lines_that_fit(project: Patient) -> None:
    del project.environment["NO_COLOR"]
    said = on_terminal(project, TERM="xterm")
    assert "\x1b[32mok\x1b[0m    python" in said
    plain = on_terminal(project, TERM="dumb")
    assert "\x1b" not in plain
    texts = [line for line in plain.splitlines() if "fix:" not in line]
    # A path is never broken, so only what could be broken must fit.
    assert [line for line in texts if len(line) > 80 and "/" not in line] == []
    assert "\x1b[32m" not in on_terminal(project, TERM="xterm", NO_COLOR="1")


def test_json_is_one_line_and_one_object(project: Patient) -> None:
    lines = project.type("beads-workers doctor --json").stdout.splitlines()
    assert len(lines) == 1
    shown = json.loads(lines[0])
    assert set(shown) == {"ok", "pending", "checks"}
    assert all(set(c) == {"name", "status", "text", "remedy"} for c in shown["checks"])


def test_a_low_file_limit_fails_and_start_says_so_too(project: Patient) -> None:
    found = project.doctor("-n", "8", "--", "true", before="ulimit -n 28")
    assert (found.status, found.problems()) == (1, {"files"})
    said = project.type("ulimit -n 28; beads-workers start -n 8 --until-empty -- true")
    assert (said.returncode, said.stdout) == (1, "")
    assert said.stderr.splitlines()[0].startswith("error: at most 28 open files; 8 workers")
    assert said.stderr.splitlines()[1].startswith("hint: type: ")


def test_what_start_can_work_with_is_a_line_before_its_own(project: Patient) -> None:
    said = project.type("ulimit -n 64; beads-workers start -n 8 --until-empty -- true")
    assert said.returncode == 0, said.stderr
    assert said.stderr.splitlines()[0].startswith("warn files    at most 64 open files")
    assert "ok fleet" in said.stderr


def test_a_place_that_cannot_be_looked_at_does_not_break_start_s_own_checks(
    project: Patient,
) -> None:
    said = project.type(f"beads-workers start --state-dir {'x' * 300} --until-empty -- true")
    error, hint = said.stderr.splitlines()
    assert (said.returncode, error.startswith("error: ")) == (1, True)
    assert "File name too long" in error and "--state-dir" in hint
