"""A flood of junk and a thousand silent connections: the fleet works on, and holds its memory."""

from __future__ import annotations

import itertools
import socket
import threading
from pathlib import Path

import pytest

from beads_workers.core.base import limits
from tests.end_to_end.conftest import Ran, StartFleet
from tests.end_to_end.test_crowds import connect
from tests.support.embedded import EmbeddedProject
from tests.support.fleet import Fleet, until

SILENT, TALKERS, LINES = 1000, 125, 800
"""A hundred thousand lines; on no connection so many that it is closed for them."""
JUNK = (b"{\n", b"no JSON\n", b'{"type":"DONE"}\n', b"\xff\n", b"[" * 50 + b"\n", b"0\n")
GROWN_BYTES_MAX = 20 << 20


def memory(pid: int, what: str) -> int:
    """``VmRSS``: bytes that a process holds; ``VmHWM``: the most that it has ever held."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(what):
            return int(line.split()[1]) << 10
    raise AssertionError(what)


def flood(path: Path) -> None:
    """Every line is sent and read before the connections end."""
    talkers = [connect(path) for _ in range(TALKERS)]
    junk = b"".join(itertools.islice(itertools.cycle(JUNK), LINES))
    for talker in talkers:
        talker.settimeout(60)
        talker.sendall(junk)
    for talker in talkers:
        # The end is answered by the end, once everything before it was read.
        talker.shutdown(socket.SHUT_WR)
        assert talker.recv(1) == b""
        talker.close()


@pytest.mark.timeout(180)
def test_a_hundred_thousand_junk_lines_and_a_thousand_silent_connections_cost_little_memory(
    embedded: EmbeddedProject, start: StartFleet, ran: Ran
) -> None:
    embedded.create_many([{} for _ in range(2000)])
    fleet: Fleet = start(embedded, "-n", "8", "--", "sleep", "0.1")
    until(lambda: len(fleet.journal("finished")) >= 16)
    before = memory(fleet.pid, "VmRSS")
    silent = [connect(fleet.socket) for _ in range(SILENT)]
    sender = threading.Thread(target=flood, args=(fleet.socket,))
    sender.start()
    until(lambda: not sender.is_alive(), 120, "the flood is not read")
    finished = len(fleet.journal("finished"))
    grown = memory(fleet.pid, "VmHWM") - before
    assert grown < GROWN_BYTES_MAX, f"{grown >> 20} MB"
    shown = [n for n in fleet.journal("noted") if n["level"] == "warning"]
    assert len(shown) == TALKERS * limits.BAD_LINES_SHOWN
    until(lambda: len(fleet.journal("finished")) > finished + 8)
    assert {r["outcome"] for r in fleet.journal("finished")} == {"success"}
    assert fleet.journal("worker_exited") == []
    for client in silent:
        client.close()
    assert fleet.call("stop", "--timeout", "1").returncode == 0
    fleet.leaves_nothing()
