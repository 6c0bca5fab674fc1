"""Beads: every issue is read and written through the ``bd`` program, grouped, one call at a time.

``calls`` runs processes, ``answers`` reads what they print, ``abilities`` asks what this ``bd``
can do, ``listing`` says which ready issues are wanted, ``verdicts`` (pure) decides what a
settlement means for an issue as it was seen, ``writing`` carries that out, ``source`` is the
``Source`` over all of them.
"""
