"""What the steps of an attempt load: each is a process, and most of a short one is its imports."""

from __future__ import annotations

import subprocess
import sys

STEPS = ("attempts.deliver", "attempts.run", "worktrees.preparation", "worktrees.report")
DEAR = ("beads_workers.core.records.journal", "_hashlib", "socket", "uuid")


def test_no_step_loads_what_most_attempts_do_not_need() -> None:
    named = ", ".join(f"beads_workers.{step}" for step in STEPS)
    script = f"import {named}, sys; print(*(name for name in {DEAR} if name in sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == []
