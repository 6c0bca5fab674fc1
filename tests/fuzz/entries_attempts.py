"""What attempts of agents leave: receipts, usage, reviews; and the file of all fleets' accounts."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from beads_workers.attempts import review
from beads_workers.core.base.plain import BAD_VALUE, from_plain
from beads_workers.core.records.landing import Add, Landed, Refused, from_line
from beads_workers.core.records.receipts import Receipt, read_receipt, to_json
from beads_workers.runtime.account_file import AccountFile
from beads_workers.runtime.usage_file import read_usage
from beads_workers.worktrees.git import is_object
from beads_workers.worktrees.ledger import LandedCommit, read_entry
from beads_workers.worktrees.programs import read_kept
from tests.fuzz.inputs import as_text, objects, texts
from tests.fuzz.parser import Parser, require, well_typed

RECEIPT = {
    "verdict": "limited",
    "agent": "claude",
    "session": "s1",
    "usage": {"opus": {"input": 1, "output": 2, "cached_read": 3, "cached_write": 4}},
    "money": 0.5,
    "until": 1_800_000_000.0,
    "commits": ["c1"],
    "totals": {"reported": {"opus": [1, 2, 3, 4, 0.5]}},
    "verified": True,
}
USAGE = [
    {"agent": "claude", "model": "opus", "prices": {"op*": [1.0, 2.0]}},
    {"session": "s1", "totals": {}},
    {"of": "opus", "used": [1, 2, 3, 4, 0.5]},
]
ACCOUNTS = {
    "a1": [{"trouble": "limited", "why": "w", "model": "", "until": 1e10, "since": 1.0}
           | {"probe_at": 1e10, "run": "r"}]
}  # fmt: skip
WORDS = (b'{"approve": true}', b'{"approve": false, "remarks": ["no"]}', b"{", b"}", b"[", b"a")


def receipt_holds(read: Callable[[Any], Receipt | None], data: bytes) -> None:
    """Whatever it is read from, it can be written and read again, the same."""
    try:
        # No undecoded bytes: beside an escaped surrogate they would be read again as a pair.
        fields = json.loads(data.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return
    receipt = read(fields)
    if receipt is None:
        return
    well_typed(receipt)
    require(receipt.tokens.total >= 0, "tokens below 0")
    kept = json.loads(json.dumps(to_json(receipt)))
    require(read_receipt(kept) == from_plain(Receipt, kept) == receipt, "not the same again")


def _believes(fields: Any) -> Receipt | None:
    """Planted bug: a text is taken as it is, whatever it is."""
    receipt = read_receipt(fields)
    return receipt and Receipt(session=fields.get("session", ""), money=fields.get("money"))


def usage_holds(read: Callable[[Path], Receipt | None], data: bytes) -> None:
    """A damaged line is passed over, and what is read is a receipt."""
    with tempfile.NamedTemporaryFile() as file:
        file.write(b"\n".join(json.dumps(row).encode() for row in USAGE[:1]) + b"\n" + data)
        file.flush()
        receipt = read(Path(file.name))
    require(receipt is not None and receipt.agent, "the first line is fine")
    assert receipt is not None
    well_typed(receipt)
    require(receipt.money is None or receipt.money >= 0, "money below 0")


def _first_line(path: Path) -> Receipt | None:
    """Planted bug: every line is one of ours."""
    receipt = read_usage(path)
    for line in path.read_bytes().splitlines()[1:]:
        json.loads(line)["used"]
    return receipt


def accounts_hold(read: Callable[[Path], Any], data: bytes) -> None:
    """Whatever lies there, an account of ours can be told."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "accounts.json").write_bytes(data)
        found = read(Path(folder))
    for closed in (each for rows in (found or {}).values() for each in rows):
        well_typed(closed)


def _changed(folder: Path) -> Any:
    return AccountFile(folder, "r").changed()


def _rows(folder: Path) -> Any:
    """Planted bug: it is an object of lists of objects."""
    accounts = json.loads((folder / "accounts.json").read_bytes())
    return [row["trouble"] for rows in accounts.values() for row in rows] and None


