"""Python functions as work: found by their path, called, and their end put into words.

``resolving`` turns ``package.module.function`` into a callable, if the user allowed its module;
``calling`` calls it; ``host`` is the process, one for each worker, in which that happens.

Source: docs/PROTOCOL.md, "Functions".
"""
