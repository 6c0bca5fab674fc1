"""One executor process and its requests: events and the time in, commands out."""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import Enum
from typing import assert_never

from beads_workers.core.base import limits
from beads_workers.core.base.model import Outcome, OutcomeKind, value
from beads_workers.core.schedule.effects import Timers
from beads_workers.integrations.rrq import wire

# --- driver events -------------------------------------------------------------------------------
# Events that the driver of an executor is told (past tense), and its commands (imperative).


# --- events -----------------------------------------------------------------------------------


@value
class RequestArrived:
    """A slot that was free has a request; one ``SlotAnswer`` follows."""

    slot: int
    request: wire.Request


@value
class EndAsked:
    """The slot's request is to end: by a cancel or, if ``hard``, with the whole process."""

    slot: int
    hard: bool


@value
class ProcessStarted:
    """The process runs now; it may not accept connections yet."""


@value
class ProcessNotStarted:
    """The process could not be started. ``missing``: no such program; else the machine is full."""

    error: str
    missing: bool


@value
class ProcessEnded:
    """The process and everything it had started are gone.

    ``why``: one line. ``works``: a process of this program has accepted connections in this run,
    here or at another driver.
    """

    why: str
    works: bool = False


@value
class Probed:
    """The result of ``Probe``."""

    accepts: bool


@value
class OutcomeReceived:
    """An outcome arrived on a slot's connection."""

    slot: int
    answer: wire.RequestOutcome


@value
class HungUp:
    """A slot's connection was closed; the process may be ending, too."""

    slot: int


@value
class Broken:
    """A slot's connection failed, or delivered something invalid; ``why``: one line."""

    slot: int
    why: str


Event = (
    RequestArrived
    | EndAsked
    | ProcessStarted
    | ProcessNotStarted
    | ProcessEnded
    | Probed
    | OutcomeReceived
    | HungUp
    | Broken
)

# --- commands ---------------------------------------------------------------------------------


@value
class StartProcess:
    """Start the process; answer with ``ProcessStarted`` or ``ProcessNotStarted``."""


@value
class Probe:
    """Connect, and close the connection again; answer with ``Probed``."""


@value
class SendRequest:
    """Send a request on the slot's connection; connect first if there is none."""

    slot: int
    request: wire.Request


@value
class SendCancel:
    """Send a cancel on a connection of its own."""

    cancel: wire.CancelRequest


@value
class Kill:
    """KILL the process and everything it has started; ``ProcessEnded`` follows."""


@value
class SlotAnswer:
    """The end of the slot's request. ``unusable``: no request of this fleet can ever be run."""

    slot: int
    outcome: Outcome
    unusable: bool = False


@value
class ExecutorLog:
    """One line for the log of the executor."""

    text: str


Command = StartProcess | Probe | SendRequest | SendCancel | Kill | SlotAnswer | ExecutorLog


# --- suspects ------------------------------------------------------------------------------------
# Jobs that were in a process together with others when it died: each may be the cause.


SUSPECTS_MAX = 1000
"""Most suspects: the oldest are forgotten beyond that, and run among other jobs again."""


class Suspects:
    """Suspected jobs by id. Each runs alone until it has been answered."""

    def __init__(self) -> None:
        self._jobs: dict[str, None] = {}

    def add(self, job_id: str) -> None:
        """Add a job that may have caused a death."""
        self._jobs[job_id] = None
        if len(self._jobs) > SUSPECTS_MAX:
            del self._jobs[next(iter(self._jobs))]

    def clear_of(self, job_id: str) -> None:
        """Remove a job that was answered."""
        self._jobs.pop(job_id, None)

    def __contains__(self, job_id: str) -> bool:
        return job_id in self._jobs

    def __bool__(self) -> bool:
        return bool(self._jobs)


# --- translation ---------------------------------------------------------------------------------
# The answer of an executor as the outcome of an attempt.


