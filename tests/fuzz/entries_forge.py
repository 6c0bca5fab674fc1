"""What a forge answers, and what people write there."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from beads_workers.core.base import text as core_text
from beads_workers.integrations.forge import marks, reading
from beads_workers.integrations.forge.api import ForgeError, ForgeIssue, ForgeRepository
from beads_workers.integrations.forge.gitea import Gitea
from beads_workers.integrations.forge.web import HttpAnswer, parsed
from beads_workers.trackers.settlement_rules import Ownership
from tests.fuzz.inputs import as_text, objects, texts
from tests.fuzz.parser import Parser, require, well_typed

USER = {"login": "ann", "is_bot": False}
LABEL = {"id": 1, "name": "ready"}
ISSUE: dict[str, Any] = {
    "number": 1, "title": "a title", "body": "blocked by #2", "user": USER, "state": "open",
    "labels": [LABEL], "assignees": [USER], "created_at": "2026-01-01T00:00:00Z",
    "updated_at": "2026-01-01T00:00:00Z", "closed_at": None, "is_locked": False,
    "content_version": 0, "repository": {"full_name": "o/r"},
}  # fmt: skip
EVENT: dict[str, Any] = {
    "id": 3, "type": "comment", "user": USER, "body": "1", "created_at": "2026-01-01T00:00:00Z",
    "label": LABEL,
}  # fmt: skip
WORDS = (
    "blocked by #1", "depends on #2, #3 and #4", "- [ ] #5", "```", "~~~", "`", "> ", "<!--", "-->",
    "#", "@ann", "/close", "Fixes: #1", "/issues/1", "GH-1", "\n", " ", "\u200b", "é",
    "<!-- beads-workers claim 00000000000000000000 -->",
)  # fmt: skip


def answered(path: str) -> Callable[[bytes], Any]:
    """Returns what the adapter makes of an answer: a list of issues, or a conversation."""

    def read(data: bytes) -> Any:
        forge = Gitea(ForgeRepository("gitea", "http://h", "o", "r"), {"GITEA_TOKEN": "t"})

        def ask(method: str, asked: str, body: Any = None) -> HttpAnswer:
            found = parsed(data, asked)
            is_one = asked.endswith("/issues/1")
            return HttpAnswer(200, {}, ISSUE if is_one and path == "thread" else [found])

        forge._ask = ask  # type: ignore[assignment, method-assign]
        if path == "issues":
            return forge.issues("")
        return [forge.thread(1)] if path == "thread" else [*forge.blockers(1)]

    return read


def answers_hold(read: Callable[[bytes], Any], data: bytes) -> None:
    try:
        found = read(data)
    except ForgeError:
        return
    for each in found:
        well_typed(each)
        if isinstance(each, ForgeIssue):
            require(not isinstance(each.number, bool), "a number that is none")
            well_typed(reading.to_tracker(each, Ownership("open", "")))


def bodies_hold(read: Callable[[str], tuple[int, ...]], data: bytes) -> None:
    text = as_text(data)
    for number in read(text):
        require(number in map(int, re.findall(r"#([0-9]{1,9})(?![0-9])", text)), "invented")
    require(read(f"```\n{text.replace('```', '')}") == (), "it reads code")


def defused_holds(defused: Callable[[str], str], data: bytes) -> None:
    text = defused(as_text(data))
    for pattern, _ in core_text._OBEYED:
        require(not pattern.search(text), f"a forge obeys it: {pattern.pattern}")


def _believing(data: bytes) -> Any:
    """Planted bug: believes the types of an answer."""
    found = parsed(data, "x")
    if not isinstance(found, dict):
        raise ForgeError("no issue")
    return [ForgeIssue(found.get("number", 1), "t", found.get("body", ""), "ann", True)]


def _careless(text: str) -> str:
    """Planted bug: leaves commands alone."""
    return text.replace("@", "@\u200b").replace("#", "#\u200b")


def _greedy(body: str) -> tuple[int, ...]:
    """Planted bug: reads code, too."""
    return tuple(
        int(n) for each in reading._WAITS.findall(body) for n in reading._NUMBER.findall(each)
    )


PLACE = "integrations/forge/"
PIECES = texts([word.encode() for word in WORDS])

PARSERS = [
    Parser("forge issues", (f"{PLACE}web.py",), answered("issues"), objects([ISSUE]),
           answers_hold, {"believes types": _believing}),
    Parser("forge threads", (f"{PLACE}gitea.py",), answered("thread"), objects([EVENT]),
           answers_hold, {"believes types": _believing}),
    Parser("forge bodies", (f"{PLACE}reading.py",), reading.waits_in, PIECES, bodies_hold,
           {"reads code": _greedy}),
    Parser("forge texts", (f"{PLACE}marks.py",), marks.said, PIECES, defused_holds,
           {"leaves commands": _careless}),
]  # fmt: skip
