"""The small charts of the report page: how long attempts took, and how many ended when."""

from __future__ import annotations

import bisect
from xml.etree.ElementTree import Element

from beads_workers.core import findings
from beads_workers.core.history import History
from beads_workers.core.report import done
from beads_workers.dashboard.html_parts import bar, el, percent, table
from beads_workers.dashboard.report_tables import figures, section
from beads_workers.dashboard.words import clock, duration

# fmt: off
EDGES_SECONDS = (
    0.0, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0,
    60.0, 120.0, 300.0, 600.0, 1200.0, 1800.0, 3600.0, 7200.0, 14400.0, 28800.0, 86400.0,
)
# fmt: on
"""Of the durations' histogram: each step about doubles, and people can count in them."""


def durations(history: History) -> Element:
    """How long attempts took: a histogram with steps that double."""
    ended = [a for a in history.attempts if a.ended is not None]
    good = findings.durations(done(history))
    every = findings.durations(ended)
    said = figures(
        (
            ("done: median, 90 %, longest", _three(good)),
            ("all: median, 90 %, longest", _three(every)),
        )
    )
    counts: dict[int, list[int]] = {}
    for attempt in ended:
        step = max(0, bisect.bisect_right(EDGES_SECONDS, attempt.seconds) - 1)
        row = counts.setdefault(step, [0, 0])
        row[attempt.outcome != "success"] += 1
    if not counts:
        return section("Durations", el("p", "No attempt has ended yet."))
    steps = range(min(counts), max(counts) + 1)
    most = max(map(sum, counts.values()))
    rows = [_step(step, counts.get(step, [0, 0]), most) for step in steps]
    heads = ("Took", "", "Attempts")
    return section("Durations", said, table("histogram", heads, rows))


def _three(found: findings.Durations) -> str:
    if not found.count:
        return "-"
    return " · ".join(map(duration, (found.median, found.p90, found.longest)))


def _step(step: int, counts: list[int], most: int) -> Element:
    good, bad = counts
    last = step + 1 == len(EDGES_SECONDS)
    edge = duration(EDGES_SECONDS[step])
    label = f"over {edge}" if last else f"{edge} - {duration(EDGES_SECONDS[step + 1])}"
    return el(
        "tr",
        el("td", label, class_="n"),
        el("td", bar([("o-success", good), ("o-error", bad)], most), class_="graph"),
        el("td", f"{good + bad:,}", el("small", f" {bad:,} not done") if bad else None, class_="c"),
    )


def throughput(history: History) -> Element:
    """Attempts that ended, over time."""
    width, buckets = findings.throughput(history)
    most = max((b.done + b.failed for b in buckets), default=0) or 1
    height, full = 120, 104
    svg = el("svg", width="100%", height=height, class_="columns", role="img",
             aria_label=f"Attempts that ended per {duration(width)}; at most {most}")  # fmt: skip
    for n, bucket in enumerate(buckets):
        group = el("g", el("title", _bucket_text(history, bucket, width)))
        y = float(height)
        for name, count in (("o-success", bucket.done), ("o-error", bucket.failed)):
            y -= full * count / most
            if count:
                group.append(
                    el("rect", class_=name, x=percent(n + 0.06, len(buckets)), y=y,
                       width=percent(0.88, len(buckets)), height=full * count / most)
                )  # fmt: skip
        svg.append(group)
    svg.append(el("line", x1="0", x2="100%", y1=height - full, y2=height - full, class_="most"))
    svg.append(el("text", f"{most} per {duration(width)}", x=4, y=height - full - 4))
    ends = el(
        "p",
        el("span", clock(history.began_at)),
        el("span", clock(history.began_at + history.seconds)),
        class_="ends",
    )
    return section("Throughput", svg, ends, note="attempts that ended: done, and failed above")


def _bucket_text(history: History, bucket: findings.Bucket, width: float) -> str:
    at = clock(history.began_at + bucket.began)
    return f"{at}, {duration(width)}: {bucket.done} done, {bucket.failed} failed"
