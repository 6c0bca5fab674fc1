"""What ``doctor`` says of commands and agents; every remedy is typed, and then it is content."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import pytest

from beads_workers.checks import agents as doctor_agents
from beads_workers.core.base.settings import Agent
from tests.cli.doctor_support import Diagnosis, Patient, initialised, write

CLAUDE = '#!/bin/sh\n[ "$*" = --version ] && echo "2.1.0 (Claude Code)"\n'


@pytest.fixture
def project(tmp_path: Path) -> Patient:
    """A project with a built-in tracker."""
    return initialised(tmp_path)


def typed(project: Patient, remedy: str) -> Diagnosis:
    """A remedy that is another call of ``doctor``."""
    words = shlex.split(remedy)
    assert words[:2] == ["beads-workers", "doctor"]
    return project.doctor(*words[2:])


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
def test_a_wrong_command_comes_back_right(project: Patient, command: list[str]) -> None:
    write(project.folder / "do-it.sh", "#!/bin/sh\n")
    found = project.doctor("--", *command)
    problems = [c for c in found.all("command") if c["status"] != "ok"]
    for _ in range(2):  # {titel} and {issue_id} are mended one after the other.
        found = typed(project, problems[0]["remedy"])
        problems = [c for c in found.all("command") if c["status"] != "ok"]
        if not problems:
            break
    assert (found.status, found.problems()) == (0, set())


def test_braces_that_are_no_placeholders_are_nobody_s_business(project: Patient) -> None:
    assert project.doctor("--", "awk", "{print}", "{}", "{other}").problems() == set()


@pytest.mark.parametrize(
    ("text", "mode", "status"),
    [("#!/bin/sh\n", 0o644, 1), ("#!/bin/sh\r\necho\r\n", 0o755, 1), ("echo hello\n", 0o755, 0)],
)
def test_a_script_that_cannot_be_run_as_it_is_is_mended(
    project: Patient, text: str, mode: int, status: int
) -> None:
    write(project.folder / "do it.sh", text, mode)
    found = project.doctor("--", "./do it.sh")
    assert (found.status, found.problems()) == (status, {"command"})
    assert project.type(found.one("command")["remedy"]).returncode == 0
    assert project.doctor("--", "./do it.sh").problems() == set()


@pytest.mark.parametrize("line", ["#!/no/such/shell", "#!/usr/bin/env no-such-shell"])
def test_a_script_without_its_interpreter_fails(project: Patient, line: str) -> None:
    write(project.folder / "x", f"{line}\n")
    found = project.doctor("--", "./x")
    assert "no-such-shell" in found.one("command")["text"].replace("/no/such/", "no-such-")
    assert found.status == 1


def test_a_folder_and_what_is_not_there_fail(project: Patient) -> None:
    for program in (".", "./nothing", "no-such-program-at-all"):
        assert project.doctor("--", program).one("command")["status"] == "fail", program


def test_a_command_from_the_file_is_mended_in_the_file(project: Patient) -> None:
    file = project.folder / "beads-workers.toml"
    file.write_text('command = ["sh", "-c", "echo {title}"]\n')
    found = project.doctor()
    assert found.problems() == {"command"}
    project.put("editor", "#!/bin/sh\nsed -i 's/{title}/$BW_ISSUE_TITLE/' \"$1\"\n")
    project.environment["EDITOR"] = "editor"
    assert project.type(found.one("command")["remedy"]).returncode == 0
    assert project.doctor().problems() == set()


def test_scripts_and_verify_lines_must_be_shell(project: Patient) -> None:
    found = project.doctor("--verify", "make test &&", "--", "sh", "-c", "if true; then")
    assert (found.status, found.problems()) == (1, {"command", "verify"})
    shown = project.type(found.one("verify")["remedy"])
    assert shown.returncode != 0 and "yntax error" in shown.stderr
    assert project.doctor("--verify", "make test", "--", "sh", "-c", "exit 1").status == 0


# --- agents -----------------------------------------------------------------------------------


def test_an_agent_that_answers_and_has_a_login_is_fine(project: Patient) -> None:
    project.put("claude", CLAUDE)
    found = project.doctor("-n", "1", "--agent", "claude")
    assert (found.status, "2.1.0" in found.one("agent")["text"]) == (0, True)
    assert (found.one("login")["status"], found.one("login")["remedy"]) == ("warn", "claude /login")
    folder = Path(project.environment["HOME"], ".claude")
    folder.mkdir()
    write(folder / ".credentials.json", "not looked into", 0o000)
    assert project.doctor("-n", "1", "--agent", "claude").one("login")["status"] == "ok"


def test_a_key_in_the_environment_is_named_but_never_shown(project: Patient) -> None:
    project.put("claude", CLAUDE)
    project.environment["ANTHROPIC_API_KEY"] = "very-secret"
    found = project.doctor("-n", "1", "--agent", "claude")
    assert "ANTHROPIC_API_KEY is set" in found.one("login")["text"]
    assert "very-secret" not in str(found.shown)


def test_codex_is_asked_itself_whether_it_is_logged_in(project: Patient) -> None:
    script = '#!/bin/sh\n[ $1 = login ] || exec echo codex-cli 1.0\n[ -e "$HOME/in" ] && echo in\n'
    project.put("codex", script)
    project.environment["TMPDIR"] = "/var/tmp"  # It does not work from a home in there.
    found = project.doctor("-n", "1", "--agent", "codex")
    assert (found.status, found.one("login")["remedy"]) == (1, "codex login")
    provider = '[model_providers.mine]\nenv_key = "MY_KEY"\n'
    (config := Path(project.environment["HOME"], ".codex", "config.toml")).parent.mkdir()
    config.write_text(f'model_provider = "mine"\n{provider}')
    assert project.doctor("-n", "1", "--agent", "codex").one("login")["status"] == "warn"
    project.environment["MY_KEY"] = "very-secret"
    login = project.doctor("-n", "1", "--agent", "codex").one("login")
    assert (login["status"], "MY_KEY is set" in login["text"]) == ("ok", True)
    config.unlink()
    assert project.type("touch ~/in").returncode == 0
    assert project.doctor("-n", "1", "--agent", "codex").status == 0


def test_an_agent_that_is_not_there_is_to_be_installed(project: Patient) -> None:
    found = project.doctor("-n", "1", "--agent", "claude")
    assert found.status == 1
    assert found.one("agent")["remedy"] == "npm install -g @anthropic-ai/claude-code"


@pytest.mark.parametrize("script", ["echo broken >&2; exit 1", "exec cat /dev/zero"])
def test_an_agent_that_does_not_say_its_version_fails(project: Patient, script: str) -> None:
    project.put("claude", f"#!/bin/sh\n{script}\n")
    assert project.doctor("-n", "1", "--agent", "claude").one("agent")["status"] == "fail"


def test_an_agent_that_hangs_is_not_waited_for(project: Patient) -> None:
    project.put("claude", "#!/bin/sh\nexec sleep 100\n")
    program = str(project.bin / "claude")
    (found,) = doctor_agents.agent(
        Agent("claude", (program, "-p"), ""), project.folder, seconds=0.3
    )
    assert (found.status.value, "did not answer in 0.3 s" in found.text) == ("fail", True)


def test_an_agent_that_nobody_knows_is_never_run(project: Patient) -> None:
    project.put("my-agent", "#!/bin/sh\necho spent >>$HOME/money\n")
    toml = '[agents.mine]\nargv = ["my-agent"]\n'
    (project.folder / "beads-workers.toml").write_text(f'agent = "mine"\n{toml}')
    found = project.doctor("-n", "1")
    assert (found.status, "not asked" in found.one("agent")["text"]) == (0, True)
    assert not Path(project.environment["HOME"], "money").exists()


def test_an_agent_that_the_file_does_not_describe_is_a_fault_of_the_file(project: Patient) -> None:
    (project.folder / "beads-workers.toml").write_text('agent = "zz"\n')
    found = project.doctor()
    assert (found.status, "known are" in found.one("settings")["text"]) == (1, True)
    assert project.type("beads-workers doctor --agent zz").returncode == 2


# --- several agents, and who looks at their work -----------------------------------------------

CURRENT_CLAUDE = """#!/bin/sh
case $* in
  --version) echo "2.1.328 (Claude Code)" ;;
  "auth status") echo '{ "loggedIn": true, "authMethod": "claude.ai" }' ;;
  *) exit 1 ;;
