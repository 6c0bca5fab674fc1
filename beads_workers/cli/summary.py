"""The three lines at the end of a run: what became of the issues, the cost, and what is next."""

from __future__ import annotations

from typing import Any

from beads_workers.core.text import counted, printable

SHOWN_MAX = 5


def summary(ended: dict[str, Any]) -> list[str]:
    """Three lines, and one for each of the first issues that were set aside."""
    totals, queue = ended["totals"], ended["queue"]
    calls, given_back = ended["source_calls"], ended.get("given_back", [])
    lines = [
        f"closed {totals['done']}, failed attempts {totals['failed']},"
        f" set aside {totals['set_aside']}, given back {len(given_back)}",
        f"took {_duration(ended['uptime_seconds'])}, tracker asked {calls['count']} times in"
        f" {calls['seconds']:.1f} s ('beads-workers report' tells it all)",
    ]
    over = ended["ended"] or {}
    if over.get("exit_code") and " " in over["reason"]:
        # A sentence of ours, and no word of the protocol: it says what to do first.
        lines.append(f"ended because: {printable(over['reason'])}")
    set_aside = ended["set_aside"]
    for row in set_aside[:SHOWN_MAX]:
        error = printable(row["error"], 120)
        lines.append(
            f"  {printable(row['issue_id'])}: {counted(row['attempts'], 'attempt')}: {error}"
        )
    if unmerged := ended.get("unmerged_branches"):
        hold = "branch holds" if unmerged == 1 else "branches hold"
        lines.append(f"{unmerged} {hold} work to merge: git branch --list 'bw/*'")
    return [*lines, f"next: {_next(ended, queue, set_aside)}"]


def _next(ended: dict[str, Any], queue: dict[str, Any], set_aside: list[dict[str, Any]]) -> str:
    if ended.get("owed"):
        ids = " ".join(printable(issue_id) for issue_id in ended["owed"][:SHOWN_MAX])
        return f"start again when the tracker works: it is still owed a word on {ids}"
    if queue["not_closed"]:
        return "start again when the tracker works: what is done is closed then, never run again"
    if set_aside:
        ids = " ".join(printable(row["issue_id"]) for row in set_aside[:SHOWN_MAX])
        return f"'beads-workers logs ISSUE' says why; 'beads-workers retry {ids}' tries again"
    if ended.get("given_back"):
        return "'beads-workers start' goes on with what was given back"
    if queue["ready"]:
        return "'beads-workers start' goes on with what is ready"
    if queue["blocked"]:
        return f"{queue['blocked']} issues wait for others that are not closed"
    if ended.get("unmerged_branches"):
        return "merge what is good; 'beads-workers clean' removes the worktrees of what is merged"
    return "nothing is left to do"


def _duration(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"
