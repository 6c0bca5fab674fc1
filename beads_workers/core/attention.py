"""What needs a person: each with what to type. The dashboard shows it, ``status`` tells it."""

from __future__ import annotations

from collections.abc import Iterator

from beads_workers.core.board import Board

IDS_MAX = 5
"""So many ids stand in a command that is shown; the rest is counted."""


def needs(board: Board) -> Iterator[tuple[str, str]]:
    """(what is the matter, what to do), the most pressing first."""
    for hindrance in board.hindrances.values():
        yield hindrance.text, hindrance.todo
    if (trouble := board.trouble) and trouble.failures >= TROUBLE_FAILURES:
        yield f"the tracker does not answer: {trouble.error}", trouble.hint or "doctor"
    for worker_id, reason in board.given_up.items():
        yield f"{worker_id} {reason} and is not started again", f"logs {worker_id}"
    for issue in board.loose:
        worker, pid = issue.worker_id, issue.lost_pid
        yield (
            f"{issue.issue_id}: its worker {worker} left, and pid {pid} still lives",
            "end that process, or wait for it",
        )
    if board.state == "paused":
        # The reason first: where there is little room, only the beginning is seen.
        yield f"paused: {board.state_reason or 'nothing new is handed out'}", "resume"
    if not_closed := board.not_closed:
        yield f"{len(not_closed)} done, and not closed yet", "doctor"
    if set_aside := list(board.set_aside):
        yield (
            f"{len(set_aside)} set aside: look at the reason, then try again",
            f"logs {set_aside[0]}; retry {_some(set_aside)}",
        )


TROUBLE_FAILURES = 3
"""One failure may be a hiccup; from the third on a person should look."""


def _some(ids: list[str]) -> str:
    return " ".join(ids[:IDS_MAX]) + (" ..." if len(ids) > IDS_MAX else "")
