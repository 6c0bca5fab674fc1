"""The lander as a process of its own, told and heard as the orchestrator does it."""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from beads_workers.core.records import landing
from tests.support import warm

ROOT = Path(__file__).parent.parent.parent


class Program:
    """``news``: all that it has said."""

    def __init__(self, settings: landing.LanderSettings, *orders: landing.Order) -> None:
        self.news: list[Any] = []
        self._rest = b""
        pipes = [os.pipe() for _ in range(3)]
        (stdin, stdin_writer), (stdout_reader, stdout), (failed, stderr) = pipes
        # Whoever forgets this object closes them, which is the end of the lander.
        self.stdin, self.stdout = open(stdin_writer, "wb"), open(stdout_reader, "rb", buffering=0)  # noqa: SIM115
        self.stderr = open(failed, "rb")  # noqa: SIM115
        module = "beads_workers.landing.run"
        self.process = warm.Process(
            (), ROOT, os.environ, stdout, stderr, stdin=stdin, module=module, safe=True
        )
        for end in (stdin, stdout, stderr):
            os.close(end)
        self.write(landing.settings_to_line(settings), *map(landing.to_line, orders))

    def tell(self, *orders: landing.Order) -> None:
        """Give it orders."""
        self.write(*map(landing.to_line, orders))

    def write(self, *lines: bytes) -> None:
        """Write to its stdin."""
        self.stdin.write(b"".join(lines))
        self.stdin.flush()

    def until(self, wanted: Callable[[Any], object], seconds: float = 60.0) -> Any:
        """The first news from here on that is so."""
        deadline = time.monotonic() + seconds
        while True:
            line = self._line(deadline)
            assert line is not None, f"not heard in {seconds} s: {self.news[-8:]}"
            self.news.append(landing.from_line(line))
            if wanted(self.news[-1]):
                return self.news[-1]

    def idle(self, *answered: str) -> landing.Idle:
        """Until nothing is under way, and these have an answer."""
        return self.until(
            lambda news: (
                isinstance(news, landing.Idle) and set(answered) <= self.landed | self.refused
            )
        )

    def of(self, kind: type[Any]) -> list[Any]:
        """The news of this kind."""
        return [news for news in self.news if isinstance(news, kind)]

    @property
    def landed(self) -> set[str]:
        """Whose landing it told."""
        return {news.issue_id for news in self.of(landing.Landed)}

    @property
    def refused(self) -> set[str]:
        """Whom it refused."""
        return {news.issue_id for news in self.of(landing.Refused)}

    def end(self) -> int:
        """Close its stdin; its exit status."""
        self.stdin.close()
        status = self.process.wait(30)
        self.stdout.close()
        return status

    def kill(self) -> None:
        """As the kernel does when there is no memory left."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self.stdin.close()
        self.stdout.close()

    def errors(self) -> str:
        """What it wrote to stderr; it has ended."""
        return self.stderr.read().decode()

    def _line(self, deadline: float) -> bytes | None:
        while b"\n" not in self._rest:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self.stdout], [], [], left)[0]:
                return None
            data = os.read(self.stdout.fileno(), 1 << 16)
            assert data, f"it has ended: {self.process.wait()} {self.errors()}"
            self._rest += data
        line, _, self._rest = self._rest.partition(b"\n")
        return line
