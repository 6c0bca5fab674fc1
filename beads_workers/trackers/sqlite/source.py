"""The built-in tracker as a source: one short transaction per group."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from beads_workers.core.base import source
from beads_workers.core.base.model import (
    CALL_LABEL,
    COMMAND,
    FLEETS,
    FUNCTION,
    Filters,
    IssueId,
    Job,
    ListedIssue,
    value,
)
from beads_workers.core.base.ready import FINISHED, HIDDEN_TYPES, NO_WORK
from beads_workers.trackers import settlement_rules
from beads_workers.trackers.issue import TrackerIssue, time_text, to_job, to_seen
from beads_workers.trackers.sqlite import edits
from beads_workers.trackers.sqlite.store import (
    SCHEMA_VERSION,
    SqliteStore,
    connect,
    transaction,
    translated,
)

# --- ready ---------------------------------------------------------------------------------------
# Issues that may be taken, as SQL. The rest of the condition is the actor and the ids to skip.


SELECTABLE = "status = 'open' AND blocked = 0"
"""Condition of the index ``ready``, word for word, or SQLite would not use the index."""

_UNDER = """id IN (
  WITH RECURSIVE under (id) AS (
    SELECT issue_id FROM dependencies WHERE depends_on_id = ? AND type = 'parent-child'
    UNION
    SELECT d.issue_id FROM dependencies AS d JOIN under ON d.depends_on_id = under.id
    WHERE d.type = 'parent-child'
  ) SELECT id FROM under)"""


def conditions(filters: Filters) -> tuple[str, list[str | int]]:
    """Return the filters as an SQL condition on ``issues``, and its parameters in order."""
    parts: list[str] = []
    parameters: list[str | int] = []

    def require(condition: str, *values: str | int) -> None:
        parts.append(condition)
        parameters.extend(values)

    if filters.types:
        require(f"issue_type IN {_places(filters.types)}", *filters.types)
    else:
        require(f"issue_type NOT IN {_places(NO_WORK)}", *NO_WORK)
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
    if filters.hold_discovered and not filters.only:
        require(f"NOT {_BY_AGENT}")
    return " AND ".join(parts), parameters


_BY_AGENT = f"coalesce(json_extract(extra, '$.created_by'), '') GLOB '{FLEETS}*/*/*'"


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


# --- changes -------------------------------------------------------------------------------------
# Changes of issues by settlements, a group at a time: one statement for all changes of a kind.
#
# Every writing function runs inside a ``transaction``.


@value
class Change:
    """A change of an issue. ``holding``: its new state; ``note``: the settlement's, as it can be
    stored."""

    settlement: source.Settlement
    holding: settlement_rules.Ownership
    note: str


def holdings(
    connection: sqlite3.Connection, ids: Iterable[str]
) -> dict[str, settlement_rules.Ownership]:
    """Return the state of each of these issues; unknown ones are left out."""
    rows = connection.execute(
        "SELECT id, status, assignee FROM issues WHERE id IN (SELECT value FROM json_each(?))",
        (json.dumps(list(ids)),),
    )
    return {key: settlement_rules.Ownership(status, assignee) for key, status, assignee in rows}


def change(connection: sqlite3.Connection, changes: Sequence[Change], now: str) -> None:
    """Write the changes; afterwards the caller updates ``blocked`` by ``SqliteStore.refresh``."""
    closed = [each for each in changes if each.holding.status == settlement_rules.CLOSED]
    # First changes that a close of the same issue may follow; a close is the last of all.
    connection.executemany(
        "UPDATE issues SET status = ?, assignee = ?, updated_at = ? WHERE id = ?",
        [
            (each.holding.status, each.holding.assignee, now, each.settlement.issue_id)
            for each in changes
            if each.holding.status != settlement_rules.CLOSED
        ],
    )
    connection.executemany(
        "UPDATE issues SET notes = CASE notes WHEN '' THEN ?1 ELSE notes || char(10) || ?1 END"
        " WHERE id = ?2",
        [
            (each.note, each.settlement.issue_id)
            for each in changes
            if each.settlement.action in source.BLOCKING and each.note
        ],
    )
    marked = (each.settlement for each in changes if each.settlement.mark)
    connection.executemany(
        "INSERT OR IGNORE INTO labels SELECT ?1, ?2, count(*) FROM labels WHERE issue_id = ?1",
        [(each.issue_id, each.mark) for each in marked],
    )
    connection.executemany(
        "UPDATE issues SET status = ?, assignee = ?, updated_at = ?3, closed_at = ?3,"
        " close_reason = ?4 WHERE id = ?5",
        [
            (
                settlement_rules.CLOSED,
                each.holding.assignee,
                now,
                each.note,
                each.settlement.issue_id,
            )
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


def unmark(connection: sqlite3.Connection, settlements: Iterable[source.Settlement]) -> None:
    """Take off the labels of issues that do not wait for a person any more."""
    off = (
        f"DELETE FROM labels WHERE issue_id = ? AND label <> ? AND label IN {_places(source.MARKS)}"
    )
    connection.executemany(off, [(each.issue_id, each.mark, *source.MARKS) for each in settlements])


def _results(settlement: source.Settlement) -> Iterable[tuple[str, str]]:
    """Return the result of the work, in the keys ``result`` (it is JSON) and ``result_file``."""
    file = settlement.result_file
    text = json.dumps(file, ensure_ascii=False) if file else ""
    return (("$.result", settlement.result), ("$.result_file", text))


# --- source --------------------------------------------------------------------------------------
# The built-in tracker as a source: one short transaction per group.
#
# ``take`` selects and claims in one ``BEGIN IMMEDIATE``, so no two sources ever get one issue.


@dataclass(slots=True)
class _Opened:
    connection: sqlite3.Connection
    store: SqliteStore
    file: tuple[int, int]
    """Device and inode: a tracker that was deleted while we use it must not swallow our closes."""
    written_by_others: int = 0
    """SQLite's count of writes by other connections, as of the last take."""


