"""The tables of the report page, each a section that stands by itself."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from xml.etree.ElementTree import Element

from beads_workers.core import findings
from beads_workers.core.findings import Failure
from beads_workers.core.history import FAILURES, Attempt, Fate, History, IssueHistory
from beads_workers.core.report import by_outcome, tracker
from beads_workers.core.text import counted
from beads_workers.dashboard.html_parts import Child, add, bar, el, foreign, table
from beads_workers.dashboard.words import (
    FATE_WORDS,
    OUTCOME_WORDS,
    clock,
    duration,
)

TITLE_WIDTH = 110
ERROR_WIDTH = 240
SET_ASIDE_ERROR_WIDTH = 700
MANY_ERROR_WIDTH = 110
"""Where there may be a thousand of them, and in two bytes a letter: the page is to stay small."""
NOTES_MAX = 30
ISSUES_NAMED = 4
ASIDE_SHOWN = 10
"""The rest unfolds: what follows should not be pages away."""
FATE_CLASSES = {
    Fate.CLOSED: "o-success",
    Fate.NOT_CLOSED: "o-retry",
    Fate.SET_ASIDE: "o-error",
    Fate.UNFINISHED: "o-running",
    Fate.GIVEN_BACK: "o-cancelled",
    Fate.LEFT_ALONE: "o-cut_off",
}


def section(title: str, *children: Child, note: str = "") -> Element:
    """A part of the page under its heading."""
    head = el("h2", title, el("small", note) if note else None)
    return el("section", head, *children)


def swatch(outcome: str) -> Element:
    """The colour and pattern of an outcome, beside its word."""
    square = el("rect", width=12, height=12, rx=2)
    return el("svg", square, class_=f"swatch o-{outcome}", width=12, height=12, aria_hidden="true")


def outcome_cell(outcome: str) -> Element:
    """An outcome in a table: mark and word."""
    return el("td", swatch(outcome), OUTCOME_WORDS[outcome], class_="outcome")


def figures(rows: Iterable[tuple[str, Child]]) -> Element:
    """Names and values, in two columns."""
    pairs = (el("div", el("dt", name), el("dd", value)) for name, value in rows)
    return add(el("dl", class_="pairs"), pairs)


def set_aside(issues: list[IssueHistory]) -> Element:
    """What a person has to look at, each with its last error."""
    items = [
        _aside(issue, SET_ASIDE_ERROR_WIDTH if n < ASIDE_SHOWN else MANY_ERROR_WIDTH)
        for n, issue in enumerate(issues)
    ]
    shown, rest = items[:ASIDE_SHOWN], items[ASIDE_SHOWN:]
    more = None
    if rest:
        told = el("summary", f"and {len(rest):,} more")
        more = el("details", told, add(el("ul", class_="aside"), rest))
    note = f"{len(items):,} out of the backlog until somebody asks for another try"
    return section("Set aside", add(el("ul", class_="aside"), shown), more, note=note)


def _aside(issue: IssueHistory, width: int) -> Element:
    return el(
        "li",
        el("code", foreign(issue.issue_id, 80)),
        " ",
        foreign(issue.title, TITLE_WIDTH),
        el("span", _attempts_of(issue), class_="dim"),
        el("pre", foreign(issue.error or "no error was recorded", width)),
    )


def _attempts_of(issue: IssueHistory) -> str:
    since = ", in an earlier run" if issue.earlier else ""
    return f" after {counted(issue.charged, 'attempt')}{since}"


def failures(found: list[Failure]) -> Element:
    """Attempts that failed, by reason."""
    most = max((f.seconds for f in found), default=0.0)
    rows = [
        el(
            "tr",
            el("td", f"{f.attempts:,}", class_="n"),
            outcome_cell(f.outcome),
            el("td", foreign(f.reason or "no error was given", ERROR_WIDTH), class_="wide"),
            el("td", *_some_issues(f.issue_ids), class_="ids"),
            el("td", duration(f.seconds), class_="n"),
            el("td", bar([(f"o-{f.outcome}", f.seconds)], most), class_="graph"),
        )
        for f in found
    ]
    heads = ("Attempts", "How", "Reason", "Issues", "Time lost", "")
    return section("Failures by reason", table("failures", heads, rows))


def _some_issues(issue_ids: tuple[str, ...]) -> Iterator[Child]:
    for n, issue_id in enumerate(issue_ids[:ISSUES_NAMED]):
        yield ", " if n else None
        yield el("code", foreign(issue_id, 40))
    if (rest := len(issue_ids) - ISSUES_NAMED) > 0:
        yield f" and {rest} more"


def waste(history: History) -> Element:
    """Time of workers that led to no close."""
    lost = findings.waste(history)
    said = (
        f"{duration(lost.seconds)} in {counted(lost.attempts, 'attempt')}, {lost.share:.0%} of the"
        " time that workers spent on attempts"
    )
    most = max(lost.by_outcome.values(), default=0.0)
    rows = [
        el(
            "tr",
            outcome_cell(outcome),
            el("td", duration(seconds), class_="n"),
            el("td", bar([(f"o-{outcome}", seconds)], most), class_="graph"),
        )
        for outcome, seconds in lost.by_outcome.items()
    ]
    heads = ("How it ended", "Time", "")
    return section("Waste", el("p", said), table("waste", heads, rows) if rows else None)


def slowest(history: History) -> Element:
    """The issues that took workers longest."""
    found = findings.slowest(history)
    most = found[0].seconds if found else 0.0
    rows = [
        el(
            "tr",
            el("td", el("code", foreign(i.issue_id, 40))),
            el("td", foreign(i.title, 70), class_="wide"),
            el("td", FATE_WORDS[i.fate], class_="fate"),
            el("td", f"{i.attempts}", class_="n"),
            el("td", duration(i.seconds), class_="n"),
            el("td", bar([(FATE_CLASSES[i.fate], i.seconds)], most), class_="graph"),
        )
        for i in found
    ]
    heads = ("Issue", "Title", "Became", "Attempts", "Time", "")
    return section("Slowest issues", table("slowest", heads, rows))


def tracker_cost(history: History) -> Element:
    """What asking the tracker has cost, and when it could not be asked."""
    cost = tracker(history)
    share = cost["seconds"] / history.seconds if history.seconds else 0.0
    rows: list[tuple[str, Child]] = [
        ("calls", f"{cost['calls']:,}"),
        ("time in calls", f"{duration(cost['seconds'])}, {share:.0%} of the run"),
    ]
    if cost["calls_per_closed"] is not None:
        each = duration(cost["seconds_per_closed"])
        rows.append(("per closed issue", f"{cost['calls_per_closed']:.1f} calls, {each}"))
    if history.troubles:
        times = counted(len(history.troubles), "time")
        rows.append(("could not be asked", f"{times}, {duration(cost['trouble_seconds'])} in all"))
    spans = [
        el(
            "li",
            el("b", clock(history.began_at + s.began)),
            " ",
            duration((history.seconds if s.ended is None else s.ended) - s.began),
            "" if s.ended is not None else " to the end",
            ": ",
            foreign(s.text, ERROR_WIDTH),
            el("span", foreign(f" ({s.hint})", ERROR_WIDTH), class_="dim") if s.hint else None,
        )
        for s in history.troubles[:20]
    ]
    listing = add(el("ul", class_="spans"), spans) if spans else None
    return section("Tracker", figures(rows), listing)


def workers(history: History) -> Element:
    """Every worker: how busy it was, and with what success."""
    found = findings.busy(history)
    rows = [
        el(
            "tr",
            el("td", row.worker_id),
            el("td", f"{row.done}", class_="n"),
            el("td", f"{row.failed}", class_="n"),
            el("td", f"{row.deaths}" if row.deaths else "", class_="n"),
            el("td", f"{row.worked / row.lived:.0%}" if row.lived else "", class_="n"),
            el("td", bar([("o-success", row.worked)], max(row.lived, row.worked)), class_="graph"),
        )
        for row in found
    ]
    heads = ("Worker", "Done", "Failed", "Died", "Busy", "")
    return section("Workers", table("workers", heads, rows))


def attempts(history: History) -> Element:
    """Every attempt, in order; the bars of the timeline lead here."""
    titles: set[str] = set()
    rows = [_attempt(n, a, history, titles) for n, a in enumerate(history.attempts)]
    heads = ("Began", "Issue", "Title", "Try", "Worker", "How", "Took", "Error")
    note = "in the order in which they began"
    return section("All attempts", table("attempts", heads, rows), note=note)


def _attempt(number: int, a: Attempt, history: History, titles: set[str]) -> Element:
    at = history.began_at + a.began
    # The second time a title says nothing new, and a thousand rows are to stay a small page.
    title = None if a.issue_id in titles else foreign(a.title, TITLE_WIDTH)
    titles.add(a.issue_id)
    return el(
        "tr",
        el("td", el("time", clock(at), datetime=_iso(at)), class_="n"),
        el("td", el("code", foreign(a.issue_id, 80))),
        el("td", title, class_="wide"),
        el("td", f"{a.attempt}", class_="n"),
        el("td", a.worker_id),
        outcome_cell(a.outcome),
        el("td", duration(a.seconds), class_="n"),
        el("td", foreign(a.error, MANY_ERROR_WIDTH) if a.error else None, class_="wide error"),
        id=f"a{number}",
        class_=f"r-{a.outcome}",
    )


def _iso(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds")


def tally(history: History) -> dict[str, int]:
    """How many attempts there were, and how many of them failed."""
    counts = by_outcome(history.attempts)
    return {
        "attempts": len(history.attempts),
        "failed": sum(counts.get(outcome, 0) for outcome in FAILURES),
    }


def set_aside_first(history: History) -> list[IssueHistory]:
    """Set aside in this run, then what earlier runs had set aside."""
    return sorted(findings.set_aside_issues(history), key=lambda i: i.earlier)


def notes(history: History) -> Element:
    """What the run warned of."""
    items = [
        el("li", el("b", clock(history.began_at + n.at)), f" {n.level}: ", foreign(n.text, 300))
        for n in history.notes
        if n.level != "info"
    ]
    return section("Warnings", add(el("ul", class_="spans"), items[-NOTES_MAX:]))
