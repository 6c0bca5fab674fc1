"""What a running task prints or says of itself, told by its worker while it runs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from beads_workers import progress
from beads_workers.core.base.plans import Plan
from beads_workers.runtime.output import TAIL_BYTES, AttemptOutput, ProgressFile
from tests.runtime import test_worker
from tests.runtime.test_worker import Bench

bench = test_worker.bench


def test_a_task_that_prints_is_told_of_while_it_runs(bench: Bench) -> None:
    bench.sh("echo compiles 40%; printf half; read go < go")
    os.mkfifo(bench.file("go"))
    bench.peer.task(request_id="r")
    message = bench.peer.expect("PROGRESS")
    assert (message["issue_id"], message["percent"], message["activity"]) == (
        "t-1",
        40,
        "compiles 40%",
    )
    bench.file("go").write_text("now\n")
    bench.peer.expect("DONE")


def test_what_a_task_writes_to_its_progress_file_is_told_and_not_what_it_prints(
    bench: Bench,
) -> None:
    bench.sh('echo "70% half of it" >"$BW_PROGRESS"; read go < go; echo noise; read go < end')
    os.mkfifo(bench.file("go"))
    os.mkfifo(bench.file("end"))
    bench.peer.task(request_id="r")
    message = bench.peer.expect("PROGRESS")
    assert (message["percent"], message["activity"]) == (70, "half of it")
    bench.file("go").write_text("now\n")
    assert bench.peer.hears_nothing(1.5)
    bench.file("end").write_text("now\n")
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
    files = log, str(tmp_path / "out")
    progress = str(tmp_path / "progress")
    return AttemptOutput(Plan((), "", "", *files, progress_file=progress, secrets=("sesame",)))


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


def test_a_progress_file_counts_once_it_is_written_and_without_secrets(
    output: AttemptOutput, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BW_PROGRESS", str(tmp_path / "progress"))
    assert printed(output, "one\n") == "one\n"
    progress("open\nsesame", 40.4)
    assert printed(output, "two\n") == "40% open ******\n"
    assert printed(output, "three\n") == ""
    progress("well")
    assert printed(output, "") == "well\n"


def test_one_of_an_earlier_task_or_that_leads_elsewhere_says_nothing(tmp_path: Path) -> None:
    (tmp_path / "progress").write_text("old\n")
    files = {name: ProgressFile(str(tmp_path / name)) for name in ("progress", "link", "pipe")}
    (tmp_path / "elsewhere").write_text("9% elsewhere\n")
    (tmp_path / "link").symlink_to("elsewhere")
    os.mkfifo(tmp_path / "pipe")
    assert {name: file.news() for name, file in files.items()} == dict.fromkeys(files, b"")
    (tmp_path / "progress").write_text("new\n")
    os.utime(tmp_path / "progress", (1.0, 1.0))
    assert files["progress"].news() == b"new\n"


def test_outside_of_a_task_nobody_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("BW_PROGRESS", raising=False)
    progress("well", 10)
    monkeypatch.setenv("BW_PROGRESS", str(tmp_path / "no" / "such"))
    progress("well", 10)
