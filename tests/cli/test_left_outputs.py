"""What an attempt had printed is shown although its worker was killed with it."""

from __future__ import annotations

import json
import os
from pathlib import Path

from beads_workers.views.logs import left_outputs
from tests.support import warm

TWICE = "echo try $BW_ATTEMPT; [ $BW_ATTEMPT = 2 ] || kill -9 $PPID"


def run(folder: Path, *arguments: str) -> str:
    """The output of a command of ours, and what it said besides."""
    env = {**os.environ, "XDG_RUNTIME_DIR": str(folder)}
    done = warm.run(arguments, folder, env, timeout=60)
    return done.stdout + done.stderr


def leave(run_folder: Path, name: str, at: float) -> Path:
    """A worker of that name has left it, and has written to it last at this time."""
    path = run_folder / "logs" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text("left\n")
    os.utime(path, (at, at))
    return path


def test_output_belongs_to_the_attempt_in_whose_time_it_was_written_last(tmp_path: Path) -> None:
    first = leave(tmp_path, "lost.W1.out.17.log", 110)
    second = leave(tmp_path, ".W1.out", 210)
    leave(tmp_path, "lost.W11.out.17.log", 110)
    leave(tmp_path, ".W2.out", 210)
    assert left_outputs(tmp_path, "W1", 100, 120) == [first]
    assert left_outputs(tmp_path, "W1", 200, 210.001) == [second]
    assert left_outputs(tmp_path, "W1", 120, 200) == []
    assert left_outputs(tmp_path, "", 100, 300) == []


def test_logs_have_what_was_printed_before_the_worker_was_killed(tmp_path: Path) -> None:
    run(tmp_path, "init")
    run(tmp_path, "add", "one", "--json", "--", "sh", "-c", TWICE)
    run(tmp_path, "start", "-n", "1", "--until-empty", "--retry-delay", "0s")
    ((issue_id, number, left), (_, again, none)) = (
        (line["issue_id"], line["number"], line["left"])
        for line in map(json.loads, run(tmp_path, "logs", "W1", "--json").splitlines())
    )
    assert (number, again, none) == (1, 2, [])
    assert Path(left[0]).read_text() == "try 1\n"
    shown = run(tmp_path, "logs", issue_id)
    assert shown.startswith("try 1\ntry 2\n")
    assert f"attempt 1, W1, killed with its worker: {left[0]}" in shown
    assert "printed nothing" not in shown
    assert run(tmp_path, "logs", "--output") == f"{issue_id}: try 1\n{issue_id}: try 2\n"
