"""Sections of the report page: tables, small charts, and the timeline."""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import zip_longest
from xml.etree.ElementTree import Element, tostring

from beads_workers.core.base.causes import OBJECT, folded
from beads_workers.core.base.text import counted, printable
from beads_workers.core.records.receipts import INDEPENDENT, Receipt
from beads_workers.core.views.history import (
    FAILURES,
    Attempt,
    Fate,
    History,
    Interval,
    IssueHistory,
    WorkerSpan,
)
from beads_workers.ui import findings
from beads_workers.ui.agents import at_least, dollars, receipt_line, receipt_lines
from beads_workers.ui.report_text import landing_text, quarantined_after, run_text
from beads_workers.ui.time_text import clock, duration, moment
from beads_workers.ui.words import FATE_WORDS, NO_ERROR, OUTCOME_WORDS

# --- html parts ----------------------------------------------------------------------------------
# Parts of an HTML page that no content can break. All text goes through ``el``: control and bidi
# characters become visible, and the serializer escapes the rest. Text cannot add markup; style and
# script are our own.


Child = Element | str | None


def el(tag: str, *children: Child, **attributes: str | float | None) -> Element:
    """Return an element; in attribute names, a last underscore is dropped, others become dashes.

    None stands for nothing, as a child and as an attribute.
    """
    node = Element(tag)
    for name, value in attributes.items():
        if value is not None:
            node.set(name.rstrip("_").replace("_", "-"), _attribute(value))
    add(node, children)
    return node


def add(node: Element, children: Iterable[Child]) -> Element:
    """Add children to an element, in order; return the element."""
    for child in children:
        if child is None:
            continue
        if isinstance(child, Element):
            node.append(child)
        elif len(node):
            node[-1].tail = (node[-1].tail or "") + printable(child)
        else:
            node.text = (node.text or "") + printable(child)
    return node


def own(tag: str, text: str) -> Element:
    """Return our own ``style`` or ``script``, unescaped: never for content from outside."""
    assert f"</{tag}" not in text, "it would end in its middle"
    node = Element(tag)
    node.text = text
    return node


def foreign(text: str, width: int) -> Element:
    """Return text of issues and errors, cut to ``width`` columns, with its own direction."""
    return el("bdi", printable(text, width))


def number(value: float) -> str:
    """Return a number in its shortest form for an attribute."""
    return f"{value:.3f}".rstrip("0").rstrip(".") or "0"


def percent(part: float, total: float) -> str:
    """Return a length in SVG, as a share of its container."""
    return number(100.0 * part / total if total else 0.0) + "%"


def bar(parts: Iterable[tuple[str, float]], total: float, height: int = 12) -> Element:
    """Return one horizontal bar of parts, each with its own class; it has no text."""
    svg = el("svg", class_="bar-line", width="100%", height=height, aria_hidden="true")
    at = 0.0
    for name, value in parts:
        if value:
            svg.append(
                el("rect", class_=name, x=percent(at, total), width=percent(value, total),
                   height=height)
            )  # fmt: skip
        at += value
    return svg


def table(name: str, heads: Iterable[Child], rows: Iterable[Element]) -> Element:
    """Return a table in its own box, which scrolls on a narrow screen.

    A heading is aligned like the cells of the first row.
    """
    body = add(el("tbody"), rows)
    kinds = [cell.get("class") for cell in body[0]] if len(body) else []
    aligned = zip_longest(heads, kinds)
    head = el("tr", *(el("th", h, scope="col", class_=kind) for h, kind in aligned))
    return el("div", el("table", el("thead", head), body), class_=f"scroll {name}")


ROWS_SHOWN = 8
"""Rows of a table before the fold: the next section is near, also on a phone."""


def folded_table(
    name: str, heads: Sequence[Child], rows: Sequence[Element], shown: int = ROWS_SHOWN
) -> list[Element]:
    """Return a table of the first rows, and one of the others that unfolds."""
    if len(rows) <= shown + 1:
        return [table(name, heads, rows)] if rows else []
    rest = el("summary", f"and {len(rows) - shown:,} more")
    return [
        table(name, heads, rows[:shown]),
        el("details", rest, table(name, heads, rows[shown:])),
    ]


