"""Learning: what verify says of the first try is done in the second, in the same session."""

from __future__ import annotations

from pathlib import Path

from tests.night.figures import Row, Rows
from tests.night.ground import ground

VERIFY = (
    "for f in cart-*; do "
    'test ! -e "$f" || test -e "wheel-${f#cart-}" || { echo the whee\'\'l is missing; exit 1; }; '
    "done"
)
"""The prompt has it, without the words that its output has."""
DESCRIPTION = (
    '[[stub: write cart-{n}.py "1"]] [[stub when "wheel is missing": write wheel-{n}.py "2"]]'
)


def prove(size: int, folder: Path) -> list[Row]:
    """Both agents, in a round of the same attempt and in a second attempt."""
    rows = Rows("learning")
    for agent in ("claude", "codex") if size >= 20 else ("claude",):
        for rounds in (1, 0):
            with ground(folder, f"learning-{agent}-{rounds}") as place:
                place.project.create_many(
                    [{"description": DESCRIPTION.replace("{n}", str(n))} for n in (1, 2)]
                )
                options = ("-n", "2", "--agent", agent, "--until-empty", "--retry-delay", "0")
                place.start(*options, "--fix-rounds", str(rounds), "--verify", VERIFY)
                place.finish()
                done = [
                    (row["attempt"], receipt.rounds, receipt.verified)
                    for row, receipt in place.receipts()
                    if row["outcome"] == "success"
                ]
                sessions = {r.session for r in place.api.requests if r.outcome == "answered"}
                how = "a fix round" if rounds else "the second attempt"
                wanted = (1, 1, True) if rounds else (2, 0, True)
                rows.equal(
                    f"{agent}: done in {how} (attempt, rounds, verified)", done, [wanted] * 2
                )
                rows.equal(f"{agent}: sessions of two issues, {how}", len(sessions), 2)
    return rows.rows
