"""``setup``: from a clone to the line that starts, and what ``doctor`` says before and after."""

from __future__ import annotations

import json
import subprocess
import tomllib
from pathlib import Path

import pytest

from beads_workers.cli.config import set_key
from tests.cli.doctor_support import Patient, patient
from tests.support import warm
from tests.support.repository import IDENTITY, git
from tests.support.trust import TRUSTED

PACKAGE = {"scripts": {"test": "sh check.sh"}, "devDependencies": {"x": "file:./x"}}
CHECK = "test -e node_modules/x || { echo 'sh: mocha: not found'; exit 1; }; test -e src\n"


class Clone(Patient):
    """A JavaScript project whose check needs what ``npm install`` makes, with an agent on PATH."""

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        return warm.run(words, self.folder, self.environment, timeout=120)

    def settings(self) -> dict[str, object]:
        return tomllib.loads((self.folder / "beads-workers.toml").read_text())


@pytest.fixture
def clone(tmp_path: Path) -> Clone:
    made = patient(tmp_path)
    here = Clone(**{name: getattr(made, name) for name in made.__dataclass_fields__})
    here.environment |= IDENTITY | {"ANTHROPIC_API_KEY": "none"}
    here.put("claude", "#!/bin/sh\necho '2.1.328 (Claude Code)'\n")
    here.put("npm", "#!/bin/sh\n[ $1 = test ] && exec sh check.sh\nmkdir -p node_modules/x\n")
    (here.folder / "package.json").write_text(json.dumps(PACKAGE))
    (here.folder / "check.sh").write_text(CHECK)
    (here.folder / ".gitignore").write_text("node_modules\n.beads-workers\n")
    (here.folder / "src").write_text("")
    git(here.folder, "init", "--quiet", "--initial-branch=main")
    git(here.folder, "add", "--all")
    git(here.folder, "commit", "--quiet", "-m", "first")
    return here


def test_one_command_leads_to_the_line_that_starts(clone: Clone) -> None:
    done = clone.run("setup", "--yes")
    assert done.returncode == 0, done
    assert done.stdout.splitlines()[-1] == "start it with: beads-workers start"
    assert "'npm test' passes on main" in done.stderr
    assert clone.settings() == {
        "verify": "npm test",
        "agent": "claude",
        "worktree": {"setup": "npm install"},
    }
    again = clone.run("setup", "--json")
    assert json.loads(again.stdout)["start"] == "beads-workers start"
    assert clone.settings()["verify"] == "npm test"


def test_nobody_is_asked_without_a_terminal(clone: Clone) -> None:
    done = clone.run("setup")
    assert done.returncode == 2 and "--yes" in done.stderr
    assert not (clone.folder / "beads-workers.toml").exists()


def test_without_an_agent_it_says_which_are_known(clone: Clone) -> None:
    (clone.bin / "claude").unlink()
    done = clone.run("setup", "--yes")
    assert done.returncode == 2 and "install one of: aider, claude," in done.stderr


def test_it_trusts_what_it_writes_and_nothing_else(clone: Clone) -> None:
    """A line that came with the project would run: it stays untrusted, and nothing is tried."""
    for name in TRUSTED:
        clone.environment.pop(name, None)
    planted = '[agents.claude]\nargv = ["./steal"]\n'
    (clone.folder / "beads-workers.toml").write_text(planted)
    git(clone.folder, "add", "--all")
    git(clone.folder, "commit", "--quiet", "-m", "planted")
    done = clone.run("setup", "--yes")
    assert done.returncode == 2 and "./steal" in done.stderr, done
    assert "npm test" not in done.stderr
    assert not (clone.folder / "node_modules").exists()


def test_doctor_does_not_call_ready_what_only_a_start_tries(clone: Clone) -> None:
    clone.run("init")
    said = clone.run("doctor", "--agent", "claude", "--verify", "npm test")
    assert "a start first runs 'npm test' on main" in said.stdout
    assert '[worktree] setup = "npm install" is not set' in said.stdout
    assert "fix: beads-workers config verify --write" in said.stdout
    assert "\nready:" not in said.stdout
    assert clone.run("config", "verify", "--write").returncode == 0
    assert clone.run("setup", "--yes").returncode == 0
    said = clone.run("doctor")
    assert "'npm test' passes on main" in said.stdout


def test_a_check_that_lacks_its_dependencies_names_the_line(clone: Clone) -> None:
    clone.run("init")
    clone.run("add", "one")
    said = clone.run("start", "--agent", "claude", "--verify", "npm test", "--until-empty")
    assert said.returncode == 2, said
    assert '[worktree] setup = "npm install"' in said.stderr and "mocha: not found" in said.stderr


def test_doctor_takes_every_option_of_start(clone: Clone) -> None:
    clone.run("init")
    words = ("--budget", "1", "--land", "--until", "06:00", "--max-attempts", "2", "--stall", "9m")
    said = clone.run("doctor", "--agent", "claude", *words)
    assert "No such option" not in said.stderr and "claude" in said.stdout


@pytest.mark.parametrize(
    "text",
    [
        "",
        "workers = 2\n",
        "[worktree]\nenabled = true\n",
        "# a comment\n\n[worktree]   # of it\n\n[landing]\nremote = 'x'\n",
        "[landing]\nremote = 'x'",
    ],
)
def test_a_setting_of_a_table_goes_into_its_table(tmp_path: Path, text: str) -> None:
    path = tmp_path / "beads-workers.toml"
    path.write_text(text)
    assert set_key(path, "worktree_setup", "npm ci && x='1'") is None
    before, after = tomllib.loads(text), tomllib.loads(path.read_text())
    assert after.pop("worktree") == {**before.pop("worktree", {}), "setup": "npm ci && x='1'"}
    assert after == before
    assert set_key(path, "worktree_setup", "other") == "npm ci && x='1'"