def render(root: Element) -> str:
    """Return the document's text."""
    return "<!DOCTYPE html>\n" + tostring(root, encoding="unicode", method="html") + "\n"


def _attribute(value: str | float) -> str:
    return printable(value) if isinstance(value, str) else number(value)


# --- report tables -------------------------------------------------------------------------------
# The tables of the report page, each an independent section.


TITLE_WIDTH = 110
ERROR_WIDTH = 240
QUARANTINED_ERROR_WIDTH = 700
MANY_ERROR_WIDTH = 110
"""Width for up to a thousand errors, with two bytes a letter: the page must stay small."""
NOTES_MAX = 30
ISSUES_NAMED = 4
QUARANTINED_SHOWN = 10
"""Number of quarantined issues; the rest unfolds, so that the next section is near."""
FATE_CLASSES = {
    Fate.CLOSED: "o-success",
    Fate.UNCLOSED: "o-retry",
    Fate.WAITING_TO_LAND: "o-retry",
    Fate.QUARANTINED: "o-error",
    Fate.ASKED: "o-question",
    Fate.AWAITS_APPROVAL: "o-question",
    Fate.IN_REVIEW: "o-retry",
    Fate.UNFINISHED: "o-running",
    Fate.REQUEUED: "o-cancelled",
    Fate.NOT_OURS: "o-cut_off",
}


def section(title: str, *children: Child, note: str = "") -> Element:
    """Return a part of the page under its heading."""
    head = el("h2", title, el("small", note) if note else None)
    return el("section", head, *children)


def swatch(outcome: str) -> Element:
    """Return the colour and pattern of an outcome, for use beside its word."""
    square = el("rect", width=12, height=12, rx=2)
    return el("svg", square, class_=f"swatch o-{outcome}", width=12, height=12, aria_hidden="true")


def outcome_cell(outcome: str) -> Element:
    """Return a table cell with mark and word of an outcome."""
    return el("td", swatch(outcome), OUTCOME_WORDS[outcome], class_="outcome")


def figures(rows: Iterable[tuple[str, Child]]) -> Element:
    """Return names and values, in two columns."""
    pairs = (el("div", el("dt", name), el("dd", value)) for name, value in rows)
    return add(el("dl", class_="pairs"), pairs)


def quarantined(issues: list[IssueHistory]) -> Element:
    """Return the quarantined issues by cause, each cause with its issues."""
    causes = folded(issues, OBJECT)
    items = [
        _cause(cause, alike, QUARANTINED_ERROR_WIDTH if n < QUARANTINED_SHOWN else MANY_ERROR_WIDTH)
        for n, (cause, alike) in enumerate(causes)
    ]
    shown, rest = items[:QUARANTINED_SHOWN], items[QUARANTINED_SHOWN:]
    more = None
    if rest:
        summary = el("summary", f"and {counted(len(rest), 'more cause')}")
        more = el("details", summary, add(el("ul", class_="aside"), rest))
    note = f"{len(issues):,} out of the backlog until somebody asks for another try"
    return section("Quarantined", add(el("ul", class_="aside"), shown), more, note=note)


def _cause(cause: str, alike: list[IssueHistory], width: int) -> Element:
    """Return a cause with its issues, or an issue that is alone with its cause."""
    if len(alike) == 1:
        return _quarantined(alike[0], width)
    items = (
        el(
            "li",
            el("code", foreign(each.issue_id, 80)),
            " ",
            foreign(each.title, 70),
            el("span", _attempts_of(each), class_="dim"),
        )
        for each in alike
    )
    summary = el("summary", f"{len(alike):,} issues")
    return el(
        "li",
        el("pre", el("b", f"{len(alike):,} x "), foreign(cause or NO_ERROR, width)),
        el("details", summary, add(el("ul"), items)),
    )


def _quarantined(issue: IssueHistory, width: int) -> Element:
    return el(
        "li",
        el("code", foreign(issue.issue_id, 80)),
        " ",
        foreign(issue.title, TITLE_WIDTH),
        el("span", _attempts_of(issue), class_="dim"),
        el("pre", foreign(issue.error or NO_ERROR, width)),
    )