VERSION_REFUSED = "Unsupported protocol version"
"""Message of the real executors for a version that they do not speak; it has no type or code."""


def to_outcome(answer: wire.RequestOutcome) -> Outcome:
    """Return the outcome of an attempt; our own policy decides about retries.

    An unknown handler and an unsupported version are ``NOT_FOUND``: a retry would change neither.
    """
    error = _text(answer)
    match answer.status:
        case wire.RequestStatus.SUCCESS:
            return Outcome(OutcomeKind.SUCCESS, result=json.dumps(answer.result))
        case wire.RequestStatus.RETRY:
            return Outcome(OutcomeKind.RETRY, error, answer.retry_after_seconds)
        case wire.RequestStatus.TIMEOUT:
            return Outcome(OutcomeKind.TIMEOUT, error or "the executor timed out")
        case wire.RequestStatus.ERROR:
            return Outcome(OutcomeKind.NOT_FOUND if _is_fatal(answer) else OutcomeKind.ERROR, error)


def _is_fatal(answer: wire.RequestOutcome) -> bool:
    error = answer.error
    return error is not None and (
        error.type == wire.HANDLER_NOT_FOUND
        or error.code == wire.UNSUPPORTED_VERSION
        or (error.type is None and error.message == VERSION_REFUSED)
    )


def _text(answer: wire.RequestOutcome) -> str:
    error = answer.error
    if error is None:
        return "" if answer.status is not wire.RequestStatus.ERROR else "failed without a word"
    message = " ".join(error.message.split())
    return ": ".join(part for part in (error.type, message) if part)[: limits.ERROR_CHARS_MAX]


# --- driver --------------------------------------------------------------------------------------
# One executor process and its requests: events and the time in, commands out.
#
# The process is started when it is first needed, and again after it has died. Each slot has one
# request at a time and a connection of its own. Only the job that caused a death is charged. If
# several jobs were in the process, all are suspects, and each is alone in the process when it runs
# next.
#
# Source: docs/RRQ.md, "RRQ executors". Times are monotonic seconds.


PROBE_SECONDS = 0.05
"""Time between attempts to connect to a starting process; the real ones take 0.3 s and more."""
DYING_SECONDS = 2.0
"""Grace after a lost connection: a dying process hangs up first. If it still lives after this
time, it closed the connection on purpose."""
START_SECONDS = 60.0
"""Longest time until a process accepts connections."""
STARTS_MAX = 3
"""Failed starts in a row, after which an executor that never accepted a connection is given up."""
AGAIN_SECONDS, AGAIN_SECONDS_MAX = 0.5, 30.0


class ProcessState(Enum):
    """State of the process."""

    DOWN = "there is none"
    STARTING = "it runs, or is about to, and does not accept connections yet"
    UP = "it accepts connections"
    ENDING = "it was killed"


@dataclass(slots=True)
class _Flight:
    """A request that is not answered. ``sent``: the executor has the request."""

    request: wire.Request
    sent: bool = False
    cancelled: bool = False


class _Timer(Enum):
    PROBE = "try to connect"
    GIVE_UP = "it has had its time to start"
    START = "start it again"


@dataclass(frozen=True, slots=True)
class _StillAlive:
    """Timer key: the process hung up on this slot's request, and should have died by now."""

    slot: int


