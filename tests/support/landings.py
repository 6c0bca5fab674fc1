"""The records of a run that lands: two land, one is refused, one is repaired, one waits."""

from __future__ import annotations

from beads_workers.core.records import journal as rec
from beads_workers.core.records.receipts import Receipt

BRANCH = "bw-landing/main"
TIP, FIRST, SECOND = "0" * 40, "1" * 40, "2" * 40
TREE = "f" * 40
TIP_RECORD = rec.LandingTip(TIP, BRANCH)


def worked(issue_id: str, worker: str = "W1") -> list[rec.Record]:
    """Its attempt ends well, on a branch."""
    receipt = Receipt(branch=f"bw/{issue_id}/1", base=TIP, head="a" * 40, diffstat="1 file changed")
    started = rec.Started(issue_id, worker, 1, f"run.{issue_id}", f"Do {issue_id}")
    ended = rec.Finished(
        *(issue_id, worker, 1, f"run.{issue_id}", "success", "land"),
        duration_ms=100,
        receipt=receipt,
    )
    return [rec.Claimed(issue_id, f"Do {issue_id}"), started, ended]


def gate(state: str, *issues: str, lane: int = 0, seconds: float = 0.0, **more: bool) -> rec.Record:
    """A gate on these."""
    return rec.GateRan(lane, state, TREE, issues, seconds, **more)


def ran(state: str, *issues: str, seconds: float = 2.0, **more: bool) -> list[rec.Record]:
    """A gate from its beginning to its end."""
    return [gate("began", *issues), gate(state, *issues, seconds=seconds, **more)]


def landed(issue_id: str, commit: str = FIRST, *, verified: str = TREE) -> list[rec.Record]:
    """It is on the branch, and closed."""
    return [
        rec.BranchLanded(issue_id, 1, commit, BRANCH, verified),
        rec.SettledRecord(issue_id, "close", "applied"),
    ]


def refused(issue_id: str, verdict: str = "quarantined") -> list[rec.Record]:
    """It conflicts with ``a``, and is out of the backlog, or with its agent again."""
    ended = rec.LandingEnded(
        *(issue_id, verdict, "conflict", "both changed it", ("README",), FIRST, ("a",))
    )
    if verdict == "mend":
        return [ended]
    return [ended, rec.SettledRecord(issue_id, "quarantined", "applied")]


def night() -> list[rec.Record]:
    """``a`` lands, ``b`` without a gate, ``c`` is refused, ``d`` after a repair, ``e`` waits."""
    return [
        TIP_RECORD,
        *(record for issue_id in "abcde" for record in worked(issue_id)),
        *ran("red", "a", "b", seconds=3.0),
        *ran("green", "a", seconds=2.0),
        *landed("a"),
        *landed("b", SECOND, verified=""),
        *refused("c"),
        *refused("d", "mend"),
        *worked("d")[1:],
        *ran("green", "d", flaky=True),
        gate("green", "d", kept=True),
        *landed("d", "3" * 40),
        gate("began", "e", lane=1),
    ]
