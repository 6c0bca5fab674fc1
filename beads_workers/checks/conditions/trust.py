"""Trust: lines that came with the project and would be run are trusted by the user."""

from __future__ import annotations

from collections.abc import Sequence

from beads_workers.checks.condition import Condition, Found, Stage
from beads_workers.checks.plan import FleetPlan
from beads_workers.checks.rules import Check, misused
from beads_workers.checks.untrusted_lines import untrusted
from beads_workers.core.base.text import counted, printable
from beads_workers.options import RiskyLine

NAME = "trust"
SHOWN_MAX = 20
LINE_CHARS = 160
HINT = "read them; then: beads-workers trust (or --trust, for this once)"


def refused(lines: Sequence[RiskyLine]) -> Check | None:
    """Refuse to run anything if there are such lines."""
    if not lines:
        return None
    shown = "; ".join(printable(line.text, LINE_CHARS) for line in lines[:SHOWN_MAX])
    more = f"; and {len(lines) - SHOWN_MAX} more" if len(lines) > SHOWN_MAX else ""
    text = f"{counted(len(lines), 'line')} that came with this project would be run: {shown}{more}"
    return misused(NAME, text, HINT, "beads-workers trust")


def _trusted(plan: FleetPlan) -> Found:
    return refused(untrusted(plan))


CONDITIONS = (
    Condition(
        Stage.TRUST,
        NAME,
        "what came with the project and runs something is trusted ([Trust](TRUST.md))",
        _trusted,
        "--trust",
    ),
)
