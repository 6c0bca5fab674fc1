"""Output that cannot be written ends nobody: stderr, stdout, logs, pipes, with real errors."""

from __future__ import annotations

import errno
import os
import selectors
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from beads_workers.core.base.plans import Plan
from beads_workers.core.base.wire import Ready
from beads_workers.core.schedule.events import Arrived
from beads_workers.core.workers.worker_events import MessageReceived
from beads_workers.runtime.loop import Mailbox
from beads_workers.runtime.output import AttemptOutput, CapturedOutput
from beads_workers.runtime.processes import NOT_KEPT, received_signals
from beads_workers.runtime.worker import WorkerConnection
from beads_workers.runtime.zygote_loop import Reports
from tests.runtime.test_streams import Short

FULL = "/dev/full"
"""Whatever is written there meets ENOSPC."""

OUTLIVES = "from beads_workers.runtime.processes import outlive_output; outlive_output(); "
SPEAKS = """
import sys, traceback, warnings
print("a line")
print("a line", file=sys.stderr, flush=True)
warnings.warn("a warning")
try:
    1 / 0
except ZeroDivisionError:
    traceback.print_exc()
sys.stdout.flush()
sys.exit(3)
"""


def exit_code(program: str, output: str) -> int:
    with open(output, "wb") as out:
        command = [sys.executable, "-c", program]
        return subprocess.run(command, stdout=out, stderr=out, check=False).returncode


def test_a_process_that_outlives_its_output_ends_as_it_would_have() -> None:
    assert exit_code(SPEAKS, FULL) != 3, "or this test shows nothing"
    assert exit_code(OUTLIVES + SPEAKS, FULL) == 3


def test_what_can_be_written_is(tmp_path: Path) -> None:
    file = tmp_path / "said"
    assert exit_code(OUTLIVES + SPEAKS, str(file)) == 3
    for words in ("a line\n", "a warning", "ZeroDivisionError"):
        assert words in file.read_text()
    assert file.read_text().count("a line\n") == 2


def test_children_that_are_forked_outlive_it_as_well() -> None:
    forks = "import os\nif (pid := os.fork()):\n    sys.exit(os.waitpid(pid, 0)[1] >> 8)\n"
    assert exit_code(OUTLIVES + "import sys\n" + forks + SPEAKS, FULL) == 3


def test_a_line_of_ours_to_a_full_disk_raises_nothing() -> None:
    says = (
        "from beads_workers.runtime.processes import say; say('W1', 'words'); raise SystemExit(3)"
    )
    assert exit_code(says, FULL) == 3


def test_whoever_reads_may_still_be_missed() -> None:
    program = (
        "from beads_workers.runtime.processes import NOT_KEPT, outlive_output\n"
        "outlive_output(lambda error: error.errno in NOT_KEPT)\n"
        "import os\n"
        "try:\n    print('words', flush=True)\nexcept BrokenPipeError:\n    os._exit(4)\n"
        "os._exit(3)"
    )
    assert exit_code(program, FULL) == 3
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run([sys.executable, "-c", program], stdout=writing, check=False)
    os.close(writing)
    assert done.returncode == 4
    assert errno.EPIPE not in NOT_KEPT


# --- the mailbox ---------------------------------------------------------------------------------


def test_an_event_is_collected_although_the_wake_up_pipe_is_broken() -> None:
    with selectors.DefaultSelector() as selector:
        mailbox = Mailbox(selector, of_signals=False)
        mailbox._read.close()
        with pytest.raises(BrokenPipeError):
            mailbox._write.send(b"\0")
        mailbox.post(Arrived())
        assert mailbox.collect() == [Arrived()]
        mailbox._write.close()


def test_a_wake_up_pipe_that_is_reset_ends_no_turn() -> None:
    with selectors.DefaultSelector() as selector:
        mailbox = Mailbox(selector, of_signals=False)
        mailbox._read.send(b"nobody reads this")
        mailbox._write.close()  # With something unread: the other end is reset.
        mailbox._posted.append(Arrived())
        for key, mask in selector.select(0):
            key.data(mask)
        assert mailbox.collect() == [Arrived()]
        mailbox._read.close()


