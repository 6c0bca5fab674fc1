"""The typer application, with only as much in it as this call needs.

The called command is loaded from its module, with all its options. All others have only name and
sentence: ``--help`` shows no more, and misspelt names are compared with the names.
"""

from __future__ import annotations

import importlib
import json
import os
from typing import Annotated, Any

import typer

from beads_workers import __version__
from beads_workers.cli.layout import WIDTH_MAX, CommandGroup, GroupedCommands, LaidOut
from beads_workers.errors import CommandError
from beads_workers.exits import EXIT_USAGE
from beads_workers.registry import COMMANDS, DECIDING, commands

COMPLETING = "_BEADS_WORKERS_COMPLETE"
"""Set by a shell that asks for completions; other variables hold the command line."""


def build(arguments: list[str]) -> typer.Typer:
    """Return the application for a call with these arguments (without the program's name)."""
    completing = COMPLETING in os.environ
    words = _typed() if completing else arguments
    called = next((word for word in words if not word.startswith("-")), "")
    known = commands() if completing else COMMANDS
    found = [module for module, names in known.items() if called in names]
    app = _empty(add_completion=completing or not found)
    for module in found:
        _load(module).register(app)
    if found:
        # Typer computes the options of every registered command.
        app.registered_commands = [c for c in app.registered_commands if c.name == called]
        for each in app.registered_commands:
            each.cls = each.cls if each.cls and issubclass(each.cls, LaidOut) else LaidOut
            if called in DECIDING:
                from beads_workers.cli.attempt_refusal import for_persons

                each.cls = for_persons(each.cls)
        for group in app.registered_groups:
            group.cls = CommandGroup
            for each in group.typer_instance.registered_commands if group.typer_instance else ():
                each.cls = LaidOut
    elif called != "version":
        for named in commands().values():
            for name, sentence in named.items():
                app.command(name, help=sentence)(_by_name_only)
    return app


def _typed() -> list[str]:
    """Return the words of the line to complete, without the program's name."""
    line = os.environ.get("COMP_WORDS") or os.environ.get("_TYPER_COMPLETE_ARGS", "")
    return line.split()[1:]


def _load(module: str) -> Any:
    name = f"beads_workers.{module}"
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if not f"{name}.".startswith(f"{error.name}."):
            raise  # The module and its packages exist: something that it imports is missing.
        commands = ", ".join(COMMANDS[module])
        hint = "'beads-workers --help' lists the commands"
        message = f"not part of this installation: {commands}"
        raise CommandError(message, hint, EXIT_USAGE) from None


def _empty(*, add_completion: bool) -> typer.Typer:
    app = typer.Typer(
        name="beads-workers",
        cls=GroupedCommands,
        help="Drain an issue tracker with a fleet of workers.",
        epilog="See: beads-workers demo. Use: beads-workers start -- ./do-issue.sh {id}",
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        no_args_is_help=True,
        add_completion=add_completion,
        context_settings={
            "help_option_names": ["-h", "--help"],
            "max_content_width": WIDTH_MAX,
        },
    )
    app.callback()(_options)
    app.command("version", cls=LaidOut, epilog="Example: beads-workers version")(_show_version)
    return app


def _by_name_only() -> None:
    raise AssertionError("a command that is called comes from its module")


def _options(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", is_eager=True)
    ] = False,
) -> None:
    if version:
        print(__version__)
        raise typer.Exit


def _show_version(
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Show the version."""
    print(json.dumps({"version": __version__}) if as_json else __version__)
