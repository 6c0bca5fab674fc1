"""The bounds of the figures that ``scripts/shape`` prints.

A figure may rise only with its bound, in the same commit, with a line here or in the commit that
says why. Circles never rise. A figure that falls takes its bound with it: a bound that is more than
``slack`` above its figure fails, too. ``scripts/shape --bounds`` prints the table anew.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Bound:
    """``slack``: how far a figure may fall before its bound has to follow."""

    most: int
    slack: int = 0

    def faults(self, name: str, now: int) -> list[str]:
        """Return what is wrong with a figure, for people."""
        if now > self.most:
            return [f"{name} rose to {now}, and may be {self.most}"]
        if now < self.most - self.slack:
            return [f"{name} fell to {now}: lower its bound, which is {self.most}"]
        return []


CIRCLES_MAX = 0
KNOWN_CIRCLES: tuple[str, ...] = ()
"""No module joins one of these, and there is no other."""

BOUNDS = {
    # What a run does not use is not called.
    "journey_functions": Bound(82, slack=4),
    # The knot of the core is cut: `Connection` and its registry have a file of their own.
    "journey_files": Bound(18),
    # `start` asks all conditions, where it asked a third of them: 103 functions in 20 files more.
    # An attempt and the lander ask git through one reader, and look at what moved: 60 functions.
    # What landed is kept in a ledger, its message is made of the agent's own, the check is proved
    # to see the tree, a close is confirmed, each answer of git has a reader, and nothing that a
    # repository brings is believed or run unasked: 150 more. Of trackers: a call that hangs is
    # ended, what is held is looked at before the end, and all have one ready set: 20 more.
    # The hours of a run (`--start-at`, `--until`), and what its night has spent: 38 in five files.
    # Worktrees that are used again, and looked at file for file: 24. Who stands in one: 11. Steps
    # as forks of their worker, one git for all lookups, turns of checkouts: 22, and 16 calls of
    # git for an attempt instead of 40. Four gits of the lander that stay, and all refs read from
    # their files: 19, and 23 processes of git for an issue instead of 36.
    # Whose moves of a branch are whose, submodules, what waits and is over: 48 in four files.
    "life_functions": Bound(1808, slack=14),
    "life_files": Bound(196),
    "circles": Bound(CIRCLES_MAX),
    "circle_modules": Bound(0),
    "connection_fields": Bound(18),
    "connection_booleans": Bound(5),
    "fates": Bound(1),
    # What looks the same on three issues is the account's fault.
    "fate_lines": Bound(27, slack=20),
    # A night's waits, what was told later, who stands where, approvals: 134 lines.
    "read_models": Bound(11),
    "read_model_lines": Bound(4072, slack=100),
    "text_fields": Bound(0),
    # Rows of conditions: 420 lines more than both halves had before. Git as people have it
    # (branches, nested repositories, conflict marks, hidden files, signers, remotes): 1,100.
    # The proof that the check sees the tree (900), messages and the ledger (700), verdicts of gates
    # that died and kept set-ups (500), git that fails at each of its calls, trust. The edges: wrong
    # lines answered with the right ones (500), a bd that hangs or lies, one ready set, foreign
    # workers' processes, version 1 of the kit, warm hosts of RRQ and dispatcherd, agents: 2,500.
    # One table of keys and buttons, of which help and documents are made: 120.
    # Questions, approvals, commands that edit any tracker, hours, escalation, a service unit, the
    # night as one account: 3,400.
    # The attempt view, issues by state and cause, mouse, palette, the page's attempts and deltas:
    # 3,400. Worktrees used again, people in them, questions by a tool, gates ahead: 1,300.
    # Gits that stay, refs read from files, worktrees made during the base check: 270.
    # Docstrings of fields are no code: 75,202 lines as they were counted before. Landing and
    # people, submodules, what waits, set-ups, odd starts, resets, proposals: 1,200.
    "code_lines": Bound(74783, slack=300),
    # A feature, a request and a process with slots are a file each: thirty small methods more.
    "functions": Bound(6799, slack=30),
    # A second mechanism for the same thing shows in these.
    "function_lines": Bound(97, slack=4),
    "long_functions": Bound(7),
    "tiny_functions": Bound(338, slack=10),
    "repacking_calls": Bound(23),
    "paragraphs": Bound(0, slack=5),
    "classes": Bound(1052, slack=10),
    # Oracles and their recorder, bounds of the shape, the tracer, tests of conditions.
    "test_lines": Bound(123000, slack=1000),
}
"""Files and lines of the product are printed only: a cap on files staples ideas together, and one
on lines strips docstrings. From Python 3.12 on a list comprehension is no function: six fewer in
the journey."""
