"""The means of one case of the worker kit: a socket, a worker's process, a task and a ``bd``.

**The task.** The protocol does not say what a worker does with an issue, but the kit has to know
when the work begins and ends. So the worker under test is told to run the program ``bw-task`` for
each issue, with the issue's id as its last argument or in ``BW_ISSUE_ID``. The kit puts ``bw-task``
first on ``PATH``. The id says what ``bw-task`` does: ``ok-...`` succeeds, ``fail-...`` fails.
``hold-...`` runs until the kit releases it, with a child process that must not outlive it, and
takes a second to end.

**The tracker.** A program ``bd`` beside ``bw-task`` records its calls, and succeeds; for an issue
``refused-...`` it fails. The worker runs in a folder with a ``.beads``.

**The orchestrator.** ``ORCHESTRATOR_PID`` is a process of the case alone, so that the socket
``/tmp/beads-workers-PID.sock`` is its own, too, and cases run side by side.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event

from beads_workers.conformance.link import Breach, Message, PeerLink
from beads_workers.core.base.wire import NAMES, SideMessage
from beads_workers.runtime.kernel import system

LOOK_SECONDS = 0.01
DYING_SECONDS = 0.5
"""Time for a process that has closed its connection to exit, so that its status is known; also
for a killed process to be gone."""
ASIDES = frozenset(
    {name for kind, name in NAMES.items() if issubclass(kind, SideMessage)} | {"CONTROL"}
)
"""Messages that a worker may send at any time besides the conversation."""

TASK_PROGRAM = """#!/bin/sh
# The task of a conformance test: it does what the issue's id says.
for id; do :; done
id=${id:-$BW_ISSUE_ID}
printf 'task %s %s 0\\n' "$id" $$ >>FOLDER/log
case $id in
  hold-*)
    trap 'sleep 1; exit 1' TERM
    exec 4<>"FOLDER/go-$id"
    head -c 1 <&4 >/dev/null & child=$!
    printf 'task %s %s 1\\n' "$id" "$child" >>FOLDER/log
    echo '40 % of it'
    wait "$child" ;;
  fail-*)
    echo 'this one fails' >&2
    exit 1 ;;
