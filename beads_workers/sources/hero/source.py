"""The fleet's view of a Hero queue: take what may begin, and tell Redis what became of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence

from beads_workers.core.jobs import IssueId, Job, Listed, Script
from beads_workers.core.scripts import audit_of
from beads_workers.core.source import (
    Action,
    Calls,
    DeadRun,
    Renewed,
    Result,
    Seen,
    Settled,
    Settlement,
    SourceError,
    Taken,
)
from beads_workers.protocols.hero.jobs import LOST, Status
from beads_workers.sources.hero.answers import NOT_WITH_US, RETRY_SECONDS, Again, Ends, judge
from beads_workers.sources.hero.calling import Link
from beads_workers.sources.hero.looking import read_names, seen_of, title_of
from beads_workers.sources.hero.past import settle_past
from beads_workers.sources.hero.queue import Ending, Queue
from beads_workers.sources.hero.runs import Runs
from beads_workers.sources.hero.stock import AHEAD_MAX, BUSY_SECONDS, Kept, Standing, Stock
from beads_workers.sources.hero.store import Store
from beads_workers.sources.hero.tending import Holding
from beads_workers.sources.results import whole

LISTED_MAX = 200


class HeroSource:
    """See ``Source``. ``holding`` is shared with the thread that tends the queue (``tending``).

    ``place``: where we are, in words; ``shared``: others may serve the same queue, and then
    ``ahead_max``, jobs that lie here and could begin, is better small.
    """

    name = "hero"
    literal = False

    def __init__(
        self,
        queue: Queue,
        *,
        actor: str,
        place: str,
        shared: bool = False,
        ahead_max: int = AHEAD_MAX,
        retry_seconds: float = RETRY_SECONDS,
        attempt_seconds: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.actor = actor
        self.calls = Calls()
        self.queue = queue
        self.run = run_of(actor)
        self.who = f"{'shared' if shared else 'alone'} {place}"
        self.holding = Holding(Stock(ahead_max=ahead_max))
        link = Link(queue.address)
        self._store = Store(queue, self.run, link=link)
        self._runs = Runs(queue, self.run, link=link)
        self._retry_seconds = retry_seconds
        self._attempt_seconds = attempt_seconds
        self._clock = clock

    def describe(self) -> str:
        """Where jobs come from; raises ``SourceError`` where somebody else serves it alone."""
        version = self._runs.version()
        if other := self._runs.join(self.who, only_look=True):
            raise SourceError(
                f"another orchestrator serves this queue: {other}",
                "stop it, or start both with --shared; one that is dead is forgotten within"
                f" {self.queue.lease_seconds:g} s",
            )
        return f"Hero jobs for {self.queue.worker} at {self.queue.address}, Redis {version}"

    # --- taking ---------------------------------------------------------------------------------

    def take(self, limit: int, skip: Collection[IssueId]) -> Taken:
        """Begin the next ones: Redis says ``started`` before a worker has them."""
        holding, stock = self.holding, self.holding.stock
        holding.opened.set()
        holding.wake.set()
        with holding.lock:
            stock.warm_up(self._clock())
            picked = stock.pick(limit)
        jobs = self._begin(picked) if picked else ()
        with holding.lock:
            # What waits for jobs that never come must not keep a fleet from ending.
            here = (kept for kept in stock.rows() if kept.standing is not Standing.PARKED)
            rows = [_row(kept) for _, kept in zip(range(LISTED_MAX), here, strict=False)]
            blocked = stock.count(Standing.PARKED)
        if not jobs and not rows:
            # --until-empty must not end while there is something in the queue.
            rows = self._queued()
        on_the_way = 0 if jobs or rows else self._on_the_way()
        return Taken(tuple(jobs), tuple(rows), blocked=blocked, waiting=on_the_way)

    def _on_the_way(self) -> int:
        """What is in our list in Redis, and not here yet: the other thread has it."""
        ids = self._store.held()
        with self.holding.lock:
            here = [self.holding.stock.get(job_id) for job_id in ids]
        return sum(kept is None or kept.standing is not Standing.PARKED for kept in here)

    def _queued(self) -> list[Listed]:
        ids = self._store.queued(LISTED_MAX)
        found = self._store.fields_of(ids, ("context_id", "caller_id"))
        jobs = (read_names(i, fields) for i, fields in zip(ids, found, strict=True))
        return [Listed(IssueId(job.id), title_of(job)) for job in jobs]

    def _begin(self, picked: Sequence[Kept]) -> list[Job]:
        stock = self.holding.stock
        wanted = [(k.job.id, k.context, k.attempts, k.job.attempts_max) for k in picked]
        try:
            answers = self._store.begin(wanted)
        except SourceError:
            with self.holding.lock:
                for kept in picked:
                    stock.put_back(kept)
            raise
        begun = []
        with self.holding.lock:
            for kept, answer in zip(picked, answers, strict=True):
                if answer == "begun":
                    kept.attempts += 1
                    begun.append(self._job(kept))
                else:
                    self._not_begun(kept, answer)
        return begun

    def _not_begun(self, kept: Kept, answer: str) -> None:
        stock = self.holding.stock
        match answer:
            case "busy":
                stock.rest(kept, self._clock() + BUSY_SECONDS)
            case "spent":
                stock.put_back(kept)
                stock.doom(kept, LOST)
            case "evicted":
                stock.put_back(kept)
                self.holding.evicted.set()
            case _:
                stock.remove(kept)
        self.holding.wake.set()

    def _job(self, kept: Kept) -> Job:
        job = kept.job
        seconds = [s for s in (job.timeout_seconds, self._attempt_seconds) if s is not None]
        script = Script(
            job.script, job.context_id, job.caller_id, dict(job.env_vars), job.log_path or ""
        )
        return Job(
            self.name,
            IssueId(job.id),
            title_of(job),
            issue_type="script",
            timeout_seconds=min(seconds, default=None),
            attempt=kept.attempts,
            enqueued_at=job.created_at or 0.0,
            script=script,
            named=audit_of(script),
        )

    # --- settling -------------------------------------------------------------------------------

    def settle(self, settlements: Sequence[Settlement]) -> list[Settled]:
        """Tell Redis: each job ends, with its reply, or will have another attempt."""
        verdicts = [self._judge(settlement) for settlement in settlements]
        endings = [
            Ending(k.job.id, k.context, k.attempts, v.status, v.said)
            for k, v in verdicts
            if k is not None and isinstance(v, Ends)
        ]
        again = [
            (k.job.id, k.context, k.attempts, v.never)
            for k, v in verdicts
            if k is not None and isinstance(v, Again)
        ]
        told = iter(self._store.end(endings))
        back = iter(self._store.again(again))
        settled = []
        for settlement, (kept, verdict) in zip(settlements, verdicts, strict=True):
            if kept is None:
                settled.append(Settled(settlement, Result.NOT_OURS, "it is not with us"))
                continue
            answer = next(told if isinstance(verdict, Ends) else back)
            self._settled(kept, verdict, answer)
            settled.append(_settled(settlement, answer))
        self.holding.wake.set()
        return settled

    def _judge(self, settlement: Settlement) -> tuple[Kept | None, Ends | Again]:
        with self.holding.lock:
            kept = self.holding.stock.get(settlement.issue_id)
        if kept is None or kept.standing is not Standing.OUT:
            return None, Again()
        outcome = whole(settlement.outcome)
        if outcome is None and settlement.action is Action.CLOSE:
            return kept, Ends(Status.FINISHED, "")
        verdict = judge(
            outcome,
            kept.attempts,
            kept.job.attempts_max,
            stopped=kept.stopped or settlement.unwanted,
            retry_seconds=self._retry_seconds,
        )
        return kept, verdict

    def _settled(self, kept: Kept, verdict: Ends | Again, answer: str) -> None:
        stock = self.holding.stock
        with self.holding.lock:
            if kept.evicted or answer != "done" or isinstance(verdict, Ends):
                stock.remove(kept)
                if kept.again:
                    self.holding.unsure.set()
                if isinstance(verdict, Ends) and answer == "done":
                    self._tell_those_who_wait(kept.job.id, verdict.status)
                return
            if verdict.never:
                kept.attempts -= 1
                stock.put_back(kept)
            else:
                stock.cool(kept, self._clock() + verdict.delay_seconds)

    def _tell_those_who_wait(self, job_id: str, status: Status) -> None:
        if status is Status.FINISHED:
            self.holding.stock.finished(job_id)
        else:
            self.holding.stock.failed(job_id, f"prerequisite {job_id} failed")

    # --- the rest -------------------------------------------------------------------------------

    def renew(self, issue_ids: Sequence[IssueId]) -> Renewed:
        """The lease is the run's, and kept by the thread that tends the queue."""
        return Renewed()

    def recover(self, dead: DeadRun) -> list[Settled]:
        """Settle what a run of ours left that is known to be dead."""
        return settle_past(self._store, self._runs, dead, run_of(dead.actor), self._retry_seconds)

    def look(self, issue_ids: Sequence[IssueId]) -> dict[IssueId, Seen]:
        """These jobs as their hashes are now."""
        found = zip(issue_ids, self._store.hashes(issue_ids), strict=True)
        return {job_id: seen_of(job_id, fields) for job_id, fields in found if fields}

    def unfinished(self, rows_max: int) -> list[Seen]:
        """What is with fleets, and then what lies in the queue, the oldest first."""
        known = dict.fromkeys([*self._runs.in_hand(rows_max), *self._store.queued(rows_max)])
        ids = [IssueId(job_id) for job_id in known]
        found = self.look(ids[:rows_max]).values()
        return [row for row in found if row.status != "closed"]

    def ready(self) -> frozenset[IssueId]:
        """What lies in the queue and waits for nothing that is known of."""
        rows = self.unfinished(LISTED_MAX)
        return frozenset(row.issue_id for row in rows if not row.waits_for)

    def close(self) -> None:
        """What we hold and nobody works on goes back to the queue, in its order."""
        # What stays in our list is found by the next start, or by another fleet: our lease ends.
        if not self.holding.stuck.is_set():
            try:
                self._runs.give_back(self.run, "leaving")
            except SourceError:
                pass
        self._store.close()


def run_of(actor: str) -> str:
    """The run id in an actor, under which its jobs are held."""
    return actor.rpartition("/")[2]


def _row(kept: Kept) -> Listed:
    return Listed(IssueId(kept.job.id), title_of(kept.job))


def _settled(settlement: Settlement, answer: str) -> Settled:
    match answer:
        case "done":
            return Settled(settlement, Result.APPLIED)
        case "over":
            return Settled(settlement, Result.NOT_OURS, "it had ended already")
        case _:
            return Settled(settlement, Result.NOT_OURS, NOT_WITH_US)
