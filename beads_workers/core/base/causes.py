"""The causes of failures: which errors are of one kind, and how a person names a kind.

    cause_of("w-12: cannot parse /srv/w-12/config.toml, line 3", "w-12")
    # "#: cannot parse #, line #"

The report, ``status``, ``retry --cause`` and every list of quarantined issues fold by this.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from operator import attrgetter, itemgetter
from typing import Any, TypeVar

from beads_workers.core.base.text import printable

T = TypeVar("T")

_VARYING = re.compile(
    r"(?<![\w#])[a-z][a-z0-9+.-]*://\S+"
    r"|(?:[\w.@+#-]+/)+[\w@+#-]*\.[a-z]\w*"
    r"|(?<![\w.#/])~?(?:/[\w.@+#-]+)+/?"
    r"|\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b"
    r"|\b0x[0-9a-f]+\b"
    r"|\b(?=[a-f]*[0-9])[0-9a-f]{7,64}\b"
    r"|\d+(?:[.:,]\d+)*",
    re.IGNORECASE,
)
"""Varying parts of errors of one kind: addresses, paths, identifiers, hashes, numbers."""

_NAMED = re.compile(r'[^"]{0,80}: "[^"]+": |"[^"]+": ')
"""Beginning of an error that names a failing item (``core.base.failures``)."""

NO_SUCH_CAUSE = "nothing is quarantined for that cause"


@lru_cache(maxsize=4096)
def cause_of(error: str, issue_id: str = "") -> str:
    """Return an error without the details of one attempt: equal for errors of one kind.

    ``issue_id``: the issue that failed, whose id is such a detail. The cause of a cause is itself.
    """
    if issue_id:
        error = error.replace(issue_id, "#")
    error = _line(error)
    # A failing item keeps its name: of two parts of one test, each is a cause of its own.
    named = _NAMED.match(error)
    name, error = (named[0], error[named.end() :]) if named else ("", error)
    while (found := " ".join(_VARYING.sub("#", error).split())) != error:
        error = found
    return f"{name}{error}"


def is_of(cause: str, error: str, issue_id: str = "") -> bool:
    """Return whether an error is of a cause that a person names.

    ``cause``: a part of the error, in any case; with ``#`` for what varies, as lists show it.
    """
    named = _line(cause).casefold()
    if named in _line(error).casefold():
        return bool(named)
    # "#" alone is no name: it would be a part of nearly every cause.
    return bool(named.strip("# ")) and named in cause_of(error, issue_id).casefold()


def _line(text: str) -> str:
    """Return a text as one line, as lists show it: people paste what they see."""
    return printable(" ".join(text.split()))


ROW: Callable[[Mapping[str, Any]], tuple[str, str]] = itemgetter("error", "issue_id")
"""What ``folded`` asks of rows as ``status --json`` has them."""

OBJECT: Callable[[Any], tuple[str, str]] = attrgetter("error", "issue_id")


def folded(rows: Iterable[T], of: Callable[[T], tuple[str, str]]) -> list[tuple[str, list[T]]]:
    """Return rows by cause, the largest group first, each with a text for people.

    The text is the error itself if all errors of a group are equal, else their cause. ``of``: the
    error and the issue of a row.
    """
    groups: dict[str, list[T]] = {}
    for row in rows:
        groups.setdefault(cause_of(*of(row)), []).append(row)
    named = [
        (of(alike[0])[0] if len({of(each)[0] for each in alike}) == 1 else cause, alike)
        for cause, alike in groups.items()
    ]
    return sorted(named, key=lambda group: -len(group[1]))
