"""``status`` for people: a few plain lines. Pure: the JSON of ``status`` in, lines out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from beads_workers.core.text import counted, printable

TITLE_WIDTH = 50


def status_lines(shown: dict[str, Any]) -> Iterator[str]:
    """The fleet, its queue, what is wrong, and each worker."""
    queue, totals = shown["queue"], shown["totals"]
    yield (
        f"fleet {shown['state']}, pid {shown['pid']}, {shown['source']} in {shown['project']},"
        f" up {shown['uptime_seconds']:.0f} s"
    )
    more = "+" if queue["ready_more"] else ""
    yield (
        f"queue: {queue['ready']}{more} ready, {queue['running']} running,"
        f" {queue['retrying']} waiting for a retry, {queue['blocked']} blocked,"
        f" {queue['set_aside']} set aside, {queue['not_closed']} not closed yet"
    )
    yield (
        f"totals: {totals['done']} done, {counted(totals['failed'], 'failed attempt')},"
        f" {totals['retried']} retried, {totals['lost']} lost, {totals['set_aside']} set aside;"
        f" {shown['rate_per_minute']:.0f} a minute"
    )
    for row in shown["hindrances"]:
        todo = f" (try: {printable(row['todo'])})" if row["todo"] else ""
        yield f"in the way: {printable(row['text'], 200)}{todo}"
    source = shown["source_state"]
    if source["state"] != "ok":
        yield (
            f"tracker {source['state'].replace('_', ' ')}: {printable(source['error'], 200)}"
            f" (since {source['since_seconds']:.0f} s, again in {source['retry_in_seconds']:.0f} s)"
        )
        if source.get("hint"):
            yield f"  hint: {printable(source['hint'])}"
    for row in shown["set_aside"]:
        yield (
            f"set aside {printable(row['issue_id'])} after {counted(row['attempts'], 'attempt')}:"
            f" {printable(row['error'], 120)}"
        )
    if (more := queue["set_aside"] - len(shown["set_aside"])) > 0:
        yield f"set aside: {more} more"
    for worker in shown["workers"]:
        yield _worker(worker)


def _worker(worker: dict[str, Any]) -> str:
    head = f"{worker['worker_id']:>5} {worker['state']:<8}"
    counts = f"done {worker['done']}, failed {worker['failed']}"
    if worker["issue_id"] is None:
        return f"{head} {counts}"
    title = printable(worker["title"] or "", TITLE_WIDTH)
    attempt = f" attempt {worker['attempt']}" if worker["attempt"] > 1 else ""
    return (
        f"{head} {printable(worker['issue_id'])} {worker['elapsed_seconds']:.0f} s{attempt}"
        f" {title} ({counts})"
    )