def _attempts_of(issue: IssueHistory) -> str:
    if issue.landing is not None and issue.landing.refused and not issue.charged:
        return f": {quarantined_after(issue)}"
    since = ", in an earlier run" if issue.earlier else ""
    return f" after {counted(issue.charged, 'attempt')}{since}"


def landing(history: History) -> Element:
    """Return the branches: what landed, what did not, and why."""
    found = findings.branches(history)
    rows = [_branch(each) for each in found[:BRANCHES_SHOWN]]
    heads = ("Issue", "Title", "Branch", "Changes", "Landed as", "Repairs", "Gates", "Why not")
    rest = len(found) - BRANCHES_SHOWN
    note = f"the first {BRANCHES_SHOWN}; {rest} more are in the JSON" if rest > 0 else ""
    shown = folded_table("landing", heads, rows)
    return section("Landing", el("p", landing_text(history)), *shown, note=note)


BRANCHES_SHOWN = 200
SHA_SHOWN = 12


def _branch(each: findings.LandedIssue) -> Element:
    issue, landed = each.issue, each.landing
    why = FATE_WORDS[issue.fate.value] if not landed.commit else ""
    why = f"{why}: {landed.error}" if why and landed.error else why
    gates = f"{landed.gate_runs} in {duration(landed.gate_seconds)}" if landed.gate_runs else ""
    commit = el("code", landed.commit[:SHA_SHOWN]) if landed.commit else None
    ungated = landed.commit and not (landed.verified or landed.nothing_new)
    gate = " no gate" if ungated else f" verified {INDEPENDENT}" if landed.independent else None
    return el(
        "tr",
        el("td", el("code", foreign(issue.issue_id, 80))),
        el("td", foreign(issue.title, 70), class_="wide"),
        el("td", el("code", foreign(landed.branch, 80)) if landed.branch else None),
        el("td", foreign(each.diffstat, 70)),
        el("td", commit, gate),
        el("td", f"{landed.repairs}" if landed.repairs else "", class_="n"),
        el("td", gates, class_="n"),
        el("td", foreign(why, ERROR_WIDTH), class_="wide"),
    )


def failures(found: list[findings.Failure]) -> Element:
    """Return failed attempts, by reason."""
    most = max((f.seconds for f in found), default=0.0)
    rows = [
        el(
            "tr",
            el("td", f"{f.attempts:,}", class_="n"),
            outcome_cell(f.outcome),
            el("td", foreign(f.reason or NO_ERROR, ERROR_WIDTH), _lesson(f.lesson), class_="wide"),
            el("td", *_some_issues(f.issue_ids), class_="ids"),
            el("td", duration(f.seconds), class_="n"),
            el("td", bar([(f"o-{f.outcome}", f.seconds)], most), class_="graph"),
        )
        for f in found
    ]
    heads = ("Attempts", "How", "Reason", "Issues", "Time lost", "")
    return section("Failures by reason", *folded_table("failures", heads, rows))


def _lesson(text: str) -> Element | None:
    """Return the last lines of a failed check, folded; None without any."""
    if not text:
        return None
    return el("details", el("summary", "its last lines"), el("pre", *_lines(text)))


DIFF_LINES_SHOWN = 400


def changes(diffs: Sequence[tuple[IssueHistory, str, list[str]]]) -> Element:
    """Return the diff of each issue that has landed, folded."""
    parts = []
    for issue, commit, lines in diffs:
        rest = len(lines) - DIFF_LINES_SHOWN
        more = [f"({rest} lines more: beads-workers diff {issue.issue_id})"] if rest > 0 else []
        head = (el("code", foreign(issue.issue_id, 80)), " ", foreign(issue.title, 80))
        summary = el("summary", *head, " ", el("code", commit[:SHA_SHOWN]))
        parts.append(
            el(
                "details",
                summary,
                el("pre", *_lines("\n".join([*lines[:DIFF_LINES_SHOWN], *more]))),
            )
        )
    return section("Diffs", *parts)


