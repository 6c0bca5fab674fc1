"""What came with the project and would be run: the user has said yes to it."""

from __future__ import annotations

from beads_workers.checks.brought import untrusted
from beads_workers.checks.condition import Condition, Found, Stage
from beads_workers.checks.plan import FleetPlan
from beads_workers.checks.rules import misused
from beads_workers.core.text import counted, printable

NAME = "trust"
SHOWN_MAX = 20
LINE_CHARS = 160
HINT = "read them; then: beads-workers trust (or --trust, for this once)"


def _trusted(plan: FleetPlan) -> Found:
    lines = untrusted(plan)
    if not lines:
        return None
    shown = "; ".join(printable(line.text, LINE_CHARS) for line in lines[:SHOWN_MAX])
    more = f"; and {len(lines) - SHOWN_MAX} more" if len(lines) > SHOWN_MAX else ""
    text = f"{counted(len(lines), 'line')} that came with this project would be run: {shown}{more}"
    return misused(NAME, text, HINT, "beads-workers trust")


CONDITIONS = (
    Condition(
        Stage.TRUST,
        NAME,
        "what came with the project and runs something is trusted ([Trust](TRUST.md))",
        _trusted,
        "--trust",
    ),
)
