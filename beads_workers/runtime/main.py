"""The orchestrator's process: ``python -m beads_workers.runtime.main FD``.

``FD`` is a connected socket to the client that starts the fleet. The zygote is forked first: every
worker is a copy of what is loaded by then, without what only an orchestrator needs.
"""

from __future__ import annotations

import gc
import os
import socket
import sys

from beads_workers.runtime.processes import outlive_output
from beads_workers.runtime.zygote import start_zygote


def main(argv: list[str]) -> int:
    """Run the orchestrator's process, see the module text; return the exit code."""
    outlive_output()
    os.environ.pop("BEADS_WORKERS_TRUST", None)  # Meant for a start, not for anything that it runs.
    zygote = start_zygote()
    client = socket.socket(fileno=int(argv[0]))
    client.set_inheritable(False)
    gc.disable()  # Until everything is loaded: run_fleet.
    from beads_workers.runtime.fleet import run_fleet

    return run_fleet(client, zygote)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
