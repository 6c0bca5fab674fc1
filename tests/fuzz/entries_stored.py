"""What a crash, a full disk or a person may have left in our own files."""

from __future__ import annotations

import json
from dataclasses import asdict, fields
from random import Random
from typing import Any

from beads_workers.core.base import wire
from beads_workers.core.base.framing import ProtocolError
from beads_workers.core.base.model import Arguments
from beads_workers.core.base.night import NightSoFar
from beads_workers.core.base.wire import Done, Failed
from beads_workers.core.records import journal
from beads_workers.core.records import journal as rec
from beads_workers.core.records.journal import KINDS, Entry
from beads_workers.core.records.landing import Add, GatedAhead, Mend, Pull
from beads_workers.core.records.money import Spend
from beads_workers.core.records.receipts import Receipt
from beads_workers.core.views.history import fold
from beads_workers.core.views.recovery import RecoveryState, read_spool, recovery_state, replay
from beads_workers.core.views.snapshot import Board
from beads_workers.core.views.status import status
from beads_workers.integrations.envelopes.fold import Envelopes
from beads_workers.integrations.envelopes.wire import from_fields, to_fields
from beads_workers.runtime.run_directory import RunInfo, read_info
from beads_workers.worktrees.git import GitError
from beads_workers.worktrees.records import WorktreeRecord, read_record
from beads_workers.worktrees.removal import parse_status
from beads_workers.worktrees.slots import Claim, read_claim
from tests.fuzz.inputs import any_of, as_json, as_text, hostile, hostile_object, mutated, objects
from tests.fuzz.parser import Parser, require, well_typed

# --- one line of the journal ------------------------------------------------------------------

EXAMPLES: dict[str, Any] = {
    "str": "bw-1", "int": 1, "float": 1.5, "bool": True, "int | None": 3,
    "tuple[int, ...]": (0, 1, 2, 3, 4), "tuple[str, ...]": ("bd", "ready"),
    "Add | None": Add("a", 1, "r", "c", "b"), "Arguments | None": Arguments((1,), {"c": None}),
    "NightSoFar": NightSoFar("r", 2, 1.5, 0.5, 9), "Spend | None": Spend(money=0.5),
    "Pull": Pull(1, "https://x", "c", "d"),
    "Pull | None": Pull(1, "https://x", "c", "d"),
    "GatedAhead | None": GatedAhead("x", "c", "green", "t"),
    "Leased | None": rec.Leased("bw-1", 1, "r", "big", "n1", "b", "0", 60.0),
    "Mend | None": Mend("conflict", "c", ("f",)), "Receipt | None": Receipt("done", commits=("a",)),
}  # fmt: skip


def _example(kind: type[rec.Record]) -> dict[str, Any]:
    entry = Entry(kind(**{f.name: EXAMPLES[str(f.type)] for f in fields(kind)}), 1700000000.0, 2.5)
    found: dict[str, Any] = json.loads(journal.encode(entry))
    return found


LINES = [_example(kind) for kind in KINDS.values()]
NAMES = tuple(dict.fromkeys(name for line in LINES for name in line))


def _line(rng: Random) -> bytes:
    line = any_of(rng, LINES)
    if rng.random() < 0.3:
        return as_json(rng, line | {"e": any_of(rng, LINES)["e"]})
    return as_json(rng, hostile_object(rng, line, NAMES if rng.random() < 0.3 else ()))


def line_holds(decode: Any, data: bytes) -> None:
    entry = decode(data)
    if entry is None:
        return
    require(type(entry) is Entry, "no entry")
    well_typed(entry)
    line = journal.encode(entry)
    again = decode(line)
    require(again is not None and again.record == entry.record, f"{again} is not {entry}")
    require(journal.encode(again) == line, "it is not read as it is written")


def _unchecked(line: bytes) -> Entry | None:
    """Planted bug: believes every type that a line names."""
    try:
        values = json.loads(line)
        kind = KINDS[values["e"]]
        known = {f.name: values[f.name] for f in fields(kind) if f.name in values}
        return Entry(kind(**known), float(values["t"]), float(values["m"]))
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return None


def _of_old(line: bytes) -> Entry | None:
    """Planted bug: knows one kind of damage only."""
    return journal.from_json(json.loads(line)) if line.startswith(b"{") else None


# --- a whole journal: its folds take whatever can be read ---------------------------------------

