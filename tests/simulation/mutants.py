"""Planted bugs: each breaks one promise, and a checker must find that out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any
from unittest.mock import patch

from beads_workers.core.base import limits, plain, policy
from beads_workers.core.base.model import OutcomeKind
from beads_workers.core.base.throttled_messages import Asides
from beads_workers.core.base.wire import Aside, Ready, Status, Turn
from beads_workers.core.orchestrator import Orchestrator
from beads_workers.core.records import journal
from beads_workers.core.records.journal import (
    AsideHeard,
    Finished,
    StatusHeard,
    UsageFound,
)
from beads_workers.core.records.receipts import Receipt
from beads_workers.core.schedule.claims import ClaimScheduler
from beads_workers.core.schedule.commands import ReadUsage
from beads_workers.core.schedule.connection_registry import Connection
from beads_workers.core.schedule.events import Event, Misread, UsageRead
from beads_workers.core.workers.away import Away
from beads_workers.core.workers.connections import Connections
from beads_workers.core.workers.features.pausing import PausingWorkers, Wishes
from beads_workers.core.workers.features.queueing import Queueing
from beads_workers.core.workers.features.telling import AsideDue, Telling

Plant = Callable[[], AbstractContextManager[object]]


@dataclass(frozen=True, slots=True)
class Mutant:
    """Nothing is broken, unless a field says so. ``caught_by``: the numbers of its invariants.

    ``plant``: what is patched while its world lasts.

    ``push``: it is planted in worlds with a push source, of this ``kind``; ``agents``: in worlds
    with AI agents; ``landing``: in those where branches land; ``away``: in those where attempts run
    on other machines. ``seed``: of a world that is known to catch it, looked at first.
    """

    caught_by: tuple[int, ...] = ()
    seed: int = 0
    blind_swap: bool = False
    error_is_empty: bool = False
    acts_first: bool = False
    calls_first: bool = False
    never_syncs: bool = False
    drops_early: bool = False
    forgets_attempts: bool = False
    is_deaf: bool = False
    leaves_tasks: bool = False
    settles_unasked: bool = False
    ignores_lock: bool = False
    writes_no_requeued: bool = False
    push: bool = False
    kind: str = ""
    answers_twice: bool = False
    loses_answers: bool = False
    acknowledges_early: bool = False
    forgets_duplicates: bool = False
    forgets_in_flight: bool = False
    agents: bool = False
    landing: bool = False
    forgets_landed: bool = False
    invents_commits: bool = False
    reads_no_accounts: bool = False
    reads_no_usage: bool = False
    away: bool = False
    guards_forget_leases: bool = False
    begins_unsynced: bool = False
    orchestrator: type[Orchestrator] = Orchestrator
    plant: Plant = nullcontext


class NoOwnerCheck(Orchestrator):
    """Hands an issue on as soon as its worker's connection is lost."""

    def handle(self, event: Event, now: float, *args, **named) -> list:  # type: ignore
        """As ever, but what is orphaned is settled at once."""
        commands = super().handle(event, now, *args, **named)
        if self._parts.tasks.orphaned():
            for in_flight in self._parts.tasks.orphaned():
                self._connections.end_orphaned(in_flight)
            commands += self._after_events()
        return commands


class FallsOverJunk(Orchestrator):
    """Takes it for granted that whoever talks to it sends messages."""

    def handle(self, event: Event, now: float, *args, **named) -> list:  # type: ignore
        """As ever, but for what cannot be read."""
        assert not isinstance(event, Misread), event
        return super().handle(event, now, *args, **named)


class NeverOnTime(Orchestrator):
    """Does nothing for whose time has come."""

    def deadline(self) -> float | None:
        """Nothing is ever due."""
        return None


class IsPatient(Orchestrator):
    """Waits for a silent worker, whatever it has announced."""

    def __init__(self, *args, **named) -> None:  # type: ignore
        super().__init__(*args, **named)
        self._connections._features[0]._silent = lambda conn_id: None  # type: ignore


