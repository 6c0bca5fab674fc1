"""Asking programs: in time, out of time, too much, and with children that hold the pipe."""

from __future__ import annotations

from pathlib import Path

import pytest

from beads_workers.checks.probe import OUTPUT_BYTES_MAX, ask
from beads_workers.runtime.sessions import start_time
from tests.support.fleet import until


def test_both_outputs_and_the_exit_status_come_back(tmp_path: Path) -> None:
    reply = ask(["sh", "-c", "pwd; echo wrong >&2; exit 3"], folder=tmp_path, seconds=20)
    assert (reply.status, reply.stdout, reply.stderr) == (3, f"{tmp_path}\n", "wrong\n")


def test_stdin_is_empty_and_no_terminal(tmp_path: Path) -> None:
    assert ask(["cat"], folder=tmp_path, seconds=20).status == 0


@pytest.mark.parametrize("script", ["sleep 100", "exec >&- 2>&-; sleep 100", "sleep 100 & wait"])
def test_what_does_not_answer_is_ended_with_all_that_it_started(
    tmp_path: Path, script: str
) -> None:
    reply = ask(["sh", "-c", f"echo $$ >pid; {script}"], folder=tmp_path, seconds=0.3)
    assert reply.status is None
    assert reply.seconds < 5
    pid = int((tmp_path / "pid").read_text())
    until(lambda: start_time(pid) is None, 20)


def test_a_child_that_stays_behind_with_the_pipe_does_not_hold_us_up(tmp_path: Path) -> None:
    reply = ask(["sh", "-c", "sleep 100 & echo $! >pid"], folder=tmp_path, seconds=0.3)
    assert reply.status is None
    pid = int((tmp_path / "pid").read_text())
    until(lambda: start_time(pid) is None, 20)


def test_endless_output_is_cut_off(tmp_path: Path) -> None:
    reply = ask(["yes"], folder=tmp_path, seconds=30)
    assert reply.status is None
    assert OUTPUT_BYTES_MAX < len(reply.stdout) < 2 * OUTPUT_BYTES_MAX


def test_what_cannot_be_started_raises(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        ask([str(tmp_path / "nothing")], folder=tmp_path, seconds=1)
