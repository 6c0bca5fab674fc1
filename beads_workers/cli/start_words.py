"""What ``start`` says once its fleet answers."""

from __future__ import annotations

import json
import sys
from typing import Any


def say_preflight(settings: Any, started: dict[str, Any]) -> None:
    """One line per check, on stderr."""
    from beads_workers.cli.option_trace import lines
    from beads_workers.cli.shown_work import shown_command
    from beads_workers.cli.worktree_checks import shown_place
    from beads_workers.core.text import printable

    until = ", until empty" if settings.until_empty else ""
    for name, text in (
        ("tracker", started["tracker"]),
        ("command", printable(shown_command(settings.work), 160)),
        ("workers", f"{settings.workers}{until}"),
        ("folder", printable(shown_place(settings))),
        *_metrics(started),
        *lines(settings.tracing),
        ("fleet", f"pid {started['pid']}, {started['socket']}, run {started['run_id']}"),
    ):
        print(f"ok {name:<8} {text}", file=sys.stderr)


def _metrics(started: dict[str, Any]) -> list[tuple[str, str]]:
    return [("metrics", started["metrics"])] if started["metrics"] else []


def show_detached(started: dict[str, Any], *, as_json: bool) -> None:
    """Where the fleet is, and how to get at it."""
    if as_json:
        print(json.dumps(started))
    else:
        print(f"started: pid {started['pid']}, run {started['run_id']}")
        if started["metrics"]:
            print(f"metrics: {started['metrics']}")
        print("see it with 'beads-workers status', end it with 'beads-workers stop'")
