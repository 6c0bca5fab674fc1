"""A repository that somebody else has made: no command believes what it brings below the run
directory, and no start runs what it says before the user has said yes. Nothing outside of the
project is written to. docs/TRUST.md."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from beads_workers.checks.risky import RISKY, RISKY_OF_AGENTS
from tests.support import warm
from tests.support.fleet import PROGRAM
from tests.support.repository import commit, git, make_repository
from tests.support.screens import Pty
from tests.support.trust import VARIABLE

pytestmark = pytest.mark.daily(3)

STATE = ".beads-workers"


def linked_page(repository: Path) -> None:
    (repository / STATE / "web.json").symlink_to("../../home/.bashrc")


def linked_runs(repository: Path) -> None:
    (repository / STATE / "runs").symlink_to("../../home")


def linked_directory(repository: Path) -> None:
    shutil.rmtree(repository / STATE)
    (repository / STATE).symlink_to("../home")


def known_page(repository: Path) -> None:
    told = {"url": "http://127.0.0.1:1/x/", "port": 1, "key": "a" * 43, "pid": 1, "control": True}
    (repository / STATE / "web.json").write_text(json.dumps(told))


def known_run(repository: Path) -> None:
    told = {"pid": 1, "run_id": "20260101-000000.000-aaaaaa", "control_socket": "/nowhere"}
    (repository / STATE / "run.json").write_text(json.dumps(told))


@pytest.mark.parametrize(
    "plant", [linked_page, linked_runs, linked_directory, known_page, known_run]
)
def test_what_a_clone_brings_is_refused_by_name(
    tmp_path: Path, plant: Callable[[Path], None]
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / ".bashrc").write_text("alias ll='ls -l'\n")
    theirs = make_repository(tmp_path / "theirs")
    (theirs / STATE).mkdir()
    (theirs / ".beads").mkdir()
    (theirs / ".beads/issues.jsonl").touch()
    (theirs / "beads-workers.toml").write_text("web = 0\n")
    plant(theirs)
    git(theirs, "add", "--force", ".")
    git(theirs, "commit", "-qm", "come in")
    clone = tmp_path / "clone"
    git(tmp_path, "clone", "-q", str(theirs), str(clone))
    environment = {**os.environ, "HOME": str(home)}
    for command in (
        ("start", "-n", "1", "--until-empty", "--", "true"),
        ("restart",),
        ("watch", "--web"),
        ("status",),
        ("clean",),
        ("stop",),
    ):
        ran = warm.run(command, clone, environment, 60, safe=True)
        assert ran.returncode == 2, (command, ran.stdout, ran.stderr)
        assert "and is not used" in ran.stderr and f"/{STATE}" in ran.stderr, ran.stderr
        assert "hint: " in ran.stderr
    doctor = warm.run(("doctor", "--", "true"), clone, environment, 60, safe=True)
    assert doctor.returncode != 0 and "and is not used" in doctor.stdout
    assert [each.name for each in home.iterdir()] == [".bashrc"]
    assert (home / ".bashrc").read_text() == "alias ll='ls -l'\n"


# --- what a clone would have run -----------------------------------------------------------------

RAN = "touch ../ran"
SETTINGS = {
    "command": f'command = ["sh", "-c", "{RAN}"]',
    "agent": 'agent = "claude"',
    "review": 'review = "claude"',
    "verify": f'verify = "{RAN}"',
    "worktree_setup": f'[worktree]\nsetup = "{RAN}"',
    "worktree_world": f'[worktree]\nworld = "{RAN}"',
    "worktree_teardown": f'[worktree]\nteardown = "{RAN}"',
    "worktree_env": '[worktree.env]\nTRACED = "1"',
    "landing_after": f'[landing]\nafter = "{RAN}"',
    "landing_tools": f'[landing]\ntools = ["{RAN}"]',
    "tracker_before": f'[tracker]\nbefore = "{RAN}"',
    "tracker_after": f'[tracker]\nafter = "{RAN}"',
    "issues_from": '[forge]\nfrom = "anyone"',
    "trusted": '[forge]\ntrusted = ["eve"]',
    "passed": '[forge]\npass = ["GH_TOKEN"]',
    "notify": f'notify = "{RAN}"',
    "executor": f'executor = ["rrq:sh -c {RAN!r}"]',
    "on": 'on = ["ssh:evil.example:1"]',
    "places": '[places.mine]\nengine = "ray"\npython = "../ran"',
    "issue_commands": "issue_commands = true",
    "allow_module": 'allow_module = ["os"]',
    "skip_check": 'skip_check = ["agent"]',
    "skip_base_check": "skip_base_check = true",
    "shared_checkout": "shared_checkout = true",
    "worktree": "[worktree]\nenabled = false",
    "web_control": "web_control = true",
    "web_hosts": '[web]\nhosts = ["evil.example"]',
    "overage": "overage = true",
    "discovered": 'discovered = "take"',
    "land_into": '[landing]\ninto = "main"',
    "landing_signoff": "[landing]\nsignoff = true",
    "landing_submodules": '[landing]\nsubmodules = "push"',
    "land_via": '[landing]\nvia = "pr"',
    "forge_merge": '[forge]\nmerge = "checks"',
    "forge_checks": '[forge]\nchecks = "none"',
    "forge_guarded": '[forge]\nguarded = ["x"]',
    "landing_remote": '[landing]\nremote = "origin"',
    "source": 'source = "redis://127.0.0.1:1/0?worker=w1"',
    "state_dir": 'state_dir = "../home/state"',
    "log_dir": 'log_dir = "../home/logs"',
    "worktree_folder": '[worktree]\nfolder = "../home/trees"',
    "prompt": 'prompt = "../home/.bashrc"',
    "hero": '[hero]\nworker = "w1"',
    "argv": f'[agents.claude]\nargv = ["sh", "-c", "{RAN}"]',
    "arguments": '[agents.claude]\narguments = ["--dangerously-skip-permissions"]',
    "adapter": '[agents.mine]\nadapter = "claude"',
    "prices": '[agents.claude]\nprices = { "*" = [0, 0] }',
    "escalate": '[agents.claude]\nescalate = "opus"',
}
CLAUDE = {
    ".claude/settings.json": {
        "hooks": {"Stop": [{"hooks": [{"command": RAN, "type": "command"}]}]}
    },
    ".claude/settings.local.json": {"apiKeyHelper": RAN},
    ".mcp.json": {"mcpServers": {"x": {"command": "touch", "args": ["../ran"]}}},
}
START = ("start", "-n", "1", "--until-empty")


class Clone:
    """A clone with a tracker of the victim's own and one issue, and what lies beside it."""

    def __init__(self, place: Path) -> None:
        self.place, self.folder, self.home = place, place / "clone", place / "home"
        self.home.mkdir()
        (self.home / ".bashrc").write_text("alias ll='ls -l'\n")
        self.environment = {**os.environ, "HOME": str(self.home), VARIABLE: ""}
        self.environment.pop("XDG_STATE_HOME", None)
        theirs = make_repository(place / "theirs")
        commit(theirs, "beads-workers.toml", "workers = 1\n")
        git(place, "clone", "-q", str(theirs), str(self.folder))
        self.run("init")
        self.run("add", "x")
        self.before = list[str]()

    def run(self, *arguments: str) -> str:
        """What it says on stderr, and its exit code before that."""
        ran = warm.run(arguments, self.folder, self.environment, 60, safe=True)
        return f"{ran.returncode} {ran.stderr} {ran.stdout}"

    def files_outside(self) -> list[str]:
        """All that is not in the clone."""
        return sorted(
            str(path.relative_to(self.place))
            for path in self.place.rglob("*")
            if not path.is_relative_to(self.folder) and "theirs" not in path.parts
        )

    def say(self, text: str, name: str = "beads-workers.toml") -> None:
        """What has come with the last pull."""
        commit(self.folder, name, text)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Clone:
    return Clone(tmp_path_factory.mktemp("clones"))


