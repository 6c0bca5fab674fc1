"""``start --executor``: programs that serve functions and are driven by the fleet."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import replace

from beads_workers.checks.combinations import meaningless, of_agents
from beads_workers.checks.rules import Check, misused
from beads_workers.core.base.settings import Executor, Work
from beads_workers.integrations.rrq.options import FORM
from beads_workers.integrations.rrq.requests import find, route
from beads_workers.options import Options

Absolute = Callable[[tuple[str, ...]], tuple[str, ...]]
"""Return a command whose path is valid from any folder."""

NAME_DEFAULT = "rrq"


def find_executors(options: Options, absolute: Absolute) -> Work | Check:
    """Return the work of a fleet of executors, or the reason why it cannot run.

    ``absolute`` makes the path of a command valid from any folder. Whether the command can be run
    is not checked here.
    """
    executors = tuple(_executor(text, absolute) for text in options.executor)
    names = [each.name for each in executors]
    for name in names:
        if names.count(name) > 1:
            text = f"two executors have the name {name}"
            return misused("executor", text, "write --executor NAME=rrq:CMD")
    others = {
        "a command": options.command,
        "--verify": options.work.verify,
        "--allow-module": options.work.allow_modules,
    }
    wrong = meaningless(
        {**others, **of_agents(options)},
        "--executor and {} do not go together",
        "executors call functions of their own, and nothing else is run",
    )
    if wrong is not None:
        return wrong
    function = options.work.function
    if function is not None and find(route(function)[0], executors) is None:
        text = f"--function {function}: no such executor"
        return misused("executor", text, f"known: {', '.join(names)}")
    return replace(options.work, executors=executors)


def commands_of(options: Options) -> list[tuple[str, ...]]:
    """Return the command of each executor, in words as they were typed."""
    return [_executor(text, lambda argv: argv).argv for text in options.executor]


def shown_executors(work: Work) -> str:
    """Return the executors as text, in the form of ``--executor``."""
    shown = (f"{e.name}={e.protocol}:{shlex.join(e.argv)}" for e in work.executors)
    return ", ".join(shown)


def _executor(text: str, absolute: Absolute) -> Executor:
    form = FORM.fullmatch(text)
    assert form is not None, "the option's reader has seen to that"
    argv = absolute(tuple(shlex.split(form["command"])))
    return Executor(form["name"] or NAME_DEFAULT, argv, form["protocol"])
