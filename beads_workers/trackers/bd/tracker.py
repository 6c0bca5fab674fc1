"""One project's ``bd``: its calls, its answers, and the quirks of its generations."""

from __future__ import annotations

import re
import shutil
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

from beads_workers.core.base.framing import is_deep, strict_loads
from beads_workers.core.base.model import (
    FUNCTION,
    PRIORITY_DEFAULT,
    PRIORITY_LEAST_URGENT,
    PRIORITY_MOST_URGENT,
    Filters,
    IssueId,
    path_of,
    value,
)
from beads_workers.core.base.ready import NO_WORK
from beads_workers.core.base.source import SourceError
from beads_workers.runtime.kernel import system
from beads_workers.trackers.bd.calls import BdCalls, BdResult, UnknownOutcome, plain

# --- answers -------------------------------------------------------------------------------------
# Output of ``bd`` as values. The exit status and the JSON are judged together.
#
# ``stderr`` holds warnings, hints and, in ``bd`` 1.x, error objects; text there alone is no
# failure. Junk, an error object instead of an array, or nothing at all never means "no issues".


_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*\Z")

OPEN, IN_PROGRESS, BLOCKED, CLOSED = "open", "in_progress", "blocked", "closed"


@value
class BdRow:
    """One issue as ``bd`` showed it; ``original`` is its object without deeply nested values."""

    issue_id: IssueId
    title: str
    status: str
    assignee: str
    priority: int
    issue_type: str
    labels: tuple[str, ...]
    description: str
    notes: str
    original: Mapping[str, Any]


@value
class Refusal:
    """Reason why one issue of a group was not written. ``lost``: somebody else was faster."""

    issue_id: str
    error: str
    lost: bool


def held_by(assignee: str, actor: str) -> bool:
    """Return whether ``actor`` or one of its workers or agents (``actor/W3``, ``actor/bw-7``) is
    the assignee."""
    return assignee == actor or assignee.startswith(actor + "/")


def is_safe_id(issue_id: str) -> bool:
    """Return whether an id is safe as an argument: it cannot be taken for an option or a path."""
    return _ID.match(issue_id) is not None


def rows(answer: BdResult) -> list[BdRow]:
    """Return the issues of a call that must succeed with an array; raise ``SourceError``
    otherwise."""
    if answer.status != 0:
        raise failed(answer)
    return _rows_of(answer, _json(answer))


def asked_for(answer: BdResult, issue_ids: Sequence[IssueId]) -> dict[IssueId, BdRow]:
    """Return the rows of these issues; raise ``SourceError`` if the answer has others, or
    failed."""
    found = {row.issue_id: row for row in rows(answer)}
    if others := found.keys() - set(issue_ids):
        raise _no_answer(
            f"bd {answer.command}: it answers about {min(others)}, which nobody has asked for",
            "is this bd really beads? see what bd doctor says",
        )
    return found


def rows_of_group(answer: BdResult) -> list[BdRow]:
    """Return the issues that a group write names as written, whatever happened to the others.

    Raises ``SourceError`` if the call names neither written nor refused issues: such a call may
    have done anything.
    """
    if not answer.stdout.strip() and (refusals(answer) or _losses(answer)):
        return []
    if answer.status != 0 and not refusals(answer):
        raise failed(answer)
    return _rows_of(answer, _json(answer))


def object_of(answer: BdResult) -> dict[str, Any]:
    """Return the object of a call that must succeed with one; raise ``SourceError`` otherwise."""
    if answer.status != 0:
        raise failed(answer)
    value = _json(answer)
    if not isinstance(value, dict) or "error" in value:
        raise failed(answer)
    return value


def refusals(answer: BdResult) -> list[Refusal]:
    """Return the refusals that ``bd`` 1.x prints per id for a group that did not wholly succeed."""
    entries = _error_object(answer).get("failed")
    found = []
    for entry in entries if isinstance(entries, list) else []:
        if isinstance(entry, dict):
            error = _text(entry, "error")
            lost = entry.get("guard_mismatch") is True or "claim" in error
            found.append(Refusal(_text(entry, "id"), plain(error), lost))
    return found


