"""The timeline of the report: a row for each worker, a bar for each attempt, bands for trouble.

Positions across are percentages, so it fits every width and is zoomed by making it wider; rows
have fixed heights. It is plain SVG that reads without a script: each bar links to its row in the
table of attempts and carries a tooltip.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from xml.etree.ElementTree import Element

from beads_workers.core.findings import STEPS_SECONDS
from beads_workers.core.history import Attempt, History, Span, WorkerSpan
from beads_workers.dashboard.html_parts import add, el, number, percent
from beads_workers.dashboard.words import OUTCOME_WORDS, duration

AXIS_HEIGHT = 22
LANE_HEIGHT = 16
NAMES_WIDTH = 58
BAR_SHARE_MIN = 0.0012
"""A bar is at least this share of the width: an attempt of a second in a night is still seen."""
TICKS_MAX = 8
FINE_TICKS_MAX = 64
"""The second number is for a timeline that is zoomed in."""
RELATIVE_SECONDS = 600
"""Shorter runs are read in seconds from their beginning, longer ones by the clock."""
ROW_HEIGHTS = ((12, 26), (32, 18), (64, 14))
ROW_HEIGHT_MIN = 11
"""(up to so many workers, height of a row); a hundred workers fit on two screens."""


def timeline(history: History) -> Element:
    """The whole of it, names at the left and the plot beside them."""
    workers = list(dict.fromkeys(worker_ids(history)))
    plot = _Plot(history, workers)
    return el(
        "div",
        plot.names(),
        el("div", plot.picture(), class_="plot"),
        class_="timeline",
        id="timeline",
        tabindex="0",
        role="group",
        aria_label="Timeline of workers and attempts; the table of attempts says the same",
    )


def worker_ids(history: History) -> Iterator[str]:
    """Of everybody who lived or worked, in order."""
    yield from (span.worker_id for span in history.workers)
    yield from (attempt.worker_id for attempt in history.attempts)


class _Plot:
    def __init__(self, history: History, workers: list[str]) -> None:
        self.history = history
        self.seconds = max(history.seconds, 0.001)
        self.row_height = next((h for n, h in ROW_HEIGHTS if len(workers) <= n), ROW_HEIGHT_MIN)
        lanes = [("tracker", history.troubles), ("paused", history.pauses)]
        self.lanes = [(name, spans) for name, spans in lanes if spans]
        self.top = AXIS_HEIGHT + LANE_HEIGHT * len(self.lanes)
        self.rows = {w: self.top + n * self.row_height for n, w in enumerate(workers)}
        self.bottom = self.top + len(workers) * self.row_height
        self.height = self.bottom + AXIS_HEIGHT

    def names(self) -> Element:
        """The left column, which stays where it is when the plot is scrolled."""
        texts = [
            self._name(lane, AXIS_HEIGHT + n * LANE_HEIGHT, LANE_HEIGHT, "lane-name")
            for n, (lane, _) in enumerate(self.lanes)
        ]
        texts += [self._name(w, y, self.row_height, "name") for w, y in self.rows.items()]
        size = "small" if self.row_height < 14 else None
        svg = el("svg", width=NAMES_WIDTH, height=self.height, class_=size)
        return el("div", add(svg, texts), class_="names", aria_hidden="true")

    def _name(self, text: str, top: float, height: float, name: str) -> Element:
        y = top + height / 2
        return el("text", text, x=NAMES_WIDTH - 8, y=y, dy="0.35em", class_=name)

    def picture(self) -> Element:
        """The plot: what lies below is drawn first."""
        svg = el("svg", width="100%", height=self.height)
        add(svg, self._stripes())
        add(svg, self._ticks())
        for n, (lane, spans) in enumerate(self.lanes):
            add(svg, (self._band(s, lane, AXIS_HEIGHT + n * LANE_HEIGHT) for s in spans))
        add(svg, (self._life(span) for span in self.history.workers))
        add(svg, (self._bar(n, a) for n, a in enumerate(self.history.attempts)))
        add(svg, (self._death(span) for span in self.history.workers if span.died))
        return svg

    def _stripes(self) -> Iterator[Element]:
        # Every second row, or every second five of many: the eye keeps to its row.
        group = 1 if self.row_height > 14 else 5
        for n, y in enumerate(self.rows.values()):
            if n // group % 2:
                yield el("rect", class_="stripe", y=y, width="100%", height=self.row_height)

    def _ticks(self) -> Iterator[Element]:
        coarse = set(_ticks(self.history, TICKS_MAX))
        for at in _ticks(self.history, FINE_TICKS_MAX):
            if at not in coarse:
                yield self._tick(at, "tick fine")
        for at in sorted(coarse):
            yield self._tick(at, "tick")

    def _tick(self, at: float, name: str) -> Element:
        x = percent(at, self.seconds)
        line = el("line", x1=x, x2=x, y1=AXIS_HEIGHT - 4, y2=self.bottom + 4)
        # A label at the very edge would be cut in two.
        share = at / self.seconds
        anchor = "at-start" if share < 0.03 else "at-end" if share > 0.97 else None
        text = _tick_text(self.history, at)
        labels = [
            el("text", text, x=x, y=y, class_=anchor) for y in (AXIS_HEIGHT - 8, self.bottom + 16)
        ]
        return el("g", line, *labels, class_=name)

    def _band(self, span: Span, lane: str, y: float) -> Element:
        end = self.seconds if span.ended is None else span.ended
        x, width = percent(span.began, self.seconds), self._width(end - span.began)
        took = duration(end - span.began)
        said = f"the tracker could not be asked for {took}: {span.text}"
        text = said if lane == "tracker" else f"paused for {took}"
        return el(
            "g",
            el("title", text[:400]),
            el("rect", class_="shade", x=x, width=width, y=y, height=self.bottom - y),
            el("rect", class_="strip", x=x, width=width, y=y + 3, height=LANE_HEIGHT - 6, rx=2),
            class_=f"band band-{lane}",
        )

    def _life(self, span: WorkerSpan) -> Element:
        end = self.seconds if span.ended is None else span.ended
        y = self.rows[span.worker_id] + self.row_height / 2
        return el(
            "line",
            class_="life",
            x1=percent(span.began, self.seconds),
            x2=percent(end, self.seconds),
            y1=y,
            y2=y,
        )

    def _bar(self, number_: int, attempt: Attempt) -> Element:
        inset = 3 if self.row_height > 20 else 2 if self.row_height > 14 else 1
        said = (
            f"{attempt.issue_id}, attempt {attempt.attempt}: {OUTCOME_WORDS[attempt.outcome]},"
            f" {duration(attempt.seconds)}"
        )
        rect = el(
            "rect",
            el("title", said),
            x=percent(attempt.began, self.seconds),
            width=self._width(attempt.seconds),
            y=self.rows[attempt.worker_id] + inset,
            height=self.row_height - 2 * inset,
            rx=2 if self.row_height > 14 else 1,
        )
        # Not one by one with Tab: there are a thousand. The table can be read instead.
        return el("a", rect, href=f"#a{number_}", class_=f"b o-{attempt.outcome}", tabindex="-1")

    def _death(self, span: WorkerSpan) -> Element:
        y = self.rows[span.worker_id] + self.row_height / 2
        cross = el("path", d="M-3.5-3.5 3.5 3.5M3.5-3.5-3.5 3.5")
        why = f"{span.worker_id} (pid {span.pid}) died: exit status {span.status}"
        x = percent(span.ended or 0.0, self.seconds)
        return el("svg", el("title", why), cross, class_="death", x=x, y=number(y))

    def _width(self, seconds: float) -> str:
        return percent(max(seconds, BAR_SHARE_MIN * self.seconds), self.seconds)


def _ticks(history: History, most: int) -> Iterator[float]:
    """Seconds of the run at round times, at most so many."""
    step = next(
        (s for s in (0.1, 0.2, 0.5, *STEPS_SECONDS) if history.seconds <= s * most),
        86400 * math.ceil(history.seconds / 86400 / most),
    )
    if history.seconds <= RELATIVE_SECONDS:
        yield from (n * step for n in range(int(history.seconds / step) + 1))
        return
    local = history.began_at + time.localtime(history.began_at).tm_gmtoff
    first = math.ceil(local / step) * step - local
    yield from (first + n * step for n in range(int((history.seconds - first) / step) + 1))


def _tick_text(history: History, at: float) -> str:
    if history.seconds <= RELATIVE_SECONDS:
        return f"{round(at, 1):g} s"
    now = time.localtime(round(history.began_at + at))
    if now.tm_sec:
        return time.strftime("%H:%M:%S", now)
    return time.strftime("%H:%M" if now.tm_hour or now.tm_min else "%a %d", now)
