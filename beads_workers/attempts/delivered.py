"""Results that our own agents delivered for an issue's dependencies, read from our journals."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from beads_workers.core.records.assignment import Assignment

if TYPE_CHECKING:
    from beads_workers.core.records.journal import Finished

RUNS_MAX = 20
"""Number of last runs that are searched."""


def delivered_by_us(asked: Assignment) -> dict[str, Finished]:
    """Return the ends of our agents' attempts that closed the dependencies of ``asked``, by issue
    id."""
    named = asked.issue.get("dependencies")
    rows = [each for each in named if isinstance(each, Mapping)] if isinstance(named, list) else []
    ids = {row.get("depends_on_id") or row.get("id") for row in rows}
    wanted = {each for each in ids if isinstance(each, str)}
    return _ends(Path(asked.runs), wanted) if asked.runs and wanted else {}


def _ends(runs: Path, wanted: set[str]) -> dict[str, Finished]:
    # Imported here: it loads half of the core, and most issues wait for none.
    from beads_workers.runtime.journal_file import segments
    from beads_workers.runtime.run_directory import RunDirectory

    found: dict[str, Finished] = {}
    for run_id in list(reversed(RunDirectory(runs.parent).run_ids()))[:RUNS_MAX]:
        missing = wanted - found.keys()
        if not missing:
            break
        try:
            found |= _in_run(segments(runs / run_id / "journal.jsonl"), missing)
        except OSError:
            continue  # Removed meanwhile: too old to be kept.
    return {issue_id: end for issue_id, end in found.items() if end.receipt}


def _in_run(paths: Iterable[Path], wanted: set[str]) -> dict[str, Finished]:
    """Return the last successes of a run, by issue; an issue whose last end is no success is left
    out."""
    from beads_workers.core.records.journal import Finished
    from beads_workers.runtime.journal_file import entry_of

    # Nearly every line is about another issue: only lines with a wanted id are decoded.
    marks = [json.dumps(issue_id).encode() for issue_id in wanted]
    found: dict[str, Finished] = {}
    for path in paths:
        with path.open("rb") as file:
            for line in file:
                if b'"finished"' not in line or not any(mark in line for mark in marks):
                    continue
                entry = entry_of(line, repeated=True)
                record = entry.record if entry is not None else None
                if isinstance(record, Finished) and record.issue_id in wanted:
                    found[record.issue_id] = record
    return {key: end for key, end in found.items() if end.verdict == "finish"}
