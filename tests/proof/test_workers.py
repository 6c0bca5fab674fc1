"""The proof of workers: what it makes of what tasks wrote down, and a small part of it for real."""

from __future__ import annotations

from dataclasses import asdict

import pytest

from tests.proof.hands import Log, Loss, not_once, out_of_order, too_early
from tests.proof.parts import PARTS
from tests.proof.table import figure_of
from tests.proof.workers import Account

FIRST = "begin bw-1 100.0 11 Go\n"
STRANGERS = {"Go"}


def early(text: str, losses: list[Loss], grace: float | None = 3.0) -> list[str]:
    return [what for _, what in too_early(Log.read(text), losses, STRANGERS, grace)]


@pytest.mark.parametrize(
    "second", ["begin bw-1 106.0 12 901 11\n", "begin bw-1 106.0 12 901\nend bw-1 106.5 11\n"]
)
def test_two_hands_are_found_by_a_living_process_and_by_overlapping_times(second: str) -> None:
    assert early(FIRST + second, []) == ["bw-1 was in two hands"]
    assert early(FIRST + second, [Loss("bw-1", 102.9)]) == []
    assert early(FIRST + second, [Loss("bw-1", 103.1)]) == ["bw-1 was in two hands after 2.9 s"]
    assert early(FIRST + second, [Loss("bw-1", 102.9)], None) == ["bw-1 was in two hands"]
    assert early(FIRST + second, [Loss("bw-1", 101.0, told_to_stop=True)]) != []
    assert early(FIRST + second, [Loss("bw-2", 101.0)]) != [], "the loss of another issue"
    assert early(FIRST + second, [Loss("bw-1", 99.0)]) != [], "a loss before it began"


def test_one_of_ours_has_no_grace() -> None:
    text = "begin bw-1 100.0 11 901\nbegin bw-1 106.0 12 Go 11\n"
    assert early(text, [Loss("bw-1", 101.0)]) == ["bw-1 was in two hands"]


def test_hands_one_after_the_other_are_fine() -> None:
    assert early(FIRST + "end bw-1 101.0 11\nbegin bw-1 101.1 12 901\n", []) == []
    assert early(FIRST + "begin bw-2 101.1 12 901\n", []) == []


def test_each_is_done_and_closed_once_and_fails_as_often_as_it_is_told_to() -> None:
    once = FIRST + "end bw-1 101.0 11\n"
    failing = "begin bw-3 100.0 13 Go\nfail bw-3 101.0 13\nbegin bw-3 102.0 14 Go\n"
    failing += "end bw-3 103.0 14\n"
    assert not_once(Log.read(once + failing), {"bw-1": "closed", "bw-3": "closed"}) == []
    assert not_once(Log.read(once), {"bw-1": "open"}) == ["bw-1 is open"]
    assert not_once(Log.read(FIRST), {"bw-1": "closed"}) == ["bw-1 was done 0 times"]
    twice = once + "begin bw-1 102.0 12 Go\nend bw-1 103.0 12\n"
    assert not_once(Log.read(twice), {"bw-1": "closed"}) == ["bw-1 was done 2 times"]
    assert not_once(Log.read("begin bw-3 1.0 13 Go\nend bw-3 2.0 13\n"), {"bw-3": "closed"})


def test_none_begins_before_what_it_waits_for() -> None:
    text = FIRST + "end bw-1 101.0 11\nbegin bw-2 101.1 12 Go\n"
    assert out_of_order(Log.read(text), {"bw-1": [], "bw-2": ["bw-1"]}) == []
    assert out_of_order(Log.read(text), {"bw-1": ["bw-2"], "bw-2": []}) != []


def test_the_table_reads_it() -> None:
    (part,) = [p for p in PARTS if p.name == "workers" and "embedded" in p.argv]
    told = asdict(Account("embedded", cases=84, starts=3, issues=9, closed=8))
    figure = figure_of(part, 84, told, 0, 1.0)
    assert (figure.broken, figure.amount, figure.starts, figure.closed) == ((), 84, 3, 8)
    told["promises"] = [{"text": "Go, killed", "broken": ["stranded"], "seconds": None}]
    assert figure_of(part, 84, told, 1, 1.0).broken == ("Go, killed: stranded",)
