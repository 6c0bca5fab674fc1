"""Texts about agents: usage, accounts, and the receipts of attempts."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from beads_workers.core.base.budget import PER_RUN
from beads_workers.core.base.text import counted, in_one_line, printable
from beads_workers.core.records.journal import AccountClosed
from beads_workers.core.records.receipts import INDEPENDENT, SHA_CHARS, Receipt
from beads_workers.ui import words
from beads_workers.ui.time_text import clock, duration

DAY_SECONDS = 86_400
COMMITS_NAMED = 5
TEXT_WIDTH = 300
MESSAGE_WIDTH = 600

# --- amounts -------------------------------------------------------------------------------------


def short_tokens(count: int) -> str:
    """Return ``950``, ``12.3k``, ``1.2M``: at most six columns below a thousand million."""
    if count < 1000:
        return str(count)
    if count < 999_950:
        return f"{count / 1000:.1f}k"
    return f"{count / 1_000_000:.1f}M"


def dollars(money: float) -> str:
    """Return ``$0.004``, ``$0.41``, ``$123``."""
    if 0 < money < 0.01:
        return f"${money:.3f}"
    return f"${money:.2f}" if money < 100 else f"${money:,.0f}"


def used(tokens: int | None, money: float | None) -> str:
    """Return ``12.3k tok $0.41``; unknown amounts are left out."""
    parts = [f"{short_tokens(tokens)} tok"] if tokens else []
    parts += [dollars(money)] if money is not None else []
    return " ".join(parts)


def spent(money: Mapping[str, Any], *, short: bool = False) -> str:
    """Return the cost of a run from ``status --json``: ``$3.20 of $20, 1.2M tok``.

    ``short``: ``$3.20 of $20``, or the tokens if the budget is in tokens or there are no prices.
    If other runs share the budget: ``$0.23, 40k tok; $0.59 of $0.60 in 2 runs of this night``, of
    which ``short`` leaves the second part.
    """
    total, budget = money["tokens"]["total"], money["budget"] or ""
    in_tokens = bool(budget) and not budget.startswith("$")
    of = f" of {budget}" if budget else ""
    night = _in_night(money["night"], of, in_tokens=in_tokens)
    if budget.endswith(PER_RUN) or money["night"]["runs"] < 2:
        night = ""
    elif short:
        return night
    of, beside = ("", f"; {night}") if night else (of, "")
    tokens = f"{short_tokens(total)} tok" + (of if in_tokens else "")
    if not money["spent_usd"] and money["unpriced_tokens"]:
        return tokens if short else f"{tokens}, no prices{beside}"
    if short:
        return tokens if in_tokens else f"{dollars(money['spent_usd'])}{of}"
    unpriced = ""
    if money["unpriced_tokens"]:
        unpriced = f" ({short_tokens(money['unpriced_tokens'])} without a price)"
    run = f"{at_least(money['cut_attempts'])}{dollars(money['spent_usd'])}"
    return f"{run}{'' if in_tokens else of}, {tokens}{unpriced}{beside}"


def _in_night(night: Mapping[str, Any], of: str, *, in_tokens: bool) -> str:
    shown = f"{short_tokens(night['tokens'])} tok" if in_tokens else dollars(night["spent_usd"])
    runs = counted(night["runs"], "run")
    return f"{at_least(night['cut_attempts'])}{shown}{of} in {runs} of this night"


def at_least(cut: int) -> str:
    """Return the words before a sum that lacks the last answers of ``cut`` killed agents."""
    return "at least " if cut else ""


# --- accounts ------------------------------------------------------------------------------------

FULL_SHARE = 0.8
"""Share of the limit from which an account's usage is shown."""


def hours(shown: Mapping[str, Any], age: float = 0.0) -> str:
    """Return until when a run waits, or begins attempts, from ``status --json``: `` until 23:00``.

    Empty if it has no such hours; ``age``: seconds since the snapshot was made.
    """
    found = shown["hours"]
    name = "begins" if found["begins_at"] else "ends"
    if (at := epoch_of(found[f"{name}_at"])) is None:
        return ""
    return f" until {clock(at, at - found[f'{name}_in_seconds'] + age, seconds=False)}"


def epoch_of(text: str | None) -> float | None:
    """Return a time of ``status --json`` in epoch seconds; None for none, or for never."""
    try:
        return datetime.fromisoformat(text).timestamp() if text else None
    except (ValueError, OverflowError):
        return None


def remedy(todo: str | None) -> str:
    """Return what a person does about an account: ``mend it with 'claude /login', then ...``."""
    how = f"mend it with '{printable(todo)}'" if todo else "mend it"
    return f"{how}, then 'beads-workers resume'"


