"""What the live page is sent of a snapshot: first all of it, then only what has changed. Pure.

``Snapshots.add`` makes the form that is sent. It has ``causes``, too: groups of quarantined issues,
``{"text", "issue_ids"}``, as every list of them is folded (``core.base.causes``), and what
``became`` of each ended attempt, as the dashboard says it. A duration that grows or shrinks by
itself is sent as its moment in the run, ``{"run_since": 41.2}`` or ``{"run_until": 99.0}``: it
changes only if something has happened. ``delta`` compares two such forms. A delta is one of these:

- ``[0, value]``: the new value;
- ``[1, op, ...]``: a list, put together from the old one. An op is ``[at, count]`` for items that
  stay, ``[at, delta]`` for an item that has changed, and ``[item]`` for a new one;
- ``{key: delta, ...}``: an object of which these keys have changed; 0 instead of a delta removes a
  key.

``patched`` in ``web.js`` applies a delta.
"""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any

from beads_workers.core.base.causes import ROW, folded
from beads_workers.ui.lines import ended_text

Message = dict[str, Any]

LEFT_OUT = ("pid", "socket", "control_socket", "argv", "refused_messages", "workers_peak")
"""Parts of a snapshot that the page does not show."""

SAME_SECONDS = 0.3
"""Moments of one clock so near to each other are the same: snapshots round their durations."""

ROWS = {
    ("workers",): (("elapsed_seconds",), (), ("worker_id", "issue_id", "attempt")),
    ("landing", "running"): (("seconds",), (), ("issues",)),
    ("accounts",): ((), ("until_seconds",), ("agent", "model")),
}
"""Path of a list of rows -> their durations that grow, those that shrink, and their names."""

ONES = {
    ("queue",): ((), ("next_retry_seconds",)),
    ("hours",): ((), ("begins_in_seconds", "ends_in_seconds")),
    ("source_state",): (("since_seconds",), ("retry_in_seconds",)),
    ("source_calls",): (("now_seconds",), ()),
}
"""Path of an object -> its durations that grow, and those that shrink."""


class Snapshots:
    """The snapshots of a run in the form that is sent; ``newest``: None before the first one."""

    def __init__(self) -> None:
        self.newest: Message | None = None
        self._moments: dict[Hashable, float] = {}
        self._causes: tuple[Any, list[Message]] = [], []

    def add(self, snapshot: Mapping[str, Any]) -> Message:
        """Return the next snapshot in the form that is sent."""
        form = {key: value for key, value in snapshot.items() if key not in LEFT_OUT}
        moments: dict[Hashable, float] = {}
        now = snapshot.get("uptime_seconds", 0.0)
        for path, (grow, shrink, names) in ROWS.items():
            for row in _copied(form, path):
                self._move(
                    row, grow, shrink, (path, *(str(row.get(name)) for name in names)), now, moments
                )
        for path, (grow, shrink) in ONES.items():
            for one in _copied(form, path):
                self._move(one, grow, shrink, path, now, moments)
        if (rows := snapshot.get("quarantined")) is not None:
            form["causes"] = self._grouped(rows)
        if (ends := snapshot.get("outcomes")) is not None:
            form["outcomes"] = [{**row, "became": ended_text(row)} for row in ends]
        self._moments, self.newest = moments, form
        return form

    def _grouped(self, rows: list[Message]) -> list[Message]:
        """Return the quarantined issues by cause, worked out only if they have changed."""
        if self._causes[0] != rows:
            groups = folded(rows, ROW)
            self._causes = (
                rows,
                [
                    {"text": text, "issue_ids": [row["issue_id"] for row in alike]}
                    for text, alike in groups
                ],
            )
        return self._causes[1]

    def _move(
        self,
        row: Message,
        grow: Sequence[str],
        shrink: Sequence[str],
        name: Hashable,
        now: float,
        moments: dict[Hashable, float],
    ) -> None:
        """Replace the durations of a row by their moments, those of before if they are the same."""
        for key in (*grow, *shrink):
            if (seconds := row.get(key)) is None:
                continue
            moment = now - seconds if key in grow else now + seconds
            before = self._moments.get((name, key), moment)
            same = abs(before - moment) < SAME_SECONDS
            moments[name, key] = before if same else moment
            row[key] = {"run_since" if key in grow else "run_until": round(moments[name, key], 1)}


def _copied(form: Message, path: Sequence[str]) -> Iterator[Message]:
    """Yield the objects at this path, each in a copy that now stands there instead."""
    *above, last = path
    for key in above:
        if not isinstance(form.get(key), dict):
            return
        form[key] = form = dict(form[key])
    found = form.get(last)
    if isinstance(found, list):
        form[last] = rows = [dict(row) for row in found]
        yield from rows
    elif isinstance(found, dict):
        form[last] = one = dict(found)
        yield one


# --- deltas --------------------------------------------------------------------------------------


def delta(old: Any, new: Any) -> Any:
    """Return what leads from one value to another; None if they are equal."""
    if old == new and type(old) is type(new):
        return None
    if isinstance(old, dict) and isinstance(new, dict):
        changes: Message = {key: 0 for key in old if key not in new}
        for key, value in new.items():
            change = [0, value] if key not in old else delta(old[key], value)
            if change is not None:
                changes[key] = change
        return changes
    if isinstance(old, list) and isinstance(new, list) and any(isinstance(i, dict) for i in new):
        return [1, *_ops(old, new)]
    return [0, new]


def _ops(old: list[Any], new: list[Any]) -> Iterator[list[Any]]:
    """Yield how the new list is put together: whole runs of the old one, as long as they go."""
    places: dict[str, int] = {}
    names: dict[Hashable, int] = {}
    for place, item in enumerate(old):
        places.setdefault(_text(item), place)
        names.setdefault(_name(item), place)
    begin = count = 0
    for item in new:
        follows = begin + count < len(old) and old[begin + count] == item
        at = begin + count if follows else places.get(_text(item))
        if at is not None and count and at == begin + count:
            count += 1
            continue
        if count:
            yield [begin, count]
        begin, count = (0, 0) if at is None else (at, 1)
        if at is None:
            known = names.get(_name(item))
            change = None if known is None else delta(old[known], item)
            yield [item] if change is None else [known, change]
    if count:
        yield [begin, count]


def _text(item: Any) -> str:
    return json.dumps(item, sort_keys=True)


def _name(item: Any) -> Hashable:
    """Return what tells a row from the others of its list, however else it changes."""
    if not isinstance(item, dict):
        return id(item)
    keys = ("issue_id", "at", "text") if "at" in item else ("worker_id", "agent", "model", "text")
    name = tuple(str(item[key]) for key in keys if key in item)
    return name or str(item.get("issue_id"))
