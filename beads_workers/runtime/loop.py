"""The one loop of the orchestrator: waits, tells the core, and carries out what it asks."""

from __future__ import annotations

import os
import selectors
import signal
import socket
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, assert_never

from beads_workers.core import limits
from beads_workers.core.commands import (
    Answer,
    Command,
    End,
    HangUp,
    KillWorker,
    RoundTrip,
    Send,
    Spawn,
    WatchOwner,
    Write,
)
from beads_workers.core.events import (
    ConditionRecovered,
    Degraded,
    Event,
    FatalError,
    OwnerGone,
    StopAsked,
)
from beads_workers.core.model import value
from beads_workers.core.orchestrator import Orchestrator
from beads_workers.core.settings import FleetSettings
from beads_workers.core.snapshot import Board
from beads_workers.core.states import RunState
from beads_workers.core.status import Frames, status
from beads_workers.runtime.control_socket import ControlServer, FiguresServer
from beads_workers.runtime.journal import DISK_FULL, DISK_RETRY_SECONDS, Journal, lost
from beads_workers.runtime.sessions import watch_exit
from beads_workers.runtime.sockets import next_look
from beads_workers.runtime.tracker_thread import TrackerThread
from beads_workers.runtime.worker_server import WorkerServer
from beads_workers.runtime.zygote_client import ZygoteClient
from beads_workers.trackers.settlement_rules import boot_seconds

if TYPE_CHECKING:
    from beads_workers.runtime.notifications import Notifier
    from beads_workers.runtime.sources import Ingress


# --- mailbox -------------------------------------------------------------------------------------
# Where events from other threads and from signal handlers wait for the loop.


class Mailbox:
    """Events from other threads and signal handlers; wakes the loop's selector."""

    def __init__(self, selector: selectors.BaseSelector, *, of_signals: bool = True) -> None:
        """``of_signals``: a signal wakes the loop as well; there is one such in a process."""
        self._read, self._write = socket.socketpair()
        self._read.setblocking(False)
        self._write.setblocking(False)
        self._posted: deque[Event | BaseException] = deque()
        selector.register(self._read, selectors.EVENT_READ, lambda mask: self._drain())
        if of_signals:
            signal.set_wakeup_fd(self._write.fileno(), warn_on_full_buffer=False)

    def post(self, event: Event | BaseException) -> None:
        """Hand an event to the loop, from any thread."""
        self._posted.append(event)
        try:
            self._write.send(b"\0")
        except BlockingIOError:
            pass  # It is full: the loop is about to wake anyway.

    def collect(self) -> list[Event]:
        """What has been posted; a bug in another thread surfaces here."""
        events: list[Event] = []
        while self._posted:
            event = self._posted.popleft()
            if isinstance(event, BaseException):
                raise event
            events.append(event)
        return events

    def _drain(self) -> None:
        try:
            self._read.recv(4096)
        except BlockingIOError:
            pass


# --- conditions ----------------------------------------------------------------------------------
# What a fleet needs of the machine while it runs, looked at every other second.
#
# Each condition that fails becomes a ``Degraded``, and ``ConditionRecovered`` when it holds again.
# The run directory itself is not among them: without it a run has lost its memory (``Loop``).


@value
class RequiredFolder:
    """A folder that is needed. ``what`` names it for people; ``writes``: room is needed there."""

    what: str
    path: Path
    writes: bool = False


def places_of(settings: FleetSettings, folder: Path) -> list[RequiredFolder]:
    """What a fleet needs, whose run has this ``folder``."""
    places = [RequiredFolder("the run directory", folder, writes=True)]
    # One word for one disk; elsewhere, the tracker can fill up by itself.
    for what, path in (("the folder of logs", folder / "logs"), ("the tracker", settings.tracker)):
        elsewhere = Path(path).stat().st_dev != folder.stat().st_dev
        places.append(RequiredFolder(what, Path(path), writes=elsewhere))
    return [*places, RequiredFolder("the project's folder", Path(settings.project))]


class Conditions:
    """``look`` is called by the loop in every turn, and looks when it is due."""

    def __init__(self, places: Sequence[RequiredFolder], tell: Callable[[Event], None]) -> None:
        self._places = places
        self._tell = tell
        self._next_look = 0.0
        self._standing: set[str] = set()

    def deadline(self) -> float:
        """When ``look`` is due (monotonic seconds)."""
        return self._next_look

    def look(self, now: float) -> None:
        """Tell what has changed; does nothing before ``deadline``."""
        if now < self._next_look:
            return
        self._next_look = next_look(now)
        for place in self._places:
            degraded = judge(place)
            if degraded is not None:
                self._standing.add(place.what)
                self._tell(degraded)
            elif place.what in self._standing:
                self._standing.discard(place.what)
                self._tell(ConditionRecovered(place.what))


