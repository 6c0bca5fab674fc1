"""The RRQ executor protocol: frames and what stands in them, without any I/O.

``frames`` cuts a byte stream into payloads, ``envelopes`` makes dataclasses of them and back.

Source: docs/PROTOCOL.md, "RRQ executors". Two dialects exist: version 1 has ``args`` and
``kwargs``, version 2 (rrq 0.10 and later) has ``params`` instead.
"""
