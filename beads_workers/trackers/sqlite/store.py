"""Issues in the file of the built-in tracker: its tables, and how it is opened, read and written.

Durability: WAL with ``synchronous=FULL``, so every commit is on disk before it is reported. With
NORMAL a power cut may undo the last commits. The journal would then remember a close that the
tracker has lost, and the issue would run twice. The price is one sync per *group*.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import Any

from beads_workers.core.base import ready
from beads_workers.core.base.source import Damaged, SourceError
from beads_workers.trackers.issue import Dependency, TrackerIssue, due, microseconds
from beads_workers.trackers.settlement_rules import IN_PROGRESS, OPEN

SCHEMA_VERSION = 2
"""Version in ``PRAGMA user_version``. A file of a newer version is refused, never guessed at."""

BUSY_SECONDS = 5.0
"""Seconds that a writer waits for another: far longer than any of our transactions, imports
included."""

_TABLES = """
CREATE TABLE settings (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;

CREATE TABLE issues (
  id TEXT NOT NULL PRIMARY KEY,
  title TEXT NOT NULL,
  description TEXT NOT NULL,
  status TEXT NOT NULL,
  priority INTEGER NOT NULL,
  issue_type TEXT NOT NULL,
  assignee TEXT NOT NULL,
  created_at TEXT NOT NULL,
  created_us INTEGER NOT NULL,  -- created_at as a number: texts of different lengths do not sort
  updated_at TEXT NOT NULL,
  closed_at TEXT NOT NULL,
  close_reason TEXT NOT NULL,
  notes TEXT NOT NULL,
  comments TEXT NOT NULL,       -- JSON list
  timeout_seconds REAL,
  command TEXT,                 -- JSON list
  extra TEXT NOT NULL,          -- JSON object: imported keys that mean nothing to us
  due_us INTEGER,  -- defer_until as a number, until Store.wake has seen it pass
  -- Why it is not ready, as bits (1 waits for another issue, 2 is no work: pinned or ephemeral,
  -- 4 is deferred, or a child of what is), kept by Store.refresh:
  blocked INTEGER NOT NULL DEFAULT 0
);

CREATE TABLE labels (
  issue_id TEXT NOT NULL REFERENCES issues (id) ON DELETE CASCADE,
  label TEXT NOT NULL,
  position INTEGER NOT NULL,
  PRIMARY KEY (issue_id, label)
) WITHOUT ROWID;

CREATE TABLE dependencies (
  issue_id TEXT NOT NULL REFERENCES issues (id) ON DELETE CASCADE,
  depends_on_id TEXT NOT NULL,  -- may be unknown here: an export can name what it left out
  type TEXT NOT NULL,
  created_at TEXT NOT NULL,
  extra TEXT NOT NULL,
  position INTEGER NOT NULL,
  PRIMARY KEY (issue_id, depends_on_id, type)
) WITHOUT ROWID;

CREATE INDEX dependants ON dependencies (depends_on_id, type, issue_id);
CREATE INDEX ready ON issues (priority, created_us, id, assignee, issue_type)
  WHERE status = 'open' AND blocked = 0;
CREATE INDEX waiting ON issues (issue_type, priority, id) WHERE status = 'open' AND blocked = 1;
CREATE INDEX held ON issues (assignee) WHERE assignee <> '';
CREATE INDEX due ON issues (due_us) WHERE due_us IS NOT NULL;
"""

_FROM_1 = """
ALTER TABLE issues ADD COLUMN due_us INTEGER;
CREATE INDEX due ON issues (due_us) WHERE due_us IS NOT NULL;
"""
"""Migration of a tracker of version 1, whose ``blocked`` only knew ``blocks`` and parents."""


def connect(path: Path) -> sqlite3.Connection:
    """Open an existing tracker in autocommit mode; raises ``SourceError``.

    The caller begins its own transactions and closes the connection. Other threads may use it, but
    only one at a time.
    """
    with translated(path):
        connection = _opened(path, "rw")
        try:
            if _version(connection) == 1:
                _bring_up(connection)
            _check_version(connection, path)
        except (sqlite3.Error, SourceError):
            connection.close()
            raise
    return connection


def create(path: Path, prefix: str) -> bool:
    """Create the tracker unless it exists; return whether this call created it.

    ``prefix`` begins the ids of its issues. The folder must exist. Raises ``SourceError``.
    """
    with translated(path):
        # SQLite would use the umask; its other files take their mode from this one.
        with suppress(OSError):
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        connection = _opened(path, "rwc")
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            with transaction(connection):
                if _version(connection) != 0:
                    return False
                for statement in _TABLES.split(";\n"):
                    connection.execute(statement)
                connection.execute("INSERT INTO settings VALUES ('prefix', ?)", (prefix,))
                connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
            return True
        finally:
            connection.close()


@contextmanager
def translated(path: Path) -> Iterator[None]:
    """Turn errors of SQLite into ``SourceError``."""
    try:
        yield
    except sqlite3.Error as error:
        raise _as_said(path, error) from error


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """Run the block in one write transaction, locked at once; an exception rolls it back."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def _opened(path: Path, mode: str) -> sqlite3.Connection:
    connection = sqlite3.connect(
        f"{path.absolute().as_uri()}?mode={mode}",
        uri=True,
        timeout=BUSY_SECONDS,
        isolation_level=None,
        check_same_thread=False,
    )
    connection.execute("PRAGMA foreign_keys = ON")
    connection.execute("PRAGMA synchronous = FULL")
    return connection


def _bring_up(connection: sqlite3.Connection) -> None:
    """Migrate a tracker of version 1, unless another process has done so meanwhile."""
    with transaction(connection):
        if _version(connection) != 1:
            return
        for statement in _FROM_1.split(";\n"):
            connection.execute(statement)
        store = SqliteStore(connection)
        ids = store.ids(finished=True)
        for issue in store.in_batches(ids):
            if (moment := due(issue)) is not None:
                connection.execute("UPDATE issues SET due_us = ? WHERE id = ?", (moment, issue.id))
        store.refresh(ids)
        connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")


def _check_version(connection: sqlite3.Connection, path: Path) -> None:
    version = _version(connection)
    if version > SCHEMA_VERSION:
        raise SourceError(
            f"{path} was made by a newer beads-workers (schema {version}, known: {SCHEMA_VERSION})",
            "upgrade beads-workers",
        )
    if version < SCHEMA_VERSION:
        raise Damaged(f"{path} is not a tracker of beads-workers")


def _version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def _as_said(path: Path, error: sqlite3.Error) -> SourceError:
    text = str(error)
    if "malformed" in text or "not a database" in text:
        return Damaged(f"{path}: {text}; a new one can import the last export")
    if "locked" in text:
        return SourceError(f"{path}: {text}", "another program holds it; it is asked again")
    if "unable to open" in text or "readonly" in text:
        return SourceError(f"{path}: {text}", "'beads-workers doctor' says who may write it")
    return SourceError(f"{path}: {text}")


# --- store ---------------------------------------------------------------------------------------
# Issues in the tracker's tables. Every writing method runs inside a ``transaction``.


_COLUMNS = (
    "id, title, description, status, priority, issue_type, assignee, created_at, updated_at,"
    " closed_at, close_reason, notes, comments, timeout_seconds, command, extra"
)
_PLACES = ", ".join("?" * 18)


def _quoted(words: Iterable[str]) -> str:
    return "(" + ", ".join(f"'{word}'" for word in words) + ")"


_DONE, _LETS_GO, _UNTIL_CLOSED = map(
    _quoted, (ready.FINISHED, ready.HOLDS_NOTHING, ready.UNTIL_CLOSED)
)

_CHILDREN = """
  FROM dependencies AS c JOIN issues AS b ON b.id = c.issue_id
  WHERE c.depends_on_id = d.depends_on_id AND c.type = 'parent-child' AND b.status"""
"""Children of the issue that ``d`` waits for, with a status that follows."""

_META = """CASE WHEN json_valid(json_extract(d.extra, '$.metadata'))
  THEN json_extract(json_extract(d.extra, '$.metadata'), '$.{}') END"""

_HELD_BY = f"""
  SELECT d.issue_id, b.id, d.position
  FROM dependencies AS d JOIN issues AS b ON b.id = d.depends_on_id
  WHERE d.type IN {_UNTIL_CLOSED} AND b.status NOT IN {_LETS_GO} AND d.issue_id {{0}}
  UNION ALL
  SELECT d.issue_id, b.id, d.position
  FROM dependencies AS d JOIN issues AS b ON b.id = d.depends_on_id
  WHERE d.type = 'waits-for' AND b.status NOT IN {_LETS_GO} AND d.issue_id {{0}}
    AND {_META.format("also_blocks")} IN (1, 'true')
  UNION ALL
  SELECT d.issue_id, b.id, d.position
  FROM dependencies AS d JOIN issues AS s ON s.id = d.depends_on_id
    JOIN dependencies AS c ON c.depends_on_id = s.id JOIN issues AS b ON b.id = c.issue_id
  WHERE d.type = 'waits-for' AND c.type = 'parent-child' AND b.status NOT IN {_LETS_GO}
    AND s.status <> 'tombstone' AND b.id <> d.issue_id AND d.issue_id {{0}}
    AND NOT ({_META.format("gate")} IS 'any-children' AND EXISTS (SELECT 1 {_CHILDREN} = 'closed'))
"""
"""Pairs of an issue and one that holds it back directly, with a condition on ``d.issue_id``."""

_HIDDEN = " OR ".join(f"json_extract(extra, '$.{key}') IS 1" for key in ready.HIDDEN_KEYS)

_FLAGS = f"""CASE WHEN status IN {_LETS_GO} THEN 0 ELSE
  (EXISTS ({_HELD_BY.format("= issues.id")})
   OR EXISTS (SELECT 1 FROM dependencies AS d JOIN issues AS p ON p.id = d.depends_on_id
              WHERE d.issue_id = issues.id AND d.type = 'parent-child' AND p.blocked & 1))
  END
  | 2 * ({_HIDDEN})
  | 4 * (due_us IS NOT NULL
   OR EXISTS (SELECT 1 FROM dependencies AS d JOIN issues AS p ON p.id = d.depends_on_id
              WHERE d.issue_id = issues.id AND d.type = 'parent-child'
                AND p.due_us IS NOT NULL))"""
"""Expression for the right value of ``blocked``."""

_BATCH = 1000
"""Number of issues read at once: an export of any size needs little memory."""

_ID_LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789"
_ID_TRIES = 4


class SqliteStore:
    """Reads and writes whole issues over one connection, which stays the caller's."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def new_id(self) -> str:
        """Return a free id: the prefix and three letters or digits, more as they fill up."""
        import secrets  # Only needed to add issues: a fleet starts without it.

        prefix = self._column("SELECT value FROM settings WHERE name = 'prefix'")[0]
        for tried in range(1000):
            length = 3 + tried // _ID_TRIES
            found = f"{prefix}-{''.join(secrets.choice(_ID_LETTERS) for _ in range(length))}"
            if not self.known([found]):
                return found
        raise AssertionError("no id is free")

    def known(self, ids: Iterable[str]) -> set[str]:
        """Return those of ``ids`` that the tracker has."""
        return set(self._column(f"SELECT id FROM issues WHERE id IN {_LISTED}", _listed(ids)))

    def issues(self, ids: Iterable[str]) -> list[TrackerIssue]:
        """Return the issues of these ids, in this order; unknown ones are left out."""
        wanted = list(ids)
        listed = _listed(wanted)
        rows = self._connection.execute(
            f"SELECT {_COLUMNS} FROM issues WHERE id IN {_LISTED}", (listed,)
        )
        return self._with_relations(wanted, listed, rows)

    def claim(self, ids: Iterable[str], actor: str, now: str) -> list[TrackerIssue]:
        """Give the issues of these ids to ``actor``; return them, in this order."""
        wanted = list(ids)
        listed = _listed(wanted)
        rows = self._connection.execute(
            "UPDATE issues SET status = ?, assignee = ?, updated_at = ?"
            f" WHERE id IN {_LISTED} RETURNING {_COLUMNS}",
            (IN_PROGRESS, actor, now, listed),
        )
        return self._with_relations(wanted, listed, rows)

    def ids(self, *, finished: bool) -> list[str]:
        """Return ids by priority and age; without ``finished`` only of issues that are not
        closed."""
        condition = "1" if finished else f"status NOT IN {_DONE}"
        return self._column(
            f"SELECT id FROM issues WHERE {condition} ORDER BY priority, created_us, id"
        )

    def in_batches(self, ids: Iterable[str]) -> Iterator[TrackerIssue]:
        """Yield as ``issues``, a batch at a time; begin a transaction for one consistent
        snapshot."""
        remaining = iter(ids)
        while batch := list(islice(remaining, _BATCH)):
            yield from self.issues(batch)

    def waits_for(self, ids: Iterable[str]) -> dict[str, list[str]]:
        """Return, for each blocked issue, the unfinished issues that block it directly, in their
        order."""
        found: dict[str, list[str]] = {}
        for issue_id, blocker, _ in self._connection.execute(
            f"{_HELD_BY.format('IN ' + _LISTED_1)} ORDER BY 1, 3", (_listed(ids),)
        ):
            found.setdefault(issue_id, []).append(blocker)
        return {key: list(dict.fromkeys(each)) for key, each in found.items()}

    def write(self, issue: TrackerIssue) -> None:
        """Insert or replace an issue; ``refresh`` it, and its ``dependants``, in the same
        transaction."""
        self._connection.execute(
            f"INSERT INTO issues ({_COLUMNS}, created_us, due_us) VALUES ({_PLACES})"
            f" ON CONFLICT (id) DO UPDATE SET {_UPDATES}",
            (*_row(issue), microseconds(issue.created_at), due(issue)),
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

    def delete(self, issue_id: str) -> None:
        """Remove an issue, and every dependency on it."""
        freed = self.dependants([issue_id])
        self._connection.execute("DELETE FROM issues WHERE id = ?", (issue_id,))
        self._connection.execute("DELETE FROM dependencies WHERE depends_on_id = ?", (issue_id,))
        self.refresh(freed)

    def dependants(self, ids: Iterable[str]) -> set[str]:
        """Return the issues that one of ``ids`` may block or unblock: issues that wait for it or
        for its parent's children, its own children, and ``ids`` themselves, whose status counts."""
        listed = _listed(ids)
        found = self._column(
            f"SELECT issue_id FROM dependencies WHERE depends_on_id IN {_LISTED_1}"
            f" AND type IN {_quoted((*ready.HOLDING, ready.PARENT_CHILD))}"
            " UNION SELECT d.issue_id FROM dependencies AS c JOIN dependencies AS d"
            " ON d.depends_on_id = c.depends_on_id AND d.type = 'waits-for'"
            f" WHERE c.issue_id IN {_LISTED_1} AND c.type = 'parent-child'"
            f" UNION SELECT value FROM json_each(?1)",
            listed,
        )
        return set(found)

    def refresh(self, ids: Collection[str]) -> None:
        """Update ``blocked`` of ``ids``, and then of their children if it has changed."""
        while ids:
            changed = self._column(
                "UPDATE issues SET blocked = f.flags FROM"
                f" (SELECT id AS key, {_FLAGS} AS flags FROM issues WHERE id IN {_LISTED}) AS f"
                " WHERE id = f.key AND blocked <> f.flags RETURNING id",
                _listed(ids),
            )
            # A change of the flags (not of the status) only affects children.
            ids = self._column(
                f"SELECT DISTINCT issue_id FROM dependencies WHERE depends_on_id IN {_LISTED}"
                f" AND type = '{ready.PARENT_CHILD}'",
                _listed(changed),
            )

    def due(self, now_us: int) -> list[str]:
        """Return the issues that were deferred until a time that has passed."""
        return [
            row[0]
            for row in self._connection.execute("SELECT id FROM issues WHERE due_us <= ?", [now_us])
        ]

    def wake(self, now_us: int, now: str) -> None:
        """End the deferral of issues that are ``due``, and open those whose status is deferred."""
        woken = self.due(now_us)
        self._connection.execute(
            "UPDATE issues SET status = 'open', updated_at = ?,"
            " extra = json_remove(extra, '$.defer_until')"
            " WHERE due_us <= ? AND status = 'deferred'",
            (now, now_us),
        )
        self._connection.execute("UPDATE issues SET due_us = NULL WHERE due_us <= ?", (now_us,))
        self.refresh(self.dependants(woken))

    def cycle(self) -> list[str]:
        """Return issues that would wait for each other for ever, as a closed walk; empty if there
        are none."""
        graph: dict[str, list[str]] = defaultdict(list)
        for issue_id, needed in self._connection.execute(
            "SELECT d.issue_id, d.depends_on_id FROM dependencies AS d"
            " JOIN issues AS b ON b.id = d.depends_on_id JOIN issues AS i ON i.id = d.issue_id"
            f" WHERE d.type = '{ready.PARENT_CHILD}' OR (d.type IN {_UNTIL_CLOSED}"
            f" AND b.status NOT IN {_LETS_GO} AND i.status NOT IN {_LETS_GO})"
        ):
            graph[issue_id].append(needed)
        return find_cycle(graph)

    def _with_relations(
        self, wanted: Iterable[str], listed: str, rows: Iterable[tuple[Any, ...]]
    ) -> list[TrackerIssue]:
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
    """Return a closed walk (first and last are the same) in a directed graph, or an empty list."""
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

_LISTED_1 = "(SELECT value FROM json_each(?1))"
"""The same, for use more than once in a statement."""

_UPDATES = ", ".join(
    f"{name} = excluded.{name}" for name in (*_COLUMNS.split(", ")[1:], "created_us", "due_us")
)


def _listed(ids: Iterable[str]) -> str:
    return json.dumps(list(ids))


def _dumps(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _row(issue: TrackerIssue) -> tuple[str | int | float | None, ...]:
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
) -> TrackerIssue:
    (*texts, comments, timeout_seconds, command, extra) = row
    (key, title, description, status, priority, issue_type, *others) = texts
    assignee, created_at, updated_at, closed_at, close_reason, notes = others
    return TrackerIssue(
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


def count_commands(connection: sqlite3.Connection) -> int:
    """Return how many issues that are not closed bring their own command."""
    statement = "SELECT count(*) FROM issues WHERE command IS NOT NULL AND status <> 'closed'"
    return int(connection.execute(statement).fetchone()[0])


def a_function(connection: sqlite3.Connection) -> str:
    """Return the function that an unfinished issue names in ``job_path``; "" if none does."""
    found = connection.execute(
        "SELECT json_extract(extra, '$.job_path') FROM issues WHERE status NOT IN"
        " ('closed', 'tombstone') AND json_type(extra, '$.job_path') = 'text' LIMIT 1"
    ).fetchone()
    return str(found[0]) if found else ""
