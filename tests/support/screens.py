"""Terminals for tests: ``TmuxScreen`` is a real screen to look at, ``Pty`` shows every byte."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import shlex
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

PATIENCE_SECONDS = 20.0
LOOK_SECONDS = 0.02
REPOSITORY = Path(__file__).resolve().parents[2]


class TmuxScreen:
    """A tmux of our own, with one window; ``close`` ends it and nothing else."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="bw-tmux-")
        self._socket = f"{self._folder.name}/s"

    def start(
        self,
        command: str | Sequence[str] = (),
        width: int = 80,
        height: int = 24,
        env: Mapping[str, str] | None = None,
        folder: Path = REPOSITORY,
    ) -> TmuxScreen:
        """Run it (a plain bash where there is none) in a window of so many columns and rows.

        ``env`` is added to ours. The window stays when the program has ended, to be looked at.
        """
        shell = command if isinstance(command, str) else shlex.join(command)
        words = [shell or "exec env PS1='$ ' bash --norc --noprofile -i"]
        environment = {**os.environ, "HISTFILE": "", **(env or {})}
        for name in ("TMUX", "TMUX_PANE", "NO_COLOR", "COLUMNS", "LINES"):
            if name not in (env or {}):
                environment.pop(name, None)
        # What is given here applies to the server too, which is started by the first command.
        options = ["set", "-g", "remain-on-exit", "on", ";", "set", "-g", "status", "off", ";"]
        options += ["set", "-sg", "escape-time", "0", ";", "set", "-s", "set-clipboard", "on", ";"]
        options += ["set", "-g", "default-terminal", "tmux-256color", ";"]
        new = ["new-session", "-d", "-x", str(width), "-y", str(height), "-c", str(folder)]
        self._tmux("start-server", ";", *options, *new, *words, environment=environment)
        return self

    def keys(self, *names: str) -> None:
        """Press keys, as tmux names them: ``"q"``, ``"Up"``, ``"C-z"``, ``"Enter"``."""
        self._tmux("send-keys", *names)

    def type(self, text: str) -> None:
        """Type a line and Enter."""
        self._tmux("send-keys", "-l", text)
        self.keys("Enter")

    def letters(self, text: str) -> None:
        """Press keys one after the other, as a person types: in one read they would be a paste."""
        for letter in text:
            self._tmux("send-keys", "-l", letter)

    def click(self, column: int, row: int) -> None:
        """Press and release the left button of a mouse there, from 1 on, as a terminal tells it."""
        self._tmux("send-keys", "-l", f"\x1b[<0;{column};{row}M\x1b[<0;{column};{row}m")

    def clipboard(self) -> str:
        """What a program has put into the clipboard."""
        return self._tmux("show-buffer")

    def paste(self, text: str) -> None:
        """What a terminal sends when a text is pasted, without marks around it."""
        self._tmux("set-buffer", "--", text)
        self._tmux("paste-buffer")

    def text(self) -> str:
        """What stands on the screen, without colours and without spaces at the end of lines."""
        return self._tmux("capture-pane", "-p")

    def styled(self) -> str:
        """The same with its escape sequences."""
        return self._tmux("capture-pane", "-p", "-e", "-N")

    def resize(self, width: int, height: int) -> None:
        """Another size; the program hears of it."""
        self._tmux("resize-window", "-x", str(width), "-y", str(height))

    def has(self, fact: str) -> bool:
        """A flag of tmux: ``alternate_on``, ``cursor_flag``, ``wrap_flag``, ``pane_dead``."""
        return self.ask(fact) == "1"

    def ask(self, fact: str) -> str:
        """Any format of tmux, such as ``cursor_y`` or ``pane_pid``."""
        return self._tmux("display-message", "-p", f"#{{{fact}}}").strip()

    def wait_for(
        self, holds: str | Callable[[str], bool], seconds: float = PATIENCE_SECONDS
    ) -> str:
        """Until the text is on the screen, or holds of it; the screen then."""
        predicate = holds if callable(holds) else lambda text: holds in text
        deadline = time.monotonic() + seconds
        while not predicate(shown := self.text()):
            assert time.monotonic() < deadline, f"not seen: {holds}\n{shown}"
            time.sleep(LOOK_SECONDS)
        return shown

    def close(self) -> None:
        """End this server and what runs in it."""
        subprocess.run(
            ["tmux", "-S", self._socket, "kill-server"], capture_output=True, check=False
        )
        self._folder.cleanup()

    def __enter__(self) -> TmuxScreen:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _tmux(self, *words: str, environment: Mapping[str, str] | None = None) -> str:
        return subprocess.run(
            ["tmux", "-S", self._socket, "-f", "/dev/null", *words],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
            timeout=PATIENCE_SECONDS,
        ).stdout


