"""Short calls of programs: bounded in time and output, with an empty stdin.

Only for programs that may be killed at any time (``claude --version``, ``git status``), never for
``bd``: see ``trackers/bd/calls``.
"""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from beads_workers.core.base.model import value

OUTPUT_BYTES_MAX = 1 << 20
"""Limit of the output: beyond it the program is killed, and the output so far is kept."""


@value
class ProbeResult:
    """Result of a call; ``status``: the exit status, or None if it was killed at a limit."""

    status: int | None
    stdout: str
    stderr: str
    seconds: float


def ask(
    argv: Sequence[str],
    *,
    folder: Path,
    seconds: float,
    environment: Mapping[str, str] | None = None,
) -> ProbeResult:
    """Run the program in ``folder``; raise ``OSError`` if it cannot be started.

    At a limit, every process of its process group is killed.
    """
    began = time.monotonic()
    process = subprocess.Popen(
        argv,
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    with process:
        outputs, in_time = _read(process, began + seconds)
        if in_time:
            in_time = _ended(process, began + seconds)
        if not in_time:
            # The process is not reaped yet, so no other group can have its number.
            os.killpg(process.pid, signal.SIGKILL)
    stdout, stderr = (part.decode("utf-8", "replace") for part in outputs)
    status = process.returncode if in_time else None
    return ProbeResult(status, stdout, stderr, time.monotonic() - began)


def _read(process: subprocess.Popen[bytes], deadline: float) -> tuple[list[bytes], bool]:
    """Read both outputs to their end; return False if they exceed time or size."""
    assert process.stdout is not None and process.stderr is not None
    outputs = [b"", b""]
    with selectors.DefaultSelector() as selector:
        for index, stream in enumerate((process.stdout, process.stderr)):
            selector.register(stream, selectors.EVENT_READ, index)
        while selector.get_map():
            ready = selector.select(max(deadline - time.monotonic(), 0))
            if not ready:
                return outputs, False
            for key, _ in ready:
                data = os.read(key.fd, 1 << 16)
                outputs[key.data] += data
                if not data:
                    selector.unregister(key.fileobj)
                if len(outputs[key.data]) > OUTPUT_BYTES_MAX:
                    return outputs, False
    return outputs, True


def _ended(process: subprocess.Popen[bytes], deadline: float) -> bool:
    try:
        process.wait(max(deadline - time.monotonic(), 0))
    except subprocess.TimeoutExpired:
        return False
    return True