def failed(answer: BdResult) -> SourceError:
    """Return the error of a failed call, in one line with a hint."""
    message = plain(_text(_error_object(answer), "error")) or _complaint(answer)
    if answer.cut:
        message = "its answer is larger than any that is sensible"
    elif not message:
        message = plain(answer.stdout[:200].decode("utf-8", "replace"))
        message = f"no JSON in its answer: {message}" if message else "it printed nothing"
    status = f" (exit {answer.status})" if answer.status else ""
    error = SourceError(f"bd {answer.command}{status}: {message}", _hint(message))
    error.passing = bool(_PASSING.search(message)) and not answer.cut
    return error


_PASSING = re.compile(r"\block|busy|no JSON in its answer|printed nothing|out of sync")
"""Texts of errors that may pass by themselves; ``bd`` has no exit status for them."""


_READS = ("context", "info", "list", "ready", "show")
"""Calls that write nothing: one that fails, and may pass, is made again at once."""


def is_out_of_sync(answer: BdResult) -> bool:
    """Return whether ``bd`` 0.x without its daemon failed because another process has just written
    the JSON Lines."""
    return answer.status != 0 and b"out of sync with JSONL" in answer.stdout + answer.stderr


def _losses(answer: BdResult) -> bool:
    # bd 0.x exits with 0 and an empty stdout if every claim of the group was lost.
    return answer.status == 0 and b"already claimed" in answer.stderr


def _json(answer: BdResult) -> Any:
    if answer.cut:
        raise failed(answer)
    try:
        return _loaded(answer.stdout)
    except (ValueError, RecursionError):
        raise failed(answer) from None


def _loaded(text: bytes) -> Any:
    """Return the JSON, out of the envelope in which ``bd`` 2.0 prints it on both outputs.

    1.3 prints a ``schema_version`` without an envelope, too.
    """
    value = strict_loads(text)
    is_envelope = isinstance(value, dict) and {"data", "schema_version"} <= value.keys()
    return value["data"] if is_envelope else value


def _rows_of(answer: BdResult, value: Any) -> list[BdRow]:
    if not isinstance(value, list) or not all(isinstance(x, dict) for x in value):
        raise failed(answer)
    return [_row(x) for x in value if is_safe_id(_text(x, "id"))]


def _row(issue: dict[str, Any]) -> BdRow:
    labels = issue.get("labels")
    return BdRow(
        issue_id=IssueId(_text(issue, "id")),
        title=_text(issue, "title"),
        status=_text(issue, "status"),
        assignee=_text(issue, "assignee"),
        priority=_priority(issue.get("priority")),
        issue_type=_text(issue, "issue_type") or "task",
        labels=tuple(x for x in labels if isinstance(x, str)) if isinstance(labels, list) else (),
        description=_text(issue, "description"),
        notes=_text(issue, "notes"),
        # A field that cannot be passed on must not stop its issue, or all others.
        original={name: value for name, value in issue.items() if not _is_deep(value)},
    )


def _is_deep(value: Any) -> bool:
    return isinstance(value, dict | list) and is_deep(value)


def _needed(row: BdRow) -> list[dict[str, Any]]:
    """Return the closed dependencies of the issue, as objects that may be completed."""
    named = row.original.get("dependencies")
    listed = [each for each in named if isinstance(each, dict)] if isinstance(named, list) else []
    return [
        each
        for each in listed
        if each.get("status") == CLOSED and each.get("dependency_type") != "parent-child"
    ]


@value
class _Event:
    """An event of an issue. ``moment``: text by which events are ordered; several may share one.
    ``kind``: as ``bd`` names it."""

    moment: str
    kind: str
    actor: str


_BEGINS = ("claimed", "reopened", "status_changed")
"""Kinds of events that start a new period: only closes after them count."""


def _closer(events: Sequence[_Event], actor: str) -> str:
    """Return who closed the issue, strangers first and ``actor`` next; "" if no event tells."""
    begins = [each.moment for each in events if each.kind in _BEGINS]
    closes = [each for each in events if each.kind == CLOSED and each.actor]
    names = [each.actor for each in closes if not begins or each.moment >= max(begins)]
    strangers = [name for name in names if not held_by(name, actor)]
    return (strangers or sorted(names) or [""])[0]


