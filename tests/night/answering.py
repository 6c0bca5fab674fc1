"""Answering: an issue goes on within seconds of its answer, in every tracker, with both agents.

Workers are free, and nothing else is written: in a night an answer also waits for the round trip
that is under way (``whole`` tells how long).
"""

from __future__ import annotations

import json
import time
from pathlib import Path

from tests.night.figures import Row, Rows
from tests.night.ground import Ground, ground, wait_until
from tests.support.bd import NEW, OLD

RESUMES = 5.0
"""Seconds from the command to the attempt that goes on."""
CALLS = 8.0
"""The same, in times of the command itself, where the machine or the tracker is slow."""
ASKS = (
    '[[stub: {how}]] [[stub when "call it FOO": write {n}.py "FOO"]]'
    ' [[stub when "Nobody answered": write {n}.py "none"]]'
)
BY_TOOL, BY_WORDS = 'question "Which?" FOO BAR', 'say "Outcome: question: FOO or BAR?"'
ISSUES = [("claude", BY_TOOL), ("claude", BY_WORDS), ("codex", BY_WORDS)]


def prove(size: int, folder: Path) -> list[Row]:
    """Three questions of each kind on each tracker; a small night asks one."""
    rows = Rows("answering")
    times = 3 if size >= 20 else 1
    for name, bd in (("built-in", ""), (f"bd {OLD}", OLD), (f"bd {NEW}", NEW)):
        with ground(folder, f"answering-{bd or 'own'}", bd=bd) as place:
            place.project.create_many(
                [
                    {
                        "description": ASKS.format(n=number, how=how),
                        "labels": [f"agent:{agent}"],
                    }
                    for number, (agent, how) in enumerate(ISSUES * times)
                ]
            )
            place.start("-n", "4", "--agent", "claude,codex", "--poll", "0.3s", "--verify", "true")
            waits, call = _answer_all(place, len(ISSUES) * times)
            place.fleets[-1].call("stop")
            place.finish()
            ends = [row["outcome"] for row in place.ends()]
            rows.equal(f"{name}: outcomes", sorted(set(ends)), ["question", "success"])
            rows.equal(f"{name}: attempts", len(ends), 2 * len(waits))
            shown = f"{waits[len(waits) // 2]:.1f}"
            rows.count(f"{name}: seconds to the attempt, median of {len(waits)}", shown)
            rows.at_most(f"{name}: the most", waits[-1], max(RESUMES, CALLS * call), " s")
    return rows.rows


def _answer_all(place: Ground, count: int) -> tuple[list[float], float]:
    """Answer each question once the tracker has all; the seconds to its attempt, sorted, and those
    of the slowest command."""
    fleet, waits, call = place.fleets[-1], list[float](), 0.0

    def parked() -> bool:
        return len([r for r in place.journal("settled") if r["action"] == "ask"]) == count

    assert wait_until(parked, 120, "all have asked")
    for row in json.loads(fleet.call("answer", "--json").stdout)["questions"]:
        issue_id = row["issue_id"]

        def begun(issue_id: str = issue_id) -> list[float]:
            begun = place.journal("started")
            return [r["t"] for r in begun if r["issue_id"] == issue_id][1:]

        began = time.time()
        said = fleet.call("answer", issue_id, "call it FOO")
        call = max(call, time.time() - began)
        assert said.returncode == 0, said.stderr
        assert wait_until(lambda begun=begun: bool(begun()), 60, f"{issue_id} goes on")
        waits.append(begun()[0] - began)

    def done() -> bool:
        closes = [r for r in place.journal("settled") if r["action"] == "close"]
        return len(closes) == count

    assert wait_until(done, 120, "all is done")
    return sorted(waits), call
