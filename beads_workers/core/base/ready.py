"""The rules for issues that are ready to be worked on: those of ``bd`` 1.3, for every tracker.

docs/READY.md has the rules in words, and how each tracker differs. ``bd`` applies them itself, the
built-in tracker does so in SQL (``trackers/sqlite/store``), and ``ui/why`` explains them.
"""

from __future__ import annotations

FINISHED = ("closed", "tombstone")
"""Statuses of issues that nobody works on any more. Beads keeps deleted issues as tombstones."""

HOLDS_NOTHING = (*FINISHED, "pinned")
"""Statuses in which an issue blocks neither other issues nor its children."""

HIDDEN_TYPES = ("agent", "gate", "merge-request", "message", "molecule", "rig", "role")
"""Types that programs built on beads use for their own records; ``bd ready`` does not list them."""

NO_WORK = ("epic", *HIDDEN_TYPES)
"""Types that a fleet only takes if its filters name them. ``bd ready`` lists epics, but their
children are the work: an agent that gets the epic would do all of it a second time."""

HIDDEN_KEYS = ("pinned", "ephemeral", "wisp")
"""Keys that take an issue out of the backlog if true; ``wisp`` is the older ``ephemeral``."""

BLOCKS = "blocks"
PARENT_CHILD = "parent-child"
WAITS_FOR = "waits-for"
"""The issue waits for the children of the other one: all of them, or one closed child if
``metadata`` says ``any-children``. With ``also_blocks`` it waits for the other one as well."""

UNTIL_CLOSED = (BLOCKS, "conditional-blocks")
"""Types of dependencies that block until the other issue is closed."""

HOLDING = (*UNTIL_CLOSED, WAITS_FOR)
"""All types of dependencies that block. A child is blocked as long as its parent is
(``PARENT_CHILD``). Every other type only informs."""
