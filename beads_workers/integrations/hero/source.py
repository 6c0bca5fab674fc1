"""The fleet's view of a Hero queue: take jobs that may begin, and report outcomes to Redis."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import assert_never

from beads_workers.core.base import source
from beads_workers.core.base.model import (
    IssueId,
    Job,
    ListedIssue,
    Outcome,
    OutcomeKind,
    Script,
    value,
)
from beads_workers.core.base.scripts import audit_of
from beads_workers.executors.files import with_result
from beads_workers.integrations.hero import wire
from beads_workers.integrations.hero.buffer import (
    BUSY_SECONDS,
    PREFETCH_MAX,
    BufferedJob,
    JobStanding,
    LocalBuffer,
)
from beads_workers.integrations.hero.connection import RedisLink
from beads_workers.integrations.hero.maintenance import SharedState
from beads_workers.integrations.hero.store import DAMAGED, JobEnd, JobStore, Runs, ServedQueue

# --- answers -------------------------------------------------------------------------------------
# What the outcome of an attempt means in Hero's words. These functions do no I/O. Source:
# docs/HERO.md, "The data in the Redis".


RETRY_SECONDS = 1.0
"""Default delay before the second attempt. The delay doubles for each further attempt."""
RETRY_SECONDS_MAX = 60.0

NOT_WITH_US = "Redis has it with another orchestrator, or has forgotten it"
"""Reason why a settlement changes nothing."""


@value
class Ends:
    """Decision: the job is over. ``text``: the ``output`` or the ``error`` of the job."""

    status: wire.JobStatus
    text: str


@value
class JobRequeue:
    """Decision: the job gets another attempt, after a delay.

    ``never``: the last attempt was never started, and does not count.
    """

    delay_seconds: float = 0.0
    never: bool = False


def judge(
    outcome: Outcome | None,
    attempts: int,
    attempts_max: int,
    *,
    stopped: bool = False,
    retry_seconds: float = RETRY_SECONDS,
) -> Ends | JobRequeue:
    """Return what an attempt means for its job.

    ``outcome``: None if the attempt was never started. ``attempts``: number of attempts begun so
    far, including this attempt. ``stopped``: whether somebody asked to stop the job.
    If the attempt succeeded in spite of that, the job is finished, not stopped.
    """
    if outcome is not None and outcome.kind is OutcomeKind.SUCCESS:
        return Ends(wire.JobStatus.FINISHED, output_of(outcome))
    if stopped:
        return Ends(wire.JobStatus.ERROR, wire.STOPPED)
    if outcome is None:
        return JobRequeue(never=True)
    if outcome.kind is OutcomeKind.NOT_FOUND or attempts >= attempts_max:
        return Ends(wire.JobStatus.ERROR, error_of(outcome))
    if outcome.kind in (OutcomeKind.CANCELLED, OutcomeKind.LOST):
        return JobRequeue()
    delay = outcome.retry_after_seconds
    if delay is None:
        delay = retry_seconds * 2.0 ** min(attempts - 1, 30)
    return JobRequeue(min(delay, RETRY_SECONDS_MAX))


def output_of(outcome: Outcome) -> str:
    """Return the ``output`` of a job: a text result unchanged, any other result as JSON."""
    if not outcome.result:
        return ""
    value = json.loads(outcome.result)
    return value if isinstance(value, str) else outcome.result


def error_of(outcome: Outcome) -> str:
    """Return the ``error`` of a job whose last attempt had this outcome."""
    match outcome.kind:
        case OutcomeKind.TIMEOUT:
            return wire.TIMED_OUT
        case OutcomeKind.LOST | OutcomeKind.CANCELLED:
            # A crash, a stop or another orchestrator cut the attempt short. The attempt may have
            # had effects.
            return wire.LOST
        case OutcomeKind.ERROR | OutcomeKind.NOT_FOUND | OutcomeKind.QUESTION:
            return outcome.error or "failed without a word"
        case OutcomeKind.RETRY:
            return outcome.error or "it asked for another attempt, and has none left"
        case OutcomeKind.SUCCESS:
            raise AssertionError("a success is no error")
        case _:
            assert_never(outcome.kind)


# --- past ----------------------------------------------------------------------------------------
# Settling the jobs of an earlier run of ours. The journal of that run knows more than Redis does.


def settle_past(
    store: JobStore, runs: Runs, dead: source.CrashedRun, run: str, retry_seconds: float
) -> list[source.Settled]:
    """Report the outcomes in a dead run's journal to Redis, then requeue the run's other jobs.

    If the dead run had begun a job, and the journal has no outcome of this job, the attempt counts.
    Raises ``SourceError``.
    """
    outcomes: dict[IssueId, Outcome | None] = dict.fromkeys(dead.unstarted)
    outcomes |= {job_id: Outcome(OutcomeKind.SUCCESS) for job_id in dead.unclosed}
    outcomes |= dict(dead.outcomes)
    known = _known(store, list(outcomes))
    endings: list[JobEnd] = []
    retried: list[tuple[str, str, int, bool]] = []
    for job_id, (job, attempts) in known.items():
        context = "" if job.concurrent else "c:" + job.context_id
        outcome = with_result(outcomes[job_id])
        verdict = judge(outcome, attempts, job.attempts_max, retry_seconds=retry_seconds)
        match verdict:
            case Ends(status, text):
                endings.append(JobEnd(job_id, context, attempts, status, text))
            case JobRequeue(_, never):
                retried.append((job_id, context, attempts, never))
    answers = store.end(endings, run)
    store.requeue(retried, run)
    settled = [
        _past_settled(
            source.Action.CLOSE if e.status.value == "finished" else source.Action.RELEASE,
            e.job_id,
            answer,
        )
        for e, answer in zip(endings, answers, strict=True)
    ]
    for requeued, _ in runs.requeue(run, "known"):
        settled.append(_past_settled(source.Action.RELEASE, requeued, "done"))
    return settled


def _known(store: JobStore, job_ids: Sequence[IssueId]) -> dict[IssueId, tuple[wire.HeroJob, int]]:
    found = {}
    attempts = store.attempts_of(job_ids)
    for job_id, fields, count in zip(job_ids, store.hashes(job_ids), attempts, strict=True):
        try:
            found[job_id] = wire.read_job(job_id, fields), count
        except wire.WrongField:
            continue  # The hash is damaged by now: the job is requeued with the others.
    return found


def _past_settled(action: source.Action, job_id: str, answer: str) -> source.Settled:
    settlement = source.Settlement(action, IssueId(job_id))
    if answer == "done":
        return source.Settled(settlement, source.Result.APPLIED)
    return source.Settled(settlement, source.Result.NOT_OURS, NOT_WITH_US)


# --- lookups -------------------------------------------------------------------------------------
# Jobs as they are shown to people. These functions do no I/O.


STATUS = {
    wire.JobStatus.DISPATCHED: "open",
    wire.JobStatus.STARTED: "in_progress",
    wire.JobStatus.FINISHED: "closed",
    wire.JobStatus.ERROR: "closed",
}
"""A job's status in the words of trackers. A failed job is closed, too: no fleet takes it again."""


