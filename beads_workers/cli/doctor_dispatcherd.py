"""What ``doctor`` says where tasks come from publishers of dispatcherd: of its brokers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from beads_workers.cli.doctor_remedies import edit, sentence
from beads_workers.cli.errors import CommandError

if TYPE_CHECKING:
    from beads_workers.cli.config import Resolved
    from beads_workers.core.checks import Check
    from beads_workers.sources.kind import Looked


def look_at_brokers(looked: Looked) -> list[Check]:
    """The configuration, and each broker that it names."""
    from beads_workers.cli.dispatcherd_place import EXTRA, find_brokers
    from beads_workers.core.checks import fail
    from beads_workers.edge.checks.brokers import NAME, brokers
    from beads_workers.sources.dispatcherd.kind import CONFIG

    source = str(looked.resolved.options.source)
    file = Path(source.removeprefix(CONFIG)).expanduser() if source.startswith(CONFIG) else None
    fix = edit(file) if file else ""
    try:
        found, _ = find_brokers(source)
    except CommandError as error:
        if error.hint == EXTRA:
            return [fail(NAME, error.message, EXTRA)]
        return [fail(NAME, sentence(error), fix)]
    return brokers(found, looked.state, fix)


def workers_of(resolved: Resolved) -> int:
    """How many there would be: the configuration says so where nobody else has."""
    from beads_workers.cli.dispatcherd_place import find_brokers

    said = resolved.options.workers or 0
    if resolved.origin["workers"] != "default":
        return said
    try:
        return find_brokers(str(resolved.options.source))[1] or said
    except CommandError:
        return said  # It is told of together with the brokers.
