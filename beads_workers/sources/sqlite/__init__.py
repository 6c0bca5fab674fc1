"""The embedded tracker: one SQLite file, ``.beads-workers/tracker.db``.

``schema`` says what the file looks like and opens it, ``store`` keeps issues in it, ``source``
hands them to a fleet, and ``exchange`` reads and writes beads' JSON Lines.
"""
