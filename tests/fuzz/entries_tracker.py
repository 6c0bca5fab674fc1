"""What ``bd`` prints, and issues as beads exports them."""

from __future__ import annotations

import json
from random import Random
from typing import Any

from beads_workers.core.base.framing import ProtocolError, parse_object
from beads_workers.core.base.source import SourceError
from beads_workers.core.base.text import json_line
from beads_workers.trackers.bd import source, tracker
from beads_workers.trackers.bd.calls import BdResult, plain
from beads_workers.trackers.issue import (
    BadIssue,
    TrackerIssue,
    from_object,
    microseconds,
    to_object,
    to_seen,
)
from tests.fuzz.inputs import any_of, as_json, as_text, hostile, hostile_object, objects, texts
from tests.fuzz.parser import Parser, require, well_typed

# --- the answers of bd --------------------------------------------------------------------------

ISSUE = {
    "id": "bw-1", "title": "a title", "description": "do it", "status": "open", "priority": 1,
    "issue_type": "bug", "assignee": "actor/W1", "labels": ["x", "y"], "notes": "tried once",
    "created_at": "2026-01-02T03:04:05.678Z", "updated_at": "2026-01-02T03:04:05+02:00",
    "dependencies": [{"issue_id": "bw-1", "depends_on_id": "bw-2", "type": "blocks"}],
    "parent": "bw-3", "defer_until": "2026-02-01T00:00:00Z", "metadata": {"a": {"b": [1, 2]}},
}  # fmt: skip
REFUSED = {
    "error": "2 of 3 updates failed",
    "failed": [{"id": "bw-1", "error": "already claimed by x", "guard_mismatch": True}],
}
SEPARATOR = b"\x1e"
"""Between the exit status, the two outputs, and whether the first was cut off."""
SAID = (
    b"", b"Error: no beads database found", b"Error: database is locked\n", b"warning: x\n",
    b"issue bw-1 already claimed by somebody", b"Database out of sync with JSONL",
    json.dumps(REFUSED).encode(), b'{"error": "no issue found"}', b"Error: \x1b[31mboom\x1b[0m",
)  # fmt: skip


def _answer(rng: Random) -> bytes:
    rows = [hostile_object(rng, ISSUE) for _ in range(int(rng.random() * 3))] or [ISSUE]
    kind = rng.random()
    if kind < 0.7:
        stdout = as_json(rng, rows)
    elif kind < 0.9:
        stdout = as_json(rng, hostile_object(rng, REFUSED))
    else:
        stdout = any_of(rng, SAID)
    status = any_of(rng, (b"0", b"0", b"0", b"1", b"-9"))
    return SEPARATOR.join([status, stdout, any_of(rng, SAID), any_of(rng, (b"", b"", b"", b"cut"))])


def read_answer(data: bytes) -> BdResult:
    status, stdout, stderr, cut, *_ = [*data.split(SEPARATOR), b"", b"", b"", b""]
    known = {b"0": 0, b"1": 1}
    return BdResult("list", known.get(status, -9), stdout, stderr, cut == b"cut")


def answers_hold(rows: Any, data: bytes) -> None:
    answer = read_answer(data)
    for read in (rows, tracker.rows_of_group, tracker.object_of):
        try:
            found = read(answer)
        except SourceError as error:
            require(str(error).isprintable() and len(str(error)) < 1000, "no error for a screen")
            continue
        json.dumps(found, default=_row_holds, allow_nan=False)
    for refusal in tracker.refusals(answer):
        well_typed(refusal)
        require(refusal.error.isprintable(), "no error for a screen")
    require(str(tracker.failed(answer)).isprintable(), "no error for a screen")
    tracker.is_out_of_sync(answer)


def _row_holds(row: Any) -> str:
    well_typed(row)
    require(tracker.is_safe_id(row.issue_id), "an id that could be an option")
    require(0 <= row.priority <= 4, "no such priority")
    for text in (row.title, row.description, row.notes, *row.labels):
        text.encode()
    # As it goes out to a worker, from wherever the loop is.
    json.dumps(dict(row.original), allow_nan=False)
    well_typed(source._seen(row))
    return ""


def _any_rows(answer: BdResult) -> list[tracker.BdRow]:
    """Planted bug: an error object where rows belong is no rows."""
    value = json.loads(answer.stdout)
    return tracker._rows_of(answer, value if isinstance(value, list) else [])


def _any_id(answer: BdResult) -> list[tracker.BdRow]:
    """Planted bug: takes every id that bd shows."""
    tracker.rows(answer)
    return [tracker._row(issue) for issue in tracker._json(answer)]


# --- what bd says of itself ---------------------------------------------------------------------

HELP = (
    b"bd version 1.3.0 (abc123)\n", b"bd version 0.44.0", b"  batch   do many\n", b"  heartbeat \n",
    b"      --claim   take it\n", b"      --json\n", b"      --if-assignee string\n", b"\n", b" ",
    b"      --no-daemon\n", b"  -l, --label strings\n", b"1", b"1.", b"12.3", b"      --brief",
    b"-",
)  # fmt: skip


