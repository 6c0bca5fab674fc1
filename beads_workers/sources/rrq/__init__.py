"""Being an RRQ executor: requests that orchestrators send are jobs, and are owed one answer each.

``serving`` keeps the requests from their arrival to their answer (pure, told the time),
``answers`` says how an attempt went in RRQ's words, ``addresses`` where we are to listen, and
``source`` is the fleet's view of it. The sockets are the edge's (``edge.rrq_front``).

Source: docs/PROTOCOL.md, "Being an RRQ executor".
"""
