"""The second picture of the README: what a night has left, and nothing of it typed in.

    python -m tests.support.night_picture [OUT.svg or OUT.png]

A small shop in a git repository, six issues, the real claude on the stub of its API, ``make test``
as the check. One issue fails the check and is mended in its session, one fails it for good, and the
account meets a limit. The screen shows the report.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from tests.agents_api import ModelApi
from tests.support.agent_projects import AgentProject
from tests.support.picture import settled, take
from tests.support.real_agents import AgentHome, git
from tests.support.screens import TmuxScreen

COLUMNS, ROWS = 106, 70
COMMAND = "beads-workers start -n 4 --agent claude --verify 'make test' --until-empty --budget 20"
SECONDS_MAX = 180.0

MAKEFILE = "test:\n\tPYTHONDONTWRITEBYTECODE=1 python3 -m unittest -q\n"
CART = "def total(prices):\n    return sum(prices)\n"
TEST = """import unittest

import cart


class Test(unittest.TestCase):
    def test_total(self):
        self.assertEqual(cart.total([1, 2]), 3)
"""

ISSUES: tuple[tuple[int, str, str], ...] = (
    (0, "Prices with cents", 'tokens 42000 900 30000; write cents.py "def cents(p): return p"'),
    (1, "Login fails on Safari", 'limit five_hour 6s; write login.py "def login(): pass"'),
    (1, "Discounts are added twice", 'tokens 61000 1400; write test_x.py "assert 1 == 2"; commit'),
    (2, "Orders by day", 'tokens 38000 700; write orders.py "def by_day(o): return o"'),
    (2, "Send an invoice", 'tokens 55000 1100 20000; write invoice.py "def send(): pass"'),
    (3, "Round half up", 'tokens 47000 900; write test_y.py "assert round(0.5) == 1"; commit'),
)
"""Priority, title, and what the stub makes of it."""
MENDED = ' [[stub when "AssertionError": write test_x.py "assert 2 == 2"; commit "mend it"]]'


def repository(folder: Path) -> None:
    """The shop's files, committed."""
    for name, text in (("Makefile", MAKEFILE), ("cart.py", CART), ("test_cart.py", TEST)):
        (folder / name).write_text(text)
    git(folder, "add", "Makefile", "cart.py", "test_cart.py")
    identity = ("-c", "user.name=t", "-c", "user.email=t@example.invalid")
    git(folder, *identity, "commit", "-q", "-m", "a shop")


def shop(project: AgentProject) -> None:
    """The repository and its backlog."""
    repository(project.folder)
    project.create_many(
        [
            {"title": title, "priority": priority, "description": f"[[stub: {script}]]{MENDED}"}
            for priority, title, script in ISSUES
        ]
    )


def draw(file: Path) -> None:
    """Run the night, and keep the last screen."""
    with tempfile.TemporaryDirectory(prefix="bw-picture-") as folder, ModelApi() as api:
        home = AgentHome(api)
        try:
            project = AgentProject(Path(folder), home)
            shop(project)
            path = f"{Path(sys.executable).parent}:{project.environment['PATH']}"
            said = {**project.environment, "PATH": path, "COLORTERM": "truecolor"}
            said.pop("NO_COLOR", None)  # Tests go without, this is to be looked at.
            with TmuxScreen() as screen:
                screen.start("", COLUMNS, ROWS, said, project.folder)
                screen.type(COMMAND)
                screen.wait_for("next:", SECONDS_MAX)
                screen.type("clear; beads-workers report")
                settled(screen, 3.0, 20.0)
                take(screen, file)
                print(screen.text())
        finally:
            home.close()


def main() -> None:
    """The program."""
    file = Path(sys.argv[1] if sys.argv[1:] else "docs/night.svg")
    draw(file)


if __name__ == "__main__":
    main()
