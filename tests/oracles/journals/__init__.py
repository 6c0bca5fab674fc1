"""Histories of real fleets, kept as they were recorded, and the recorder.

A folder of ``kept`` is one history: ``runs`` is a copy of what a state directory keeps of its runs
(journals, and small files that ``status``, ``report``, ``why`` and ``runs`` look at), and
``issues.jsonl`` is the tracker at the end, as it exported itself. ``scenarios`` says how each came
about. ``python -m tests.oracles.journals.record NAME`` records a scenario that is new. The others
stay as they are: a later version must read old journals.
"""

from __future__ import annotations

from pathlib import Path

KEPT = Path(__file__).parent / "kept"
HOST = "recorder"
"""The machine's name while recording, and whenever a history is read."""
BYTES_MAX = 200_000
"""Of one history."""


def names() -> list[str]:
    """Return the names of the kept histories, in order."""
    return sorted(folder.name for folder in KEPT.iterdir())
