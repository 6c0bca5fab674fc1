"""Orphans of what we start come to us, whatever they did to their environment and session."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from beads_workers.runtime import sessions
from tests.support.fleet import until

PARENT = """
import json, os, subprocess, sys, time
from beads_workers.runtime import sessions as orphans
from beads_workers.runtime.kernel import system
assert system.adopt()
kept = subprocess.Popen(["sleep", "600"])
subprocess.run(["sh", "-c", sys.argv[1]])
while not os.path.exists(sys.argv[2]): time.sleep(0.01)
{then}
alive = kept.poll() is None
kept.kill()
print(json.dumps({{"ended": ended, "kept": alive}}))
"""
LEAVE = (
    'env -i setsid sh -c \'trap "" TERM; sleep 600 & echo $! >"$0.new"; mv "$0.new" "$0"; wait\' {}'
)


def run(script: str, pids: Path, then: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-c", PARENT.format(then=then), script, str(pids)],
        env={**os.environ, "PYTHONPATH": os.getcwd()},  # noqa: PTH109
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def test_a_daemon_with_an_empty_environment_ends_with_its_children(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    script = LEAVE.format(pids) + " >/dev/null 2>&1 &"
    report = run(script, pids, "ended = orphans.end({kept.pid})")
    assert report["ended"] >= 2 and report["kept"]
    assert sessions.start_time(int(pids.read_text())) is None


def test_orphans_that_end_by_themselves_are_buried(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    script = f"(sh -c 'echo $$ >{pids}.new; mv {pids}.new {pids}' &)"
    then = """
pid = int(open(sys.argv[2]).read())
ended = 0
while os.path.exists(f"/proc/{pid}"):
    orphans.reap({kept.pid})
    time.sleep(0.01)
"""
    assert run(script, pids, then)["kept"]
    until(lambda: not Path(f"/proc/{pids.read_text().strip()}").exists(), 20)