class SendsAnything(Orchestrator):
    """A worker gets what comes next, whatever it wants."""

    def __init__(self, *args, **named) -> None:  # type: ignore
        super().__init__(*args, **named)
        next_to_begin = self._parts.tasks.next_to_begin
        self._parts.tasks.next_to_begin = lambda wants, *a: next_to_begin(None, *a)  # type: ignore


class SendsAll(Orchestrator):
    """A batch is as large as there is work."""

    def __init__(self, *args, **named) -> None:  # type: ignore
        super().__init__(*args, **named)
        queueing = next(f for f in self._connections._features if isinstance(f, Queueing))
        behind = queueing.behind

        def rest(connection):  # type: ignore
            told = connection.abilities
            connection.abilities = replace(told, batch_size=3 * told.batch_size)
            yield from behind(connection)
            connection.abilities = told

        queueing.behind = rest  # type: ignore


class ForgetsPauses(Orchestrator):
    """Whoever says READY is served."""

    def __init__(self, *args, **named) -> None:  # type: ignore
        super().__init__(*args, **named)
        serve = self._connections.serve

        def served(connection, *, soon=None) -> None:  # type: ignore
            paused, connection.pause = connection.pause, None
            serve(connection, soon=soon)
            connection.pause = paused

        self._connections.serve = served  # type: ignore


class ChargesRefusals(Orchestrator):
    """Takes a refusal of an account for a failure of the issue."""

    def __init__(self, *args, **named) -> None:  # type: ignore
        super().__init__(*args, **named)
        self._parts.agents.accounts.charges = lambda issue_id: True  # type: ignore


class SendsFlocks(Orchestrator):
    """When an account may be tried, all try it."""

    def __init__(self, *args, **named) -> None:  # type: ignore
        super().__init__(*args, **named)
        accounts, effects = self._parts.agents.accounts, self._effects

        def room(account, model: str) -> int:  # type: ignore
            closed = account.closed_for(model)
            return 4 if closed is None or closed.probe_at <= effects.epoch else 0

        accounts._room = room  # type: ignore


class IsImpatient(Orchestrator):
    """Tries a closed account without end."""

    def __init__(self, *args, **named) -> None:  # type: ignore
        super().__init__(*args, **named)
        accounts = self._parts.agents.accounts
        accounts._room = lambda account, model: int(account.canary is None)  # type: ignore


class NeverTries(Orchestrator):
    """Waits for somebody to say that an account is open."""

    def __init__(self, *args, **named) -> None:  # type: ignore
        super().__init__(*args, **named)
        later = self._effects.epoch + 1e6
        self._parts.agents.accounts._probe_at = lambda account, closed: later  # type: ignore


class Overspends(Orchestrator):
    """Has a budget, and never looks at it."""

    def __init__(self, *args, **named) -> None:  # type: ignore
        super().__init__(*args, **named)
        self._parts.agents.spent = lambda: None  # type: ignore


class CountsTwice(Orchestrator):
    """Counts what it is told, whether it was told before or not."""

    def _usage_read(self, event: UsageRead) -> None:
        found = UsageFound(event.issue_id, event.attempt, event.request_id, event.receipt)
        self._effects.write(found)
        self._parts.agents.found(found)

    def handle(self, event: Event, now: float, *args, **named) -> list:  # type: ignore
        """As ever, and asks once more."""
        commands = super().handle(event, now, *args, **named)
        return [*commands, *(c for c in commands if isinstance(c, ReadUsage))]


class LeavesCloses(Orchestrator):
    """What an agent has closed is closed."""

    def __init__(self, *args, **named) -> None:  # type: ignore
        super().__init__(*args, **named)
        enqueue = self._parts.tasks._enqueue

        def leave(*args, by_agent: bool = False, **named) -> None:  # type: ignore
            enqueue(*args, **named)

        self._parts.tasks._enqueue = leave  # type: ignore


