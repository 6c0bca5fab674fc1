"""Import and export of the built-in tracker: single issues, and beads' JSON Lines.

An import is one transaction: every line is an issue, or nothing is imported. A label, comment or
dependency that cannot be read is left out, as ``bd`` does. A command that comes with
an issue is only kept if the user allows it: docs/OPERATIONS.md, "Text from issues".
"""

from __future__ import annotations

import sqlite3
from collections.abc import Generator, Iterable, Sequence
from dataclasses import replace
from typing import Any

from beads_workers.core.base.framing import ProtocolError, parse_object
from beads_workers.core.base.model import value
from beads_workers.core.base.text import json_line
from beads_workers.trackers.issue import (
    BadIssue,
    TrackerIssue,
    from_object,
    microseconds,
    to_object,
)
from beads_workers.trackers.settlement_rules import IN_PROGRESS
from beads_workers.trackers.sqlite.store import SqliteStore, transaction

PROBLEMS_MAX = 20
"""Number of bad lines that are named; a file that is no export at all must not fill the screen."""


class ImportRefused(Exception):
    """Nothing was imported. ``problems``: one line each, at most ``PROBLEMS_MAX``."""

    def __init__(self, problems: Sequence[str], count: int) -> None:
        super().__init__(f"{count} bad line{'' if count == 1 else 's'}")
        self.problems = tuple(problems)


class DependencyCycle(Exception):
    """Issues would wait for each other for ever. ``walk`` begins and ends with the same id."""

    def __init__(self, walk: Sequence[str]) -> None:
        super().__init__(" -> ".join(walk))
        self.walk = tuple(walk)


@value
class Imported:
    """Result of an import, as counts of issues."""

    created: int = 0
    updated: int = 0
    unchanged: int = 0
    # Left as they were, because the tracker's are newer.
    older: int = 0
    # Updated, but status and assignee stayed.
    held: int = 0
    commands_dropped: int = 0
    # Records that are no issues (beads' memories, its header).
    skipped: int = 0
    # Dependencies on unknown issues, which hold nothing back.
    dangling: int = 0
    # Labels, comments and dependencies that cannot be read, each with its line and issue.
    left_out: tuple[str, ...] = ()


@value
class _Line:
    issue: TrackerIssue
    has_status: bool


def import_lines(
    connection: sqlite3.Connection, lines: Iterable[bytes], *, now: str, allow_commands: bool
) -> Imported:
    """Insert or update every issue; raises ``ImportRefused`` or ``DependencyCycle``.

    ``now`` replaces times that a line does not give.
    """
    left_out: list[str] = []
    read, skipped = _read(lines, left_out)
    dropped = 0
    if not allow_commands:
        dropped = sum(line.issue.command is not None for line in read)
        read = [replace(line, issue=replace(line.issue, command=None)) for line in read]
    store = SqliteStore(connection)
    with transaction(connection):
        found = _merge(store, read, now)
        _refuse_cycles(store, [line.issue for line in read])
        named = {d.depends_on_id for line in read for d in line.issue.dependencies}
        dangling = len(named - store.known(named))
    found = replace(found, left_out=tuple(left_out), commands_dropped=dropped)
    return replace(found, skipped=skipped, dangling=dangling)


def export_lines(connection: sqlite3.Connection) -> Generator[str, None, None]:
    """Yield every issue, closed ones too, as one line of JSON; all from one consistent snapshot.

    The generator holds a transaction. Unless it is read to its end, close it before the connection.
    """
    store = SqliteStore(connection)
    connection.execute("BEGIN")
    try:
        for issue in store.in_batches(sorted(store.ids(finished=True))):
            yield json_line(to_object(issue))
    finally:
        connection.execute("ROLLBACK")


def write_issues(store: SqliteStore, issues: Iterable[TrackerIssue]) -> None:
    """Insert or replace issues, inside the caller's transaction; raises ``DependencyCycle``."""
    written = list(issues)
    _write(store, written)
    _refuse_cycles(store, written)


def _write(store: SqliteStore, issues: Sequence[TrackerIssue]) -> None:
    ids = {issue.id for issue in issues}
    before = store.dependants(ids)
    for issue in issues:
        store.write(issue)
    store.refresh(before | store.dependants(ids))


def _read(lines: Iterable[bytes], left_out: list[str]) -> tuple[list[_Line], int]:
    """Parse every line; return the issues and the number of records of another kind.

    Add the parts that cannot be read to ``left_out``.
    """
    read: list[_Line] = []
    problems: list[str] = []
    first_seen: dict[str, int] = {}
    skipped = 0
    for number, raw in enumerate(lines, start=1):
        if not raw.strip():
            continue
        parts: list[str] = []
        try:
            line = _parsed(raw.removeprefix(b"\xef\xbb\xbf") if number == 1 else raw, parts)
        except (ProtocolError, BadIssue) as error:
            problems.append(f"line {number}: {error}")
            continue
        if line is None:
            skipped += 1
        elif line.issue.id in first_seen:
            earlier = first_seen[line.issue.id]
            problems.append(f"line {number}: {line.issue.id} was on line {earlier} already")
        else:
            first_seen[line.issue.id] = number
            read.append(line)
            left_out += (f"line {number}, {line.issue.id}: {each}" for each in parts)
    if problems:
        raise ImportRefused(problems[:PROBLEMS_MAX], len(problems))
    return read, skipped


def _parsed(raw: bytes, left_out: list[str]) -> _Line | None:
    fields = parse_object(raw)
    if fields.get("_type", "issue") != "issue" or "_schema" in fields:
        return None  # A memory of beads, or the header of an export.
    return _Line(from_object(fields, left_out), has_status="status" in fields)


def _merge(store: SqliteStore, read: Sequence[_Line], now: str) -> Imported:
    counts: dict[str, Any] = {"created": 0, "updated": 0, "unchanged": 0, "older": 0, "held": 0}
    present = {issue.id: issue for issue in store.in_batches(line.issue.id for line in read)}
    written: list[TrackerIssue] = []
    for line in read:
        old = present.get(line.issue.id)
        kind, issue = _merged(old, line, now)
        counts[kind] += 1
        if issue is not None:
            written.append(issue)
    _write(store, written)
    return Imported(**counts)


def _merged(old: TrackerIssue | None, line: _Line, now: str) -> tuple[str, TrackerIssue | None]:
    """Return the count that the issue belongs to, and the issue to write, or None."""
    new = line.issue
    if old is None:
        created_at = new.created_at or now
        return "created", replace(
            new, created_at=created_at, updated_at=new.updated_at or created_at
        )
    if new.updated_at and microseconds(new.updated_at) < microseconds(old.updated_at):
        return "older", None
    merged = replace(
        new,
        status=new.status if line.has_status else old.status,
        command=new.command or old.command,
        created_at=new.created_at or old.created_at,
        updated_at=new.updated_at or old.updated_at,
    )
    kind = "updated"
    if old.status == IN_PROGRESS and old.assignee:
        # A fleet may be at work on the issue: an import that opened it would cause a second run.
        stays = replace(merged, status=old.status, assignee=old.assignee)
        kind = "updated" if stays == merged else "held"
        merged = stays
    if merged == old:
        return ("unchanged", None) if kind == "updated" else (kind, None)
    return kind, replace(merged, updated_at=new.updated_at or now)


def _refuse_cycles(store: SqliteStore, issues: Sequence[TrackerIssue]) -> None:
    if any(issue.dependencies for issue in issues) and (walk := store.cycle()):
        raise DependencyCycle(walk)
