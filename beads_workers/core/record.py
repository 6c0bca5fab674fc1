"""The base of all records of the journal; the vocabulary itself is in ``core.records``."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Record:
    """Base of all records."""
