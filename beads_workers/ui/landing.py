"""Lines about landing: at the end of a run, and in ``status``. Pure.

``landing``: the key of that name in ``status --json``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from beads_workers.core.base.text import counted, printable
from beads_workers.core.records.receipts import INDEPENDENT, SHA_CHARS
from beads_workers.ui.time_text import duration
from beads_workers.ui.words import DID_NOT_LAND

Fields = Mapping[str, Any]

SHOWN_MAX = 5
ERROR_WIDTH = 160


def landed_text(landing: Fields) -> str:
    """Return how many branches landed, where, and how they were verified; without a full stop."""
    count, place = landing["landed"], f"on {printable(landing['branch'] or 'its branch')}"
    if not count:
        return f"nothing landed {place}"
    tip = f" ({landing['tip'][:SHA_CHARS]})" if landing["tip"] else ""
    parts = [f"landed {count} {place}{tip}"]
    if nothing_new := landing["nothing_new"]:
        parts.append(f"{nothing_new} had nothing new")
    if unverified := landing["unverified"]:
        many = "all" if unverified == count else str(unverified)
        parts.append(f"{many} without a gate, for want of --verify")
    if independent := landing.get("independent"):  # Missing in runs of earlier versions.
        many = "all" if independent == count else str(independent)
        parts.append(f"{many} verified {INDEPENDENT}")
    return ", ".join(parts)


def gates_text(landing: Fields) -> str:
    """Return the cost of the gates; "" if none has run."""
    gates = landing["gates"]
    runs = sum(gates[name] for name in ("green", "red", "no_verdict", "stopped"))
    if not runs:
        return ""
    parts = [f"{counted(runs, 'gate run')} in {gates['seconds']:.1f} s"]
    for count, word in (
        (gates["red"], "red"),
        (gates["no_verdict"], "without a verdict"),
        (gates["reused"], "reused"),
        (gates["flaky"], "flaky"),
        (landing["conflicts"], "conflicts" if landing["conflicts"] > 1 else "conflict"),
    ):
        parts += [f"{count} {word}"] if count else []
    return ", ".join(parts)


def refused_rows(landing: Fields) -> Iterator[str]:
    """Yield each branch that is quarantined because it did not land, and why."""
    refused = landing["refused"]
    for row in refused[:SHOWN_MAX]:
        branch = f" ({printable(row['branch'])})" if row["branch"] else ""
        yield (
            f"  {printable(row['issue_id'])}{branch} {DID_NOT_LAND}:"
            f" {printable(row['error'], ERROR_WIDTH)}"
        )
    if (more := len(refused) - SHOWN_MAX) > 0:
        yield f"  and {more} more {DID_NOT_LAND}"


def waiting_text(landing: Fields) -> str:
    """Return the finished branches that have not landed at the end of a run; "" if none."""
    waiting = landing["waiting_to_land"]
    if not waiting:
        return ""
    ids = " ".join(printable(row["issue_id"]) for row in waiting[:SHOWN_MAX])
    more = " ..." if len(waiting) > SHOWN_MAX else ""
    return f"{len(waiting)} waiting to land: {ids}{more}"


def into_text(landing: Fields) -> str:
    """Return the result of ``--land-into``, or the pull request of the run; "" without one."""
    into = landing["into"]
    if into is None:
        return ""
    branch = printable(into["branch"])
    if into.get("url"):  # Missing in runs of earlier versions.
        return f"proposed for {branch}: {printable(into['reason'], ERROR_WIDTH)}"
    if into["reason"]:
        return f"{branch} was not moved there: {printable(into['reason'], ERROR_WIDTH)}"
    return f"{branch} is there as well"


def at_the_end(landing: Fields) -> Iterator[str]:
    """Yield the landing lines of a run's summary, without the command to type."""
    into = into_text(landing)
    yield landed_text(landing) + (f"; {into}" if into else "")
    if gates := gates_text(landing):
        yield gates
    yield from refused_rows(landing)
    if waiting := waiting_text(landing):
        yield waiting


def to_type(landing: Fields | None) -> str:
    """Return the command with which people get what has landed; "" if they have it. ``landing``: of
    a snapshot; None if nothing lands."""
    if landing is None:
        return ""
    into = landing["into"]
    if into is not None:
        return str(into["command"]) if into["reason"] else ""
    return str(landing.get("merge") or "")


def now(landing: Fields) -> Iterator[str]:
    """Yield the lines of ``status`` while a fleet runs."""
    into = into_text(landing)
    yield f"landing: {landed_text(landing)}" + (f"; {into}" if into else "")
    for row in landing["running"]:
        took = duration(round(row["seconds"]))
        yield f"  verify has run for {took} on {train_text(row['issues'])}"
    if waiting := landing["waiting_to_land"]:
        ids = " ".join(printable(row["issue_id"]) for row in waiting[:SHOWN_MAX])
        yield f"  {len(waiting)} waiting to land: {ids}{' ...' if len(waiting) > SHOWN_MAX else ''}"
    for row in landing["in_review"][:SHOWN_MAX]:
        yield f"  in review: {printable(row['issue_id'])} {printable(row['text'])}"
    yield from refused_rows(landing)


def train_text(issues: Sequence[str]) -> str:
    """Return the issues that a gate tests."""
    return " ".join(map(printable, issues)) if issues else "the branch as it is"
