"""The page that tells how to read our JSON with a script of 0.2.0: its table is complete."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "UPGRADING.md"
KEPT = Path(__file__).parent / "upgrading"
"""What 0.2.0 printed of histories that ``tests/oracles`` has, too; long lists are cut."""
GOLDEN = Path(__file__).parents[1] / "oracles" / "golden"
ROW = re.compile(r"\| (\w+) \| `([^`]+)`(?: = `(\w+)`)? \| `(\w+)` \|")


def rows(command: str) -> list[tuple[list[str], str, str]]:
    """Return the table's rows of a command: the path, the renamed value or "", the new name."""
    found = [ROW.fullmatch(line) for line in PAGE.read_text(encoding="utf-8").splitlines()]
    return [
        (row[2].replace("[]", ".[]").split("."), row[3] or "", row[4])
        for row in found
        if row and row[1] == command
    ]


def renamed(command: str, value: Any) -> Any:
    """Return what 0.2.0 printed with the names of today; ``value`` is changed."""
    for path, old, new in rows(command):
        for place in places(value, path[:-1]):
            if old and place.get(path[-1]) == old:
                place[path[-1]] = new
            elif not old and path[-1] in place:
                items = [(new if key == path[-1] else key, each) for key, each in place.items()]
                place.clear()
                place.update(items)
    return value


def places(value: Any, path: list[str]) -> Iterator[dict[str, Any]]:
    """Yield the objects that this path leads to."""
    if path and path[0] == "[]":
        for each in value if isinstance(value, list) else ():
            yield from places(each, path[1:])
    elif isinstance(value, dict):
        if not path:
            yield value
        elif path[0] in value:
            yield from places(value[path[0]], path[1:])


def keys(value: Any, path: str = "") -> Iterator[str]:
    """Yield the paths of all keys below this value."""
    for each in value if isinstance(value, list) else ():
        yield from keys(each, f"{path}[]")
    for key, each in value.items() if isinstance(value, dict) else ():
        yield f"{path}.{key}"
        yield from keys(each, f"{path}.{key}")


def printed_today(name: str, command: str) -> Iterator[Any]:
    """Yield what this command prints of a history, from the golden text of its oracle."""
    text = (GOLDEN / f"history_{name}.txt").read_text(encoding="utf-8")
    for block in re.split(r"(?m)^(?=\$ beads-workers |# )", text):
        if block.startswith(f"$ beads-workers {command}") and "--json\n" in block:
            yield json.loads(block[block.index("\n{") : block.rindex("}") + 1])
        elif block.startswith("# status of") and command == "status":
            lines = (line.partition(": ") for line in block.splitlines()[1:] if line)
            yield {key: json.loads(value) for key, _, value in lines}


@pytest.mark.parametrize("file", sorted(KEPT.iterdir()), ids=lambda file: file.stem)
def test_every_key_of_0_2_0_has_the_name_that_the_page_says(file: Path) -> None:
    for line in file.read_text(encoding="utf-8").splitlines():
        words, before = json.loads(line)
        command = words.split()[0]
        today = {key for each in printed_today(file.stem, command) for key in keys(each)}
        assert today and set(keys(renamed(command, before))) <= today, words


def test_no_renamed_key_is_printed_any_more() -> None:
    for file in KEPT.iterdir():
        for command in ("status", "report", "why", "runs"):
            for today in printed_today(file.stem, command):
                for path, old, _ in rows(command):
                    found = [
                        place[path[-1]] for place in places(today, path[:-1]) if path[-1] in place
                    ]
                    assert old not in found if old else not found, (command, path)


def test_the_tables_of_page_and_changelog_have_the_same_names() -> None:
    log = (PAGE.parent.parent / "CHANGELOG.md").read_text(encoding="utf-8")
    table = {(row[1], row[2]) for row in re.finditer(r"\| `(\w+)` \| `(\w+)` \|", log)}
    page = {
        (old or path[-1], new)
        for c in ("status", "report", "why", "runs")
        for path, old, new in rows(c)
    }
    assert table == page
