"""What every worker does first, done in the zygote before it forks one.

A page of memory is shared by the zygote and its workers until somebody writes to it, and running
Python writes: to code that is being specialised, to caches of attributes, to free lists. What was
written before the fork need not be written again by each of a hundred workers.
"""

from __future__ import annotations

import os
import signal
import socket
import time
import traceback
from functools import partial

from beads_workers.core.message_types import Shutdown, Wait
from beads_workers.core.messages import encode
from beads_workers.core.settings import WorkerSettings
from beads_workers.edge.worker import run_worker

TIMES = 4


def rehearse(settings: WorkerSettings) -> None:
    """Be a worker that is told to wait, and then to leave; what goes wrong is said on stderr.

    There must be no child yet. INT, TERM, HUP and CHLD do nothing afterwards, until they are set.
    """
    said = (Wait(1), Shutdown("user_requested"))
    lines = b"".join(encode(m, settings.worker_id, time.time(), v1=False) for m in said)
    for _ in range(TIMES):
        ours, theirs = socket.socketpair()
        theirs.sendall(lines)
        try:
            if run_worker(settings, dial=partial(_given, ours)):
                return
        except Exception:  # Whatever it met: the workers do without, and find out by themselves.
            traceback.print_exc()
            return
        finally:
            ours.close()
            theirs.close()
            if (wake := signal.set_wakeup_fd(-1)) >= 0:
                os.close(wake)


def _given(connection: socket.socket) -> socket.socket:
    return connection
