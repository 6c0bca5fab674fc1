"""Issues in the tracker's tables. Every writing method runs inside a ``transaction``."""

from __future__ import annotations

import json
import sqlite3
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from itertools import islice
from typing import Any

from beads_workers.sources.issue import BLOCKS, PARENT_CHILD, Dependency, Issue, microseconds
from beads_workers.sources.settling import IN_PROGRESS, OPEN

_COLUMNS = (
    "id, title, description, status, priority, issue_type, assignee, created_at, updated_at,"
    " closed_at, close_reason, notes, comments, timeout_seconds, command, extra"
)
_PLACES = ", ".join("?" * 17)

_BLOCKED = """(
  EXISTS (SELECT 1 FROM dependencies AS d JOIN issues AS b ON b.id = d.depends_on_id
          WHERE d.issue_id = issues.id AND d.type = 'blocks'
            AND b.status NOT IN ('closed', 'tombstone'))
  OR
  EXISTS (SELECT 1 FROM dependencies AS d JOIN issues AS p ON p.id = d.depends_on_id
          WHERE d.issue_id = issues.id AND d.type = 'parent-child' AND p.blocked = 1)
)"""

_BATCH = 1000
"""Issues read at once: an export of any size needs little memory."""

_ID_LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789"
_ID_TRIES = 4