IDS = ("bw-1", "bw-2", "i3", "")
WORKERS = ("W1", "W2", "W10", "stranger", "W", "W-1", "W²")
VERDICTS = ("finish", "requeue", "quarantined", "else")
OUTCOMES = ("success", "error", "retry", "lost", "cancelled", "timeout", "else")
CHOICES: dict[str, tuple[Any, ...]] = {
    "issue_id": IDS, "worker_id": WORKERS, "verdict": VERDICTS, "outcome": OUTCOMES,
    "action": ("close", "release", "quarantined", "hand_over", "reopen", "else"),
    "result": ("applied", "found_closed", "not_ours", "failed", "else"),
    "state": ("running", "paused", "draining", "stopping", "settling", "ended", "else"),
    "charged": (0, 1, 3, -1, 10**30), "free_in_a_row": (0, 1, -1), "pid": (0, 1, 99, 10**30),
    "delay_seconds": (0.0, 10.0, -5.0, 1e300), "attempt": (1, 2, -1), "request_id": ("a", "b", ""),
    "by_priority": ((0, 1, 2, 3, 4), (), (1,), (1,) * 9), "priority": (0, 2, 4, 9, -1),
    "status": (0, 1, 137, -9), "not_before": (0.0, 1.0, 1e300), "path": ("", "m.f", "a#b"),
    "arguments": ("", "…", "[[1],{}]", "[[NaN],{}]", "[[1]]", "[" * 2000), "seconds": (0.0, 1e300),
}  # fmt: skip
TIMES = (0.0, 0.5, 1.0, 3.0, 1e6, -1.0, 1e300)


def _journal(rng: Random) -> bytes:
    """A run in a dozen lines that contradict each other, told by a small vocabulary."""
    lines = []
    for _ in range(2 + int(rng.random() * 8)):
        line = dict(any_of(rng, LINES))
        for name in line:
            if name in CHOICES:
                line[name] = any_of(rng, CHOICES[name])
        line["m"] = any_of(rng, TIMES)
        lines.append(as_json(rng, line))
    if rng.random() < 0.2:
        at = int(rng.random() * len(lines))
        lines[at] = mutated(rng, lines[at])
    return b"\n".join(lines)


def folds_hold(read: Any, data: bytes) -> None:
    entries = [entry for line in data.split(b"\n") if (entry := read(line)) is not None]
    board = Board()
    for entry in entries:
        board.apply(entry)
    shown = json.loads(json.dumps(status(board, board.elapsed), allow_nan=False))
    require(isinstance(shown, dict), "no snapshot")
    known = Envelopes()
    for entry in entries:
        if (job := known.apply(entry)) is not None:
            well_typed(job)
            again = from_fields(json.loads(json.dumps(to_fields(job), allow_nan=False)))
            require(again == job, f"{again} is not {job}")
    left = recovery_state(entries)
    for retry_entry in left.checkpoint():
        well_typed(retry_entry)
        require(retry_entry.issue_id == retry_entry.issue_id, "no page")
    left.unsettled_runs()
    for alive in (False, True):
        told = fold(entries, alive=alive, now=1700000100.0)
        require(told is None or all(a.seconds >= 0 for a in told.attempts), "time runs backwards")
        if told is not None:
            json.dumps(asdict(told), default=str, allow_nan=False)


def _out_of_order(line: bytes) -> Entry | None:
    """Planted bug: an entry that no run of ours would hold ends the reading."""
    entry = journal.decode(line)
    if entry is not None and isinstance(entry.record, rec.Finished):
        require(entry.record.verdict in VERDICTS[:3], "no such verdict")
    return entry


# --- what workers leave word of -----------------------------------------------------------------

DONE: dict[str, Any] = {
    "type": "DONE", "worker_id": "W1", "timestamp": 1.5, "issue_id": "bw-1", "duration_ms": 7,
    "request_id": "r.1", "result": {"note": "x"}, "result_file": "/r",
}  # fmt: skip
WORD_LINES = [DONE, DONE | {"type": "FAILED", "error": "x", "error_detail": "returned_unstarted"}]
WANTED = frozenset(("r.1", "bw-1"))


def _words(rng: Random) -> bytes:
    said = [as_json(rng, hostile_object(rng, any_of(rng, WORD_LINES), tuple(DONE)))]
    return b"\n".join([*said, as_json(rng, any_of(rng, WORD_LINES)), b""])


def words_hold(read: Any, data: bytes) -> None:
    found = read([data], WANTED)
    require(found.keys() <= WANTED, "a word on an attempt that is none of this run's")
    for request_id, said in found.items():
        well_typed(said)
        require(said.request_id == request_id, "a word on another attempt")
        line = wire.encode(said, "W1", 1.0, v1=False)
        again = read([line], WANTED)
        require(again.keys() == {request_id}, f"{line!r} is not read as it is written")
    left = RecoveryState()
    left.apply(Entry(rec.Started("bw-1", "W1", 1, "r.1"), 1700000000.0, 2.5))
    for end in replay(left, found).values():
        well_typed(end.record)
        on_file = journal.decode(journal.encode(end))
        require(on_file is not None and on_file.record == end.record, f"{end} is not on file")


def _whoever(chunks: Any, wanted: Any) -> Any:
    """Planted bug: does not ask whose attempt it is."""
    return {said.request_id: said for said in _said(chunks) if isinstance(said, Done | Failed)}


