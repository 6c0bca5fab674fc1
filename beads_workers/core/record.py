"""The base of all records of the journal; the vocabulary itself is in ``core.records``."""

from __future__ import annotations

from beads_workers.core.values import value


@value
class Record:
    """Base of all records."""