def _some_issues(issue_ids: tuple[str, ...]) -> Iterator[Child]:
    for n, issue_id in enumerate(issue_ids[:ISSUES_NAMED]):
        yield ", " if n else None
        yield el("code", foreign(issue_id, 40))
    if (rest := len(issue_ids) - ISSUES_NAMED) > 0:
        yield f" and {rest} more"


def waste(history: History) -> Element:
    """Return workers' time that led to no close."""
    lost = findings.waste_of(history)
    text = (
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
    return section("Waste", el("p", text), table("waste", heads, rows) if rows else None)


def slowest(history: History) -> Element:
    """Return the issues that took workers longest."""
    found = findings.slowest(history)
    most = found[0].seconds if found else 0.0
    rows = [
        el(
            "tr",
            el("td", el("code", foreign(i.issue_id, 40))),
            el("td", foreign(i.title, 70), class_="wide"),
            el("td", FATE_WORDS[i.fate.value], class_="fate"),
            el("td", f"{i.attempts}", class_="n"),
            el("td", duration(i.seconds), class_="n"),
            el("td", bar([(FATE_CLASSES[i.fate], i.seconds)], most), class_="graph"),
        )
        for i in found
    ]
    heads = ("Issue", "Title", "Became", "Attempts", "Time", "")
    return section("Slowest issues", table("slowest", heads, rows))


def tracker_cost(history: History) -> Element:
    """Return the cost of tracker calls, and the times when the tracker failed."""
    cost = findings.tracker(history)
    share = cost["seconds"] / history.seconds if history.seconds else 0.0
    rows: list[tuple[str, Child]] = [
        ("calls", f"{cost['calls']:,}"),
        ("time in calls", f"{duration(cost['seconds'])}, {share:.0%} of the run"),
    ]
    if cost["calls_per_closed"] is not None:
        each = duration(cost["seconds_per_closed"])
        rows.append(("per closed issue", f"{cost['calls_per_closed']:.1f} calls, {each}"))
    if history.outages:
        times = counted(len(history.outages), "time")
        rows.append(("could not be asked", f"{times}, {duration(cost['outage_seconds'])} in all"))
    spans = [
        el(
            "li",
            el("b", clock(history.began_at + s.began)),
            " ",
            duration((history.seconds if s.ended is None else s.ended) - s.began),
            "" if s.ended is not None else " to the end",
            ": ",
            foreign(s.text, ERROR_WIDTH),
            el("span", foreign(f" ({s.remedy})", ERROR_WIDTH), class_="dim") if s.remedy else None,
        )
        for s in history.outages[:20]
    ]
    listing = add(el("ul", class_="spans"), spans) if spans else None
    return section("Tracker", figures(rows), listing)


def to_decide(found: list[findings.Decision]) -> Element:
    """Return what waits for a person's decision: all that is asked, and the commands."""
    items = [
        el(
            "li",
            el("code", foreign(each.issue.issue_id, 80)),
            " ",
            foreign(each.issue.title, TITLE_WIDTH),
            el("span", f": {FATE_WORDS[each.issue.fate.value]}", class_="dim"),
            el("pre", *_lines(each.text)),
            el("code", foreign(each.command, 200)),
        )
        for each in found
    ]
    return section("To decide", add(el("ul", class_="aside"), items))


def _lines(text: str) -> Iterator[Child]:
    for line in text.splitlines():
        yield foreign(line, QUARANTINED_ERROR_WIDTH)
        yield el("br")


def to_review(found: list[Attempt]) -> Element:
    """Return what agents leave to a person, with their receipts."""
    items = [
        el(
            "li",
            el("code", foreign(a.issue_id, 80)),
            " ",
            foreign(a.title, TITLE_WIDTH),
            el(
                "span",
                foreign(": " + ", ".join(a.receipt.flags), QUARANTINED_ERROR_WIDTH),
                class_="dim",
            ),
            *_receipt_rows(a.receipt),
        )
        for a in found
        if a.receipt is not None
    ]
    shown, rest = items[:ROWS_SHOWN], items[ROWS_SHOWN:]
    more = el(
        "details", el("summary", f"and {len(rest):,} more"), add(el("ul", class_="aside"), rest)
    )
    listed = add(el("ul", class_="aside"), shown)
    return section("For you to look at", listed, more if rest else None)


def money(found: findings.Money, history: History) -> Element:
    """Return the costs of agents, by agent, by outcome and by issue."""
    titles = {issue.issue_id: issue.title for issue in history.issues}
    issues = sorted(found.by_issue.items(), key=lambda i: (-i[1].money, -i[1].tokens.total))
    rows = [
        _cost_row(el("td", foreign(name, 60)), "", each) for name, each in found.by_agent.items()
    ]
    for outcome, each in found.by_outcome.items():
        wasted = "wasted" if outcome in found.wasted else ""
        rows.append(_cost_row(outcome_cell(outcome), wasted, each))
    for issue_id, each in issues[:COSTLY_SHOWN]:
        rows.append(_cost_row(el("td", el("code", foreign(issue_id, 40))), titles[issue_id], each))
    heads = ("Who or what", "", "Tokens", "Dollars")
    rest = len(issues) - COSTLY_SHOWN
    note = f"the most costly issues; {rest} more are in the JSON" if rest > 0 else ""
    return section("What it cost", *folded_table("money", heads, rows), note=note)


COSTLY_SHOWN = 20


def dollars_of(spend: findings.Costs) -> str:
    """Return what was spent, or why nobody knows it."""
    if spend.money or not (spend.unpriced or spend.later):
        return f"{at_least(spend.cut + spend.unpriced)}{dollars(spend.money)}"
    return "no price" if spend.unpriced else "told later"


def _cost_row(name: Element, note: str, spend: findings.Costs) -> Element:
    return el(
        "tr",
        name,
        el("td", foreign(note, 70), class_="wide"),
        el("td", f"{spend.tokens.total:,}", class_="n"),
        el("td", dollars_of(spend), class_="n"),
    )


def workers(history: History) -> Element:
    """Return every worker: its load and its results."""
    found = findings.busy(history)
    rows = [
        el(
            "tr",
            el("td", row.worker_id),
            el("td", f"{row.done}", class_="n"),
            el("td", f"{row.failed}", class_="n"),
            el("td", f"{row.deaths}" if row.deaths else "", class_="n"),
            el(
                "td",
                f"{row.worked_seconds / row.lived_seconds:.0%}" if row.lived_seconds else "",
                class_="n",
            ),
            el(
                "td",
                bar(
                    [("o-success", row.worked_seconds)], max(row.lived_seconds, row.worked_seconds)
                ),
                class_="graph",
            ),
        )
        for row in found
    ]
    heads = ("Worker", "Done", "Failed", "Died", "Busy", "")
    return section("Workers", *folded_table("workers", heads, rows))


def attempts(history: History) -> Element:
    """Return every attempt, in order; the bars of the timeline link here."""
    titles: set[str] = set()
    rows = [_attempt(n, a, history, titles) for n, a in enumerate(history.attempts)]
    heads = ("Began", "Issue", "Title", "Try", "Worker", "How", "Took", "Error")
    summary = el("summary", f"{counted(len(rows), 'attempt')}, in the order in which they began")
    return section("All attempts", el("details", summary, table("attempts", heads, rows)))


def _attempt(number: int, a: Attempt, history: History, titles: set[str]) -> Element:
    at = history.began_at + a.began
    # A repeated title is left out: a page with a thousand rows must stay small.
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
        el("td", *_receipt(a), class_="wide error"),
        id=f"a{number}",
        class_=f"r-{a.outcome}",
    )


