"""One run of the orchestrator, from its locks to its last message.

The client that starts the run sends the settings as one JSON line. It gets ``{"started": {...}}``
or ``{"failed": {...}}``, then the journal's lines, and at last ``{"ended": {...}}``. Nothing is
printed: internal errors go to the run's log.
"""

from __future__ import annotations

import gc
import os
import select
import selectors
import socket
import subprocess
import sys
import time
import traceback
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Protocol

from beads_workers import __version__, registry
from beads_workers.core.base import limits
from beads_workers.core.base.framing import read_with
from beads_workers.core.base.settings import (
    FleetSettings,
    PlaceSettings,
    WorkerSettings,
    understood,
)
from beads_workers.core.base.source import SourceError
from beads_workers.core.orchestrator import Orchestrator
from beads_workers.core.records.journal import CheckpointEnded, Entry, Noted, RunEnded, RunStarted
from beads_workers.core.schedule.events import Warned
from beads_workers.core.views.recovery import RecoveryState
from beads_workers.core.views.snapshot import Board
from beads_workers.core.views.status import Frames, ending
from beads_workers.runtime import run_directory, sessions, sources
from beads_workers.runtime.control_socket import ControlServer
from beads_workers.runtime.handshake import StartRefused, read_settings, say, say_failed, vars_of
from beads_workers.runtime.journal import Journal, JournalLost, Size
from beads_workers.runtime.kin import Kin
from beads_workers.runtime.loop import Conditions, Loop, Mailbox, places_of
from beads_workers.runtime.processes import hide, lacking, raise_file_limit, redirect_output
from beads_workers.runtime.retention import Keep
from beads_workers.runtime.sockets import TcpListener, free_socket
from beads_workers.runtime.tracker_thread import Recovery
from beads_workers.runtime.trust import Untrusted, check_state
from beads_workers.runtime.within_attempt import is_within
from beads_workers.runtime.worker_server import WorkerServer
from beads_workers.runtime.zygote import Zygote, start_zygote
from beads_workers.runtime.zygote_client import ZygoteClient
from beads_workers.trackers.settlement_rules import boot_seconds

if TYPE_CHECKING:
    from beads_workers.runtime.side_programs import PoolProcess
    from beads_workers.runtime.sources import Ingress


TRACKER_STOP_SECONDS = 10.0
"""Seconds for the last flush of the tracker. A call that takes longer goes on without us: the
journal names it, and the next start waits for its end."""
TYPED_CHARS_MAX = 2000
"""Characters of the longest command line that the journal keeps; it is only shown to people."""
GARBAGE_OBJECTS = 20_000
"""Number of new objects after which the garbage collector looks for cycles; each 50th look covers
older objects, too. A task creates dozens that live until it is closed, and hardly a cycle: with
Python's own 700, the loop spent a tenth of its time on that."""


SLOTS_MODULE = "beads_workers.worktrees.slots"
"""Module that tears down what worktrees had outside of their folders."""


