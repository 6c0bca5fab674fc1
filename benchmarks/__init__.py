"""How fast it is, each figure as a ratio of two things measured in one run, or against a limit.

    scripts/bench [NAME...] [--json | --markdown] [--rounds N] [--quick]

One module per benchmark (``bd``, ``tasks``, ``dispatch``, ``growth``...), each with
``measure(rounds, quick, folder) -> list[Figure]``; what they share is in ``tools``.
``PERFORMANCE.md`` has the figures and what they mean. Nothing here asserts a time: machines
differ, and a slow one is not broken.
"""
