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
    for lost in board.lost.values():
        yield (
            f"{lost.issue_id}: its worker {lost.worker_id} left, and pid {lost.pid} still lives",
            "end that process, or wait for it",
        )
    if board.state == "paused":
        # The reason first: where there is little room, only the beginning is seen.
        yield f"paused: {board.state_reason or 'nothing new is handed out'}", "resume"
    if board.not_closed:
        yield f"{len(board.not_closed)} done, and not closed yet", "doctor"
    if board.set_aside:
        count = len(board.set_aside)
        first = next(iter(board.set_aside))
        yield (
            f"{count} set aside: look at the reason, then try again",
            f"logs {first}; retry {_some(list(board.set_aside))}",
        )


TROUBLE_FAILURES = 3
"""One failure may be a hiccup; from the third on a person should look."""


def _some(ids: list[str]) -> str:
    return " ".join(ids[:IDS_MAX]) + (" ..." if len(ids) > IDS_MAX else "")
