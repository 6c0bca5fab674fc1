"""Which issues may be taken, as SQL. The rest of the condition is who asks and what to skip."""

from __future__ import annotations

from beads_workers.core.jobs import CALL_LABEL, COMMAND, FUNCTION, Filters
from beads_workers.sources.settling import CONTAINERS

SELECTABLE = "status = 'open' AND blocked = 0"
"""Word for word the condition of the index ``ready``, or SQLite would not use it."""

_UNDER = """id IN (
  WITH RECURSIVE under (id) AS (
    SELECT issue_id FROM dependencies WHERE depends_on_id = ? AND type = 'parent-child'
    UNION
    SELECT d.issue_id FROM dependencies AS d JOIN under ON d.depends_on_id = under.id
    WHERE d.type = 'parent-child'
  ) SELECT id FROM under)"""


def conditions(filters: Filters) -> tuple[str, list[str | int]]:
    """The filters as an SQL condition on ``issues``, and its parameters in order."""
    parts: list[str] = []
    parameters: list[str | int] = []

    def require(condition: str, *values: str | int) -> None:
        parts.append(condition)
        parameters.extend(values)

    if filters.types:
        require(f"issue_type IN {_places(filters.types)}", *filters.types)
    else:
        require(f"issue_type NOT IN {_places(CONTAINERS)}", *CONTAINERS)
    for label in filters.labels:
        require(_labelled("= ?"), label)
    if filters.labels_any:
        require(_labelled(f"IN {_places(filters.labels_any)}"), *filters.labels_any)
    if filters.exclude_labels:
        excluded = filters.exclude_labels
        require(f"NOT {_labelled(f'IN {_places(excluded)}')}", *excluded)
    if filters.priorities:
        require(f"priority IN {_places(filters.priorities)}", *filters.priorities)
    if filters.parent is not None:
        require(_UNDER, filters.parent)
    if filters.only:
        require(f"id IN {_places(filters.only)}", *filters.only)
    if filters.bring:
        require(f"({' OR '.join(_BRINGS[what] for what in filters.bring)})")
    return " AND ".join(parts), parameters


def _labelled(test: str) -> str:
    return f"EXISTS (SELECT 1 FROM labels WHERE issue_id = issues.id AND label {test})"


_CALLED = _labelled(f"GLOB '{CALL_LABEL}?*'")

_BRINGS = {
    COMMAND: "command IS NOT NULL",
    FUNCTION: f"(coalesce(json_extract(extra, '$.job_path'), '') <> ''"
    f" AND json_type(extra, '$.job_path') = 'text' OR {_CALLED})",
}


def _places(values: tuple[str, ...] | tuple[int, ...]) -> str:
    return f"({', '.join('?' * len(values))})"
