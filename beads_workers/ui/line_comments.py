"""A person's comments on lines of a diff: the place of each line, and the text for the agent."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from beads_workers.core.base.model import value

HUNK_LINES = 4
"""Number of lines of the diff that a comment repeats: up to the one that it is about."""

_FILE = re.compile(r'(?:---|\+\+\+) ("?)[ab]/(.*?)\1 *')
_HUNK = re.compile(r"@@ -\d+(?:,\d+)? \+(\d+)")


@value
class LineComment:
    """A comment. ``line``: its index in the diff; the other fields go to the agent."""

    line: int
    place: str
    code: str
    text: str


def places(lines: Sequence[str]) -> list[str]:
    """Return the place of each line of a diff: ``shop/cart.py:12``, by the new file, or by the old
    one if it is gone; "" for a line that is none of a file's."""
    found, file, number = [], "", 0
    for line in lines:
        if line.startswith("diff --git "):
            file, number = "", 0
        elif not number and (named := _FILE.fullmatch(line)):
            file = named[2]
        elif hunk := _HUNK.match(line):
            number = int(hunk[1])
        elif file and number and line[:1] in ("+", "-", " "):
            found.append(f"{file}:{number}")
            number += line[0] != "-"
            continue
        found.append("")
    return found


def line_comment(lines: Sequence[str], at: int, text: str) -> LineComment | None:
    """Return the comment on this line of a diff; None if it is none of a file's."""
    known = places(lines)
    if not known[at]:
        return None
    first = at
    while first > max(0, at - HUNK_LINES + 1) and known[first - 1]:
        first -= 1
    return LineComment(at, known[at], "\n".join(lines[first : at + 1]), text)


def with_comments(text: str, comments: Iterable[Mapping[str, str]]) -> str:
    """Return what an agent is told: the text, then each comment with file, line and hunk.
    ``comments``: mappings with ``place``, ``code`` and ``text``."""
    told = []
    for each in comments:
        code = "\n".join(f"    {line}" for line in str(each["code"]).splitlines())
        told.append(f"{each['place']}\n{code}\n{each['text']}")
    return "\n\n".join(filter(None, (text.strip(), *told)))
