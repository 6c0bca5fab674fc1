"""What ``--allow-module`` names is there, or no fleet is started."""

from __future__ import annotations

from pathlib import Path

import pytest

from beads_workers.cli.errors import EXIT_USAGE, CommandError
from beads_workers.cli.options import Options
from beads_workers.cli.preparation import check_modules, shown_functions, to_bring
from beads_workers.core.scripts import Context
from beads_workers.core.settings import Executor, Work


def test_a_module_of_the_project_may_be_allowed_and_nothing_need_be(tmp_path: Path) -> None:
    (tmp_path / "shop.py").touch()
    check_modules(Options(allow_module=("shop",)), tmp_path)
    check_modules(Options(worktree=True), tmp_path)


def test_a_module_that_is_nowhere_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="there is no such module") as refused:
        check_modules(Options(allow_module=("shopp",)), tmp_path)
    assert refused.value.exit_code == EXIT_USAGE


def test_functions_do_not_go_with_worktrees(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="--allow-module and --worktree"):
        check_modules(Options(allow_module=("json",), worktree=True), tmp_path)


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
