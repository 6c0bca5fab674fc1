"""The dashboard on a terminal: snapshots and keys in, frames and requests out."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from typing import Any

from beads_workers.cli.agent_logs import of_tail
from beads_workers.cli.feeds import Feed, Message
from beads_workers.core.text import as_shown, printable
from beads_workers.executors.files import log_file, output_file
from beads_workers.ui.dashboard import draw, page_rows
from beads_workers.ui.terminal import Events, Terminal
from beads_workers.ui.viewer import (
    Ask,
    Detach,
    Faster,
    Leave,
    Look,
    Pane,
    Renderer,
    Role,
    ShownLog,
    Wish,
    chosen_worker,
    press,
)

# --- log tail ------------------------------------------------------------------------------------
# The end of the log of a worker's attempt, for the dashboard: read again only when it grew.


LINES_A_ROW = 20
"""Of an agent's log, for one that is worth showing."""

TAIL_BYTES = 64 << 10
"""More than a screen can show."""


class LogTail:
    """``run_folder``: run id -> the folder of that run."""

    def __init__(self, run_folder: Callable[[str], Path]) -> None:
        self._run_folder = run_folder
        self._known: tuple[object, ...] = ()
        self._log: ShownLog | None = None

    def read(self, look: Look, snapshot: Mapping[str, Any], rows: int) -> ShownLog:
        """The log of the chosen worker: of what it runs, or of what it ran last."""
        worker = chosen_worker(look, snapshot)
        if worker is None:
            return ShownLog("no worker, so no log")
        found = self._find(worker, snapshot)
        if found is None:
            return ShownLog(f"{worker['worker_id']} has run nothing yet")
        title, path = found
        try:
            stat = path.stat()
        except FileNotFoundError:
            return ShownLog(f"{title}: nothing printed yet")
        seen = (title, path, stat.st_ino, stat.st_size, stat.st_mtime_ns, rows)
        if self._log is None or seen != self._known:
            self._known, self._log = seen, ShownLog(f"{title}: {path.name}", _tail(path, rows))
        return self._log

    def _find(
        self, worker: Mapping[str, Any], snapshot: Mapping[str, Any]
    ) -> tuple[str, Path] | None:
        folder = str(self._run_folder(snapshot["run_id"]))
        worker_id = worker["worker_id"]
        if (issue_id := worker["issue_id"]) is not None:
            attempt = worker["attempt"]
            # An attempt whose first step has printed has its own log already.
            log = Path(log_file(folder, issue_id, attempt))
            path = log if log.exists() else Path(output_file(folder, worker_id))
            return f"{worker_id} runs {issue_id}, attempt {attempt}", path
        for outcome in reversed(snapshot["outcomes"]):
            if outcome["worker_id"] == worker_id:
                issue_id, attempt = outcome["issue_id"], outcome["attempt"]
                title = f"{worker_id} last ran {issue_id}, attempt {attempt}"
                return title, Path(log_file(folder, issue_id, attempt))
        return None


def _tail(path: Path, rows: int) -> tuple[str, ...]:
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - TAIL_BYTES))
        data = file.read(TAIL_BYTES)
    lines = data.decode("utf-8", "replace").split("\n")
    if lines[-1] == "":
        lines.pop()
    # A cut first line is no line.
    whole = lines[1:] if size > TAIL_BYTES and len(lines) > 1 else lines
    readable = of_tail(path)
    # Noise of agents is left out, so more is looked at than is shown.
    shown = [readable.line(line) for line in whole[-rows * LINES_A_ROW :]]
    return tuple(as_shown(line) for line in shown if line is not None)[-rows:]


# --- live ----------------------------------------------------------------------------------------
# The dashboard on a terminal: snapshots and keys in, frames and requests out.
#
# A client like any other: it can be slow, stopped or killed, and the fleet does not notice.


FRAME_SECONDS = 0.25
"""Between two frames that nobody asked for; a key is answered at once."""
TICK_SECONDS = 1.0
"""Clocks go on although nothing happens."""
MESSAGE_SECONDS = 5.0
"""An answer of the fleet stands so long, or until the next key."""
END_SECONDS = 1.0
"""The last picture of a run stands so long before the summary takes its place."""

Caption = Callable[[Mapping[str, Any], float], str]
"""(snapshot, its age in seconds) -> what to say about this moment, in one line."""


class Left(Enum):
    """Why the dashboard is over."""

    ENDED = "the run has ended"
    LEFT = "the viewer left"
    DETACHED = "the viewer left, and the fleet lives on"
    LOST = "the terminal, or the fleet, is gone"


@dataclass(frozen=True, slots=True)
class DashboardResult:
    """How it went. ``ended``: the run's last word. ``signal``: the first that came."""

    why: Left
    ended: Message | None = None
    signal: int | None = None


def show(
    feed: Feed, role: Role, run_folder: Callable[[str], Path], caption: Caption | None
) -> DashboardResult:
    """Draw until the run ends or the viewer leaves; the terminal is as before when this returns.

    ``run_folder``: run id -> where its logs are.
    """
    with Terminal.open() as terminal:
        return _Live(terminal, feed, role, run_folder, caption).run()


