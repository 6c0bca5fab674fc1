"""The receipts of an issue's attempts, found in the journals of the last runs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from beads_workers.core.base.model import value
from beads_workers.core.base.text import printable
from beads_workers.core.records.journal import Finished, RunStarted, UsageFound
from beads_workers.core.records.receipts import Receipt, to_json
from beads_workers.runtime.journal_file import read_journal
from beads_workers.runtime.run_directory import RunDirectory
from beads_workers.ui.agents import receipt_line, receipt_lines

RUNS_MAX = 20
"""Number of last runs that are searched."""


@value
class ReceiptRow:
    """An attempt with a receipt. ``outcome``: "" if its worker never reported the end."""

    run_id: str
    attempt: int
    outcome: str
    error: str
    receipt: Receipt


def find_receipts(state_directory: Path, issue_id: str) -> list[ReceiptRow]:
    """Return the receipts of the newest run that has any, in order."""
    directory = RunDirectory(state_directory)
    for run_id in list(reversed(directory.run_ids()))[:RUNS_MAX]:
        if found := list(_in_run(directory, run_id, issue_id)):
            return found
    return []


def _in_run(directory: RunDirectory, run_id: str, issue_id: str) -> Iterator[ReceiptRow]:
    plain = False
    for entry in read_journal(directory.run(run_id) / "journal.jsonl"):
        match entry.record:
            case RunStarted(agents=(), lands=False):
                return
            case RunStarted() as run:
                plain = not run.agents
                continue
            case Finished(issue_id=found) as finished if found == issue_id:
                receipt = finished.receipt
                outcome, error = finished.outcome, finished.error
            case UsageFound(issue_id=found, whole=False) as finished if found == issue_id:
                receipt, outcome, error = finished.receipt, "", ""
            case _:
                continue
        # Of commands only receipts that a person should see: the rest is in the log.
        if receipt is not None and (receipt.flags or not plain):
            yield ReceiptRow(run_id, finished.attempt, outcome, error, receipt)


def as_json(attempt: ReceiptRow) -> dict[str, Any]:
    """Return one object, with the receipt as in the journal."""
    return {
        "run_id": attempt.run_id,
        "attempt": attempt.attempt,
        "outcome": attempt.outcome or None,
        "error": attempt.error,
        "receipt": to_json(attempt.receipt),
    }


def shown(attempts: list[ReceiptRow]) -> Iterator[str]:
    """Yield a line for each attempt, and the last one in full."""
    for each in attempts[:-1]:
        yield f"attempt {each.attempt}: {receipt_line(each.receipt)}"
    for each in attempts[-1:]:
        error = f": {printable(each.error, 200)}" if each.error else ""
        yield f"attempt {each.attempt}: {each.outcome or 'its worker died'}{error}"
        for line in receipt_lines(each.receipt):
            yield f"  {line}"
