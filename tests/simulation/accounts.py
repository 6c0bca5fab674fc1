"""An account of each issue from what the journals hold, kept apart from ``core.views.recovery``.

Invariant 5: attempts are counted, survive restarts and have a cap; and 1: what was done and
journalled is never started again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from beads_workers.core.base.limits import FREE_RETRIES_MAX
from beads_workers.core.base.wire import Done, Failed
from beads_workers.core.records import journal as rec
from beads_workers.core.records.journal import Entry

if TYPE_CHECKING:
    from tests.simulation.world import World


@dataclass(slots=True)
class Account:
    """``done``: its success is in the journal, and no later word on it."""

    charged: int = 0
    quarantined: bool = False
    done: bool = False


@dataclass(slots=True)
class Accounts:
    """All records that are still in the files, and what follows from them."""

    world: World
    told: dict[str, list[tuple[int, Entry]]] = field(default_factory=dict)
    issues: dict[str, Account] = field(default_factory=dict)
    checkpointed: dict[str, Account] = field(default_factory=dict)
    words: set[str] = field(default_factory=set)
    """Issues that are done by what a worker left word of, and not yet by any journal."""
    _begins: bool = False
    """A checkpoint is being written."""

    def written(self, run_id: str, entry: Entry, offset: int) -> None:
        """A record is in the file."""
        self.told.setdefault(run_id, []).append((offset, entry))
        self._apply(entry.record, check=True)

    def word_left(self, run_id: str, message: Done | Failed) -> None:
        """A worker has lost its orchestrator, and left word of an attempt."""
        records = [entry.record for _, entry in self.told.get(run_id, ())]
        ended = {r.request_id for r in records if isinstance(r, rec.Finished)}
        wanted = {r.request_id for r in records if isinstance(r, rec.Started)} - ended
        # A full disk may not have taken it.
        left = self.world.disk.words_of(run_id, wanted)
        if isinstance(message, Done) and message.request_id in left:
            self.words.add(str(message.issue_id))

    def count(self, run_id: str) -> int:
        """How many records of a run are in its files."""
        folder = self.world.disk.folders[run_id]
        return sum(folder.holds(offset) for offset, _ in self.told.get(run_id, ()))

    def is_unclosed(self, issue_id: str) -> bool:
        """Whether its success is journalled, or left word of, and nothing that came of it."""
        return self._of(issue_id).done or issue_id in self.words

    def is_quarantined(self, issue_id: str) -> bool:
        """Whether it is out of attempts, by the last word on it."""
        return self._of(issue_id).quarantined

    def charged(self, issue_id: str) -> int:
        """How many attempts count, by the last word on it."""
        return self._of(issue_id).charged

    def power_cut(self) -> None:
        """Forget what the disk has lost."""
        for run_id, entries in self.told.items():
            folder = self.world.disk.folders[run_id]
            # What is before a whole checkpoint is told by that, whatever was lost of it.
            known = folder.end()[0].base
            entries[:] = [e for e in entries if e[0] <= known or folder.holds(e[0])]
        self.issues.clear()
        self.words.clear()
        self.checkpointed = {}
        for entries in self.told.values():
            for _, entry in entries:
                self._apply(entry.record, check=False)

    def _apply(self, record: rec.Record, *, check: bool) -> None:
        match record:
            case rec.Started(issue_id=issue_id):
                account = self._of(issue_id)
                if check and record.attempt != account.charged + 1:
                    self.world.breach(
                        5, f"{issue_id}: attempt {record.attempt} after {account.charged} charged"
                    )
                if check and issue_id in self.words:
                    self.world.breach(1, f"{issue_id} is begun again after word of its success")
                if check and account.done:
                    self.world.breach(1, f"{issue_id} is begun again after its success")
            case rec.RunStarted():
                # A power cut may leave more in half a checkpoint than in the journal it is from.
                self.issues |= self.checkpointed
                self.checkpointed = {}
                self._begins = True
            case rec.Checkpointed(issue_id=issue_id):
                checkpointed = self.checkpointed if self._begins else self.issues
                checkpointed[issue_id] = Account(
                    record.charged,
                    record.quarantined,
                    bool(record.claimed_by or (record.landing and not record.quarantined)),
                )
            case rec.CheckpointEnded():
                self._begins = False
                self._carry_over(check=check)
            case rec.Claimed(issue_id=issue_id) if self._of(issue_id).quarantined:
                self.issues[issue_id] = Account()
            case rec.RetryAsked(issue_id=issue_id):
                self.issues[issue_id] = Account(done=self._of(issue_id).done)
            case rec.Finished():
                self._finished(record, check=check)
            case rec.BranchLanded(issue_id=issue_id):
                self.issues[issue_id] = Account(done=True)
            case rec.LandingEnded(issue_id=issue_id, verdict=verdict) if verdict != "shelve":
                account = self._of(issue_id)
                account.done, account.quarantined = False, verdict == "quarantined"
                self.words.discard(issue_id)
            case rec.Refunded(issue_id=issue_id, charged=charged):
                self.issues[issue_id] = Account(charged)
            case rec.SettledRecord(issue_id=issue_id, action=action, result=result):
                # What an earlier run was to requeue may have been quarantined by a later one.
                kept = (action, result) == ("release", "not_ours")
                if kept and self._of(issue_id).quarantined:
                    pass
                elif result in ("found_closed", "not_ours") or action == "close":
                    self.issues[issue_id] = Account()
                    self.words.discard(issue_id)
            case _:
                pass

    def _carry_over(self, *, check: bool) -> None:
        # From here on the checkpoint is all that is known, whatever a power cut takes from before.
        for issue_id in sorted(self.issues.keys() | self.checkpointed.keys()):
            before, now = self._of(issue_id), self.checkpointed.get(issue_id, Account())
            if check and before != now:
                self.world.breach(5, f"{issue_id}: {before} is checkpointed as {now}")
        self.issues, self.checkpointed = self.checkpointed, {}

    def _finished(self, finished: rec.Finished, *, check: bool) -> None:
        account, outcome = self._of(finished.issue_id), finished.outcome
        if check and outcome == "success" and finished.verdict not in ("finish", "land"):
            self.world.breach(2, f"{finished.issue_id} is done: {finished.verdict}")
        self.words.discard(finished.issue_id)  # By an orchestrator that lives, and never heard it.
        if finished.verdict == "finish":
            self.issues[finished.issue_id] = Account(done=True)
            return
        if finished.verdict == "land":
            self.issues[finished.issue_id] = Account(account.charged, done=True)
            return
        more = finished.charged - account.charged
        free = outcome == "cancelled" or (
            outcome == "retry" and finished.free_in_a_row < FREE_RETRIES_MAX
        )
        if check and more and free:
            self.world.breach(5, f"{finished.issue_id}: {outcome} is charged")
        if check and (more not in (0, 1) or finished.charged > self.world.attempts_max):
            self.world.breach(
                5, f"{finished.issue_id}: charged {account.charged}, then {finished.charged}"
            )
        account.charged = finished.charged
        account.quarantined = finished.verdict == "quarantined"

    def _of(self, issue_id: str) -> Account:
        return self.issues.setdefault(issue_id, Account())
