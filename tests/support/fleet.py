"""A whole fleet for tests: ``beads-workers start`` as a process, looked at from outside.

Everything is waited for with a deadline, and nothing is signalled but what a test has started,
by pid and start time.
"""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol, TypeVar

from beads_workers.core.base.model import IssueId
from beads_workers.runtime import sessions
from beads_workers.runtime.journal_file import read_journal
from beads_workers.runtime.run_directory import RunDirectory
from tests.support import warm
from tests.support.totals import is_steady

T = TypeVar("T")
PATIENCE_SECONDS = 60.0
LOOK_SECONDS = 0.02
LOOKS_APART = 3
"""Times as long as a look has taken."""
REPOSITORY = Path(__file__).resolve().parents[2]
BASH_WORKER = REPOSITORY / "bin" / "bw-worker.sh"
PROGRAM = (sys.executable, "-m", "beads_workers")


class Project(Protocol):
    """What ``BdProject`` and ``EmbeddedProject`` have in common."""

    folder: Path
    environment: dict[str, str]

    def read_all(self) -> dict[IssueId, tuple[str, str]]:
        """Status and assignee of every issue."""


def until(holds: Callable[[], T], seconds: float = PATIENCE_SECONDS, what: str = "") -> T:
    """Wait until it holds and return what it gave; fails after the time.

    A look that costs (a ``bd``, a command) is taken as rarely as it is dear.
    """
    deadline = time.monotonic() + seconds
    while True:
        began = time.monotonic()
        if value := holds():
            return value
        took = time.monotonic() - began
        assert began + took < deadline, what or "did not happen in time"
        time.sleep(max(LOOK_SECONDS, LOOKS_APART * took))


def listens(where: Path) -> bool:
    """Whether somebody does at that socket; its file is there a little earlier."""
    with socket.socket(socket.AF_UNIX) as caller:
        return caller.connect_ex(str(where)) == 0


def call(project: Project, *arguments: str, folder: Path | None = None) -> Called:
    """Run ``beads-workers`` to its end, as a person would."""
    return warm.run(
        unproved(*arguments),
        cwd=folder or project.folder,
        env=project.environment,
        timeout=PATIENCE_SECONDS,
    )


def unproved(verb: str, *arguments: str) -> tuple[str, ...]:
    """The same words, without runs of verify that only show what it tests: those have tests of
    their own."""
    asks = verb == "land" or (verb == "start" and "--verify" in arguments)
    return (verb, *(("--skip-base-check",) if asks else ()), *arguments)


Called = subprocess.CompletedProcess[str]


