"""Mirrors ``runtime/loop.Loop``: journal first, then what depends on it. Read them side by side."""

from __future__ import annotations

import errno
from collections import deque
from typing import TYPE_CHECKING, assert_never

from beads_workers.core.records.journal import Requeued
from beads_workers.core.schedule.commands import (
    Answer,
    Command,
    End,
    HangUp,
    KillWorker,
    ReadUsage,
    RoundTrip,
    Send,
    Spawn,
    StartLander,
    SyncJournal,
    TellGuard,
    TellLander,
    WatchOwner,
    Write,
)
from beads_workers.core.schedule.events import Event, OwnerGone
from tests.simulation.journal import DISK_RETRY_SECONDS

if TYPE_CHECKING:
    from tests.simulation.nodes import Node


class Loop:
    """``turn`` is one round of the real loop; whoever tells it something wakes it."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._world = node.world
        self._core = node.core
        self._journal = node.journal
        self._outside: list[Command] = []
        self._events: deque[Event] = deque()
        self._disk_full = False
        self._woken = False
        self._timer: float | None = None
        self._heard = False
        self.ended: End | None = None

    def tell(self, event: Event) -> None:
        """Queue an event for the core; wakes the loop."""
        self._events.append(event)
        self.wake()

    def queue(self, event: Event) -> None:
        """Queue it; whoever does wakes the loop."""
        self._events.append(event)

    def wake(self) -> None:
        """Something may have to be done."""
        self._wake(self._world.delay())

    def begin(self) -> None:
        """``Loop.run``, as far as its first wait."""
        self._perform(self._core.start(self._world.agenda.now))
        self._turn()

    def _wake(self, seconds: float) -> None:
        if not self._woken:
            self._woken = True
            self._node.process.later(seconds, self._round)

    def _round(self) -> None:
        self._woken = False
        if self.ended is not None:
            return
        self._turn()

    def _turn(self) -> None:
        while True:
            self._heard = self._heard or bool(self._events)
            while self._events:
                event = self._events.popleft()
                if self._world.verbose:
                    self._world.log(f"{self._node.run_id} >> {event}")
                self._node.handles(event)
                self._perform(self._core.handle(event, *self._clocks(), more=True))
            if not self._act():
                break
            if self._heard:
                self._heard = False
                self._perform(self._core.after_events(*self._clocks()))
            # After what was heard: who was frozen together with us has spoken in time.
            deadline, now = self._core.deadline(), self._world.agenda.now
            if deadline is not None and now >= deadline:
                self._perform(self._core.on_deadline(*self._clocks()))
            if not self._act() or not self._events:
                break
        self._node.flush_ingress()
        self._world.check.turn_over(self._node)
        if self.ended is not None:
            self._node.loop_ended(self.ended)
            return
        self._set_timer()

    def _clocks(self) -> tuple[float, ...]:
        return (self._world.agenda.now,)

    def _act(self) -> bool:
        if self._world.mutant.acts_first:
            self._carry_out_all()
        if not self._write_journal():
            return False
        self._carry_out_all()
        return True

    def _carry_out_all(self) -> None:
        outside, self._outside = self._outside, []
        for command in outside:
            self._carry_out(command)

    def _set_timer(self) -> None:
        if self._disk_full:
            self._wake(DISK_RETRY_SECONDS)
            return
        due = self._core.deadline()
        if due is None or (self._timer is not None and self._timer <= due):
            return
        self._timer = due
        self._node.process.later(max(0.0, due - self._world.agenda.now), lambda: self._due(due))

    def _due(self, due: float) -> None:
        if self._timer == due:
            self._timer = None
        self._round()

    def _perform(self, commands: list[Command]) -> None:
        for command in commands:
            if isinstance(command, Write):
                if self._world.mutant.writes_no_requeued and isinstance(command.record, Requeued):
                    continue
                self._node.decided(command.record)
                entry = self._journal.append(command.record)
                if self._world.verbose:
                    self._world.log(f"{self._node.run_id} << {entry.record}")
            else:
                if isinstance(command, RoundTrip):
                    self._node.asked_for(command)
                self._world.check.asks(self._node, command)
                self._outside.append(command)
        if self._journal.folds is not None:
            self._journal.folds.believed(self._core, self._world.agenda.now)

    def _write_journal(self) -> bool:
        try:
            self._journal.flush()
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            self._disk_full = True
            return False
        self._disk_full = False
        return True

    def _carry_out(self, command: Command) -> None:
        if self._world.verbose and not isinstance(command, Answer):
            self._world.log(f"{self._node.run_id} << {command}")
        self._world.point("before an action")
        match command:
            case Send(conn_id, _, message):
                self._world.check.about_to_say(self._node, message)
                if (link := self._node.links.get(conn_id)) is not None:
                    link.tell(message)
            case RoundTrip():
                self._node.tracker_thread.begin(command)
            case SyncJournal():
                self._node.tracker_thread.sync()
            case HangUp(conn_id, reason):
                self._node.hang_up(conn_id, reason)
            case Spawn(worker_id):
                self._node.spawn(worker_id)
            case KillWorker(_, pid):
                self._node.kill(pid)
            case WatchOwner(pid):
                self._watch_owner(pid)
            case TellGuard():
                self._node.tell_guard(command)
            case ReadUsage():
                if (found := self._node.read_usage(command)) is not None:
                    self.tell(found)
            case StartLander():
                self._node.start_lander()
            case TellLander(order):
                self._node.tell_lander(order)
            case Answer():
                pass
            case End():
                self.ended = command
            case Write():
                raise AssertionError("records are written before")
            case _:
                assert_never(command)
        self._world.point("after an action")

    def _watch_owner(self, pid: int) -> None:
        process = self._world.processes.get(pid)
        if process is None:
            self.tell(OwnerGone(pid))
        else:
            process.at_death.append(lambda: self.tell(OwnerGone(pid)))
