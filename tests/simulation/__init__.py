"""The real core in a seeded world: ``scripts/simulate`` (docs/internals/RELIABILITY.md).

What is real: ``core`` (orchestrator, worker half, recovery, retry state, policy, journal lines) and
the rule of settling. What is simulated: time, processes, connections, the disk, the tracker,
people. ``loop``, ``tracker_thread``, ``journal`` and ``nodes`` mirror their namesakes in ``edge``
in the order of their effects, so that a crash between any two effects is a crash that can really
happen.

- *agenda*: what happens when; nothing happens outside it, so a seed is a whole run.
- *process*: what can die, be stopped and go on; a *thread* of it is a generator of delays.
- *point*: a place between two effects at which the orchestrator may die.
- *fault*: one thing that goes wrong, counted by its kind.
- *checker*: what must hold; a *mutant* is a planted bug that a checker must catch.
"""
