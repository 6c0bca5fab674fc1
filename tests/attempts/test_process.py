"""An agent's process: heard whole in little memory, ended by its clocks, and nothing left of it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from beads_workers.attempts import process


class Printed:
    """What was printed. ``result``: words at which the agent has told its result."""

    def __init__(self, result: bytes = b"\0") -> None:
        self.out, self.err, self.result = bytearray(), bytearray(), result

    def run(self, line: str, prompt: str | None = None, **clocks: float) -> process.ProcessEnd:
        hearing = process.Hearing(self.output, self.err.extend, lambda: None)
        return process.run_agent(
            ("sh", "-c", line),
            prompt,
            dict(os.environ),
            hearing,
            process.Clocks(**clocks),
            lambda: False,
        )

    def output(self, data: bytes) -> bool:
        self.out += data
        return self.result in self.out


def test_it_reads_its_prompt_to_the_end_and_is_heard() -> None:
    printed = Printed()
    ended = printed.run("wc -c; echo trouble >&2; exit 3", "ä" * 500_000)
    assert (ended.status, ended.ended_by) == (3, process.EndedBy.NOBODY)
    assert (printed.out.strip(), bytes(printed.err)) == (b"1000000", b"trouble\n")


def test_without_a_prompt_there_is_nothing_to_read() -> None:
    printed = Printed()
    assert printed.run("cat").status == 0
    assert not printed.out


def test_a_signal_is_told_as_one() -> None:
    assert Printed().run("kill -9 $$").status == -9


def test_one_that_cannot_be_started_is_an_error() -> None:
    with pytest.raises(process.AgentNotStarted, match="No such file"):
        process.run_agent(
            ("no-such-agent",),
            "",
            dict(os.environ),
            process.Hearing(len, len, lambda: None),
            process.Clocks(),
            bool,
        )


def test_silence_ends_it_and_a_word_in_time_does_not() -> None:
    ended = Printed().run("sleep 60", stall_seconds=1.0, term_seconds=0.5)
    assert (ended.ended_by, ended.status) == (process.EndedBy.STALL, -15)
    talks = Printed().run("for i in 1 2 3 4 5; do echo $i; sleep 0.5; done", stall_seconds=2.0)
    assert (talks.ended_by, talks.status) == (process.EndedBy.NOBODY, 0)


def test_one_that_ignores_term_is_killed() -> None:
    ended = Printed().run(
        "trap '' TERM; while :; do sleep 0.1; done", stall_seconds=0.5, term_seconds=0.5
    )
    assert (ended.ended_by, ended.status) == (process.EndedBy.STALL, -9)


def test_one_that_lingers_after_its_result_is_ended() -> None:
    ended = Printed(b"RESULT").run("echo RESULT; sleep 60", after_result_seconds=0.5)
    assert ended.ended_by is process.EndedBy.IDLE_AFTER_RESULT


def test_somebody_may_end_it() -> None:
    began = time.monotonic()
    ended = process.run_agent(
        ("sleep", "60"),
        None,
        dict(os.environ),
        process.Hearing(len, len, lambda: None),
        process.Clocks(term_seconds=0.5),
        lambda: time.monotonic() - began > 0.5,
    )
    assert ended.ended_by is process.EndedBy.MUST_END


def test_nothing_that_it_started_in_its_session_is_left(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    printed = Printed()
    ended = printed.run(f"sleep 600 & echo $! >{pid}; echo said")
    assert (ended.status, bytes(printed.out)) == (0, b"said\n")
    # It held our pipes, and is gone.
    assert _is_gone(int(pid.read_text()))


_ORPHAN = """
import os, sys
from beads_workers.attempts.process import Clocks, Hearing, run_agent
from beads_workers.runtime.kernel import system
system.adopt()
run_agent(
    ("sh", "-c", "setsid sh -c 'echo $$ >" + sys.argv[1] + "; exec sleep 600' & sleep 1"),
    None, dict(os.environ), Hearing(len, len, lambda: None), Clocks(), lambda: False,
)
"""


def test_nor_an_orphan_in_a_session_of_its_own(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    subprocess.run([sys.executable, "-c", _ORPHAN, str(pid)], check=True, timeout=60)
    assert _is_gone(int(pid.read_text()))


_MEMORY = """
import os, resource
from beads_workers.attempts.process import Clocks, Hearing, run_agent
count = 0
def heard(data):
    global count
    count += len(data)
hearing = Hearing(heard, heard, lambda: None)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
line = "head -c 100000000 /dev/zero; head -c 1000000 /dev/zero >&2"
ended = run_agent(("sh", "-c", line), None, dict(os.environ), hearing, Clocks(), lambda: False)
after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(count, ended.status, after - before)
"""


def test_a_hundred_megabytes_take_no_memory() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _MEMORY], capture_output=True, text=True, check=True, timeout=60
    )
    count, status, grown_kib = map(int, done.stdout.split())
    assert (count, status) == (101_000_000, 0)
    assert grown_kib < 4096


def _is_gone(pid: int) -> bool:
    """Within moments: the kernel buries what was killed in its own time."""
    until = time.monotonic() + 10
    while _lives(pid) and time.monotonic() < until:
        time.sleep(0.02)
    return not _lives(pid)


def _lives(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"
