"""Which ready issues are wanted: what ``bd ready`` can filter, and what we filter ourselves."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from beads_workers.core.jobs import FUNCTION, Filters, IssueId, path_of
from beads_workers.sources.bd.abilities import Abilities
from beads_workers.sources.bd.answers import OPEN, Row

CONTAINERS = ("epic", "gate", "molecule")
"""Hold work of others rather than being work; taken only where their type is asked for."""


def ready_arguments(filters: Filters, abilities: Abilities, rows_max: int) -> list[str]:
    """``bd ready`` for these filters, at most ``rows_max`` rows (0: all), most urgent first.

    What this ``bd`` cannot filter is left to ``wanted``, which checks everything again except
    ``parent``: only ``bd`` knows who descends from whom.
    """
    arguments = ["ready", "--json", f"--limit={rows_max}", "--sort=priority"]
    arguments += [f"--label={_quoted(label)}" for label in filters.labels]
    arguments += [f"--label-any={_quoted(label)}" for label in filters.labels_any]
    if abilities.brief:
        arguments.append("--brief")
    if abilities.exclude_label:
        arguments += [f"--exclude-label={_quoted(label)}" for label in filters.exclude_labels]
    if len(filters.types) == 1:
        arguments.append(f"--type={filters.types[0]}")
    elif not filters.types and abilities.exclude_type:
        arguments.append(f"--exclude-type={','.join(CONTAINERS)}")
    if len(filters.priorities) == 1:
        arguments.append(f"--priority={filters.priorities[0]}")
    if filters.parent is not None:
        arguments.append(f"--parent={filters.parent}")
    return arguments


def wanted(row: Row, filters: Filters, actor: str) -> bool:
    """Whether a row of ``bd ready`` may be taken (0.x lists issues in progress as well)."""
    return (
        row.status == OPEN
        and row.assignee in ("", actor)
        and (row.issue_type in filters.types if filters.types else not _is_container(row))
        and (not filters.priorities or row.priority in filters.priorities)
        and set(filters.labels) <= set(row.labels)
        and (not filters.labels_any or not set(filters.labels_any).isdisjoint(row.labels))
        and set(filters.exclude_labels).isdisjoint(row.labels)
        and (not filters.only or row.issue_id in filters.only)
        and (not filters.bring or _brings(row, filters))
    )


def candidates(
    rows: Iterable[Row], filters: Filters, actor: str, skip: Collection[IssueId]
) -> list[Row]:
    """The wanted rows, most urgent first, otherwise in the order of the listing."""
    found = [r for r in rows if r.issue_id not in skip and wanted(r, filters, actor)]
    return sorted(found, key=lambda row: row.priority)


def _is_container(row: Row) -> bool:
    return row.issue_type in CONTAINERS


def _brings(row: Row, filters: Filters) -> bool:
    return FUNCTION in filters.bring and bool(path_of(row.original, row.labels))


def _quoted(label: str) -> str:
    """One field of the comma-separated list that ``bd`` reads each label option as."""
    if any(c in label for c in ',"\n\r'):
        return '"' + label.replace('"', '""') + '"'
    return label
