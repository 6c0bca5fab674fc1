"""The form of a landed commit's message, as ``[landing]`` says it. Source: docs/LANDING.md,
"Messages"."""

from __future__ import annotations

import re
from typing import Any

from beads_workers.core.base.model import value
from beads_workers.core.base.option import BOOLEAN, choice, in_file, whole

PLACEHOLDER = re.compile(r"([(\[]?)\{([^{}]*)\}([)\]]?)")
"""A placeholder of ``subject``, with brackets around it."""
_NAMES = re.compile(r"id|title|title:lower|type|label:[^{}]+")
FORMS = "{id}, {title}, {title:lower}, {type}, {label:area/}"

SUBJECT_MAX = (20, 500)
TYPES = (("bug", "fix"), ("feature", "feat"))
"""Types of issues, with their names in Conventional Commits."""
TRAILERS_KEPT = ("full", "short", "none")
CO_AUTHOR = "{agent} <{agent}@localhost>"
NOBODY = "none"
NO_TITLE = "Work of an agent"
SUBJECT_COLUMNS = 72
BODY_COLUMNS = 72
TRAILER_COLUMNS = 100
"""The limit of commitlint's usual rules, for what may not be wrapped: trailers and code."""


def _landing(key: str) -> dict[str, Any]:
    return {"name": f"landing_{key}", "table": ("landing", key)}


@value
class CommitForm:
    """The form of the messages of landed commits."""

    # A template.
    subject: str = in_file("{title}", ("subject",), **_landing("subject"))
    # Maximum characters of the filled template.
    subject_max: int = in_file(72, whole(*SUBJECT_MAX), **_landing("subject_max"))
    # What ``{type}`` says for a type of issue.
    types: tuple[tuple[str, str], ...] = in_file(TYPES, ("types",), **_landing("types"))
    # Commits are signed off in the committer's name.
    signoff: bool = in_file(False, BOOLEAN, **_landing("signoff"))
    trailers: str = in_file("short", choice(*TRAILERS_KEPT), **_landing("trailers"))


OWN_TRAILERS = ("Issue: {id}", "Attempt: {attempt}", "Run: {run}")
"""Trailers of a commit that we make of what an attempt left; the lander recognises it by these."""
_CO_AUTHORED = "Co-authored-by: "
_SIGNED_OFF = "Signed-off-by: {committer}"


def own_trailers(form: CommitForm, style: str, co_author: str) -> tuple[str, ...]:
    """Return the templates of all trailers of our commits.
    With ``merge`` such a commit lands as it is, and says no more than others do."""
    merged = style == "merge"
    kept = {"full": 3, "short": 1, "none": 0}[form.trailers] if merged else 3
    named = (f"{_CO_AUTHORED}{co_author}",) if co_author != NOBODY else ()
    signed = (_SIGNED_OFF,) if merged and form.signoff else ()
    return (*named, *OWN_TRAILERS[:kept], *signed)


def filled_trailers(templates: tuple[str, ...], agent: str, **values: str) -> list[str]:
    """Return the trailer lines of a commit.
    ``agent``: whose work it is, "" for a command's, which is the user's."""
    wanted = [each for each in templates if agent or not each.startswith(_CO_AUTHORED)]
    fill = {"agent": agent, **values}
    return [re.sub(r"\{([a-z]+)\}", lambda m: fill.get(m[1], m[0]), each) for each in wanted]


def shortened(text: str, room: int) -> str:
    """Return the text shortened to ``room`` characters, at the end of a word if there is one."""
    if len(text) <= room:
        return text
    whole, blank, _ = text[: room + 1].rpartition(" ")
    return (whole if blank else text[:room]).rstrip(" ,;:-(")


def one_line(text: str) -> str:
    """Return the text without line ends and control characters."""
    return " ".join(re.sub(r"[\x00-\x1f\x7f]", " ", text).split())


def wrapped(text: str) -> str:
    """Wrap the lines that are longer than ``BODY_COLUMNS``; leave all others as they are."""
    lines, fenced = list[str](), False
    for line in re.sub(r"[\x00-\x08\x0b-\x1f\x7f]", "", text.expandtabs(4)).strip("\n").split("\n"):
        fenced ^= line.lstrip().startswith("```")
        code = fenced or line.startswith("    ")
        room = TRAILER_COLUMNS if code else BODY_COLUMNS
        lines += _folded(line.rstrip(), room) if len(line) > room else [line.rstrip()]
    return "\n".join(lines)


def _folded(line: str, room: int) -> list[str]:
    import textwrap  # Workers load this module, too, and wrap nothing.

    begin = re.match(r" *(?:[-*+] |\d+[.)] )?", line)
    indent = " " * min(len(begin[0]) if begin else 0, room // 2)
    return textwrap.wrap(
        line, room, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )


def read_subject(value: Any) -> str:
    """Read a template; raise ``ValueError`` with what is allowed."""
    allowed = f"one line with one of these at least: {FORMS}"
    if not isinstance(value, str) or not value.isprintable():
        raise ValueError(allowed)
    names = [name for _, name, _ in PLACEHOLDER.findall(value)]
    left = PLACEHOLDER.sub("", value)
    if not names or not all(map(_NAMES.fullmatch, names)) or "{" in left or "}" in left:
        raise ValueError(allowed)
    return value


def read_types(value: Any) -> tuple[tuple[str, str], ...]:
    """Read the table of types, on top of ``TYPES``; raise ``ValueError`` with what is allowed."""
    pairs = value.items() if isinstance(value, dict) else value
    try:
        found = {**dict(TYPES), **dict(pairs)}
    except (TypeError, ValueError):
        raise ValueError(_TYPES_ALLOWED) from None
    words = [word for pair in found.items() for word in pair]
    if not all(isinstance(word, str) and word.strip() and word.isprintable() for word in words):
        raise ValueError(_TYPES_ALLOWED)
    return tuple(found.items())


_TYPES_ALLOWED = 'a word for a type of issue: { bug = "fix", task = "chore" }'


def read_co_author(value: Any) -> str:
    """Read who is named for an agent's work; raise ``ValueError`` with what is allowed."""
    if value != NOBODY and not (
        isinstance(value, str) and value.isprintable() and re.fullmatch(r"[^<>]+ <[^<>\s]+>", value)
    ):
        raise ValueError(
            f'a name and an address, "NAME <MAIL>", both may hold {{agent}}; "{NOBODY}"'
        )
    return str(value)
