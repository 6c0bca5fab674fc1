"""Where the orchestrator's time goes: a fleet whose orchestrator runs under cProfile.

    python -m benchmarks.tools.profile OUTPUT ARGUMENT...   # the arguments of beads-workers
    python -m pstats OUTPUT

The command starts its orchestrator as ``sys.executable -P -m beads_workers.runtime.main FD``; here
that program is this module, so nothing in the product knows of it. Only the loop's thread is
profiled.
"""

from __future__ import annotations

import cProfile
import sys
import tempfile
from pathlib import Path

WRAPPER = """#!/bin/sh
exec {python} -m benchmarks.tools.profile --inside {output} "$4"
"""


def main(arguments: list[str]) -> int:
    """See the module text."""
    if arguments[0] == "--inside":
        return _inside(Path(arguments[1]), arguments[2:])
    from beads_workers.cli import app

    with tempfile.TemporaryDirectory() as folder:
        wrapper = Path(folder) / "python"
        wrapper.write_text(
            WRAPPER.format(python=sys.executable, output=Path(arguments[0]).resolve())
        )
        wrapper.chmod(0o700)
        sys.executable = str(wrapper)
        sys.argv = ["beads-workers", *arguments[1:]]
        app.main()
    return 0


def _inside(output: Path, arguments: list[str]) -> int:
    from beads_workers.runtime import main as orchestrator

    profile = cProfile.Profile()
    try:
        return profile.runcall(orchestrator.main, arguments)
    finally:
        profile.dump_stats(output)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
