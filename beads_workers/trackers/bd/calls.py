"""Running ``bd``: one process at a time, bounded in time and output; a hung process is killed."""

from __future__ import annotations

import codecs
import os
import re
import select
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from beads_workers.core.base import limits
from beads_workers.core.base.model import value
from beads_workers.core.base.source import Calls, SourceError
from beads_workers.kinds import CallLog
from beads_workers.runtime.kernel import system
from beads_workers.trackers.bd.guarded_start import GatedProcess, could_not_begin

CALL_SECONDS_PER_ID = 2.0
"""Seconds for each issue of a call: ten times the slowest measured write of one issue (0.2 s)."""
OUTPUT_BYTES_MAX = 64 << 20
"""Limit of the output of a call, in bytes. A listing of 10,000 long issues is under 20 MB; more
must not fill our memory."""
STDERR_BYTES_MAX = 1 << 20
MESSAGE_CHARS_MAX = 300


class UnknownOutcome(SourceError):
    """The call may or may not have done its work: read the issues before anything is written."""

    passing = True


@value
class BdResult:
    """Result of one call: exit status, and both outputs (bytes, cut at their limits)."""

    command: str
    status: int
    stdout: bytes
    stderr: bytes
    cut: bool = False
    seconds: float = 0.0


@dataclass(slots=True)
class BdCalls:
    """Runner of ``bd`` in one folder, in the name of one actor."""

    program: str
    folder: Path
    actor: str
    # Counts calls and seconds.
    calls: Calls
    log: CallLog | None = None
    environment: Mapping[str, str] | None = None
    # ``call_seconds`` and ``call_seconds_per_id`` limit one call. After that, ``bd`` is killed with
    # every process in its process group: hooks, but neither its daemon nor its server.
    call_seconds: float = limits.BD_SECONDS
    call_seconds_per_id: float = CALL_SECONDS_PER_ID
    # The global options of every call; they grow when this ``bd`` turns out to need more.
    fixed: list[str] = field(default_factory=list)
    _had_tracker: bool = False
    _late: subprocess.Popen[bytes] | None = None

    def run(
        self, arguments: Sequence[str], *, ids: int = 0, text: str = "", actor: str = ""
    ) -> BdResult:
        """Call ``bd``; raise ``SourceError`` if it cannot start, ``UnknownOutcome`` if it hung and
        was killed.

        ``ids``: number of issues in the call. ``text``: its stdin (else nothing). ``actor``: in
        whose name, if not this run's. The caller judges the exit status.
        """
        self._await_late()
        # If it existed and is gone, bd would search further up and find another tracker.
        beads = self.folder / ".beads"
        if beads.exists():
            self._had_tracker = True
        elif self._had_tracker:
            raise SourceError(
                f"{beads} is gone", f"put {beads} back; 'bd init' would make a new one"
            )
        argv = [self.program, *self.fixed, *arguments]
        with _file_for_output() as stdout, _file_for_output() as stderr:
            began = time.monotonic()
            process = self._start(argv, text, stdout, stderr, actor or self.actor)
            limit = self.call_seconds + self.call_seconds_per_id * ids
            ended = _wait(process, limit)
            seconds = time.monotonic() - began
            self.calls.count += 1
            self.calls.seconds += seconds
            if not ended:
                self._end(process)
                raise UnknownOutcome(
                    f"bd {arguments[0]} (pid {process.pid}) did not answer in {limit:g} s",
                    "it was ended; see what holds it (a lock, the disk, the network), or give it"
                    " more time with --bd-timeout",
                )
            self._told_end(process)
            answer = _answer(arguments, process.returncode, stdout, stderr, seconds)
        if could_not_begin(answer.status, answer.stderr):
            error_text = answer.stderr.decode("utf-8", "replace")
            raise SourceError(f"{plain(self.program)} {plain(error_text)}", "check bd --version")
        return answer

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        self._late = process
        for number in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(process.pid, number)
            except ProcessLookupError:
                pass
            if _wait(process, limits.TERM_GRACE_SECONDS):
                self._await_late()
                return

    def _await_late(self) -> None:
        """Raise while a process lives on that could not be killed: the kernel waits for a disk."""
        if self._late is None:
            return
        if self._late.poll() is None:
            raise UnknownOutcome(
                f"bd (pid {self._late.pid}) cannot be ended",
                "nothing else is asked until it is gone; see what it waits for: a disk, a network",
            )
        self._told_end(self._late)
        self._late = None

    def _told_end(self, process: subprocess.Popen[bytes]) -> None:
        if self.log is not None:
            self.log.ended(process.pid)

    def _start(
        self, argv: list[str], text: str, stdout: IO[bytes], stderr: IO[bytes], actor: str
    ) -> subprocess.Popen[bytes]:
        # Files instead of pipes: bd can end although nobody reads them, even after our death.
        with tempfile.TemporaryFile() if text else nullcontext() as stdin:
            if stdin is not None:
                stdin.write(text.encode("utf-8", "replace"))
                stdin.flush()
            try:
                held = GatedProcess(
                    argv, self.folder, self._environment(actor), stdin, stdout, stderr
                )
            except (OSError, ValueError) as error:
                raise _not_started(self.program, error) from error
            with held:
                # Logged before it acts: a claim that no later start knows of would strand issues.
                if self.log is not None:
                    self.log.started(held.process.pid, start_time(held.process.pid), argv)
                held.let_go()
        return held.process

    def _environment(self, actor: str) -> dict[str, str]:
        own = dict(os.environ if self.environment is None else self.environment)
        own |= {
            "BEADS_ACTOR": actor,
            "BD_ACTOR": actor,
            # Use the daemon if it runs; if it does not, a call must neither wait for one nor leave
            # one behind.
            "BEADS_AUTO_START_DAEMON": "false",
            "BD_LAST_TOUCHED_FALLBACK": "0",
            # The form of JSON that all versions have; 2.0 has another one by default.
            "BD_JSON_ENVELOPE": "0",
            "NO_COLOR": "1",
        }
        return own


