"""One executor process and the requests in it: events and the time in, commands out.

It is started when it is first needed, and again when it has died. Each slot has one request at a
time and a connection of its own. Who is to blame for a death is charged, and nobody else: when it
was one of several, they are all suspects, and each is alone in the process when it runs next.

Source: docs/PROTOCOL.md, "RRQ executors". Times are monotonic seconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import assert_never

from beads_workers.core.outcomes import Outcome, OutcomeKind
from beads_workers.core.timers import Timers
from beads_workers.executors.rrq.driving_events import (
    Answer,
    Asked,
    Broken,
    Command,
    EndAsked,
    Event,
    Heard,
    HungUp,
    Kill,
    Log,
    Probe,
    Probed,
    ProcessEnded,
    ProcessNotStarted,
    ProcessStarted,
    Send,
    SendCancel,
    StartProcess,
)
from beads_workers.executors.rrq.suspects import Suspects
from beads_workers.executors.rrq.translating import to_outcome
from beads_workers.protocols.rrq import envelopes as wire

PROBE_SECONDS = 0.05
"""Between the tries to connect to one that is starting; the real ones take 0.3 s and more."""
DYING_SECONDS = 2.0
"""A process that dies hangs up first: only one that still lives then hung up on purpose."""
START_SECONDS = 60.0
"""One that does not accept by then never will."""
STARTS_MAX = 3
"""Deaths before it ever accepted a connection: after so many in a row it is given up."""
AGAIN_SECONDS, AGAIN_SECONDS_MAX = 0.5, 30.0


class State(Enum):
    """Of the process."""

    DOWN = "there is none"
    STARTING = "it runs, or is about to, and does not accept connections yet"
    UP = "it accepts connections"
    ENDING = "it was killed"


@dataclass(slots=True)
class _Flight:
    """A request that is not answered. ``sent``: the executor has it."""

    request: wire.Request
    sent: bool = False
    cancelled: bool = False


class _Timer(Enum):
    PROBE = "try to connect"
    GIVE_UP = "it has had its time to start"
    START = "start it again"


@dataclass(frozen=True, slots=True)
class _StillAlive:
    """Timer key: it hung up on this slot's request, and should have died by now."""

    slot: int


class Executor:
    """See the module text. ``version`` is what the process speaks."""

    def __init__(self, version: str) -> None:
        self.state = State.DOWN
        self._version = version
        self._flights: dict[int, _Flight] = {}
        self._suspects = Suspects()
        self._timers = Timers()
        self._out: list[Command] = []
        self._was_up = False
        self._failed_starts = 0
        self._culprit: int | None = None
        """The slot because of which we killed it."""

    def deadline(self) -> float | None:
        """When ``on_deadline`` is due."""
        return self._timers.deadline()

    def on_deadline(self, now: float) -> list[Command]:
        """Call when ``deadline()`` has passed; harmless when it has not."""
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
        """Tell it what happened; carry out what it answers, in order."""
        match event:
            case Asked(slot, request):
                assert slot not in self._flights, "one request at a time for each slot"
                self._flights[slot] = _Flight(request)
                if self.state is State.DOWN and _Timer.START not in self._timers:
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
            case Heard(slot, answer):
                self._heard(slot, answer)
            case HungUp(slot):
                # The connection of one that was not sent was left from an earlier request.
                if slot in self._flights and self._flights[slot].sent and self.state is State.UP:
                    self._timers.set(_StillAlive(slot), now + DYING_SECONDS)
            case Broken(slot, why):
                self._broken(slot, why)
            case ProcessEnded(why):
                self._ended(why, now)
            case _:
                assert_never(event)
        self._send_what_may_go()
        return self._hand_in()

    # --- requests -----------------------------------------------------------------------------

    def _send_what_may_go(self) -> None:
        if self.state is not State.UP:
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
                    return  # Nobody overtakes it, or it would never be alone.
                self._send(slot, flight)
                return
            self._send(slot, flight)
            running.append(flight)

    def _send(self, slot: int, flight: _Flight) -> None:
        flight.sent = True
        self._out.append(Send(slot, flight.request))

    def _is_suspect(self, flight: _Flight) -> bool:
        return flight.request.job_id in self._suspects

    def _heard(self, slot: int, answer: wire.Outcome) -> None:
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
            self._answer(slot, Outcome(OutcomeKind.RETRY, "it was not begun: no executor was free"))
        elif hard:
            self._log(f"it did not end {flight.request.job_id} in time, and is killed")
            self._kill(slot)
        elif not flight.cancelled:
            flight.cancelled = True
            request = flight.request
            cancel = wire.Cancel(request.job_id, request.request_id, False, self._version)
            self._out.append(SendCancel(cancel))

    def _broken(self, slot: int, why: str) -> None:
        self._log(why)
        if slot in self._flights and self.state is State.UP:
            # It may still be at it: only its death lets another one begin.
            self._kill(slot)

    def _answer(self, slot: int, outcome: Outcome, *, unusable: bool = False) -> None:
        del self._flights[slot]
        self._timers.cancel(_StillAlive(slot))
        self._out.append(Answer(slot, outcome, unusable))

    # --- the process --------------------------------------------------------------------------

    def _start(self) -> None:
        self.state = State.STARTING
        self._out.append(StartProcess())

    def _kill(self, culprit: int | None) -> None:
        if self.state in (State.STARTING, State.UP):
            self.state, self._culprit = State.ENDING, culprit
            self._forget_timers()
            self._out.append(Kill())

    def _not_started(self, error: str, *, missing: bool, now: float) -> None:
        self.state = State.DOWN
        if missing:
            self._give_up(error)
            return
        self._log(f"it cannot be started: {error}")
        self._timers.set(_Timer.START, now + AGAIN_SECONDS_MAX)
        self._release_waiting(error)

    def _probed(self, *, accepts: bool, now: float) -> None:
        if self.state is not State.STARTING:
            return
        if not accepts:
            self._timers.set(_Timer.PROBE, now + PROBE_SECONDS)
            return
        self.state, self._was_up, self._failed_starts = State.UP, True, 0
        self._forget_timers()

    def _ended(self, why: str, now: float) -> None:
        killed, before = self.state is State.ENDING, self.state
        self.state = State.DOWN
        self._forget_timers()
        self._blame(why, killed=killed)
        self._culprit = None
        if before is State.STARTING or (killed and not self._was_up):
            self._failed_starts += 1
        if self._failed_starts >= STARTS_MAX:
            self._failed_starts = 0
            if not self._was_up:
                self._give_up(f"the executor ended before it accepted a connection: {why}")
                return
            self._release_waiting(f"the executor does not start: {why}")
        delay = AGAIN_SECONDS * 2.0**self._failed_starts if self._failed_starts else 0.0
        if self._flights or self._failed_starts:
            self._timers.set(_Timer.START, now + min(delay, AGAIN_SECONDS_MAX))

    def _blame(self, why: str, *, killed: bool) -> None:
        """Answer those that were in it when it died."""
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
        self._out.append(Log(text))

    def _hand_in(self) -> list[Command]:
        commands, self._out = self._out, []
        return commands
