"""The thread that talks to the source: recovery of crashed runs first, then round trips.

The thread first settles what earlier runs left, then carries out each ``RoundTrip`` that the core
begins. It syncs the journal before it writes to the tracker: nothing outside is told before it is
on disk. While the fleet would take more issues than there are, it checks between round trips
whether somebody else has written to the tracker.
"""

from __future__ import annotations

import os
import queue
import signal
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import NamedTuple

from beads_workers.core.base import limits
from beads_workers.core.base.model import IssueId
from beads_workers.core.base.source import (
    Action,
    Conversation,
    ConversingSource,
    EditableSource,
    Remark,
    Renewed,
    Result,
    Settled,
    Settlement,
    Source,
    SourceError,
    Taken,
    WatchedSource,
)
from beads_workers.core.records.journal import Checkpointed, Entry, Finished, Inherited, Started
from beads_workers.core.schedule import events as ev
from beads_workers.core.schedule.commands import RoundTrip, SyncJournal
from beads_workers.core.views.recovery import RecoveryState
from beads_workers.runtime import sessions
from beads_workers.runtime.journal import Journal
from beads_workers.runtime.journal_file import add_to
from beads_workers.runtime.kin import outlives
from beads_workers.runtime.result_spool import replay_results
from beads_workers.runtime.retention import Keep, rotate
from beads_workers.runtime.run_directory import RunDirectory
from beads_workers.runtime.sockets import clear_dead
from beads_workers.runtime.usage_file import usage_read

TIDY_SECONDS = 60.0
SYNC_SECONDS = 1.0
"""Seconds between syncs if nothing that is told waits for the disk: a power cut loses at most so
much of the record."""

Answer = ev.RecoveryEnded | ev.RoundTripEnded
News = Answer | ev.Arrived | BaseException
"""News that the tracker thread posts; an exception is a bug."""


class Released(NamedTuple):
    """One answer for each deferred settlement, and what the issues have become by late results: see
    ``RoundTripEnded``."""

    settled: list[Settled]
    late_entries: Sequence[Checkpointed] = ()


Release = Callable[[Sequence[Settlement]], Released]
"""Writer of one crashed run's deferred settlements. May raise ``SourceError`` and ``OSError``."""


def no_release(settlements: Sequence[Settlement]) -> Released:
    """Answer that nothing was left to be written later."""
    return Released([Settled(each, Result.NOT_OURS) for each in settlements])


class _Settling(NamedTuple):
    """Result of a round trip's settlements: see ``RoundTripEnded``."""

    settled: tuple[Settled, ...] = ()
    error: str = ""
    hint: str = ""
    late_entries: tuple[Checkpointed, ...] = ()


class _Taking(NamedTuple):
    """Result of the questions of a round trip: see ``RoundTripEnded``."""

    renewed: Renewed | None = None
    taken: Taken | None = None
    error: str = ""
    hint: str = ""
    conversations: tuple[Conversation, ...] = ()


