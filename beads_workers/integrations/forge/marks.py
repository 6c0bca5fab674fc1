"""Hidden marks in comments, by which a fleet knows its own.

A mark counts only in a comment by our own login: everybody else's copy of it is text. The claim of
a fleet with another login counts, too: it has a seal that fits that login.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from hashlib import sha256

from beads_workers.core.base.model import FLEETS
from beads_workers.core.base.text import defused
from beads_workers.integrations.forge.api import ForgeComment

CLAIM, DONE, NOTE, QUESTION = "claim", "done", "note", "question"
_MARK = re.compile(r"<!-- beads-workers ([a-z]+) (?:([0-9a-f]{8}) )?([0-9a-f]{20}) -->")
TEXT_CHARS_MAX = 20_000
ELSEWHERE = f"{FLEETS}elsewhere/"
"""Begins the name of a run of which only a mark is known."""


def name_of(actor: str) -> str:
    """Return what a mark says of a run: neither its machine nor its name."""
    if actor.startswith(ELSEWHERE):
        return actor.removeprefix(ELSEWHERE)
    return sha256(actor.encode()).hexdigest()[:20]


def marked(kind: str, actor: str, text: str, login: str = "") -> str:
    """Return a comment with a mark; with the seal of a login, which says that it is no copy."""
    name = name_of(actor)
    mark = f"{_seal(name, login)} {name}" if login else name
    return f"{text.rstrip()}\n\n<!-- beads-workers {kind} {mark} -->"


def _seal(name: str, login: str) -> str:
    return sha256(f"{name} {login.lower()}".encode()).hexdigest()[:8]


def mark_of(comment: ForgeComment, login: str) -> tuple[str, str]:
    """Return kind and run of a comment of ours; two empty texts for all others."""
    found = _MARK.findall(comment.text) if comment.author == login else []
    return (found[-1][0], found[-1][2]) if found else ("", "")


def is_sealed(comment: ForgeComment) -> bool:
    """Return whether the mark of a comment has the seal of who has written it."""
    found = _MARK.findall(comment.text)
    return bool(found) and found[-1][1] == _seal(found[-1][2], comment.author)


def of_kind(comments: Iterable[ForgeComment], login: str, kind: str) -> list[ForgeComment]:
    """Return our comments with marks of a kind, oldest first."""
    found = [each for each in comments if mark_of(each, login)[0] == kind]
    return sorted(found, key=lambda each: each.comment_id)


def said(text: str) -> str:
    """Return what an agent says, for a comment: the forge obeys nothing in it."""
    text = defused(text)
    return text if len(text) <= TEXT_CHARS_MAX else f"{text[:TEXT_CHARS_MAX]}..."
