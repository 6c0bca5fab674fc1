"""The lines to other machines, seen from the loop: one process for each place (``places.line``)."""

from __future__ import annotations

import json
import os
import selectors
from collections.abc import Callable, Mapping
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

from beads_workers import registry
from beads_workers.core.base.model import IssueId, OutcomeKind, value
from beads_workers.core.base.plain import BAD_VALUE, from_plain, to_plain
from beads_workers.core.base.settings import FleetSettings, PlaceSettings
from beads_workers.core.base.wire import CANNOT_PREPARE, Done, Failed
from beads_workers.core.records.journal import Leased
from beads_workers.core.schedule import events as ev
from beads_workers.core.schedule.commands import TellGuard, Word
from beads_workers.executors.files import line_socket
from beads_workers.runtime import side_programs
from beads_workers.runtime.attempt_channel import answered
from beads_workers.runtime.processes import say
from beads_workers.runtime.result_spool import spool_result
from beads_workers.runtime.run_directory import RunDirectory, host_name

MODULE = "beads_workers.places.line"
GIT = "git"
ENDS_MAX = 20
"""Ends of a line's process after which it is not started again."""


@value
class LineSettings:
    """What the process is told first."""

    place: PlaceSettings
    # Names this fleet on its hosts, and its folder there.
    fleet: str
    # The socket for the programs of attempts.
    socket: str
    # The folder of all runs, and the repository; "" for none.
    runs: str
    common: str
    # With another parent nothing is ended.
    orchestrator_pid: int
    # Programs that attempts need there.
    programs: tuple[str, ...] = ()
    needs_git: bool = False

    @property
    def base(self) -> str:
        """The folder of this fleet on a host."""
        return f"~/.cache/beads-workers/away/{self.fleet}"

    @property
    def needs(self) -> tuple[str, ...]:
        """Programs that a host must have."""
        return (GIT, *self.programs) if self.needs_git else self.programs


def line_settings(
    settings: FleetSettings, place: PlaceSettings, folder: Path, socket: str
) -> LineSettings:
    """Return what the line to a place is told. ``folder``: of the run."""
    work, worktrees = settings.work, settings.work.worktrees
    home = f"{host_name()}:{Path(settings.state_directory).absolute()}"
    programs = [os.path.basename(each.argv[0]) for each in work.agents if each.argv]  # noqa: PTH119
    return LineSettings(
        place,
        sha256(home.encode()).hexdigest()[:12],
        socket,
        str(folder.parent.absolute()),
        worktrees.common if worktrees is not None else "",
        os.getpid(),
        tuple(programs) if work.command is None else (),
        worktrees is not None,
    )


def lines_of_runs(directory: RunDirectory) -> list[LineSettings]:
    """Return the lines to the places of all runs that are remembered; nothing is needed there."""
    found = {}
    for run_id in directory.run_ids():
        if (settings := directory.read_settings(run_id)) is not None:
            for place in settings.places:
                told = line_settings(settings, place, directory.run(run_id), "")
                found[told.fleet, place.name] = replace(told, programs=(), needs_git=False)
    return list(found.values())