def judge(place: RequiredFolder) -> Degraded | None:
    """What is wrong with a place; None where nothing is."""
    try:
        state = os.statvfs(place.path)
    except OSError as error:
        text = f"{place.what} cannot be used: {place.path}: {error.strerror}"
        return Degraded(place.what, text, f"ls -d {place.path}", stops=True)
    if not place.writes:
        return None
    # Some file systems say 0 of 0: they make room, or files, as they go.
    full = state.f_blocks and state.f_bavail * state.f_frsize < limits.ROOM_BYTES
    no_files = state.f_files and state.f_favail < limits.ROOM_FILES
    if not (full or no_files):
        return None
    lack = "no room" if full else "no more files fit"
    text = f"{place.what}: {lack} at {place.path}; nothing new is taken"
    flag = "-h" if full else "-i"
    return Degraded(place.what, text, f"df {flag} {place.path}", stops=True)


# --- loop ----------------------------------------------------------------------------------------
# The one loop of the orchestrator: waits, tells the core, and carries out what it asks.
#
# Each turn handles all that is ready, writes the journal once, and only then acts: tracker thread,
# workers, processes, answers. It decides nothing and never blocks.


_OVER = (RunState.DRAINING, RunState.STOPPING, RunState.SETTLING, RunState.ENDED)


