"""What ``--allow-module`` names is there, or no fleet is started."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from beads_workers.checks.combinations import functions_in_worktrees
from beads_workers.checks.fleet import to_bring
from beads_workers.checks.programs import modules
from beads_workers.cli.preparation import shown_functions
from beads_workers.core.base.scripts import Context
from beads_workers.core.base.settings import Executor, Work
from beads_workers.exits import EXIT_USAGE
from beads_workers.options import Options, options_of
from tests.support.embedded import EmbeddedProject
from tests.support.fleet import call


def test_a_module_of_the_project_may_be_allowed_and_nothing_need_be(tmp_path: Path) -> None:
    (tmp_path / "shop.py").touch()
    assert modules(("shop",), tmp_path) is None
    assert modules((), tmp_path) is None
    assert functions_in_worktrees(Options(worktree=True)) is None


def test_a_module_that_is_nowhere_is_refused(tmp_path: Path) -> None:
    refused = modules(("shopp",), tmp_path)
    assert refused is not None and "there is no such module" in refused.text
    assert refused.exit_code == EXIT_USAGE


def test_functions_do_not_go_with_worktrees() -> None:
    refused = functions_in_worktrees(options_of({"allow_module": ("json",), "worktree": True}))
    assert refused is not None and "--allow-module and --worktree" in refused.text


def test_what_is_called_is_shown() -> None:
    assert shown_functions(Work()) == ""
    assert "function of a, b.c that" in shown_functions(Work(allow_modules=("a", "b.c")))


@pytest.mark.parametrize(
    ("work", "wanted"),
    [
        (Work(command=("true",), allow_modules=("a",)), ()),
        (Work(allow_modules=("a",)), ("function", "command")),
        (Work(), ("command",)),
        (Work(contexts=(Context("*", ("sh",)),)), ()),
        (Work(executors=(Executor("rrq", ("serve",)),)), ("function",)),
        (Work(executors=(Executor("rrq", ("serve",)),), function="f"), ()),
    ],
)
def test_a_fleet_takes_only_what_it_has_something_to_run_for(
    work: Work, wanted: tuple[str, ...]
) -> None:
    assert to_bring(work) == wanted


def test_commands_that_came_with_the_repository_run_only_where_that_is_said(tmp_path: Path) -> None:
    project = EmbeddedProject(tmp_path)
    ran = project.folder / "ran"
    added = call(project, "add", "planted", "--", "touch", str(ran))
    assert added.returncode == 0, added.stderr
    git = ("git", "-C", str(project.folder), "-c", "user.name=a", "-c", "user.email=a@b.c")
    subprocess.run([*git, "init", "-q"], check=True)
    drain = ("start", "-n", "1", "--until-empty")
    subprocess.run([*git, "add", "--force", ".beads-workers/tracker.db"], check=True)
    for work in (("--", "true"), ()):
        refused = call(project, *drain, *work)
        assert (refused.returncode, ran.exists()) == (2, False), refused.stderr
        assert "1 issue brings a command" in refused.stderr
        assert "committed to git" in refused.stderr and "--issue-commands" in refused.stderr
    said = call(project, *drain, "--issue-commands", "--", "true")
    assert (said.returncode, ran.exists()) == (0, True), said.stderr


def test_what_else_will_run_is_said_before_it_does(tmp_path: Path) -> None:
    project = EmbeddedProject(tmp_path)
    call(project, "add", "own", "--", "true")
    words = ("--notify", "cat >/dev/null", "--verify", "test 1", "--until-empty", "-n", "1")
    said = call(project, "start", *words, "--", "true").stderr.splitlines()
    assert "ok issues   1 issue brings its own command, which runs instead" in said
    assert "ok notify   cat >/dev/null" in said and "ok verify   test 1" in said