def _priority(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        return PRIORITY_DEFAULT
    return min(max(value, PRIORITY_MOST_URGENT), PRIORITY_LEAST_URGENT)


def _text(fields: Mapping[str, Any], key: str) -> str:
    value = fields.get(key)
    return value if isinstance(value, str) else ""


def _error_object(answer: BdResult) -> dict[str, Any]:
    """Return the ``{"error": ...}`` of either output: 0.x prints it on stdout, 1.x mostly on
    stderr."""
    lines = answer.stderr.splitlines()
    for text in (
        answer.stdout,
        answer.stderr,
        *reversed(lines),
        answer.stderr[answer.stderr.find(b"{") : answer.stderr.rfind(b"}") + 1],
    ):
        if not text.lstrip().startswith(b"{"):
            continue
        try:
            value = _loaded(text)
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict) and "error" in value:
            return value
    return {}


def _complaint(answer: BdResult) -> str:
    lines = answer.stderr.decode("utf-8", "replace").splitlines()
    errors = [line.removeprefix("Error: ") for line in lines if line.startswith("Error")]
    return plain((errors or [x for x in lines if x.strip()] or [""])[0])


def _hint(message: str) -> str:
    if "no beads database" in message:
        return "run bd init in the project, or start in a folder below the one that holds .beads"
    if "locked" in message or "lock " in message:
        return "another process holds the tracker; see what bd doctor says"
    if "JSON" in message or "printed nothing" in message:
        return "is this bd really beads? see what bd ready --json prints"
    return "see what bd doctor says"


# --- abilities -----------------------------------------------------------------------------------
# Features of the running ``bd``, read from its version and its help texts.


VERSION_BYTES_MAX = 1000
"""Limit for the output of ``--version``: a program that prints more is none that we know."""

ALL_HELP = ("help", "--all")
"""Arguments that print every help text at once, if this ``bd`` has them: four calls less in every
start."""

_HEADING = re.compile(r"(?m)^#{2,3} (?:bd )?(.+)$")
_COMMAND = re.compile(r"(?m)^  ([a-z][a-z-]*)\s")
_VERSION = re.compile(r"([0-9]{1,9}\.[0-9]{1,9}\.[0-9]{1,9}[\w.+-]{0,60})", re.ASCII)


@value
class BdFeatures:
    """Features of a ``bd``."""

    version: str
    # ``update --if-assignee --if-status``, and atomic claims with it.
    compare_and_swap: bool
    # One transaction for many closes.
    batch: bool
    # A claim expires unless it is renewed.
    leases: bool
    # A background process may hold the database.
    daemon: bool
    # Single options, up to ``readonly``.
    append_notes: bool
    brief: bool
    brief_list: bool
    exclude_type: bool
    exclude_label: bool
    readonly: bool
    hidden: tuple[str, ...]
    """Options of ``list`` without which some kinds of issues are left out."""


@value
class _Helps:
    """Help texts: global options, those of three commands, and the names of all commands."""

    everywhere: str
    update: str
    ready: str
    listing: str
    commands: frozenset[str]


def detect(calls: BdCalls) -> BdFeatures:
    """Ask ``bd`` for its features; raise ``SourceError`` if there is no ``bd``, or it cannot
    claim."""
    version = version_in(_told(calls, "--version"))
    helps = _all_at_once(calls) or _one_by_one(calls)
    if not _has(helps.update, "--claim") or not _has(helps.update, "--json"):
        raise SourceError(
            f"bd {version} is too old: it cannot claim an issue",
            "install beads 0.44.0 or later",
        )
    hidden = ("--include-gates", "--include-templates", "--include-infra")
    return BdFeatures(
        version=version,
        compare_and_swap=_has(helps.update, "--if-assignee") and _has(helps.update, "--if-status"),
        batch="batch" in helps.commands,
        leases="heartbeat" in helps.commands,
        daemon=_has(helps.everywhere, "--no-daemon"),
        append_notes=_has(helps.update, "--append-notes"),
        brief=_has(helps.ready, "--brief"),
        brief_list=_has(helps.listing, "--brief"),
        exclude_type=_has(helps.ready, "--exclude-type"),
        exclude_label=_has(helps.ready, "--exclude-label"),
        readonly=_has(helps.everywhere, "--readonly"),
        hidden=tuple(option for option in hidden if _has(helps.listing, option)),
    )