class Store:
    """Reads and writes whole issues over one connection, which stays the caller's."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def new_id(self) -> str:
        """An id that is free: the prefix and three letters or digits, more as they fill up."""
        import secrets  # Only who adds an issue needs it: a fleet starts without.

        prefix = self._column("SELECT value FROM settings WHERE name = 'prefix'")[0]
        for tried in range(1000):
            length = 3 + tried // _ID_TRIES
            found = f"{prefix}-{''.join(secrets.choice(_ID_LETTERS) for _ in range(length))}"
            if not self.known([found]):
                return found
        raise AssertionError("no id is free")

    def known(self, ids: Iterable[str]) -> set[str]:
        """Those of ``ids`` that the tracker has."""
        return set(self._column(f"SELECT id FROM issues WHERE id IN {_LISTED}", _listed(ids)))

    def issues(self, ids: Iterable[str]) -> list[Issue]:
        """The issues of these ids, in this order; unknown ones are left out."""
        wanted = list(ids)
        listed = _listed(wanted)
        rows = self._connection.execute(
            f"SELECT {_COLUMNS} FROM issues WHERE id IN {_LISTED}", (listed,)
        )
        return self._whole(wanted, listed, rows)

    def claim(self, ids: Iterable[str], actor: str, now: str) -> list[Issue]:
        """Give the issues of these ids to ``actor``; returns them, in this order."""
        wanted = list(ids)
        listed = _listed(wanted)
        rows = self._connection.execute(
            "UPDATE issues SET status = ?, assignee = ?, updated_at = ?"
            f" WHERE id IN {_LISTED} RETURNING {_COLUMNS}",
            (IN_PROGRESS, actor, now, listed),
        )
        return self._whole(wanted, listed, rows)

    def ids(self, *, finished: bool) -> list[str]:
        """Ids by priority and age; without ``finished`` only what is not closed."""
        condition = "1" if finished else "status NOT IN ('closed', 'tombstone')"
        return self._column(
            f"SELECT id FROM issues WHERE {condition} ORDER BY priority, created_us, id"
        )

    def in_batches(self, ids: Iterable[str]) -> Iterator[Issue]:
        """Like ``issues``, a batch at a time; begin a transaction for one consistent picture."""
        remaining = iter(ids)
        while batch := list(islice(remaining, _BATCH)):
            yield from self.issues(batch)

    def waits_for(self, ids: Iterable[str]) -> dict[str, list[str]]:
        """For each blocked issue the unfinished issues that block it directly, in their order."""
        found: dict[str, list[str]] = {}
        for issue_id, blocker in self._connection.execute(
            "SELECT d.issue_id, d.depends_on_id FROM dependencies AS d"
            " JOIN issues AS b ON b.id = d.depends_on_id"
            f" WHERE d.issue_id IN {_LISTED} AND d.type = 'blocks'"
            " AND b.status NOT IN ('closed', 'tombstone') ORDER BY d.issue_id, d.position",
            (_listed(ids),),
        ):
            found.setdefault(issue_id, []).append(blocker)
        return found

    def write(self, issue: Issue) -> None:
        """Insert or replace; ``refresh`` it, and its ``dependants``, in the same transaction."""
        self._connection.execute(
            f"INSERT INTO issues ({_COLUMNS}, created_us) VALUES ({_PLACES})"
            f" ON CONFLICT (id) DO UPDATE SET {_UPDATES}",
            (*_row(issue), microseconds(issue.created_at)),
        )
        for table in ("labels", "dependencies"):
            self._connection.execute(f"DELETE FROM {table} WHERE issue_id = ?", (issue.id,))
        self._connection.executemany(
            "INSERT OR IGNORE INTO labels VALUES (?, ?, ?)",
            [(issue.id, label, at) for at, label in enumerate(issue.labels)],
        )
        self._connection.executemany(
            "INSERT INTO dependencies VALUES (?, ?, ?, ?, ?, ?)",
            [
                (issue.id, each.depends_on_id, each.type, each.created_at, _dumps(each.extra), at)
                for at, each in enumerate(issue.dependencies)
            ],
        )

    def dependants(self, ids: Iterable[str]) -> set[str]:
        """The issues that may be held back by one of ``ids``: those it blocks, and children."""
        return set(
            self._column(
                f"SELECT issue_id FROM dependencies WHERE depends_on_id IN {_LISTED}"
                " AND type IN ('blocks', 'parent-child')",
                _listed(ids),
            )
        )

    def refresh(self, ids: Collection[str]) -> None:
        """Find out anew whether ``ids`` are blocked, and then whatever hangs below them."""
        while ids:
            changed = self._column(
                f"UPDATE issues SET blocked = {_BLOCKED}"
                f" WHERE id IN {_LISTED} AND blocked <> {_BLOCKED} RETURNING id",
                _listed(ids),
            )
            # A change of the flag (not of the status) reaches only children.
            ids = self._column(
                f"SELECT DISTINCT issue_id FROM dependencies WHERE depends_on_id IN {_LISTED}"
                f" AND type = '{PARENT_CHILD}'",
                _listed(changed),
            )

    def cycle(self) -> list[str]:
        """Issues that would wait for each other for ever, as a closed walk; empty without any."""
        graph: dict[str, list[str]] = defaultdict(list)
        for issue_id, needed in self._connection.execute(
            "SELECT d.issue_id, d.depends_on_id FROM dependencies AS d"
            " JOIN issues AS b ON b.id = d.depends_on_id JOIN issues AS i ON i.id = d.issue_id"
            f" WHERE d.type = '{PARENT_CHILD}' OR (d.type = '{BLOCKS}'"
            " AND b.status NOT IN ('closed', 'tombstone')"
            " AND i.status NOT IN ('closed', 'tombstone'))"
        ):
            graph[issue_id].append(needed)
        return find_cycle(graph)

    def _whole(
        self, wanted: Iterable[str], listed: str, rows: Iterable[tuple[Any, ...]]
    ) -> list[Issue]:
        labels: dict[str, list[str]] = defaultdict(list)
        for issue_id, label in self._connection.execute(
            f"SELECT issue_id, label FROM labels WHERE issue_id IN {_LISTED} ORDER BY position",
            (listed,),
        ):
            labels[issue_id].append(label)
        dependencies = self._dependencies(listed)
        found = {
            row[0]: _issue(row, labels.get(row[0], ()), dependencies.get(row[0], ()))
            for row in rows
        }
        return [found[key] for key in wanted if key in found]

    def _dependencies(self, listed: str) -> dict[str, list[Dependency]]:
        found: dict[str, list[Dependency]] = defaultdict(list)
        for issue_id, depends_on_id, kind, created_at, extra in self._connection.execute(
            "SELECT issue_id, depends_on_id, type, created_at, extra FROM dependencies"
            f" WHERE issue_id IN {_LISTED} ORDER BY position",
            (listed,),
        ):
            found[issue_id].append(Dependency(depends_on_id, kind, created_at, json.loads(extra)))
        return found

    def _column(self, statement: str, *parameters: str) -> list[str]:
        return [row[0] for row in self._connection.execute(statement, parameters)]


def find_cycle(graph: dict[str, list[str]]) -> list[str]:
    """A closed walk (first and last are the same) in a directed graph, or an empty list."""
    finished: set[str] = set()
    for root in list(graph):
        if root in finished:
            continue
        path: dict[str, Iterator[str]] = {root: iter(graph.get(root, ()))}
        while path:
            here = next(reversed(path))
            following = next(path[here], None)
            if following is None:
                finished.add(here)
                del path[here]
            elif following in path:
                walk = list(path)
                return [*walk[walk.index(following) :], following]
            elif following not in finished:
                path[following] = iter(graph.get(following, ()))
    return []


_LISTED = "(SELECT value FROM json_each(?))"
"""Any number of ids in one parameter."""

_UPDATES = ", ".join(
    f"{name} = excluded.{name}" for name in (*_COLUMNS.split(", ")[1:], "created_us")
)


def _listed(ids: Iterable[str]) -> str:
    return json.dumps(list(ids))


def _dumps(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _row(issue: Issue) -> tuple[str | int | float | None, ...]:
    return (
        issue.id,
        issue.title,
        issue.description,
        issue.status or OPEN,
        issue.priority,
        issue.issue_type,
        issue.assignee,
        issue.created_at,
        issue.updated_at,
        issue.closed_at,
        issue.close_reason,
        issue.notes,
        _dumps([dict(each) for each in issue.comments]),
        issue.timeout_seconds,
        None if issue.command is None else _dumps(list(issue.command)),
        _dumps(dict(issue.extra)),
    )


def _issue(
    row: tuple[Any, ...], labels: Iterable[str], dependencies: Iterable[Dependency]
) -> Issue:
    (*texts, comments, timeout_seconds, command, extra) = row
    (key, title, description, status, priority, issue_type, *others) = texts
    assignee, created_at, updated_at, closed_at, close_reason, notes = others
    return Issue(
        id=key,
        title=title,
        description=description,
        status=status,
        priority=priority,
        issue_type=issue_type,
        assignee=assignee,
        labels=tuple(labels),
        created_at=created_at,
        updated_at=updated_at,
        closed_at=closed_at,
        close_reason=close_reason,
        notes=notes,
        comments=tuple(json.loads(comments)) if comments != "[]" else (),
        dependencies=tuple(dependencies),
        timeout_seconds=timeout_seconds,
        command=None if command is None else tuple(json.loads(command)),
        extra=json.loads(extra) if extra != "{}" else {},
    )


def any_command(connection: sqlite3.Connection) -> bool:
    """Whether any issue that is not closed brings its own command."""
    statement = "SELECT 1 FROM issues WHERE command IS NOT NULL AND status <> 'closed' LIMIT 1"
    return connection.execute(statement).fetchone() is not None


def a_function(connection: sqlite3.Connection) -> str:
    """The function that some issue which is not closed names in ``job_path``; "" without any."""
    found = connection.execute(
        "SELECT json_extract(extra, '$.job_path') FROM issues WHERE status NOT IN"
        " ('closed', 'tombstone') AND json_type(extra, '$.job_path') = 'text' LIMIT 1"
    ).fetchone()
    return str(found[0]) if found else ""