def seen_of(job_id: IssueId, fields: Mapping[bytes, bytes]) -> source.TrackedIssue:
    """Return a job for display.

    If the job's hash is not valid, the job is shown as ``blocked``, with the fault as its title.
    """
    if fields == DAMAGED:
        return source.TrackedIssue(
            job_id, "its key in Redis holds no hash", "blocked", issue_type="script"
        )
    try:
        job = wire.read_job(job_id, fields)
    except wire.WrongField as error:
        return source.TrackedIssue(job_id, str(error), "blocked", issue_type="script")
    return source.TrackedIssue(
        job_id,
        title_of(job),
        STATUS[job.status],
        issue_type="script",
        waits_for=tuple(IssueId(other) for other in job.waits_for),
        close_reason=job.error or "",
    )


def title_of(job: wire.HeroJob) -> str:
    """Return the title of a job. The title leaves out the script, which may be confidential."""
    whose = f" for {job.caller_id}" if job.caller_id else ""
    return f"{job.context_id or 'script'}{whose}"


def read_names(job_id: str, fields: Mapping[bytes, bytes]) -> wire.HeroJob:
    """Return a job that has only the fields of its title.

    The other fields are not read: they may be malformed.
    """
    texts = {name: fields.get(name, b"").decode("utf-8", "replace") for name in fields}
    return wire.HeroJob(
        job_id, context_id=texts.get(b"context_id", ""), caller_id=texts.get(b"caller_id", "")
    )


# --- source --------------------------------------------------------------------------------------
# The fleet's view of a Hero queue: take jobs that may begin, and report outcomes to Redis.


LISTED_MAX = 200


