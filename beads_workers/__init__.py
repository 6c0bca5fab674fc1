"""beads-workers drains an issue tracker with a fleet of workers.

The vocabulary of the code, with one word for one thing:

job            one piece of work; for a tracker, one issue
attempt        one try at a job by one worker: number from 1, request id, start, deadline
outcome        how an attempt ended: success, error, retry, timeout, cancelled, lost, not_found
policy         the one pure function that turns an outcome into finish, requeue or quarantine
journal        the append-only record of every transition, written before anything is acted on
reducer        the one fold over the journal that knows the state of each issue
source         where jobs come from, and who is to get an answer: bd, the built-in tracker, queues
executor       what runs an attempt: a connected worker and, in it, a command or an agent

claim          mark an issue in the tracker as ours alone
prefetch       tasks that a worker was sent and has not started yet
settle         close, release or quarantine an issue in the tracker
requeue        give an issue back, to be tried again; quarantine: not to be tried again
round trip     one turn of the tracker thread: settle, renew, claim
run            one life of the orchestrator; its id is part of the actor that holds the claims
event          an occurrence that the core is told of (past tense)
command        a request of the core to the runtime (imperative)

Packages: ``core`` is pure and decides; ``runtime`` moves bytes and owns processes; ``trackers``,
``executors`` and ``agents`` are plug-ins; ``integrations`` speak other systems' protocols and are
loaded by ``registry``; ``ui`` shows the state; ``cli`` has the commands. ``docs/ARCHITECTURE.md``
is the map.

Projects may import ``Retry``, ``concurrent``, ``progress``, ``trace_context`` and ``variables``
from here, for functions that workers call.
"""

from __future__ import annotations

import os
import time

BEGUN = os.getppid(), time.monotonic()
"""Process id of the parent, and monotonic seconds at the start of this process.

Both are read before anything else is loaded: the parent may have changed by then.
"""

TYPE_CHECKING = False  # typing loads more slowly than all of this package's own start.
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
    # Imported on demand: every command and every worker loads this module.
    if name in FOR_FUNCTIONS:
        from beads_workers.executors import retry

        return getattr(retry, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
