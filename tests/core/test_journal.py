"""The journal's lines: every kind of record goes out and comes back."""

from __future__ import annotations

import json
from dataclasses import MISSING, fields
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from beads_workers.core.base import limits
from beads_workers.core.base.model import Arguments
from beads_workers.core.base.night import NightSoFar
from beads_workers.core.records import journal
from beads_workers.core.records import journal as rec
from beads_workers.core.records.journal import KINDS, Entry, Record, decode, encode
from beads_workers.core.records.landing import Add, GatedAhead, Mend, Pull
from beads_workers.core.records.money import Spend
from beads_workers.core.records.receipts import Receipt, Tokens

SAMPLES: dict[str, Any] = {
    "str": "ä\n\x00\ud800",
    "int": 7,
    "int | None": 7,
    "float": 1.25,
    "bool": True,
    "tuple[int, ...]": (5, 4, 3, 2, 1),
    "tuple[str, ...]": ("a", "b c"),
    "Add | None": Add("a", 1, "r", "c", "b", labels=("x",)),
    "Arguments | None": Arguments((1, ["b"]), {"c": None}),
    "NightSoFar": NightSoFar("run", 2, 1.5, 0.5, 900, 1),
    "Spend | None": Spend(Tokens(1), 0.5, 2, 1),
    "Pull": Pull(1, "https://x", "c", "d"),
    "Pull | None": Pull(1, "https://x", "c", "d"),
    "GatedAhead | None": GatedAhead("x", "c", "green", "t"),
    "Leased | None": rec.Leased("a", 1, "r.1", "far", "n1", "b", "ff", 600.0),
    "Mend | None": Mend("conflict", "c", ("f",)),
    "Receipt | None": Receipt("done", totals={"a": [1]}, usage={"m": Tokens(1)}, money=0.5),
}


def filled(kind: type[Record]) -> Record:
    """A record with something in every field."""
    return kind(**{f.name: SAMPLES[str(f.type)] for f in fields(kind)})


def bare(kind: type[Record]) -> Record:
    """A record with only what it must have."""
    must = {f.name: SAMPLES[str(f.type)] for f in fields(kind) if f.default is MISSING}
    return kind(**must)


@pytest.mark.parametrize("kind", KINDS.values())
@pytest.mark.parametrize("make", [filled, bare])
def test_every_kind_comes_back_as_it_went(kind: type[Record], make: Any) -> None:
    entry = Entry(make(kind), 1_700_000_000.125, 3.5)
    assert decode(encode(entry)) == entry


def test_no_kind_of_record_is_left_out() -> None:
    found = [*vars(rec).values(), *vars(journal).values()]
    made = {k for k in found if isinstance(k, type) and issubclass(k, Record)}
    live = {k for k in made if issubclass(k, rec.Live)}
    assert made - {Record} - live == set(KINDS.values())


def test_defaults_take_no_room() -> None:
    line = json.loads(encode(Entry(rec.Claimed("a"), 1.0, 2.0)))
    assert line == {"v": 1, "e": "claimed", "t": 1.0, "m": 2.0, "issue_id": "a"}


def test_fields_of_a_later_version_are_passed_over() -> None:
    line = b'{"v":1,"e":"claimed","t":1,"m":2,"issue_id":"a","colour":"red"}'
    assert decode(line) == Entry(rec.Claimed("a"), 1.0, 2.0)


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"{}",
        b"[]",
        b"null",
        b"7",
        b'{"v":1,"e":"claimed","t":1,"m":2}',
        b'{"v":1,"e":"of a later version","t":1,"m":2}',
        b'{"v":1,"e":"claimed","t":"x","m":2,"issue_id":"a"}',
        b'{"v":1,"e":["claimed"],"t":1,"m":2,"issue_id":"a"}',
        b"\xff\xfe",
        b"[" * 5000,
        b'{"e":"claimed","t":1' + b"0" * 400 + b',"m":2,"issue_id":"a"}',
        b'{"e":"claimed","t":1,"m":NaN,"issue_id":"a"}',
        b'{"e":"claimed","t":1,"m":-2,"issue_id":"a"}',
        b'{"e":"claimed","t":1,"m":2,"issue_id":7}',
        b'{"e":"claimed","t":1,"m":2,"issue_id":"a","title":null}',
        b'{"e":"claimed","t":1,"m":2,"issue_id":"a","priority":true}',
        b'{"e":"listed","t":1,"m":2,"by_priority":[1,"x"]}',
        b'{"e":"spent","t":1,"m":2,"seconds":1,"calls":1' + b"0" * 30 + b"}",
    ],
)
def test_what_is_no_entry_is_none(line: bytes) -> None:
    assert decode(line) is None


@given(
    st.text(), st.text(), st.integers(-limits.INTEGER_MAX, limits.INTEGER_MAX), st.floats(0, 1e9)
)
def test_any_text_survives(issue_id: str, error: str, number: int, seconds: float) -> None:
    record = rec.Finished(
        issue_id, "W1", number, "r", "error", "requeue", error, number, number, 0, seconds
    )
    entry = decode(encode(Entry(record, 1.0, 2.0)))
    assert entry is not None and entry.record == record
    assert encode(entry).count(b"\n") == 1
