"""Fuzzing of everything that reads what others wrote: one entry of a table per parser.

``inputs`` makes hostile bytes from valid ones, ``entries_*`` say what must hold of each parser,
``table`` lists them, ``running`` tries many inputs, ``minimising`` makes a failure small, and
``python -m tests.fuzz`` (``scripts/fuzz``) is all of it from the command line.
"""