class _Live:
    def __init__(
        self,
        terminal: Terminal,
        feed: Feed,
        role: Role,
        run_folder: Callable[[str], Path],
        caption: Caption | None,
    ) -> None:
        self._terminal = terminal
        self._feed = feed
        self._logs = LogTail(run_folder)
        self._caption = caption
        self._renderer = Renderer()
        unicode = (sys.stdout.encoding or "").lower().startswith("utf")
        self._look = Look(role, unicode=unicode)
        self._lines: list[str] = []
        self._snapshot: Message | None = None
        self._ended: Message | None = None
        self._seen: DashboardResult | None = None
        self._signal: int | None = None
        self._draw_at = 0.0
        """When the next frame is due; every event can bring it forward."""
        self._drawn_at = 0.0
        self._said_at = 0.0

    def run(self) -> DashboardResult:
        while self._seen is None:
            now = time.monotonic()
            if now >= self._draw_at:
                self._draw(now)
            events = self._terminal.wait(self._feed.sockets(), max(0.0, self._until() - now))
            self._handle(events)
        return self._seen

    def _until(self) -> float:
        due = self._feed.deadline()
        return self._draw_at if due is None else min(self._draw_at, due)

    def _draw(self, now: float) -> None:
        following = self._look.pane is Pane.LOG
        self._draw_at = now + (FRAME_SECONDS if following else TICK_SECONDS)
        if self._snapshot is None:
            return
        columns, rows = self._terminal.size
        if following:
            log = self._logs.read(self._look, self._snapshot, rows)
            self._look = replace(self._look, log=log)
        if self._look.message and now >= self._said_at + MESSAGE_SECONDS:
            self._look = replace(self._look, message="")
        if self._caption is not None:
            caption = self._caption(self._snapshot, self._feed.age())
            self._look = replace(self._look, caption=caption)
        picture = draw(self._snapshot, self._look, self._feed.age(), columns, rows)
        self._lines = self._renderer.lines(picture, columns, rows)
        self._terminal.draw(self._lines)
        # From its end: however long it took, the next one does not follow at its heels.
        self._drawn_at = time.monotonic()

    def _handle(self, events: Events) -> None:
        if events.gone:
            self._seen = DashboardResult(Left.LOST, self._ended, signal.SIGHUP)
            return
        if events.resized or events.resumed:
            self._draw_at = 0.0
        for number in events.signals:
            self._signalled(number)
        for key in events.keys:
            self._pressed(key)
        for message in self._feed.take():
            self._heard(message)
        if self._feed.over and self._look.role is not Role.REPLAY and self._seen is None:
            self._over()

    def _heard(self, message: Message) -> None:
        if "snapshot" in message:
            self._snapshot = message["snapshot"]
            self._draw_at = min(self._draw_at, self._drawn_at + FRAME_SECONDS)
        elif "ended" in message:
            self._ended = message["ended"]
        elif message.get("text") == "detached":
            self._seen = DashboardResult(Left.DETACHED, signal=self._signal)
        else:
            self._say(message.get("error") or message.get("text") or "")

    def _over(self) -> None:
        """The fleet has ended: its last picture comes in its turn, and stands for a moment."""
        if self._ended is not None and self._signal is None:
            self._terminal.wait([], max(0.0, self._drawn_at + FRAME_SECONDS - time.monotonic()))
            self._draw(time.monotonic())
            self._terminal.wait([], END_SECONDS)
        self._seen = DashboardResult(
            Left.ENDED if self._ended else Left.LOST, self._ended, self._signal
        )

    def _pressed(self, key: str) -> None:
        if self._snapshot is None:
            return
        if key == "ctrl+l":
            self._terminal.draw(self._lines, full=True)
            return
        rows = page_rows(self._snapshot, self._look, *self._terminal.size)
        self._look, wish = press(self._look, key, self._snapshot, rows)
        # Where the key has something to say, it says it from now on.
        self._said_at = time.monotonic()
        self._draw_at = 0.0
        if wish is not None:
            self._carry_out(wish)

    def _carry_out(self, wish: Wish) -> None:
        match wish:
            case Ask(control, fields):
                self._feed.ask(control, fields)
                if control == "bw.stop":
                    self._say("stopping: everyone is told to leave")
            case Leave():
                self._seen = DashboardResult(Left.LEFT, self._ended, self._signal)
            case Detach():
                self._feed.ask("bw.detach", {})
            case Faster():
                self._say(self._feed.change_speed(wish))

    def _signalled(self, number: int) -> None:
        if self._look.role is not Role.START:
            self._seen = DashboardResult(Left.LEFT, self._ended, number)
        elif self._signal is None:
            self._signal = number
            self._feed.ask("bw.stop", {})
            self._say("stopping: running tasks are requeued; Ctrl-C again to stop now")
        else:
            self._feed.ask("bw.stop", {"seconds": 0})
            self._say("stopping now: running tasks are killed and requeued")

    def _say(self, text: str) -> None:
        self._look = replace(self._look, message=printable(text))
        self._said_at = time.monotonic()
        self._draw_at = 0.0
