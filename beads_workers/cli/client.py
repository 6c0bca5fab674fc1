"""Connections to the running fleet, found from any folder through its run directory.

Imports little: ``status`` must cost no more than an empty application.
"""

from __future__ import annotations

import errno
import json
import os
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from beads_workers.errors import CommandError
from beads_workers.exits import EXIT_NOT_RUNNING, EXIT_USAGE
from beads_workers.runtime.kernel import system
from beads_workers.runtime.locks import is_locked

if TYPE_CHECKING:
    from beads_workers.runtime.project import Mark, Project


T = TypeVar("T")

STATE_FOLDER = ".beads-workers"
EXIT_SECONDS = 15.0
"""Time for the process to end after its last message; its tracker call may take a little."""
SOCKET_BACK_SECONDS = 5.0
"""Time in which a living fleet recreates its control socket (about 2 s), with reserve."""
ANSWER_SECONDS = 10.0
"""Time limit of an answer: the orchestrator answers at once, or is stuck on a full disk."""

GONE = (errno.ECONNRESET, errno.EPIPE, errno.ENOTCONN)

Message = dict[str, Any]
"""Message of the fleet: one JSON object."""


def find_state_directory(typed: str | None = None) -> Path:
    """Return the project's run directory: as given, configured, or the nearest one above.

    Raise ``CommandError`` if it has files that no run of ours has made.
    """
    return believed(_state_directory(typed))


def _state_directory(typed: str | None) -> Path:
    if typed:
        return Path(typed)
    here = Path.cwd()
    mark = _worktree_mark(here)
    for folder in (here, *here.parents):
        if mark is not None and mark.copy.is_relative_to(folder):
            return mark.state_directory
        if (configured := _configured(folder / "beads-workers.toml")) is not None:
            return configured
        state = folder / STATE_FOLDER
        if (state / "run.json").exists():
            return state
        if (state / "tracker.db").exists() or _is_beads(folder / ".beads"):
            return state
    return here / STATE_FOLDER


def _is_beads(path: Path) -> bool:
    if not path.is_dir():
        return False
    from beads_workers.runtime.project import is_tracker

    return is_tracker(path)


def believed(path: Path) -> Path:
    """Return the run directory if all its files are trusted; raise ``CommandError`` otherwise."""
    from beads_workers.runtime.trust import check_state, is_in_index

    owned(lambda: check_state(path, Path.cwd()))
    if is_in_index(path):
        from beads_workers.worktrees.tracked_state import check_untracked

        owned(lambda: check_untracked(path))
    return path


def project_here() -> Project | None:
    """Return the project of the current folder; raise ``CommandError`` for a stranger's."""
    from beads_workers.runtime.project import find_project

    return owned(lambda: find_project(Path.cwd()))


def tracker_here() -> Path | None:
    """Return the nearest built-in tracker; raise ``CommandError`` for a stranger's."""
    from beads_workers.runtime.project import find_tracker

    return owned(lambda: find_tracker(Path.cwd()))


def owned(find: Callable[[], T]) -> T:
    """Return the result of ``find``; raise ``CommandError`` for an untrusted place."""
    from beads_workers.runtime.trust import Untrusted

    try:
        return find()
    except Untrusted as error:
        raise CommandError(str(error), error.hint, EXIT_USAGE) from None


def connect(state_directory: Path) -> ControlClient:
    """Connect to the fleet of this directory; raise ``CommandError`` (exit 3) without one."""
    if (client := connect_if_running(state_directory)) is None:
        raise CommandError(
            "no fleet is running here",
            "start one with 'beads-workers start', or go to the folder of the project",
            EXIT_NOT_RUNNING,
        )
    return client


def connect_if_running(state_directory: Path) -> ControlClient | None:
    """Connect to the fleet of this directory; None if none runs. Raise ``CommandError`` for one
    that cannot be reached."""
    deadline = None
    while (client := try_to_connect(state_directory)) is None:
        if not is_locked(state_directory / "lock"):
            return None
        # The fleet is just starting, or its socket was removed and it makes a new one.
        deadline = deadline or time.monotonic() + SOCKET_BACK_SECONDS
        if time.monotonic() > deadline:
            raise CommandError(
                "a fleet is running here, and its control socket cannot be reached",
                "is its process stopped? see 'ps' for its pid in run.json",
            )
        time.sleep(0.1)
    return client