class Fleet:
    """One run: see the module text. ``zygote`` has not begun yet."""

    def __init__(self, settings: FleetSettings, client: socket.socket, zygote: Zygote) -> None:
        self._settings = settings
        self._client = client
        self._zygote = zygote
        self._directory = run_directory.RunDirectory(Path(settings.state_directory))
        self._tracer: RunTracer | None = None
        self._pool: PoolProcess | None = None
        self._broken = ""
        """Why the run ended without a decision of the core; empty: it did not."""
        self.has_log = False  # Until then, stderr is the user's terminal.

    def run(self) -> int:
        """Start the run, carry it out and end it; return the exit code.

        Raises ``StartRefused`` if the fleet cannot start.
        """
        try:
            check_state(self._directory.root, Path.cwd())
        except Untrusted as error:
            raise StartRefused(str(error), error.hint, 2) from None
        self._directory.create()
        locks = self._lock()
        self._scrapes = _listen(self._settings.upkeep.metrics)
        unsettled, last = self._directory.left_over()
        self._socket = free_socket(os.getpid(), self._directory.root)
        self._run_id, alive = self._directory.create_run()
        self._folder = self._directory.run(self._run_id)
        self._actor = f"beads-workers/{run_directory.host_name()}/{self._run_id}"
        redirect_output(self._folder, self._settings.upkeep.log_directory)
        self.has_log = True
        zygote_client = self._zygote_client(alive)
        size = Size(self._settings.upkeep.journal_bytes_max)
        self._journal = Journal(self._folder / "journal.jsonl", size=size)
        calls = sources.JournalCalls(self._journal)
        self._source = sources.open_source(self._settings, self._actor, calls)
        self._sync = sources.open_sync(self._settings, self._folder, calls)
        description = self._described()
        self._logins = sources.logins_of(self._settings.landing)
        hide(sources.secrets_of(self._settings))  # It has read them.
        code = self._work(zygote_client, unsettled, last, description)
        for lock in locks:
            os.close(lock)
        return code

    def _described(self) -> str:
        """Return the tracker's description. Ask again after an error that may pass, with growing
        delays; raise ``StartRefused`` after any other error, or the last try."""
        for tries in range(1, limits.START_TRIES + 1):
            try:
                return self._source.describe()
            except SourceError as error:
                delay = limits.SOURCE_RETRY_SECONDS * 2.0 ** (tries - 1)
                again = error.passing and tries < limits.START_TRIES
                if not (again and self._is_awaited(str(error), delay)):
                    self._directory.mark_settled(self._run_id)
                    raise StartRefused(str(error), error.hint, 6) from error
        raise AssertionError("the last one is raised")

    def _is_awaited(self, error: str, seconds: float) -> bool:
        """Tell the client that the tracker is asked again, and wait; return False if it has
        left."""
        say(self._client, {"waiting": {"error": error, "seconds": seconds}})
        return not select.select([self._client], [], [], seconds)[0]

    def _zygote_client(self, alive: int) -> ZygoteClient:
        soft = raise_file_limit()

        def another() -> Zygote:
            zygote = start_zygote()
            zygote.begin((alive,), soft)
            return zygote

        self._zygote.begin((alive,), soft)
        return ZygoteClient(self._zygote, another)

    def _lock(self) -> list[int]:
        folder, shared = (
            run_directory.tracker_folder(self._settings.tracker),
            self._settings.tracking.shared,
        )
        try:
            return [self._directory.lock(), run_directory.lock_tracker(folder, shared=shared)]
        except run_directory.AlreadyRunning as error:
            raise StartRefused(str(error), error.hint, 5) from None

    def _work(
        self,
        zygote_client: ZygoteClient,
        unsettled: list[RecoveryState],
        last: RecoveryState,
        description: str,
    ) -> int:
        selector = selectors.DefaultSelector()
        mailbox = Mailbox(selector)
        core = self._core = self._orchestrator(last)
        board = Board(issues=core.issues)
        frames = Frames(board, watched=False)
        loop = Loop(selector, mailbox, core, self._journal, frames, zygote_client)
        info = self._info(description)
        self._begin_journal(board, info, last)
        zygote_client.attach(selector, loop.tell, self._settings_for)
        at = (Path(info.socket), selector, loop.tell, zygote_client.read, self._folder / "issues")
        loop.workers = WorkerServer(*at, zygote_client.is_ours)
        loop.kin = Kin(selector, loop.tell, [info.socket, *(each.socket for each in unsettled)])
        try:
            self._directory.write_settings(self._run_id, self._settings)
            self._directory.write_info(info)
            loop.control = ControlServer(
                Path(info.control_socket),
                selector,
                loop.tell,
                loop.snapshot,
                frames,
                self._client if self._settings.owned else None,
                quiet=self._settings.quiet,
                look=loop.look,
                is_within=partial(is_within, self._directory.root.absolute()),
            )
            self._serve_figures(selector, loop)
            loop.control.attach(loop.workers, loop.metrics)
            loop.ingress = self._ingress(selector, loop)
            # Only now: a client that reads this may talk to us at once.
            where = {"tracker": description, "metrics": _url_of(self._scrapes)}
            say(self._client, {"started": vars_of(info) | where})
            recovery = self._recovery(unsettled, mailbox)
            loop.conditions = Conditions(places_of(self._settings, self._folder), loop.tell)
            made = self._source, self._journal, recovery.run, mailbox.post, loop.tell
            further = recovery.release, recovery.conclude, self._sync
            thread = sources.open_tracker_thread(self._settings, self._folder, *made, *further)
            loop.tracker_thread = thread
            self._share_accounts(loop)
            self._prepare_programs(selector, loop, unsettled)
            self._fill_pool()
            if self._settings.upkeep.notify:
                self._notify(self._settings.upkeep.notify, selector, board, loop)
            self._trace(selector, loop)
            code = self._run(loop, board)
            recovery.abandon()
        finally:
            loop.workers.close()
            if loop.ingress is not None:
                loop.ingress.close()
            if loop.metrics is not None:
                loop.metrics.close()
        return self._end(loop, zygote_client, board, code)

    def _recovery(self, unsettled: list[RecoveryState], mailbox: Mailbox) -> Recovery:
        return Recovery(
            self._directory,
            self._source,
            unsettled,
            mailbox.post,
            Keep(self._settings.upkeep.keep_runs),
            inherits=not sources.is_push(self._settings),
            grace_seconds=self._settings.orphan_grace_seconds,
            call_seconds=self._settings.tracking.bd_seconds,
        )

    def _run(self, loop: Loop, board: Board) -> int:
        """Run the loop to its end; return the exit code.

        An end that the core did not decide on is reported, too: to clients and ``ended.json``,
        because the journal itself may have failed.
        """
        try:
            return loop.run()
        except Exception as error:  # A bug or the machine: waiting clients are told.
            traceback.print_exc()
            why = str(error.strerror) if isinstance(error, JournalLost) else _as_a_bug(error)
            board.show(Entry(RunEnded(1, why), time.time(), self._journal.elapsed()), None)
            self._broken = why
            return 1

    def _ingress(self, selector: selectors.BaseSelector, loop: Loop) -> Ingress | None:
        ingress = sources.open_ingress(
            self._settings, self._source, selector, loop.tell, lambda: loop.control.control_plane
        )
        if ingress is not None:
            loop.workers.on_first_message = ingress.open
        return ingress

    def _begin_journal(
        self, board: Board, info: run_directory.RunInfo, last: RecoveryState
    ) -> None:
        began = RunStarted(
            run_id=self._run_id,
            pid=info.pid,
            actor=self._actor,
            source=self._settings.source,
            project=self._settings.project,
            socket=info.socket,
            control_socket=info.control_socket,
            workers=self._settings.workers,
            version=__version__,
            budget=str(self._settings.budget or ""),
            agents=understood(self._settings.work),
            lands=self._settings.landing is not None,
            argv=_as_typed(info.argv),
            until=self._settings.until or 0.0,
            night=self._settings.night,
            approves=self._settings.approves,
        )
        foreign = (
            Noted(
                "warning", f"run {run_id} of {host} is not settled; only a start there can do that"
            )
            for run_id, host in self._directory.foreign()
        )
        for record in (began, *last.checkpoint(), CheckpointEnded(), *foreign):
            self._journal.append(record)
        for entry, _ in self._journal.fold():
            board.show(entry, None)  # The core was given the checkpoint when it was created.
        self._journal.flush()
        self._journal.sync()

    def _end_worlds(self) -> None:
        """Tear down what worktrees had outside of their folders: nothing works there any more."""
        worktrees = self._settings.work.worktrees
        if worktrees is None or not worktrees.rules.worlds.has_worlds:
            return
        argv = [sys.executable, "-P", "-m", SLOTS_MODULE, worktrees.state_directory, self._run_id]
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        for wrong in done.stdout.splitlines():
            self._journal.write_now(Noted("warning", wrong))

    def _end(self, loop: Loop, zygote_client: ZygoteClient, board: Board, code: int) -> int:
        # A broken run does not wait: the next start finds out what the tracker was told.
        if self._sync is not None:
            self._sync.stop()
        loop.tracker_thread.stop(0.0 if self._broken else TRACKER_STOP_SECONDS)
        if wrong := self._sync.at_the_end() if self._sync and not self._broken else "":
            self._journal.write_now(Noted("error", wrong))
        loop.close_programs()
        if self._pool is not None:
            self._pool.close()
        self._end_worlds()
        with suppress(OSError):
            zygote_client.close()
        if loop.settled:
            self._directory.mark_settled(self._run_id)
        self._journal.close()
        self._directory.write_ending(self._run_id, ending(board, self._run_id))
        farewell = {"exit_code": code, "run_id": self._run_id, **loop.snapshot()}
        farewell["requeued"] = list(board.requeued)
        farewell["pending"] = list(loop.held() if self._broken else loop.pending)
        farewell["settled"] = loop.settled
        farewell["claimed"] = board.claims or board.landings.landed  # Earlier claims may land now.
        farewell["stayed"] = [
            {
                "worker_id": i.worker_id,
                "pid": i.lost_pid,
                "issue_id": i.issue_id,
                "host": i.lease.host if i.lease else "",
                "until": i.orphaned.lease_until if i.orphaned else 0.0,
            }
            for i in board.orphaned
        ]
        if wrong:
            farewell["unsynced"] = wrong
        if self._broken:
            farewell["broken"] = self._broken
        loop.control.close(farewell)
        if loop.notifier is not None:
            loop.notifier.finish()
        if self._tracer is not None:
            self._tracer.finish()
        return code

    def _notify(
        self, command: str, selector: selectors.BaseSelector, board: Board, loop: Loop
    ) -> None:
        from beads_workers.runtime.notifications import (
            Notifier,  # Takes a tenth of a start; few fleets need it.
        )

        def warn(text: str) -> None:
            loop.tell(Warned(text))

        loop.notifier = Notifier(command, self._folder, board, self._journal.elapsed, warn)
        loop.notifier.attach(selector)

    def _share_accounts(self, loop: Loop) -> None:
        work = self._settings.work
        agents = [a for a in (*work.agents, *([work.review] if work.review else [])) if a.adapter]
        if not agents or work.command:
            return
        from beads_workers.core.records.receipts import AccountId
        from beads_workers.runtime.account_file import (
            AccountFile,  # Only fleets of agents need it.
            SharedAccounts,
            state_home,
        )

        accounts = [AccountId(agent.account or agent.name) for agent in agents]
        file = AccountFile(state_home(), self._run_id)
        loop.accounts = SharedAccounts(file, self._run_id, accounts, loop.tell)
        loop.accounts.look()  # Before anything is claimed.

    def _prepare_programs(
        self, selector: selectors.BaseSelector, loop: Loop, unsettled: list[RecoveryState]
    ) -> None:
        self._prepare_lander(selector, loop)
        if self._settings.places or any(left.leased for left in unsettled):
            from beads_workers.runtime.places import PlaceProcesses  # Few fleets need it.

            told = loop.tell, lambda: self._journal.current
            loop.places = PlaceProcesses(self._settings, self._folder, selector, *told)

    def _prepare_lander(self, selector: selectors.BaseSelector, loop: Loop) -> None:
        landing, work = self._settings.landing, self._settings.work
        if landing is None or work.worktrees is None:
            return
        from beads_workers.core.records.landing import LanderSettings
        from beads_workers.runtime.lander import LanderProcess  # Few fleets need it.

        settings = LanderSettings(
            *(landing, work.worktrees, self._run_id),
            *(work.verify, work.term_grace_seconds, work.sight),
            logins=self._logins,
        )
        loop.lander = LanderProcess(settings, self._folder / "lander.log", selector, loop.tell)

    def _fill_pool(self) -> None:
        worktrees = self._settings.work.worktrees
        if worktrees is None or not worktrees.rules.pool:
            return
        from beads_workers.runtime.side_programs import PoolProcess  # Few fleets need it.

        self._pool = PoolProcess(worktrees, self._run_id, self._folder / "pool.log")

    def _orchestrator(self, last: RecoveryState) -> Orchestrator:
        return Orchestrator(
            self._settings,
            self._run_id,
            self._journal.elapsed(),
            self_claiming=self._source.self_claiming,
            push=sources.is_push(self._settings),
            checkpointed=last.checkpoint(),
            epoch=time.time(),
            boot=boot_seconds(),
        )

    def _serve_figures(self, selector: selectors.BaseSelector, loop: Loop) -> None:
        if self._scrapes is not None:
            metrics = registry.need("metrics")
            loop.metrics = metrics.serve(self._scrapes, selector, loop.tell, loop.look)

    def _trace(self, selector: selectors.BaseSelector, loop: Loop) -> None:
        if self._settings.tracing is not None:
            tracer = _service("tracer")
            journal = self._folder / "journal.jsonl"
            self._tracer = tracer.start_tracer(journal, selector, loop.tell)

    def _info(self, description: str) -> run_directory.RunInfo:
        pid = os.getpid()
        return run_directory.RunInfo(
            pid=pid,
            start_time=sessions.start_time(pid) or 0,
            run_id=self._run_id,
            socket=str(self._socket),
            control_socket=str(self._directory.control_socket),
            project=self._settings.project,
            source=self._settings.source,
            argv=self._settings.argv,
            folder=self._settings.folder,
        )

    def _settings_for(self, worker_id: str) -> WorkerSettings:
        work = self._settings.work
        if self._settings.tracking.bd_calls == "worker":
            work = replace(work, bd_argv=sources.self_claiming_argv(self._source))
        return WorkerSettings(
            worker_id=worker_id,
            socket_path=str(self._socket),
            orchestrator_pid=os.getpid(),
            project=self._settings.project,
            run_id=self._run_id,
            run_directory=str(self._folder),
            actor=self._actor,
            work=work,
            place=self._place_of(worker_id),
            secrets=sources.secrets_of(self._settings),
        )

    def _place_of(self, worker_id: str) -> PlaceSettings | None:
        name = self._core.place_of(worker_id) if self._settings.places else ""
        return next((each for each in self._settings.places if each.name == name), None)


