"""What the tracker's file looks like, and how it is opened.

Durability: WAL with ``synchronous=FULL``, so every commit is on disk before anybody is told.
With NORMAL a power cut may undo the last commits; the journal would then remember a close that
the tracker has forgotten, and the issue would be run twice. The price is one sync per *group*.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from beads_workers.core.source import SourceError

SCHEMA_VERSION = 1
"""In ``PRAGMA user_version``. A file of a newer version is refused, never guessed at."""

BUSY_SECONDS = 5.0
"""How long a writer waits for another: far above any of our transactions, an import included."""

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
  blocked INTEGER NOT NULL DEFAULT 0  -- 1: waits for another issue; kept by Store.refresh
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
"""


def connect(path: Path) -> sqlite3.Connection:
    """Open an existing tracker in autocommit mode; raises ``SourceError``.

    The caller begins its own transactions and closes the connection. It may be used from
    another thread than the one that opened it, but from one at a time.
    """
    with translated(path):
        connection = _opened(path, "rw")
        try:
            _check_version(connection, path)
        except (sqlite3.Error, SourceError):
            connection.close()
            raise
    return connection


def create(path: Path, prefix: str) -> bool:
    """Make the tracker unless it is there already; True where this call made it.

    ``prefix`` begins the ids of its issues. The folder must exist. Raises ``SourceError``.
    """
    with translated(path):
        connection = _opened(path, "rwc")
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return _create_tables(connection, prefix)
        finally:
            connection.close()


@contextmanager
def translated(path: Path) -> Iterator[None]:
    """Turn what SQLite raises into ``SourceError``."""
    try:
        yield
    except sqlite3.Error as error:
        raise SourceError(f"{path}: {error}", _hint(error)) from error


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """One write transaction, the lock taken at once; nothing of it remains after an exception."""
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


def _create_tables(connection: sqlite3.Connection, prefix: str) -> bool:
    with transaction(connection):
        if _version(connection) != 0:
            return False
        for statement in _TABLES.split(";\n"):
            connection.execute(statement)
        connection.execute("INSERT INTO settings VALUES ('prefix', ?)", (prefix,))
        connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
    return True


def _check_version(connection: sqlite3.Connection, path: Path) -> None:
    version = _version(connection)
    if version > SCHEMA_VERSION:
        raise SourceError(
            f"{path} was made by a newer beads-workers (schema {version}, known: {SCHEMA_VERSION})",
            "upgrade beads-workers",
        )
    if version < SCHEMA_VERSION:
        raise SourceError(f"{path} is not a tracker of beads-workers", "run 'beads-workers init'")


def _version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def _hint(error: sqlite3.Error) -> str:
    text = str(error)
    if "locked" in text:
        return "another program holds it; it is asked again"
    if "unable to open" in text:
        return "check the permissions, or run 'beads-workers init'"
    if "malformed" in text or "not a database" in text:
        return "restore it from an export: 'beads-workers export' writes one"
    return ""
