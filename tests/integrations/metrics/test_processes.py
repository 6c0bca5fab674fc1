"""What /proc says of real processes."""

from __future__ import annotations

import os
import subprocess
import sys

from beads_workers.integrations.metrics import server


def test_our_own_process_is_there_with_its_use() -> None:
    us = next(p for p in server.read_all() if p.pid == os.getpid())
    assert (us.parent, us.session) == (os.getppid(), os.getsid(0))
    assert 1 << 20 < us.resident_bytes < 1 << 40
    assert abs(us.cpu_seconds - sum(os.times()[:2])) < 1.0


def test_the_time_of_a_child_that_has_ended_goes_to_whoever_waited_for_it() -> None:
    script = "import time\nwhile time.process_time() < 0.2: pass"
    before = server.read(os.getpid())
    subprocess.run([sys.executable, "-c", script], check=True)
    after = server.read(os.getpid())
    assert before is not None and after is not None
    assert after.reaped_seconds - before.reaped_seconds >= 0.15


def test_a_name_of_any_bytes_is_no_obstacle() -> None:
    script = "import ctypes; ctypes.CDLL(None).prctl(15, b') R 1 (', 0, 0, 0); print(); input()"
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None and child.stdin is not None
        child.stdout.readline()
        found = server.read(child.pid)
        child.stdin.close()
    assert found is not None and found.parent == os.getpid()
    assert server.read(child.pid) is None
