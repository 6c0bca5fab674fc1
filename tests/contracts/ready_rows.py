"""Odd issues, made from tables of dimensions, and how ``bd`` differs from us on which are ready.

Each row is imported into the built-in tracker and into the real ``bd``. ``DIFFERENCES`` names every
row on which the two differ, and why. ``python -m tests.contracts.ready_rows`` prints that table for
docs/READY.md.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tests.support.bd import NEW, OLD, PREFIX

Fields = Mapping[str, Any]

MADE, PAST, FUTURE = "2026-01-02T03:04:05Z", "2020-01-01T00:00:00Z", "2099-01-01T00:00:00Z"
UNFINISHED = ("open", "in_progress", "blocked", "deferred", "hooked")
STATUSES = (*UNFINISHED, "pinned", "closed", "tombstone")
OF_BEADS = ("agent", "role", "rig", "message", "merge-request", "molecule", "gate")
ONLY_NEW = ("decision", "spike", "story", "milestone", "rig")
"""Types that ``bd`` 0.44 refuses to import."""
CUSTOM = ("agent", "role", "rig", "merge-request", "convoy", "slot")
"""Types that ``bd`` 1.3 refuses to import unless it is told of them."""
TYPES = (
    *("task", "bug", "feature", "chore", "epic", "decision", "spike", "story", "milestone"),
    *("event", "convoy", "slot", *OF_BEADS),
)
MARKS: dict[str, Fields] = {
    "pinned": {"pinned": True},
    "unpinned": {"pinned": False},
    "ephemeral": {"ephemeral": True},
    "wisp": {"wisp": True},
    "template": {"is_template": True},
    "no-history": {"no_history": True},
    "assigned": {"assignee": "somebody"},
}
DATES: dict[str, Fields] = {
    "past": {"defer_until": PAST},
    "future": {"defer_until": FUTURE},
    "offset": {"defer_until": "2099-01-01T00:00:00+05:00"},
    "due": {"due_at": FUTURE},
}
OTHERS: dict[str, Fields] = {
    **{status: {"status": status} for status in STATUSES},
    "failed": {"status": "closed", "close_reason": "it failed"},
    "put-off": DATES["future"],
    "pinned-mark": MARKS["pinned"],
    "ephemeral": MARKS["ephemeral"],
    "epic": {"issue_type": "epic"},
    "gate": {"issue_type": "gate"},
}
"""An issue that another one depends on."""
INFORMING = (
    *("related", "discovered-from", "relates-to", "duplicates", "supersedes", "replies-to"),
    *("tracks", "until", "caused-by", "validates", ""),
)
CHILDREN: dict[str, tuple[str, ...]] = {
    "none": (),
    "open": ("open",),
    "started": ("in_progress",),
    "closed": ("closed",),
    "some": ("open", "closed"),
    "pinned": ("pinned",),
    "deferred": ("deferred",),
    "deleted": ("tombstone",),
}
GATES: dict[str, str] = {
    "plain": "",
    "all": json.dumps({"gate": "all-children"}),
    "any": json.dumps({"gate": "any-children"}),
    "also": json.dumps({"gate": "any-children", "also_blocks": True}),
}
PAIRED = ("blocks", "related", "parent-child", "conditional-blocks", "waits-for")


def rows() -> dict[str, dict[str, Any]]:
    """Return every issue by its id, as an object of JSON Lines."""
    return {row["id"]: row for row in _rows()}


def _rows() -> Iterator[dict[str, Any]]:
    yield from (_row(f"type-{each}", {"issue_type": each}) for each in TYPES)
    yield from (_row(f"status-{each}", {"status": each}) for each in STATUSES)
    yield from (_row(f"mark-{each}", fields) for each, fields in MARKS.items())
    for status in ("open", "in_progress", "blocked", "deferred"):
        for date, fields in DATES.items():
            yield _row(f"date-{status}-{date}", {"status": status, **fields})
    yield from _dependants()
    yield from _children()
    yield from _waiting()
    yield _row("pair", {})
    for first in PAIRED:
        for second in PAIRED:
            if first != second:
                yield _row(f"pair-{first}-{second}", {}, ("pair", first), ("pair", second))


def _dependants() -> Iterator[dict[str, Any]]:
    for other, fields in OTHERS.items():
        yield _row(f"other-{other}", fields)
        for kind in ("blocks", "conditional-blocks"):
            yield _row(f"{kind}-{other}", {}, (f"other-{other}", kind))
    for kind in ("blocks", "conditional-blocks", "waits-for", "parent-child"):
        yield _row(f"{kind}-missing", {}, ("missing", kind))
    for kind in INFORMING:
        yield _row(f"informs-{kind or 'no-kind'}", {}, ("other-open", kind))


def _children() -> Iterator[dict[str, Any]]:
    """Children and grandchildren of issues that are free, blocked or deferred, in each status."""
    for other, fields in OTHERS.items():
        for how, more, needs in (
            ("free", {}, ()),
            ("waits", {}, (("other-open", "blocks"),)),
            ("later", DATES["future"], ()),
        ):
            if other == "put-off" and how == "later":
                continue
            name = f"{other}-{how}"
            yield _row(f"parent-{name}", {**fields, **more}, *needs)
            yield _row(f"child-{name}", {}, (f"parent-{name}", "parent-child"))
            if other in ("open", "closed", "pinned-mark"):
                yield _row(f"middle-{name}", {}, (f"parent-{name}", "parent-child"))
                yield _row(f"grandchild-{name}", {}, (f"middle-{name}", "parent-child"))


def _waiting() -> Iterator[dict[str, Any]]:
    for status in ("open", "closed"):
        for children, statuses in CHILDREN.items():
            name = f"{status}-{children}"
            yield _row(f"spawner-{name}", {"status": status})
            for at, each in enumerate(statuses):
                parent = (f"spawner-{name}", "parent-child")
                yield _row(f"spawned-{name}-{at}", {"status": each}, parent)
            for gate, metadata in GATES.items():
                needs = (f"spawner-{name}", "waits-for", metadata)
                yield _row(f"waits-{name}-{gate}", {}, needs)


def _row(name: str, fields: Fields, *needs: tuple[str, ...]) -> dict[str, Any]:
    row: dict[str, Any] = {"id": f"{PREFIX}-{name}", "title": name, "status": "open", "priority": 2}
    row |= {"issue_type": "task", "created_at": MADE, "updated_at": MADE, **fields}
    row |= {"closed_at": MADE} if row["status"] == "closed" else {}
    row |= {"deleted_at": MADE} if row["status"] == "tombstone" else {}
    dependencies = [
        {"issue_id": row["id"], "depends_on_id": f"{PREFIX}-{other}", "type": kind}
        | {"created_at": MADE, **({"metadata": metadata[0]} if any(metadata) else {})}
        for other, kind, *metadata in needs
    ]
    return row | ({"dependencies": dependencies} if dependencies else {})


@dataclass(frozen=True, slots=True)
class Difference:
    """``rows``: a pattern of names. ``bd`` differs on all of them, in each of ``versions``."""

    versions: tuple[str, ...]
    what: str
    why: str
    rows: str

    def names(self, issue_id: str) -> bool:
        """Return whether the difference is about this row."""
        return re.fullmatch(self.rows, issue_id.removeprefix(f"{PREFIX}-")) is not None


BOTH = (OLD, NEW)
DIFFERENCES = (
    Difference(
        BOTH,
        "epics",
        "ready for `bd`; a fleet takes their children, or the epics with `--type epic`",
        r"(type|other)-epic|parent-epic-free",
    ),
    Difference(
        BOTH,
        "assigned to somebody",
        "ready for `bd`, whoever asks; a fleet leaves them to that person",
        r"mark-assigned",
    ),
    Difference(
        BOTH,
        "dependency without a type",
        "`bd` ignores it; the built-in tracker reads `blocks`",
        r"informs-no-kind",
    ),
    Difference(
        BOTH,
        "`waits-for` beside `parent-child` on the same issue",
        "`bd` ignores one of the two; in the built-in tracker the issue waits for its siblings",
        r"pair-(parent-child-waits-for|waits-for-parent-child)",
    ),
    Difference(
        (NEW,),
        "`related` beside `blocks` on the same issue",
        "`bd` keeps the first of two dependencies on one issue; the built-in tracker keeps both",
        r"pair-related-(blocks|conditional-blocks|waits-for)",
    ),
    Difference(
        (NEW,),
        "blocked by its own parent",
        "`bd` drops that dependency at the import; in the built-in tracker the parent is "
        "done first",
        r"pair-((conditional-)?blocks-parent-child|parent-child-(conditional-)?blocks)",
    ),
    Difference(
        (NEW,),
        "blocked by an ephemeral issue",
        "`bd` keeps ephemeral issues in a table of their own, and drops dependencies "
        "between the two at the import; the built-in tracker keeps them",
        r"(conditional-)?blocks-ephemeral|child-ephemeral-(waits|later)",
    ),
    Difference(
        (OLD,),
        "child of a deferred parent",
        "ready in 0.44",
        r"(child|middle)-(?!tombstone).*-later|child-put-off-free",
    ),
    Difference(
        (OLD,),
        "`deferred` until a date that has passed",
        "never opened in 0.44",
        r"date-deferred-past",
    ),
    Difference(
        (OLD,),
        "child of an issue that is blocked, but closed, pinned or deleted",
        "blocked in 0.44",
        r"(child|middle|grandchild)-(closed|failed|pinned|tombstone)-waits",
    ),
    Difference(
        (OLD,),
        "`conditional-blocks`",
        "0.44 blocks until the other issue has failed, and not if it is `hooked`",
        r"conditional-blocks-(closed|hooked)",
    ),
    Difference(
        (OLD,),
        "`waits-for` without a gate",
        "0.44 ignores it",
        r"waits-.*-(open|started|deferred|some)-plain|pair-(related-waits-for|waits-for-"
        r"related)",
    ),
    Difference(
        (OLD,),
        "`waits-for` an issue without children, with `any-children`, or with pinned children",
        "blocked in 0.44",
        r"waits-.*-(none|pinned)-any|waits-.*-pinned-all|waits-closed-(none|pinned)-also",
    ),
    Difference(
        (OLD,),
        "`waits-for` with `also_blocks`",
        "0.44 ignores `also_blocks`",
        r"waits-open-(closed|deleted|some)-also",
    ),
    Difference((OLD,), "type `role`, key `wisp`", "ready in 0.44", r"type-role|mark-wisp"),
)


def named(version: str, ids: Iterable[str]) -> set[str]:
    """Return the rows on which this ``bd`` differs, according to ``DIFFERENCES``."""
    ours = [each for each in DIFFERENCES if version in each.versions]
    return {issue_id for issue_id in ids if any(each.names(issue_id) for each in ours)}


def table() -> str:
    """Return ``DIFFERENCES`` as docs/READY.md has it."""
    lines = ["| `bd` | issue | difference |", "|---|---|---|"]
    for each in DIFFERENCES:
        which = " and ".join(version.rpartition(".")[0] for version in each.versions)
        lines.append(f"| {which} | {each.what} | {each.why} |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(table())
