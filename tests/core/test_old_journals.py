"""Journals of before the words were changed are still read."""

from __future__ import annotations

import json

import pytest

from beads_workers.core import journal


@pytest.mark.parametrize(("old", "new"), sorted(journal._OLD_KINDS.items()))
def test_a_line_of_an_old_kind_is_read_as_its_new_one(old: str, new: str) -> None:
    values: dict[str, object] = {}
    for name, read in journal._READERS[journal.KINDS[new]].items():
        for example in ("x", 1, [1], ["x"], True):
            try:
                read(example)
            except (TypeError, ValueError):
                continue
            values[name] = example
            break
    then = {now: old for old, now in journal._OLD_FIELDS.items()}
    line = {"v": 1, "e": old, "t": 1.0, "m": 0.5} | {
        then.get(name, name): value for name, value in values.items()
    }
    entry = journal.decode(json.dumps(line).encode())
    assert entry is not None and type(entry.record) is journal.KINDS[new]
    same = journal.from_json({"v": 1, "e": new, "t": 1.0, "m": 0.5} | values)
    assert entry == same


@pytest.mark.parametrize(("old", "new"), sorted(journal._OLD_VALUES.items()))
def test_an_old_word_in_a_field_is_read_as_the_new_one(old: str, new: str) -> None:
    line = {"v": 1, "e": "settled", "t": 1.0, "m": 0.5, "issue_id": "a-1", "action": old}
    entry = journal.from_json(line | {"result": "applied"})
    assert entry is not None
    assert isinstance(entry.record, journal.SettledRecord) and entry.record.action == new


def test_an_old_kind_is_found_by_its_new_name() -> None:
    for old, new in journal._OLD_KINDS.items():
        assert any(f'"{old}"'.encode() in head for head in journal.heads({new}))
