"""The messages of dispatcherd, without any I/O.

``messages`` makes dataclasses of what a publisher sends and back, ``chunks`` cuts what is too long
for a broker and joins it again, ``workers`` has what a worker says to its main process.

Source: docs/PROTOCOL.md, "dispatcherd".
"""

SOCKET_BYTES_MAX = 1024
"""A longer message goes over a Unix socket in chunks; the end of the line is not counted."""
POSTGRES_BYTES_MAX = 7999
"""The same for a notification of PostgreSQL, which refuses 8000."""
CHANNEL_BYTES_MAX = 63
"""The name of a channel: PostgreSQL would cut a longer one."""
MESSAGE_TIMEOUT_SECONDS = 30 * 60.0
"""A message that is not whole so long after its first piece is dropped; the real one's default."""
