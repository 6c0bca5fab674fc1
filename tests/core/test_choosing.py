"""PRIORITY: a worker gets only what it takes, and keeps nothing from others."""

from __future__ import annotations

import pytest

from beads_workers.core.base import limits
from beads_workers.core.base.model import IssueId, Job
from beads_workers.core.base.source import Action
from beads_workers.core.base.states import ConnState, RunState
from beads_workers.core.base.wire import CANCEL, GROUPED, PRIORITY, Priority, Ready, Task, Wait
from beads_workers.core.schedule import events as ev
from beads_workers.core.schedule.commands import Command, RoundTrip, Send
from beads_workers.core.schedule.events import ConnId
from tests.core.playbook import Play, done, job, notes, of, ready, sent_messages, task_of

URGENT = Priority(priorities=frozenset({0, 1}))


def asks(conn: int) -> ev.Received:
    """READY of a worker that may choose."""
    return ev.Received(ConnId(conn), Ready("w", "1.1", frozenset({GROUPED, CANCEL, PRIORITY})))


def wants(conn: int, wanted: Priority) -> ev.Received:
    """PRIORITY."""
    return ev.Received(ConnId(conn), wanted)


def choosy(*wanted: Priority) -> Play:
    """Worker 1 has said what it takes, and waits for its reply."""
    play = Play()
    play.connect(1)
    play.do(asks(1), *(wants(1, each) for each in wanted))
    return play


class Backlog:
    """A tracker with these issues, asked for as long as anybody asks. ``commands``: its own."""

    def __init__(self, play: Play, *jobs: Job) -> None:
        self.play, self.free = play, {each.issue_id: each for each in jobs}
        self.commands: list[Command] = []

    def go(self, seconds: float = 10.0) -> list[str]:
        """Let time pass; the issues that were sent meanwhile, with the worker: ``1:a``."""
        began = len(self.commands)
        until = self.play.now + seconds
        while self.play.now < until:
            for _ in range(10):
                if self.play.round_trip is not None:
                    self.commands += self._answer(self.play.round_trip)
            self.commands += self.play.wait(0.5)
            for number in (1, 2):
                waits = [
                    m for m in sent_messages(self.commands[began:], number) if isinstance(m, Wait)
                ]
                connection = self.play.core._parts.registry.get(ConnId(number))
                if waits and connection and connection.state is ConnState.IDLE:
                    again = asks(number) if connection.abilities.priority else ready(number)
                    self.commands += self.play.do(again)
        sent = [c for c in of(self.commands[began:], Send) if isinstance(c.message, Task)]
        return [f"{c.conn_id}:{c.message.issue_id}" for c in sent if isinstance(c.message, Task)]

    def _answer(self, asked: RoundTrip) -> list[Command]:
        back = [s.issue_id for s in asked.settlements if s.action is Action.RELEASE]
        self.free |= {i: job(i, 2) for i in back}
        ready_now = sorted(self.free.values(), key=lambda each: each.priority)
        chosen = [each for each in ready_now if each.issue_id not in asked.skip]
        chosen = chosen[: asked.take or 0]
        for each in chosen:
            del self.free[each.issue_id]
        return self.play.answer(*chosen, listed=self.free.keys() - asked.skip)


@pytest.mark.parametrize(
    ("wanted", "fits"),
    [
        (Priority(), True),
        (Priority(priorities=frozenset({1, 2})), True),
        (Priority(priorities=frozenset({0})), False),
        (Priority(priorities=frozenset()), False),
        (Priority(labels=frozenset({"x", "b"})), True),
        (Priority(labels=frozenset({"x"})), False),
        (Priority(issue_types=frozenset({"bug"})), True),
        (Priority(issue_types=frozenset({"task"})), False),
        (Priority(frozenset({2}), frozenset({"a"}), frozenset({"bug"})), True),
        (Priority(frozenset({2}), frozenset({"a"}), frozenset({"task"})), False),
    ],
)
def test_a_task_has_to_fit_every_field_that_is_there(wanted: Priority, fits: bool) -> None:
    assert wanted.accepts(job("i", 2, labels=("a", "b"), issue_type="bug")) is fits
    play = choosy(wanted)
    commands = play.answer(job("i", 2, labels=("a", "b"), issue_type="bug"))
    assert (task_of(commands, 1) == "i") is fits


def test_it_gets_what_fits_whatever_comes_before_that() -> None:
    play = choosy(Priority(labels=frozenset({"x"})))
    tracker = Backlog(play, job("a", 0), job("b", 3, labels=("x",)), job("c", 1))
    assert tracker.go() == ["1:b"]
    assert {"a", "c"} == set(tracker.free), "and nobody is kept from the others"
    assert not any(isinstance(each, Wait) for each in sent_messages(tracker.commands, 1))


def test_what_it_does_not_take_goes_to_others_at_once() -> None:
    play = choosy(URGENT)
    tracker = Backlog(play, job("low", 2), job("lower", 2))
    assert tracker.go() == []
    play.join(2)
    assert tracker.go(2.0) == ["2:low"]


def test_it_holds_until_the_next_one_and_one_without_fields_lifts_it() -> None:
    play = choosy(URGENT)
    tracker = Backlog(play, job("low", 2), job("high", 1))
    assert tracker.go() == ["1:high"]
    play.do(done(1, "high"), asks(1))
    assert tracker.go() == []
    play.do(wants(1, Priority()))
    assert tracker.go() == ["1:low"]


def test_it_is_looked_at_again_after_a_while() -> None:
    play = choosy(URGENT)
    tracker = Backlog(play, job("was-low", 2))
    assert tracker.go() == []
    tracker.free = {IssueId("was-low"): job("was-low", 0)}
    assert tracker.go(limits.UNWANTED_SECONDS - 20.0) == []
    assert tracker.go(30.0) == ["1:was-low"]


def test_what_a_busy_worker_takes_next_is_kept_for_it() -> None:
    play = Play()
    play.join(1)
    assert task_of(play.answer("quick")) == "quick"
    play.now += 0.05
    play.do(done(1, "quick"), ready(1))
    play.connect(2)
    play.do(asks(2), wants(2, URGENT))
    tracker = Backlog(play, *(job(f"j{n}", 2) for n in range(9)))
    assert tracker.go(1.0) == ["1:j0"]
    assert len(tracker.free) < 8, "it is back in a moment"
    assert task_of(play.do(done(1, "j0"), ready(1)), 1) == "j1"


def test_a_run_until_empty_waits_for_somebody_who_takes_it() -> None:
    play = Play(until_empty=True)
    play.connect(1)
    play.do(asks(1), wants(1, URGENT))
    assert Backlog(play, job("low", 2)).go(60.0) == []
    assert play.ended is None and play.core.state is RunState.RUNNING


def test_it_may_come_before_the_first_ready() -> None:
    play = Play()
    play.connect(1)
    play.do(wants(1, URGENT), asks(1))
    assert Backlog(play, job("low", 2), job("high", 1)).go() == ["1:high"]


def test_who_has_not_announced_it_is_given_everything() -> None:
    play = Play()
    play.join(1)
    assert len(notes(play.do(wants(1, URGENT)), "error")) == 1
    assert task_of(play.answer(job("low", 4)), 1) == "low"