def _all_at_once(calls: BdCalls) -> _Helps | None:
    """Read the help texts by one call; None if this ``bd`` has no such reference, or in another
    form."""
    answer = calls.run(ALL_HELP)
    if answer.status != 0:
        return None
    sections = _sections(answer.stdout.decode("utf-8", "replace"))
    found = [sections.get(name) for name in ("Global Flags", "update", "ready", "list")]
    if not all(found):
        return None
    everywhere, update, ready, listing = (text or "" for text in found)
    return _Helps(everywhere, update + everywhere, ready, listing, frozenset(sections))


def _told(calls: BdCalls, *arguments: str) -> BdResult:
    """Return the answer to a call that asks no tracker, and is made again if it fails."""
    answer = calls.run(arguments)
    return answer if answer.status == 0 else calls.run(arguments)


def _sections(text: str) -> dict[str, str]:
    _, *parts = _HEADING.split(text)
    return dict(zip(parts[::2], parts[1::2], strict=True))


def _one_by_one(calls: BdCalls) -> _Helps:
    overview = _help(calls)
    return _Helps(
        everywhere=overview,
        update=_help(calls, "update"),
        ready=_help(calls, "ready"),
        listing=_help(calls, "list"),
        commands=frozenset(_COMMAND.findall(overview)),
    )


def version_in(answer: BdResult) -> str:
    """Return the version in the answer of ``bd --version``; raise ``SourceError`` if it names
    none."""
    text = answer.stdout[:VERSION_BYTES_MAX].decode("utf-8", "replace")
    found = _VERSION.search(text)
    if answer.status != 0:
        raise failed(answer)
    if found is None:
        raise _no_answer(f"bd --version says no version: {plain(text)[:80]}")
    return found[1]


def _help(calls: BdCalls, *command: str) -> str:
    answer = _told(calls, *command, "--help")
    if answer.status != 0:
        raise failed(answer)
    text = answer.stdout.decode("utf-8", "replace")
    if "Usage:" not in text:
        # Features are read off this text: without leases, claims would lapse.
        raise _no_answer(f"bd {' '.join(command)} --help says nothing of use: {plain(text)[:80]}")
    return text


def _no_answer(message: str, hint: str = "is this bd really beads?") -> SourceError:
    error = SourceError(message, hint)
    error.passing = True
    return error


def _has(text: str, option: str) -> bool:
    return re.search(rf"(?m)^ .*{re.escape(option)}(?![\w-])", text) is not None


# --- listings ------------------------------------------------------------------------------------
# Wanted ready issues: filters of ``bd ready``, and filters of our own.


def ready_arguments(filters: Filters, abilities: BdFeatures, rows_max: int) -> list[str]:
    """Return the arguments of ``bd ready``: at most ``rows_max`` rows (0: all), most urgent first.

    Filters that this ``bd`` lacks are left to ``wanted``, which checks everything again except
    ``parent``: only ``bd`` knows the ancestors of an issue.
    """
    arguments = ["ready", "--json", f"--limit={rows_max}", "--sort=priority"]
    arguments += [f"--label={quoted(label)}" for label in filters.labels]
    arguments += [f"--label-any={quoted(label)}" for label in filters.labels_any]
    if abilities.brief:
        arguments.append("--brief")
    if abilities.exclude_label:
        arguments += [f"--exclude-label={quoted(label)}" for label in filters.exclude_labels]
    if len(filters.types) == 1:
        arguments.append(f"--type={filters.types[0]}")
    elif not filters.types and abilities.exclude_type:
        arguments.append(f"--exclude-type={','.join(NO_WORK)}")
    if len(filters.priorities) == 1:
        arguments.append(f"--priority={filters.priorities[0]}")
    if filters.parent is not None:
        arguments.append(f"--parent={filters.parent}")
    return arguments


