"""The bounds of the figures that ``scripts/shape`` prints.

A figure may rise only with its bound, in the same commit, with a line here or in the commit that
says why. Circles never rise. A figure that falls takes its bound with it: a bound that is more than
``slack`` above its figure fails, too. ``scripts/shape --bounds`` prints the table anew.
"""

from __future__ import annotations

from collections.abc import Mapping
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

BUDGET: Mapping[str, int] = {
    ".": 889,
    "agents": 2541,
    "attempts": 2526,
    "chaos": 1237,
    "checks": 4969,
    "cli": 8627,
    "conformance": 2605,
    "core": 14353,
    "demo": 727,
    "executors": 767,
    "integrations": 12646,
    "landing": 4855,
    "places": 2433,
    "runtime": 9392,
    "trackers": 3371,
    "ui": 7948,
    "views": 517,
    "worktrees": 4015,
}
"""Code lines that each room may have. A commit may move lines from one room to another; the sum is
``GRANTED``. ``scripts/shape --bounds`` prints what the rooms have now."""
GRANTED = 84_418
"""Sum of all rooms. It changes only by what an issue grants in so many words; what one leaves over
goes to the next. Other machines were granted 2,500 lines, 250 in the core, and have 761 more, 121
of them in the core: no word of a host is trusted, and two engines have queues of their own. Of the
1,500 for issues of forges, 1,975 are used: fleets of several logins share a repository, people undo
what a fleet wrote, lists are cut, and whoever works in bd has lines that sync. Of the 2,000 for
pull requests 1,758 are used, of the 900 for worlds of worktrees 898, of
the 1,500 for macOS 381 so far: the room of the kernel, and its file for macOS, which is not
proved."""


def over_budget(rooms: Mapping[str, int]) -> list[str]:
    """Return the rooms with more code lines than they may have, for people."""
    return [
        f"{room} has {now} lines of code, and may have {BUDGET.get(room, 0)}: another room gives"
        for room, now in sorted(rooms.items())
        if now > BUDGET.get(room, 0)
    ]


BOUNDS = {
    # What a run does not use is not called.
    "journey_functions": Bound(87, slack=4),
    # The knot of the core is cut: `Connection` and its registry have a file of their own.
    "journey_files": Bound(20),
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
    # An attempt may be with a lease: four questions at its beginning and its end.
    # Whose moves of a branch are whose, submodules, what waits and is over: 48 in four files.
    # A source's tokens are hidden from what a fleet starts. What waits for people is known by why:
    # nine. A worktree has a number, and gives it back: 21 in two files. Runs differ by ten.
    # What is asked of the system is a function for each question, in one room: 31.
    "life_functions": Bound(1913, slack=14),
    "life_files": Bound(203),
    "circles": Bound(CIRCLES_MAX),
    "circle_modules": Bound(0),
    "connection_fields": Bound(18),
    "connection_booleans": Bound(5),
    "fates": Bound(1),
    # What looks the same on three issues is the account's fault.
    "fate_lines": Bound(27, slack=20),
    # A night's waits, what was told later, who stands where, approvals: 134 lines.
    "read_models": Bound(11),
    "read_model_lines": Bound(4209, slack=100),
    "text_fields": Bound(0),
    "code_lines": Bound(GRANTED, slack=GRANTED),
    # A feature, a request and a process with slots are a file each: thirty small methods more.
    # Other machines: a guard, lines, parcels, three engines, leases: 190. Pull requests: two
    # adapters, what becomes of each, and where people see it: 172. Worlds of worktrees: 39.
    "functions": Bound(7689, slack=30),
    # A second mechanism for the same thing shows in these.
    "function_lines": Bound(97, slack=4),
    "long_functions": Bound(6),
    "tiny_functions": Bound(300, slack=10),
    "repacking_calls": Bound(22),
    "paragraphs": Bound(0, slack=5),
    "classes": Bound(1161, slack=10),
    # Oracles and their recorder, bounds of the shape, the tracer, tests of conditions.
    "test_lines": Bound(139463, slack=1000),
}
"""Files are printed only: a cap on them staples ideas together. From Python 3.12 on a list
comprehension is no function: six fewer in the journey."""
