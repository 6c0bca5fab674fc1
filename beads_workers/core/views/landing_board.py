"""The part of the board about landing: running gates, landed branches, and returned ones."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any

from beads_workers.core.base import limits
from beads_workers.core.records import journal as rec
from beads_workers.core.records.issues import Transition
from beads_workers.core.records.journal import Entry
from beads_workers.core.records.landing import refusal_text
from beads_workers.core.records.receipts import INDEPENDENT

BEGAN = "began"
"""``GateRan.state`` of a gate that runs."""
VERDICTS = ("green", "red", "none", "stopped")
"""The other states of a gate."""
KEPT = "kept"
"""Count beside the verdicts: the verdict was known, and nothing ran."""


@dataclass(slots=True)
class LandingBoard:
    """A fold, part of ``snapshot.Board``: the sums of what landed and of gates."""

    branch: str = ""
    tip: str = ""
    into: rec.LandingTip | None = None
    landed: int = 0
    nothing_new: int = 0
    # By pull requests, on the forge.
    merged: int = 0
    unverified: int = 0
    independent: int = 0
    sent_back: int = 0
    conflicts: int = 0
    culprits: int = 0
    quarantined: int = 0
    flaky: int = 0
    # How many ran and ended, by ``VERDICTS``, and how many were ``KEPT``.
    gates: dict[str, int] = field(default_factory=lambda: dict.fromkeys((*VERDICTS, KEPT), 0))
    gate_seconds: float = 0.0
    # By lane, and since when (elapsed seconds).
    running: dict[int, tuple[rec.GateRan, float]] = field(default_factory=dict)
    # The last landings and refusals.
    last: deque[tuple[Entry, str]] = field(default_factory=lambda: deque(maxlen=limits.RECENT_MAX))

    def apply(self, entry: Entry, change: Transition | None = None) -> None:
        """Take in a record of landing; ``change``: of its issue, if it is about one."""
        title = change.issue.title if change else ""
        match entry.record:
            case rec.GateRan() as gate:
                self._gate(gate, entry.elapsed)
            case rec.LandingTip(commit, branch, into):
                if into:
                    self.into = entry.record
                else:
                    self.tip, self.branch = commit, branch
            case rec.BranchLanded() as landed:
                self.landed += 1
                self.nothing_new += landed.contained
                self.merged += bool(landed.pull)
                self.unverified += not (landed.verified or landed.contained or landed.pull)
                self.independent += INDEPENDENT in landed.verified
                self.tip = landed.commit
                self.last.append((entry, title))
            case rec.LandingEnded(_, verdict, why) if why:
                self.conflicts += why == "conflict"
                self.culprits += why == "verify"
                self.sent_back += verdict == "mend"
                self.quarantined += verdict == "quarantined"
                self.last.append((entry, title))
            case _:
                pass

    def _gate(self, gate: rec.GateRan, elapsed: float) -> None:
        if gate.state == BEGAN:
            self.running[gate.lane] = gate, elapsed
            return
        self.running.pop(gate.lane, None)
        state = KEPT if gate.kept else gate.state
        self.gates[state] = self.gates.get(state, 0) + 1
        self.gate_seconds += gate.seconds
        self.flaky += gate.flaky

    @property
    def gate_runs(self) -> int:
        """Number of gates that ran and ended, with any verdict."""
        return sum(self.gates[state] for state in VERDICTS)

    def shown(self, elapsed: float) -> dict[str, Any]:
        """Return the board for ``status``; seconds are rounded to what people see."""
        return {
            "branch": self.branch,
            "tip": self.tip,
            "landed": self.landed,
            "nothing_new": self.nothing_new,
            "unverified": self.unverified,
            "independent": self.independent,
            "sent_back": self.sent_back,
            "conflicts": self.conflicts,
            "culprits": self.culprits,
            "quarantined": self.quarantined,
            "gates": {
                "green": self.gates["green"],
                "red": self.gates["red"],
                "no_verdict": self.gates["none"],
                "stopped": self.gates["stopped"],
                "reused": self.gates[KEPT],
                "flaky": self.flaky,
                "seconds": round(self.gate_seconds, 3),
            },
            "running": [
                {"lane": lane, "issues": list(gate.issues), "seconds": round(elapsed - since, 1)}
                for lane, (gate, since) in sorted(self.running.items())
            ],
            "last": [_row(entry, title) for entry, title in self.last],
            "into": (
                {
                    "branch": self.into.into,
                    "reason": self.into.why,
                    "command": self.into.command,
                    "url": self.into.url,
                }
                if self.into
                else None
            ),
        }


def _row(entry: Entry, title: str) -> dict[str, Any]:
    record = entry.record
    if isinstance(record, rec.BranchLanded):
        outcome = {"issue_id": record.issue_id, "verdict": "landed", "commit": record.commit}
        return {"at": round(entry.at, 3), **outcome, "title": title, "error": ""}
    assert isinstance(record, rec.LandingEnded), "nothing else is kept"
    why = refusal_text(record.why, record.files, record.against, record.text)
    outcome = {"issue_id": record.issue_id, "verdict": record.verdict, "commit": ""}
    return {"at": round(entry.at, 3), **outcome, "title": title, "error": why}