esac
"""
CODEX = '#!/bin/sh\n[ $1 = login ] && echo "Logged in using ChatGPT" || echo codex-cli 0.169.0\n'


def texts(found: Diagnosis, name: str) -> list[str]:
    return [check["text"] for check in found.all(name)]


def test_each_agent_and_the_reviewer_have_lines_of_their_own(project: Patient) -> None:
    project.put("claude", CURRENT_CLAUDE)
    project.put("codex", CODEX)
    project.environment["TMPDIR"] = "/var/tmp"
    found = project.doctor("-n", "1", "--agent", "claude", "--review", "codex")
    assert found.status == 0
    assert "claude answers '2.1.328" in found.one("agent")["text"]
    review = found.one("review")["text"]
    assert "codex answers 'codex-cli 0.169.0'" in review and "looks at the work" in review
    logins = texts(found, "login")
    assert [text.partition(";")[0] for text in logins] == [
        "claude: logged in by claude.ai",
        "codex: Logged in using ChatGPT",
    ]
    both = project.doctor("-n", "1", "--agent", "claude,codex", "--review", "codex")
    assert len(both.all("agent")) == 2 and "session of its own" in both.one("review")["text"]


@pytest.mark.parametrize(
    ("version", "status", "said"),
    [
        ("2.1.328", "ok", "this version was tried"),
        ("9.0.0", "ok", "untried: it is newer than 2.1.332"),
        ("2.1.200", "ok", "untried: 2.1.197, 2.1.328, 2.1.332 were"),
        ("2.1.99", "warn", "older than 2.1.197, the oldest that was tried"),
    ],
)
def test_a_version_is_known_or_untried(
    project: Patient, version: str, status: str, said: str
) -> None:
    project.put("claude", CURRENT_CLAUDE.replace("2.1.328", version))
    check = project.doctor("-n", "1", "--agent", "claude").one("agent")
    assert (check["status"], said in check["text"], bool(check["remedy"])) == (
        *(status, True),
        status == "warn",
    )


def test_a_version_that_may_not_know_the_question_is_not_asked_for_its_login(
    project: Patient,
) -> None:
    project.put("claude", CURRENT_CLAUDE.replace("2.1.328", "2.1.99"))
    assert "usual places" in project.doctor("-n", "1", "--agent", "claude").one("login")["text"]


def test_who_is_not_logged_in_fails_with_the_command_that_mends_it(project: Patient) -> None:
    project.put("claude", CURRENT_CLAUDE.replace("claude.ai\" }'", "none\" }'; exit 1"))
    login = project.doctor("-n", "1", "--agent", "claude").one("login")
    assert (login["status"], login["remedy"]) == ("fail", "claude /login")


def test_codex_with_a_home_among_temporary_files_fails_and_the_remedy_moves_it(
    project: Patient,
) -> None:
    project.put("codex", CODEX)
    project.environment |= {
        "TMPDIR": str(project.bin),
        "CODEX_HOME": str(project.bin / "codex-home"),
    }
    found = project.doctor("-n", "1", "--agent", "codex")
    (problem,) = [check for check in found.all("agent") if check["status"] == "fail"]
    assert "codex-home lies below" in problem["text"]
    done = project.type(f"{problem['remedy']}; beads-workers doctor -n 1 --agent codex")
    assert "below" not in done.stdout and "codex answers" in done.stdout


@pytest.mark.skipif(os.geteuid() != 0, reason="only root is refused")
def test_claude_that_may_do_everything_as_root_fails_and_the_remedy_says_sandbox(
    project: Patient,
) -> None:
    project.put("claude", CURRENT_CLAUDE)
    toml = '[agents.claude]\narguments = ["--permission-mode", "bypassPermissions"]\n'
    (project.folder / "beads-workers.toml").write_text(toml)
    found = project.doctor("-n", "1", "--agent", "claude")
    problems = [check for check in found.all("agent") if check["status"] == "fail"]
    assert [check["remedy"] for check in problems] == ["export IS_SANDBOX=1"]
    done = project.type("export IS_SANDBOX=1; beads-workers doctor -n 1 --agent claude")
    assert done.returncode == 0, done.stdout


def test_the_guards_that_hold_are_named(project: Patient) -> None:
    project.put("claude", CURRENT_CLAUDE)
    project.put("bd", "#!/bin/sh\n")
    said = project.doctor("-n", "1", "--agent", "claude").one("guards")["text"]
    assert "'git push' leads nowhere" in said
    assert "bd on PATH" in said and "a hook tells claude why" in said


def test_an_agent_whose_hooks_are_switched_off_is_named_with_the_reason(project: Patient) -> None:
    project.put("claude", CURRENT_CLAUDE)
    (project.folder / ".claude").mkdir()
    (project.folder / ".claude/settings.json").write_text('{"disableAllHooks": true}')
    held, off = project.doctor("-n", "1", "--agent", "claude").all("guards")
    assert (held["status"], off["status"]) == ("ok", "warn")
    assert "a hook tells" not in held["text"]
    assert off["text"].startswith("claude: disableAllHooks in .claude/settings.json: no hook")
    project.put("git", "#!/bin/sh\necho git version 2.30.2\n")
    guards = project.doctor("-n", "1", "--agent", "claude").one("guards")
    assert (guards["status"], "2.31" in guards["text"]) == ("fail", True)


def test_an_adapter_that_is_no_preset_is_found_by_its_program(project: Patient) -> None:
    (project.folder / "beads-workers.toml").write_text('[agents.gemini]\nmodel = "pro"\n')
    project.put("gemini", "#!/bin/sh\necho spent >>$HOME/money\n")
    found = project.doctor("-n", "1", "--agent", "gemini")
    assert "0.61.0 was tried" in found.one("agent")["text"]
    assert not Path(project.environment["HOME"], "money").exists()


# --- what checks the work -----------------------------------------------------------------------


def test_agents_without_verify_are_told_what_is_proposed_and_the_remedy_sets_it(
    project: Patient,
) -> None:
    project.put("claude", CURRENT_CLAUDE)
    (project.folder / "Makefile").write_text("check:\n\ttrue\n")
    found = project.doctor("-n", "1", "--agent", "claude").one("verify")
    assert "nothing is verified; proposed: 'make check'" in found["text"]
    assert project.type(found["remedy"]).returncode == 0
    assert project.doctor("-n", "1", "--agent", "claude").one("verify")["status"] == "ok"


def test_without_agents_a_proposal_is_no_warning_and_none_is_no_line(project: Patient) -> None:
    assert project.doctor().all("verify") == []
    (project.folder / "go.mod").touch()
    verify = project.doctor().one("verify")
    assert (verify["status"], "'go test ./...'" in verify["text"]) == ("ok", True)
    assert project.doctor("--", "true").all("verify") == []


def test_a_project_in_which_nothing_is_recognised_says_so(project: Patient) -> None:
    project.put("claude", CURRENT_CLAUDE)
    verify = project.doctor("-n", "1", "--agent", "claude", "--review", "claude").one("verify")
    assert verify["text"].startswith("only claude looks at the work") and verify["remedy"]


@pytest.mark.parametrize(
    ("words", "is_refused"),
    [
        (("--from", "anyone", "--", "claude", "-p", "--dangerously-skip-permissions"), True),
        (("--from", "anyone", "--", "codex", "exec", "--yolo"), True),
        (("--from", "anyone", "--", "codex", "exec"), False),
        (("--from", "labelled", "--", "codex", "exec", "--yolo"), False),
    ],
)
def test_texts_of_anybody_do_not_reach_agents_that_may_do_anything(
    project: Patient, words: tuple[str, ...], is_refused: bool
) -> None:
    texts = [check["text"] for check in project.doctor(*words).all("settings")]
    assert any("--from anyone does not go with" in text for text in texts) is is_refused