def wanted(row: BdRow, filters: Filters, actor: str) -> bool:
    """Return whether a row of ``bd ready`` may be taken (0.x lists issues in progress as well)."""
    return (
        row.status == OPEN
        and row.assignee in ("", actor)
        and (row.issue_type in filters.types if filters.types else row.issue_type not in NO_WORK)
        and (not filters.priorities or row.priority in filters.priorities)
        and set(filters.labels) <= set(row.labels)
        and (not filters.labels_any or not set(filters.labels_any).isdisjoint(row.labels))
        and set(filters.exclude_labels).isdisjoint(row.labels)
        and (not filters.only or row.issue_id in filters.only)
        and (not filters.bring or _brings(row, filters))
        and not filters.holds(row.original.get("created_by"))
    )


def held_back(rows: Iterable[BdRow], filters: Filters, actor: str) -> tuple[IssueId, ...]:
    """Return the issues that would be wanted if no agent had filed them."""
    if not filters.hold_discovered:
        return ()
    others = replace(filters, hold_discovered=False)
    held = [row for row in rows if filters.holds(row.original.get("created_by"))]
    return tuple(row.issue_id for row in held if wanted(row, others, actor))


def candidates(
    rows: Iterable[BdRow], filters: Filters, actor: str, skip: Collection[IssueId]
) -> list[BdRow]:
    """Return the wanted rows, most urgent first, otherwise in the order of the listing."""
    found = [r for r in rows if r.issue_id not in skip and wanted(r, filters, actor)]
    return sorted(found, key=lambda row: row.priority)


def _brings(row: BdRow, filters: Filters) -> bool:
    return FUNCTION in filters.bring and bool(path_of(row.original, row.labels))


def quoted(label: str) -> str:
    """Return a label as one field of the comma-separated list that ``bd`` reads from label
    options."""
    if any(c in label for c in ',"\n\r'):
        return '"' + label.replace('"', '""') + '"'
    return label


# --- tracker -------------------------------------------------------------------------------------
# One project's ``bd``: its calls, with the quirks of its generations kept here.


DAEMON_WAIT_SECONDS = 5.0
"""Seconds that ``bd`` 0.x waits, on every call, for a daemon that does not come up."""
IDS_PER_CALL_MAX = 100
"""Issues of one call: keeps the command line and the time short."""
WHOLE_IDS_PER_CALL_MAX = 20
"""The same for whole issues: with all comments, and all texts of its dependencies, an issue may
take a megabyte."""
COMMENTS = "--include-comments"
EVENTS = "--events"
EVENTS_MAX = 100
"""Number of the newest events that are read, among which is the last close."""
_EVENTS_ON_DISK = (
    "SELECT id, event_type, actor FROM events WHERE issue_id = ? ORDER BY id DESC LIMIT ?"
)