class EndsTooSoon(Orchestrator):
    """Takes what waits for a limit for nothing."""

    def _after_events(self) -> list:  # type: ignore
        agents = self._parts.agents
        self._scheduler.consider()
        agents.waiting = set  # type: ignore
        commands = super()._after_events()
        del agents.waiting
        return commands


class SleepsOn(Orchestrator):
    """Does not know that the machine has slept."""

    def _at(self, now: float, boot: float | None, wall: float | None) -> None:
        self._effects.at(now, boot, wall)


class ClosesFirst(Orchestrator):
    """Closes what is done, and lands it some day."""

    def __init__(self, *args, **named) -> None:  # type: ignore
        super().__init__(*args, **named)
        self._parts.tasks._lands = False


class ForgetsTheQueue(Orchestrator):
    """A stop gives back what waits to land, as if it had not been done."""

    def __init__(self, *args, **named) -> None:  # type: ignore
        super().__init__(*args, **named)
        landings = self._parts.landings

        def give_back() -> None:
            for in_flight in landings._in_flight():
                landings.drop(in_flight)

        landings.shelve = give_back  # type: ignore


class TriesAll(Orchestrator):
    """Begins one issue after the other though none can have a worktree."""

    def __init__(self, *args, **named) -> None:  # type: ignore
        super().__init__(*args, **named)
        self._parts.preparation.ended = lambda issue_id, outcome: False  # type: ignore


class ChargesNoWorktree(Orchestrator):
    """Takes a worktree that cannot be made for a failure of the issue."""

    def __init__(self, *args, **named) -> None:  # type: ignore
        super().__init__(*args, **named)
        tasks = self._parts.tasks
        ended = tasks.attempt_ended

        def charged(in_flight, outcome, duration_ms=None) -> None:  # type: ignore
            if outcome.unprepared:
                outcome = replace(outcome, kind=OutcomeKind.ERROR, unprepared=False)
            ended(in_flight, outcome, duration_ms)

        tasks.attempt_ended = charged  # type: ignore


class AsksOnce(Orchestrator):
    """Does not ask a new lander for what the last one was asked for."""

    def __init__(self, *args, **named) -> None:  # type: ignore
        super().__init__(*args, **named)
        landings = self._parts.landings
        landings._waiting = list  # type: ignore


# --- patches --------------------------------------------------------------------------------------
# Whatever of the core is one row, or one method, is patched for as long as a world lasts.

_tell_pause = PausingWorkers._tell_pause
_stimulus, _announces = Connections._stimulus, Connection.announces


def never(self: object, *args: object) -> None:
    """In place of a method: nothing."""


def instead(owner: object, name: str, by: object) -> Plant:
    """``by`` is there."""
    return partial(patch.object, owner, name, by)


def without(rule: policy.Rule, behind: policy.Rule | None = None) -> Plant:
    """The row of rules lacks this one, or has it right behind another one."""
    rules = [each for each in policy.RULES if each is not rule]
    if behind is not None:
        rules.insert(rules.index(behind) + 1, rule)
    return instead(policy, "RULES", tuple(rules))


def unwritten(fields: Mapping[Any, tuple[tuple[Any, ...], ...]], kind: type, name: str) -> Plant:
    """The codec does not write this field."""
    kept = tuple(row for row in fields.get(kind) or plain._defaults_of(kind) if row[0] != name)
    return partial(patch.dict, fields, {kind: kept})


def revokes_nothing(
    self: PausingWorkers, connection: Connection, wishes: Wishes, reason: str
) -> None:
    """PAUSE, and what is queued stays where it is."""
    with patch.object(connection, "prefetched", []):
        _tell_pause(self, connection, wishes, reason)


def forgets_wants(self: Connections, connection: Connection, message: Turn) -> object:
    """With its READY a worker takes everything again."""
    connection.wants = None if isinstance(message, Ready) else connection.wants
    return _stimulus(self, connection, message)


def heeds_more(self: Connection, ready: Ready) -> None:
    """What a READY announces holds for ever."""
    if self.ready is None or self.ready.features <= ready.features:
        _announces(self, ready)


