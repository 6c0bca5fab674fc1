"""Serving dispatcherd's publishers: each task that a broker brings is a job, and is kept on disk.

``queue`` has the tasks from their arrival to their end (pure, told the time), ``duplicates`` what
``on_duplicate`` means, ``spool`` the file that outlives us, ``configuration`` where we are to
listen, and ``source`` is the fleet's view of it. The connections are the edge's
(``edge.dispatcherd``).

Source: docs/PROTOCOL.md, "dispatcherd", and docs/DISPATCHERD.md.
"""