class TrackerThread:
    """The tracker thread. It calls ``post`` with each answer; ``post`` must be quick and
    thread-safe."""

    is_prompt = False
    """Whether a round trip is over as soon as it has begun."""

    def __init__(
        self,
        source: Source,
        journal: Journal,
        recover: Callable[[], ev.RecoveryEnded],
        post: Callable[[News], None],
        tidy: Callable[[], None] = lambda: None,
        release: Release = no_release,
        conclude: Callable[[], None] = lambda: None,
        before_taking: Callable[[], None] | None = None,
    ) -> None:
        """``tidy``: called in this thread once a minute, while there is anything to do.
        ``before_taking``: the same, before issues are taken; may raise ``SourceError``.
        ``release``: see ``Recovery.release``. ``conclude``: called in this thread whenever all that
        was posted before a round trip began is on disk."""
        self._release = release
        self._conclude = conclude
        self._before_taking = before_taking
        self._source = source
        self._journal = journal
        self._recover = recover
        self._post = post
        self._tidy = tidy
        self._watched = source if isinstance(source, WatchedSource) else None
        self._wants_more = False
        """Whether the last take brought less than was asked for."""
        self._look_seconds = limits.WATCH_SECONDS
        self._found_change = False
        """Whether a change was reported since the last round trip."""
        self._orders: queue.SimpleQueue[RoundTrip | SyncJournal | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="tracker", daemon=True)

    def start(self) -> None:
        """Start the thread, which begins with the recovery."""
        self._thread.start()

    def begin(self, round_trip: RoundTrip) -> None:
        """Hand over a round trip; the core begins only one at a time."""
        self._orders.put(round_trip)

    def sync(self) -> None:
        """Bring the journal to disk between round trips."""
        self._orders.put(SyncJournal())

    def stop(self, seconds: float) -> None:
        """Wait up to ``seconds`` until the thread has finished its work and closed the source."""
        self._orders.put(None)
        self._thread.join(seconds)

    def _run(self) -> None:
        try:
            self._post(self._recover())
            self._work()
            self._source.close()
        except BaseException as error:  # A bug must end the process, not only this thread.
            self._post(error)

    def _work(self) -> None:
        tidy_at = time.monotonic() + TIDY_SECONDS
        while (round_trip := self._next()) is not None:
            # Everything that this round trip writes to the tracker follows from earlier records.
            self._journal.sync_patiently()
            self._conclude()
            ended = self.carry_out(round_trip)
            if ended.taken is not None and round_trip.take:
                self._wants_more = len(ended.taken.jobs) < round_trip.take
            self._post(ended)
            # Agents that write all the time must not cause the tracker to be asked all the time.
            rest = limits.WATCH_REST * ended.seconds if self._found_change else 0.0
            self._look_seconds = max(limits.WATCH_SECONDS, min(rest, limits.POLL_SECONDS))
            self._found_change = False
            if time.monotonic() >= tidy_at:
                self._tidy()
                tidy_at = time.monotonic() + TIDY_SECONDS

    def _next(self) -> RoundTrip | None:
        while isinstance(order := self._wait(), SyncJournal):
            self._journal.sync_patiently()
        return order

    def _wait(self) -> RoundTrip | SyncJournal | None:
        while self._watched is not None and self._wants_more:
            try:
                return self._orders.get(timeout=self._look_seconds)
            except queue.Empty:
                self._look_seconds = limits.WATCH_SECONDS
                if self._watched.changed():
                    self._found_change = True
                    self._post(ev.Arrived())
        return self._orders.get()

    def carry_out(self, round_trip: RoundTrip) -> ev.RoundTripEnded:
        """Carry out one whole round trip."""
        began = time.monotonic()
        settled, settle_error, hint, late_entries = self._settle(round_trip)
        remarks = self._write_remarks(round_trip)
        asked = _Taking()
        if not settle_error:  # A tracker that has just failed is not asked again at once.
            asked = self._take(round_trip)
            hint = asked.hint
        calls = self._source.calls
        return ev.RoundTripEnded(
            time.monotonic() - began,
            settled,
            settle_error,
            asked.taken,
            asked.error,
            hint,
            asked.renewed,
            calls.count,
            calls.seconds,
            asked.conversations,
            remarks,
            late_entries,
        )

    def _settle(self, round_trip: RoundTrip) -> _Settling:
        if not round_trip.settlements:
            return _Settling()
        ours = [each for each in round_trip.settlements if not each.run_id]
        try:
            settled = self._source.settle(ours) if ours else []
        except SourceError as error:
            return _Settling(error=_reason(error), hint=error.hint)
        except OSError as error:
            return _Settling(error=_of_machine(error))
        assert len(settled) == len(ours), "one answer for each settlement"
        earlier: dict[str, list[Settlement]] = {}
        for each in round_trip.settlements:
            if each.run_id:
                earlier.setdefault(each.run_id, []).append(each)
        released = [self._released(group) for group in earlier.values()]
        answers = (one for each in released for one in each.settled)
        late = tuple(entry for each in released for entry in each.late_entries)
        return _Settling((*settled, *answers), late_entries=late)

    def _released(self, group: Sequence[Settlement]) -> Released:
        """Write what an earlier run holds, in that run's name."""
        try:
            return self._release(group)
        except SourceError as error:
            return Released([Settled(each, Result.FAILED, _reason(error)) for each in group])
        except OSError as error:
            return Released([Settled(each, Result.FAILED, _of_machine(error)) for each in group])

    def _write_remarks(self, round_trip: RoundTrip) -> tuple[tuple[Remark, str], ...]:
        """Write what people say through the fleet; return each with its error, or ""."""
        return tuple((each, self._write_remark(each)) for each in round_trip.remarks)

    def _write_remark(self, remark: Remark) -> str:
        if not isinstance(self._source, EditableSource):
            return f"{self._source.name} keeps no comments"
        try:
            self._source.comment(remark.issue_id, remark.text, remark.author)
        except SourceError as error:
            return _reason(error)
        except OSError as error:
            return _of_machine(error)
        return ""

    def _take(self, round_trip: RoundTrip) -> _Taking:
        renewed, taken = None, None
        read: tuple[Conversation, ...] = ()
        try:
            if round_trip.listen and isinstance(self._source, ConversingSource):
                read = self._source.conversations(round_trip.listen)
                there = {each.issue_id for each in read}
                read += tuple(Conversation(i, "") for i in round_trip.listen if i not in there)
            if round_trip.renew:
                renewed = self._source.renew(round_trip.renew)
            if round_trip.take and self._before_taking is not None:
                self._before_taking()
            if round_trip.take is not None:
                taken = self._source.take(round_trip.take, round_trip.skip)
        except SourceError as error:
            return _Taking(renewed, taken, _reason(error), error.hint, read)
        except OSError as error:
            return _Taking(renewed, taken, _of_machine(error), "", read)
        return _Taking(renewed, taken, conversations=read)


