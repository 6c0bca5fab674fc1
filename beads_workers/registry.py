"""The one static table of everything optional: kinds of sources, and integrations.

All other modules ask this one, and import no integration by its name. Modules are imported on
demand. A missing integration is skipped; using it raises one clear error.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from beads_workers.kinds import SourceKind


KINDS: dict[str, str] = {
    "bd": "beads_workers.trackers.bd:KIND",
    "sqlite": "beads_workers.trackers.sqlite:KIND",
    "rrq": "beads_workers.integrations.rrq:KIND",
    "hero": "beads_workers.integrations.hero:KIND",
    "dispatcherd": "beads_workers.integrations.dispatcherd:KIND",
    "forge": "beads_workers.integrations.forge:KIND",
}
"""Name of a kind -> ``module:ATTRIBUTE`` of its ``SourceKind``."""


PLACES: dict[str, str] = {
    "ssh": "beads_workers.places.ssh:ENGINE",
    "ray": "beads_workers.places.ray:ENGINE",
    "slurm": "beads_workers.places.slurm:ENGINE",
}
"""Name of an engine that reaches other machines -> ``module:ATTRIBUTE`` of its class."""


TABLES: dict[str, str] = {
    "hero": "beads_workers.integrations.hero.options:read_hero",
    "places": "beads_workers.places.options:read_places",
}
"""Tables of ``beads-workers.toml`` that others read by themselves -> ``module:function``."""


SERVICES: dict[str, str] = {
    "control_plane": "beads_workers.integrations.dispatcherd.control",
    "task_messages": "beads_workers.integrations.dispatcherd.tasks",
    "executors": "beads_workers.integrations.rrq.fleet_settings",
    "executor_driver": "beads_workers.integrations.rrq.driver",
    "executor_requests": "beads_workers.integrations.rrq.requests",
    "executor_option": "beads_workers.integrations.rrq.options",
    "envelopes": "beads_workers.integrations.envelopes.view",
    "places": "beads_workers.places.options",
    "hosts": "beads_workers.places.probe",
    "issue_texts": "beads_workers.integrations.forge.place",
    "pull_requests": "beads_workers.integrations.forge.pulls",
    "figures": "beads_workers.integrations.metrics.figures",
    "metrics": "beads_workers.integrations.metrics.listener",
    "tracer": "beads_workers.integrations.tracing.tracer",
    "tracing": "beads_workers.integrations.tracing.options",
}
"""Services that the engine and the command line use -> the module that provides each."""


COMMANDS: dict[str, dict[str, str]] = {
    "demo.commands": {
        "demo": "Show a whole run in under a minute, mishaps included.",
    },
    "chaos.commands": {
        "chaos": "Kill things at random on a throw-away tracker, and check that nothing is lost.",
    },
    "cli.setup": {
        "setup": "Find what a fleet needs here, write it down, and try the check once.",
    },
    "cli.doctor": {
        "doctor": "Check what a fleet needs, and say how to mend it.",
    },
    "cli.start": {
        "start": "Run the fleet: take issues, hand them to workers, close them.",
    },
    "cli.restart": {
        "restart": "Stop the fleet and start it again as it was started.",
    },
    "cli.fleet": {
        "status": "Show what the fleet does, or how the last run ended.",
        "stop": "Stop the fleet, requeueing what runs.",
        "wait": "Wait until the fleet ends, and exit with its exit code.",
        "scale": "Have more or fewer workers.",
        "release": "Release issues from the fleet, until 'retry'; or from nobody's hands.",
    },
    "cli.control_requests": {
        "pause": "Hand out nothing new; what runs goes on.",
        "resume": "Go on after a pause.",
    },
    "integrations.metrics.commands": {
        "metrics": "Print the fleet's figures for Prometheus.",
    },
    "integrations.dispatcherd.commands": {
        "dispatcherd-config": "Print the settings with which 'dispatcherctl' finds this fleet.",
    },
    "cli.watch": {
        "watch": "Attach the dashboard from any terminal; leaving it stops nothing.",
        "morning": "Decide what waits for you, whether or not a fleet runs.",
        "replay": "Show a run again from its journal, as it was shown when it ran.",
    },
    "cli.retry": {
        "retry": "Try issues again that were quarantined or on hold.",
    },
    "cli.answer": {
        "answer": "Answer questions of agents; without an issue, list them.",
    },
    "cli.review": {
        "diff": "Show what an agent changed for an issue: its branch, or what has landed.",
        "approve": "Let finished branches land, as you have seen them.",
        "reject": "Send a finished branch back to its agent, with what is wrong.",
        "session": "Print the command that opens an agent's session in its worktree.",
    },
    "cli.why": {
        "why": "Say why an issue does not run; without one, why nothing happens.",
    },
    "cli.logs": {
        "logs": "Show the fleet's events, or what attempts printed.",
    },
    "cli.runs": {
        "runs": "List the runs of this project: when, how long, how each ended.",
    },
    "cli.report": {
        "report": "Show what happened in a night, and what it cost.",
    },
    "cli.tracker": {
        "init": "Make a tracker and a settings file in this folder.",
        "add": "Add an issue, and print its id.",
        "list": "List issues, the most urgent first.",
        "show": "Show one issue with everything that is known about it.",
        "import": "Read issues from beads' JSON Lines: all of them, or none.",
        "export": "Write every issue as beads' JSON Lines.",
    },
    "cli.edit": {
        "edit": "Change an issue: title, text, priority, labels, status.",
        "comment": "Write a comment on an issue, in your name.",
        "close": "Close issues: they are done, or not needed.",
        "reopen": "Open closed issues again.",
        "delete": "Delete issues for good, with --force.",
        "dep": "Say which issue waits for which.",
    },
    "integrations.envelopes.commands": {
        "submit": "Hand in jobs as envelopes: all of them, or none.",
    },
    "cli.worker": {
        "worker": "Run one worker in this folder.",
    },
    "conformance.commands": {
        "conformance": "Test any worker or orchestrator against the protocol.",
    },
    "integrations.rrq.commands": {
        "rrq-executor": "Be an RRQ executor: run what an orchestrator sends.",
    },
    "integrations.hero.commands": {
        "hero": "Hand in Hero jobs in a Redis, wait for them, stop them.",
    },
    "cli.trust": {
        "trust": "Trust what this project brings and a start would run.",
    },
    "cli.configure": {
        "config": "Show the settings in force and where they come from.",
    },
    "cli.land": {
        "land": "Land the branches that earlier runs left.",
        "pr": "Look once at the pull requests of earlier runs.",
        "branches": "List the branches that earlier runs left, in the order in which they land.",
        "undo": "Take back what has landed, and open its issues again.",
    },
    "cli.clean": {
        "clean": "Remove what old runs left: logs, sockets, worktrees without work, a live page.",
    },
}
"""Module of ``beads_workers`` -> its commands, each with the first sentence of its help.

