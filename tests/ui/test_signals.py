"""The box of signals, under a storm of them."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator

import pytest

from beads_workers.ui.terminal import SignalBox

STORM = 30_000
SENDER = f'i=0; while [ "$i" -lt {STORM} ]; do kill -CONT $0; kill -WINCH $0; i=$((i+1)); done'


@pytest.fixture
def box() -> Iterator[SignalBox]:
    box = SignalBox()
    yield box
    box.close()


def test_signals_that_come_while_others_are_noted_break_nothing(box: SignalBox) -> None:
    with subprocess.Popen(["sh", "-c", SENDER, str(os.getpid())]) as sender:
        while sender.poll() is None:
            pass  # Each is noted among ever more that nobody has read.
    assert set(box.take()) == {signal.SIGCONT, signal.SIGWINCH}
    assert box.take() == []
