"""The conformance kit: tests of what docs/PROTOCOL.md requires of workers and orchestrators.

``requirements`` lists the requirements. ``worker_cases`` plays the orchestrator to any worker,
``orchestrator_cases`` plays workers to any orchestrator. A *case* is one conversation, with a
process and a socket of its own. A case confirms requirements, or says which requirement was broken
(``Breach``). ``bench`` has the means of a case, ``report`` what people are shown.
"""