def try_to_connect(state_directory: Path) -> ControlClient | None:
    """Return a connection to the fleet that answers now; None without one."""
    try:
        info = json.loads((state_directory / "run.json").read_bytes())
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        sock.connect(info["control_socket"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    return ControlClient(sock)


class NoAnswer(CommandError):
    """Error: no message came in time."""


class ControlClient:
    """A connection to a control socket, or to an orchestrator that this process starts."""

    def __init__(self, sock: socket.socket) -> None:
        self.socket = sock
        self.skipped: tuple[bytes, ...] = ()
        """Beginnings of lines that are dropped unread."""
        self._rest = b""
        self._waiting: list[Message | bytes] = []
        """Messages that are received but not read yet, the next one last; bytes: unparsed."""

    def ask(self, control: str, data: dict[str, Any] | None = None) -> dict[str, Any]:
        """Send one request and return its answer; raise ``CommandError`` for an error or none."""
        self.send(control, data)
        answer = self.read(ANSWER_SECONDS)
        if answer is None:
            raise CommandError("the fleet ended before it answered", "", EXIT_NOT_RUNNING)
        return answer

    def send(self, control: str, data: dict[str, Any] | None = None) -> None:
        """Send a request without waiting; a lost fleet shows when its answer is read."""
        request = {"control": control, "control_data": data or {}}
        try:
            self.socket.sendall(json.dumps(request).encode() + b"\n")
        except OSError:
            pass

    def read(self, seconds: float | None = None) -> dict[str, Any] | None:
        """Return the next object; None at the end.

        Raise ``NoAnswer`` if nothing comes in time, and ``CommandError`` for anything else than an
        object.
        """
        self.socket.settimeout(seconds)
        while not self._waiting:
            try:
                data = self.socket.recv(1 << 16)
            except TimeoutError:
                raise NoAnswer(
                    "the fleet does not answer",
                    "is its disk full, or its process stopped? see 'ps' for its pid in run.json",
                ) from None
            except OSError as error:
                if error.errno in GONE:
                    return None
                text = f"the fleet cannot be heard any more: {error.strerror}"
                raise CommandError(text, "'beads-workers status' tries again") from None
            if not data:
                return None
            self._waiting = self._messages(data)[::-1]
        return _object(self._waiting.pop())

    def receive(self) -> tuple[list[dict[str, Any]], bool]:
        """Return the received objects without waiting, and whether the connection has ended.

        Raise ``CommandError``.
        """
        self.socket.settimeout(0)
        over = False
        try:
            data = self.socket.recv(1 << 20)
        except BlockingIOError:
            data = b""
        except OSError:
            data, over = b"", True
        else:
            over = not data
        waiting, self._waiting = self._waiting[::-1], []
        return [_object(each) for each in (*waiting, *self._messages(data))], over

    def stirs(self) -> bool:
        """Wait for data and drop it unread; return False at the end.

        Later messages cannot be parsed any more: only for clients that read state elsewhere.
        """
        self.socket.settimeout(None)
        waiting, self._waiting = self._waiting, []
        try:
            return bool(waiting) or bool(self.socket.recv(1 << 20))
        except OSError:
            return False

    def _messages(self, data: bytes) -> list[Message | bytes]:
        *lines, self._rest = (self._rest + data).split(b"\n")
        return _parsed([line for line in lines if not line.startswith(self.skipped)])

    def fileno(self) -> int:
        """Return the file descriptor, for ``select``."""
        return self.socket.fileno()

    @property
    def drained(self) -> bool:
        """Whether everything that was received so far was read."""
        return not self._waiting

    def follow(self, wait: Callable[[], None] | None = None) -> Iterator[dict[str, Any]]:
        """Yield every message to the end; call ``wait`` before each wait for more."""
        while True:
            if wait is not None and not self._waiting:
                wait()
            if (message := self.read()) is None:
                return
            yield message

    def close(self) -> None:
        """Close the connection."""
        self.socket.close()


def _parsed(lines: list[bytes]) -> list[Message | bytes]:
    # Parsing all lines at once takes a third of the time. If that fails, the lines are kept
    # unparsed, so that those before the bad one are read first.
    try:
        values = json.loads(b"[%b]" % b",".join(lines))
    except (ValueError, RecursionError):
        return [*lines]
    whole = len(values) == len(lines) and all(isinstance(value, dict) for value in values)
    return values if whole else [*lines]


def _object(message: Message | bytes) -> Message:
    if isinstance(message, dict):
        return message
    try:
        value = json.loads(message)
    except (ValueError, RecursionError):
        value = None
    if isinstance(value, dict):
        return value
    raise CommandError(
        "what answers is no fleet of this version", "see 'beads-workers doctor', or restart it"
    )


def wait_for_exit(pid: int, seconds: float = EXIT_SECONDS) -> bool:
    """Wait until the orchestrator's process has ended; return False if it has not in time."""
    import select

    try:
        fd = system.exit_descriptor(pid)
    except OSError:
        return True
    try:
        return bool(select.select([fd], [], [], seconds)[0])
    finally:
        os.close(fd)


def _worktree_mark(cwd: Path) -> Mark | None:
    # Only a linked worktree has a file of this name, so others save the import.
    if not any((folder / ".git").is_file() for folder in (cwd, *cwd.parents)):
        return None
    from beads_workers.runtime.project import worktree_mark

    return owned(lambda: worktree_mark(cwd))


def _configured(file: Path) -> Path | None:
    # Only a file with this key is worth the import of a TOML reader.
    try:
        text = file.read_bytes()
    except OSError:
        return None
    if b"state_dir" not in text:
        return None
    import tomllib

    try:
        state = tomllib.loads(text.decode()).get("state_dir")
    except (UnicodeDecodeError, tomllib.TOMLDecodeError):
        return None
    if not isinstance(state, str):
        return None
    from beads_workers.runtime.trust import check_owner

    owned(lambda: check_owner(file, Path.cwd()))
    _refuse_untrusted(file, state)
    return file.parent / Path(state).expanduser()


def _refuse_untrusted(file: Path, state: str) -> None:
    """Refuse an untrusted ``state_dir``: it could lead commands to another project's fleet."""
    from beads_workers.checks.risky import SettingsFile
    from beads_workers.checks.trust import trusted_lines
    from beads_workers.core.base.text import printable
    from beads_workers.options import KEYS

    lines = [each.line for each in SettingsFile({"state_dir": state}, {}, file).risky()]
    if os.environ.get(KEYS["trust"].variable) or len(trusted_lines(lines, file)) == len(lines):
        return
    raise CommandError(
        f"not trusted, so it is not gone to: {printable(lines[0].text, 200)}",
        "read beads-workers.toml; then: beads-workers trust (or name it with --state-dir)",
        EXIT_USAGE,
    )
