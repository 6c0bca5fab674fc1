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

from rich.console import Group

from beads_workers.cli.backlog import BacklogWatch
from beads_workers.cli.feeds import Feed, Message
from beads_workers.cli.own_keys import own_keys, run
from beads_workers.cli.person import signed
from beads_workers.cli.why import why_lines
from beads_workers.core.base.text import counted, printable
from beads_workers.errors import CommandError
from beads_workers.ui import bindings, theme, viewer
from beads_workers.ui.attempt_view import sections
from beads_workers.ui.dashboard import (
    RUN_STYLES,
    draw,
    page_rows,
    pointed_at,
    shows_log,
    worker_rows,
)
from beads_workers.ui.panels import sentences, text_columns
from beads_workers.ui.terminal import Events, Terminal
from beads_workers.ui.wrapping import Wrapping
from beads_workers.views.attempt_files import save
from beads_workers.views.background import AttemptReader, BackgroundAnswer, LogTail

# Input: snapshots and keys. Output: frames and requests. The dashboard is a client like any other:
# if it is slow, stopped or killed, the fleet does not notice.


FRAME_SECONDS = 0.25
"""Least time between two frames without a key; a key is answered at once."""
TICK_SECONDS = 1.0
"""Time between frames if nothing happens: clocks go on."""
MESSAGE_SECONDS = 5.0
"""Time for which an answer of the fleet is shown, unless a key is pressed."""
SHRINK_SECONDS = 30.0
"""Time for which the place of workers that fell idle stays empty."""
END_SECONDS = 1.0
"""Time for which the last frame of a run is shown before the summary."""

READ_SECONDS = 600.0
"""Time after the last key for which an open attempt is shown although the run has ended."""

CLICK = "click:"
"""Beginning of the key for a click, as ``ui.keys`` names it."""
MOUSE_VARIABLE = "BW_MOUSE"
"""Variable that leaves the mouse to the terminal from the start if it is 0."""

Caption = Callable[[Mapping[str, Any], float], str]
"""(snapshot, its age in seconds) -> caption of this moment, in one line."""


class Left(Enum):
    """Reasons for the end of the dashboard."""

    ENDED = "the run has ended"
    LEFT = "the viewer left"
    DETACHED = "the viewer left, and the fleet lives on"
    LOST = "the terminal, or the fleet, is gone"


@dataclass(frozen=True, slots=True)
class DashboardResult:
    """Result of the dashboard. ``ended``: the run's last message. ``signal``: the first signal."""

    why: Left
    ended: Message | None = None
    signal: int | None = None


ANSWER_IDS_MAX = 5
"""Most issues that an answer names in the last row."""


def shortened(answer: str) -> str:
    """Return an answer of the fleet with the number of issues in place of many ids."""
    done, _, ids = answer.partition(": ")
    count = len(ids.split(", "))
    return f"{done}: {counted(count, 'issue')}" if count > ANSWER_IDS_MAX else answer


def show(
    feed: Feed,
    role: viewer.Role,
    run_folder: Callable[[str], Path],
    caption: Caption | None = None,
    pane: viewer.Pane = viewer.Pane.FLEET,
) -> DashboardResult:
    """Draw until the run ends or the viewer leaves; then restore the terminal.

    ``run_folder``: run id -> the folder of its logs. ``pane``: what is shown first.
    """
    with Terminal.open() as terminal:
        return _Live(terminal, feed, role, run_folder, caption, pane).run()