esac
"""

BD_PROGRAM = """#!/bin/sh
# The tracker of a conformance test: it writes down how it was called.
printf 'bd %s\\n' "$*" >>FOLDER/log
case "$*" in *refused-*) echo 'somebody else has it' >&2; exit 1 ;; esac
"""


OWN_COMMAND = "it does not run bw-task (see --help): what its tasks do is not seen"


class NotClaimed(Exception):
    """The worker does not claim to support a feature."""


@dataclass(frozen=True, slots=True)
class Timing:
    """Times in seconds."""

    # Wait for what is due.
    patience: float = 10.0
    # Wait for what must not come.
    quiet: float = 0.6
    # Longest time that a READY may be held.
    hold: float = 60.0
    # Longest interval of heartbeats that the kit waits for.
    heartbeat: float = 5.0


@dataclass(slots=True)
class TaskProcess:
    """A process of a task, identified by pid and start time."""

    pid: int
    started: int

    @property
    def lives(self) -> bool:
        """Whether the process still lives; a zombie does not."""
        stat = system.stat_of(self.pid)
        return stat is not None and not stat.is_dead and stat.started == self.started


@dataclass(slots=True)
class Bench:
    """One case. Use it in a ``with``; nothing of the case is left at the end."""

    command: Sequence[str]
    timing: Timing
    transcript: list[str] = field(default_factory=list)
    proved: set[str] = field(default_factory=set)
    """Requirements that the case has confirmed."""
    not_ours: Event = field(default_factory=Event)
    """Set once a case finds that the worker has a command of its own: no case need wait for
    bw-task."""
    ready: Message = field(default_factory=dict)
    """The worker's first READY."""
    folder: Path = field(default_factory=lambda: Path(tempfile.mkdtemp(prefix="bw-conformance-")))
    link: PeerLink = field(init=False)
    _listener: socket.socket | None = None
    _listens_at: Path = field(init=False)
    _orchestrator: subprocess.Popen[bytes] | None = None
    _worker: subprocess.Popen[bytes] | None = None
    _seen: dict[int, int] = field(default_factory=dict)
    _numbers: int = 0

    @property
    def pid(self) -> int:
        """Process id of the worker; 0 if it does not run."""
        return 0 if self._worker is None else self._worker.pid

    def __enter__(self) -> Bench:
        (self.folder / "bin").mkdir()
        (self.folder / "project" / ".beads").mkdir(parents=True)
        for name, text in (("bw-task", TASK_PROGRAM), ("bd", BD_PROGRAM)):
            program = self.folder / "bin" / name
            program.write_text(text.replace("FOLDER", str(self.folder)))
            program.chmod(0o755)
        self._orchestrator = subprocess.Popen(
            ["cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL
        )
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.processes():
            with suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGKILL)
        if self._worker is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._worker.pid, signal.SIGKILL)
            self._worker.wait()
        assert self._orchestrator is not None and self._orchestrator.stdin is not None
        self._orchestrator.stdin.close()
        self._orchestrator.wait()
        self.stop_listening()
        if hasattr(self, "link"):
            self.link.socket.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    # --- the worker's process -----------------------------------------------------------------

    @property
    def place(self) -> Path:
        """Path of the socket for ``ORCHESTRATOR_PID``, according to the protocol."""
        assert self._orchestrator is not None
        return Path(f"/tmp/beads-workers-{self._orchestrator.pid}.sock")

    def listen(self, path: Path | None = None) -> None:
        """Listen at this path, or at the path of the protocol.

        The socket listens before it has its name: programs that remove dead sockets in /tmp, such
        as ``beads-workers clean``, would remove it in between.
        """
        self._listens_at = path or self.place
        made = self._listens_at.with_suffix(".new")
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(made))
        made.chmod(0o600)
        listener.listen(512)
        made.rename(self._listens_at)
        self._listener = listener

    def stop_listening(self) -> None:
        """Stop listening, like an orchestrator that is gone."""
        if self._listener is not None:
            self._listener.close()
            self._listens_at.unlink(missing_ok=True)
            self._listener = None

    def launch(self, *, bw_socket: Path | None = None, only_pid: bool = False) -> None:
        """Start the worker; ``only_pid``: without BW_SOCKET."""
        environment = {k: v for k, v in os.environ.items() if not k.startswith("BW_ISSUE")}
        environment["PATH"] = f"{self.folder / 'bin'}:{environment.get('PATH', '')}"
        environment["ORCHESTRATOR_PID"] = self.place.stem.rpartition("-")[2]
        environment["BW_SOCKET"] = str(bw_socket or self.place)
        environment["TMPDIR"] = str(self.folder)
        if only_pid:
            del environment["BW_SOCKET"]
        with open(self.folder / "output", "wb") as output:
            self._worker = subprocess.Popen(
                self.command,
                cwd=self.folder / "project",
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    def accept(self, requirement: str, seconds: float | None = None) -> None:
        """Wait for the worker's connection.

        Connections that close without a word are ignored: ``beads-workers doctor`` and others probe
        sockets in /tmp like this, on a busy machine many times.
        """
        assert self._listener is not None
        deadline = time.monotonic() + (seconds or max(self.timing.patience, 10.0))
        self._listener.settimeout(0.05)
        while True:
            try:
                connection, _ = self._listener.accept()
            except TimeoutError:
                if self.has_exited or time.monotonic() > deadline:
                    end = "" if self.has_exited else "it has not connected; "
                    allowed = 0.0 if self.has_exited else self.timing.patience
                    raise Breach(requirement, end + self.last_words(), allowed) from None
                continue
            if not _hangs_up(connection, deadline - time.monotonic()):
                break
            connection.close()
        self.link = PeerLink(connection, self.transcript, "W-3-1", "W-4.1-1", "W-4.1-1", ">")

    def hear_ready(self) -> None:
        """Read the first READY of a connection."""
        message = self.link.read(max(self.timing.patience, 10.0))
        while message is not None and message["type"] == "PRIORITY":
            message = self.link.read(max(self.timing.patience, 10.0))
        if message is None or message["type"] != "READY":
            raise self._broken("W-2.3-1", f"READY was due, and {self._came(message)}", message)
        self.ready = self.ready or message
        self.proved |= {"W-2.3-1", "W-3-1", "W-4.1-1"}

    def start(self) -> None:
        """Start a worker; return once it has connected and sent READY."""
        self.listen()
        self.launch()
        self.accept("W-2.2-1")
        self.hear_ready()

    def claims_11(self, feature: str) -> None:
        """Raise ``NotClaimed`` if the worker's READY does not announce this feature."""
        ready = self.ready
        can = isinstance(ready.get("version"), str) and ready["version"].startswith("1.")
        if can and feature == "prefetch":
            can = int(ready.get("prefetch_count", 0)) > 0
        elif can and feature != "1.1":
            can = feature in ready.get("features", [])
        if not can:
            raise NotClaimed(feature)

    def exit_status(self, requirement: str, seconds: float | None = None) -> int:
        """Wait for the worker's end; return its exit status."""
        assert self._worker is not None
        try:
            status = self._worker.wait(self.timing.patience if seconds is None else seconds)
        except subprocess.TimeoutExpired:
            why = f"it has not exited; {self.last_words()}"
            raise Breach(requirement, why, self.timing.patience) from None
        self.transcript.append(f"  (it exits with status {status})")
        return status

    @property
    def has_exited(self) -> bool:
        """Whether the worker's process is gone."""
        return self._worker is None or self._worker.poll() is not None

    def last_words(self) -> str:
        """Return how the worker's process has ended, if it has, and the last line of its output."""
        output = (self.folder / "output").read_text("utf-8", "replace").strip().splitlines()
        last_line = (
            f"its output ends in {output[-1][:200]!r}" if output else "it has printed nothing"
        )
        if self._worker is None or not self.has_exited:
            return last_line
        return f"it has exited with status {self._worker.returncode}; {last_line}"

    def _came(self, message: Mapping[str, object] | None) -> str:
        if message is not None:
            return f"{json.dumps(message)[:200]} came"
        if not self.link.is_over:
            return "nothing came"
        self.until(lambda: self.has_exited, DYING_SECONDS)
        return f"it closed its connection; {self.last_words()}"

    # --- what is said -------------------------------------------------------------------------

    def say(self, kind: str, **fields: object) -> None:
        """Send a message of the orchestrator; every worker is called W5."""
        self.link.send(self.message(kind, **fields))

    def message(self, kind: str, **fields: object) -> Message:
        """Return a message of version 1, or with ``version`` one of 1.1."""
        return {"type": kind, "worker_id": "W5", "timestamp": round(time.time(), 6), **fields}

    def task(self, issue_id: str, **fields: object) -> Message:
        """Send a TASK of version 1, and return it; a ``hold-...`` issue can be released."""
        self.prepare(issue_id)
        task = self.message("TASK", issue_id=issue_id, priority=2, title=f"Try {issue_id}")
        message = task | fields
        self.link.send(message)
        return message

    def task_11(self, issue_id: str, **fields: object) -> Message:
        """Send a TASK of 1.1 with a new ``request_id``, and return it."""
        return self.task(issue_id, **self.additions(), **fields)

    def additions(self) -> Message:
        """Return the fields that 1.1 adds to a TASK."""
        self._numbers += 1
        return {
            "version": "1.1",
            "description": "",
            "issue_type": "task",
            "labels": [],
            "attempt": 1,
            "request_id": f"conformance.{self._numbers}",
        }

    def prepare(self, issue_id: str) -> None:
        """Make the pipe at which a ``hold-...`` issue waits."""
        if issue_id.startswith("hold-"):
            with suppress(FileExistsError):
                os.mkfifo(self.folder / f"go-{issue_id}", 0o600)

    def expect(
        self, kind: str, requirement: str, seconds: float | None = None, **fields: object
    ) -> Message:
        """Return the next message of the conversation; it must have this type and these fields."""
        message = self.next_turn(seconds, kind)
        wrong = message is None or message["type"] != kind
        if not wrong and message is not None:
            wrong = any(message.get(name) != value for name, value in fields.items())
        if message is None or wrong:
            if kind == "FAILED":
                self.must_be_ours()
            if kind == "READY" and message is not None and self._is_told_twice(message):
                raise Breach("W-5.1-5", f"{self._came(message)} once more")
            due = " ".join([kind, *(f"{name}={value!r}" for name, value in fields.items())])
            raise self._broken(requirement, f"{due} was due, and {self._came(message)}", message)
        return message

    def _broken(self, requirement: str, why: str, message: Message | None) -> Breach:
        is_late = message is None and not self.link.is_over
        return Breach(requirement, why, self.timing.patience if is_late else 0.0)

    def next_turn(self, seconds: float | None = None, kind: str = "") -> Message | None:
        """Return the next message of the conversation, or one of this type.

        None as for ``PeerLink.read``.
        """
        deadline = time.monotonic() + (self.timing.patience if seconds is None else seconds)
        while True:
            message = self.link.read(deadline - time.monotonic())
            if message is None or message["type"] == kind or message["type"] not in ASIDES:
                return message

    def _is_told_twice(self, message: Message) -> bool:
        ends = ("DONE", "FAILED")
        issue_ids = [each.get("issue_id") for each in self.link.received if each["type"] in ends]
        return message["type"] in ends and issue_ids.count(message["issue_id"]) > 1

    def quiet(
        self,
        requirement: str,
        seconds: float | None = None,
        *,
        ready: str = "",
        at_end: str = "",
        since: float | None = None,
    ) -> None:
        """Check that no message of the conversation comes for a while, and the connection stays.

        ``ready``, ``at_end``: requirements that a READY and the end of the stream break; else
        ``requirement``. ``since``: start of that time (monotonic), if the worker measures it, too.
        """
        began = time.monotonic() if since is None else since
        deadline = began + (self.timing.quiet if seconds is None else seconds)
        while (left := deadline - time.monotonic()) > 0:
            message = self.link.read(left, in_time=True)
            if self.link.is_over:
                raise Breach(at_end or requirement, self._came(None))
            if message is not None and message["type"] not in ASIDES:
                broken = ready if ready and message["type"] == "READY" else requirement
                raise Breach(broken, f"nothing was due, and {self._came(message)}")

    def must(self, requirement: str, holds: bool, why: str, allowed: float = 0.0) -> None:
        """Confirm a requirement; raise ``Breach`` if it does not hold.

        ``allowed``: seconds it had.
        """
        if not holds:
            raise Breach(requirement, why, allowed)
        self.proved.add(requirement)

    # --- what is done -------------------------------------------------------------------------

    def began(self, issue_id: str) -> int:
        """Return how often the task was begun."""
        return sum(1 for name, _, child in self._began() if name == issue_id and child == "0")

    def order(self) -> list[str]:
        """Return the issues in the order in which their tasks were begun."""
        return [name for name, _, child in self._began() if child == "0"]

    def wait_begun(self, issue_id: str, requirement: str = "W-4.3-2") -> None:
        """Wait until the task runs, with its child if it has one."""
        due = 2 if issue_id.startswith("hold-") else 1

        def runs() -> bool:
            return sum(1 for name, *_ in self._began() if name == issue_id) >= due

        if not self.until(lambda: runs() or self.not_ours.is_set()) or not runs():
            with suppress(Breach):
                while self.link.read(LOOK_SECONDS) is not None:
                    pass
            self.must_be_ours()
            text = f"bw-task has not run for {issue_id} (see --help); {self.last_words()}"
            raise Breach(requirement, text, self.timing.patience)
        self.processes()

    def let_go(self, issue_id: str) -> None:
        """Let a held task succeed."""

        def opened() -> bool:
            try:
                pipe = os.open(self.folder / f"go-{issue_id}", os.O_WRONLY | os.O_NONBLOCK)
            except OSError:
                return False
            os.write(pipe, b".")
            os.close(pipe)
            return True

        self.until(opened)

    def processes(self) -> list[TaskProcess]:
        """Return all processes of tasks that still live."""
        for _, pid, _ in self._began():
            stat = system.stat_of(int(pid))
            if stat is not None:
                self._seen.setdefault(int(pid), stat.started)
        return [p for p in (TaskProcess(*each) for each in self._seen.items()) if p.lives]

    def wait_ended(self, requirement: str) -> None:
        """Wait until no process of a task is left; raise ``Breach`` after the patience."""
        if not self.until(lambda: not self.processes()):
            left = [process.pid for process in self.processes()]
            why = f"processes of its task are still there: {left} (end their process group)"
            raise Breach(requirement, why, self.timing.patience)
        self.proved.add(requirement)

    @property
    def has_own_command(self) -> bool:
        """Whether the worker has sent DONE without a run of bw-task: it has a command of its
        own."""
        return not self.order() and any(each["type"] == "DONE" for each in self.link.received)

    def must_be_ours(self) -> None:
        """Raise ``NotClaimed`` if the worker has a command of its own."""
        if self.not_ours.is_set() or self.has_own_command:
            self.not_ours.set()
            raise NotClaimed(OWN_COMMAND)

    def bd_calls(self, issue_id: str) -> list[str]:
        """Return how ``bd`` was called for this issue."""
        return [line for line in self.log() if line.startswith("bd ") and issue_id in line.split()]

    def log(self) -> list[str]:
        """Return what was run, in order: ``task ID PID 0``, 1 for its child; ``bd WORD...``."""
        try:
            return (self.folder / "log").read_text().splitlines()
        except FileNotFoundError:
            return []

    def until(self, holds: Callable[[], bool], seconds: float | None = None) -> bool:
        """Return whether a condition comes to hold within the patience."""
        deadline = time.monotonic() + (self.timing.patience if seconds is None else seconds)
        while not holds():
            if time.monotonic() > deadline:
                return False
            time.sleep(LOOK_SECONDS)
        return True

    def _began(self) -> Iterator[tuple[str, str, str]]:
        for line in self.log():
            if line.startswith("task ") and len(words := line.split()) == 4:
                yield words[1], words[2], words[3]


def _hangs_up(connection: socket.socket, seconds: float) -> bool:
    """Return whether the connection ends without a word."""
    connection.settimeout(max(seconds, LOOK_SECONDS))
    try:
        return not connection.recv(1, socket.MSG_PEEK)
    except TimeoutError:
        return False
    except OSError:
        return True
