"""The command line: which command stands in which module, and how every command ends.

Only the module of the command that is called is imported: ``status`` must cost no more than an
empty application.
"""

from __future__ import annotations

import importlib
import os
import sys
from typing import Annotated

import typer

from beads_workers import __version__
from beads_workers.cli.errors import CommandError

MODULES: dict[str, tuple[str, ...]] = {
    "starting": ("start", "restart"),
    "running": ("stop", "status", "wait", "scale", "pause", "resume", "release"),
    "retrying": ("retry",),
    "logs": ("logs",),
    "tracker": ("init", "add", "list", "show", "import", "export"),
    "worker": ("worker",),
    "config": ("config",),
    "cleaning": ("clean",),
}
"""Module of ``beads_workers.cli`` -> its commands. Each has ``register(app)``."""


def build(arguments: list[str]) -> typer.Typer:
    """The application with the one command that is called, or with all where that is unclear."""
    app = typer.Typer(
        name="beads-workers",
        help="Drain an issue tracker with a fleet of workers.",
        epilog="Example: beads-workers start -n 8 -- ./do-issue.sh {id}",
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        no_args_is_help=True,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_options)
    app.command("version", epilog="Example: beads-workers version")(_show_version)
    for module in _modules(arguments):
        importlib.import_module(f"beads_workers.cli.{module}").register(app)
    return app


def main() -> None:
    """Run a command; every way it can fail ends in one line, a hint and an exit code."""
    if sys.argv[1:] == ["--version"]:
        print(__version__)
        return
    try:
        build(sys.argv[1:])(prog_name="beads-workers")
    except CommandError as error:
        print(f"error: {error.message}", file=sys.stderr)
        if error.hint:
            print(f"hint: {error.hint}", file=sys.stderr)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:
        # The reader has seen enough. Python would complain once more while it shuts down.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        sys.exit(0)


def _modules(arguments: list[str]) -> list[str]:
    called = arguments[0] if arguments else ""
    found = [module for module, commands in MODULES.items() if called in commands]
    if found or called == "version":
        return found
    return list(MODULES)


def _options(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", is_eager=True)
    ] = False,
) -> None:
    if version:
        print(__version__)
        raise typer.Exit


def _show_version() -> None:
    """Show the version."""
    print(__version__)
