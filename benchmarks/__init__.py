"""How fast it is, each figure as a ratio of two things measured in one run.

    scripts/bench [NAME...] [--json] [--rounds N] [--quick]

One module per benchmark (``bd``, ``tasks``, ``dispatch``, ``junk``...), each with
``measure(rounds, quick, folder) -> list[Figure]``. ``docs/PERFORMANCE.md`` has the figures and what
they mean. Nothing here asserts a time: machines differ, and a slow one is not broken.
"""
