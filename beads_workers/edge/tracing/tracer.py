"""The orchestrator's end of the process that exports spans: starts it, hears it, waits for it."""

from __future__ import annotations

import os
import selectors
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from beads_workers.core.events import Event, Warned
from beads_workers.core.flat import BAD_VALUE
from beads_workers.core.framing import Line, LineReader
from beads_workers.core.json_fields import ProtocolError, parse_object
from beads_workers.core.text import counted, printable
from beads_workers.edge.own_process import say
from beads_workers.edge.tracing.batches import Account, account_of

MODULE = "beads_workers.edge.tracing.exporting"

LAST_SECONDS = 5.0
"""At the end of the run, for the last spans; then it is killed."""

LINE_BYTES_MAX = 4096


def start_tracer(
    journal: Path, selector: selectors.BaseSelector, tell: Callable[[Event], None]
) -> Tracer | None:
    """None where the machine has no process left: that costs spans, and no work."""

    def warn(text: str) -> None:
        tell(Warned(text))

    try:
        return Tracer(journal, selector, warn)
    except OSError as error:
        warn(f"spans are not exported: {error}")
        return None


class Tracer:
    """``warn`` is told the first time that spans are dropped, and if the process is gone.

    Raises ``OSError`` where it cannot be started.
    """

    def __init__(
        self, journal: Path, selector: selectors.BaseSelector, warn: Callable[[str], None]
    ) -> None:
        self.account = Account()
        self._warn: Callable[[str], None] | None = warn
        self._selector: selectors.BaseSelector | None = selector
        self._reader = LineReader(LINE_BYTES_MAX)
        self._process = subprocess.Popen(
            # -P: what lies in the project's folder is never imported.
            [sys.executable, "-P", "-m", MODULE, str(journal)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        assert self._process.stdout is not None
        self._said = self._process.stdout
        os.set_blocking(self._said.fileno(), False)
        selector.register(self._said, selectors.EVENT_READ, lambda mask: self._hear())

    @property
    def pid(self) -> int:
        """Of the process."""
        return self._process.pid

    def finish(self) -> None:
        """The journal is complete: wait for the last spans, no longer than ``LAST_SECONDS``."""
        self._forget()
        os.set_blocking(self._said.fileno(), True)
        try:
            # Which closes its stdin.
            rest, _ = self._process.communicate(timeout=LAST_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            rest, _ = self._process.communicate()
        self._take_in(rest)
        said = f"{counted(self.account.exported, 'span')} exported"
        if self.account.dropped:
            said += f", {self.account.dropped} dropped: {printable(self.account.error)}"
        say("tracing", said)

    def _hear(self) -> None:
        try:
            received = os.read(self._said.fileno(), LINE_BYTES_MAX)
        except BlockingIOError:
            return
        if received:
            self._take_in(received)
            return
        self._forget()
        self._complain("spans are not exported any more: the process for that has died")

    def _take_in(self, received: bytes) -> None:
        for framed in self._reader.feed(received):
            if not isinstance(framed, Line):
                continue
            try:
                self.account = account_of(parse_object(framed.text))
            except (ProtocolError, *BAD_VALUE):
                continue
        if self.account.dropped:
            count = counted(self.account.dropped, "span")
            self._complain(f"{count} could not be exported: {printable(self.account.error)}")

    def _complain(self, text: str) -> None:
        if self._warn is not None:
            warn, self._warn = self._warn, None
            warn(text)

    def _forget(self) -> None:
        if self._selector is not None:
            self._selector.unregister(self._said)
            self._selector = None
