"""The report as one page: no network, no template, safe for any text of an issue.

Style and script are files beside this module, and are written into the page. Its
Content-Security-Policy allows exactly these two, by their hashes, and nothing from anywhere else.
Without a script, the whole page can be read, filtered and zoomed; with it, attempts can be selected
and walked through.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator, Sequence
from importlib import resources
from pathlib import PurePath
from xml.etree.ElementTree import Element

from beads_workers.core.base.text import counted
from beads_workers.core.views.history import OUTCOMES, Fate, History, IssueHistory
from beads_workers.ui import findings
from beads_workers.ui import report_sections as charts
from beads_workers.ui import report_sections as tables
from beads_workers.ui.agents import short_tokens
from beads_workers.ui.findings import by_outcome, tracker
from beads_workers.ui.report_sections import Child, add, bar, el, foreign, own, render, timeline
from beads_workers.ui.report_text import dropped, which
from beads_workers.ui.time_text import clock, duration, moment
from beads_workers.ui.words import OUTCOME_WORDS, fate_count

ZOOMS = (1, 3, 10, 30)

ICON = (
    "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 8 8'%3E"
    "%3Cpath fill='%232f6fb3' d='M0 1h5v2H0zM1 4h6v2H1z'/%3E%3C/svg%3E"
)


Diffs = Sequence[tuple[IssueHistory, str, list[str]]]


def page(history: History, diffs: Diffs = ()) -> str:
    """Return the whole document; encode it as UTF-8. ``diffs``: of what has landed."""
    body = el("body", patterns(), _header(history), add(el("main"), _sections(history, diffs)))
    body.append(own("script", read_own("report.js")))
    return render(el("html", _head(history), body, lang="en"))


def _head(history: History) -> Element:
    style = read_own("page.css") + read_own("report.css")
    script = read_own("report.js")
    policy = (
        f"default-src 'none'; style-src {policy_hash(style)}; script-src {policy_hash(script)};"
        " img-src data:; base-uri 'none'; form-action 'none'"
    )
    return el(
        "head",
        el("meta", charset="utf-8"),
        el("meta", http_equiv="Content-Security-Policy", content=policy),
        el("meta", name="viewport", content="width=device-width, initial-scale=1"),
        el("meta", name="color-scheme", content="light dark"),
        el("meta", name="referrer", content="no-referrer"),
        el("title", f"{_project(history)}: {which(history)}"),
        el("link", rel="icon", href=ICON),
        own("style", style),
    )


def read_own(name: str) -> str:
    """Return the text of a file beside this module that becomes part of a page."""
    return resources.files("beads_workers.ui").joinpath(name).read_text("utf-8")


def policy_hash(text: str) -> str:
    """Return the hash that allows a style or script in a Content-Security-Policy."""
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


def _project(history: History) -> str:
    return PurePath(history.start.project).name or history.start.project


def patterns() -> Element:
    """Return the patterns that distinguish outcomes without colours, for the style sheet."""
    defs = el(
        "defs",
        _struck("p-error"),
        _pattern("p-timeout", "M0 0V5", 45),
        _pattern("p-lost", "M0 0V5M0 0H5", 45),
        _pattern("p-tracker", "M0 0V5", -45),
        _pattern("p-cut", "M0 0H5", 0),
    )
    return el("svg", defs, width=0, height=0, class_="defs", aria_hidden="true")


def _pattern(name: str, path: str, turned: int) -> Element:
    pattern = el("pattern", el("rect", width=5, height=5), el("path", d=path), id=name)
    size = {"width": "5", "height": "5", "patternUnits": "userSpaceOnUse"}
    pattern.attrib.update(size | {"patternTransform": f"rotate({turned})"})
    return pattern


def _struck(name: str) -> Element:
    """Return a dark line along the middle of a bar, visible without colours."""
    edges = (("0%", None), ("40%", None), ("40%", "dark"), ("60%", "dark"), ("60%", None))
    stops = (el("stop", offset=at, class_=kind) for at, kind in edges)
    gradient = el("linearGradient", id=name, x1=0, y1=0, x2=0, y2=1)
    return add(gradient, stops)


def _header(history: History) -> Element:
    bad = history.state == "killed" or bool(history.exit_code)
    how = findings.how_it_ended(history)
    code = f" (exit {history.exit_code})" if history.exit_code is not None else ""
    began, ended = history.began_at, history.began_at + history.seconds
    until = "now" if history.state == "running" else moment(ended)
    return el(
        "header",
        el("h1", foreign(_project(history), 80)),
        el("p", how + code, class_="how bad" if bad else "how"),
        el(
            "p",
            f"{which(history)} · {history.start.source} ·"
            f" {counted(history.start.workers, 'worker')} · {moment(began)} to {until}",
            class_="dim",
        ),
        *([el("p", text, class_="how bad")] if (text := dropped(history)) else []),
    )


def _sections(history: History, diffs: Diffs) -> Iterator[Element]:
    """Yield the sections in the order of the report for terminals: what needs a person first."""
    yield _figures(history)
    yield _issues(history)
    steps = findings.next_steps(history)
    if steps:
        yield _next(steps)
    if decisions := findings.decisions(history):
        yield tables.to_decide(decisions)
    if quarantined := tables.quarantined_first(history):
        yield tables.quarantined(quarantined)
    if flagged := findings.to_review(history):
        yield tables.to_review(flagged)
    if failed := findings.failures(history):
        yield tables.failures(failed)
    if (money := findings.money_of(history)) is not None:
        yield tables.money(money, history)
    if history.landing is not None:
        yield tables.landing(history)
    if diffs:
        yield tables.changes(diffs)
    if len(history.runs) > 1:
        yield tables.runs(history)
    yield _timeline(history)
    if history.limits or history.pauses or history.waits:
        yield tables.stretches(history)
    left = el("div", charts.throughput(history), tables.waste(history))
    right = el("div", charts.durations(history), tables.tracker_cost(history))
    yield el("div", left, right, class_="pair")
    yield tables.slowest(history)
    if any(note.level != "info" for note in history.notes):
        yield tables.notes(history)
    yield tables.workers(history)
    yield tables.attempts(history)


def _figures(history: History) -> Element:
    closed = len(history.with_fate(Fate.CLOSED))
    quarantined = findings.quarantined_issues(history)
    before = sum(issue.earlier for issue in quarantined)
    needs = "need a person" + (f", {before:,} from before" if before else "")
    mine = [i for i in history.issues if not i.earlier]
    counts, lost, cost = tables.tally(history), findings.waste_of(history), tracker(history)
    lives = findings.busy(history)
    lived = sum(row.lived_seconds for row in lives)
    decisions = len(findings.decisions(history))
    undecided = f"{counted(decisions, 'decision')} for you, below" if decisions else ""
    tiles = [
        ("closed", f"{closed:,}", f"of {counted(len(mine), 'issue')} taken"),
        (
            "quarantined",
            f"{len(quarantined):,}",
            needs if quarantined else undecided or "none needs a person",
        ),
        (
            "so far" if history.state == "running" else "took",
            duration(history.seconds),
            _rate(closed, history.seconds),
        ),
        ("attempts", f"{counts['attempts']:,}", f"{counts['failed']:,} failed"),
        ("wasted", f"{lost.share:.0%}", f"{duration(lost.seconds)} of workers' time"),
        (
            "workers busy",
            f"{sum(row.worked_seconds for row in lives) / lived:.0%}" if lived else "-",
            f"{counted(sum(row.deaths for row in lives), 'death')} among {len(lives)}",
        ),
        ("tracker calls", f"{cost['calls']:,}", f"{duration(cost['seconds'])} in all"),
    ]
    if history.landing is not None:
        waits = len(findings.refused_branches(history)) + len(findings.waiting_to_land(history))
        note = f"{waits:,} did not" if waits else "all that was to land"
        tiles.insert(1, ("landed", f"{history.landing.landed:,}", note))
    if (money := findings.money_of(history)) is not None:
        of = f"of {history.start.budget}" if history.start.budget else ""
        tokens = f"{short_tokens(money.total.tokens.total)} tokens"
        beside = f"{of}, {tokens}" if of.startswith("of $") else f"{tokens} {of}"
        tiles.append(("agents cost", tables.dollars_of(money.total), beside))
    tile = (el("div", el("dt", n), el("dd", v), el("dd", s, class_="dim")) for n, v, s in tiles)
    return add(el("dl", class_="tiles"), tile)


def _rate(closed: int, seconds: float) -> str:
    if not closed or not seconds:
        return "nothing was closed"
    per_minute = closed * 60 / seconds
    if per_minute >= 10:
        return f"{per_minute:,.0f} closed a minute"
    if per_minute >= 1:
        return f"{per_minute:.1f} closed a minute"
    return f"{per_minute * 60:.1f} closed an hour"


def _issues(history: History) -> Element:
    """Return a bar of the fates of all issues."""
    counts = [(fate, len(history.with_fate(fate))) for fate in tables.FATE_CLASSES]
    whole = sum(count for _, count in counts)
    parts = [(tables.FATE_CLASSES[fate], float(count)) for fate, count in counts]
    legend = (
        el(
            "li",
            tables.swatch(tables.FATE_CLASSES[fate][2:]),
            fate_count(count, fate.value),
        )
        for fate, count in counts
        if count
    )
    empty = None if whole else el("p", "No issue was taken.")
    return tables.section(
        "Issues", bar(parts, whole, 18) if whole else empty, add(el("ul", class_="legend"), legend)
    )


def _next(steps: list[findings.NextStep]) -> Element:
    items = (el("li", el("code", step.command), el("span", step.reason)) for step in steps)
    return tables.section("Next steps", add(el("ul", class_="next"), items))


def _timeline(history: History) -> Element:
    counts = by_outcome(history.attempts)
    present = [outcome for outcome in OUTCOMES if outcome in counts]
    boxes: list[Child] = [
        el(
            "label",
            el("input", type="checkbox", checked="checked", id=f"show-{outcome}"),
            tables.swatch(outcome),
            f"{OUTCOME_WORDS[outcome]} {counts[outcome]:,}",
        )
        for outcome in present
    ]
    zooms: list[Child] = [_zoom(zoom) for zoom in ZOOMS]
    controls = el(
        "div",
        el("fieldset", el("legend", "Show"), *boxes),
        el("fieldset", el("legend", "Zoom"), *zooms),
        class_="controls",
    )
    hint = "Each bar is an attempt and leads to its row in the table at the end of the page."
    detail = el("div", el("p", hint), id="detail", aria_live="polite")
    as_of = f"as of {clock(history.began_at + history.seconds)}"
    note = as_of if history.state == "running" else "a row for each worker, a bar for each attempt"
    return tables.section("Timeline", controls, el("div", timeline(history), detail), note=note)


def _zoom(zoom: int) -> Element:
    checked = "checked" if zoom == 1 else None
    button = el("input", type="radio", name="zoom", id=f"zoom-{zoom}", checked=checked)
    return el("label", button, f"{zoom}x")
