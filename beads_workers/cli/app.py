"""The command line: which command stands in which module, and how every command ends.

Only the module of the command that is called is imported, and for ``--help`` none at all:
``status`` must cost no more than an empty application."""

from __future__ import annotations

import os
import sys
from typing import Any, NoReturn

from beads_workers import __version__
from beads_workers.cli.errors import EXIT_ERROR, CommandError

MODULES: dict[str, dict[str, str]] = {
    "demo.commands": {
        "demo": "Show a whole run in under a minute, mishaps included.",
    },
    "chaos.commands": {
        "chaos": "Kill things at random on a throw-away tracker, and check that nothing is lost.",
    },
    "cli.doctor": {
        "doctor": "Check what a fleet needs, and say how to mend it.",
    },
    "cli.starting": {
        "start": "Run the fleet: take issues, hand them to workers, close them.",
    },
    "cli.restarting": {
        "restart": "Stop the fleet and start it again as it was started.",
    },
    "cli.fleet": {
        "status": "Show what the fleet does, or how the last run ended.",
        "stop": "Stop the fleet, giving back what runs.",
        "wait": "Wait until the fleet ends; its exit code is ours.",
        "scale": "Have more or fewer workers.",
        "pause": "Hand out nothing new; what runs goes on.",
        "resume": "Go on after a pause.",
        "release": "Take issues away from the fleet, until 'retry'.",
    },
    "integrations.metrics.commands": {
        "metrics": "Print the fleet's figures for Prometheus.",
    },
    "integrations.dispatcherd.commands": {
        "dispatcherd-config": "Print the settings with which 'dispatcherctl' finds this fleet.",
    },
    "cli.watching": {
        "watch": "Attach the dashboard from any terminal; leaving it stops nothing.",
        "replay": "Show a run again from its journal, as it was shown when it ran.",
    },
    "cli.retrying": {
        "retry": "Try issues again that were set aside or taken away.",
    },
    "cli.why": {
        "why": "Say why an issue does not run; without one, why nothing happens.",
    },
    "cli.logs": {
        "logs": "Show the fleet's events, or what attempts printed.",
    },
    "cli.reporting": {
        "report": "Show what happened in a run, and what it cost.",
    },
    "cli.tracker": {
        "init": "Make a tracker and a settings file in this folder.",
        "add": "Add an issue, and print its id.",
        "list": "List issues, the most urgent first.",
        "show": "Show one issue with everything that is known about it.",
        "import": "Read issues from beads' JSON Lines: all of them, or none.",
        "export": "Write every issue as beads' JSON Lines.",
    },
    "integrations.envelopes.commands": {
        "submit": "Hand in jobs as envelopes: all of them, or none.",
    },
    "cli.worker": {
        "worker": "Run one worker in this folder.",
    },
    "integrations.rrq.commands": {
        "rrq-executor": "Be an RRQ executor: run what an orchestrator sends.",
    },
    "integrations.hero.commands": {
        "hero": "Hand in Hero jobs in a Redis, wait for them, stop them.",
    },
    "cli.config": {
        "config": "What beads-workers.toml and others settle.",
    },
    "cli.cleaning": {
        "clean": "Remove what old runs left: logs, sockets, empty worktrees.",
    },
}
"""Module of ``beads_workers`` -> its commands, each with the first sentence of its help.

Each module has ``register(app)``. A test compares the sentences with what the commands say.
"""


def main() -> None:
    """Run a command; every way it can fail ends in one line, a hint and an exit code."""
    if sys.argv[1:] == ["--version"]:
        print(__version__)
        return
    from beads_workers.cli.building import build

    try:
        os.getcwd()  # noqa: PTH109 - pathlib is not loaded yet
    except FileNotFoundError:
        _fail("the folder you are in is gone", "go to one that exists: cd ~", EXIT_ERROR)
    try:
        code = build(sys.argv[1:])(prog_name="beads-workers", standalone_mode=False)
    except CommandError as error:
        _fail(error.message, error.hint, error.exit_code)
    except _usage_errors() as error:
        if type(error).__name__ == "NoArgsIsHelpError":
            error.show()  # No error at all: what there is to choose from.
            sys.exit(error.exit_code)
        command = error.ctx.command_path if getattr(error, "ctx", None) else "beads-workers"
        _fail(error.format_message(), f"'{command} --help' shows how", error.exit_code)
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:
        # The reader has seen enough. Python would complain once more while it shuts down.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        sys.exit(0)
    sys.exit(code if isinstance(code, int) else 0)


def _usage_errors() -> type[Any]:
    """What the parser raises: typer carries its own copy of click, or uses the real one."""
    from typer import BadParameter

    return next(kind for kind in BadParameter.__mro__ if kind.__name__ == "ClickException")


def _fail(message: str, hint: str, exit_code: int) -> NoReturn:
    print(f"error: {message}", file=sys.stderr)
    if hint:
        print(f"hint: {hint}", file=sys.stderr)
    sys.exit(exit_code)
