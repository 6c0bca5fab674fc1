"""CPU time of a command and of all that it starts, whoever has left whom.

    python -m benchmarks.tools.family COMMAND [ARGUMENT]...   # prints the seconds to the last line

It ends when the last process of them has.
"""

from __future__ import annotations

import ctypes
import os
import resource
import subprocess
import sys

PR_SET_CHILD_SUBREAPER = 36


def main(command: list[str]) -> int:
    """See the module text; the exit status is the command's."""
    if ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError("the kernel has no subreapers")
    status = subprocess.call(command, stdin=subprocess.DEVNULL)
    try:
        while True:
            os.wait()  # Orphans come to us: what they have used is counted when they are buried.
    except ChildProcessError:
        pass
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(f"{used.ru_utime + used.ru_stime:.6f}")
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
