"""How the embedded tracker's commands show issues. Nothing from an issue is printed unescaped."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from beads_workers.cli.tracker_place import warn
from beads_workers.core.text import json_line, printable

if TYPE_CHECKING:
    from beads_workers.sources.issue import Issue
    from beads_workers.sources.sqlite.exchange import Imported

_TITLE_COLUMNS = 100
_WAITS_SHOWN = 5
_DROPPED = "dropped: it came with the file, and would run; --allow-commands keeps it"


def issue_row(issue: Issue, width: int, waits_for: list[str]) -> str:
    """One line of a list; ``width`` is that of the longest id."""
    parts = [issue.id.ljust(width), f"P{issue.priority}", f"{printable(issue.status):<11}"]
    parts.append(printable(issue.title, _TITLE_COLUMNS))
    if issue.issue_type != "task":
        parts.append(f"({printable(issue.issue_type)})")
    if issue.labels:
        parts.append(f"[{', '.join(map(printable, issue.labels))}]")
    if issue.assignee:
        parts.append(f"@{printable(issue.assignee)}")
    if waits_for:
        parts.append(f"waits for {', '.join(waits_for[:_WAITS_SHOWN])}")
        if len(waits_for) > _WAITS_SHOWN:
            parts[-1] += f" and {len(waits_for) - _WAITS_SHOWN} more"
    return "  ".join(parts)


def shown(name: str, value: Any) -> str:
    """The value of one key of an issue, for people; further lines are indented."""
    if name == "command":
        return printable(shlex.join(value))
    if isinstance(value, str):
        lines = [printable(line) for line in value.split("\n")]
        return "\n".join(lines) if len(lines) == 1 else "\n  " + "\n  ".join(lines)
    if isinstance(value, list) and all(isinstance(each, str) for each in value):
        return ", ".join(map(printable, value))
    return json_line(value)


def print_array(lines: Iterable[str]) -> None:
    """One object a line inside the brackets: large ones stay readable, and stream."""
    before = "["
    for line in lines:
        print(before + line, end="")
        before = ",\n"
    print("[]" if before == "[" else "]")


def report(found: Imported) -> None:
    """Say on stderr what the three counts do not."""
    said = (
        (found.commands_dropped, "command was", "commands were", _DROPPED),
        (found.older, "issue was", "issues were", "left alone: the tracker's is newer"),
        (found.held, "issue is", "issues are", "being worked on: who holds it stayed"),
        (found.skipped, "line is", "lines are", "no issue, and skipped"),
        (found.dangling, "issue is", "issues are", "named as a dependency, but not here"),
    )
    for count, one, many, what in said:
        if count:
            warn(f"{count} {one if count == 1 else many} {what}")
