"""A log that grew too long loses its middle: docs/OPERATIONS.md, "The run directory"."""

from __future__ import annotations

import os
import re
import threading
from pathlib import Path

import pytest

from beads_workers.core.base import limits
from beads_workers.runtime.output import truncate
from tests.runtime import test_worker
from tests.runtime.test_worker import Bench

bench = test_worker.bench
MAX = limits.LOG_BYTES_MIN


def numbers(text: str) -> list[int]:
    """Of whole lines only: the beginning may end within one."""
    return [int(line) for line in text.splitlines() if line.isdecimal() and len(line) == 9]


def left_out(text: str) -> int:
    (count,) = re.findall(r"^\[beads-workers: (\d+) bytes are left out here", text, re.MULTILINE)
    return int(count)


def lines(first: int, last: int) -> str:
    return "".join(f"{number:09}\n" for number in range(first, last))


class Log:
    """A log as a worker has it: open for appending."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.fd = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT)

    def add(self, text: str) -> None:
        os.write(self.fd, text.encode())


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return Log(tmp_path / "log")


def test_a_log_within_its_limit_is_left_alone(log: Log) -> None:
    log.add("x" * MAX)
    assert truncate(log.fd, MAX) is None
    assert log.path.read_text() == "x" * MAX


def test_beginning_and_end_are_kept_and_a_line_says_how_much_is_missing(log: Log) -> None:
    written = lines(0, 100_000)
    log.add(written)
    cut = truncate(log.fd, MAX)
    assert cut is not None
    text = log.path.read_text()
    assert text.startswith(written[: MAX // 4] + "\n[beads-workers: ")
    head, tail = text[: MAX // 4], text[cut.kept :]
    assert written.endswith(tail)
    assert MAX // 2 - (64 << 10) <= len(tail) <= MAX // 2
    assert tail[9] == "\n", "it begins with a whole line"
    assert len(head) + left_out(text) + len(tail) == len(written)


def test_a_second_cut_counts_what_the_first_one_left_out(log: Log) -> None:
    log.add(lines(0, 100_000))
    truncate(log.fd, MAX)
    log.add(lines(100_000, 200_000))
    truncate(log.fd, MAX)
    text = log.path.read_text()
    tail = text[text.index("]") :]
    assert len(text) < MAX
    assert numbers(tail)[-1] == 199_999
    kept = len(lines(0, 200_000)) - left_out(text)
    assert kept == len(text) - 128


def test_what_is_written_meanwhile_lands_behind_it_in_order(log: Log) -> None:
    def write() -> None:
        for first in range(0, 200_000, 100):
            log.add(lines(first, first + 100))

    writer = threading.Thread(target=write)
    writer.start()
    while writer.is_alive():
        truncate(log.fd, MAX)
    writer.join()
    text = log.path.read_text()
    found = numbers(text)
    assert found == sorted(set(found))
    assert len(found) > MAX // 4 // 10
    assert left_out(text) > MAX


def test_a_log_without_lines_is_shortened_too(log: Log) -> None:
    log.add("x" * (3 * MAX))
    truncate(log.fd, MAX)
    assert len(log.path.read_bytes()) == MAX // 4 + 128 + MAX // 2


def test_an_endless_task_keeps_its_log_short_and_its_last_line_is_its_error(bench: Bench) -> None:
    bench.sh("seq 1 1000000; echo the last word >&2; exit 3", log_bytes_max=MAX)
    assert bench.result("FAILED")["error"] == "the last word"
    text = bench.log()
    assert len(text) <= MAX
    assert text.startswith("1\n2\n3\n")
    assert text.endswith("1000000\nthe last word\n")
    assert left_out(text) > 5 * MAX


def test_a_running_task_is_kept_short_while_it_prints(bench: Bench) -> None:
    output = bench.run / "logs" / ".W1.out"
    # It ends when its own log has been cut, so it proves that nobody waits for its end.
    bench.sh(
        f"seq 1 100000; while [ $(stat -c %s '{output}') -gt {MAX} ]; do sleep 0.2; done",
        log_bytes_max=MAX,
    )
    bench.result("DONE")
    assert len(bench.log()) <= MAX
