"""Records at the beginning of a journal's further segments: what came before, in short.

They stand there among records that are repeated because they still hold. Whoever has read the
segment before passes over all of them (``journal_lines.is_repeated``).
"""

from __future__ import annotations

from beads_workers.core.records import Record
from beads_workers.core.text import counted
from beads_workers.core.values import value


@value
class Resumed(Record):
    """The counts of the run up to here. ``segment``: which one this is, from 2 on."""

    segment: int
    claims: int = 0
    done: int = 0
    failed: int = 0
    retried: int = 0
    lost: int = 0
    set_aside: int = 0

    @property
    def text(self) -> str:
        """For people who read the journal from here on."""
        return f"what was before this is no longer in the journal: {self.counts}"

    @property
    def counts(self) -> str:
        """In words."""
        return (
            f"{counted(self.claims, 'claim')}, {self.done} done,"
            f" {counted(self.failed, 'failed attempt')}, {self.set_aside} set aside"
        )


@value
class Owing(Record):
    """What no other record of a checkpoint says of an issue: the worker that was not ours and had
    it to the end (``pid``, ``start_time``) must be gone; ``reopened``: the tracker may block it
    still; ``heard``: nothing is owed by earlier runs. ``note``, in older journals: the tracker is
    to be told that it is set aside.
    """

    issue_id: str
    note: str = ""
    pid: int = 0
    start_time: int = 0
    reopened: bool = False
    heard: bool = False
