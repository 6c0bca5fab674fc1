"""RRQ executors at work for us: a task becomes a request, and an outcome the end of an attempt.

``translating`` puts the one into words of the other; ``driving`` is one executor process, seen from
the fleet: started, kept busy, cancelled, killed, started again; both pure.

Source: docs/PROTOCOL.md, "RRQ executors".
"""