def test_a_wake_up_of_signals_that_is_reset_is_heard_as_none() -> None:
    ours, theirs = socket.socketpair()
    ours.send(b"nobody reads this")
    theirs.close()
    assert received_signals(ours) == b""
    ours.close()


# --- what a task prints --------------------------------------------------------------------------


def plan(folder: Path) -> Plan:
    return Plan((), "", "", str(folder / "log"), str(folder / ".W1.out"), 1 << 20)


def test_an_output_that_cannot_be_read_any_more_costs_no_outcome(tmp_path: Path) -> None:
    output = AttemptOutput(plan(tmp_path))
    os.close(output.fd)  # What an error of its disk looks like: no call works.
    assert output.end() == ""
    assert output.fd == -1


def test_a_result_is_kept_although_the_log_takes_nothing() -> None:
    log = os.open(FULL, os.O_WRONLY)
    captured = CapturedOutput(log)
    os.write(captured.writing, b"words\n")
    assert captured.pump()
    os.close(log)
    os.write(captured.writing, b"more\n")
    assert captured.pump(), "not even with an error that is none of a full disk"
    assert captured.end() == '"words\\nmore"'


# --- connections ---------------------------------------------------------------------------------


def ready_line(peer: socket.socket) -> bool:
    peer.settimeout(5)
    return b"READY" in peer.recv(4096)


def test_a_worker_s_word_waits_for_a_kernel_that_is_short_of_memory() -> None:
    ours, peer = socket.socketpair()
    short = Short(fileno=ours.detach())
    with selectors.PollSelector() as selector:
        connection = WorkerConnection(lambda: short, "W1", selector)
        connection.connect()
        connection.send(Ready("W1"))
        short.error = errno.ENOBUFS
        assert list(connection.flush()) == []
        assert list(connection.flush()) == []
        assert ready_line(peer)
        connection.say_goodbye()
    peer.close()


@pytest.mark.parametrize("error", [errno.EPIPE, errno.ECONNRESET, errno.EIO])
def test_a_worker_s_word_that_is_lost_ends_its_connection(error: int) -> None:
    ours, peer = socket.socketpair()
    short = Short(fileno=ours.detach())
    with selectors.PollSelector() as selector:
        connection = WorkerConnection(lambda: short, "W1", selector)
        connection.connect()
        connection.send(Ready("W1"))
        short.error = error
        peer.sendall(b'{"type":"SHUTDOWN","reason":"error"}\n')
        assert list(connection.flush()) == []
        peer.settimeout(5)
        assert peer.recv(100) == b"", "or the orchestrator would wait for that word for ever"
        (heard_last,) = connection.receive()
        assert isinstance(heard_last, MessageReceived), "what had come before is still read"
        connection.say_goodbye()
    peer.close()


@pytest.mark.parametrize(("error", "reported"), [(errno.ENOBUFS, b"1"), (errno.EPIPE, b"")])
def test_a_report_of_the_zygote_waits_or_its_end_is_seen(error: int, reported: bytes) -> None:
    ours, peer = socket.socketpair()
    short = Short(fileno=ours.detach())
    wait_end, report_end = os.pipe()
    with selectors.DefaultSelector() as selector:
        selector.register(short, selectors.EVENT_READ)
        reports = Reports(short, selector)
        reports.say({"spawned": "W1"})
        reports.hold(report_end, 1)
        short.error = error
        reports.flush()
        if reported:
            reports.flush()
        peer.settimeout(5)
        assert (b"spawned" in peer.recv(4096)) is bool(reported)
        # A worker starts only when it was reported.
        assert os.read(wait_end, 10) == reported
    os.close(wait_end)
    short.close()
    peer.close()