class PromptTrackerThread(TrackerThread):
    """Tracker thread of a source that never blocks: ``begin`` carries out round trips itself.

    Somebody waits for each answer, and handing it to a thread and back takes longer than the round
    trip. Nothing that such a source tells outlives a power cut that the journal does not, so a
    round trip does not wait for the disk. After the recovery, the thread syncs the journal soon
    afterwards.
    """

    is_prompt = True

    def __init__(
        self,
        source: Source,
        journal: Journal,
        recover: Callable[[], ev.RecoveryEnded],
        post: Callable[[News], None],
        tell: Callable[[ev.RoundTripEnded], None],
        tidy: Callable[[], None] = lambda: None,
        sync: Callable[[], None] = lambda: None,
        conclude: Callable[[], None] = lambda: None,
    ) -> None:
        """``tell``: takes the answers of round trips, in the thread that begins them. ``sync``:
        called whenever the journal was brought to disk."""
        super().__init__(source, journal, recover, post, tidy, conclude=conclude)
        self._tell = tell
        self._synced = sync
        self._sync_due = threading.Event()
        self._stopped = threading.Event()

    def begin(self, round_trip: RoundTrip) -> None:
        """Carry out a round trip."""
        self._tell(self.carry_out(round_trip))
        self._sync_due.set()

    def sync(self) -> None:
        """Let the thread sync the journal, soon."""
        self._sync_due.set()

    def stop(self, seconds: float) -> None:
        """Wait up to ``seconds`` until the thread has finished its work and closed the source."""
        self._stopped.set()
        self._sync_due.set()
        self._thread.join(seconds)

    def _work(self) -> None:
        # However much is told, the disk is synced once a second; if nothing is told, never.
        tidy_at = time.monotonic() + TIDY_SECONDS
        while not self._stopped.wait(SYNC_SECONDS):
            self._sync_due.wait()
            self._sync_due.clear()
            self._journal.sync_patiently()
            self._conclude()
            self._synced()
            if time.monotonic() >= tidy_at:
                self._tidy()
                tidy_at = time.monotonic() + TIDY_SECONDS


def _of_machine(error: OSError) -> str:
    # No descriptor, memory or room: a failure of the machine, whatever the source was doing.
    return f"the tracker could not be asked: {error.strerror or error}"