class PlaceProcesses:
    """Passes words on to guards, and tells the core what they say."""

    def __init__(
        self,
        settings: FleetSettings,
        folder: Path,
        selector: selectors.BaseSelector,
        report: Callable[[ev.Event], None],
        journal: Callable[[], Path],
    ) -> None:
        """``folder``: of the run. ``journal``: the file that it is written to now."""
        self._settings, self._folder = settings, folder
        self._selector, self._report, self._journal = selector, report, journal
        self._places = {place.name: place for place in settings.places}
        self._lines: dict[str, _PlaceProcess] = {}
        self._answers: dict[str, Done | Failed] = {}
        for name in self._places:
            self._line(name)

    def tell(self, command: TellGuard) -> None:
        """Pass the word on; an answer for an earlier run is kept for it first."""
        lease, word = command.lease, command.word
        run_id = lease.request_id.rpartition(".")[0]
        answer = self._answers.pop(lease.nonce, None) if word is Word.HEARD else None
        if answer is not None and run_id != self._folder.name:
            spool_result(str(self._folder.parent / run_id), answer)
        self._line(lease.place).tell(word, lease, self._journal())

    def close(self) -> None:
        """Break all lines; attempts that are left go on until their leases are over."""
        for line in self._lines.values():
            line.close()

    def _line(self, name: str) -> _PlaceProcess:
        if name not in self._lines:
            # Of an earlier run, whose settings may be gone: its name is that of a host, then.
            place = self._places.get(name) or PlaceSettings(name, next(iter(registry.PLACES)), 0)
            socket = line_socket(str(self._folder.absolute()), name)
            told = line_settings(self._settings, place, self._folder, socket)
            first = json.dumps(to_plain(told)).encode() + b"\n"
            self._lines[name] = _PlaceProcess(name, first, self._folder, self._selector, self._hear)
        return self._lines[name]

    def _hear(self, name: str, line: bytes) -> None:
        try:
            said = json.loads(line)
            if "seen" in said:
                self._report(ev.PlaceSeen(name, str(said["seen"]["why"]), said["seen"]))
                return
            news, fields = next(iter(said.items()))
            lease = from_plain(Leased, fields)
            if news == "placed":
                self._report(ev.Placed(lease))
            elif news == "heard":
                self._report(ev.GuardHeard(IssueId(lease.issue_id), lease.nonce))
            elif news == "ended":
                answer = said.get("answer")
                message = _message(lease, answer) if answer else None
                if message is not None:
                    self._answers[lease.nonce] = message
                self._report(ev.FoundEnded(lease, message))
        except (*BAD_VALUE, RecursionError) as error:
            say(name, f"it said what nobody understands: {error}")


class _PlaceProcess:
    """The process of one place, started again when it ends; it is told again what it must know."""

    def __init__(
        self,
        name: str,
        first: bytes,
        folder: Path,
        selector: selectors.BaseSelector,
        hear: Callable[[str, bytes], None],
    ) -> None:
        self._first, self._ends = first, 0
        self._watched: dict[str, bytes] = {}
        """What was told of attempts for which nobody waits, by nonce."""
        ids = folder.name, f"place-{name}"
        log = folder / "places.log"
        self._program = side_programs.Talking(
            MODULE, ids, log, selector, lambda line: hear(name, line), self._ended
        )
        self._start()

    def tell(self, word: Word, lease: Leased, journal: Path) -> None:
        """Tell the process a word for an attempt."""
        fields = {"word": word.name.lower(), "lease": to_plain(lease), "journal": str(journal)}
        line = json.dumps(fields).encode() + b"\n"
        if word in (Word.LOOK, Word.END):
            self._watched[lease.nonce] = line
        elif word in (Word.BYE, Word.DROP):
            self._watched.pop(lease.nonce, None)
        self._program.tell(line)

    def close(self) -> None:
        """End the process."""
        self._program.close()

    def _start(self) -> None:
        self._program.start(self._first)
        for line in self._watched.values():
            self._program.tell(line)

    def _ended(self, why: str) -> None:
        self._ends += 1
        if self._ends < ENDS_MAX:
            self._start()


def _message(lease: Leased, answer: Mapping[str, Any]) -> Done | Failed:
    """Return the message of the worker that would have waited for this answer."""
    ended = answered(answer)
    outcome, issue_id, receipt = ended.outcome, IssueId(lease.issue_id), ended.receipt
    if outcome.kind is OutcomeKind.SUCCESS:
        result = json.loads(outcome.result) if outcome.result else None
        result = {"note": outcome.note} if result is None and outcome.note else result
        file, request_id = outcome.result_file, lease.request_id
        return Done(issue_id, "W0", None, result, file, receipt, request_id=request_id)
    return Failed(
        issue_id,
        "W0",
        outcome.error,
        None,
        outcome.kind,
        outcome.retry_after_seconds,
        CANNOT_PREPARE if outcome.unprepared else "",
        receipt,
        request_id=lease.request_id,
    )
