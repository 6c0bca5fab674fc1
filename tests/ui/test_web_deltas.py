"""Snapshots of the live page: what is sent of each leads to the next one, and is little."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from beads_workers.core.records.issues import Place
from beads_workers.core.views.snapshot import Board
from beads_workers.core.views.status import Frames, status
from beads_workers.ui.lines import ended_text
from beads_workers.ui.web_deltas import LEFT_OUT, Snapshots, delta
from tests.support.journals import night
from tests.support.web import full_house, patched


def timed(value: Any, now: float) -> Any:
    """A form that is sent, with durations again, as the page does it."""
    match value:
        case {"run_since": moment}:
            return now - moment
        case {"run_until": moment}:
            return moment - now
        case dict():
            return {key: timed(each, now) for key, each in value.items()}
        case list():
            return [timed(each, now) for each in value]
    return value


def near(one: Any, other: Any) -> bool:
    """Whether two values are equal but for half a second of their durations."""
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(near(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(near, one, other))
    if isinstance(one, float) and isinstance(other, (int, float)):
        return abs(one - other) < 0.5
    return bool(one == other)


def snapshots(attempts: int, workers: int) -> list[dict[str, Any]]:
    """Those that a viewer of a whole night is shown."""
    frames = Frames(Board(), watched=True)
    entries = sorted(night(attempts, workers).entries, key=lambda entry: entry.elapsed)
    found = [frame for entry in entries if (frame := frames.add(entry)) is not None]
    return [json.loads(json.dumps(each)) for each in found]


def test_each_change_of_a_night_leads_to_the_snapshot() -> None:
    sent, told = None, Snapshots()
    for snapshot in snapshots(300, 12):
        form = told.add(snapshot)
        change = form if sent is None else delta(sent, form)
        sent = form if sent is None else patched(sent, json.loads(json.dumps(change or {})))
        assert sent == form
        causes = {each for group in form["causes"] for each in group["issue_ids"]}
        assert causes == {row["issue_id"] for row in snapshot["quarantined"]}
        wanted = {key: value for key, value in snapshot.items() if key not in LEFT_OUT}
        wanted["outcomes"] = [{**row, "became": ended_text(row)} for row in snapshot["outcomes"]]
        shown = {key: value for key, value in sent.items() if key != "causes"}
        assert near(timed(shown, snapshot["uptime_seconds"]), wanted)


def test_a_snapshot_is_not_changed_by_what_is_sent_of_it() -> None:
    snapshot = full_house()
    before = json.dumps(snapshot)
    Snapshots().add(snapshot)
    assert json.dumps(snapshot) == before


def test_time_alone_sends_next_to_nothing() -> None:
    board, told = Board(), Snapshots()
    entries = sorted(night(900, 100).entries, key=lambda entry: entry.elapsed)
    for entry in entries[: len(entries) // 2]:
        board.apply(entry)
    assert board.places()[Place.RUNNING] > 50
    first, second = (told.add(status(board, board.elapsed + late)) for late in (1.0, 8.25))
    assert len(json.dumps(delta(first, second))) < 150 < len(json.dumps(first)) / 100


def a_value(chance: random.Random, depth: int = 3) -> Any:
    """Any JSON, with rows that come again."""
    kind = chance.randrange(6 if depth else 4)
    if kind == 4:
        return [a_value(chance, depth - 1) for _ in range(chance.randrange(5))]
    if kind == 5:
        keys = chance.sample(["issue_id", "worker_id", "at", "text", "x", "run_since"], 3)
        return {key: a_value(chance, depth - 1) for key in keys}
    return chance.choice([None, True, False, 0, 1, 1.0, "", "a", "b", [], {}])


@pytest.mark.parametrize("seed", range(50))
def test_a_change_leads_from_anything_to_anything(seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(40):
        old, new = a_value(chance), a_value(chance)
        change = delta(old, new)
        found = old if change is None else patched(old, json.loads(json.dumps(change)))
        assert found == new, (old, new, change)


def test_a_list_that_moves_on_sends_only_what_is_new() -> None:
    rows = [{"at": float(n), "issue_id": f"a-{n}", "title": "x" * 50} for n in range(60)]
    assert delta(rows[:50], rows[2:52]) == [1, [2, 48], [rows[50]], [rows[51]]]
    changed = [*rows[:3], {**rows[3], "title": "y"}, *rows[4:]]
    assert delta(rows, changed) == [1, [0, 3], [3, {"title": [0, "y"]}], [4, 56]]
