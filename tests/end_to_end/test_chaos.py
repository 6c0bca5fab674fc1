"""``chaos`` as its users run it: whatever is killed, every promise is kept.

A few kills each. ``scripts/prove`` has hundreds, and ``.ci/run`` a tenth of those on the embedded
tracker, and while branches land.
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
from tests.support.bd import OLD, VERSIONS, bd_environment
from tests.support.fleet import PROGRAM, until


def chaos(
    folder: Path, *arguments: str, environment: dict[str, str] | None = None
) -> tuple[int, dict[str, Any], str]:
    """Exit code, what ``--json`` says, and stderr."""
    done = subprocess.run(
        [*PROGRAM, "chaos", "--json", *arguments],
        cwd=folder,
        env={**(environment or os.environ), "TMPDIR": str(folder)},
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


@pytest.mark.timeout(300)
@pytest.mark.parametrize("version", VERSIONS)
def test_kills_on_real_bd_break_no_promise(tmp_path: Path, version: str) -> None:
    arguments = ("--source", "bd", "--kills", "2", "--seed", "3")
    code, told, said = chaos(tmp_path, *arguments, environment=bd_environment(version))
    assert (code, broken(told)) == (0, []), said
    assert version in told["tracker"]
    assert told["kills"] == 2
    assert told["closed"] + told["quarantined"] == told["issues"] > 0


@pytest.mark.timeout(300)
def test_kills_beside_workers_that_call_bd_themselves_break_no_promise(tmp_path: Path) -> None:
    arguments = ("--source", "bd", "--bd-calls", "worker", "--kills", "2", "--seed", "5")
    code, told, said = chaos(tmp_path, *arguments, environment=bd_environment(OLD))
    assert (code, broken(told)) == (0, []), said
    assert (told["kills"], told["bd_calls"]) == (2, "worker")
    assert told["closed"] + told["quarantined"] == told["issues"] > 0


@pytest.mark.timeout(300)
def test_kills_while_branches_land_break_no_promise(tmp_path: Path) -> None:
    code, told, said = chaos(tmp_path, "--landing", "--kills", "2", "--seed", "1")
    assert (code, broken(told)) == (0, []), said
    assert (told["kills"], told["landing"]) == (2, True)
    assert {"lander", "gate"} <= set(told["kills_by_kind"])
    assert told["closed"] > 0 and told["closed"] + told["quarantined"] == told["issues"]
    assert [p for p in told["promises"] if "passed the gate as that very tree" in p["text"]]
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


def test_an_orchestrator_killed_with_forty_running_tasks_loses_none_of_them(
    tmp_path: Path,
) -> None:
    code, told, said = chaos(tmp_path, "--kills", "2", "--only", "orchestrator", "-n", "40")
    assert (code, broken(told)) == (0, []), said
    assert told["kills_by_kind"] == {"orchestrator": 2}
    assert told["at_work"] == {"least": 40, "most": 40}


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