def account(row: Mapping[str, Any], age: float = 0.0, *, advice: bool = True) -> str:
    """Return a line about one row of ``accounts`` of ``status --json``, ``age`` seconds later.

    ``claude: 5-hour limit until 03:20 (41 min), 12 wait``. ``advice``: add what a person can do.
    """
    name = printable(row["agent"], 40)
    if row["state"] == "available":
        full = row["utilization"]
        return f"{name}: {full:.0%} of its limit used" if full and full >= FULL_SHARE else name
    only = f" ({printable(row['model'], 40)} only)" if row["model"] else ""
    why = printable(row["reason"] or words.TROUBLE_WORDS[row["state"]], 160)
    waits = f", {row['waiting']} wait" if row["waiting"] else ""
    if row["state"] == "needs_person":
        return f"{name}{only}: {why}{waits}" + (f" - {remedy(row['remedy'])}" if advice else "")
    until, seconds = epoch_of(row["until"]), row["until_seconds"]
    if until is None or seconds is None:
        return f"{name}{only}: {why}{waits}"
    left = seconds - age
    word = "until" if row["state"] == "limited" else "tried again at"
    whole = 60 * math.ceil(left / 60) if left >= 2 * 60 else round(left)
    in_time = f" ({duration(whole)})" if left > 0 else ", soon tried again"
    return f"{name}{only}: {why} {word} {clock(until, until - left, seconds=False)}{in_time}{waits}"


def closed_account(closed: AccountClosed) -> str:
    """Return the same line from the record, as of the moment when the account closed."""
    only = f" ({printable(closed.model, 40)} only)" if closed.model else ""
    text = f"{printable(closed.agent, 40)}{only}: {printable(closed.why, 160)}"
    if closed.trouble == "needs_person":
        return f"{text} - {remedy(closed.todo)}"
    if not (closed.until or closed.probe_at):
        return text
    word = "until" if closed.trouble == "limited" and closed.until else "tried again at"
    return f"{text} {word} {clock(closed.until or closed.probe_at, closed.since, seconds=False)}"


# --- receipts ------------------------------------------------------------------------------------


def verdict(name: str) -> str:
    """Return the verdict of an agent's adapter in words."""
    return words.VERDICT_WORDS.get(name, printable(name, 40))


def work(receipt: Receipt) -> str:
    """Return the work and its branch: ``2 commits on bw/a-1/1: 3 files changed``; "" for none."""
    if not (receipt.commits or receipt.diffstat):
        return ""
    commits = counted(len(receipt.commits), "commit") if receipt.commits else "nothing committed"
    on = f" on {printable(receipt.branch, 80)}" if receipt.branch else ""
    what = f": {printable(receipt.diffstat, 80)}" if receipt.diffstat else ""
    return f"{commits}{on}{what}"


def receipt_line(receipt: Receipt) -> str:
    """Return a receipt in one line: verdict, work, verify, and cost."""
    parts = [verdict(receipt.verdict)] if receipt.verdict else []
    parts += [each] if (each := work(receipt)) else []
    by = f" {INDEPENDENT}" if receipt.independent else ""
    parts += [f"verified{by}"] if receipt.verified else []
    parts += [each] if (each := used(receipt.tokens.total, receipt.money)) else []
    return ", ".join(parts)


def receipt_lines(receipt: Receipt) -> Iterator[str]:
    """Yield a receipt for people: a row with name and value for each known fact."""
    for name, text in _rows(receipt):
        if text:
            yield f"{name:<9} {printable(text, TEXT_WIDTH)}"
    asked = [line for line in receipt.question.splitlines() if line.strip()]
    for line in asked if len(asked) > 1 else ():  # The verdict has said a single line.
        yield f"{'asked':<9} {printable(line, TEXT_WIDTH)}"
    for flag in receipt.flags:
        yield f"{'look':<9} {printable(flag, TEXT_WIDTH)}"
    if receipt.message.strip():
        yield f"{'said':<9} {in_one_line(receipt.message, MESSAGE_WIDTH)}"


def _rows(receipt: Receipt) -> Iterator[tuple[str, str]]:
    why = f": {receipt.why}" if receipt.why and receipt.verdict != "done" else ""
    yield "verdict", f"{verdict(receipt.verdict)}{why}" if receipt.verdict else ""
    model = f", {receipt.model}" if receipt.model else ""
    session = f", session {receipt.session}" if receipt.session else ""
    yield "agent", f"{receipt.agent}{model}{session}" if receipt.agent else ""
    yield "escalated", f"from {receipt.instead_of}" if receipt.instead_of else ""
    yield "work", work(receipt)
    yield "commits", " ".join(sha[:SHA_CHARS] for sha in receipt.commits[:COMMITS_NAMED])
    if receipt.verify:
        how = "passed" if receipt.verified else "not passed"
        by = f", {INDEPENDENT}" if receipt.verified and receipt.independent else ""
        yield "verify", f"{how}{by}: {receipt.verify}"
    if receipt.rounds:
        yield "rounds", f"asked {counted(receipt.rounds, 'time')} to mend it"
    yield "refused", ", ".join(receipt.denied)
    yield "used", used(receipt.tokens.total, receipt.money)
    yield "lesson", " ".join(receipt.lesson.split())
