"""Oracles: what must stay as it is while the code is moved, merged and renamed.

Each module here makes one kind of text from the code as it stands; ``golden`` holds what it made
before. ``python -m tests.oracles`` compares, ``--write`` takes today's for the new truth: in a
commit that says why.
"""
