"""Python functions as tasks: a process beside each worker that imports and calls them.

``host`` is that process, ``calls`` is the worker's end of it. It stays between tasks, so that a
module is imported once; what is to be called, with what, and what came of it are JSON lines.
"""
