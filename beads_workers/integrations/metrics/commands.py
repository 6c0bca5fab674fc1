"""``metrics``: the figures of the running fleet, for Prometheus or a person."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import typer

from beads_workers.cli.arguments import Json, StateDir
from beads_workers.cli.client import connect, find_state_directory

if TYPE_CHECKING:
    from beads_workers.integrations.metrics.figures import Family


def register(app: typer.Typer) -> None:
    """Add this command to the application."""
    app.command("metrics", epilog="Example: beads-workers metrics | grep attempts_total")(metrics)


def metrics(as_json: Json = False, state_dir: StateDir = None) -> None:
    """Print the fleet's figures for Prometheus.

    'start --metrics PORT' serves the same over HTTP. docs/METRICS.md lists them all.
    """
    from beads_workers.integrations.metrics.figures import to_json, to_text

    usage_families = _families(connect(find_state_directory(state_dir)).ask("bw.metrics"))
    if as_json:
        print(json.dumps({"metrics": to_json(usage_families)}))
    else:
        print(to_text(usage_families), end="")


def _families(answer: dict[str, Any]) -> list[Family]:
    from beads_workers.errors import CommandError
    from beads_workers.integrations.metrics.figures import (
        WatchedProcesses,
        from_json,
        usage_families,
    )
    from beads_workers.integrations.metrics.server import read_all

    if "families" not in answer:
        hint = "it was started with an older version; restart it"
        raise CommandError(f"the fleet has no figures: {answer.get('error')}", hint)
    workers = tuple((pid, name) for pid, name in answer["workers"])
    whose = WatchedProcesses(answer["orchestrator"], workers, frozenset(answer["own"]))
    # The processes are read here, where nobody waits for it.
    return [*from_json(answer["families"]), *usage_families(whose, read_all())]