class Pty:
    """A program on a pseudo-terminal whose other end is ours: every byte, at our own speed."""

    def __init__(
        self,
        *command: str,
        width: int = 80,
        height: int = 24,
        folder: Path = REPOSITORY,
        env: Mapping[str, str] | None = None,
    ) -> None:
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            self._become(command, width, height, folder, env or {})
        self.received = b""

    @staticmethod
    def _become(
        command: Sequence[str], width: int, height: int, folder: Path, env: Mapping[str, str]
    ) -> None:
        try:
            set_size(0, width, height)
            os.chdir(folder)
            os.execve(command[0], command, {**os.environ, "TERM": "xterm-256color", **env})
        finally:
            os._exit(127)

    def modes(self) -> list[object]:
        """The terminal's modes, as of ``termios``."""
        return termios.tcgetattr(self.fd)

    def send(self, data: bytes) -> None:
        """Type."""
        os.write(self.fd, data)

    def resize(self, width: int, height: int) -> None:
        """Another size; the program hears of it."""
        set_size(self.fd, width, height)

    def read_until(self, wanted: bytes, seconds: float = PATIENCE_SECONDS) -> bytes:
        """Everything up to and with ``wanted``; what comes after it is kept."""
        deadline = time.monotonic() + seconds
        while wanted not in self.received:
            left = deadline - time.monotonic()
            assert left > 0 and self._read(left), f"not seen: {wanted!r} in {self.received!r}"
        cut = self.received.index(wanted) + len(wanted)
        before, self.received = self.received[:cut], self.received[cut:]
        return before

    def read_while_quiet_for(self, seconds: float) -> bytes:
        """Everything that comes until nothing has come for so long."""
        while self._read(seconds):
            pass
        before, self.received = self.received, b""
        return before

    def read_some(self, seconds: float) -> bytes:
        """What comes within this time; everything that is not asked for yet."""
        self._read(seconds)
        return self.received

    def exit_status(self, seconds: float = PATIENCE_SECONDS, reading: bool = True) -> int:
        """Its exit status, or minus the signal that ended it; reads what it still says."""
        deadline = time.monotonic() + seconds
        with open(os.pidfd_open(self.pid)) as ended:
            while not select.select([ended], [], [], LOOK_SECONDS)[0]:
                assert time.monotonic() < deadline, f"it still runs: {self.received!r}"
                if reading:
                    self._read(0)
        _, status = os.waitpid(self.pid, 0)
        self.pid = 0
        while self._read(0):  # A terminal gives no more than 4 kB at a time.
            pass
        return os.waitstatus_to_exitcode(status)

    def hang_up(self) -> None:
        """The terminal vanishes."""
        os.close(self.fd)
        self.fd = -1

    def close(self) -> None:
        """End it, if it has not ended."""
        if self.pid:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        if self.fd >= 0:
            os.close(self.fd)

    def _read(self, seconds: float) -> bool:
        if self.fd < 0 or not select.select([self.fd], [], [], seconds)[0]:
            return False
        try:
            data = os.read(self.fd, 65536)
        except OSError:
            return False
        self.received += data
        return bool(data)


@contextmanager
def on_pty(*command: str, width: int = 80, height: int = 24) -> Iterator[Pty]:
    """A ``Pty`` that is closed at the end."""
    terminal = Pty(*command, width=width, height=height)
    try:
        yield terminal
    finally:
        terminal.close()


def set_size(fd: int, width: int, height: int) -> None:
    """The size of a terminal, in columns and rows."""
    fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))


def counters(log: Path) -> tuple[str, ...]:
    """The command of ``tests.support.counters``."""
    return (sys.executable, "-m", "tests.support.counters", str(log))
