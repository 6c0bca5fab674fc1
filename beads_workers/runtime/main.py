"""The orchestrator's process: ``python -m beads_workers.runtime.main FD``.

``FD`` is a connected socket to the client that starts it. The zygote is forked before all else:
what is loaded by then is copied to every worker, and what only an orchestrator needs is not.
"""

from __future__ import annotations

import gc
import os
import socket
import sys

from beads_workers.runtime.processes import outlive_output
from beads_workers.runtime.zygote import start_zygote


def main(argv: list[str]) -> int:
    """See the module text; returns the exit code."""
    outlive_output()
    os.environ.pop("BEADS_WORKERS_TRUST", None)  # Said to a start, and to nothing that it runs.
    zygote = start_zygote()
    client = socket.socket(fileno=int(argv[0]))
    client.set_inheritable(False)
    gc.disable()  # Until all is loaded: run_fleet.
    from beads_workers.runtime.fleet import run_fleet

    return run_fleet(client, zygote)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
