"""The table of options as a command's parameters: all of them, once, and as the table says."""

from __future__ import annotations

from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from beads_workers.cli import doctor, start, watch
from beads_workers.cli.parameters import Command, with_options
from beads_workers.core.base.option import DOCTOR, START, WATCH
from beads_workers.options import KEYS, TABLES, Typed


def application(function: Command) -> typer.Typer:
    """One command, alone."""
    app = typer.Typer(add_completion=False)
    app.command()(function)
    return app


def typed_by(function_words: list[str]) -> Typed:
    """What a command with the options of ``start`` is told."""
    seen: list[Typed] = []

    @with_options("start")
    def command(options: Typed) -> None:
        seen.append(options)

    ended = CliRunner().invoke(application(command), function_words)
    assert ended.exit_code == 0, ended.output
    return seen[0]


@pytest.mark.parametrize(("command", "module"), [(START, start), (DOCTOR, doctor), (WATCH, watch)])
def test_a_command_has_every_option_that_applies_to_it(command: str, module: object) -> None:
    parameters = vars(vars(module)[command])["__signature__"].parameters
    assert {name for name, each in KEYS.items() if command in each.at} <= set(parameters)
    assert len(set(parameters)) == len(parameters)


def test_what_is_not_said_stays_open() -> None:
    assert typed_by([]) == {}


def test_every_kind_of_value_is_read_from_words() -> None:
    words = "-n 3 --label a --label b --priority 1 --timeout 5m --metrics 127.0.0.1:9464"
    options = typed_by([*words.split(), "--until-empty", "--no-trace"])
    assert options == {
        "workers": 3,
        "label": ("a", "b"),
        "priority": (1,),
        "timeout": 300.0,
        "metrics": 9464,
        "until_empty": True,
        "trace": False,
    }


def test_a_value_in_another_form_is_a_usage_error_that_names_the_forms() -> None:
    @with_options("start")
    def command(options: Typed) -> None:
        raise AssertionError("not called")

    with pytest.raises(typer.BadParameter, match="write 90, 90s, 5m or 2h"):
        application(command)(["--timeout", "soon"], standalone_mode=False)


def test_parameters_of_its_own_stand_where_the_command_puts_them() -> None:
    @with_options("doctor", first=("agent", "own"), words={"agent": "Which one."})
    def command(options: Typed, own: Annotated[str, typer.Option(help="Its own.")] = "") -> None:
        """Do something."""

    shown = CliRunner().invoke(application(command), ["--help"]).output
    places = [shown.index(f"--{name}") for name in ("agent", "own", "workers", "source")]
    assert places == sorted(places) and "Which one." in shown


def test_the_tables_of_the_file_stand_for_options() -> None:
    assert {name for keys in TABLES.values() for name in keys.values()} <= set(KEYS)
    assert TABLES["worktree"]["enabled"] == "worktree"
