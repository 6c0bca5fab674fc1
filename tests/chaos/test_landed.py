"""The proof of what landed notices every kind of broken promise, and no other."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from beads_workers.chaos.account import ChaosAccount
from beads_workers.chaos.landed import REF, LandedHistory, promises, read_history
from beads_workers.core.records import journal as rec
from beads_workers.core.records.journal import Entry
from tests.support.repository import commit, git, make_repository

FINE = LandedHistory(
    values=(("c0", "t0"), ("c1", "t1")),
    backwards=(),
    carried={"i-1": 1},
    files={"done-i-1": "i-1\n"},
    green=frozenset({"t1"}),
    pinned=(),
    checkout=(),
)
STATUSES = {"i-1": "closed", "i-2": "blocked"}


def account(why: str = "verify") -> ChaosAccount:
    """Of one run, in which i-2 was refused."""
    told = ChaosAccount()
    records: list[rec.Record] = []
    for issue_id in STATUSES:
        records.append(rec.Started(issue_id, "W1", 1, issue_id))
        records.append(rec.Finished(issue_id, "W1", 1, issue_id, "success", "land"))
    records.append(rec.LandingEnded("i-2", "quarantined", why))
    told.read("run-0", [Entry(record, 0.0, 0.0) for record in records])
    return told


def broken(history: LandedHistory, chaos_account: ChaosAccount | None = None) -> list[str]:
    return [p.text for p in promises(chaos_account or account(), STATUSES, history) if p.broken]


def test_what_is_as_promised_breaks_nothing() -> None:
    assert broken(FINE) == []
    told = account()
    assert (told.lives["i-1"].done, told.lives["i-2"].done) == (True, False)
    assert told.lives["i-2"].refused == "verify"


@pytest.mark.parametrize(
    ("changed", "word"),
    [
        ({"carried": {}}, "what is closed is on the branch"),
        ({"carried": {"i-1": 2}}, "what is closed is on the branch"),
        ({"carried": {"i-1": 1, "i-2": 1}}, "what is closed is on the branch"),
        ({"files": {}}, "what is closed is on the branch"),
        ({"files": {"done-i-1": "i-1\n", "broken-i-2": ""}}, "what is closed is on the branch"),
        ({"green": frozenset({"t0"})}, "passed the gate"),
        ({"backwards": ("c1",)}, "only moved forward"),
        ({"pinned": ("refs/bw/train/x",)}, "no half train"),
        ({"checkout": (" M file",)}, "checkout"),
    ],
)
def test_each_fault_is_noticed(changed: dict[str, Any], word: str) -> None:
    (text,) = broken(replace(FINE, **changed))
    assert word in text


def test_what_was_refused_for_another_reason_is_noticed() -> None:
    (text,) = broken(FINE, account("conflict"))
    assert "only what the gate refuses" in text


def test_the_history_is_read_from_the_branch_and_its_reflog(tmp_path: Path) -> None:
    top = make_repository(tmp_path / "project")
    start = git(top, "rev-parse", "HEAD")
    git(top, "checkout", "--quiet", "--detach")
    first = commit(top, "done-i-1", "i-1\n")
    git(top, "commit", "--quiet", "--allow-empty", "-m", "land\n\nIssue: i-1")
    second = git(top, "rev-parse", "HEAD")
    git(top, "checkout", "--quiet", "main")
    for value, old in ((start, ""), (second, start), (first, second)):
        git(top, "update-ref", "--create-reflog", REF, value, old)
    green = tmp_path / "green.jsonl"
    green.write_text('{"tree": "t1"}\n')
    history = read_history(top, green)
    assert [value for value, _ in history.values] == [start, second, first]
    assert history.values[1][1] == git(top, "rev-parse", f"{second}^{{tree}}")
    assert history.backwards == (first[:12],)
    assert (dict(history.files), history.green) == ({"done-i-1": "i-1\n"}, frozenset({"t1"}))
    assert history.carried == {} and history.checkout == ()
    git(top, "update-ref", REF, second, first)
    assert read_history(top, green).carried == {"i-1": 1}
