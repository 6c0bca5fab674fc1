"""The process that calls functions for one worker: ``python -m beads_workers.edge.functions.host``.

Descriptor 3 is its worker. Every line is a call, and comes with the descriptor that its output
goes to; every call is answered by one line, in order. It ends with its worker's connection.
"""

from __future__ import annotations

import array
import json
import os
import socket
import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from beads_workers.core.framing import Line, LineReader
from beads_workers.core.outcomes import OutcomeKind
from beads_workers.edge.functions.calls import LINE_BYTES_MAX, WORKER_FD
from beads_workers.executors.functions.calling import Answer, Caller
from beads_workers.executors.functions.resolving import NotCallable, resolve

READ_BYTES = 1 << 16
_FD_BYTES = socket.CMSG_SPACE(array.array("i").itemsize)


def main(allowed: Sequence[str]) -> None:
    """Call what comes until there is nobody left to answer."""
    worker = socket.socket(fileno=WORKER_FD)
    os.set_inheritable(WORKER_FD, False)
    # What is called lies in the project, as for any program that is started there.
    sys.path.insert(0, os.getcwd())  # noqa: PTH109
    caller, reader = Caller(), LineReader(LINE_BYTES_MAX)
    while True:
        received, control, _, _ = worker.recvmsg(READ_BYTES, _FD_BYTES)
        if not received:
            break
        _print_to(control)
        for framed in reader.feed(received):
            assert isinstance(framed, Line), "a worker knows how long a line may be"
            answer = _carry_out(json.loads(framed.text), caller, allowed)
            worker.sendall(_encode(answer))
    caller.close()


def _carry_out(call: dict[str, Any], caller: Caller, allowed: Sequence[str]) -> Answer:
    os.environ.update(call["environment"])
    try:
        function = resolve(call["path"], allowed)
    except NotCallable as error:
        return Answer(OutcomeKind.NOT_FOUND, error=str(error))
    try:
        return caller.call(function, call["args"], call["kwargs"])
    finally:
        for stream in (sys.stdout, sys.stderr):
            _flush(stream)


def _flush(stream: Any) -> None:
    try:
        stream.flush()
    except (OSError, ValueError):
        pass  # The disk is full, or the function closed it: its own output is its own loss.


def _encode(answer: Answer) -> bytes:
    if answer.trace:
        os.write(2, answer.trace.encode("utf-8", "backslashreplace"))
    fields = asdict(answer) | {"kind": answer.kind.value}
    del fields["trace"]
    return json.dumps(fields).encode() + b"\n"


def _print_to(control: list[tuple[int, int, bytes]]) -> None:
    """From here on what is printed goes where this call's output belongs."""
    for level, kind, data in control:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            (fd,) = array.array("i", data[: array.array("i").itemsize])
            os.dup2(fd, 1)
            os.dup2(fd, 2)
            os.close(fd)


if __name__ == "__main__":
    main(sys.argv[1:])
