"""The one loop of the orchestrator: waits, tells the core, and carries out the core's commands."""

from __future__ import annotations

import errno
import os
import selectors
import signal
import socket
import time
from collections import deque
from collections.abc import Callable, Sequence
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, assert_never

from beads_workers.core.base import limits
from beads_workers.core.base.model import IssueId, value
from beads_workers.core.base.settings import FleetSettings
from beads_workers.core.base.states import RunState
from beads_workers.core.orchestrator import Orchestrator
from beads_workers.core.records.journal import AccountClosed, AccountOpened, Entry, Noted, encode
from beads_workers.core.schedule import events as ev
from beads_workers.core.schedule.commands import (
    Answer,
    AwaitDeparture,
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
from beads_workers.core.views.snapshot import Board
from beads_workers.core.views.status import Frames, status
from beads_workers.runtime.control_socket import ControlServer, FiguresServer
from beads_workers.runtime.journal import DISK_FULL, DISK_RETRY_SECONDS, Journal, JournalLost, lost
from beads_workers.runtime.kin import Kin
from beads_workers.runtime.processes import say
from beads_workers.runtime.sockets import next_look
from beads_workers.runtime.tracker_thread import TrackerThread
from beads_workers.runtime.usage_file import usage_read
from beads_workers.runtime.worker_server import WorkerServer
from beads_workers.runtime.zygote_client import ZygoteClient
from beads_workers.trackers.settlement_rules import boot_seconds

if TYPE_CHECKING:
    from beads_workers.runtime.account_file import SharedAccounts
    from beads_workers.runtime.lander import LanderProcess
    from beads_workers.runtime.notifications import Notifier
    from beads_workers.runtime.occupants import Departures
    from beads_workers.runtime.sources import Ingress


# --- mailbox -------------------------------------------------------------------------------------
# Events from other threads and from signal handlers wait here for the loop.


class Mailbox:
    """Events from other threads and signal handlers; wakes the loop's selector."""

    def __init__(self, selector: selectors.BaseSelector, *, of_signals: bool = True) -> None:
        """``of_signals``: a signal wakes the loop as well; only one mailbox of a process may do
        that."""
        self._read, self._write = socket.socketpair()
        self._read.setblocking(False)
        self._write.setblocking(False)
        self._posted: deque[ev.Event | BaseException] = deque()
        selector.register(self._read, selectors.EVENT_READ, lambda mask: self._drain())
        if of_signals:
            signal.set_wakeup_fd(self._write.fileno(), warn_on_full_buffer=False)

    def post(self, event: ev.Event | BaseException) -> None:
        """Hand an event to the loop, from any thread."""
        self._posted.append(event)
        try:
            self._write.send(b"\0")
        except OSError:
            pass  # It is full, and the loop about to wake; or it wakes every other second.

    def collect(self) -> list[ev.Event]:
        """Return the posted events; raise an exception that another thread has posted."""
        events: list[ev.Event] = []
        while self._posted:
            event = self._posted.popleft()
            if isinstance(event, BaseException):
                raise event
            events.append(event)
        return events

    def _drain(self) -> None:
        try:
            self._read.recv(4096)
        except OSError:
            pass  # Each turn collects the posted events, whatever has ended the wait.


# --- conditions ----------------------------------------------------------------------------------
# What a fleet needs of the machine while it runs, checked every other second.
#
# Each condition that fails becomes a ``Degraded``, and ``ConditionRecovered`` when it holds again.
# The run directory itself is not among them: without it a run has lost its memory (``Loop``).


AGAIN_SECONDS = 0.5
NOT_WRITABLE = (errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO)


@value
class RequiredFolder:
    """A folder that the fleet needs."""

    # Its name for people.
    what: str
    path: Path
    # The fleet needs room in it.
    writes: bool = False
    # A file in it, opened to see whether anything can be written.
    file: str = ""


def places_of(settings: FleetSettings, folder: Path) -> list[RequiredFolder]:
    """Return the folders that a fleet needs. ``folder``: that of its run."""
    places = [RequiredFolder("the run directory", folder, writes=True, file="alive")]
    # One report for one disk; on a disk of its own, the tracker can fill up by itself.
    for what, path in (("the folder of logs", folder / "logs"), ("the tracker", settings.tracker)):
        elsewhere = Path(path).stat().st_dev != folder.stat().st_dev
        places.append(RequiredFolder(what, Path(path), writes=elsewhere))
    return [*places, RequiredFolder("the project's folder", Path(settings.project))]


class Conditions:
    """Watcher of the folders that a fleet needs. The loop calls ``look`` in every turn."""

    def __init__(self, places: Sequence[RequiredFolder], tell: Callable[[ev.Event], None]) -> None:
        self._places = places
        self._tell = tell
        self._next_look = 0.0
        self._standing: set[str] = set()

    def deadline(self) -> float:
        """Return when ``look`` is due (monotonic seconds)."""
        return self._next_look

    def look(self, now: float) -> None:
        """Tell the core which conditions fail or have recovered; do nothing before ``deadline``."""
        if now < self._next_look:
            return
        for place in self._places:
            degraded = judge(place)
            if degraded is not None:
                self._standing.add(place.what)
                self._tell(degraded)
            elif place.what in self._standing:
                self._standing.discard(place.what)
                self._tell(ev.ConditionRecovered(place.what))
        # A failing condition is checked more often: the fleet is to go on soon.
        self._next_look = now + AGAIN_SECONDS if self._standing else next_look(now)


def judge(place: RequiredFolder) -> ev.Degraded | None:
    """Return what is wrong with a folder; None: nothing is wrong."""
    try:
        state = os.statvfs(place.path)
    except OSError as error:
        text = f"{place.what} cannot be used: {place.path}: {error.strerror}"
        return ev.Degraded(place.what, text, f"ls -d {place.path}", stops=True, gone=True)
    if why := _not_written(place):
        text = f"{place.what} cannot be written: {place.path}: {why}"
        return ev.Degraded(place.what, text, f"ls -ld {place.path}", stops=True)
    if not place.writes:
        return None
    # Some file systems report 0 of 0: they create room, or inodes, as they go.
    full = state.f_blocks and state.f_bavail * state.f_frsize < limits.ROOM_BYTES
    no_files = state.f_files and state.f_favail < limits.ROOM_FILES
    if not (full or no_files):
        return None
    lack = "no room" if full else "no more files fit"
    text = f"{place.what}: {lack} at {place.path}; nothing new is taken"
    flag = "-h" if full else "-i"
    return ev.Degraded(place.what, text, f"df {flag} {place.path}", stops=True)


def _not_written(place: RequiredFolder) -> str:
    """Return why nothing can be written there; empty: it can.

    If a kernel gives up a disk, it reports that for open files only: so ``file`` is opened. A file
    of the tracker is not opened: SQLite's locks would go with the descriptor.
    """
    if not place.file:
        return ""
    try:
        os.close(os.open(place.path / place.file, os.O_WRONLY | os.O_CLOEXEC))
    except OSError as error:
        return str(error.strerror) if error.errno in NOT_WRITABLE else ""
    return "" if os.access(place.path, os.W_OK) else "no right to write there"


class Guards(Protocol):
    """Whoever speaks to the guards of attempts on other machines (``places``)."""

    def tell(self, command: TellGuard) -> None:
        """Pass the word on; what comes of it is told as events."""

    def close(self) -> None:
        """Speak to nobody any more: the run is over."""


# --- loop ----------------------------------------------------------------------------------------
# The one loop of the orchestrator: waits, tells the core, and carries out the core's commands.
#
# Each turn handles everything that is ready, writes the journal once, and only then acts: tracker
# thread, workers, processes, answers. The loop decides nothing and never blocks.


BLOCKED_STOP_SECONDS = 6.0
"""Seconds that a stop waits for a journal that cannot be written. Then the run ends without it, as
if it were killed."""

_ENDING = (RunState.STOPPING, RunState.SETTLING, RunState.ENDED)
_NOT_ACCEPTING = (RunState.DRAINING, *_ENDING)


class Loop:
    """The orchestrator's loop, created by ``runtime.fleet`` with everything it needs."""

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
        self._has_handled = False
        """Whether the core has handled events since its last ``after_events``."""
        self._events: deque[ev.Event] = deque()
        self._exit_code: int | None = None
        self._memory_lost = False
        self._blocked: OSError | None = None
        """Why the journal cannot be written now; None: it can."""
        self._retry_at = 0.0
        self._shown_at = 0.0
        self._end_due = inf
        """When a stop that the journal delays ends without it (monotonic seconds)."""
        self._journal_trouble = ""
        self._unshown: list[dict[str, Any]] = []
        self._unpublished = b""
        """Lines that were written and not yet sent to followers."""
        self._departures: Departures | None = None
        """People who stand in worktrees, once there are any."""
        self.pending: tuple[str, ...] = ()
        self.settled = False
        self.workers: WorkerServer
        self.kin: Kin
        self.control: ControlServer
        self.tracker_thread: TrackerThread
        self.conditions: Conditions
        self._signalled = False
        self.notifier: Notifier | None = None
        self.ingress: Ingress | None = None
        self.accounts: SharedAccounts | None = None
        self.metrics: FiguresServer | None = None
        self.lander: LanderProcess | None = None
        self.places: Guards | None = None

    def tell(self, event: ev.Event) -> None:
        """Queue an event for the core; it is handled before the loop waits again."""
        self._events.append(event)

    def snapshot(self) -> dict[str, Any]:
        """Return ``status`` as it is now."""
        return status(*self.look())

    def look(self) -> tuple[Board, float]:
        """Return the board as it is now, and the elapsed seconds of the run."""
        self._fold()
        return self._frames.board, self._journal.elapsed()

    def run(self) -> int:
        """Run until the core says ``End``; return the exit code."""
        signal.signal(signal.SIGTERM, self._on_signal)
        signal.signal(signal.SIGINT, self._on_signal)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        self._perform(self._core.start(self._journal.elapsed()))
        self.tracker_thread.start()
        try:
            while self._exit_code is None:
                self._turn()
                if self._exit_code is None:
                    self._wait()
            self._write_journal()
        finally:
            self._publish()
        self._fold()
        if self.accounts is not None:
            self.accounts.flush()
        return self._exit_code

    # --- one turn -----------------------------------------------------------------------------

    def _turn(self) -> None:
        self._events.extend(self._mailbox.collect())
        while True:
            self._has_handled = self._has_handled or bool(self._events)
            clocks = self._clocks()
            while self._events:
                self._perform(self._core.handle(self._events.popleft(), *clocks, more=True))
            if not self._act():
                break
            if self._has_handled:
                # Requests are answered by now; the tracker comes after that.
                self.workers.flush()
                self._has_handled = False
                self._perform(self._core.after_events(*self._clocks()))
            # After all input: workers that were frozen together with us have spoken in time.
            deadline = self._core.deadline()
            if deadline is not None and self._journal.elapsed() >= deadline:
                self._perform(self._core.on_deadline(*self._clocks()))
            if not self._act() or not self._events:
                break
        self.workers.flush()
        if self._exit_code is None:
            self._tick(time.monotonic())
        if self.ingress is not None:  # After its tick, which may create answers to send.
            if self._core.state in _NOT_ACCEPTING:
                self.ingress.stop_accepting()
            self.ingress.flush()
        self._fold()  # Only now: nothing that is due waits for this.
        self._show()
        self._publish()
        self.control.flush(time.monotonic())
        if self.metrics is not None:
            self.metrics.flush(time.monotonic())
        if self._blocked is not None:
            return
        if self.accounts is not None:
            self.accounts.flush()
        if (snapshot := self._frames.due(self._journal.elapsed())) is not None:
            self.control.show(snapshot)
        if self.notifier is not None:
            self.notifier.pump()

    def _clocks(self) -> tuple[float, float, float]:
        """Return the core's three clocks: seconds of the run, since the machine was started, and
        since 1970. A frame that is over by then is shown as it was at its end."""
        now = self._journal.elapsed()
        if now >= self._frames.ends:
            self._fold()
            if (snapshot := self._frames.due(now)) is not None:
                self._unshown.append(snapshot)
        return now, boot_seconds(), time.time()

    def _wait(self) -> None:
        for key, mask in self._selector.select(self._patience(self._core.deadline())):
            key.data(mask)
        self.workers.read_waiting(time.monotonic())

    def _patience(self, deadline: float | None) -> float | None:
        if self._events or (self.metrics is not None and self.metrics.pending):
            return 0.0
        if self._blocked is not None:
            return max(0.0, self._retry_at - time.monotonic())
        frame_over = self._journal.clock_at(self._frames.ends)
        due = [self.workers.acceptor.deadline(), self.control.acceptor.deadline()]
        due.append(self.conditions.deadline())
        if self._journal.unsafe is not None:
            due.append(time.monotonic() + DISK_RETRY_SECONDS)
        deadline = None if deadline is None else self._journal.clock_at(deadline)
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
                self._journal.add(command.entry, command.change)
                if self.accounts and isinstance(command.record, AccountClosed | AccountOpened):
                    self.accounts.record(command.record)
            else:
                self._outside.append(command)

    def _act(self) -> bool:
        """Write the journal, then carry out the commands; return False if it cannot be written."""
        if not self._write_journal():
            return False
        outside, self._outside = self._outside, []
        for command in outside:
            self._carry_out(command)
        return True

    def _write_journal(self) -> bool:
        """Write the journal; return False if that fails: nothing may be done then, and nothing is
        lost.

        Raises ``JournalLost`` if that will not change, or a stop has waited long enough for it.
        """
        now = time.monotonic()
        if self._blocked is not None and now < self._retry_at:
            return False
        try:
            self._unpublished += self._journal.flush()
        except JournalLost:
            raise
        except OSError as error:
            self._retry_at = now + DISK_RETRY_SECONDS
            self._hold_back(error)
            return False
        if self._blocked is not None:
            self._blocked, self._end_due = None, inf
            self._look_at_journal()
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
            case SyncJournal():
                self.tracker_thread.sync()
            case HangUp(conn_id, reason):
                self.workers.hang_up(conn_id, reason)
            case Spawn(worker_id):
                self._zygote_client.spawn(worker_id)
            case KillWorker(_, pid):
                self._zygote_client.kill(pid)
            case WatchOwner(pid, start_time, issue_id):
                self.kin.watch(pid, start_time, issue_id, lambda: self.tell(ev.OwnerGone(pid)))
            case TellGuard():
                assert self.places is not None, "there are leases only where there are places"
                self.places.tell(command)
            case AwaitDeparture(issue_id, folder):
                self._await_departure(issue_id, folder)
            case ReadUsage():
                found = usage_read(self._journal.path.parent, command)
                if found is not None:
                    self.tell(found)
            case StartLander():
                assert self.lander is not None, "it is asked for only where branches land"
                self.lander.start()
            case TellLander(order):
                assert self.lander is not None, "it was started"
                self.lander.tell(order)
            case Answer():
                self.control.answer(command)
            case End(exit_code, pending, settled):
                self._exit_code, self.pending, self.settled = exit_code, pending, settled
            case Write():
                raise AssertionError("records are written before")
            case _:
                assert_never(command)

    def _await_departure(self, issue_id: IssueId, folder: str) -> None:
        from beads_workers.runtime.occupants import Departures

        if self._departures is None:
            self._departures = Departures(self._journal.path.absolute().parents[2])
        left = ev.WorktreeLeft(issue_id)
        self._departures.watch(issue_id, folder, lambda: self.tell(left))

    def _fold(self) -> None:
        for entry, change in self._journal.fold():
            self._frames.show(entry, change)
            if self.notifier is not None:
                self.notifier.add(entry)

    def _publish(self) -> None:
        lines, self._unpublished = self._unpublished, b""
        self.control.publish(lines)

    def _show(self) -> None:
        if self._blocked is not None:
            self._show_blocked(time.monotonic())
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
            if self.accounts is not None:
                self.accounts.look()
            self._look_at_journal()
            self.kin.tick(self.workers.busy())
            if self._departures is not None:
                self._departures.tick()

    # --- odds and ends ------------------------------------------------------------------------

    def close_programs(self) -> None:
        """End the programs beside the orchestrator, each in its own time."""
        for program in (self.lander, self.places):
            if program is not None:
                program.close()

    def held(self) -> tuple[str, ...]:
        """Return the issues that the run has taken and not given back, for an end without the
        core."""
        return self._core.held()

    def _check_memory(self) -> None:
        if not self._memory_lost and self._journal.is_gone():
            self._memory_lost = True
            gone = "the state directory was deleted under the running fleet"
            say("orchestrator", gone)
            self.tell(ev.FatalError(gone, forgets=True))

    def _hold_back(self, error: OSError) -> None:
        again, self._blocked = self._blocked is not None, error
        if again:  # An error that passes at once is not worth a report and two records.
            self._look_at_journal()
        else:
            say("orchestrator", f"the journal cannot be written: {error.strerror}")
        self._end_blocked_stop(error)
        del self._unshown[:-1]  # Watchers are shown the last one, once it is in the journal.

    def _look_at_journal(self) -> None:
        what, text = "the journal", ""
        error = self._blocked or self._journal.unsafe
        if self._blocked is not None:
            text = f"{what} cannot be written: {self._blocked.strerror}; nothing new is begun"
        elif error is not None:
            text = (
                f"{what} cannot be brought to disk: {error.strerror}; the tracker is told nothing"
            )
        if text == self._journal_trouble:
            return
        self._journal_trouble = text
        if error is None:
            self.tell(ev.ConditionRecovered(what))
        else:
            todo = f"df -h {self._journal.path.parent}" if error.errno in DISK_FULL else "doctor"
            self.tell(ev.Degraded(what, text, todo, stops=True))
        if self._blocked is not None:  # That record is written only after the trouble is over.
            entry = Entry(Noted("error", text), time.time(), self._journal.elapsed())
            self._unpublished += encode(entry)

    def _show_blocked(self, now: float) -> None:
        # Not in the journal yet, like the answer to ``status``: otherwise no watcher would see why.
        if self._frames.watched and now >= self._shown_at:
            self._shown_at = now + DISK_RETRY_SECONDS
            self.control.show(self.snapshot())

    def _end_blocked_stop(self, error: OSError) -> None:
        if self._core.state in _ENDING:
            now = time.monotonic()
            self._end_due = min(self._end_due, now + BLOCKED_STOP_SECONDS)
            if now >= self._end_due:
                raise lost(error)

    def _on_signal(self, number: int, frame: object) -> None:
        # The first asks, every later one means now, as for the client of a start.
        seconds = 0.0 if self._signalled else None
        self._signalled = True
        text = f"signal {number}"
        self._mailbox.post(ev.StopAsked(seconds=seconds, exit_code=128 + number, why=text))
