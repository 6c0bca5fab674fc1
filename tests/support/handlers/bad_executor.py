"""An executor of version 1 that does, with every request, what its function is called: wrong.

``python bad_executor.py`` binds ``RRQ_EXECUTOR_SOCKET``; one thread for each connection.
"""

from __future__ import annotations

import json
import os
import socket
import struct
import threading
import time
from typing import Any


def framed(payload: bytes) -> bytes:
    """A frame as it should be."""
    return struct.pack(">I", len(payload)) + payload


def response(request: dict[str, Any], **changed: Any) -> dict[str, Any]:
    """A good answer, but for what is changed."""
    good = {"request_id": request["request_id"], "job_id": request["job_id"], "status": "success"}
    return {"type": "response", "payload": {**good, "result": "fine", **changed}}


def frame_of(envelope: Any) -> bytes:
    """One frame."""
    return framed(json.dumps(envelope).encode())


def wrong(name: str, request: dict[str, Any]) -> bytes:
    """What to send for the function of that name."""
    if name == "large":
        return frame_of(response(request, result="x" * 3_000_000))
    good = response(request)
    answers: dict[str, bytes] = {
        "empty_frame": struct.pack(">I", 0),
        "oversized_frame": struct.pack(">I", 16 * 1024 * 1024 + 1) + b"x" * 100_000,
        "no_json": framed(b"{nonsense"),
        "no_utf8": framed(b'{"type": "\xff"}'),
        "deep": framed(b"[" * 100_000),
        "array": framed(b"[]"),
        "unknown_type": frame_of({"type": "hello", "payload": {}}),
        "no_payload": frame_of({"type": "response"}),
        "a_request": frame_of({"type": "request", "payload": request}),
        "a_cancel": frame_of(
            {"type": "cancel", "payload": {"protocol_version": "1", "job_id": request["job_id"]}}
        ),
        "unknown_status": frame_of(response(request, status="great")),
        "negative_delay": frame_of(response(request, status="retry", retry_after_seconds=-1)),
        "endless_delay": framed(
            json.dumps(response(request, status="retry", retry_after_seconds=float("inf"))).encode()
        ),
        "error_without_message": frame_of(response(request, status="error", error={})),
        "another_request": frame_of(response(request, request_id="nobody-asked")),
        "torn": frame_of(good)[:-3],
        "hang_up": b"",
        "fine": frame_of(good),
        "mirror": frame_of(response(request, result=request["job_id"])),
        "byte_by_byte": frame_of(good),
        "twice": frame_of(good) * 2,
    }
    return answers[name]


def serve(connection: socket.socket) -> None:
    """Answer until the other side leaves."""
    with connection, connection.makefile("rb") as stream:
        while len(head := stream.read(4)) == 4:
            envelope = json.loads(stream.read(struct.unpack(">I", head)[0]))
            if envelope["type"] == "request":
                request = envelope["payload"]
                name = request["function_name"]
                if name == "never":
                    time.sleep(3600)
                if name == "flood":
                    while True:
                        connection.sendall(frame_of(response(request, request_id="flood")))
                data = wrong(name, request)
                size = 1 if name == "byte_by_byte" else len(data) or 1
                for start in range(0, len(data), size):
                    connection.sendall(data[start : start + size])
                if name in ("torn", "hang_up"):
                    return


def main() -> None:
    """Accept whoever comes."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(os.environ["RRQ_EXECUTOR_SOCKET"])
    listener.listen()
    while True:
        connection, _ = listener.accept()
        threading.Thread(target=serve, args=(connection,), daemon=True).start()


if __name__ == "__main__":
    main()