class Fleet:
    """One ``start``; ``output`` and ``errors`` hold what it printed so far."""

    def __init__(
        self,
        project: Project,
        *arguments: str,
        environment: Mapping[str, str] | None = None,
        folder: Path | None = None,
        verb: str = "start",
        scratch: Path | None = None,
    ) -> None:
        self.project = project
        self.state_directory = project.folder / ".beads-workers"
        if "--state-dir" in arguments:
            self.state_directory = Path(arguments[arguments.index("--state-dir") + 1])
        self._scratch = scratch or project.folder.parent
        number = len(list(self._scratch.glob("start-*.out")))
        self._out = self._scratch / f"start-{number}.out"
        self._err = self._scratch / f"start-{number}.err"
        self._workers: list[subprocess.Popen[bytes]] = []
        self._forgotten = False
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self.process = warm.start(
                unproved(verb, *arguments),
                cwd=folder or project.folder,
                env={**project.environment, **(environment or {})},
                stdout=out.fileno(),
                stderr=err.fileno(),
            )

    # --- what can be seen of it ---------------------------------------------------------------

    @property
    def output(self) -> str:
        """The lines of its events, and its summary."""
        return self._out.read_text()

    @property
    def errors(self) -> str:
        """Its preflight checks and its errors."""
        return self._err.read_text()

    def started(self) -> Fleet:
        """Wait until its preflight checks are through."""
        until(lambda: "ok fleet" in self.errors or self.process.poll() is not None)
        assert "ok fleet" in self.errors, self.said()
        return self

    @property
    def pid(self) -> int:
        """The orchestrator's process."""
        return int(self._announced(r"ok fleet +pid (\d+)"))

    @property
    def socket(self) -> Path:
        """Where its workers connect."""
        return Path(self._announced(r"ok fleet .* (/tmp/beads-workers-\d+\.sock)"))

    @property
    def run_id(self) -> str:
        """This run."""
        return self._announced(r"ok fleet .* run (\S+)")

    @property
    def run_folder(self) -> Path:
        """Its journal, logs and locks."""
        return self.state_directory / "runs" / self.run_id

    def journal(self, kind: str = "") -> list[dict[str, Any]]:
        """Its records so far, all or of one kind; a field at its default is missing there."""
        lines = (self.run_folder / "journal.jsonl").read_bytes().splitlines(keepends=True)
        records = [json.loads(line) for line in lines if line.endswith(b"\n")]
        return [r for r in records if not kind or r["e"] == kind]

    def wait_for(self, kind: str, seconds: float = PATIENCE_SECONDS, **fields: Any) -> Any:
        """The first record of this kind with these fields."""

        def found() -> Any:
            records = self.journal(kind)
            return [r for r in records if all(r.get(k) == v for k, v in fields.items())]

        return until(found, seconds, f"no {kind} {fields}")[0]

    def worker_pid(self, worker_id: str) -> int:
        """The process of a worker that the fleet started."""
        return int(self.wait_for("worker_started", worker_id=worker_id)["pid"])

    def said(self) -> str:
        """Everything it printed, for a failure."""
        return f"--- stdout\n{self.output}\n--- stderr\n{self.errors}"

    # --- what is done to it -------------------------------------------------------------------

    def call(self, *arguments: str, folder: Path | None = None) -> Called:
        """Another ``beads-workers`` in the same project."""
        return call(self.project, *arguments, folder=folder)

    def status(self) -> dict[str, Any]:
        """``status --json``."""
        done = self.call("status", "--json")
        assert done.returncode == 0, (done.stdout, done.stderr, self.said())
        shown: dict[str, Any] = json.loads(done.stdout)
        return shown

    def bash_worker(self, *command: str) -> subprocess.Popen[bytes]:
        """A worker in Bash joins."""
        environment = {**self.project.environment, "ORCHESTRATOR_PID": str(self.pid)}
        with (self._scratch / f"bash-{len(self._workers)}.log").open("wb") as log:
            worker = subprocess.Popen(
                [BASH_WORKER, *command],
                cwd=self.project.folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._workers.append(worker)
        return worker

    def bash_workers_left(self) -> list[int]:
        """Wait for the Bash workers; their exit statuses."""
        return [worker.wait(PATIENCE_SECONDS) for worker in self._workers]

    def wait(self, seconds: float = PATIENCE_SECONDS) -> int:
        """Its exit code, when it has come to its end."""
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"still running\n{self.said()}") from None

    # --- what must be true after it -----------------------------------------------------------

    def leaves_nothing(self) -> None:
        """No process, no socket, no lock, no issue in progress."""
        assert self.token_holders() == []
        assert sessions.start_time(self.pid) is None, "the orchestrator still runs"
        assert not self.socket.exists()
        directory = RunDirectory(self.state_directory)
        assert not directory.control_socket.exists()
        assert not directory.is_locked(), "the run directory is still locked"
        is_steady(read_journal(self.run_folder / "journal.jsonl"))
        run_id = self.run_folder.name
        until(lambda: not directory.is_alive(run_id), 10, "something of the run still lives")
        busy = {i: s for i, s in self.project.read_all().items() if s[0] == "in_progress"}
        assert busy == {}

    def token_holders(self) -> list[int]:
        """Living processes that carry the run's token in their environment."""
        pids = [int(p.name) for p in Path("/proc").iterdir() if p.name.isdigit()]
        return [
            pid
            for pid in pids
            if sessions.has_token(pid, self.run_id, None) and sessions.start_time(pid)
        ]

    def is_gone(self) -> bool:
        """Nothing of it lives. One that exits loses its environment before it closes its files."""
        directory = RunDirectory(self.state_directory)
        return not self.token_holders() and not directory.is_alive(self.run_id)

    def forget(self) -> None:
        """It was killed, nothing of it lives, and its journal may be anything from now on."""
        assert not self.token_holders()
        self.socket.unlink(missing_ok=True)
        self._forgotten = True

    def end(self) -> None:
        """Teardown: whatever is still there of it is killed."""
        if "ok fleet" in self.errors and not self._forgotten:
            _kill(self.pid, _command_of(self.pid, "beads_workers.runtime.main"))
            # Without its state directory it has ended already, or its test has failed.
            records = self.journal("worker_started") if self.run_folder.exists() else []
            for record in records:
                _kill(record["pid"], _command_of(record["pid"], "beads_workers"))
            sessions.sweep(self.run_id, None)
            # One that was killed leaves its socket for a next start, which never comes here.
            self.socket.unlink(missing_ok=True)
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        for worker in self._workers:
            if worker.poll() is None:
                sessions.kill_sessions({worker.pid}, "", ())
                worker.wait()

    def _announced(self, pattern: str) -> str:
        match = re.search(pattern, self.started().errors)
        assert match is not None, self.said()
        return match[1]


def _command_of(pid: int, word: str) -> bool:
    try:
        return word.encode() in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def _kill(pid: int, ours: bool) -> None:
    if ours and (started := sessions.start_time(pid)) is not None:
        sessions.kill(pid, started, signal.SIGKILL)