@pytest.fixture
def clone(shared: Clone) -> Iterator[Clone]:
    """The same for all; each test takes back what it has committed."""
    here = git(shared.folder, "rev-parse", "HEAD")
    shared.before = shared.files_outside()
    yield shared
    git(shared.folder, "reset", "-q", "--hard", here)


def test_all_that_the_table_names_is_tried() -> None:
    assert SETTINGS.keys() == RISKY.keys() | RISKY_OF_AGENTS.keys()


@pytest.mark.parametrize("key", SETTINGS)
def test_a_line_of_a_clone_is_not_run_before_it_is_trusted(clone: Clone, key: str) -> None:
    clone.say(SETTINGS[key] + "\n")
    said = clone.run(*START, "--", "true")
    assert said.startswith("2 error: 1 line that came with this project would be run: "), said
    assert f"{key} = " in said and "hint: read them; then: beads-workers trust" in said
    assert clone.files_outside() == clone.before


@pytest.mark.parametrize("file", CLAUDE)
def test_what_claude_would_obey_is_shown_first(clone: Clone, file: str) -> None:
    clone.say(json.dumps(CLAUDE[file]), file)
    said = clone.run(*START, "--agent", "claude")
    assert f"would be run: {file}: {next(iter(CLAUDE[file]))}, obeyed by claude" in said, said
    assert said.startswith("2 ") and clone.files_outside() == clone.before


