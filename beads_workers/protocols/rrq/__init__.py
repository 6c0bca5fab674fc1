"""The RRQ executor protocol: frames and what stands in them, without any I/O.

``frames`` cuts a byte stream into payloads, ``envelopes`` makes dataclasses of them and back.

Source: docs/PROTOCOL.md, "RRQ executors". Two dialects exist: version 1 has ``args`` and
``kwargs``, version 2 (rrq 0.10 and later) has ``params`` instead.
"""

SOCKET_VARIABLE = "RRQ_EXECUTOR_SOCKET"
"""Tells an executor where to listen: the path of a Unix socket."""
TCP_VARIABLE = "RRQ_EXECUTOR_TCP_SOCKET"
"""The same: ``host:port``, and only this machine."""
TCP_OPTION = "--tcp-socket"
"""rrq 0.11 puts it, with its ``host:port``, behind all other arguments."""
