"""The ``Source`` over ``bd``: what is claimed, what is sure about it, and what must be asked."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from beads_workers.core.jobs import Filters, IssueId, Job, Listed, call_of
from beads_workers.core.limits import TAKEOVER_LOOK_SECONDS
from beads_workers.core.source import (
    Action,
    Calls,
    DeadRun,
    Lease,
    Lost,
    Renewed,
    Result,
    Seen,
    Settled,
    Settlement,
    SourceError,
    Taken,
)
from beads_workers.core.traces import KEY
from beads_workers.sources.bd import looking
from beads_workers.sources.bd.abilities import Abilities
from beads_workers.sources.bd.answers import (
    IN_PROGRESS,
    Row,
    is_safe_id,
    refusals,
    rows_of_group,
)
from beads_workers.sources.bd.calls import CALL_SECONDS, BdCalls
from beads_workers.sources.bd.leases import Leases, reclaim, renew
from beads_workers.sources.bd.listings import REUSE_SECONDS, Listings
from beads_workers.sources.bd.settling import Group, owed, rounds
from beads_workers.sources.bd.tracker import Tracker
from beads_workers.sources.bd.verdicts import held_by
from beads_workers.sources.clock import boot_seconds
from beads_workers.sources.issue import enqueued_at
from beads_workers.sources.kind import CallLog


def open_bd(
    folder: Path,
    *,
    actor: str,
    filters: Filters,
    listed_max: int,
    program: str = "bd",
    call_log: CallLog | None = None,
) -> BdSource:
    """A ``BdSource`` that has answered once; raises ``SourceError`` when ``bd`` cannot be used."""
    source = BdSource(
        folder,
        actor=actor,
        filters=filters,
        listed_max=listed_max,
        program=program,
        call_log=call_log,
    )
    source.describe()
    return source


class BdSource:
    """Takes issues from the ``.beads`` in ``folder`` and gives them back, through ``bd``.

    ``actor`` must be unique to the run. ``listed_max`` bounds listings, in rows. ``environment``
    replaces that of this process; ``call_seconds`` is the limit of a call that names no issue.
    ``shared``: other orchestrators work on this tracker, so every write is a compare-and-swap,
    and what they leave is taken back when its lease is over. ``known``: the ``abilities`` of
    another source on the same ``bd``, which is then not asked for them again: five calls.
    """

    name = "bd"
    literal = True

    def __init__(
        self,
        folder: Path,
        *,
        actor: str,
        filters: Filters,
        listed_max: int,
        program: str = "bd",
        call_log: CallLog | None = None,
        environment: Mapping[str, str] | None = None,
        call_seconds: float = CALL_SECONDS,
        shared: bool = False,
        reuse_seconds: float = REUSE_SECONDS,
        known: Abilities | None = None,
    ) -> None:
        self.actor = actor
        self.calls = Calls()
        runner = BdCalls(program, folder, actor, self.calls, call_log, environment, call_seconds)
        self._tracker = Tracker(runner, known)
        self._listings = Listings(self._tracker, filters, actor, listed_max, reuse_seconds)
        self._listed_max = listed_max
        self._shared = shared
        self._looked_for_others = -TAKEOVER_LOOK_SECONDS
        self._leases = Leases()
        self._claims_unanswered: tuple[IssueId, ...] = ()
        self._wrote = False

    @property
    def abilities(self) -> Abilities:
        """What this ``bd`` can do, asked once; raises ``SourceError`` as ``describe`` does."""
        return self._tracker.abilities

    @property
    def literal_argv(self) -> tuple[str, ...]:
        """How a worker that claims and closes by itself must call ``bd``: for ``Work.bd_argv``."""
        return self._tracker.literal_argv()

    def describe(self) -> str:
        """``bd 1.3.0, embedded, /path/.beads (prefix x)``."""
        abilities = self._tracker.abilities
        if self._shared and not (abilities.leases and abilities.compare_and_swap):
            raise SourceError(
                f"--shared needs bd 1.2 or later, with leases; this is bd {abilities.version}",
                "install a later beads, or leave --shared out",
            )
        return f"bd {abilities.version}, {self._tracker.place()}"

    # --- taking -------------------------------------------------------------------------------

    def take(self, limit: int, skip: Collection[IssueId]) -> Taken:
        """One listing at most, and one claim for the group."""
        self._settle_unanswered_claims()
        reclaimed = self._reclaim() if self._shared else ()
        listing = self._listings.ready(limit, skip)
        found = [row for row in listing.rows if row.issue_id not in skip]
        picked, rest = found[:limit], found[limit:]
        jobs, leases = self._claim(picked) if picked else ((), ())
        listing.rows = rest
        return Taken(
            jobs=jobs,
            listed=tuple(Listed(r.issue_id, r.title, r.priority) for r in rest[: self._listed_max]),
            more=listing.more or len(rest) > self._listed_max,
            leases=leases,
            reclaimed=reclaimed,
        )

    def _reclaim(self) -> tuple[Lost, ...]:
        """Now and then: what another orchestrator has left, and never came back for."""
        now = boot_seconds()
        if now - self._looked_for_others < TAKEOVER_LOOK_SECONDS:
            return ()
        self._looked_for_others = now
        freed = reclaim(self._tracker, self.actor, time.time())
        if freed:
            self._listings.forget()
        return freed

    def _claim(self, picked: Sequence[Row]) -> tuple[tuple[Job, ...], tuple[Lease, ...]]:
        began = boot_seconds()
        ids = [row.issue_id for row in picked]
        # Until bd has said what became of it, any of these may be ours.
        self._claims_unanswered = tuple(ids)
        self._wrote = True
        won = self._claimed(picked)
        if not self._tracker.abilities.compare_and_swap:
            # This bd reads, then writes: of two that claim at once, the last writer has it.
            seen = self._tracker.look([i for i in ids if i in won])
            won = {i: row for i, row in seen.items() if self._is_claimed(row)}
        self._claims_unanswered = ()
        leases = self._leases.claimed(won, began)
        return tuple(_job(won[i]) for i in ids if i in won), leases

    def _claimed(self, picked: Sequence[Row]) -> dict[IssueId, Row]:
        ids = [row.issue_id for row in picked]
        if not self._tracker.abilities.compare_and_swap:
            self._unassign([row.issue_id for row in picked if row.assignee])
        answer = self._tracker.ask(["update", "--json", "--claim", "--", *ids], ids=len(ids))
        rows = rows_of_group(answer)
        refused = refusals(answer)
        if not rows and refused and not any(refusal.lost for refusal in refused):
            raise SourceError(f"bd update --claim: {refused[0].error}", "see what bd doctor says")
        return {r.issue_id: r for r in rows if r.issue_id in ids and self._is_claimed(r)}

    def _unassign(self, issue_ids: Sequence[IssueId]) -> None:
        """``bd`` 0.x refuses to claim what is assigned, even to us."""
        if issue_ids:
            arguments = ["update", "--json", "--assignee=", "--", *issue_ids]
            rows_of_group(self._tracker.ask(arguments, ids=len(issue_ids)))

    def _is_claimed(self, row: Row) -> bool:
        return row.status == IN_PROGRESS and row.assignee == self.actor

    def _settle_unanswered_claims(self) -> None:
        """A claim that was never answered may have been done: what it won is given back."""
        if not self._claims_unanswered:
            return
        seen = self._tracker.look(self._claims_unanswered)
        ours = [i for i, row in seen.items() if held_by(row.assignee, self.actor)]
        answers = self.settle([Settlement(Action.RELEASE, i, read_first=True) for i in ours])
        left = [a.settlement.issue_id for a in answers if a.result is Result.FAILED]
        self._claims_unanswered = tuple(left)

    # --- settling -----------------------------------------------------------------------------

    def settle(self, settlements: Sequence[Settlement]) -> list[Settled]:
        """See ``Source``; a look for what is not sure, one call for each kind of write."""
        answers: dict[int, Settled] = {}
        self._listings.forget()
        for group in rounds(settlements):
            for settled in self._settle_group(group):
                answers[id(settled.settlement)] = settled
        return [answers[id(settlement)] for settlement in settlements]

    def _settle_group(self, group: Sequence[Settlement]) -> list[Settled]:
        unsafe = [s for s in group if not is_safe_id(s.issue_id)]
        safe = [s for s in group if is_safe_id(s.issue_id)]
        answers = [Settled(s, Result.NOT_OURS, "not an id that bd would give") for s in unsafe]
        if not safe:
            return answers
        self._wrote = True
        known = {s.issue_id: self._is_sure(s) for s in safe if self._is_known(s)}
        # Whatever happens now, these are looked at before they are written again.
        self._leases.forget(s.issue_id for s in safe)
        return answers + Group(self._tracker, self.actor, safe, self._shared).settle(known)

    def _is_known(self, settlement: Settlement) -> bool:
        unseen = settlement.read_first or settlement.handed_over
        guarded = self._tracker.abilities.compare_and_swap
        return guarded and not unseen and self._leases.is_known(settlement.issue_id)

    def _is_sure(self, settlement: Settlement) -> bool:
        return not self._shared and self._leases.is_sure(settlement.issue_id)

    # --- leases and dead runs -----------------------------------------------------------------

    def renew(self, issue_ids: Sequence[IssueId]) -> Renewed:
        """See ``Source``; one call for each."""
        if not self._tracker.abilities.leases:
            return Renewed()
        return renew(self._tracker, self.actor, self._leases, issue_ids)

    def recover(self, dead: DeadRun) -> list[Settled]:
        """See ``Source``; acts as the dead run's actor, whose claims they are."""
        self._listings.forget()
        rows = {row.issue_id: row for row in self._tracker.under_way(dead.actor)}
        named = {*dead.done_not_closed, *dead.handed_over, *dead.reopened}
        missing = [i for i in named if i not in rows and is_safe_id(i)]
        rows |= self._tracker.look(missing) if missing else {}
        held = [i for i, row in rows.items() if held_by(row.assignee, dead.actor)]
        found = owed(dead, [i for i in held if rows[i].status in ("open", IN_PROGRESS)])
        if not found:
            return []
        self._wrote = True
        return Group(self._tracker, dead.actor, found, self._shared).settle({}, rows)

    # --- for people who ask -------------------------------------------------------------------

    def look(self, issue_ids: Sequence[IssueId]) -> dict[IssueId, Seen]:
        """See ``Source``."""
        return looking.look(self._tracker, issue_ids)

    def unfinished(self, rows_max: int) -> list[Seen]:
        """See ``Source``."""
        return looking.unfinished(self._tracker, rows_max)

    def ready(self) -> frozenset[IssueId]:
        """See ``Source``."""
        return looking.ready(self._tracker)

    def close(self) -> None:
        """Give back what an unanswered claim may have won; leave the JSON Lines complete."""
        try:
            self._settle_unanswered_claims()
            if self._wrote:
                self._tracker.flush()
        except SourceError:
            # The next start asks the tracker what this actor holds.
            return


def _job(row: Row) -> Job:
    return Job(
        source=BdSource.name,
        issue_id=row.issue_id,
        title=row.title,
        priority=row.priority,
        issue_type=row.issue_type,
        labels=row.labels,
        description=row.description,
        call=call_of(row.original, row.labels),
        original=row.original,
        enqueued_at=enqueued_at(row.original.get("created_at")),
        trace_context=row.original.get(KEY),
    )
