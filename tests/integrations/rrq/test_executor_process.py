"""One executor process and the requests in it: who is sent when, and who is to blame."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from beads_workers.core.base.model import Outcome, OutcomeKind
from beads_workers.integrations.rrq import executor_process as ev
from beads_workers.integrations.rrq import wire
from tests.support.shares import examples

OK = wire.RequestStatus.SUCCESS


def request(number: int, job: str | None = None) -> wire.Request:
    job_id = job or f"j{number}"
    return wire.Request(f"r{number}", job_id, "f", wire.RequestContext(job_id, 1, 0.0, "q"))


def answer(number: int, status: wire.RequestStatus = OK) -> wire.RequestOutcome:
    return wire.RequestOutcome(status, f"r{number}", f"j{number}", result=number)


class Play:
    """An executor and its clock; what it asks for is returned."""

    def __init__(self) -> None:
        self.now = 100.0
        self.executor = ev.ExecutorProcess(wire.V1)

    def tell(self, event: ev.Event) -> list[ev.Command]:
        return self.executor.handle(event, self.now)

    def tick(self, seconds: float) -> list[ev.Command]:
        self.now += seconds
        return self.executor.on_deadline(self.now)

    def up(self) -> None:
        """Have it started and accepting, with nothing in it."""
        assert self.tell(ev.RequestArrived(9, request(9))) == [ev.StartProcess()]
        self.tell(ev.ProcessStarted())
        assert self.tick(ev.PROBE_SECONDS) == [ev.Probe()]
        assert self.tell(ev.Probed(True)) == [ev.SendRequest(9, request(9))]
        self.tell(ev.OutcomeReceived(9, answer(9)))

    def sent(self, *numbers: int) -> None:
        for number in numbers:
            asked = request(number)
            assert self.tell(ev.RequestArrived(number, asked)) == [ev.SendRequest(number, asked)]


@pytest.fixture
def play() -> Play:
    return Play()


@pytest.fixture
def up() -> Play:
    play = Play()
    play.up()
    return play


def answers(commands: Sequence[ev.Command]) -> dict[int, OutcomeKind]:
    return {c.slot: c.outcome.kind for c in commands if isinstance(c, ev.SlotAnswer)}


def test_it_is_started_when_it_is_needed_and_asked_once_it_accepts(play: Play) -> None:
    assert play.tell(ev.RequestArrived(1, request(1))) == [ev.StartProcess()]
    assert play.tell(ev.RequestArrived(2, request(2))) == []
    assert play.tell(ev.ProcessStarted()) == []
    assert play.tick(ev.PROBE_SECONDS) == [ev.Probe()]
    assert play.tell(ev.Probed(False)) == []
    assert play.tick(ev.PROBE_SECONDS) == [ev.Probe()]
    assert play.tell(ev.Probed(True)) == [
        ev.SendRequest(1, request(1)),
        ev.SendRequest(2, request(2)),
    ]
    assert play.executor.deadline() is None


def test_answers_may_come_in_any_order_and_on_any_connection(up: Play) -> None:
    up.sent(1, 2, 3)
    assert up.tell(ev.OutcomeReceived(1, answer(3))) == [
        ev.SlotAnswer(3, Outcome(OutcomeKind.SUCCESS, result="3"))
    ]
    assert answers(up.tell(ev.OutcomeReceived(2, answer(1)))) == {1: OutcomeKind.SUCCESS}
    unnamed = wire.RequestOutcome(OK, None, None)
    assert answers(up.tell(ev.OutcomeReceived(2, unnamed))) == {2: OutcomeKind.SUCCESS}


def test_a_cancel_goes_out_once_and_its_answer_is_passed_on(up: Play) -> None:
    up.sent(1)
    assert up.tell(ev.EndAsked(1, hard=False)) == [ev.SendCancel(wire.CancelRequest("j1", "r1"))]
    assert up.tell(ev.EndAsked(1, hard=False)) == []
    cancelled = wire.ErrorInfo("Job cancelled", wire.CANCELLED)
    said = wire.RequestOutcome(wire.RequestStatus.ERROR, "r1", "j1", error=cancelled)
    assert up.tell(ev.OutcomeReceived(1, said)) == [
        ev.SlotAnswer(1, Outcome(OutcomeKind.ERROR, "cancelled: Job cancelled"))
    ]
    assert up.tell(ev.EndAsked(1, hard=True)) == []


def test_what_was_not_sent_is_cancelled_at_once(play: Play) -> None:
    play.tell(ev.RequestArrived(1, request(1)))
    assert answers(play.tell(ev.EndAsked(1, hard=False))) == {1: OutcomeKind.RETRY}


def test_one_that_ignores_a_cancel_is_killed_and_only_it_is_to_blame(up: Play) -> None:
    up.sent(1, 2)
    up.tell(ev.EndAsked(1, hard=False))
    assert ev.Kill() in up.tell(ev.EndAsked(1, hard=True))
    assert up.tell(ev.RequestArrived(3, request(3))) == []
    told = up.tell(ev.ProcessEnded("killed"))
    assert answers(told) == {1: OutcomeKind.ERROR, 2: OutcomeKind.RETRY}
    assert up.tick(0) == [ev.StartProcess()]


def test_one_that_dies_with_a_single_request_is_its_fault(up: Play) -> None:
    up.sent(1)
    assert answers(up.tell(ev.ProcessEnded("exit status 1"))) == {1: OutcomeKind.ERROR}
    assert up.executor.deadline() is None, "it is started again when it is needed"


def test_suspects_run_alone_until_one_of_them_is_found_guilty(up: Play) -> None:
    up.sent(1, 2)
    told = up.tell(ev.ProcessEnded("killed by signal SEGV"))
    assert answers(told) == {1: OutcomeKind.RETRY, 2: OutcomeKind.RETRY}
    up.tell(ev.RequestArrived(3, request(3)))
    up.tell(ev.RequestArrived(1, request(11, "j1")))
    up.tell(ev.RequestArrived(2, request(12, "j2")))
    up.tell(ev.RequestArrived(4, request(4)))
    up.tell(ev.ProcessStarted())
    assert up.tell(ev.Probed(True)) == [ev.SendRequest(3, request(3))]
    assert up.tell(ev.OutcomeReceived(3, answer(3)))[1:] == [ev.SendRequest(1, request(11, "j1"))]
    assert answers(up.tell(ev.ProcessEnded("SEGV"))) == {1: OutcomeKind.ERROR}
    up.tick(0)
    up.tell(ev.ProcessStarted())
    assert up.tell(ev.Probed(True)) == [ev.SendRequest(2, request(12, "j2"))]
    # Its innocence is proven: from now on it may run among others.
    assert up.tell(ev.OutcomeReceived(2, wire.RequestOutcome(OK, "r12", "j2")))[1:] == [
        ev.SendRequest(4, request(4))
    ]


def test_a_broken_connection_costs_the_process_and_charges_its_own_request(up: Play) -> None:
    up.sent(1, 2)
    assert ev.Kill() in up.tell(ev.Broken(1, "an empty frame"))
    told = up.tell(ev.ProcessEnded("killed"))
    assert answers(told) == {1: OutcomeKind.ERROR, 2: OutcomeKind.RETRY}


def test_a_connection_that_breaks_with_nothing_on_it_costs_nothing(up: Play) -> None:
    assert not any(isinstance(c, ev.Kill) for c in up.tell(ev.Broken(1, "closed")))


def test_one_that_hangs_up_and_dies_is_judged_by_its_death_alone(up: Play) -> None:
    up.sent(1, 2)
    assert up.tell(ev.HungUp(1)) == up.tell(ev.HungUp(2)) == []
    told = up.tell(ev.ProcessEnded("SEGV"))
    assert answers(told) == {1: OutcomeKind.RETRY, 2: OutcomeKind.RETRY}
    assert up.executor.deadline() is None, "nothing is waited for any more"


def test_one_that_hangs_up_and_lives_on_is_killed_because_of_that_request(up: Play) -> None:
    up.sent(1, 2)
    up.tell(ev.HungUp(1))
    assert up.tick(ev.DYING_SECONDS / 2) == []
    assert ev.Kill() in up.tick(ev.DYING_SECONDS / 2)
    told = up.tell(ev.ProcessEnded("killed"))
    assert answers(told) == {1: OutcomeKind.ERROR, 2: OutcomeKind.RETRY}


def test_an_idle_connection_that_ends_is_no_matter_of_the_request_that_waits(up: Play) -> None:
    up.sent(1, 2)
    up.tell(ev.ProcessEnded("SEGV"))
    up.tell(ev.RequestArrived(1, request(11, "j1")))
    up.tell(ev.ProcessStarted())
    assert up.tell(ev.Probed(True)) == [ev.SendRequest(1, request(11, "j1"))]
    up.tell(ev.RequestArrived(3, request(3)))
    assert up.tell(ev.HungUp(3)) == [], "it waits until the suspect has been answered"
    up.tell(ev.ProcessEnded("SEGV"))
    up.tick(0)
    up.tell(ev.ProcessStarted())
    assert up.tell(ev.Probed(True)) == [ev.SendRequest(3, request(3))]
    assert up.tick(10 * ev.DYING_SECONDS) == []


def test_an_answer_that_comes_while_it_dies_still_counts(up: Play) -> None:
    up.sent(1)
    up.tell(ev.HungUp(1))
    assert answers(up.tell(ev.OutcomeReceived(1, answer(1)))) == {1: OutcomeKind.SUCCESS}
    assert up.tick(ev.DYING_SECONDS) == []


def test_an_answer_that_nobody_asked_for_breaks_its_connection(up: Play) -> None:
    up.sent(1)
    assert ev.Kill() in up.tell(ev.OutcomeReceived(1, answer(77)))


def test_one_that_never_accepts_is_killed_and_given_up_after_some_tries(play: Play) -> None:
    play.tell(ev.RequestArrived(1, request(1)))
    for attempt in range(ev.STARTS_MAX):
        play.tell(ev.ProcessStarted())
        told = play.tick(ev.START_SECONDS)
        assert ev.Kill() in told
        told = play.tell(ev.ProcessEnded("killed"))
        if attempt + 1 < ev.STARTS_MAX:
            assert answers(told) == {}
            assert play.tick(ev.AGAIN_SECONDS_MAX) == [ev.StartProcess()]
    last = [c for c in told if isinstance(c, ev.SlotAnswer)]
    assert [(a.slot, a.unusable) for a in last] == [(1, True)]


def test_a_program_that_is_missing_is_given_up_at_once(play: Play) -> None:
    play.tell(ev.RequestArrived(1, request(1)))
    told = play.tell(ev.ProcessNotStarted("command not found: nope", missing=True))
    assert told == [
        ev.SlotAnswer(1, Outcome(OutcomeKind.CANCELLED, "command not found: nope"), unusable=True)
    ]


def test_a_full_machine_gives_the_work_back_and_tries_again(play: Play) -> None:
    play.tell(ev.RequestArrived(1, request(1)))
    told = play.tell(ev.ProcessNotStarted("no process left", missing=False))
    assert answers(told) == {1: OutcomeKind.RETRY}
    assert play.tick(ev.AGAIN_SECONDS_MAX) == [ev.StartProcess()]


class Driven(RuleBasedStateMachine):
    """Any order of events: each request is answered once, and suspects are never in company."""

    @initialize()
    def begin(self) -> None:
        self.play = Play()
        self.open: dict[int, wire.Request] = {}
        self.inside: dict[int, wire.Request] = {}
        self.process = "none"
        self.number = 10
        self.suspects: set[str] = set()
        self.play.up()
        self.process = "up"

    def done(self, commands: list[ev.Command]) -> None:
        for command in commands:
            match command:
                case ev.SlotAnswer(slot, _, _):
                    asked = self.open.pop(slot)
                    self.inside.pop(slot, None)
                    self.suspects.discard(asked.job_id) if self.process == "up" else None
                case ev.SendRequest(slot, asked):
                    assert self.process == "up" and self.open[slot] == asked
                    assert slot not in self.inside
                    self.inside[slot] = asked
                case ev.StartProcess():
                    assert self.process == "none"
                    self.process = "asked"
                case ev.Kill():
                    assert self.process in ("starting", "up")
                    self.process = "killed"
                case _:
                    pass

    @rule(slot=st.integers(0, 3), job=st.sampled_from(["a", "b"]))
    def ask(self, slot: int, job: str) -> None:
        if slot not in self.open:
            self.number += 1
            self.open[slot] = request(self.number, job)
            self.done(self.play.tell(ev.RequestArrived(slot, self.open[slot])))

    @precondition(lambda self: self.process == "asked")
    @rule(works=st.booleans())
    def start(self, *, works: bool) -> None:
        self.process = "starting" if works else "none"
        event = ev.ProcessStarted() if works else ev.ProcessNotStarted("full", missing=False)
        self.done(self.play.tell(event))

    @precondition(lambda self: self.process == "starting")
    @rule(accepts=st.booleans())
    def probe(self, *, accepts: bool) -> None:
        self.process = "up" if accepts else "starting"
        self.done(self.play.tell(ev.Probed(accepts)))

    @precondition(lambda self: self.inside and self.process == "up")
    @rule(data=st.data())
    def answer_one(self, data: st.DataObject) -> None:
        slot = data.draw(st.sampled_from(sorted(self.inside)))
        outcome = wire.RequestOutcome(OK, self.inside[slot].request_id, None)
        self.done(self.play.tell(ev.OutcomeReceived(slot, outcome)))

    @rule(slot=st.integers(0, 3), hard=st.booleans())
    def end(self, slot: int, *, hard: bool) -> None:
        self.done(self.play.tell(ev.EndAsked(slot, hard=hard)))

    @precondition(lambda self: self.process == "up" and len(self.inside) > 1)
    @rule()
    def crash_among_several(self) -> None:
        self.die()
        for slot in range(4):
            self.ask(slot, "ab"[slot % 2])
        self.tick(0.0)
        self.start(works=True)
        self.probe(accepts=True)

    @rule(slot=st.integers(0, 3))
    def hang_up(self, slot: int) -> None:
        self.done(self.play.tell(ev.HungUp(slot)))

    @rule(slot=st.integers(0, 3))
    def break_off(self, slot: int) -> None:
        self.done(self.play.tell(ev.Broken(slot, "an empty frame")))

    @precondition(lambda self: self.process in ("starting", "up", "killed"))
    @rule()
    def die(self) -> None:
        inside, killed, self.process = dict(self.inside), self.process == "killed", "none"
        if len(inside) > 1 and not killed:
            self.suspects |= {asked.job_id for asked in inside.values()}
        told = self.play.tell(ev.ProcessEnded("gone"))
        self.done(told)
        assert not self.inside
        lost = [s for s, kind in answers(told).items() if kind is OutcomeKind.ERROR]
        assert len(lost) <= 1, "at most one is to blame"

    @rule(seconds=st.sampled_from([0.0, ev.PROBE_SECONDS, ev.AGAIN_SECONDS_MAX, ev.START_SECONDS]))
    def tick(self, seconds: float) -> None:
        self.done(self.play.tick(seconds))

    @invariant()
    def suspects_are_alone(self) -> None:
        jobs = [asked.job_id for asked in getattr(self, "inside", {}).values()]
        assert len(jobs) <= 1 or not self.suspects & set(jobs)

    @invariant()
    def nothing_waits_for_nothing(self) -> None:
        if getattr(self, "open", {}) and self.process == "none":
            assert self.play.executor.deadline() is not None
        if getattr(self, "process", "") == "up":
            assert self.play.executor.state is ev.ProcessState.UP
            assert not self.open or self.inside


TestDriven = Driven.TestCase
TestDriven.settings = hypothesis_settings(
    max_examples=examples(60), stateful_step_count=40, deadline=None
)