def test_a_folder_of_claude_that_is_a_link_is_read_as_claude_reads_it(clone: Clone) -> None:
    clone.say(json.dumps({"apiKeyHelper": RAN}), "docs/settings.json")
    (clone.folder / ".claude").symlink_to("docs")
    git(clone.folder, "add", ".claude")
    git(clone.folder, "commit", "-qm", "a link")
    for way in ("--worktree", "--shared-checkout"):
        said = clone.run(*START, "--agent", "claude", way)
        assert ".claude/settings.json: apiKeyHelper" in said, said


@pytest.mark.parametrize("name", ["hooks/on_update", "hooks/on_close", "redirect"])
def test_a_hook_of_bd_is_not_run_before_it_is_trusted(clone: Clone, name: str) -> None:
    clone.say("#!/bin/sh\ntouch ../ran\n", f".beads/{name}")
    said = clone.run(*START, "--source", "bd", "--", "true")
    assert said.startswith("2 ") and f".beads/{name}: " in said, said
    for command in (("retry", "x-1"), ("release", "--abandoned")):
        said = clone.run(*command, *(["--source", "bd"] if "retry" in command else []))
        assert said.startswith("2 ") and f".beads/{name}: " in said, said
    clone.say('source = "bd"\n')
    for command in (
        ("close", "x-1"),
        ("comment", "x-1", "t"),
        ("add", "t"),
        ("dep", "add", "a", "b"),
    ):
        said = clone.run(*command)
        assert said.startswith("2 ") and f".beads/{name}: " in said, said
    assert clone.files_outside() == clone.before


def test_a_refusal_is_told_if_nobody_is_there_to_be_asked(clone: Clone) -> None:
    told = clone.folder / ".git/told"
    notify = f'echo "$BW_EVENT $BW_EXIT_CODE $BW_TODO: $BW_TEXT" >>{told}'
    words = (*START, "--notify", notify, "--source", "bd", "--", "true")
    clone.say("#!/bin/sh\ntouch ../ran\n", ".beads/hooks/on_close")
    assert clone.run(*words).startswith("2 ")
    clone.say(SETTINGS["notify"] + "\n")
    assert clone.run("start", "--dry-run", *words[1:]).startswith("2 ")
    assert clone.run(*words).startswith("2 ")
    begin = "refused 2 beads-workers trust: no fleet begins: "
    hook, line = told.read_text().splitlines()
    assert hook.startswith(begin) and ".beads/hooks/on_close: " in hook
    assert line.startswith(begin) and "notify = " in line
    assert clone.files_outside() == clone.before


def test_trust_lets_it_run_until_it_changes(tmp_path: Path) -> None:
    clone = Clone(tmp_path)
    clone.say(SETTINGS["command"] + '\nverify = "true"\n')
    assert clone.run("land").startswith("2 error: 2 lines that came")
    assert clone.run(*START, "--dry-run").startswith("2 error: 2 lines that came")
    assert "# not trusted, so left out: verify = " in clone.run("config", "show")
    assert "0 command = " in clone.run("trust").replace("0  ", "0 ")
    assert clone.run(*START).startswith("0 ") and (tmp_path / "ran").exists()
    clone.run("add", "y")
    clone.say(SETTINGS["command"] + '\nverify = "false"\n')
    said = clone.run(*START)
    assert 'would be run: verify = "false"\n' in said and "command" not in said, said
    assert clone.run(*START, "--trust", "--max-attempts", "1").startswith("7 "), "verify is false"
    assert clone.run(*START).startswith("2 "), "said for one start"
    clone.run("trust", "--forget")
    assert "2 lines that came" in clone.run(*START)


