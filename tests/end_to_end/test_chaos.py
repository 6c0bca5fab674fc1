"""``chaos`` as its users run it: whatever is killed, every promise is kept.

A few kills on the built-in tracker. ``scripts/prove`` has hundreds on every tracker, beside workers
that call ``bd`` themselves, with forty running tasks and while branches land, and ``.ci/run`` a
tenth of them.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from beads_workers.runtime import sessions
from tests.support.fleet import PROGRAM, until


def chaos(folder: Path, *arguments: str) -> tuple[int, dict[str, Any], str]:
    """Exit code, what ``--json`` says, and stderr."""
    done = subprocess.run(
        [*PROGRAM, "chaos", "--json", *arguments],
        cwd=folder,
        env={**os.environ, "TMPDIR": str(folder)},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)["chaos"], done.stderr


def broken(told: dict[str, Any]) -> list[Any]:
    return [promise for promise in told["promises"] if promise["broken"]]


@pytest.mark.timeout(300)
def test_kills_of_each_kind_on_the_embedded_tracker_break_no_promise(tmp_path: Path) -> None:
    code, told, said = chaos(tmp_path, "--kills", "7", "--seed", "1")
    assert (code, broken(told)) == (0, []), said
    assert told["kills"] == 7
    assert {"orchestrator", "worker", "task", "zygote"} <= set(told["kills_by_kind"])
    assert told["closed"] + told["quarantined"] == told["issues"] > 0
    assert len(told["promises"]) >= 10
    assert list(tmp_path.iterdir()) == [], "the folder is left"


def test_workers_that_call_the_embedded_tracker_are_refused(tmp_path: Path) -> None:
    done = subprocess.run(
        [*PROGRAM, "chaos", "--bd-calls", "worker"],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr.startswith("error: --bd-calls worker: not here\nhint: ")


def test_ctrl_c_ends_every_process_and_removes_the_folder(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [*PROGRAM, "chaos", "--kills", "1000"],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stderr=subprocess.PIPE,
        text=True,
    )
    said = until(lambda: [line for f in tmp_path.glob("*/tasks.jsonl") for line in f.open()])
    run_ids = {json.loads(said[0])["run"]}
    (info,) = tmp_path.glob("*/project/.beads-workers/run.json")
    socket = Path(json.loads(info.read_text())["socket"])
    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGINT)
    assert process.wait(20) == 130
    assert not socket.exists()
    assert [pid for run_id in run_ids for pid in sessions.token_holders(run_id)] == []
    assert list(tmp_path.iterdir()) == []


def test_without_bd_on_the_path_it_says_so(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "beads_workers", "chaos", "--source", "bd"],
        cwd=tmp_path,
        env={**os.environ, "PATH": str(tmp_path), "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 6
    assert list(tmp_path.iterdir()) == []
    assert done.stderr.startswith("error: bd is not on PATH\nhint: ")