def _said(chunks: Any) -> Any:
    for line in b"".join(chunks).split(b"\n"):
        try:
            yield wire.parse(line)
        except ProtocolError:
            continue


def _uncaught(chunks: Any, wanted: Any) -> Any:
    """Planted bug: expects messages only."""
    said = [wire.parse(line) for line in b"".join(chunks).split(b"\n") if line]
    return {w.request_id: w for w in said if isinstance(w, Done) and w.request_id in wanted}


# --- other files of ours, and what git says -----------------------------------------------------

RECORD = {f.name: EXAMPLES[str(f.type)] for f in fields(WorktreeRecord)}
CLAIM = asdict(Claim(1, "/w", "/s", "/w", {"A": "b"}, "down", "w1", True))
INFO = {f.name: EXAMPLES[str(f.type)] for f in fields(RunInfo)}


def flat_holds(read: Any, data: bytes) -> None:
    found = read(data)
    if found is not None:
        well_typed(found)
        require(read(json.dumps(asdict(found)).encode()) == found, "not read as it is written")


def _any_claim(text: bytes) -> Any:
    """Planted bug: a claim of whatever types."""
    try:
        return Claim(**json.loads(text))
    except (ValueError, TypeError, RecursionError):
        return None


def _as_it_is(text: bytes) -> Any:
    """Planted bug: a record of whatever types."""
    try:
        return WorktreeRecord(**json.loads(text))
    except (ValueError, TypeError, RecursionError):
        return None


def _no_limit(text: bytes) -> Any:
    """Planted bug: knows that a file may be cut short, and nothing else."""
    try:
        return RunInfo(**json.loads(text))
    except ValueError:
        return None


ENTRIES = ("1 .M N... 100644 100644 100644 a b ", "u UU N... 1 2 3 4 a b c ", "? ", "! ")
FILE_NAMES = ("f", "a file", " x", "2 x", "# branch.oid 1", "日本", "a\nb", "-rf", "")


def _git(rng: Random) -> bytes:
    rows = ["# branch.oid " + any_of(rng, ("(initial)", "a" * 40))]
    rows.append("# branch.head " + any_of(rng, ("main", "(detached)", "a (detached)")))
    for _ in range(int(rng.random() * 5)):
        name = any_of(rng, FILE_NAMES)
        rows.append(any_of(rng, ENTRIES) + name)
        if rng.random() < 0.3:
            rows += ["2 R. N... 100644 100644 100644 a b R100 " + name, any_of(rng, FILE_NAMES)]
    return "\0".join([*rows, ""]).encode()


def git_status_holds(parse: Any, data: bytes) -> None:
    text = as_text(data)
    try:
        head, branch, changes = parse(text)
    except GitError:
        return  # An answer that is cut off says nothing.
    require(head is None or head in text, "a commit that git did not name")
    require(branch is None or branch in text, "a branch that git did not name")
    rows = [row for row in text.split("\0") if row]
    require(len(changes) <= len(rows), "more changes than lines")
    # What is there must never be overlooked: a worktree without changes may be removed.
    told = [row for row in rows if row[0] != "#"]
    require(bool(changes) == bool(told), "a change was overlooked, or made up")


def _known_kinds(told: str) -> Any:
    """Planted bug: passes over a line of a kind that it does not know."""
    rows = [row for row in told.split("\0") if row[:1] in ("1", "2", "?", "#")]
    return parse_status("\0".join(rows))


PARSERS = [
    Parser("journal-line", ("core/records/journal.py", "runtime/journal.py"), journal.decode,
           hostile(_line), line_holds,
           {"believes types": _unchecked, "one kind of damage": _of_old}),
    Parser(
        "journal-folds",
        (
            *(f"core/views/{name}.py" for name in ("snapshot", "recovery", "history", "status")),
            "integrations/envelopes/fold.py",
            "core/schedule/inflight.py",
        ),
        journal.decode,
        _journal,
        folds_hold,
        {"refuses what is odd": _out_of_order},
    ),
    Parser("last-words", ("core/views/recovery.py",), read_spool, hostile(_words), words_hold,
           {"whoever says it": _whoever, "messages only": _uncaught}),
    Parser("worktree-records", ("worktrees/records.py",), read_record, objects([RECORD]),
           flat_holds, {"any types": _as_it_is}),
    Parser("claims", ("worktrees/slots.py",), read_claim, objects([CLAIM]), flat_holds,
           {"any types": _any_claim}),
    Parser("run-info", ("runtime/run_directory.py",), read_info, objects([INFO]), flat_holds,
           {"cut short only": _no_limit}),
    Parser("git-status", ("worktrees/removal.py",), parse_status,
           hostile(_git, (b"\0", b"2 ", b"? ", b"# branch.", b"u ")), git_status_holds,
           {"known kinds": _known_kinds}),
]  # fmt: skip