def abilities_hold(version_of: Any, data: bytes) -> None:
    text = as_text(data)
    try:
        version = version_of(BdResult("--version", 0, data, b""))
    except SourceError as error:
        require(str(error).isprintable(), "no error for a screen")
    else:
        require(version.isprintable() and 5 <= len(version) <= 100, "no version for a screen")
    for option in ("--claim", "--brief"):
        require(not tracker._has(text, option) or option in text, "an option that is not there")
    sections = tracker._sections(text)
    require(all(name in text and said in text for name, said in sections.items()), "made up")


def _any_version(answer: BdResult) -> str:
    """Planted bug: whatever stands behind the name."""
    said = answer.stdout.decode("utf-8", "replace")
    if "version" not in said:
        raise SourceError("no version", "")
    return said.partition("version ")[2]


# --- issues as JSON lines -----------------------------------------------------------------------

OURS = {
    **{k: v for k, v in ISSUE.items() if k != "parent"},
    "closed_at": "", "close_reason": "", "comments": [{"text": "well", "author": "me"}],
    "timeout_seconds": 5, "command": ["true", "{id}"], "unknown": {"a": 1},
}  # fmt: skip


def issues_hold(read: Any, data: bytes) -> None:
    try:
        issue: TrackerIssue = read(parse_object(data))
    except (ProtocolError, BadIssue) as error:
        require(len(str(error)) < 300 and "\n" not in str(error), "no line for a screen")
        return
    well_typed(issue)
    written = json_line(to_object(issue))
    written.encode()
    require("\n" not in written, "two lines")
    require(read(parse_object(written.encode())) == issue, "it is not read as it is written")
    well_typed(to_seen(issue))
    for time_text in (issue.created_at, issue.updated_at, issue.closed_at):
        require(not time_text or isinstance(microseconds(time_text), int), "no time")


def _no_times(fields: Any) -> TrackerIssue:
    """Planted bug: does not look at one of the times."""
    closed_at = fields.get("closed_at")
    issue = from_object({k: v for k, v in fields.items() if k != "closed_at"})
    return TrackerIssue(issue.id, issue.title, closed_at=closed_at)


def _loses_extra(fields: Any) -> TrackerIssue:
    """Planted bug: what it does not know is lost the second time."""
    issue = from_object(fields)
    return from_object({**to_object(issue), "unknown": len(to_object(issue))})


TIMES = (
    "2026-01-02T03:04:05.678Z", "2026-01-02T03:09:05.678Z", "2026-01-02T05:08:05+02:00",
    "2026-01-02",
    "0001-01-01T00:00:00Z", "0001-01-01", "9999-12-31T23:59:59-23:59", "9999-12-31", "20260102T03",
)  # fmt: skip


def _leased(rng: Random) -> bytes:
    times = {name: any_of(rng, TIMES) for name in ("heartbeat_at", "lease_expires_at")}
    return as_json(rng, [hostile_object(rng, times) if rng.random() < 0.5 else times])


def leases_hold(life: Any, data: bytes) -> None:
    try:
        rows = json.loads(data)
    except (ValueError, RecursionError):
        return
    fields = rows[0] if isinstance(rows, list) and rows and isinstance(rows[0], dict) else {}
    row = tracker._row({"id": "bw-1", "title": "t", **fields})
    require(0 < life(row) <= source.LIFE_SECONDS_MAX, f"a lease of {life(row)} s")
    source._moment(row.original.get("lease_expires_at"))


def _as_said(row: tracker.BdRow) -> float:
    """Planted bug: whatever lies between the two times."""
    began = source._moment(row.original.get("heartbeat_at"))
    ends = source._moment(row.original.get("lease_expires_at"))
    return source.LIFE_SECONDS if began is None or ends is None else ends - began


PLAIN_PIECES = (b"Error: ", b"a", b"\x1b[31m", b"\xe2\x80\xae", b"\n", b"\xc2\x85", b"  ")


def plain_holds(truncate: Any, data: bytes) -> None:
    line = truncate(as_text(data))
    require(line.isprintable() and len(line) <= 300, "no line for a screen")
    require(truncate(line) == line, "it changes what is plain")


PARSERS = [
    Parser("bd-answers", ("trackers/bd/tracker.py", "trackers/bd/source.py"), tracker.rows,
           hostile(_answer, (SEPARATOR, b'"bw-1"', b"Error: ", b"[]", b"{}", *SAID)), answers_hold,
           {"an error is no rows": _any_rows, "any id": _any_id}),
    Parser("bd-abilities", ("trackers/bd/tracker.py",), tracker.version_in, texts(HELP),
           abilities_hold, {"any version": _any_version}),
    Parser("bd-complaints", ("trackers/bd/calls.py",), plain, texts(PLAIN_PIECES, 40), plain_holds,
           {"newlines": lambda text: text[:300].replace("\x1b", "")}),
    Parser("bd-leases", ("trackers/bd/source.py",), source._life, hostile(_leased), leases_hold,
           {"as it is said": _as_said}),
    Parser("issues", ("trackers/issue.py", "trackers/sqlite/exchange.py"), from_object,
           objects([OURS, {"id": "bw-1", "title": "t"}]), issues_hold,
           {"no look at a time": _no_times, "changes what it reads": _loses_extra}),
]  # fmt: skip
