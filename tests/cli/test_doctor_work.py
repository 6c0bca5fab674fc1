"""What ``doctor`` says of commands and agents; every remedy is typed, and then it is content."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from beads_workers.core.settings import Agent
from beads_workers.doctor import work
from tests.cli.doctor_support import Diagnosis, Patient, initialised, write

CLAUDE = '#!/bin/sh\n[ "$*" = --version ] && echo "2.1.0 (Claude Code)"\n'


@pytest.fixture
def here(tmp_path: Path) -> Patient:
    """A project with an embedded tracker."""
    return initialised(tmp_path)


def typed(here: Patient, remedy: str) -> Diagnosis:
    """A remedy that is another call of ``doctor``."""
    words = shlex.split(remedy)
    assert words[:2] == ["beads-workers", "doctor"]
    return here.doctor(*words[2:])


@pytest.mark.parametrize(
    "command",
    [
        ["sh", "-c", "echo {title}"],  # The text would be run as code.
        ["bash", "-c", "echo '{description}' {id}"],
        ["do-it.sh", "{id}"],  # Here, but not on PATH.
        ["printf %s {id}"],  # One word where several were meant.
        ["cd", "src"],  # A word of the shell.
        ["prinft", "{id}"],
        ["printf", "%s %s", "{titel}", "{issue_id}"],
    ],
)
def test_a_wrong_command_comes_back_right(here: Patient, command: list[str]) -> None:
    write(here.folder / "do-it.sh", "#!/bin/sh\n")
    found = here.doctor("--", *command)
    problems = [c for c in found.all("command") if c["status"] != "ok"]
    for _ in range(2):  # {titel} and {issue_id} are mended one after the other.
        found = typed(here, problems[0]["remedy"])
        problems = [c for c in found.all("command") if c["status"] != "ok"]
        if not problems:
            break
    assert (found.status, found.problems()) == (0, set())


def test_braces_that_are_no_placeholders_are_nobody_s_business(here: Patient) -> None:
    assert here.doctor("--", "awk", "{print}", "{}", "{other}").problems() == set()


@pytest.mark.parametrize(
    ("text", "mode", "status"),
    [("#!/bin/sh\n", 0o644, 1), ("#!/bin/sh\r\necho\r\n", 0o755, 1), ("echo hello\n", 0o755, 0)],
)
def test_a_script_that_cannot_be_run_as_it_is_is_mended(
    here: Patient, text: str, mode: int, status: int
) -> None:
    write(here.folder / "do it.sh", text, mode)
    found = here.doctor("--", "./do it.sh")
    assert (found.status, found.problems()) == (status, {"command"})
    assert here.type(found.one("command")["remedy"]).returncode == 0
    assert here.doctor("--", "./do it.sh").problems() == set()


@pytest.mark.parametrize("line", ["#!/no/such/shell", "#!/usr/bin/env no-such-shell"])
def test_a_script_without_its_interpreter_fails(here: Patient, line: str) -> None:
    write(here.folder / "x", f"{line}\n")
    found = here.doctor("--", "./x")
    assert "no-such-shell" in found.one("command")["text"].replace("/no/such/", "no-such-")
    assert found.status == 1


def test_a_folder_and_what_is_not_there_fail(here: Patient) -> None:
    for program in (".", "./nothing", "no-such-program-at-all"):
        assert here.doctor("--", program).one("command")["status"] == "fail", program


def test_a_command_from_the_file_is_mended_in_the_file(here: Patient) -> None:
    file = here.folder / "beads-workers.toml"
    file.write_text('command = ["sh", "-c", "echo {title}"]\n')
    found = here.doctor()
    assert found.problems() == {"command"}
    here.put("editor", "#!/bin/sh\nsed -i 's/{title}/$BW_ISSUE_TITLE/' \"$1\"\n")
    here.environment["EDITOR"] = "editor"
    assert here.type(found.one("command")["remedy"]).returncode == 0
    assert here.doctor().problems() == set()


def test_scripts_and_verify_lines_must_be_shell(here: Patient) -> None:
    found = here.doctor("--verify", "make test &&", "--", "sh", "-c", "if true; then")
    assert (found.status, found.problems()) == (1, {"command", "verify"})
    shown = here.type(found.one("verify")["remedy"])
    assert shown.returncode != 0 and "yntax error" in shown.stderr
    assert here.doctor("--verify", "make test", "--", "sh", "-c", "exit 1").status == 0


# --- agents -----------------------------------------------------------------------------------


def test_an_agent_that_answers_and_has_a_login_is_fine(here: Patient) -> None:
    here.put("claude", CLAUDE)
    found = here.doctor("-n", "1", "--agent", "claude")
    assert (found.status, "2.1.0" in found.one("agent")["text"]) == (0, True)
    assert (found.one("login")["status"], found.one("login")["remedy"]) == ("warn", "claude /login")
    folder = Path(here.environment["HOME"], ".claude")
    folder.mkdir()
    write(folder / ".credentials.json", "not looked into", 0o000)
    assert here.doctor("-n", "1", "--agent", "claude").one("login")["status"] == "ok"


def test_a_key_in_the_environment_is_named_but_never_shown(here: Patient) -> None:
    here.put("claude", CLAUDE)
    here.environment["ANTHROPIC_API_KEY"] = "very-secret"
    found = here.doctor("-n", "1", "--agent", "claude")
    assert "ANTHROPIC_API_KEY is set" in found.one("login")["text"]
    assert "very-secret" not in str(found.shown)


def test_codex_is_asked_itself_whether_it_is_logged_in(here: Patient) -> None:
    script = '#!/bin/sh\n[ $1 = login ] || exec echo codex-cli 1.0\n[ -e "$HOME/in" ] && echo in\n'
    here.put("codex", script)
    found = here.doctor("-n", "1", "--agent", "codex")
    assert (found.status, found.one("login")["remedy"]) == (1, "codex login")
    assert here.type("touch ~/in").returncode == 0
    assert here.doctor("-n", "1", "--agent", "codex").status == 0


def test_an_agent_that_is_not_there_is_to_be_installed(here: Patient) -> None:
    found = here.doctor("-n", "1", "--agent", "claude")
    assert found.status == 1
    assert found.one("agent")["remedy"] == "npm install -g @anthropic-ai/claude-code"


@pytest.mark.parametrize("script", ["echo broken >&2; exit 1", "exec cat /dev/zero"])
def test_an_agent_that_does_not_say_its_version_fails(here: Patient, script: str) -> None:
    here.put("claude", f"#!/bin/sh\n{script}\n")
    assert here.doctor("-n", "1", "--agent", "claude").one("agent")["status"] == "fail"


def test_an_agent_that_hangs_is_not_waited_for(here: Patient) -> None:
    here.put("claude", "#!/bin/sh\nexec sleep 100\n")
    program = str(here.bin / "claude")
    (found,) = work.agent(Agent("claude", (program, "-p"), ""), here.folder, seconds=0.3)
    assert (found.status.value, "did not answer in 0.3 s" in found.text) == ("fail", True)


def test_an_agent_that_nobody_knows_is_never_run(here: Patient) -> None:
    here.put("my-agent", "#!/bin/sh\necho spent >>$HOME/money\n")
    toml = '[agents.mine]\nargv = ["my-agent"]\n'
    (here.folder / "beads-workers.toml").write_text(f'agent = "mine"\n{toml}')
    found = here.doctor("-n", "1")
    assert (found.status, "not asked" in found.one("agent")["text"]) == (0, True)
    assert not Path(here.environment["HOME"], "money").exists()


def test_an_agent_that_the_file_does_not_describe_is_a_fault_of_the_file(here: Patient) -> None:
    (here.folder / "beads-workers.toml").write_text('agent = "mine"\n')
    found = here.doctor()
    assert (found.status, "known are" in found.one("settings")["text"]) == (1, True)
    assert here.type("beads-workers doctor --agent mine").returncode == 2
