"""What settlements do to issues, a group at a time: one statement for all that change alike.

Every writing function runs inside a ``transaction``.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Sequence

from beads_workers.core.source import Action, Settlement
from beads_workers.core.values import value
from beads_workers.sources.settling import CLOSED, Holding


@value
class Change:
    """``holding``: how the issue is to be shown; ``note``: the settlement's, as it can be kept."""

    settlement: Settlement
    holding: Holding
    note: str


def holdings(connection: sqlite3.Connection, ids: Iterable[str]) -> dict[str, Holding]:
    """How the tracker shows each of these issues; unknown ones are left out."""
    rows = connection.execute(
        "SELECT id, status, assignee FROM issues WHERE id IN (SELECT value FROM json_each(?))",
        (json.dumps(list(ids)),),
    )
    return {key: Holding(status, assignee) for key, status, assignee in rows}


def change(connection: sqlite3.Connection, changes: Sequence[Change], now: str) -> None:
    """Make them; what blocks what is for ``Store.refresh`` to find out, afterwards."""
    closed = [each for each in changes if each.holding.status == CLOSED]
    # First what may be followed by a close of the same issue; a close is the last of everything.
    connection.executemany(
        "UPDATE issues SET status = ?, assignee = ?, updated_at = ? WHERE id = ?",
        [
            (each.holding.status, each.holding.assignee, now, each.settlement.issue_id)
            for each in changes
            if each.holding.status != CLOSED
        ],
    )
    connection.executemany(
        "UPDATE issues SET notes = CASE notes WHEN '' THEN ?1 ELSE notes || char(10) || ?1 END"
        " WHERE id = ?2",
        [
            (each.note, each.settlement.issue_id)
            for each in changes
            if each.settlement.action is Action.SET_ASIDE and each.note
        ],
    )
    connection.executemany(
        "UPDATE issues SET status = ?, assignee = ?, updated_at = ?3, closed_at = ?3,"
        " close_reason = ?4 WHERE id = ?5",
        [
            (CLOSED, each.holding.assignee, now, each.note, each.settlement.issue_id)
            for each in closed
        ],
    )
    connection.executemany(
        "UPDATE issues SET extra = json_set(extra, ?, json(?)) WHERE id = ?",
        [
            (key, value, each.settlement.issue_id)
            for each in closed
            for key, value in _results(each.settlement)
            if value
        ],
    )


def _results(settlement: Settlement) -> Iterable[tuple[str, str]]:
    """What came of the work, in the keys ``result`` (it is JSON) and ``result_file``."""
    file = settlement.result_file
    text = json.dumps(file, ensure_ascii=False) if file else ""
    return (("$.result", settlement.result), ("$.result_file", text))