@pytest.mark.parametrize(("typed", "code"), [("y", 0), ("n", 2)])
def test_a_terminal_is_asked(clone: Clone, typed: str, code: int) -> None:
    clone.say(SETTINGS["notify"] + "\n")
    words = (*START, "--no-dashboard", "--", "true")
    changed = {"HOME": str(clone.home), VARIABLE: ""}
    terminal = Pty(*PROGRAM, *words, folder=clone.folder, env=changed)
    try:
        asked = terminal.read_until(b"[y/N] ")
        assert b"  notify = " in asked and not (clone.place / "ran").exists()
        terminal.send(typed.encode() + b"\n")
        assert terminal.exit_status() == code
    finally:
        terminal.close()
        (clone.place / "ran").unlink(missing_ok=True)
        clone.run("trust", "--forget")


def test_what_a_user_has_made_asks_nothing_on_a_terminal(tmp_path: Path) -> None:
    """The README's first commands."""
    changed = {"HOME": str(tmp_path), "XDG_STATE_HOME": str(tmp_path / "state"), VARIABLE: ""}
    environment = {**os.environ, **changed}
    make_repository(tmp_path / "mine")
    for words in (("init",), ("add", "x", "--", "echo", "hello")):
        assert warm.run(words, tmp_path / "mine", environment, 60).returncode == 0
    with (tmp_path / "mine/beads-workers.toml").open("a") as file:
        file.write('verify = "true"\n')
    words = (*START, "--no-dashboard")
    terminal = Pty(*PROGRAM, *words, folder=tmp_path / "mine", env=changed)
    try:
        terminal.read_until(b"closed 1, ")
        assert terminal.exit_status() == 0
    finally:
        terminal.close()


def test_a_fleet_goes_on_if_what_has_come_meanwhile_is_not_trusted(clone: Clone) -> None:
    assert clone.run("start", "-d", "-n", "1", "--label", "none", "--", "true").startswith("0 ")
    try:
        clone.say(SETTINGS["notify"] + "\n")
        assert clone.run("restart").startswith("2 error: 1 line that came")
        assert clone.run("status").startswith("0 ")
        assert clone.run("restart", "--trust").startswith("0 ")
        assert clone.run("restart").startswith("2 "), "said for one start"
    finally:
        assert clone.run("stop").startswith("0 ")
        (clone.place / "ran").unlink(missing_ok=True)


def test_nothing_that_is_run_gets_the_variable(tmp_path: Path) -> None:
    clone, seen = Clone(tmp_path), tmp_path / "seen"
    lines = {w: f"echo {w} ${{{VARIABLE}-none}} >>{seen}" for w in ("setup", "verify", "after")}
    clone.say(
        f'verify = "{lines["verify"]}"\n[worktree]\nsetup = "{lines["setup"]}"\n'
        f'[landing]\nafter = "{lines["after"]}"\n'
    )
    clone.environment[VARIABLE] = "1"
    work = ("sh", "-c", f"touch new; echo task ${{{VARIABLE}-none}} >>{seen}")
    assert clone.run(*START, "--worktree", "--", *work).startswith("0 ")
    told = set(seen.read_text().splitlines())
    assert told == {"task none", "setup none", "verify none", "after none"}


def test_a_clone_leads_no_command_to_another_fleet(clone: Clone) -> None:
    clone.say(SETTINGS["state_dir"] + "\n")
    for command in ("status", "stop", "clean", "runs", "retry"):
        said = clone.run(command, *(["x"] if command == "retry" else []))
        assert said.startswith("2 error: not trusted, so it is not gone to: state_dir = "), said
    assert clone.run("status", "--state-dir", "../home/state").startswith("3 ")
    assert clone.files_outside() == clone.before
