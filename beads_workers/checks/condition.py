"""A condition of a start: what must hold, how it is checked, and which option lifts it.

Each condition is defined once, in a module of ``checks.conditions``. ``start`` ends at the first
that fails; ``doctor`` prints all of them; ``start --dry-run`` does the same as ``start`` without
starting. docs/CONDITIONS.md is generated from them. To add one, add a file there.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterable
from enum import Enum, IntEnum

from beads_workers.checks.plan import FleetPlan
from beads_workers.checks.rules import Check
from beads_workers.core.base.model import value

Found = Iterable[Check] | Check | None
CheckFunction = Callable[[FleetPlan], Found]


class Stage(IntEnum):
    """Order in which conditions are shown, and in which ``start`` refuses."""

    TRUST = 0
    """No other condition runs anything before this stage."""
    MACHINE = 1
    SETTINGS = 2
    TRACKER = 3
    WORK = 4
    AGENTS = 5
    VERIFY = 6
    WORKTREES = 7
    LANDING = 8
    GIT = 9
    ROOM = 10
    STATE = 11
    FLEET = 12
    BASE = 13
    SEES = 14


class CheckedBy(Enum):
    """Commands that check a condition, and how long the check may take."""

    AT_ONCE = "at once"
    """Checked by all commands, in line: it computes, or reads a file."""
    BESIDE = "beside others"
    """Checked by all commands, in a thread: it waits for a program or a network."""
    BY_DOCTOR = "by doctor"
    """Checked by ``doctor`` only: a starting fleet asks the same, or nothing depends on it."""
    BY_START = "by start"
    """Checked by ``start`` only: it writes to a remote, but only what the run would write."""
    AT_THE_END = "at the end"
    """Checked by ``start`` only, after all others: it takes minutes."""


PATIENCE_SECONDS = 12.0
"""Time limit of each check that runs in a thread.

The slowest healthy one, a ``bd`` on a busy machine, takes a third of it.
"""


@value
class Condition:
    """A condition of a start."""

    stage: Stage
    # The name of its lines.
    name: str
    # What must hold, as docs/CONDITIONS.md says it.
    holds: str
    look: CheckFunction
    # The option with which ``start`` continues although the condition fails; "" if no fleet could
    # start without it.
    lifted_by: str = ""
    asked: CheckedBy = CheckedBy.AT_ONCE
    # Options that are usage errors of ``doctor`` too, if they are wrong on its command line.
    typed: tuple[str, ...] = ()
    # It needs an option that ``doctor`` does without, so ``doctor`` only warns.
    unsaid: bool = False
    # The time limit, if it is checked in a thread.
    patience_seconds: float = PATIENCE_SECONDS


def listed(found: Found) -> list[Check]:
    """Return the findings of a look as a list."""
    if found is None:
        return []
    return [found] if isinstance(found, Check) else list(found)


def skip(name: str) -> str:
    """Return the option that lifts this condition."""
    return f"--skip-check {name}"


def conditions() -> tuple[Condition, ...]:
    """Return all conditions, in the order of their stages, then of their files."""
    from beads_workers.checks import conditions as folder

    found: list[Condition] = []
    for module in sorted(each.name for each in pkgutil.iter_modules(folder.__path__)):
        found += importlib.import_module(f"{folder.__name__}.{module}").CONDITIONS
    return tuple(sorted(found, key=lambda condition: condition.stage))


WHO = {
    CheckedBy.AT_ONCE: "`start`, `doctor`",
    CheckedBy.BESIDE: "`start`, `doctor`",
    CheckedBy.BY_DOCTOR: "`doctor`",
    CheckedBy.BY_START: "`start`",
    CheckedBy.AT_THE_END: "`start`, last",
}

HEAD = """# Conditions of a start

These conditions must hold before a fleet starts. `beads-workers start` checks them in this order
and ends at the first that fails. `start --dry-run` checks all but the last one. `doctor` prints a
line for each and says how to fix it. With the option in the last column, `start` skips the
condition, and `doctor` calls a failure a warning.

Generated: `python -m beads_workers.checks >docs/CONDITIONS.md`. A condition stands once, in
`beads_workers/checks/conditions`.

| name | what must hold | asked by | lifted by |
|---|---|---|---|
"""


def table() -> str:
    """Return the text of docs/CONDITIONS.md."""
    rows = (
        f"| {each.name} | {each.holds} | {WHO[each.asked]} | {_code(each.lifted_by)} |\n"
        for each in conditions()
    )
    return HEAD + "".join(rows)


def _code(option: str) -> str:
    return f"`{option}`" if option else "-"