def take_all(self: Asides, now: float) -> list[Aside | Status]:
    """Everything, however soon."""
    return [self._newest.pop(kind) for kind in list(self._newest)]


def tells_late(self: Telling, conn_id: Any) -> None:
    """Whatever has gathered, whether its attempt is over or not."""
    for message in self._asides[conn_id].take(self._effects.now):
        connection = self._registry.get(conn_id)
        assert connection is not None
        heard = StatusHeard if isinstance(message, Status) else AsideHeard
        self._effects.write(heard(connection.worker_id, message))  # type: ignore[arg-type]
    if (due := self._asides[conn_id].deadline()) is not None:
        self._timers.set(AsideDue(conn_id), due)


MUTANTS = {
    "no-compare-and-swap": Mutant((1,), seed=21, blind_swap=True),
    "no-owner-check": Mutant((1,), seed=14, orchestrator=NoOwnerCheck),
    "no-sync": Mutant((3,), never_syncs=True),
    "old-segments-dropped-early": Mutant((1, 2, 3, 5), seed=19, drops_early=True),
    "act-before-journal": Mutant((3,), acts_first=True),
    "call-before-journal": Mutant((3,), calls_first=True),
    "error-is-empty": Mutant((4,), error_is_empty=True),
    "attempts-forgotten": Mutant((5,), seed=3, forgets_attempts=True),
    "result-spool-unread": Mutant((1,), seed=19, is_deaf=True),
    "leaked-task": Mutant((1, 6), seed=14, leaves_tasks=True),
    "settled-unasked": Mutant((2,), settles_unasked=True),
    "falls-over-junk": Mutant((8,), orchestrator=FallsOverJunk),
    "nothing-due": Mutant((9, 23), orchestrator=NeverOnTime),
    "silence-unheard": Mutant((23,), orchestrator=IsPatient),
    "priority-ignored": Mutant((23,), seed=25, orchestrator=SendsAnything),
    "batch-too-large": Mutant((23,), seed=10, orchestrator=SendsAll),
    "pause-forgotten": Mutant((23,), seed=12, orchestrator=ForgetsPauses),
    "no-lock": Mutant((7,), ignores_lock=True),
    "a-transition-without-its-record": Mutant((12,), seed=50, writes_no_requeued=True),
    "refusals-charged": Mutant((13,), agents=True, orchestrator=ChargesRefusals),
    "flock-of-canaries": Mutant((14,), seed=132, agents=True, orchestrator=SendsFlocks),
    "canary-too-soon": Mutant((14,), agents=True, orchestrator=IsImpatient),
    "accounts-forgotten": Mutant((15,), seed=14, agents=True, reads_no_accounts=True),
    "no-probe": Mutant((9, 16), agents=True, orchestrator=NeverTries),
    "budget-overspent": Mutant((17,), seed=6, agents=True, orchestrator=Overspends),
    "usage-unread": Mutant((18,), seed=1, agents=True, reads_no_usage=True),
    "usage-counted-twice": Mutant((18,), seed=22, agents=True, orchestrator=CountsTwice),
    "agent-closes": Mutant((19,), seed=10, agents=True, orchestrator=LeavesCloses),
    "limit-is-empty": Mutant((4, 9), seed=61, agents=True, orchestrator=EndsTooSoon),
    "sleep-unnoticed": Mutant((20,), seed=21, agents=True, orchestrator=SleepsOn),
    "closed-before-it-landed": Mutant((21,), landing=True, orchestrator=ClosesFirst),
    "queue-forgotten": Mutant((22,), seed=0, landing=True, orchestrator=ForgetsTheQueue),
    "lander-asked-once": Mutant((2, 4, 9), seed=3, landing=True, orchestrator=AsksOnce),
    "none-has-a-worktree": Mutant((24,), seed=1, landing=True, orchestrator=TriesAll),
    "no-worktree-charged": Mutant((24,), landing=True, orchestrator=ChargesNoWorktree),
    "lands-twice": Mutant((22,), seed=8, landing=True, forgets_landed=True),
    "invented-commit": Mutant((21,), landing=True, invents_commits=True),
    "answers-twice": Mutant((10,), push=True, kind="rrq", answers_twice=True),
    "acknowledges-early": Mutant((11,), seed=4, push=True, kind="spool", acknowledges_early=True),
    "runs-duplicates": Mutant((1, 10), push=True, kind="queue", forgets_duplicates=True),
    "forgets-what-a-dead-run-had": Mutant(
        (11,), seed=4, push=True, kind="spool", forgets_in_flight=True
    ),
    "success-not-done": Mutant((2,), seed=1, plant=without(policy.done)),
    "success-handed-back": Mutant(
        (2,), seed=2, push=True, plant=without(policy.done, behind=policy.handed_back)
    ),
    "storm-charged": Mutant((5,), seed=2, plant=without(policy.struck)),
    "storm-quarantines": Mutant(
        (24,), seed=1, landing=True, plant=without(policy.struck, behind=policy.not_prepared)
    ),
    "nothing-handed-back": Mutant((8,), seed=1, push=True, plant=without(policy.handed_back)),
    "cancelled-charged": Mutant((5,), seed=5, plant=without(policy.cancelled)),
    "refusal-is-a-retry": Mutant(
        (13,), agents=True, plant=without(policy.account_closed, behind=policy.free_retry)
    ),
    "no-worktree-uncounted": Mutant(
        (24,), seed=1, landing=True, plant=without(policy.not_prepared, behind=policy.free_retry)
    ),
    "retry-charged": Mutant((5,), seed=2, plant=without(policy.free_retry)),
    "failure-undecided": Mutant((8,), plant=without(policy.charged)),
    "paused-id-forgotten": Mutant((23,), seed=74, plant=instead(PausingWorkers, "joined", never)),
    "pause-revokes-nothing": Mutant(
        (23,), seed=180, plant=instead(PausingWorkers, "_tell_pause", revokes_nothing)
    ),
    "keeps-what-nobody-takes": Mutant(
        (23,), seed=196, plant=instead(ClaimScheduler, "leave_to_others", never)
    ),
    "impatient": Mutant((23,), plant=instead(limits, "HEARTBEATS_MISSED", 1)),
    "choice-forgotten": Mutant(
        (23,), seed=25, plant=instead(Connections, "_stimulus", forgets_wants)
    ),
    "prefetches-too-many": Mutant(
        (23,), seed=52, plant=instead(ClaimScheduler, "to_prefetch", lambda *_: 100)
    ),
    "never-revokes": Mutant((23,), seed=1, plant=instead(Queueing, "_revoke", never)),
    "asides-unlimited": Mutant((23,), plant=instead(Asides, "take", take_all)),
    "aside-too-late": Mutant(
        (23,), seed=67, agents=True, plant=instead(Telling, "_tell", tells_late)
    ),
    "less-unheeded": Mutant((23,), seed=4, plant=instead(Connection, "announces", heeds_more)),
    "head-unwritten": Mutant(
        (21,), landing=True, plant=unwritten(plain._DEFAULTS, Receipt, "head")
    ),
    "usage-unwritten": Mutant(
        (18,), agents=True, plant=unwritten(plain._DEFAULTS, Receipt, "usage")
    ),
    "charges-unwritten": Mutant(
        (5,), seed=1, plant=unwritten(journal._FIELDS, Finished, "charged")
    ),
    "lease-forgotten": Mutant(
        (1,), seed=4, away=True, plant=instead(Away, "is_expected", lambda *_: False)
    ),
    "lease-too-short": Mutant(
        (1,), seed=10, away=True, plant=instead(Away, "seconds", lambda *_: 5.0)
    ),
    "guard-without-a-lease": Mutant((1,), seed=185, away=True, guards_forget_leases=True),
    "begun-before-it-is-on-disk": Mutant((1, 3), away=True, begins_unsynced=True),
    "loses-answers": Mutant((11,), push=True, kind="rrq", loses_answers=True),
}