class _Live:
    def __init__(
        self,
        terminal: Terminal,
        feed: Feed,
        role: viewer.Role,
        run_folder: Callable[[str], Path],
        caption: Caption | None,
        pane: viewer.Pane,
    ) -> None:
        self._terminal = terminal
        self._feed = feed
        self._run_folder = run_folder
        self._logs = LogTail(run_folder)
        self._attempts = AttemptReader(run_folder, why_lines, replay=role is viewer.Role.REPLAY)
        self._backlog = BacklogWatch(run_folder("-").parent.parent)
        self._wrapping = Wrapping()
        self._done: BackgroundAnswer[str] = BackgroundAnswer()
        self._jobs = 0
        """Number of things that a person had done in the background so far."""
        self._awaits_job = False
        self._caption = caption
        self._theme = theme.named(os.environ)
        self._renderer = viewer.Renderer()
        unicode = (sys.stdout.encoding or "").lower().startswith("utf")
        part = viewer.OWN_PARTS.get(pane, viewer.Part.WORKERS)
        self._look = viewer.Screen(role, pane, part, unicode=unicode)
        try:
            self._look = replace(self._look, own_keys=own_keys())
        except CommandError as error:
            self._look = replace(self._look, message=error.message)
        self._picture = Group()
        self._mouse = os.environ.get(MOUSE_VARIABLE, "") != "0"
        self._lines: list[str] = []
        self._snapshot: Message | None = None
        self._ended: Message | None = None
        self._seen: DashboardResult | None = None
        self._signal: int | None = None
        self._draw_at = 0.0
        """Time of the next frame; every event can bring it forward."""
        self._drawn_at = 0.0
        self._said_at = 0.0
        self._tallest_at = 0.0
        """Time at which the list of workers last had as many rows as are kept for it."""
        self._key_at = 0.0
        """Time of the last key."""
        self._told_end = False

    def run(self) -> DashboardResult:
        self._terminal.set_mouse(self._mouse)
        while self._seen is None:
            now = time.monotonic()
            if now >= self._draw_at:
                self._draw(now)
            self._terminal.take_text(self._look.typed is not None)
            events = self._terminal.wait(self._feed.sockets(), max(0.0, self._until() - now))
            self._handle(events)
        return self._seen

    def _until(self) -> float:
        due = self._feed.deadline()
        return self._draw_at if due is None else min(self._draw_at, due)

    def _draw(self, now: float) -> None:
        following = self._look.in_attempt or self._look.pane is viewer.Pane.ISSUES
        self._draw_at = now + (FRAME_SECONDS if following else TICK_SECONDS)
        if self._snapshot is None:
            return
        self._say_done()
        columns, rows = self._terminal.size
        if shows_log(self._look, columns, rows):
            self._read(self._snapshot, columns)
        if self._look.pane is viewer.Pane.ISSUES and self._look.role is not viewer.Role.REPLAY:
            known = self._backlog.of(self._snapshot)
            self._look = replace(self._look, backlog=known, now=time.time())
        if self._look.message and now >= self._said_at + MESSAGE_SECONDS:
            self._look = replace(self._look, message="")
        if self._caption is not None:
            caption = self._caption(self._snapshot, self._feed.age())
            self._look = replace(self._look, caption=caption)
        self._remember_rows(self._snapshot, now)
        self._picture = draw(self._snapshot, self._look, self._feed.age(), columns, rows)
        self._lines = self._renderer.lines(self._picture, columns, rows)
        self._terminal.draw(self._lines)
        # Measured from the end of drawing: slow frames still leave a pause.
        self._drawn_at = time.monotonic()

    def _remember_rows(self, snapshot: Message, now: float) -> None:
        """Keep the place of workers that fall idle for a while, so that nothing jumps."""
        rows = worker_rows(snapshot)
        if rows >= self._look.tallest or now >= self._tallest_at + SHRINK_SECONDS:
            self._tallest_at = now
            self._look = replace(self._look, tallest=rows)

    def _read(self, snapshot: Message, columns: int) -> None:
        """Read the text that is shown, as far as it is known without waiting."""
        screen = self._look
        if screen.in_attempt and screen.opened is not None:
            view = self._attempts.view(screen.opened, snapshot)
            screen = replace(screen, view=view, opened=view.pin)
        log = self._section(screen, snapshot, columns)
        if screen.in_attempt and screen.wrap and screen.pane is not viewer.Pane.ABOUT:
            log = self._wrapping.of(log, text_columns(screen, columns))
        self._look = viewer.placed(screen, log)

    def _section(self, screen: viewer.Screen, snapshot: Message, columns: int) -> viewer.ShownLog:
        view = screen.view
        if screen.in_attempt and screen.opened is not None and not screen.opened.number:
            log = viewer.ShownLog("no attempt of it is known (yet)")
        else:
            log = self._log(screen, snapshot)
        if view is None or screen.pane not in viewer.ATTEMPT or screen.pane is viewer.Pane.LOG:
            return log
        if screen.pane is viewer.Pane.DIFF:
            lines = self._attempts.diff(view, snapshot)
            return viewer.ShownLog("git is asked ...", lines or ())
        why = self._attempts.why(view.pin.issue_id, snapshot)
        found = sections(view, why if why is not None else ["the tracker is asked ..."])
        return viewer.ShownLog("", list(sentences(found, text_columns(screen, columns))))

    def _log(self, screen: viewer.Screen, snapshot: Message) -> viewer.ShownLog:
        try:
            # Of an open attempt in each section: its lines have the times at which they came.
            return self._logs.read(screen, snapshot)
        except OSError as error:
            return viewer.ShownLog(f"it cannot be read: {error.strerror}")

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
            self._handle_message(message)
        if self._feed.ended and self._look.role is not viewer.Role.REPLAY and self._seen is None:
            self._handle_end()

    def _handle_message(self, message: Message) -> None:
        if "snapshot" in message:
            self._snapshot = message["snapshot"]
            if message["snapshot"]["running"]:
                self._ended = None  # The fleet was restarted.
            self._draw_at = min(self._draw_at, self._drawn_at + FRAME_SECONDS)
        elif "ended" in message:
            self._ended = message["ended"]
        elif message.get("text") == "detached":
            self._seen = DashboardResult(Left.DETACHED, signal=self._signal)
        else:
            text = message.get("error") or message.get("text") or ""
            # The new state of the fleet stands in the head, and may change again.
            self._say("" if text in RUN_STYLES else shortened(text))

    def _handle_end(self) -> None:
        """Handle the end of the fleet: draw its last snapshot, and show it for a moment.

        If a person reads an attempt, it stays until the person leaves it.
        """
        read = self._look.in_attempt and time.monotonic() < self._key_at + READ_SECONDS
        if read and self._signal is None:
            if not self._told_end:
                self._told_end = True
                what = "the run has ended" if self._ended else "the fleet is gone"
                self._say(f"{what}; q goes back and leaves")
            return
        if self._ended is not None and self._signal is None:
            self._terminal.wait([], max(0.0, self._drawn_at + FRAME_SECONDS - time.monotonic()))
            self._draw(time.monotonic())
            self._terminal.wait([], END_SECONDS)
        self._seen = DashboardResult(
            Left.ENDED if self._ended else Left.LOST, self._ended, self._signal
        )

    def _pressed(self, key: str) -> None:
        if (background := theme.BACKGROUND_KEYS.get(key)) is not None:
            if self._theme is None:
                self._show_in(background)
            return
        if self._snapshot is None:
            return
        if key == "ctrl+l":
            self._terminal.draw(self._lines, full=True)
            return
        self._key_at = time.monotonic()
        rows = page_rows(self._snapshot, self._look, *self._terminal.size)
        if key.startswith(CLICK):
            column, row = map(int, key.removeprefix(CLICK).split(","))
            if (at := pointed_at(self._picture, column, row)) is None:
                return
            self._look, wish = bindings.point(self._look, at, self._snapshot, rows)
        else:
            self._look, wish = bindings.press(self._look, key, self._snapshot, rows)
        # If the key shows a message, the message counts from now.
        self._said_at = self._key_at
        self._draw_at = 0.0
        if wish is not None:
            self._carry_out(wish)

    def _carry_out(self, wish: viewer.Wish) -> None:
        match wish:
            case viewer.Ask(control, fields):
                self._feed.ask(control, signed(control, fields))
                self._backlog.hurry()
                if control == "bw.stop":
                    self._say("stopping: everyone is told to leave")
            case viewer.Leave():
                self._seen = DashboardResult(Left.LEFT, self._ended, self._signal)
            case viewer.Detach():
                self._feed.ask("bw.detach", {})
            case viewer.Faster():
                self._say(self._feed.change_speed(wish))
            case viewer.OtherTheme():
                names = theme.NAMES
                now = names.index(self._theme) if self._theme else -1
                self._theme = names[(now + 1) % len(names)]
                self._show_in(self._theme)
                self._say(f"colours for a background that is {self._theme}")
            case viewer.Copy(what, text):
                self._terminal.copy(text)
                self._say(f"{what} was sent to the clipboard of this terminal")
            case viewer.Mouse():
                self._mouse = not self._mouse
                self._terminal.set_mouse(self._mouse)
                does = "chooses and opens rows" if self._mouse else "selects text again"
                self._say(f"the mouse {does}; m changes that")
            case viewer.SayPage():
                self._show_page()
            case viewer.Save(path):
                self._save(path)
            case viewer.RunOwn(command, issue_id):
                directory = self._run_folder("-").parent.parent
                self._in_background(lambda: run(command, issue_id, directory))
            case viewer.LookAgain():
                self._backlog.hurry()

    def _signalled(self, number: int) -> None:
        if self._look.role is not viewer.Role.START:
            self._seen = DashboardResult(Left.LEFT, self._ended, number)
        elif self._feed.ended:  # Only an attempt was still being read.
            self._seen = DashboardResult(
                Left.ENDED if self._ended else Left.LOST, self._ended, self._signal
            )
        elif self._signal is None:
            self._signal = number
            self._feed.ask("bw.stop", {})
            self._say("stopping: running tasks are requeued; Ctrl-C again to stop now")
        else:
            self._feed.ask("bw.stop", {"seconds": 0})
            self._say("stopping now: running tasks are killed and requeued")

    def _save(self, path: str) -> None:
        log, pane = self._look.log, self._look.pane
        source = self._logs.path if pane is viewer.Pane.LOG else None
        lines = [line for _, line in log.whole_lines()] if log is not None else []
        self._in_background(lambda: save(path, source, lines))
        self._say("saving ...")

    def _in_background(self, work: Callable[[], str]) -> None:
        """Do something that may take long, and say what came of it."""
        self._jobs += 1
        self._awaits_job = True
        self._done.of(self._jobs, work)

    def _say_done(self) -> None:
        """Say the result of the last of them, once."""
        if self._awaits_job and (said := self._done.of(self._jobs, lambda: "")):
            self._awaits_job = False
            self._say(said)

    def _show_page(self) -> None:
        from beads_workers.cli import web

        assert self._snapshot is not None, "keys do nothing before there is one"
        directory = self._run_folder(self._snapshot["run_id"]).parent.parent
        if (url := web.url(directory)) is None:
            self._say("no live page: 'watch --web' serves one")
        else:
            self._look = bindings.show_page(self._look, web.card(url))

    def _show_in(self, name: str) -> None:
        self._renderer = viewer.Renderer(name=name)
        self._draw_at = 0.0

    def _say(self, text: str) -> None:
        self._look = replace(self._look, message=printable(text))
        self._said_at = time.monotonic()
        self._draw_at = 0.0
