"""What a running task prints, told by its worker while it runs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from beads_workers.core.plans import Plan
from beads_workers.runtime.output import TAIL_BYTES, AttemptOutput
from tests.runtime import test_worker
from tests.runtime.test_worker import Bench

bench = test_worker.bench


def test_a_task_that_prints_is_told_of_while_it_runs(bench: Bench) -> None:
    bench.sh("echo compiles 40%; printf half; read go < go")
    os.mkfifo(bench.file("go"))
    bench.peer.task(request_id="r")
    said = bench.peer.expect("PROGRESS")
    assert (said["issue_id"], said["percent"], said["activity"]) == ("t-1", 40, "compiles 40%")
    bench.file("go").write_text("now\n")
    bench.peer.expect("DONE")


def test_an_orchestrator_of_version_1_hears_nothing_of_it(bench: Bench) -> None:
    bench.sh("echo compiles 40%; read go < go")
    os.mkfifo(bench.file("go"))
    bench.peer.task()
    assert bench.peer.hears_nothing(0.5)
    bench.file("go").write_text("now\n")
    bench.peer.expect("DONE")


@pytest.fixture
def output(tmp_path: Path) -> AttemptOutput:
    log = str(tmp_path / "log")
    return AttemptOutput(Plan((), "", "", log, str(tmp_path / "out"), secrets=("sesame",)))


def printed(output: AttemptOutput, text: str) -> str:
    os.write(output.fd, text.encode())
    output.look()
    return output.news()


def test_only_whole_lines_are_news_and_only_once(output: AttemptOutput) -> None:
    assert printed(output, "one\ntw") == "one\n"
    assert printed(output, "") == ""
    assert printed(output, "o\r50%\rhalf") == "one\ntwo\n50%\n"


def test_news_hold_no_secret_and_no_piece_of_one(output: AttemptOutput) -> None:
    assert printed(output, "open sesame\n") == "open ******\n"
    long = "x" * 10 + "sesame" + "y" * (TAIL_BYTES - 3)
    assert printed(output, long + "\n") == "", "the beginning of its line is not seen"
    assert printed(output, "well\n") == "well\n"