class Loop:
    """Made by ``runtime.fleet`` with everything it needs; ``run`` returns the exit code."""

    def __init__(
        self,
        selector: selectors.BaseSelector,
        mailbox: Mailbox,
        core: Orchestrator,
        journal: Journal,
        frames: Frames,
        zygote_client: ZygoteClient,
    ) -> None:
        self._selector = selector
        self._mailbox = mailbox
        self._core = core
        self._journal = journal
        self._frames = frames
        self._zygote_client = zygote_client
        self._outside: list[Command] = []
        self._heard = False
        """Events that the core has still to conclude from."""
        self._events: deque[Event] = deque()
        self._exit_code: int | None = None
        self._memory_lost = False
        self._disk_full = False
        self._unsafe = False
        self._unshown: list[dict[str, Any]] = []
        self._unwatched: list[int] = []
        self.pending: tuple[str, ...] = ()
        self.settled = False
        self.workers: WorkerServer
        self.control: ControlServer
        self.tracker_thread: TrackerThread
        self.conditions: Conditions
        self.notifier: Notifier | None = None
        self.ingress: Ingress | None = None
        self.metrics: FiguresServer | None = None

    def tell(self, event: Event) -> None:
        """Queue an event for the core; it is handled before the loop waits again."""
        self._events.append(event)

    def snapshot(self) -> dict[str, Any]:
        """``status`` as it is now."""
        return status(*self.look())

    def look(self) -> tuple[Board, float]:
        """The board as it is now, and the elapsed seconds of the run."""
        self._fold()
        return self._frames.board, self._journal.elapsed()

    def run(self) -> int:
        """Until the core says ``End``."""
        signal.signal(signal.SIGTERM, self._on_signal)
        signal.signal(signal.SIGINT, self._on_signal)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        self._perform(self._core.start(time.monotonic()))
        self.tracker_thread.start()
        while self._exit_code is None:
            self._turn()
            if self._exit_code is None:
                self._wait()
        self._write_journal()
        self._fold()
        return self._exit_code

    # --- one turn -----------------------------------------------------------------------------

    def _turn(self) -> None:
        self._tick(time.monotonic())
        self._events.extend(self._mailbox.collect())
        while True:
            self._heard = self._heard or bool(self._events)
            while self._events:
                event = self._events.popleft()
                self._perform(self._core.handle(event, time.monotonic(), boot_seconds(), more=True))
            if not self._act():
                break
            if self._heard:
                # Who asked has its answer by now; the tracker comes after that.
                self.workers.flush()
                self._heard = False
                self._perform(self._core.after_events(time.monotonic(), boot_seconds()))
            # After what was heard: who was frozen together with us has spoken in time.
            deadline = self._core.deadline()
            if deadline is not None and (now := time.monotonic()) >= deadline:
                self._perform(self._core.on_deadline(now, boot_seconds()))
            if not self._act() or not self._events:
                break
        self.workers.flush()
        if self.ingress is not None:
            if self._core.state in _OVER:
                self.ingress.stop_accepting()
            self.ingress.flush()
        self._fold()  # Only now: nobody waits any more for what is due.
        self._show()
        self.control.flush(time.monotonic())
        if self.metrics is not None:
            self.metrics.flush(time.monotonic())
        if self._disk_full:
            return
        if (snapshot := self._frames.due(self._journal.elapsed())) is not None:
            self.control.show(snapshot)
        if self.notifier is not None:
            self.notifier.pump()

    def _wait(self) -> None:
        for key, mask in self._selector.select(self._patience(self._core.deadline())):
            key.data(mask)
        self.workers.hear(time.monotonic())

    def _patience(self, deadline: float | None) -> float | None:
        if self._events or (self.metrics is not None and self.metrics.pending):
            return 0.0
        if self._disk_full:
            return DISK_RETRY_SECONDS
        frame_over = self._journal.clock_at(self._frames.ends)
        due = [self.workers.acceptor.deadline(), self.control.acceptor.deadline()]
        due.append(self.conditions.deadline())
        soon = (deadline, self.workers.deadline(), self.control.deadline(), frame_over)
        due += [at for at in (*soon, self._zygote_client.deadline()) if at is not None]
        if self.ingress is not None:
            due.append(self.ingress.deadline())
        if self.metrics is not None:
            due.append(self.metrics.deadline())
        if self.notifier is not None:
            due.append(self._journal.clock_at(self.notifier.deadline()))
        return max(0.0, min(due) - time.monotonic())

    def _perform(self, commands: list[Command]) -> None:
        for command in commands:
            if isinstance(command, Write):
                self._journal.append(command.record)
            else:
                self._outside.append(command)

    def _act(self) -> bool:
        """The journal first, then whatever depends on it; False where that cannot be written."""
        if not self._write_journal():
            return False
        outside, self._outside = self._outside, []
        for command in outside:
            self._carry_out(command)
        return True

    def _write_journal(self) -> bool:
        """False where the disk is full: nothing may be done then, and nothing is thrown away."""
        try:
            self.control.publish(self._journal.flush())
        except OSError as error:
            if error.errno not in DISK_FULL:
                raise lost(error) from None
            if not self._disk_full:
                print(f"the journal cannot be written: {error}", file=sys.stderr, flush=True)
            self._disk_full = True
            del self._unshown[:-1]  # Whoever watches is shown the last one, once it is on file.
            return False
        self._disk_full = False
        if self._journal.is_long():
            self._fold()
            self._journal.begin_segment(self._frames.board)
        return True

    def _carry_out(self, command: Command) -> None:
        match command:
            case Send():
                self.workers.send(command)
            case RoundTrip():
                if not self.tracker_thread.is_prompt:
                    self._check_memory()
                self.tracker_thread.begin(command)
            case HangUp(conn_id, reason):
                self.workers.hang_up(conn_id, reason)
            case Spawn(worker_id):
                self._zygote_client.spawn(worker_id)
            case KillWorker(_, pid):
                self._zygote_client.kill(pid)
            case WatchOwner(pid):
                self._watch_owner(pid)
            case Answer():
                self.control.answer(command)
            case End(exit_code, pending, settled):
                self._exit_code, self.pending, self.settled = exit_code, pending, settled
            case Write():
                raise AssertionError("records are written before")
            case _:
                assert_never(command)

    def _fold(self) -> None:
        for entry in self._journal.fold():
            if (snapshot := self._frames.add(entry)) is not None:
                self._unshown.append(snapshot)
            if self.notifier is not None:
                self.notifier.add(entry)

    def _show(self) -> None:
        if self._disk_full:
            return
        unshown, self._unshown = self._unshown, []
        for snapshot in unshown:
            self.control.show(snapshot)

    def _tick(self, now: float) -> None:
        self.workers.acceptor.tick(now)
        self.control.acceptor.tick(now)
        self._zygote_client.tick(now)
        if self.ingress is not None:
            self.ingress.tick(now)
        if self.metrics is not None:
            self.metrics.tick(now)
        if now >= self.conditions.deadline():
            self._check_memory()
            self.conditions.look(now)
            self._look_at_journal()
            unwatched, self._unwatched = self._unwatched, []
            for pid in unwatched:
                self._watch_owner(pid)

    # --- odds and ends ------------------------------------------------------------------------

    def _check_memory(self) -> None:
        if not self._memory_lost and self._journal.is_gone():
            self._memory_lost = True
            self.tell(FatalError("the state directory was deleted under the running fleet"))

    def _look_at_journal(self) -> None:
        what = "the journal"
        if self._journal.unsafe and not self._unsafe:
            text = f"{what} cannot be brought to disk: no room; the tracker is told nothing"
            self.tell(Degraded(what, text, f"df -h {self._journal.path.parent}", stops=True))
        elif self._unsafe and not self._journal.unsafe:
            self.tell(ConditionRecovered(what))
        self._unsafe = self._journal.unsafe

    def _watch_owner(self, pid: int) -> None:
        try:
            watch_exit(self._selector, pid, lambda: self.tell(OwnerGone(pid)))
        except OSError:  # No descriptor left: looked at again together with the conditions.
            self._unwatched.append(pid)

    def _on_signal(self, number: int, frame: object) -> None:
        self._mailbox.post(StopAsked(exit_code=128 + number, why=f"signal {number}"))