def _reason(error: SourceError) -> str:
    return str(error) or "no reason given"


# --- recovery ------------------------------------------------------------------------------------
# Settlement of crashed runs, before anything is taken; runs in the tracker thread.
#
# Source: docs/SEMANTICS.md, "Recovery". First everything of the crashed run must be gone: its
# workers (the ``alive`` lock is free) and its last tracker process. Then the tracker is asked what
# the run still holds, run by run.


GONE_SECONDS = limits.TERM_GRACE_SECONDS + 5.0
"""Seconds until workers have left, within their grace; those left after this are stuck, and carry
our token."""

LOOK_SECONDS = 0.05

DEFAULT = Keep()


@dataclass(slots=True)
class _Left:
    """An earlier run with some issues ``kept`` for living workers; ``is_settled``: all others are
    settled."""

    state: RecoveryState
    kept: frozenset[IssueId]
    is_settled: bool


class Recovery:
    """Recovery of crashed runs: the tracker thread calls ``run`` first; ``abandon`` lets a stop
    overtake it."""

    def __init__(
        self,
        directory: RunDirectory,
        source: Source,
        unsettled: Sequence[RecoveryState],
        post: Callable[[ev.RecoveryFailed | ev.UsageRead], None],
        keep: Keep = DEFAULT,
        *,
        inherits: bool = True,
        grace_seconds: float | None = limits.ORPHAN_GRACE_SECONDS,
        call_seconds: float = limits.BD_SECONDS,
    ) -> None:
        """``keep``: what stays of older runs once nothing is pending for them. ``inherits``: issues
        of workers that live on are left for ``release``; a push source waits for those workers
        here, for ``grace_seconds`` at most (None: for ever). ``call_seconds``: seconds that a
        tracker process of a crashed run may go on; then it is killed."""
        self._keep = keep
        self._inherits = inherits
        self._grace_seconds = grace_seconds
        self._call_seconds = call_seconds
        self._left: dict[str, _Left] = {}
        self._unrecorded: set[str] = set()
        """Runs of which more was found than their journals tell, and which may not be in our
        journal yet: usage of their agents, and branches that are to land."""
        self._unconcluded: list[str] = []
        """Runs of ``_unrecorded`` that are settled, except that our journal was not on disk."""
        self._ends: dict[str, Sequence[Entry]] = {}
        """Ends of attempts, by run, that its journal lacks."""
        self._directory = directory
        self._source = source
        self._unsettled = unsettled
        self._post = post
        self._abandoned = threading.Event()

    def abandon(self) -> None:
        """Stop the recovery: the run ends, and unsettled runs stay for the next start."""
        self._abandoned.set()

    def run(self) -> ev.RecoveryEnded:
        """Settle run after run; a tracker in trouble is asked again until it answers."""
        settled: list[Settled] = []
        late_entries: list[Checkpointed] = []
        inherited: list[Inherited] = []
        for left in self._unsettled:
            self._wait_until_gone(left)
            living = self._still_held(left)
            ends = self._replay_results(left)
            self._tell_usage(left, ends.values())
            # After that: a worker that left a result has reported the usage in it.
            unread = left.unread
            self._find_usage(left, [each for each in unread if each.issue_id not in living])
            late = [each for each in left.checkpoint() if each.issue_id in ends]
            late_entries += late
            if any(each.landing for each in late):
                self._unrecorded.add(left.run_id)
            kept = self._still_held(left)
            over = living - kept
            self._find_usage(left, [each for each in unread if each.issue_id in over])
            inherited += left.inherited(kept)
            settled += self._settle(left, list(ends.values()), kept)
        # Only now: until it was settled, only a run's journal knew of its pending writes.
        try:
            rotate(self._directory, self._keep)
        except RuntimeError:
            pass  # There is no thread to be had: the next start removes them.
        return ev.RecoveryEnded(tuple(settled), tuple(late_entries), tuple(inherited))

    def release(self, settlements: Sequence[Settlement]) -> Released:
        """Write what was left alone for workers and leases that lived on, in the name of the one
        run that holds it. May raise ``SourceError`` and ``OSError``. Called in the tracker
        thread."""
        run_id = settlements[0].run_id
        found = self._left.get(run_id)
        if found is None:
            return no_release(settlements)
        asked = found.kept & {each.issue_id for each in settlements}
        ends = self._replay_results(found.state)
        self._ends[run_id] = [*self._ends.get(run_id, ()), *ends.values()]
        self._tell_usage(found.state, ends.values())
        to_land = [e for e in found.state.checkpoint() if e.issue_id in asked and e.landing]
        if to_land:
            self._unrecorded.add(run_id)
        # These workers have used more until now.
        unread = [each for each in found.state.unread if each.issue_id in asked]
        self._find_usage(found.state, unread)
        last = found.state.unsettled_runs(found.kept - asked)[-1]
        settled = self._source.recover(last) if asked else []
        # An issue that nobody holds in the tracker has moved on by itself.
        by_issue = {s.settlement.issue_id: s for s in settled if s.settlement.issue_id in asked}
        answers = []
        for each in settlements:
            one = by_issue.get(each.issue_id, Settled(each, Result.NOT_OURS))
            closed = one.settlement.action is Action.CLOSE and one.result is Result.APPLIED
            result = Result.FOUND_CLOSED if closed else one.result
            answers.append(Settled(each, result, one.error))
        failed = {a.settlement.issue_id for a in answers if a.result is Result.FAILED}
        found.state.settled_elsewhere(sorted(asked - failed))
        found.kept -= asked - failed
        if asked and not found.kept and found.is_settled:
            self._settled(run_id)
        return Released(answers, [each for each in to_land if each.issue_id not in failed])

    def _still_held(self, left: RecoveryState) -> frozenset[IssueId]:
        """Return the issues whose foreign worker, or a process that it started for them, lives
        on, and those that are leased to other machines."""
        if self._abandoned.is_set() or not self._inherits:
            return frozenset()
        return left.leased | {
            IssueId(issue_id)
            for issue_id, (pid, start_time) in left.owners.items()
            if outlives(pid, start_time, issue_id, left.socket)
        }

    def conclude(self) -> None:
        """Mark runs as settled that waited for the disk: all that was posted before this round trip
        is on disk. Called in the tracker thread."""
        settled, self._unconcluded = self._unconcluded, []
        for run_id in settled:
            self._mark_settled(run_id)
        self._unrecorded.clear()

    def _settled(self, run_id: str) -> None:
        # While a run is not marked, the next start looks again for its agents' usage.
        if run_id in self._unrecorded:
            self._unconcluded.append(run_id)
        else:
            self._mark_settled(run_id)

    def _mark_settled(self, run_id: str) -> None:
        # Only now: for the next start, an attempt that its journal knows to be over has been told
        # of by ours, branch and all.
        ends = self._ends.pop(run_id, ())
        # For people who read it. While anything is pending, the spool is read at each start.
        try:
            add_to(self._directory.run(run_id) / "journal.jsonl", ends)
        except OSError:
            pass  # A full disk: this run's journal records that they are closed.
        self._directory.mark_settled(run_id)

    def _find_usage(self, left: RecoveryState, ended: Sequence[Started | Finished]) -> None:
        if self._abandoned.is_set():
            return  # Its agents may still be at work.
        for each in ended:
            found = usage_read(self._directory.run(left.run_id), each)
            if found is not None:
                self._unrecorded.add(left.run_id)
                self._post(found)

    def _tell_usage(self, left: RecoveryState, ends: Iterable[Entry]) -> None:
        """Report the usage in these spooled results, which count for no run until now."""
        for entry in ends:
            end = entry.record
            if isinstance(end, Finished) and end.receipt is not None and end.receipt.usage:
                self._unrecorded.add(left.run_id)
                ids = IssueId(end.issue_id), end.attempt, end.request_id
                self._post(ev.UsageRead(*ids, end.receipt, whole=True))

    def _replay_results(self, left: RecoveryState) -> dict[str, Entry]:
        """Return the last results of the run's workers, by issue; ``left`` includes them from now
        on."""
        if self._abandoned.is_set():
            return {}  # Its workers may not have left yet.
        return replay_results(left, self._directory.run(left.run_id))

    def _settle(
        self, left: RecoveryState, ends: Sequence[Entry], kept: frozenset[IssueId]
    ) -> list[Settled]:
        failures = 0
        while not self._abandoned.is_set():
            try:
                settled = [
                    each
                    for crashed in left.unsettled_runs(kept)
                    for each in self._source.recover(crashed)
                ]
            except (SourceError, OSError) as error:
                delay = min(
                    limits.SOURCE_RETRY_SECONDS * 2.0**failures, limits.SOURCE_RETRY_MAX_SECONDS
                )
                failures = min(failures + 1, 10)
                hint = error.hint if isinstance(error, SourceError) else "doctor"
                self._post(ev.RecoveryFailed(str(error), hint, delay))
                self._abandoned.wait(delay)
                continue
            whole = all(s.result is not Result.FAILED for s in settled)
            self._ends[left.run_id] = ends
            if kept:
                # A person may change the other issues from now on: they are not written twice.
                left.settled_elsewhere([i for i in left.issues.known if i not in kept])
                self._left[left.run_id] = _Left(left, kept, whole)
            elif whole:
                self._settled(left.run_id)
            return settled
        return []

    def _wait_until_gone(self, left: RecoveryState) -> None:
        lock = self._directory.run(left.run_id) / "alive"
        deadline = time.monotonic() + GONE_SECONDS
        while self._directory.is_alive(left.run_id) and not self._abandoned.is_set():
            if time.monotonic() > deadline:
                # Stuck or stopped. Only that run's zygote and workers ever hold this file open.
                sessions.kill_owners(lock)
                deadline = time.monotonic() + GONE_SECONDS
            self._abandoned.wait(LOOK_SECONDS)
        # If workers were killed with their orchestrator, their tasks may still run.
        sessions.sweep(left.run_id, None)
        if left.socket:
            try:
                clear_dead(Path(left.socket))
            except OSError:
                pass  # Another process has its pid by now, and listens there.
        for issue_id, (pid, start_time) in left.owners.items():
            if not self._inherits:
                self._wait_for_owner(issue_id, pid, start_time)
        if left.last_call is None:
            return
        self._wait_for_call(*left.last_call)

    def _wait_for_call(self, pid: int, start_time: int) -> None:
        # The process finishes its work although its caller died, unless it hangs.
        numbers = iter((signal.SIGTERM, signal.SIGKILL))
        until = time.monotonic() + self._call_seconds
        while sessions.lives(pid, start_time) and not self._abandoned.is_set():
            if time.monotonic() > until and (number := next(numbers, None)) is not None:
                with suppress(OSError):  # It has just ended.
                    os.killpg(pid, number)
                until = time.monotonic() + limits.TERM_GRACE_SECONDS
            self._abandoned.wait(LOOK_SECONDS)

    def _wait_for_owner(self, issue_id: str, pid: int, start_time: int) -> None:
        # The process is not ours to kill, and nobody gets its issue while it may work on it.
        told_at = time.monotonic() + limits.TERM_GRACE_SECONDS
        grace = self._grace_seconds
        until = inf if grace is None else time.monotonic() + grace
        while sessions.lives(pid, start_time) and not self._abandoned.is_set():
            if time.monotonic() > until:
                return
            if time.monotonic() > told_at:
                told_at = time.monotonic() + limits.SOURCE_RETRY_MAX_SECONDS
                self._post(still_held(issue_id, pid))
            self._abandoned.wait(LOOK_SECONDS)


def still_held(issue_id: str, pid: int) -> ev.RecoveryFailed:
    """Return what people are told while a foreign worker keeps a start waiting."""
    return ev.RecoveryFailed(
        f"{issue_id} is still with a worker of an earlier run, pid {pid}: it is not ours to end",
        f"nothing is taken until it has exited; if it is stuck, end it: kill {pid}",
        limits.SOURCE_RETRY_MAX_SECONDS,
    )