def _receipt(a: Attempt) -> Iterator[Child]:
    """Yield the error of an attempt, its last step, and its agent's receipt."""
    error = foreign(a.error, MANY_ERROR_WIDTH) if a.error else None
    if a.last_progress and a.error:
        error = add(
            el("span"),
            [error, el("div", foreign(f"last step: {a.last_progress}", 80), class_="dim")],
        )
    if a.receipt is None:
        yield error
        return
    summary = el("summary", foreign(receipt_line(a.receipt) or "receipt", MANY_ERROR_WIDTH))
    yield error
    yield add(el("details", summary), _receipt_rows(a.receipt))


def _receipt_rows(receipt: Receipt) -> Iterator[Element]:
    for line in receipt_lines(receipt):
        yield el("div", foreign(line, QUARANTINED_ERROR_WIDTH), class_="dim")


def _iso(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds")


def tally(history: History) -> dict[str, int]:
    """Return the number of attempts, and how many of them failed."""
    counts = findings.by_outcome(history.attempts)
    return {
        "attempts": len(history.attempts),
        "failed": sum(counts.get(outcome, 0) for outcome in FAILURES),
    }


def quarantined_first(history: History) -> list[IssueHistory]:
    """Return the quarantined issues of this run, then those of earlier runs."""
    return sorted(findings.quarantined_issues(history), key=lambda i: i.earlier)


def runs(history: History) -> Element:
    """Return the runs of a night, each with its end."""
    rows = [
        el(
            "tr",
            el("td", el("time", moment(run.began_at), datetime=_iso(run.began_at)), class_="n"),
            el("td", el("code", run.start.run_id)),
            el("td", duration(run.seconds), class_="n"),
            el("td", foreign(run_text(run), ERROR_WIDTH), class_="wide"),
        )
        for run in history.runs
    ]
    return section("Runs", table("runs", ("Began", "Run", "Took", "What it did"), rows))


def stretches(history: History) -> Element:
    """Return pauses, waits and closed accounts, by name and duration."""
    items = [
        el(
            "li",
            el("b", clock(history.began_at + span.began)),
            " ",
            foreign(_trouble(span, lane, _end(span, history) - span.began), ERROR_WIDTH),
            "" if span.ended is not None else ", to the end",
            el("span", foreign(f" ({span.remedy})", ERROR_WIDTH), class_="dim")
            if span.remedy
            else None,
        )
        for lane, spans in findings.lanes(history)
        if lane != "tracker"
        for span in spans[:STRETCHES_MAX]
    ]
    return section("Limits and pauses", add(el("ul", class_="spans"), items))


STRETCHES_MAX = 30


def _end(span: Interval, history: History) -> float:
    return history.seconds if span.ended is None else span.ended


def notes(history: History) -> Element:
    """Return the warnings of the run."""
    items = [
        el("li", el("b", clock(history.began_at + n.at)), f" {n.level}: ", foreign(n.text, 300))
        for n in history.notes
        if n.level != "info"
    ]
    return section("Warnings", add(el("ul", class_="spans"), items[-NOTES_MAX:]))


# --- report charts -------------------------------------------------------------------------------
# The small charts of the report page: durations of attempts, and their ends over time.


# fmt: off
EDGES_SECONDS = (
    0.0, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0,
    60.0, 120.0, 300.0, 600.0, 1200.0, 1800.0, 3600.0, 7200.0, 14400.0, 28800.0, 86400.0,
)
# fmt: on
"""Edges of the durations' histogram: readable steps that about double."""


def durations(history: History) -> Element:
    """Return the durations of attempts: a histogram with steps that double."""
    ended = [a for a in history.attempts if a.ended is not None]
    good = findings.durations(findings.done(history))
    every = findings.durations(ended)
    summary = figures(
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
    return section("Durations", summary, table("histogram", heads, rows))


def _three(found: findings.DurationSummary) -> str:
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
    """Return the ended attempts over time."""
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


# --- report timeline -----------------------------------------------------------------------------
# The timeline of the report: a row for each worker, a bar for each attempt, bands for trouble.
# Horizontal positions are percentages, so it fits every width and zooms by becoming wider; rows
# have fixed heights. It is plain SVG that works without a script: each bar links to its row in the
# table of attempts and has a tooltip.


AXIS_HEIGHT = 22
LANE_HEIGHT = 16
NAMES_WIDTH = 58
BAR_SHARE_MIN = 0.0012
"""Least width of a bar, as a share: an attempt of a second in a night stays visible."""
TICKS_MAX = 8
FINE_TICKS_MAX = 64
"""Number of ticks in a timeline that is zoomed in."""
RELATIVE_SECONDS = 600
"""Length below which a run shows seconds from its beginning, not times of the clock."""
ROW_HEIGHTS = ((12, 26), (32, 18), (64, 14))
ROW_HEIGHT_MIN = 11
"""(up to so many workers, height of a row); a hundred workers fit on two screens."""


def timeline(history: History) -> Element:
    """Return the whole timeline, with names at the left of the plot."""
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
    """Yield all workers that lived or worked, in order; some come twice."""
    yield from (span.worker_id for span in history.workers)
    yield from (attempt.worker_id for attempt in history.attempts)


class _Plot:
    def __init__(self, history: History, workers: list[str]) -> None:
        self.history = history
        self.seconds = max(history.seconds, 0.001)
        self.row_height = next((h for n, h in ROW_HEIGHTS if len(workers) <= n), ROW_HEIGHT_MIN)
        self.lanes = findings.lanes(history)
        self.top = AXIS_HEIGHT + LANE_HEIGHT * len(self.lanes)
        self.rows = {w: self.top + n * self.row_height for n, w in enumerate(workers)}
        self.bottom = self.top + len(workers) * self.row_height
        self.height = self.bottom + AXIS_HEIGHT

    def names(self) -> Element:
        """Return the left column, which stays in place if the plot is scrolled."""
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
        """Return the plot; lower layers are drawn first."""
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
        # Every second row, or five of ten rows if there are many: stripes guide the eye.
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
        # A label at the edge would be cut.
        share = at / self.seconds
        anchor = "at-start" if share < 0.03 else "at-end" if share > 0.97 else None
        text = _tick_text(self.history, at)
        labels = [
            el("text", text, x=x, y=y, class_=anchor) for y in (AXIS_HEIGHT - 8, self.bottom + 16)
        ]
        return el("g", line, *labels, class_=name)

    def _band(self, span: Interval, lane: str, y: float) -> Element:
        end = self.seconds if span.ended is None else span.ended
        x, width = percent(span.began, self.seconds), self._width(end - span.began)
        return el(
            "g",
            el("title", _trouble(span, lane, end - span.began)[:400]),
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
        title = (
            f"{attempt.issue_id}, attempt {attempt.attempt}: {OUTCOME_WORDS[attempt.outcome]},"
            f" {duration(attempt.seconds)}"
        )
        rect = el(
            "rect",
            el("title", title),
            x=percent(attempt.began, self.seconds),
            width=self._width(attempt.seconds),
            y=self.rows[attempt.worker_id] + inset,
            height=self.row_height - 2 * inset,
            rx=2 if self.row_height > 14 else 1,
        )
        # Not reachable with Tab: there may be a thousand. The table has the same content.
        return el("a", rect, href=f"#a{number_}", class_=f"b o-{attempt.outcome}", tabindex="-1")

    def _death(self, span: WorkerSpan) -> Element:
        y = self.rows[span.worker_id] + self.row_height / 2
        cross = el("path", d="M-3.5-3.5 3.5 3.5M3.5-3.5-3.5 3.5")
        why = f"{span.worker_id} (pid {span.pid}) died: exit status {span.status}"
        x = percent(span.ended or 0.0, self.seconds)
        return el("svg", el("title", why), cross, class_="death", x=x, y=number(y))

    def _width(self, seconds: float) -> str:
        return percent(max(seconds, BAR_SHARE_MIN * self.seconds), self.seconds)


def _trouble(span: Interval, lane: str, seconds: float) -> str:
    """Return a stretch of trouble in words."""
    what = {
        "tracker": "the tracker could not be asked",
        "limits": f"{span.name} was closed",
        "waiting": "waited for its time",
    }
    why = f": {span.text}" if span.text else ""
    return f"{what.get(lane, lane)} for {duration(seconds)}{why}"


def _ticks(history: History, most: int) -> Iterator[float]:
    """Yield round times of the run in seconds, about ``most`` of them or fewer."""
    if history.seconds > RELATIVE_SECONDS:
        yield from findings.ticks(history, most)
        return
    step = findings.step_of(history.seconds, most, (0.1, 0.2, 0.5))
    yield from (n * step for n in range(int(history.seconds / step) + 1))


def _tick_text(history: History, at: float) -> str:
    if history.seconds <= RELATIVE_SECONDS:
        return f"{round(at, 1):g} s"
    return findings.tick_text(history, at)
