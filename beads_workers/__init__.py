"""beads-workers drains an issue tracker with a fleet of workers.

The words used everywhere, and nothing else:

job        one piece of work; for a tracker, one issue
attempt    one try at a job by one worker: number from 1, request id, start, deadline
outcome    how an attempt ended: success, error, retry, timeout, cancelled, lost, not_found
policy     the one pure function that round trips an outcome into finish, requeue or quarantine
journal    the append-only record of every transition, written before anything is acted on
source     where jobs come from and who is to get an answer: bd, the embedded tracker, memory
executor   what runs an attempt: a connected worker and, in it, a command or an agent
view       a snapshot made visible: plain lines, ``status --json``

claim      an issue is marked in the tracker as ours, and nobody else's
settle     close, release or quarantine an issue in the tracker
lane       the one helper thread that talks to the source
run        one life of the orchestrator; its id is part of the actor that holds the claims
event      what happened, told to the core (past tense)
command    what the core asks the edge to do (imperative)

Where things are: ``core`` and ``protocols`` are pure, ``sources`` and ``executors`` plug in,
``edge`` moves bytes and owns processes, ``cli`` talks to people. ``docs/ARCHITECTURE.md`` is
the map.

What projects may import from here is ``Retry`` and ``trace_context``, for functions that workers
call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from beads_workers.executors.retry import Retry, trace_context


__all__ = ["Retry", "__version__", "trace_context"]

__version__ = "0.1.0"


def __getattr__(name: str) -> object:
    # Imported by who asks for it: every command and every worker loads this module.
    if name == "Retry":
        from beads_workers.executors.retry import Retry

        return Retry
    if name == "trace_context":
        from beads_workers.executors.retry import trace_context

        return trace_context
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