def run_fleet(client: socket.socket, zygote: Zygote) -> int:
    """Read the settings and run the fleet's orchestrator; return the exit code."""
    # The tracker thread gets its turns quickly, and never delays the loop for long.
    sys.setswitchinterval(0.0005)
    gc.freeze()  # Modules imported by now stay: never scan them again.
    gc.enable()
    gc.set_threshold(GARBAGE_OBJECTS, 50, 50)
    with suppress(ImportError):  # The extra ``fast``.
        from orjson import loads

        read_with(loads)
    settings = read_settings(client)
    if settings is None:
        return 0
    os.chdir(settings.project)
    fleet = Fleet(settings, client, zygote)
    try:
        return fleet.run()
    except (OSError, MemoryError, RuntimeError) as error:
        text = lacking(error)
        if not text and not isinstance(error, OSError):
            raise
        # Before the fleet says "started" this is an answer; afterwards it reports a bug.
        hint = "'beads-workers doctor' looks at all that a start needs"
        say_failed(client, text or str(error), hint, 1)
        if fleet.has_log and not text:
            raise
        return 1
    except StartRefused as refused:
        say_failed(client, str(refused), refused.hint, refused.exit_code)
        return refused.exit_code


def _as_typed(argv: tuple[str, ...]) -> tuple[str, ...]:
    return argv if sum(map(len, argv)) <= TYPED_CHARS_MAX else ()


def _as_a_bug(error: Exception) -> str:
    text = f"{type(error).__name__}: {error}".strip(": ")
    return (
        f"the orchestrator failed ({text}): its log has more; the next start settles what it held"
    )


class RunTracer(Protocol):
    """Exporter of the spans of a run, in a process of its own."""

    def finish(self) -> None:
        """Wait until the remaining spans are sent: the run is over."""


def _service(name: str) -> ModuleType:
    try:
        return registry.need(name)
    except registry.Missing as missing:
        raise StartRefused(str(missing), "leave the option out", 2) from None


def _listen(port: int | None) -> TcpListener | None:
    if port is None:
        return None
    listener: TcpListener = _service("metrics").listen(port)
    return listener


def _url_of(listener: TcpListener | None) -> str | None:
    return None if listener is None else str(registry.need("metrics").url_of(listener))
