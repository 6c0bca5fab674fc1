"""A small RRQ orchestrator's end: requests of both versions to an executor, and its answers."""

from __future__ import annotations

import socket
import time
from pathlib import Path
from typing import Any, Self

from beads_workers.integrations.rrq import wire

PATIENCE_SECONDS = 60.0


def request(
    name: str,
    *args: Any,
    version: str = wire.V1,
    request_id: str = "",
    job_id: str = "",
    seconds: float | None = None,
    attempt: int = 1,
    trace_context: dict[str, str] | None = None,
    **kwargs: Any,
) -> wire.Request:
    """For ``name``, with a deadline so many seconds from now; ids are made of a counter."""
    _count[0] += 1
    number = _count[0]
    now = time.time()
    deadline = None if seconds is None else now + seconds
    job = job_id or f"job-{number}"
    context = wire.RequestContext(
        job, attempt, now, "default", deadline, trace_context, None, "a test"
    )
    return wire.Request(
        request_id or f"request-{number}",
        job,
        name,
        context,
        args,
        kwargs,
        protocol_version=version,
    )


_count = [0]


def connected(place: Path | int) -> socket.socket:
    """As soon as somebody listens there; the real ones try again, too."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            if isinstance(place, int):
                return socket.create_connection(("127.0.0.1", place))
            sock = socket.socket(socket.AF_UNIX)
            sock.connect(str(place))
        except (FileNotFoundError, ConnectionRefusedError):
            assert time.monotonic() < deadline, f"nobody listens at {place}"
            time.sleep(0.01)
        else:
            return sock


class Client:
    """One connection; ``place``: the path of a socket, or a loopback port."""

    def __init__(self, place: Path | int) -> None:
        self.socket = connected(place)
        self.socket.settimeout(PATIENCE_SECONDS)
        self._reader = wire.FrameReader()
        self._payloads: list[bytes] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def send(self, *envelopes: wire.Envelope) -> None:
        """All of them in one write."""
        self.raw(b"".join(wire.frame(wire.encode(each)) for each in envelopes))

    def raw(self, data: bytes) -> None:
        """Whatever it is."""
        self.socket.sendall(data)

    def cancel(self, of: wire.Request, *, by_request: bool = False) -> None:
        """A cancel frame for it."""
        version = of.protocol_version if of.protocol_version in (wire.V1, wire.V2) else wire.V1
        request_id = of.request_id if by_request else None
        self.send(wire.CancelRequest(of.job_id, request_id, protocol_version=version))

    def answer(self) -> wire.RequestOutcome | None:
        """The next one; None when the executor has closed the connection."""
        while not self._payloads:
            try:
                data = self.socket.recv(1 << 16)
            except ConnectionResetError:
                return None
            if not data:
                return None
            self._payloads += self._reader.feed(data)
        answer = wire.parse(self._payloads.pop(0))
        assert isinstance(answer, wire.RequestOutcome)
        return answer

    def ask(self, of: wire.Request) -> wire.RequestOutcome:
        """Send it, and wait for its answer."""
        self.send(of)
        answer = self.answer()
        assert answer is not None, "no answer"
        assert (answer.request_id, answer.job_id) == (of.request_id, of.job_id)
        return answer

    def silent(self) -> bool:
        """Whether nothing is there to be read at this moment."""
        self.socket.setblocking(False)
        try:
            return not self._payloads and not self.socket.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return not self._payloads
        finally:
            self.socket.settimeout(PATIENCE_SECONDS)

    def close(self) -> None:
        """Leave."""
        self.socket.close()
