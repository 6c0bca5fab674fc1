"""The night: the runs that are told, and paid for, as one.

A run goes on with the night of the run before it, until somebody says that he was told of it, what
it landed was merged, or nothing has run for long. The run that begins a night gives it its name.
"""

from __future__ import annotations

from beads_workers.core.base.model import value


@value
class NightSoFar:
    """What the earlier runs of a night leave to the next one."""

    # Id of the run that began the night; "" if the next one begins it.
    first: str = ""
    # How many there were.
    runs: int = 0
    # When the first began, in epoch seconds.
    began_at: float = 0.0
    # ``money`` (dollars) and ``tokens``: what their agents used.
    money: float = 0.0
    tokens: int = 0
    # How many of their agents were killed, whose last answer is not in ``money`` and ``tokens``.
    cut: int = 0
    # How many issues they closed.
    closed: int = 0


def run_of(request_id: str) -> str:
    """Return the id of the run that an attempt belongs to."""
    return request_id.rpartition(".")[0]