def _file_for_output() -> IO[bytes]:
    try:
        return tempfile.TemporaryFile()
    except OSError as error:
        raise SourceError(
            f"no file for what bd says: {error.strerror}", "see 'beads-workers doctor'"
        ) from error


def start_time(pid: int) -> int:
    """Return the clock ticks between boot and the start of ``pid``; 0 if they cannot be known."""
    stat = system.stat_of(pid)
    return stat.started if stat is not None else 0


def plain(text: str) -> str:
    """Return the text as one line for a log or a screen: no control characters, bounded."""
    line = "".join(c if c.isprintable() else " " for c in text)
    return " ".join(line.split())[:MESSAGE_CHARS_MAX].rstrip()


def _wait(process: subprocess.Popen[bytes], seconds: float) -> bool:
    """Wait without polling if the kernel supports that; return False if the process still runs."""
    try:
        descriptor = system.exit_descriptor(process.pid)
    except (OSError, AttributeError):
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True
    try:
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        ended = bool(poll.poll(seconds * 1000))
    finally:
        os.close(descriptor)
    if ended:
        process.wait()
    return ended


_JSON = re.compile(rb"""^(?=[\[{]\s*(?:["{}\]]|$))""", re.MULTILINE)
"""Begin of an object, or of an array of objects or texts, at the begin of a line."""


def _json_in(output: bytes) -> bytes:
    """Return the output without a byte order mark, and without lines that come before the JSON."""
    plain_output = output.removeprefix(codecs.BOM_UTF8)
    found = _JSON.search(plain_output)
    return plain_output[found.start() :] if found else plain_output


def _answer(
    arguments: Sequence[str], status: int, stdout: IO[bytes], stderr: IO[bytes], seconds: float
) -> BdResult:
    stdout.seek(0)
    stderr.seek(0)
    output = stdout.read(OUTPUT_BYTES_MAX + 1)
    cut = len(output) > OUTPUT_BYTES_MAX
    if "--json" in arguments:
        output = _json_in(output)
    return BdResult(arguments[0], status, output, stderr.read(STDERR_BYTES_MAX), cut, seconds)


def _not_started(program: str, error: OSError | ValueError) -> SourceError:
    if isinstance(error, FileNotFoundError):
        return SourceError(
            f"{plain(program)} not found", "npm install -g @beads/bd, or put bd on PATH"
        )
    return SourceError(f"{plain(program)} cannot be run: {plain(str(error))}", "check bd --version")