def review_holds(read: Callable[[str], review.Review | None], data: bytes) -> None:
    """It approves only where it says so, and nothing else is believed."""
    text = as_text(data)
    found = read(text)
    if found is not None:
        well_typed(found)
        require("approve" in text, "it says nothing")
        require(not found.approved or "true" in text, "it does not approve")


def _agrees(text: str) -> review.Review | None:
    """Planted bug: an answer that cannot be read is an approval."""
    return review.read(text) or review.Review(True)


ADD = Add("a", 1, "run", "c" * 40, "b" * 40, "bw/a/1", "title", "text", 1, 5.5, 2)
LANDING = [{"add": asdict(ADD)}, {"landed": asdict(Landed("a", 1, "c"))}, {"gate": {"lane": 0}},
           {"refused": asdict(Refused("a", 1, "conflict", "t", ("f",), "t", ("b",)))}]  # fmt: skip


def landing_holds(read: Callable[[bytes], Any], data: bytes) -> None:
    """What is read is of the right types, whatever is said; all else is a ``ValueError``."""
    try:
        said = read(data)
    except ValueError:
        said = None
    if said is not None:
        well_typed(said)


def _any_fields(data: bytes) -> Any:
    """Planted bug: the fields are taken as they come."""
    said = json.loads(data)
    if not isinstance(said, dict) or not isinstance(said.get("landed"), dict):
        raise ValueError("nothing")
    try:
        return Landed(**said["landed"])
    except TypeError as error:
        raise ValueError from error


LEDGER = [{"commit": "c" * 40, "issue_id": "a", "attempt": 1, "run_id": "r", "verified": "t",
           "train": ["a", "b"]}, {"undoes": ["d" * 40]}]  # fmt: skip


def _ledger(data: bytes) -> LandedCommit | None:
    return read_entry(as_text(data))


def ledger_holds(read: Callable[[bytes], LandedCommit | None], data: bytes) -> None:
    """A remote's words name nothing but commits, which git is asked about by these names."""
    found = read(data)
    if found is not None:
        well_typed(found)
        require(all(map(is_object, found.undoes)), "it takes back what is no commit")
        require(not found.commit or is_object(found.commit), "it is no commit")


def _any_name(data: bytes) -> LandedCommit | None:
    """Planted bug: whatever is said to be a commit is one."""
    try:
        return from_plain(LandedCommit, json.loads(as_text(data)))
    except (*BAD_VALUE, RecursionError):
        return None


PROGRAMS = [{"config": "[core]\n\tbare = false\n", "config.worktree": "", "hooks/pre-push": "1 2"}]


def _kept(data: bytes) -> dict[str, str] | None:
    return read_kept(data.decode("utf-8", "surrogateescape"))


def kept_holds(read: Callable[[bytes], dict[str, str] | None], data: bytes) -> None:
    """An agent can write there: it holds texts, or nothing."""
    found = read(data)
    if found is not None:
        require(all(isinstance(each, str) for each in found.values()), "it is no text")


def _any_kept(data: bytes) -> Any:
    """Planted bug: whatever stands there was written by us."""
    try:
        return dict(json.loads(as_text(data)))
    except (ValueError, TypeError, RecursionError):
        return None


PARSERS = [
    Parser("programs of a repository", ("worktrees/programs.py",), _kept, objects(PROGRAMS),
           kept_holds, {"believes what is there": _any_kept}),
    Parser("ledger", ("worktrees/ledger.py",), _ledger, objects(LEDGER), ledger_holds,
           {"takes any name": _any_name}),
    Parser("landing", ("core/records/landing.py",), from_line, objects(LANDING), landing_holds,
           {"takes the fields as they come": _any_fields}),
    Parser("receipts", ("core/records/receipts.py",), read_receipt, objects([RECEIPT]),
           receipt_holds, {"believes what it is told": _believes}),
    Parser("usage of attempts", ("runtime/usage_file.py",), read_usage, objects(USAGE),
           usage_holds, {"believes every line": _first_line}),
    Parser("accounts of a user", ("runtime/account_file.py",), _changed, objects([ACCOUNTS]),
           accounts_hold, {"believes its form": _rows}),
    Parser("reviews", ("attempts/review.py",), review.read, texts(WORDS), review_holds,
           {"takes silence for approval": _agrees}),
]  # fmt: skip
