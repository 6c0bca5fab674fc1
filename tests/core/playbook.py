"""Playbooks for the orchestrator: events in, commands out, and a clock that only we move.

    play = Play()
    play.join(1)                             # connects and says READY
    play.answer("a")                         # the tracker claimed issue a for us
    assert play.do(done(1, "a"))             # and so on

``Play`` checks on its way what must hold in every run: one round trip at a time, and a
record in the journal before each command that depends on it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from typing import Any, TypeVar

from beads_workers.core.base import model, source, wire
from beads_workers.core.base.model import IssueId, Job, OutcomeKind
from beads_workers.core.base.night import NightSoFar
from beads_workers.core.base.settings import EndRules, FleetSettings, TrackerRules, Upkeep
from beads_workers.core.orchestrator import Orchestrator
from beads_workers.core.records import journal as rec
from beads_workers.core.records.journal import Checkpointed, Entry, Record
from beads_workers.core.schedule import events as ev
from beads_workers.core.schedule.commands import Command, End, RoundTrip, Send, WatchOwner, Write
from beads_workers.core.schedule.events import ConnId, Event
from beads_workers.core.views.snapshot import Board
from tests.simulation.folds import DoubleRun
from tests.support.worktrees import ruled

T = TypeVar("T")

EPOCH = 1_700_000_000.0
"""The wall clock at the beginning of every playbook."""

BEGAN = 1000.0
"""The monotonic clock then."""


def settings(workers: int = 0, **others: Any) -> FleetSettings:
    """A fleet without workers of its own, unless a test asks for some."""
    named = {each.name: group for group, kind in GROUPS.items() for each in fields(kind)}
    groups: dict[str, Any] = {
        group: kind(**{k: v for k, v in others.items() if named.get(k) == group})
        for group, kind in GROUPS.items()
    }
    own = {name: value for name, value in others.items() if name not in named}
    if own.pop("approve", False):
        own["landing"] = ruled(own["landing"], approve=True)
    place = ("memory", "/tracker", "/project", "/project/.bw")
    return FleetSettings(workers, *place, **groups, **own)


GROUPS: dict[str, Any] = {"ending": EndRules, "tracking": TrackerRules, "upkeep": Upkeep}
"""Groups of ``FleetSettings`` whose fields a test names as if they were its own."""


def job(issue_id: str, priority: int = 2, **fields: Any) -> Job:
    """A job whose title follows from its id."""
    return Job("memory", IssueId(issue_id), f"title of {issue_id}", priority, **fields)


def ready(conn: int, *, v1: bool = False, called: str = "w") -> ev.Received:
    """READY, as our own workers say it, or as plain version 1."""
    message = (
        wire.Ready(called)
        if v1
        else wire.Ready(called, "1.1", frozenset({wire.GROUPED, wire.CANCEL}))
    )
    return ev.Received(ConnId(conn), message)


def done(conn: int, issue_id: str, **fields: Any) -> ev.Received:
    """DONE."""
    return ev.Received(ConnId(conn), wire.Done(IssueId(issue_id), "w", **fields))


def failed(conn: int, issue_id: str, error: str = "boom", **fields: Any) -> ev.Received:
    """FAILED; ``outcome`` and the rest of 1.1 as keywords."""
    return ev.Received(ConnId(conn), wire.Failed(IssueId(issue_id), "w", error, **fields))


def cancelled(conn: int, issue_id: str) -> ev.Received:
    """FAILED, the way a worker answers CANCEL or a stop."""
    return failed(conn, issue_id, "cancelled", outcome=OutcomeKind.CANCELLED)


def lost(conn: int) -> ev.Disconnected:
    """The connection ends."""
    return ev.Disconnected(ConnId(conn), "the other end closed it")


def of(commands: Iterable[Command], kind: type[T]) -> list[T]:
    """The commands of one kind."""
    return [c for c in commands if isinstance(c, kind)]


def records(commands: Iterable[Command], kind: type[T]) -> list[T]:
    """The journalled records of one kind."""
    return [c.record for c in commands if isinstance(c, Write) and isinstance(c.record, kind)]


def notes(commands: Iterable[Command], level: str) -> list[str]:
    """What people are told at this level."""
    return [n.text for n in records(commands, rec.Noted) if n.level == level]


def sent_messages(commands: Iterable[Command], conn: int | None = None) -> list[wire.ToWorker]:
    """What is sent, to one connection or to all."""
    return [c.message for c in of(commands, Send) if conn in (None, c.conn_id)]


def task_of(commands: Iterable[Command], conn: int | None = None) -> str | None:
    """The issue of the one TASK that is sent; None if there is none."""
    tasks = [m.issue_id for m in sent_messages(commands, conn) if isinstance(m, wire.Task)]
    assert len(tasks) <= 1, tasks
    return tasks[0] if tasks else None


class Play:
    """One orchestrator, its clock, its tracker thread and its journal."""

    def __init__(
        self,
        workers: int = 0,
        *,
        self_claiming: bool = False,
        push: bool = False,
        checkpointed: Iterable[Checkpointed] = (),
        recovering: bool = False,
        run_id: str = "run-1",
        epoch: float = EPOCH,
        **others: Any,
    ) -> None:
        """``epoch``: the wall clock at the beginning."""
        self.now = BEGAN
        self.epoch = epoch
        self.slept = 0.0
        self.entries: list[Entry] = []
        self.board = Board()
        self.folds = DoubleRun(self.now)
        self.round_trip: RoundTrip | None = None
        self.ended: int | None = None
        checkpointed = list(checkpointed)
        began = rec.RunStarted(
            *(run_id, 1, f"actor/{run_id}", "memory", "/project"),
            workers=workers,
            night=others.get("night", NightSoFar()),
            lands=others.get("landing") is not None,
            approves=others.get("approve", False),
        )
        for record in (began, *checkpointed, rec.CheckpointEnded()):
            self._journal(record)
        self.core = Orchestrator(
            settings(workers, **others),
            run_id,
            self.now,
            self_claiming=self_claiming,
            push=push,
            checkpointed=checkpointed,
            epoch=epoch,
        )
        self.first = self._took(self.core.start(self.now))
        if not recovering:
            self.first += self.do(ev.RecoveryEnded())

    # --- events in ----------------------------------------------------------------------------

    def do(self, *events: Event) -> list[Command]:
        """Tell the core; returns its commands, all of them in order."""
        commands: list[Command] = []
        for event in events:
            if isinstance(event, ev.RoundTripEnded):
                assert self.round_trip is not None, "nobody asked"
                self.round_trip = None
            commands += self._took(self.core.handle(event, self.now, self.now + self.slept))
        return commands

    def wait(self, seconds: float) -> list[Command]:
        """Let time pass, stopping at every deadline on the way; the tracker stays silent."""
        commands: list[Command] = []
        until = self.now + seconds
        while (due := self.core.deadline()) is not None and due <= until:
            self.now = max(self.now, due)
            commands += self._took(self.core.on_deadline(self.now, self.now + self.slept))
        self.now = until
        return commands

    def connect(self, conn: int, pid: int | None = None) -> list[Command]:
        """Somebody connects; pid 900 + conn, unless said."""
        return self.do(ev.Connected(ConnId(conn), 900 + conn if pid is None else pid))

    def join(self, conn: int, pid: int | None = None, *, v1: bool = False) -> list[Command]:
        """Somebody connects and says READY."""
        return self.connect(conn, pid) + self.do(ready(conn, v1=v1))

    def own(self, number: int) -> list[Command]:
        """The process of our worker W{number} exists (pid 100 + number), connects, says READY."""
        pid = 100 + number
        return self.do(ev.WorkerSpawned(f"W{number}", pid)) + self.join(number, pid)

    def reap(self, number: int, status: int = 0) -> list[Command]:
        """The process of our worker W{number} has ended."""
        return self.do(ev.WorkerReaped(f"W{number}", 100 + number, status))

    def answer(
        self,
        *taken: str | Job,
        listed: Iterable[str] = (),
        results: Mapping[str, source.Result] | None = None,
        seconds: float = 0.1,
        lease: float | None = None,
        lost: Iterable[str] = (),
        held: tuple[source.HeldElsewhere, ...] | None = None,
        **others: Any,
    ) -> list[Command]:
        """The tracker answers the turn: everything applied, unless ``results`` says otherwise.

        ``lease``: what it claims or renews is ours for so many seconds from now. ``lost``: what
        it was to renew and is no longer ours. ``held``: what other runs hold.
        ``settle_error`` and ``take_error`` as in ``RoundTripEnded``: then nothing is known.
        """
        round_trip = self.round_trip
        assert round_trip is not None, "nobody asked"
        claimed = tuple(each if isinstance(each, Job) else job(each) for each in taken)
        assert len(claimed) <= (round_trip.take or 0), "more than it was asked for"
        assert not {j.issue_id for j in claimed} & round_trip.skip, "it was to be left out"
        rows = tuple(model.ListedIssue(IssueId(i), i) for i in listed)
        found = source.Taken(
            claimed, rows, leases=self._leases([j.issue_id for j in claimed], lease), held=held
        )
        silent = "settle_error" in others
        event = ev.RoundTripEnded(
            seconds,
            settled=() if silent else self._settled(round_trip.settlements, results or {}),
            taken=None if silent or round_trip.take is None or "take_error" in others else found,
            renewed=self._renewed(round_trip, set(lost), lease),
        )
        if silent or "take_error" in others:
            event = replace(event, renewed=None)
        return self.do(replace(event, **others))

    def quiet(self) -> list[Command]:
        """The tracker answers what it is being asked, if anything: all done, nothing found."""
        return self.answer() if self.round_trip is not None else []

    def working(self, *issue_ids: str, **fields: Any) -> list[Command]:
        """Foreign workers 1, 2... join, and each gets one of these issues."""
        commands: list[Command] = []
        for number, issue_id in enumerate(issue_ids, 1):
            commands += self.join(number)
            commands += self.answer(job(issue_id, **fields))
            assert task_of(commands, number) == issue_id
        return commands

    # --- what can be looked at ----------------------------------------------------------------

    def pending(self) -> list[tuple[source.Action, str]]:
        """What the turn under way is to settle."""
        assert self.round_trip is not None, "nothing is asked of the tracker"
        return [(s.action, str(s.issue_id)) for s in self.round_trip.settlements]

    def settlement(self) -> source.Settlement:
        """The one settlement of the turn under way."""
        assert self.round_trip is not None and len(self.round_trip.settlements) == 1, (
            self.round_trip
        )
        return self.round_trip.settlements[0]

    def asked(self) -> int:
        """How many issues the turn under way is to take."""
        assert self.round_trip is not None and self.round_trip.take is not None, self.round_trip
        return self.round_trip.take

    def sleep(self, seconds: float) -> None:
        """The machine sleeps: only the boot clock goes on. Nothing is told to the core."""
        self.slept += seconds

    # --- inside -------------------------------------------------------------------------------

    def _leases(
        self, issue_ids: Iterable[IssueId], seconds: float | None
    ) -> tuple[source.Lease, ...]:
        boot = self.now + self.slept
        return tuple(
            source.Lease(i, boot, boot + seconds) for i in issue_ids if seconds is not None
        )

    def _renewed(
        self, round_trip: RoundTrip, lost: set[str], lease: float | None
    ) -> source.Renewed | None:
        assert lost <= set(round_trip.renew), "it was not asked about that"
        kept = [i for i in round_trip.renew if i not in lost]
        gone = tuple(
            source.Lost(i, "it is in_progress, assigned to bob")
            for i in round_trip.renew
            if i in lost
        )
        return source.Renewed(self._leases(kept, lease), gone) if round_trip.renew else None

    def _settled(
        self, settlements: tuple[source.Settlement, ...], results: Mapping[str, source.Result]
    ) -> tuple[source.Settled, ...]:
        answers = [(s, results.get(s.issue_id, source.Result.APPLIED)) for s in settlements]
        return tuple(
            source.Settled(s, r, "" if r is source.Result.APPLIED else r.value) for s, r in answers
        )

    def _took(self, commands: list[Command]) -> list[Command]:
        for command in commands:
            match command:
                case Write():
                    self._journal(command.record)
                case RoundTrip():
                    assert self.round_trip is None, "one turn at a time"
                    self.round_trip = command
                    for settlement in command.settlements:
                        assert self._is_told(settlement), f"not in the journal: {settlement}"
                case Send(message=wire.Task(issue_id=issue_id)):
                    assert self._last(issue_id, rec.Started), f"{issue_id}: TASK before its record"
                case WatchOwner(pid):
                    kinds = rec.OwnerLost | rec.Inherited
                    records = (e.record for e in self.entries if isinstance(e.record, kinds))
                    assert pid in {r.pid for r in records}, "watched before its record"
                case End(exit_code):
                    assert isinstance(self.entries[-1].record, rec.RunEnded)
                    self.ended = exit_code
                case _:
                    pass
        self.folds.believed(self.core, self.now, whole=True)
        return commands

    def _journal(self, record: Record) -> None:
        elapsed = self.now - BEGAN
        self.entries.append(Entry(record, self.epoch + elapsed, elapsed))
        self.board.apply(self.entries[-1])
        self.folds.applied(self.entries[-1])

    def _is_told(self, settlement: source.Settlement) -> bool:
        """Whether the journal says why this write is pending."""
        issue_id = settlement.issue_id
        finished = self._last(issue_id, rec.Finished)
        verdict = finished.verdict if finished else ""
        match settlement.action:
            case source.Action.CLOSE:
                landed = self._last(issue_id, rec.BranchLanded) is not None
                return verdict == "finish" or landed
            case source.Action.CONFIRM:
                kinds = (rec.PutOnHold, rec.LandingEnded, Checkpointed)
                waits = verdict in ("land", "asked", "quarantined")
                return waits or any(self._last(issue_id, kind) for kind in kinds)
            case source.Action.SHELVE:
                return self._last(issue_id, rec.LandingEnded) is not None
            case source.Action.QUARANTINE:
                ended = self._last(issue_id, rec.LandingEnded)
                return verdict == "quarantined" or bool(ended and ended.verdict == "quarantined")
            case source.Action.ASK:
                return verdict == "asked"
            case source.Action.RELEASE:
                return bool(
                    self._last(issue_id, rec.Claimed) or self._last(issue_id, rec.Inherited)
                )
            case source.Action.HAND_OVER:
                return self._last(issue_id, rec.ClaimDelegated) is not None
            case source.Action.REOPEN:
                kinds = (rec.RetryAsked, rec.Refunded, rec.Answered, rec.LandingEnded)
                return any(self._last(issue_id, kind) for kind in kinds)

    def _last(self, issue_id: str, kind: type[T]) -> T | None:
        for entry in reversed(self.entries):
            record = entry.record
            if isinstance(record, kind) and getattr(record, "issue_id", None) == issue_id:
                return record
        return None


def unstarted(conn: int, issue_id: str, request_id: str = "") -> ev.Received:
    """FAILED, for what was queued on it."""
    message = wire.Failed(
        IssueId(issue_id),
        "w",
        "not wanted",
        0,
        OutcomeKind.CANCELLED,
        error_detail=wire.RETURNED_UNSTARTED,
        request_id=request_id,
    )
    return ev.Received(ConnId(conn), message)