class ExecutorProcess:
    """See the section text. ``version``: protocol version that the process speaks."""

    def __init__(self, version: str) -> None:
        self.state = ProcessState.DOWN
        self._version = version
        self._flights: dict[int, _Flight] = {}
        self._suspects = Suspects()
        self._timers = Timers[_Timer | _StillAlive]()
        self._out: list[Command] = []
        self._was_up = False
        self._failed_starts = 0
        self._culprit: int | None = None
        """Slot because of which we killed the process."""

    def deadline(self) -> float | None:
        """Return when ``on_deadline`` is due."""
        return self._timers.deadline()

    def on_deadline(self, now: float) -> list[Command]:
        """Return the commands that are due; harmless before ``deadline()``."""
        for key in self._timers.due(now):
            match key:
                case _Timer.PROBE:
                    self._out.append(Probe())
                case _Timer.START:
                    self._start()
                case _StillAlive(slot):
                    self._broken(slot, "it closed a connection, and lives on")
                case _:
                    self._log(f"it did not accept a connection within {START_SECONDS:g} s")
                    self._kill(None)
        return self._hand_in()

    def handle(self, event: Event, now: float) -> list[Command]:
        """Process an event; return the commands to carry out, in order."""
        match event:
            case RequestArrived(slot, request):
                assert slot not in self._flights, "one request at a time for each slot"
                self._flights[slot] = _Flight(request)
                if self.state is ProcessState.DOWN and _Timer.START not in self._timers:
                    self._start()
            case EndAsked(slot, hard):
                self._end(slot, hard=hard)
            case ProcessStarted():
                self._timers.set(_Timer.PROBE, now + PROBE_SECONDS)
                self._timers.set(_Timer.GIVE_UP, now + START_SECONDS)
            case ProcessNotStarted(error, missing):
                self._not_started(error, missing=missing, now=now)
            case Probed(accepts):
                self._probed(accepts=accepts, now=now)
            case OutcomeReceived(slot, answer):
                self._outcome_received(slot, answer)
            case HungUp(slot):
                # The flight was not sent: the connection is left from an earlier request.
                if (
                    slot in self._flights
                    and self._flights[slot].sent
                    and self.state is ProcessState.UP
                ):
                    self._timers.set(_StillAlive(slot), now + DYING_SECONDS)
            case Broken(slot, why):
                self._broken(slot, why)
            case ProcessEnded(why, works):
                self._ended(why, now, works=works)
            case _:
                assert_never(event)
        self._send_what_may_go()
        return self._hand_in()

    # --- requests -----------------------------------------------------------------------------

    def _send_what_may_go(self) -> None:
        if self.state is not ProcessState.UP:
            return
        waiting = [(slot, flight) for slot, flight in self._flights.items() if not flight.sent]
        if not waiting:
            return
        running = [flight for flight in self._flights.values() if flight.sent]
        if self._suspects and any(self._is_suspect(flight) for flight in running):
            return
        for slot, flight in waiting:
            if self._is_suspect(flight):
                if running:
                    return  # No other request overtakes a suspect, or it would never be alone.
                self._send(slot, flight)
                return
            self._send(slot, flight)
            running.append(flight)

    def _send(self, slot: int, flight: _Flight) -> None:
        flight.sent = True
        self._out.append(SendRequest(slot, flight.request))

    def _is_suspect(self, flight: _Flight) -> bool:
        return flight.request.job_id in self._suspects

    def _outcome_received(self, slot: int, answer: wire.RequestOutcome) -> None:
        named = slot if answer.request_id is None else self._slot_of(answer.request_id)
        flight = self._flights.get(named) if named is not None else None
        if flight is None or not flight.sent:
            self._broken(slot, f"it answered {str(answer.request_id)[:80]!r}, which nobody asked")
            return
        assert named is not None
        self._suspects.clear_of(flight.request.job_id)
        self._answer(named, to_outcome(answer))

    def _slot_of(self, request_id: str) -> int | None:
        found = (s for s, f in self._flights.items() if f.request.request_id == request_id)
        return next(found, None)

    def _end(self, slot: int, *, hard: bool) -> None:
        flight = self._flights.get(slot)
        if flight is None:
            return
        if not flight.sent:
            self._answer(
                slot, Outcome(OutcomeKind.RETRY, "it was not started: no executor was free")
            )
        elif hard:
            self._log(f"it did not end {flight.request.job_id} in time, and is killed")
            self._kill(slot)
        elif not flight.cancelled:
            flight.cancelled = True
            request = flight.request
            cancel = wire.CancelRequest(request.job_id, request.request_id, False, self._version)
            self._out.append(SendCancel(cancel))

    def _broken(self, slot: int, why: str) -> None:
        self._log(why)
        if slot in self._flights and self.state is ProcessState.UP:
            # The request may still be running: only the death of the process lets another one
            # begin.
            self._kill(slot)

    def _answer(self, slot: int, outcome: Outcome, *, unusable: bool = False) -> None:
        del self._flights[slot]
        self._timers.cancel(_StillAlive(slot))
        self._out.append(SlotAnswer(slot, outcome, unusable))

    # --- the process --------------------------------------------------------------------------

    def _start(self) -> None:
        self.state = ProcessState.STARTING
        self._out.append(StartProcess())

    def _kill(self, culprit: int | None) -> None:
        if self.state in (ProcessState.STARTING, ProcessState.UP):
            self.state, self._culprit = ProcessState.ENDING, culprit
            self._forget_timers()
            self._out.append(Kill())

    def _not_started(self, error: str, *, missing: bool, now: float) -> None:
        self.state = ProcessState.DOWN
        if missing:
            self._give_up(error)
            return
        self._log(f"it cannot be started: {error}")
        self._timers.set(_Timer.START, now + AGAIN_SECONDS_MAX)
        self._release_waiting(error)

    def _probed(self, *, accepts: bool, now: float) -> None:
        if self.state is not ProcessState.STARTING:
            return
        if not accepts:
            self._timers.set(_Timer.PROBE, now + PROBE_SECONDS)
            return
        self.state, self._was_up, self._failed_starts = ProcessState.UP, True, 0
        self._forget_timers()

    def _ended(self, why: str, now: float, *, works: bool) -> None:
        killed, before = self.state is ProcessState.ENDING, self.state
        self.state = ProcessState.DOWN
        self._forget_timers()
        self._blame(why, killed=killed)
        self._culprit = None
        if before is ProcessState.STARTING or (killed and not self._was_up):
            self._failed_starts += 1
        if self._failed_starts >= STARTS_MAX:
            self._failed_starts = 0
            if not (self._was_up or works):
                self._give_up(f"the executor ended before it accepted a connection: {why}")
                return
            self._release_waiting(f"the executor does not start: {why}")
        delay = AGAIN_SECONDS * 2.0**self._failed_starts if self._failed_starts else 0.0
        if self._flights or self._failed_starts:
            self._timers.set(_Timer.START, now + min(delay, AGAIN_SECONDS_MAX))

    def _blame(self, why: str, *, killed: bool) -> None:
        """Answer the requests that were in the process when it died."""
        dead = [(slot, flight) for slot, flight in self._flights.items() if flight.sent]
        for slot, flight in dead:
            if killed:
                guilty = slot == self._culprit
            else:
                guilty = len(dead) == 1
                if not guilty:
                    self._suspects.add(flight.request.job_id)
            if guilty:
                self._answer(slot, Outcome(OutcomeKind.ERROR, f"the executor ended: {why}"))
            else:
                text = f"the executor ended, maybe because of another job: {why}"
                self._answer(slot, Outcome(OutcomeKind.RETRY, text, 0.0))
        if dead or not killed:
            self._log(f"it ended with {len(dead)} requests in it: {why}")

    def _release_waiting(self, why: str) -> None:
        for slot in [s for s, f in self._flights.items() if not f.sent]:
            self._answer(slot, Outcome(OutcomeKind.RETRY, why))

    def _give_up(self, why: str) -> None:
        for slot in list(self._flights):
            self._answer(slot, Outcome(OutcomeKind.CANCELLED, why), unusable=True)

    def _forget_timers(self) -> None:
        for key in _Timer:
            self._timers.cancel(key)

    def _log(self, text: str) -> None:
        self._out.append(ExecutorLog(text))

    def _hand_in(self) -> list[Command]:
        commands, self._out = self._out, []
        return commands
