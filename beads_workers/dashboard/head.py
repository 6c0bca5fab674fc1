"""The four rows at the top: the fleet, how far it is, what waits, and what the tracker does."""

from __future__ import annotations

from collections.abc import Iterator

from rich.text import Text

from beads_workers.dashboard.figures import bar, duration, fine, sparkline, whole_seconds
from beads_workers.dashboard.look import Look, Role
from beads_workers.dashboard.rows import Fields, Row

ROWS = 4
QUEUE_COLUMNS = 120
"""The whole row of the queue needs so many; below that it is said shorter."""

STATE_STYLES = {
    "running": "bold green",
    "paused": "bold yellow",
    "draining": "bold cyan",
    "stopping": "bold magenta",
    "ended": "bold",
}


def head(snapshot: Fields, look: Look, age: float, columns: int) -> Iterator[Text]:
    """``ROWS`` rows."""
    yield _fleet(snapshot, look, age, columns)
    yield _progress(snapshot, look, age, columns)
    yield _queue(snapshot, age, columns)
    yield _tracker(snapshot, age, columns)


def _fleet(snapshot: Fields, look: Look, age: float, columns: int) -> Text:
    running = snapshot["running"]
    age = age if running else 0.0
    state = snapshot["state"] if running else "ended"
    role = " replay" if look.role is Role.REPLAY else ""
    up = f" up {whole_seconds(snapshot['uptime_seconds'] + age)} "
    row = Row(columns, "on default").add(" beads-workers", style="bold").add(role, style="cyan")
    project = (snapshot["project"] or "").rstrip("/").rpartition("/")[2]
    row.add("  ").fill(
        f"{project}  {snapshot['source'] or ''}  {snapshot['run_id'] or ''}",
        "dim",
        leave=len(state) + 2 + 14,
    )
    row.add(f"  {state}", style=STATE_STYLES.get(state, "bold"))
    return row.fill(up.rjust(row.room)).text()


def _progress(snapshot: Fields, look: Look, age: float, columns: int) -> Text:
    queue, done = snapshot["queue"], snapshot["totals"]["done"]
    left = sum(queue[key] for key in ("ready", "running", "retrying", "blocked", "not_closed"))
    whole = done + left + queue["set_aside"]
    row = Row(columns).add(" ")
    row.add(bar(done / whole if whole else 0.0, columns // 5, unicode=look.unicode), style="green")
    more = "+" if queue["ready_more"] else ""
    # Room for the numbers of most runs from the start: what is beside them does not move.
    digits = max(3, len(str(whole)))
    row.add(f"  {done}/{whole}{more} closed", 12 + 2 * digits, "bold")
    row.add(f"  {snapshot['rate_per_minute']:.1f}/min", 13)
    eta = snapshot["eta_seconds"]
    eta = None if eta is None or not snapshot["running"] else eta - age
    row.add(f"{whole_seconds(eta)} left" if eta is not None else "", 14)
    done_over_time = snapshot["throughput"]["done"]
    return (
        row.add(" ")
        .fill(sparkline(done_over_time, row.room - 1, unicode=look.unicode), "cyan")
        .text()
    )


def _queue(snapshot: Fields, age: float, columns: int) -> Text:
    queue = snapshot["queue"]
    row = (
        Row(columns)
        .add(" ready ")
        .add(f"{queue['ready']}{'+' if queue['ready_more'] else ''}", 5, "bold")
    )
    if columns >= QUEUE_COLUMNS:
        by_priority = "  ".join(f"P{p} {count}" for p, count in enumerate(queue["by_priority"]))
        row.add(by_priority, 34, "dim")
    else:
        row.add(f"P0-4: {' '.join(map(str, queue['by_priority']))}", 21, "dim")
    row.add(" running ").add(str(queue["running"]), 4, "bold")
    row.add("blocked ").add(str(queue["blocked"]), 4, "bold")
    row.add("retry ").add(str(queue["retrying"]), 3, "bold")
    due = queue["next_retry_seconds"]
    if columns >= QUEUE_COLUMNS:
        row.add(f"in {whole_seconds(due - age)}" if due is not None else "", 12, "dim")
    style = "bold red" if queue["set_aside"] else "bold"
    row.add("aside " if columns < QUEUE_COLUMNS else "set aside ").add(
        str(queue["set_aside"]), 4, style
    )
    if columns >= QUEUE_COLUMNS:
        row.add("to close ").add(str(queue["not_closed"]), 4, "bold")
    return row.text()


def _tracker(snapshot: Fields, age: float, columns: int) -> Text:
    calls, source = snapshot["source_calls"], snapshot["source_state"]
    row = Row(columns).add(" tracker ")
    if source["state"] != "ok":
        since = duration(source["since_seconds"] + age)
        again = whole_seconds(source["retry_in_seconds"] - age)
        row.add(f"{source['state'].replace('_', ' ')} for {since}, again in {again}: ", style="red")
        return row.fill(source["error"] or "", "red").text()
    now = calls["now"]
    doing = f"{now} ({whole_seconds(calls['now_seconds'] + age)})" if now else "waits"
    row.add(doing, 34 if columns < QUEUE_COLUMNS else 44, "cyan" if now else "dim")
    typical = calls["typical_seconds"]
    each = f", {fine(typical)} each" if typical is not None else ""
    per_done = f", {calls['per_done']:.2f} an issue" if calls["per_done"] is not None else ""
    return row.fill(f"{calls['count']} calls{each}{per_done}", "dim").text()