class HeroSource:
    """See ``Source``. The maintenance thread (``maintenance``) shares ``holding``.

    ``place``: host and state directory of this fleet. ``shared``: whether other fleets may serve
    the same queue. ``prefetch_max``: maximum number of jobs that are fetched before they can run;
    the caller passes a small number if ``shared``.
    """

    name = "hero"
    self_claiming = False

    def __init__(
        self,
        queue: ServedQueue,
        *,
        actor: str,
        place: str,
        shared: bool = False,
        prefetch_max: int = PREFETCH_MAX,
        retry_seconds: float = RETRY_SECONDS,
        attempt_seconds: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.actor = actor
        self.calls = source.Calls()
        self.queue = queue
        self.run = run_of(actor)
        self.who = f"{'shared' if shared else 'alone'} {place}"
        self.holding = SharedState(LocalBuffer(prefetch_max=prefetch_max))
        link = RedisLink(queue.address)
        self._store = JobStore(queue, self.run, link=link)
        self._runs = Runs(queue, self.run, link=link)
        self._retry_seconds = retry_seconds
        self._attempt_seconds = attempt_seconds
        self._clock = clock

    def describe(self) -> str:
        """Return a line that says where jobs come from.

        Raise ``SourceError`` if another run serves the queue, unless both runs were started with
        ``--shared``.
        """
        version = self._runs.version()
        if other := self._runs.join(self.who, only_look=True):
            raise source.SourceError(
                f"another orchestrator serves this queue: {other}",
                "stop it, or start both with --shared; one that is dead is forgotten within"
                f" {self.queue.lease_seconds:g} s",
            )
        return f"Hero jobs for {self.queue.worker} at {self.queue.address}, Redis {version}"

    # --- taking ---------------------------------------------------------------------------------

    def take(self, limit: int, skip: Collection[IssueId]) -> source.Taken:
        """Begin the next jobs. A job is ``started`` in Redis before a worker has the job."""
        holding, buffer = self.holding, self.holding.buffer
        holding.opened.set()
        holding.wake.set()
        with holding.lock:
            buffer.warm_up(self._clock())
            picked = buffer.pick(limit)
        jobs = self._begin(picked) if picked else ()
        with holding.lock:
            # Parked jobs are left out: the jobs for which they wait may never come, and then the
            # parked jobs must not keep a fleet from ending.
            here = (kept for kept in buffer.rows() if kept.standing is not JobStanding.PARKED)
            rows = [_row(kept) for _, kept in zip(range(LISTED_MAX), here, strict=False)]
            blocked = buffer.count(JobStanding.PARKED)
        if not jobs and not rows:
            # --until-empty must not end the run while jobs are queued.
            rows = self._queued()
        on_the_way = 0 if jobs or rows else self._on_the_way()
        return source.Taken(tuple(jobs), tuple(rows), blocked=blocked, waiting=on_the_way)

    def _on_the_way(self) -> int:
        """Return the number of jobs in our list in Redis that are not parked here.

        A job that is still on its way here counts.
        """
        ids = self._store.held()
        with self.holding.lock:
            here = [self.holding.buffer.get(job_id) for job_id in ids]
        return sum(kept is None or kept.standing is not JobStanding.PARKED for kept in here)

    def _queued(self) -> list[ListedIssue]:
        ids = self._store.queued(LISTED_MAX)
        found = self._store.fields_of(ids, ("context_id", "caller_id"))
        jobs = (read_names(i, fields) for i, fields in zip(ids, found, strict=True))
        return [ListedIssue(IssueId(job.id), title_of(job)) for job in jobs]

    def _begin(self, picked: Sequence[BufferedJob]) -> list[Job]:
        buffer = self.holding.buffer
        wanted = [(k.job.id, k.context, k.attempts, k.job.attempts_max) for k in picked]
        try:
            answers = self._store.begin(wanted)
        except source.SourceError:
            with self.holding.lock:
                for kept in picked:
                    buffer.put_back(kept)
            raise
        begun = []
        with self.holding.lock:
            for kept, answer in zip(picked, answers, strict=True):
                if answer == "begun":
                    kept.attempts += 1
                    begun.append(self._job(kept))
                else:
                    self._not_started(kept, answer)
        return begun

    def _not_started(self, kept: BufferedJob, answer: str) -> None:
        buffer = self.holding.buffer
        match answer:
            case "busy":
                buffer.rest(kept, self._clock() + BUSY_SECONDS)
            case "spent":
                buffer.put_back(kept)
                buffer.doom(kept, wire.LOST)
            case "evicted":
                buffer.put_back(kept)
                self.holding.evicted.set()
            case _:
                buffer.remove(kept)
        self.holding.wake.set()

    def _job(self, kept: BufferedJob) -> Job:
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

    def settle(self, settlements: Sequence[source.Settlement]) -> list[source.Settled]:
        """Report outcomes to Redis. Each job either ends, with a reply, or gets another attempt."""
        verdicts = [self._judge(settlement) for settlement in settlements]
        endings = [
            JobEnd(k.job.id, k.context, k.attempts, v.status, v.text)
            for k, v in verdicts
            if k is not None and isinstance(v, Ends)
        ]
        retried = [
            (k.job.id, k.context, k.attempts, v.never)
            for k, v in verdicts
            if k is not None and isinstance(v, JobRequeue)
        ]
        end_answers = iter(self._store.end(endings))
        back = iter(self._store.requeue(retried))
        settled = []
        for settlement, (kept, verdict) in zip(settlements, verdicts, strict=True):
            if kept is None:
                settled.append(
                    source.Settled(settlement, source.Result.NOT_OURS, "it is not with us")
                )
                continue
            answer = next(end_answers if isinstance(verdict, Ends) else back)
            self._settled(kept, verdict, answer)
            settled.append(_settled(settlement, answer))
        self.holding.wake.set()
        return settled

    def _judge(self, settlement: source.Settlement) -> tuple[BufferedJob | None, Ends | JobRequeue]:
        with self.holding.lock:
            kept = self.holding.buffer.get(settlement.issue_id)
        if kept is None or kept.standing is not JobStanding.OUT:
            return None, JobRequeue()
        outcome = with_result(settlement.outcome)
        if outcome is None and settlement.action is source.Action.CLOSE:
            return kept, Ends(wire.JobStatus.FINISHED, "")
        verdict = judge(
            outcome,
            kept.attempts,
            kept.job.attempts_max,
            stopped=kept.stopped or settlement.unwanted,
            retry_seconds=self._retry_seconds,
        )
        return kept, verdict

    def _settled(self, kept: BufferedJob, verdict: Ends | JobRequeue, answer: str) -> None:
        buffer = self.holding.buffer
        with self.holding.lock:
            if kept.evicted or answer != "done" or isinstance(verdict, Ends):
                buffer.remove(kept)
                if kept.returned:
                    self.holding.unsure.set()
                if isinstance(verdict, Ends) and answer == "done":
                    job_id = kept.job.id
                    status = verdict.status
                    if status is wire.JobStatus.FINISHED:
                        self.holding.buffer.finished(job_id)
                    else:
                        self.holding.buffer.failed(job_id, f"prerequisite {job_id} failed")
                return
            if verdict.never:
                kept.attempts -= 1
                buffer.put_back(kept)
            else:
                buffer.cool(kept, self._clock() + verdict.delay_seconds)

    # --- the rest -------------------------------------------------------------------------------

    def renew(self, issue_ids: Sequence[IssueId]) -> source.Renewed:
        """Do nothing: the run has one lease for all jobs, and the maintenance thread renews it."""
        return source.Renewed()

    def recover(self, dead: source.CrashedRun) -> list[source.Settled]:
        """Settle the jobs of an earlier run of ours that is known to be dead."""
        return settle_past(self._store, self._runs, dead, run_of(dead.actor), self._retry_seconds)

    def look(self, issue_ids: Sequence[IssueId]) -> dict[IssueId, source.TrackedIssue]:
        """Return these jobs as their hashes describe them now."""
        found = zip(issue_ids, self._store.hashes(issue_ids), strict=True)
        return {job_id: seen_of(job_id, fields) for job_id, fields in found if fields}

    def unfinished(self, rows_max: int) -> list[source.TrackedIssue]:
        """Return the jobs that have not ended: first the jobs that fleets have, then the queued
        jobs. The jobs of each run, and the queued jobs, come oldest first."""
        known = dict.fromkeys([*self._runs.in_hand(rows_max), *self._store.queued(rows_max)])
        ids = [IssueId(job_id) for job_id in known]
        found = self.look(ids[:rows_max]).values()
        return [row for row in found if row.status != "closed"]

    def ready(self) -> frozenset[IssueId]:
        """Return the jobs that wait for no other job, as far as that is known."""
        rows = self.unfinished(LISTED_MAX)
        return frozenset(row.issue_id for row in rows if not row.waits_for)

    def close(self) -> None:
        """Put our jobs that nobody has begun back into the queue in their order, and disconnect."""
        # If a job is left in our list, our next start finds the job, or another fleet finds it once
        # our lease has ended.
        if not self.holding.stuck.is_set():
            try:
                self._runs.requeue(self.run, "leaving")
            except source.SourceError:
                pass
        self._store.close()


def run_of(actor: str) -> str:
    """Return the run id in an actor's name. The actor holds its jobs under this id."""
    return actor.rpartition("/")[2]


def _row(kept: BufferedJob) -> ListedIssue:
    return ListedIssue(IssueId(kept.job.id), title_of(kept.job))


def _settled(settlement: source.Settlement, answer: str) -> source.Settled:
    match answer:
        case "done":
            return source.Settled(settlement, source.Result.APPLIED)
        case "over":
            return source.Settled(settlement, source.Result.NOT_OURS, "it had ended already")
        case _:
            return source.Settled(settlement, source.Result.NOT_OURS, NOT_WITH_US)
