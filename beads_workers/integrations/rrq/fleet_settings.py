"""``start --executor``: programs that serve functions, which the fleet drives."""

from __future__ import annotations

import shlex
from collections.abc import Callable

from beads_workers.cli.errors import EXIT_USAGE, CommandError
from beads_workers.cli.options import Options
from beads_workers.cli.refusals import of_agents, refuse
from beads_workers.core.settings import Executor, Work
from beads_workers.integrations.rrq.options import FORM
from beads_workers.integrations.rrq.requests import find, route

Runnable = Callable[[tuple[str, ...]], tuple[str, ...]]
"""Gives a command with a path that holds from anywhere, or raises ``CommandError``."""

NAME_DEFAULT = "rrq"


def find_executors(options: Options, runnable: Runnable) -> Work:
    """What a fleet of executors runs; raises ``CommandError`` for what does not go with them."""
    executors = tuple(_executor(text, runnable) for text in options.executor or ())
    names = [each.name for each in executors]
    for name in names:
        if names.count(name) > 1:
            raise CommandError(
                f"two executors have the name {name}", "write --executor NAME=rrq:CMD", EXIT_USAGE
            )
    others = {
        "a command": options.command,
        "--verify": options.verify,
        "--allow-module": options.allow_module,
    }
    refuse(
        {**others, **of_agents(options)},
        "--executor and {} do not go together",
        "executors call functions of their own, and nothing else is run",
    )
    if options.function is not None and find(route(options.function)[0], executors) is None:
        raise CommandError(
            f"--function {options.function}: no such executor", f"known: {', '.join(names)}",
            EXIT_USAGE,
        )  # fmt: skip
    return Work(
        timeout_seconds=options.timeout,
        executors=executors,
        in_flight=options.in_flight or 1,
        function=options.function,
    )


def commands_of(options: Options) -> list[tuple[str, ...]]:
    """How each is called, in words as they were typed."""
    return [_executor(text, lambda argv: argv).argv for text in options.executor or ()]


def shown_executors(work: Work) -> str:
    """What is run, as one would type it."""
    shown = (f"{e.name}={e.protocol}:{shlex.join(e.argv)}" for e in work.executors)
    return ", ".join(shown)


def _executor(text: str, runnable: Runnable) -> Executor:
    form = FORM.fullmatch(text)
    assert form is not None, "the option's reader has seen to that"
    argv = runnable(tuple(shlex.split(form["command"])))
    return Executor(form["name"] or NAME_DEFAULT, argv, form["protocol"])
