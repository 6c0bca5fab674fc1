"""The report for a terminal: the results, reasons of failures, and next steps."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable, Iterator

from rich.text import Text

from beads_workers.core.base.causes import OBJECT, folded
from beads_workers.core.base.text import columns, counted, printable, some
from beads_workers.core.records.landing import pull_text
from beads_workers.core.records.money import Spend
from beads_workers.core.records.receipts import SHA_CHARS
from beads_workers.core.views.history import OUTCOMES, Attempt, Fate, History, IssueHistory
from beads_workers.ui import findings, landing
from beads_workers.ui.agents import at_least, dollars, short_tokens, used
from beads_workers.ui.findings import LandedIssue, by_outcome, done, tracker
from beads_workers.ui.rows import sparkline
from beads_workers.ui.time_text import duration, moment
from beads_workers.ui.words import DID_NOT_LAND, FATE_WORDS, NO_ERROR, OUTCOME_WORDS, fate_count

# --- report text ---------------------------------------------------------------------------------
# The report for a terminal: the results, reasons of failures, and next steps. Rows fit the width;
# all content of issues is cut and made printable.


MARGIN = 11
"""Columns of the names at the left."""
ROWS_MAX = 12
"""Number of workers in the timeline: for more, the page is easier to read."""
ROOM_MIN, INDENT = 36, 6
"""Least columns of a reason beside its issue, and indent of a reason on its own line."""

LISTED_MAX = 6
"""Number of rows of each list."""

STYLES = {
    "success": "green",
    "error": "red",
    "timeout": "yellow",
    "lost": "magenta",
    "not_found": "red",
    "question": "blue",
    "retry": "cyan",
}
MARKS = {
    "success": "█",
    "error": "x",
    "not_found": "x",
    "timeout": "T",
    "lost": "!",
    "question": "Q",
    "retry": "r",
    "cancelled": "-",
    "cut_off": "?",
    "running": "▒",
}
"""Marks of the timeline: distinct without colours, too."""
ASCII_MARKS = {"█": "#", "▒": ">", "·": ".", "…": "~"}


def dropped(history: History) -> str:
    """Return a sentence about a beginning that the journal has lost; empty if nothing is lost."""
    if history.dropped is None:
        return ""
    first = duration(history.dropped_seconds)
    return f"of the first {first} only this is known: {history.dropped.counts}"


def report_lines(history: History, width: int, *, unicode: bool = True) -> Iterator[Text]:
    """Yield the whole report, line by line, none wider than ``width``."""
    for line in _lines(history, width):
        line.truncate(width, overflow="ellipsis")
        yield line if unicode else _plain(line)


def _plain(line: Text) -> Text:
    text = "".join(ASCII_MARKS.get(c, c) for c in line.plain)
    return Text(text.encode("ascii", "replace").decode(), spans=line.spans)


def _lines(history: History, width: int) -> Iterator[Text]:
    yield from _head(history)
    yield Text()
    yield from _figures(history, width)
    yield from _to_decide(history, width)
    yield from _quarantined(history, width)
    yield from _to_review(history, width)
    yield from _failures(history, width)
    yield from _costs(history, width)
    yield from _landed(history, width)
    yield from _not_landed_yet(history, width)
    yield from _in_review(history, width)
    yield from _runs(history, width)
    yield from _timeline(history, width)
    yield from _troubles(history)
    yield from _slowest(history, width)
    yield from _next(history)


def _head(history: History) -> Iterator[Text]:
    bad = history.state == "killed" or bool(history.exit_code)
    code = f" (exit {history.exit_code})" if history.exit_code is not None else ""
    how = printable(findings.how_it_ended(history)) + code
    yield Text.assemble(
        (printable(history.start.project, 40), "bold"),
        "  ",
        (how, "bold red" if bad else "bold green"),
    )
    yield Text(
        f"{which(history)}, {history.start.source}, {counted(history.start.workers, 'worker')}"
    )
    until = "now" if history.state == "running" else moment(history.began_at + history.seconds)
    yield Text(f"{moment(history.began_at)} to {until}: {duration(history.seconds)}")
    if text := dropped(history):
        yield Text(text, "yellow")


def which(history: History) -> str:
    """Return the name of the run, or of the night by its runs."""
    count = len(history.runs)
    return (
        f"run {history.start.run_id}"
        if count < 2
        else f"a night of {count} runs, to {history.start.run_id}"
    )


def _runs(history: History, width: int) -> Iterator[Text]:
    """Yield a row for each run of a night: when, how long, what it did, how it ended."""
    if len(history.runs) < 2:
        return
    yield from _title("runs")
    for run in history.runs:
        how = f"  {moment(run.began_at)[5:-3]}  {duration(run.seconds):>12}  {run_text(run)}"
        yield Text(printable(how, width), "red" if run.state == "killed" else "")


def run_text(run: History) -> str:
    """Return what a run of a night did, and how it ended."""
    spent = findings.money_of(run)
    parts = [f"closed {len(run.with_fate(Fate.CLOSED))}"]
    if count := len(run.with_fate(Fate.QUARANTINED)):
        parts.append(f"quarantined {count}")
    parts += [cost(spent.total)] if spent is not None else []
    code = f" (exit {run.exit_code})" if run.exit_code else ""
    how = "killed" if run.state == "killed" else findings.how_it_ended(run)
    return f"{', '.join(parts)}; {how}{code}"


def _figures(history: History, width: int) -> Iterator[Text]:
    fates = [(fate, len(history.with_fate(fate))) for fate in Fate]
    yield _row(
        "issues",
        (", ".join(fate_count(n, f.value) for f, n in fates if n) or "none taken")
        + before(history),
    )
    counts = by_outcome(history.attempts)
    parts = [f"{counts[o]} {OUTCOME_WORDS[o]}" for o in OUTCOMES if o in counts]
    yield from _wrapped("attempts", f"{len(history.attempts)}: " + ", ".join(parts), width)
    good, every = findings.durations(done(history)), findings.durations(history.attempts)
    for name, found in (("done", good), ("all", every)):
        if found.count:
            quantiles = f"median {duration(found.median)}, 90 % within {duration(found.p90)}"
            label = "took" if name == "done" or not good.count else ""
            yield _row(label, f"{name}: {quantiles}, longest {duration(found.longest)}")
    lost = findings.waste_of(history)
    by = ", ".join(f"{OUTCOME_WORDS[o]} {duration(s)}" for o, s in lost.by_outcome.items())
    quantiles = f"{duration(lost.seconds)}, {lost.share:.0%} of attempts' time" + (
        f": {by}" if by else ""
    )
    yield from _wrapped("waste", quantiles, width)
    yield from _spent(history, width)
    if text := landing_text(history):
        yield from _wrapped("landing", text, width)
    yield _row("workers", _workers(history))
    cost = tracker(history)
    each = cost["calls_per_closed"]
    yield _row(
        "tracker",
        f"{cost['calls']} calls in {duration(cost['seconds'])}"
        + (f", {each:.1f} for each closed issue" if each is not None else ""),
    )
    step, buckets = findings.throughput(history)
    most = max(b.done + b.failed for b in buckets)
    course = sparkline([b.done for b in buckets], width - MARGIN - 30)
    if most:
        yield _row(
            "pace",
            f"{course}  done per {duration(step)}, at most {max(b.done for b in buckets)}",
        )


def before(history: History) -> str:
    """Return how many more issues are quarantined from before; "" if there are none."""
    count = sum(issue.earlier for issue in findings.quarantined_issues(history))
    return f"; {count} quarantined before" if count else ""


def _spent(history: History, width: int) -> Iterator[Text]:
    found = findings.money_of(history)
    if found is None:
        return
    total = found.total
    of = f" of {history.start.budget}" if history.start.budget else ""
    parts = [f"{at_least(total.cut)}{used(total.tokens.total, total.money)}{of}"]
    parts += [f"{short_tokens(total.unpriced)} tok without a price"] if total.unpriced else []
    lost = ", ".join(f"{OUTCOME_WORDS[o]} {cost(each)}" for o, each in found.wasted.items())
    parts += [f"wasted: {lost}"] if lost else []
    yield from _wrapped("agents", "; ".join(parts), width)


def cost(spend: Spend) -> str:
    """Return dollars if everything has a price, else tokens too."""
    least = at_least(spend.cut)
    if not spend.unpriced:
        return f"{least}{dollars(spend.money)}"
    return f"{least}{used(spend.tokens.total, spend.money or None)}"


def _workers(history: History) -> str:
    rows = findings.busy(history)
    lived, worked = sum(r.lived_seconds for r in rows), sum(r.worked_seconds for r in rows)
    deaths = sum(r.deaths for r in rows)
    share = f", {worked / lived:.0%} busy" if lived else ""
    return f"{len(rows)}{share}" + (f", {counted(deaths, 'death')}" if deaths else "")


def _row(name: str, text: str) -> Text:
    return Text.assemble((f"{name:<{MARGIN}}", "dim"), printable(text))


def _wrapped(name: str, text: str, width: int) -> Iterator[Text]:
    """Yield one row, or more if the text is longer; cut at spaces."""
    line = ""
    for word in printable(text).split(" "):
        if line and columns(line) + 1 + columns(word) > width - MARGIN:
            yield _row(name, line)
            name, line = "", word
        else:
            line = f"{line} {word}" if line else word
    yield _row(name, line)


def _title(text: str) -> Iterator[Text]:
    yield Text()
    yield Text(text, "bold")


def _timeline(history: History, width: int) -> Iterator[Text]:
    by_worker: dict[str, list[Attempt]] = {}
    for attempt in history.attempts:
        by_worker.setdefault(attempt.worker_id, []).append(attempt)
    if not by_worker:
        return
    lived = [r.worker_id for r in findings.busy(history) if r.worker_id in by_worker]
    yield from _title("timeline")
    room = width - 7
    for worker_id in lived[:ROWS_MAX]:
        cells = _cells(by_worker[worker_id], history.seconds, room)
        yield Text.assemble(f"{worker_id:>5}  ", *cells)
    if axis := _axis(history, room):
        yield Text(f"       {axis}", "dim")
    rest = len(lived) - ROWS_MAX
    marks = "  ".join(f"{MARKS[o]} {OUTCOME_WORDS[o]}" for o in by_outcome_order(history))
    yield Text(
        f"       {marks}" + (f"; {rest} more workers in the page" if rest > 0 else ""), "dim"
    )


TICK_COLUMNS = 12
"""Least columns from one time of the axis to the next."""


def _axis(history: History, room: int) -> str:
    """Return the wall clocks below the timeline, each beginning in the column of its moment."""
    axis = ""
    for at in findings.ticks(history, max(1, room // TICK_COLUMNS)):
        column = min(room - 1, int(at * room / max(history.seconds, 0.001)))
        text = f"|{findings.tick_text(history, at)}"
        if column >= len(axis) + bool(axis) and column + len(text) <= room:
            axis = axis.ljust(column) + text
    return axis


def by_outcome_order(history: History) -> list[str]:
    """Return the outcomes that occurred, in their fixed order."""
    counts = by_outcome(history.attempts)
    return [o for o in OUTCOMES if o in counts]


def _cells(attempts: Iterable[Attempt], seconds: float, room: int) -> list[tuple[str, str]]:
    """Return columns with what the worker did at that time; failures are never covered."""
    cells = [("·", "dim")] * room
    rank = dict.fromkeys(range(room), -1)
    for attempt in attempts:
        scale = room / max(seconds, 0.001)
        first = min(room - 1, int(attempt.began * scale))
        last = min(room - 1, max(first, math.ceil((attempt.began + attempt.seconds) * scale) - 1))
        weight = 1 if attempt.outcome == "success" else 2
        for at in range(first, last + 1):
            if weight > rank[at]:
                rank[at] = weight
                cells[at] = (MARKS[attempt.outcome], STYLES.get(attempt.outcome, ""))
    return cells


def _failures(history: History, width: int) -> Iterator[Text]:
    found = findings.failures(history)
    if not found:
        return
    yield from _title("failures by reason")
    for f in found[:LISTED_MAX]:
        head = f"{f.attempts:>5}  {OUTCOME_WORDS[f.outcome]:<17} {duration(f.seconds):>11}  "
        issues = f.issue_ids[0] if len(f.issue_ids) == 1 else counted(len(f.issue_ids), "issue")
        tail = f"  ({printable(issues, 24)})"
        room = max(12, width - columns(head) - columns(tail))
        why = printable(f.reason or NO_ERROR)
        if columns(why) <= room:
            yield Text.assemble((head, STYLES.get(f.outcome, "")), why, (tail, "dim"))
            continue
        # Reasons often differ in their ends alone.
        yield Text.assemble((head.rstrip(), STYLES.get(f.outcome, "")), (tail, "dim"))
        yield from _indented(why, width)
    yield from _rest(len(found), "more reasons")


REASON_ROWS = 3


def _indented(text: str, width: int) -> Iterator[Text]:
    """Yield a long text below its heading; its middle is left out if it is very long."""
    room = width - INDENT
    if columns(text) > REASON_ROWS * room:
        half = REASON_ROWS * room // 2 - 2
        text = f"{text[:half]}…{text[-half:]}"
    for at in range(0, len(text), room):
        yield Text(" " * INDENT + text[at : at + room])


def _rest(count: int, what: str) -> Iterator[Text]:
    if count > LISTED_MAX:
        yield Text(f"       and {count - LISTED_MAX} {what}", "dim")


RATE_SECONDS_MIN = 600.0
"""Length of a run below which a rate per hour is not shown."""


def landing_text(history: History) -> str:
    """Return the sums of landing in a sentence; "" if nothing was to land."""
    board = history.landing
    if board is None:
        return ""
    shown = board.shown(history.seconds)
    parts = [landing.landed_text(shown)]
    if board.landed and history.seconds >= RATE_SECONDS_MIN:
        parts.append(f"{findings.landed_per_hour(history):.1f} an hour")
    if gates := landing.gates_text(shown):
        each = findings.gate_runs_per_landing(history)
        parts.append(gates + (f", {each:.1f} a landing" if each is not None else ""))
    if board.culprits:
        parts.append(f"{board.culprits} failed verify")
    if board.sent_back:
        parts.append(f"{counted(board.sent_back, 'repair')} by agents")
    into = landing.into_text(shown)
    return "; ".join([*parts, into] if into else parts)


def _landed(history: History, width: int) -> Iterator[Text]:
    found = [each for each in findings.branches(history) if each.landing.commit]
    if not found:
        return
    yield from _title("landed")
    for each in found:
        head = f"  {printable(each.issue.issue_id, 24)}  "
        commit = f"{each.landing.commit[:SHA_CHARS]}  "
        tail = branch_text(each)
        room = max(12, width - columns(head) - columns(commit) - columns(tail))
        title = printable(each.issue.title, room)
        yield Text.assemble((head, "bold"), (commit, "dim"), title, (tail, "dim"))


def branch_text(each: LandedIssue) -> str:
    """Return details of a landed branch in brackets; "" for none."""
    parts = [
        each.diffstat,
        counted(each.landing.repairs, "repair") if each.landing.repairs else "",
        counted(each.landing.gate_runs, "gate run") if each.landing.gate_runs > 1 else "",
        "nothing new" if each.landing.nothing_new else "",
        "" if each.landing.verified or each.landing.nothing_new else "no gate",
    ]
    text = ", ".join(part for part in parts if part)
    return f"  ({printable(text, 60)})" if text else ""


def _not_landed_yet(history: History, width: int) -> Iterator[Text]:
    found = findings.waiting_to_land(history)
    if not found:
        return
    yield from _title(FATE_WORDS["waiting_to_land"])
    for each in found[:LISTED_MAX]:
        head = f"  {printable(each.issue.issue_id, 24)}  "
        room = max(12, width - columns(head))
        stat = f" ({each.diffstat})" if each.diffstat else ""
        yield Text.assemble((head, "bold"), printable(f"{each.landing.branch}{stat}", room))
    yield from _rest(len(found), "more; --json has them all")


def _in_review(history: History, width: int) -> Iterator[Text]:
    found = findings.in_review(history)
    if not found:
        return
    yield from _title(FATE_WORDS["in_review"])
    for issue, pull in found[:LISTED_MAX]:
        head = f"  {printable(issue.issue_id, 24)}  "
        room = max(12, width - columns(head))
        yield Text.assemble((head, "bold"), printable(pull_text(pull), room))
    yield from _rest(len(found), "more; --json has them all")


def _to_decide(history: History, width: int) -> Iterator[Text]:
    """Yield each question whole, and each branch that awaits approval, with its commands."""
    found = findings.decisions(history)
    if not found:
        return
    yield from _title("to decide")
    for each in found[:LISTED_MAX]:
        issue, what = each.issue, FATE_WORDS[each.issue.fate.value]
        yield Text.assemble((f"  {printable(issue.issue_id, 24)}  ", "bold"), what)
        for line in each.text.splitlines():
            for words in textwrap.wrap(printable(line), width - INDENT):
                yield Text(f"{' ' * INDENT}{words}")
        yield Text(f"{' ' * INDENT}{printable(each.command)}", "bold")
    yield from _rest(len(found), "more; --json has them all")


def _quarantined(history: History, width: int) -> Iterator[Text]:
    quarantined = sorted(findings.quarantined_issues(history), key=lambda i: i.earlier)
    if not quarantined:
        return
    yield from _title("quarantined")
    reached = findings.last_progress(history)
    causes = folded(quarantined, OBJECT)
    for cause, alike in causes[:LISTED_MAX]:
        issue = alike[0]
        if len(alike) > 1:
            why = printable(cause or NO_ERROR, max(12, width - 12))
            yield Text.assemble((f"  {len(alike)} x  ", "bold"), (why, "red"))
            ids = some([each.issue_id for each in alike])
            yield Text(f"{' ' * INDENT}{printable(ids, width - INDENT)}")
            continue
        tries = quarantined_after(issue)
        if width >= 80 and (at := reached.get(issue.issue_id)):
            tries = f"{tries} (last step: {printable(at, width // 4)})"
        head = f"  {printable(issue.issue_id, 24)}  "
        room = width - columns(head) - columns(tries) - 2
        why = printable(issue.error, width - INDENT)
        if room < ROOM_MIN < columns(why):  # Beside the issue it would be cut too early.
            yield Text.assemble((head, "bold"), f"{tries}:")
            yield Text(f"{' ' * INDENT}{why}", "red")
        else:
            why = printable(issue.error, max(12, room))
            yield Text.assemble((head, "bold"), f"{tries}: ", (why, "red"))
    yield from _rest(len(causes), "more causes; --json has all issues")


def quarantined_after(issue: IssueHistory) -> str:
    """Return the number of attempts, or that the named branch did not land."""
    tries = counted(issue.charged, "attempt")
    if issue.landing is not None and issue.landing.refused and not issue.charged:
        branch = f" ({printable(issue.landing.branch, 40)})" if issue.landing.branch else ""
        tries = f"{DID_NOT_LAND}{branch}"
    return tries + (", earlier" if issue.earlier else "")


def _to_review(history: History, width: int) -> Iterator[Text]:
    found = findings.to_review(history)
    if not found:
        return
    yield from _title("for you to look at")
    for attempt in found[:LISTED_MAX]:
        flags = ", ".join(attempt.receipt.flags) if attempt.receipt is not None else ""
        head = f"  {printable(attempt.issue_id, 24)}  "
        room = max(12, width - columns(head))
        yield Text.assemble((head, "bold"), printable(f"{flags}: {attempt.error}", room))
        if columns(flags) > room and attempt.receipt is not None:
            # Flags include commands, which people need in full to type them.
            yield from (Text(f"    {printable(flag)}") for flag in attempt.receipt.flags)
    yield from _rest(len(found), "more; --json has them all")


def _costs(history: History, width: int) -> Iterator[Text]:
    found = findings.money_of(history)
    if found is None:
        return
    yield from _title("what it cost")
    for name, each in found.by_agent.items():
        usage = used(each.tokens.total, each.money if not each.unpriced else each.money or None)
        yield _row("  by agent", f"{printable(name, 24)}: {usage}")
    most = sorted(found.by_issue.items(), key=lambda i: (-i[1].money, -i[1].tokens.total))
    titles = {issue.issue_id: issue.title for issue in history.issues}
    for issue_id, each in most[:LISTED_MAX]:
        head = f"{cost(each):>15}  {short_tokens(each.tokens.total) + ' tok':>10} "
        name = f" {printable(issue_id, 24)} "
        room = max(10, width - columns(head) - columns(name))
        title = printable(titles.get(issue_id, ""), room)
        yield Text.assemble(head, (name, "bold"), title)
    yield from _rest(len(most), "more issues")


def _slowest(history: History, width: int) -> Iterator[Text]:
    found = findings.slowest(history, LISTED_MAX)
    if len(found) < 2:
        return
    yield from _title("slowest issues")
    fates = max(11, *(len(FATE_WORDS[issue.fate.value]) for issue in found))
    for issue in found:
        tries = counted(issue.attempts, "attempt")
        head = f"{duration(issue.seconds):>13}  {tries:<11} {FATE_WORDS[issue.fate.value]:<{fates}}"
        name = f" {printable(issue.issue_id, 24)} "
        room = max(10, width - columns(head) - columns(name))
        yield Text.assemble(head, (name, "bold"), printable(issue.title, room))


def _troubles(history: History) -> Iterator[Text]:
    lanes = findings.lanes(history)
    if not lanes:
        return
    yield from _title("trouble")
    for name, spans in lanes:
        for span in spans[:LISTED_MAX]:
            end = history.seconds if span.ended is None else span.ended
            open_end = " to the end" if span.ended is None else ""
            at = moment(history.began_at + span.began)[11:]
            text = f": {printable(span.text)}" if span.text else ""
            who = f"{printable(span.name, 24)} closed" if span.name else name
            yield Text(f"  {at}  {who} for {duration(end - span.began)}{open_end}{text}")
        yield from _rest(len(spans), f"more ({name})")


def _next(history: History) -> Iterator[Text]:
    steps = findings.next_steps(history)
    page = findings.NextStep("beads-workers report --html report.html", "the same as a page")
    yield from _title("next")
    for step in [*steps, page]:
        yield Text.assemble("  ", (printable(step.command), "cyan"))
        yield Text.assemble("      ", (printable(step.reason), "dim"))
