"""beads-workers drains an issue tracker with a fleet of workers.

The words used everywhere, and nothing else:

job            one piece of work; for a tracker, one issue
attempt        one try at a job by one worker: number from 1, request id, start, deadline
outcome        how an attempt ended: success, error, retry, timeout, cancelled, lost, not_found
policy         the one pure function that turns an outcome into finish, requeue or quarantine
journal        the append-only record of every transition, written before anything is acted on
reducer        the one fold over the journal that knows how each issue stands
source         where jobs come from, and who is to get an answer: bd, the embedded tracker, queues
executor       what runs an attempt: a connected worker and, in it, a command or an agent

claim          an issue is marked in the tracker as ours, and nobody else's
prefetch       tasks that a worker has been sent, and keeps until it comes to them
settle         close, release or quarantine an issue in the tracker
requeue        an issue goes back, to be tried again; quarantine: it is not tried again
round trip     one turn of the tracker thread: settle, renew, claim
run            one life of the orchestrator; its id is part of the actor that holds the claims
event          what happened, told to the core (past tense)
command        what the core asks the runtime to do (imperative)

Where things are: ``core`` is pure and decides; ``runtime`` moves bytes and owns processes;
``trackers``, ``executors`` and ``agents`` plug in; ``integrations`` speak other systems' protocols
and are entered by ``registry``; ``ui`` shows and ``cli`` talks to people. ``docs/ARCHITECTURE.md``
is the map.

What projects may import from here is ``Retry``, ``concurrent``, ``progress``, ``trace_context`` and
``variables``, for functions that workers call.
"""

from __future__ import annotations

import os
import time

BEGUN = os.getppid(), time.monotonic()
"""Who has started this process, and when: read before anything else is loaded, as both may be of
another by then."""

TYPE_CHECKING = False  # Without a module that takes longer to load than all of this.
if TYPE_CHECKING:
    from beads_workers.executors.retry import (
        Retry,
        concurrent,
        progress,
        trace_context,
        variables,
    )


FOR_FUNCTIONS = ("Retry", "concurrent", "progress", "trace_context", "variables")

__all__ = ["Retry", "__version__", "concurrent", "progress", "trace_context", "variables"]

__version__ = "0.2.0"


def __getattr__(name: str) -> object:
    # Imported by who asks for it: every command and every worker loads this module.
    if name in FOR_FUNCTIONS:
        from beads_workers.executors import retry

        return getattr(retry, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