class SqliteSource:
    """See ``Source``. The file is opened at the first call, in the caller's thread.

    ``listed_max``: rows of a listing. ``clock``: seconds since 1970, for stored times and
    deferrals. ``with_details``: jobs describe the issues that they had to wait for.
    """

    name = "sqlite"
    self_claiming = False

    def __init__(
        self,
        database: Path,
        *,
        actor: str,
        filters: Filters,
        listed_max: int,
        clock: Callable[[], float] = time.time,
        with_details: bool = False,
    ) -> None:
        self.actor = actor
        self.calls = source.Calls()
        self._database = database
        self._filters = filters
        self._listed_max = listed_max
        self._clock = clock
        self._with_details = with_details
        self._opened: _Opened | None = None
        self._told_held = False
        self._unanswered: tuple[IssueId, ...] = ()
        """Claims without an answer of SQLite: the disk may have them, whatever was reported."""

    def describe(self) -> str:
        """Return kind, version and place; raise ``SourceError`` if the file cannot be read."""
        with self._call() as tracker:
            tracker.connection.execute("SELECT count(*) FROM settings").fetchone()
        return f"sqlite {sqlite3.sqlite_version}, schema {SCHEMA_VERSION}: {self._database}"

    def take(self, limit: int, skip: Collection[IssueId]) -> source.Taken:
        """Claim up to ``limit`` ready issues, most urgent first, oldest first among equals."""
        with self._call() as tracker:
            self._wake(tracker)
            tracker.written_by_others = _data_version(tracker.connection)
            if limit <= 0:
                return self._selected(tracker, 0, skip)
            with transaction(tracker.connection):
                self._release_unanswered(tracker)
                taken = self._selected(tracker, limit, skip)
            self._unanswered = ()
            return taken

    def changed(self) -> bool:
        """See ``WatchedSource``: another connection has written, even if it was one of ours."""
        if self._opened is None:
            return False
        before = self._opened.written_by_others
        try:
            self._opened.written_by_others = _data_version(self._opened.connection)
        except sqlite3.Error:
            return False  # The next take reports the error.
        return self._opened.written_by_others != before

    def settle(self, settlements: Sequence[source.Settlement]) -> list[source.Settled]:
        """Apply a group in one transaction. After ``SourceError`` all or none of it has
        happened."""
        if not settlements:
            return []
        with self._call() as tracker, transaction(tracker.connection):
            return self._settled(tracker, settlements, self.actor)

    def renew(self, issue_ids: Sequence[IssueId]) -> source.Renewed:
        """Return an empty answer: without leases, a claim lasts until it is settled or
        recovered."""
        return source.Renewed()

    def recover(self, dead: source.CrashedRun) -> list[source.Settled]:
        """Close the issues that the crashed run had done; requeue all others in its name."""
        with self._call() as tracker, transaction(tracker.connection):
            held = tracker.connection.execute(
                # The range holds the actor's own name and "<actor>/..." ("0" follows "/").
                "SELECT id, status, assignee FROM issues WHERE (assignee = ?1 OR"
                " (assignee > ?1 || '/' AND assignee < ?1 || '0'))"
                " AND assignee <> '' AND status IN ('open', 'in_progress', 'closed')"
                " ORDER BY priority, created_us, id",
                (dead.actor,),
            ).fetchall()
            left = [
                i
                for i, *found in held
                if settlement_rules.is_left_by(dead, i, settlement_rules.Ownership(*found))
            ]
            return self._settled(tracker, settlement_rules.pending(dead, left), dead.actor)

    def look(self, issue_ids: Sequence[IssueId]) -> dict[IssueId, source.TrackedIssue]:
        """See ``Source``."""
        with self._call() as tracker:
            return {s.issue_id: s for s in self._seen(tracker, map(_storable, issue_ids))}

    def conversations(self, issue_ids: Sequence[IssueId]) -> tuple[source.Conversation, ...]:
        """See ``ConversingSource``."""
        with self._call() as tracker:
            found = tracker.store.issues(_storable(issue_id) for issue_id in issue_ids)
            return tuple(
                source.Conversation(
                    IssueId(issue.id),
                    issue.status,
                    source.read_replies({"comments": issue.comments}),
                    issue.assignee,
                )
                for issue in found
            )

    def read(self, issue_ids: Sequence[IssueId]) -> dict[IssueId, Job]:
        """See ``ReadableSource``."""
        with self._call() as tracker:
            found = tracker.store.issues(_storable(issue_id) for issue_id in issue_ids)
            return {job.issue_id: job for job in self._jobs(tracker, found, with_details=True)}

    def held(self) -> tuple[source.HeldElsewhere, ...]:
        """See ``ClaimingSource``."""
        with self._call() as tracker:
            return self._held(tracker, "1")

    def unfinished(self, rows_max: int) -> list[source.TrackedIssue]:
        """See ``Source``."""
        with self._call() as tracker:
            return self._seen(tracker, tracker.store.ids(finished=False)[:rows_max])

    def ready(self) -> frozenset[IssueId]:
        """See ``Source``."""
        with self._call() as tracker:
            self._wake(tracker)
            found = tracker.connection.execute(
                f"SELECT id FROM issues WHERE {SELECTABLE}"
                f" AND issue_type NOT IN {_places(HIDDEN_TYPES)}",
                HIDDEN_TYPES,
            )
            return frozenset(IssueId(row[0]) for row in found)

    def add(self, change: source.IssueEdit, author: str) -> IssueId:
        """See ``EditableSource``."""
        with self._writing() as store:
            return edits.add(store, change, author, self._now())

    def edit(self, issue_id: IssueId, change: source.IssueEdit, author: str) -> None:
        """See ``EditableSource``; this tracker does not keep who changed an issue."""
        with self._writing() as store:
            edits.edit(store, issue_id, change, self._now())

    def comment(self, issue_id: IssueId, text: str, author: str) -> source.IssueComment:
        """See ``EditableSource``."""
        with self._writing() as store:
            return edits.comment(store, issue_id, text, author, self._now())

    def delete(self, issue_id: IssueId, author: str) -> None:
        """See ``EditableSource``."""
        with self._writing() as store:
            edits.delete(store, issue_id)

    def close(self) -> None:
        """Close the file; a later call would open it again."""
        if self._unanswered:
            with (
                suppress(source.SourceError),
                self._call() as tracker,
                transaction(tracker.connection),
            ):
                self._release_unanswered(tracker)
        self._shut()

    def _shut(self) -> None:
        if self._opened is not None:
            self._opened.connection.close()
            self._opened = None

    def _selected(self, tracker: _Opened, limit: int, skip: Collection[IssueId]) -> source.Taken:
        where, parameters = conditions(self._filters)
        rows = tracker.connection.execute(
            f"SELECT id, title, priority FROM issues WHERE {SELECTABLE} AND assignee IN ('', ?)"
            f" AND id NOT IN (SELECT value FROM json_each(?)) AND {where}"
            " ORDER BY priority, created_us, id LIMIT ?",
            (self.actor, json.dumps(list(skip)), *parameters, limit + self._listed_max + 1),
        ).fetchall()
        claimed = [row[0] for row in rows[:limit]]
        self._unanswered = (*self._unanswered, *claimed)
        # A mere listing writes nothing, and waits for no writer.
        taken = tracker.store.claim(claimed, self.actor, self._now()) if claimed else []
        ends = len(rows) <= limit
        return source.Taken(
            jobs=self._jobs(tracker, taken, with_details=self._with_details),
            listed=tuple(map(ListedIssue._make, rows[limit : limit + self._listed_max])),
            more=len(rows) > limit + self._listed_max,
            blocked=self._blocked(tracker),
            discovered=self._discovered(tracker),
            held=self._held(tracker, where, parameters) if ends or not self._told_held else None,
        )

    def _wake(self, tracker: _Opened) -> None:
        """Open issues again whose deferral has ended."""
        now_us = int(self._clock() * 1_000_000)
        if tracker.store.due(now_us):
            with transaction(tracker.connection):
                tracker.store.wake(now_us, self._now())

    def _seen(self, tracker: _Opened, ids: Iterable[str]) -> list[source.TrackedIssue]:
        """Return the issues with all that holds each back, which its own dependencies may not
        name."""
        issues = tracker.store.issues(ids)
        holders = tracker.store.waits_for(issue.id for issue in issues)
        return [_with(to_seen(issue), holders.get(issue.id, ())) for issue in issues]

    def _release_unanswered(self, tracker: _Opened) -> None:
        """Release claims of a failed transaction: the file may have them, but nobody works on
        them."""
        held = holdings(tracker.connection, self._unanswered)
        ours = [i for i in self._unanswered if i in held and held[i].assignee == self.actor]
        self._settled(
            tracker, [source.Settlement(source.Action.RELEASE, i) for i in ours], self.actor
        )

    def _jobs(
        self, tracker: _Opened, issues: Sequence[TrackerIssue], *, with_details: bool
    ) -> tuple[Job, ...]:
        named = (
            {d.depends_on_id for issue in issues for d in issue.dependencies}
            if with_details
            else ()
        )
        known = {each.id: each for each in tracker.store.issues(named)} if named else {}
        return tuple(
            to_job(
                issue,
                self.name,
                [known[d.depends_on_id] for d in issue.dependencies if d.depends_on_id in known],
            )
            for issue in issues
        )

    def _held(
        self, tracker: _Opened, condition: str, parameters: Sequence[str | int] = ()
    ) -> tuple[source.HeldElsewhere, ...]:
        self._told_held = True
        rows = tracker.connection.execute(
            f"SELECT id, assignee FROM issues WHERE status = ? AND {condition}"
            " ORDER BY priority, created_us, id",
            (settlement_rules.IN_PROGRESS, *parameters),
        )
        return tuple(
            source.HeldElsewhere(IssueId(key), settlement_rules.other_run(assignee) or assignee)
            for key, assignee in rows
            if not settlement_rules.is_held_by(assignee, self.actor)
        )

    def _discovered(self, tracker: _Opened) -> tuple[IssueId, ...]:
        if not self._filters.hold_discovered:
            return ()
        where, parameters = conditions(replace(self._filters, hold_discovered=False))
        rows = tracker.connection.execute(
            f"SELECT id FROM issues WHERE {SELECTABLE} AND {_BY_AGENT} AND {where}"
            " ORDER BY priority, created_us, id LIMIT ?",
            (*parameters, self._listed_max),
        )
        return tuple(IssueId(row[0]) for row in rows)

    def _blocked(self, tracker: _Opened) -> int:
        where, parameters = conditions(self._filters)
        row = tracker.connection.execute(
            f"SELECT count(*) FROM issues WHERE status = 'open' AND blocked = 1 AND {where}",
            parameters,
        ).fetchone()
        return int(row[0])

    def _settled(
        self, tracker: _Opened, settlements: Sequence[source.Settlement], actor: str
    ) -> list[source.Settled]:
        store = tracker.store
        found = holdings(tracker.connection, (_storable(each.issue_id) for each in settlements))
        answers: list[source.Settled] = []
        changes: list[Change] = []
        unmarked: list[source.Settlement] = []
        for settlement in settlements:
            key = settlement.issue_id
            ruling = settlement_rules.rule(settlement, found.get(key), actor)
            if settlement_rules.unmarks(found.get(key), ruling.result):
                unmarked.append(settlement)
            if ruling.write is not None:
                found[key] = ruling.write
                changes.append(Change(settlement, ruling.write, _storable(settlement.note)))
            answers.append(source.Settled(settlement, ruling.result, ruling.error))
        unmark(tracker.connection, unmarked)
        change(tracker.connection, changes, self._now())
        # A closed issue unblocks others, and blocks them again if the close is undone.
        moved = {
            c.settlement.issue_id
            for c in changes
            if c.holding.status in FINISHED or c.settlement.by_agent or c.settlement.taken_back
        }
        store.refresh(store.dependants(moved))
        return answers

    @contextmanager
    def _writing(self) -> Iterator[SqliteStore]:
        with self._call() as tracker, transaction(tracker.connection):
            yield tracker.store

    def _now(self) -> str:
        return time_text(self._clock())

    @contextmanager
    def _call(self) -> Iterator[_Opened]:
        """Count the call; after a failure the next call opens the file again."""
        began = time.monotonic()
        try:
            with translated(self._database):
                yield self._tracker()
        except source.SourceError:
            self._shut()
            raise
        finally:
            self.calls.count += 1
            self.calls.seconds += time.monotonic() - began

    def _tracker(self) -> _Opened:
        try:
            found = self._database.stat()
        except OSError as error:
            hint = "'beads-workers init' makes a new one"
            raise source.SourceError(f"{self._database}: {error.strerror}", hint) from error
        file = (found.st_dev, found.st_ino)
        if self._opened is not None and self._opened.file != file:
            self._shut()
        if self._opened is None:
            connection = connect(self._database)
            self._opened = _Opened(connection, SqliteStore(connection), file)
        return self._opened


def _with(seen: source.TrackedIssue, holders: Iterable[str]) -> source.TrackedIssue:
    named = dict.fromkeys((*seen.waits_for, *map(IssueId, holders)))
    return replace(seen, waits_for=tuple(named))


def _data_version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA data_version").fetchone()[0])


def _storable(text: str) -> str:
    """Return valid UTF-8: an error text may hold lone surrogates."""
    return text.encode("utf-8", "replace").decode("utf-8")