Each module has ``register(app)``. A test compares the sentences with the help texts.
"""


DECIDING = frozenset(
    {
        *("answer", "approve", "reject", "session"),
        *("retry", "release", "land", "undo", "trust"),
        *("scale", "stop", "restart", "pause", "resume"),
        *("close", "edit", "delete", "reopen"),
        "cancel",
    }
)
"""Commands, and requests of the control socket, by which a person decides: an attempt may not use
them in its own project (``runtime.within_attempt``). ``cancel`` is dispatcherd's."""


def commands() -> dict[str, dict[str, str]]:
    """Return ``COMMANDS`` without the modules that are not installed."""
    return {module: names for module, names in COMMANDS.items() if _is_there(module)}


def _is_there(module: str) -> bool:
    from importlib.util import find_spec  # Workers load this module, too.

    room = module.rpartition(".")[0]
    return not room.startswith("integrations.") or find_spec(f"{__package__}.{room}") is not None


class Missing(Exception):
    """Error: this installation has no such integration; the text is for people."""


def service(name: str) -> ModuleType | None:
    """Return the module of this service; None if it is not installed."""
    return load(SERVICES[name])


def need(name: str) -> ModuleType:
    """Return the module of this service; raise ``Missing`` if it is not installed."""
    if (found := service(name)) is None:
        room = SERVICES[name].split(".")[2]
        raise Missing(f"the integration {room} is not part of this installation")
    return found


def place_engine(name: str) -> Any:
    """Return the class of an engine (``places.line.Engine``); raise ``Missing``."""
    module, _, attribute = PLACES.get(name, "").partition(":")
    if not module or (found := load(module)) is None:
        raise Missing(f"the engine {name} is not part of this installation")
    return getattr(found, attribute)


def kind_of(name: str) -> SourceKind:
    """Return the kind of this name; raise ``KindMissing`` if it is not installed."""
    kind = _load(name)
    if kind is None:
        from beads_workers.kinds import KindMissing

        raise KindMissing(name, [each.name for each in kinds()])
    return kind


def recognise(text: str) -> SourceKind | None:
    """Return the kind that a text of ``--source`` selects; None for an unknown text.

    Raise ``KindMissing`` for the name of a kind that is not installed.
    """
    if text in KINDS:
        kind = kind_of(text)
        return kind if kind.named else None
    return next((kind for kind in kinds() if kind.recognises(text)), None)


def kinds() -> Iterator[SourceKind]:
    """Import and yield every installed kind, in the order of the table."""
    for name in KINDS:
        if (kind := _load(name)) is not None:
            yield kind


def _load(name: str) -> SourceKind | None:
    module, _, attribute = KINDS.get(name, "").partition(":")
    if not module:
        return None
    found = load(module)
    return None if found is None else getattr(found, attribute)


def load(module: str) -> ModuleType | None:
    """Import and return the module; None if it is not installed."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise  # The module is installed, but something that it imports is missing.
        return None