class BdTracker:
    """Reads issues through ``calls``; learns the features of the running ``bd`` when first used.

    ``known``: features that were learned before, of the same ``bd``. Every method may raise
    ``SourceError``; then nothing is known.
    """

    def __init__(self, calls: BdCalls, known: BdFeatures | None = None) -> None:
        self.calls = calls
        self._abilities = known
        self._options: dict[str, bool] = {}

    @property
    def abilities(self) -> BdFeatures:
        """Features of this ``bd``; asked once."""
        if self._abilities is None:
            self._abilities = detect(self.calls)
        return self._abilities

    def ask(
        self, arguments: Sequence[str], *, ids: int = 0, text: str = "", actor: str = ""
    ) -> BdResult:
        """Make one call, or two if this ``bd`` turns out to need an option that it was not
        given."""
        has_daemon = self.abilities.daemon
        try:
            answer = self.calls.run(arguments, ids=ids, text=text, actor=actor)
        except UnknownOutcome:
            if has_daemon:
                # Perhaps the daemon hangs: it has a session of its own, and is not ours.
                self._always("--no-daemon")
            raise
        is_read = arguments[0] in _READS and not (has_daemon and is_out_of_sync(answer))
        if answer.status and is_read and failed(answer).passing:
            answer = self.calls.run(arguments, ids=ids, text=text, actor=actor)
        if not has_daemon:
            return answer
        if b"Daemon failed to start" in answer.stderr or answer.seconds >= DAEMON_WAIT_SECONDS:
            self._always("--no-daemon")
        if is_out_of_sync(answer) and self._always("--allow-stale"):
            # bd checks this before it does anything, so nothing has been written yet.
            return self.calls.run(arguments, ids=ids, text=text, actor=actor)
        return answer

    def ready(self, filters: Filters, rows_max: int) -> list[BdRow]:
        """Return the rows of ``bd ready``, unfiltered if this ``bd`` cannot filter."""
        return rows(self.ask(ready_arguments(filters, self.abilities, rows_max)))

    def look(self, issue_ids: Sequence[IssueId]) -> dict[IssueId, BdRow]:
        """Return these issues as they are now, closed ones too. An issue that two answers leave out
        does not exist."""
        seen: dict[IssueId, BdRow] = {}
        for start in range(0, len(issue_ids), IDS_PER_CALL_MAX):
            part = issue_ids[start : start + IDS_PER_CALL_MAX]
            seen |= self._look(part)
            if missing := [issue_id for issue_id in part if issue_id not in seen]:
                seen |= self._look(missing)
        return seen

    def _look(self, issue_ids: Sequence[IssueId]) -> dict[IssueId, BdRow]:
        listing = [*self._list(), "--all", f"--id={','.join(issue_ids)}"]
        return asked_for(self.ask(listing, ids=len(issue_ids)), issue_ids)

    def details(self, issue_ids: Sequence[IssueId]) -> dict[IssueId, BdRow]:
        """Return these issues with comments, and with their dependencies as objects.

        ``bd`` 1.3 leaves out comments by default; 0.x does not print why a dependency was closed,
        so that is looked up.
        """
        asked = ["show", "--json", *self._include_comments()]
        asked += ["--readonly"] if self.abilities.readonly else []
        found: dict[IssueId, BdRow] = {}
        for start in range(0, len(issue_ids), WHOLE_IDS_PER_CALL_MAX):
            part = issue_ids[start : start + WHOLE_IDS_PER_CALL_MAX]
            shown = rows(self.ask([*asked, "--", *part], ids=len(part)))
            found |= {row.issue_id: row for row in shown if row.issue_id in part}
        needed = [d for row in found.values() for d in _needed(row) if not d.get("close_reason")]
        if needed:
            ids = {IssueId(_text(d, "id")) for d in needed}
            closed = self.look(sorted(i for i in ids if is_safe_id(i)))
            for each in needed:
                if (row := closed.get(IssueId(_text(each, "id")))) is not None:
                    each["close_reason"] = _text(row.original, "close_reason")
        return found

    def _include_comments(self) -> list[str]:
        return [COMMENTS] if self._has_option("show", COMMENTS) else []

    def _has_option(self, command: str, option: str) -> bool:
        """Return whether a command of this ``bd`` has an option; asked when first needed."""
        if option not in self._options:
            answer = self.calls.run([command, "--help"])
            text = answer.stdout.decode("utf-8", "replace")
            self._options[option] = answer.status == 0 and _has(text, option)
        return self._options[option]

    def closers(self, issue_ids: Sequence[IssueId], actor: str) -> dict[IssueId, str]:
        """Return who closed these issues since they were claimed, as far as this ``bd`` tells.

        If several have closed an issue, a stranger is preferred to ``actor`` and those below it,
        then ``actor`` itself. 1.x needs a call for each; 0.x has no command, so its file is read.
        """
        if self._has_option("history", EVENTS):
            events = {i: self._events(i) for i in issue_ids}
        else:
            events = self._events_on_disk(issue_ids)
        found = {i: _closer(each, actor) for i, each in events.items()}
        return {i: who for i, who in found.items() if who}

    def _events(self, issue_id: IssueId) -> list[_Event]:
        readonly = ["--readonly"] if self.abilities.readonly else []
        limit = f"--limit={EVENTS_MAX}"
        answer = self.ask(["history", "--json", EVENTS, limit, *readonly, "--", issue_id], ids=1)
        named = _json(answer)
        if answer.status != 0 or not isinstance(named, list):
            raise failed(answer)
        fields = [each for each in named if isinstance(each, dict)]
        return [
            _Event(_text(each, "created_at"), _text(each, "event_type"), _text(each, "actor"))
            for each in fields
        ]

    def _events_on_disk(self, issue_ids: Sequence[IssueId]) -> dict[IssueId, list[_Event]]:
        import sqlite3  # Hardly ever needed: an issue was closed while we held it.

        path = object_of(self.ask(["info", "--json"])).get("database_path")
        if not isinstance(path, str) or not Path(path).is_file():
            return {}
        found: dict[IssueId, list[_Event]] = {}
        try:
            file = sqlite3.connect(f"{Path(path).absolute().as_uri()}?mode=ro", uri=True, timeout=5)
            with closing(file) as database:
                for issue_id in issue_ids:
                    rows = database.execute(_EVENTS_ON_DISK, (issue_id, EVENTS_MAX)).fetchall()
                    found[issue_id] = [
                        _Event(f"{n:012}", str(kind), str(who)) for n, kind, who in rows
                    ]
        except sqlite3.Error:
            return {}  # There is no database, or it has another form.
        return found

    def in_progress(self) -> list[BdRow]:
        """Return all issues in progress, whoever holds them; leases included."""
        return rows(self.ask([*self._list(), f"--status={IN_PROGRESS}"]))

    def begun_or_open(self) -> list[BdRow]:
        """Return all issues in progress or open, whoever holds them; leases included."""
        return rows(self.ask([*self._list(), f"--status={IN_PROGRESS},{OPEN}"]))

    def under_way(self, actor: str) -> list[BdRow]:
        """Return all issues in progress, and open ones that are still assigned to ``actor``."""
        started = self.in_progress()
        left = rows(self.ask([*self._list(), f"--status={OPEN}", f"--assignee={actor}"]))
        return started + left

    def place(self) -> str:
        """Return mode, path and prefix, for people; checks that the database answers."""
        info = object_of(self.ask(["info", "--json"]))
        config = info.get("config")
        prefix = config.get("issue_prefix") if isinstance(config, dict) else None
        if self.abilities.daemon:
            mode = "with its daemon" if info.get("daemon_connected") is True else "without daemon"
        else:
            mode = self._dolt_mode()
        path = Path(str(info.get("database_path") or self.calls.folder / ".beads")).parent
        return plain(f"{mode}, {path}" + (f" (prefix {prefix})" if prefix else ""))

    def self_claiming_argv(self) -> tuple[str, ...]:
        """Return program and fixed options for a worker that calls ``bd`` by itself, beside
        others."""
        environment = self.calls.environment
        path = environment.get("PATH") if environment is not None else None
        program = shutil.which(self.calls.program, path=path) or self.calls.program
        if self.abilities.daemon and not self.daemon_runs():
            # Several writers without a daemon: each would find the others' JSON Lines newer.
            return (program, "--no-daemon", "--allow-stale")
        return (program, *self.calls.fixed)

    def daemon_runs(self) -> bool:
        """Return whether the process named in ``.beads/daemon.pid`` lives and is a ``bd``."""
        try:
            pid = int((self.calls.folder / ".beads" / "daemon.pid").read_text())
            name = system.name_of(pid)
        except (OSError, ValueError):
            return False
        return name.startswith("bd")

    def flush(self) -> None:
        """Write the JSON Lines of ``bd`` 0.x once more, from the database alone.

        Each call writes them by itself, but of two at the same moment one may write last with less.
        A running daemon does this every few seconds.
        """
        if self.abilities.daemon and not self.daemon_runs():
            self.ask(["sync", "--flush-only"])

    def _list(self) -> list[str]:
        brief = self.abilities.brief_list and self.abilities.append_notes
        return ["list", "--json", "--limit=0", *self.abilities.hidden, *["--brief"][: int(brief)]]

    def _dolt_mode(self) -> str:
        try:
            mode = object_of(self.ask(["context", "--json"])).get("dolt_mode")
        except SourceError:
            # Only for display, and not every version has the command.
            return "dolt"
        return mode if isinstance(mode, str) else "dolt"

    def _always(self, option: str) -> bool:
        """Add the option to all further calls; return False if it is there already."""
        if option in self.calls.fixed:
            return False
        self.calls.fixed.append(option)
        return True
