"""The conformance kit: what docs/PROTOCOL.md asks of a worker and of an orchestrator, tried out.

``requirements`` lists what is asked. ``worker_cases`` plays the orchestrator to anybody's worker,
``orchestrator_cases`` plays workers to anybody's orchestrator. A *case* is one conversation, with a
process and a socket of its own; it confirms requirements, or says which one was broken
(``Breach``). ``bench`` is what a case has to work with, ``report`` what people are shown.
"""
