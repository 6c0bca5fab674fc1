"""The morning after a night of the real claude and codex on the stub: no fleet runs, and a person
decides all that waits, in a terminal of 80x24 and on the page of 400 px; the next start does the
rest."""

from __future__ import annotations

import json
import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from beads_workers.cli.web import url
from tests.end_to_end.conftest import StartFleet
from tests.support.agent_projects import AgentBdProject, AgentProject
from tests.support.browser import Browser, Page
from tests.support.fleet import PROGRAM, Fleet, call, until
from tests.support.real_agents import AgentHome, git
from tests.support.screens import TmuxScreen
from tests.support.worktrees import person

pytestmark = pytest.mark.daily(3)

VERIFY = (
    "if ls bad-* >/dev/null 2>&1; then echo 'FAILED test_cents.py::test_sum - off by 1'; exit 1; fi"
)
OPTIONS = (
    *("-n", "2", "--agent", "claude,codex", "--retry-delay", "0"),
    *("--poll", "0.3s", "--max-attempts", "1", "--fix-rounds", "0"),
)
ISSUES = [
    {
        "title": "Name it",
        "description": '[[stub: say "Outcome: question: FOO or BAR?"]]'
        ' [[stub when "call it FOO": write named.py "FOO"]]',
        "labels": ["agent:claude"],
    },
    {"title": "One", "description": '[[stub: write a.py "one"]]', "labels": ["land:ask"]},
    {
        "title": "Prices",
        "description": '[[stub: write b.py "pounds\\npence"]]'
        ' [[stub when "b.py:2": write b.py "euros\\ncents"]]',
        "labels": ["land:ask", "agent:claude"],
    },
    {"title": "Nothing to do", "description": '[[stub: say "It is all there.\\nOutcome: done"]]'},
    {"title": "Cents", "description": '[[stub: write bad-1.py "1"]]', "labels": ["agent:codex"]},
    {"title": "More cents", "description": '[[stub: write bad-2.py "2"]]'},
    {"title": "Plain", "description": '[[stub: write plain.py "x"]]', "labels": ["agent:codex"]},
]


@pytest.fixture(params=["embedded", "bd"])
def night(
    request: pytest.FixtureRequest, tmp_path: Path, home: AgentHome, start: StartFleet
) -> tuple[Any, Fleet]:
    """A project whose night has ended; what waits is known by its title."""
    project: Any
    if request.param == "bd":
        project = AgentBdProject(tmp_path, home)
    else:
        project = AgentProject(tmp_path, home)
    person(project.folder)
    project.create_many(ISSUES)
    fleet = start(project, *OPTIONS, "--until-empty", "--verify", VERIFY)
    assert fleet.wait(180) == 7, fleet.said()
    return project, fleet


@pytest.fixture
def screen() -> Iterator[TmuxScreen]:
    """A terminal, which ends with the test."""
    opened = TmuxScreen()
    yield opened
    opened.close()


def waits(project: Any) -> dict[str, Any]:
    """``morning --json``."""
    found: dict[str, Any] = json.loads(call(project, "morning", "--json").stdout)
    return found


def ids(project: Any) -> dict[str, str]:
    """The ids of the issues, by title."""
    listed = json.loads(call(project, "list", "--all", "--json").stdout)
    return {row["title"]: row["id"] for row in listed}


def the_next_start_does_the_rest(project: Any, start: StartFleet) -> None:
    """Everything is closed and landed after another start, whose check passes."""
    named = ids(project)
    merged = git(project.folder, "show", "HEAD:plain.py").strip()
    assert merged == "x", "what had landed was merged"
    # It goes on until it is stopped: one that ends may do so between a look and a decision.
    fleet = start(project, *OPTIONS, "--verify", "true")
    until(lambda: waits_for_approval(fleet, named["Prices"]), 120)
    diff = fleet.call("diff", named["Prices"]).stdout
    assert "+euros" in diff and "-pence" not in diff
    assert fleet.call("approve", named["Prices"]).returncode == 0
    until(lambda: {status for status, _ in project.read_all().values()} == {"closed"}, 180)
    assert fleet.call("stop").returncode == 0
    assert fleet.wait(60) == 0, fleet.said()
    fleet.leaves_nothing()
    branch = f"bw-landing/{git(project.folder, 'branch', '--show-current').strip()}"
    landed = git(project.folder, "ls-tree", "--name-only", branch).split()
    assert {"a.py", "b.py", "bad-1.py", "bad-2.py", "named.py", "plain.py"} <= {*landed}
    assert git(project.folder, "show", f"{branch}:named.py").strip() == "FOO"


def waits_for_approval(fleet: Fleet, issue_id: str) -> bool:
    """Whether this branch awaits approval, while the fleet runs."""
    assert fleet.process.poll() is None, fleet.said()
    shown = fleet.call("status", "--json")
    rows = json.loads(shown.stdout).get("approvals", ()) if shown.returncode == 0 else ()
    return any(row["issue_id"] == issue_id for row in rows)


def choose(screen: TmuxScreen, title: str) -> None:
    """Move to the row that has this title."""
    for _ in range(12):
        time.sleep(0.3)
        if title in chosen_line(screen):
            return
        screen.keys("j")
    for _ in range(12):
        time.sleep(0.3)
        if title in chosen_line(screen):
            return
        screen.keys("k")
    raise AssertionError(f"no row {title}\n{screen.text()}")


def test_a_person_decides_everything_in_the_terminal(
    night: tuple[Any, Fleet], screen: TmuxScreen, start: StartFleet
) -> None:
    project, _ = night
    named = ids(project)
    environment = {**project.environment, "NO_COLOR": "1"}
    screen.start([*PROGRAM, "morning"], 80, 24, environment, project.folder)
    shown = screen.wait_for("to decide: ")
    assert "to merge" in shown and "asks" in shown and "2 x " in shown, shown

    choose(screen, "Name it")
    screen.keys("i")
    screen.wait_for("answer to")
    write_line(screen, "call it FOO")
    screen.wait_for("answered: ")

    choose(screen, "One")
    screen.keys("v")
    screen.wait_for("land ")
    screen.keys("y")
    screen.wait_for("approved: ")

    reject_with_two_comments(screen)

    choose(screen, "Nothing to do")
    screen.keys("C")
    screen.wait_for("as not needed?")
    screen.keys("y")
    screen.wait_for("closed: ")

    choose(screen, "test_cents")
    screen.keys("r")
    screen.wait_for("try 2 issues again?")
    screen.keys("y")
    screen.wait_for("will be retried: ")

    choose(screen, "git merge")
    screen.keys("M")
    screen.wait_for(lambda text: "y yes, n no" in text and "git merge --ff-only" in text)
    screen.keys("y")
    screen.wait_for("nothing waits for you")
    screen.keys("q")
    screen.wait_for(lambda _: screen.has("pane_dead"))
    assert waits(project) == {"questions": [], "approvals": [], "quarantined": [], "merge": None}
    assert project.read_all()[named["Nothing to do"]][0] == "closed"
    the_next_start_does_the_rest(project, start)


def reject_with_two_comments(screen: TmuxScreen) -> None:
    """Open the diff, comment on two of its lines, and send the branch back with them."""
    choose(screen, "Prices")
    screen.keys("d")
    screen.wait_for("+pence")
    for line, text in (("+pounds", "use euros"), ("+pence", "and cents")):
        for _ in range(30):
            if line in chosen_line(screen):
                break
            screen.keys("j")
            time.sleep(0.1)
        screen.keys("c")
        screen.wait_for("b.py:")
        write_line(screen, text)
        screen.wait_for("comment")
    screen.keys("V")
    screen.wait_for("2 comments")
    screen.keys("Enter")
    screen.wait_for("rejected: ")
    screen.keys("q")


def write_line(screen: TmuxScreen, text: str) -> None:
    """Type a text, and then Enter."""
    screen.letters(text)
    screen.wait_for(f"{text}_")
    screen.keys("Enter")


def chosen_line(screen: TmuxScreen) -> str:
    """The line of the diff that is chosen: it is drawn in reverse."""
    styled = screen.styled().splitlines()
    return next((line for line in styled if re.search(r"\x1b\[(\d+;)*7m", line)), "")


@pytest.fixture
def served(night: tuple[Any, Fleet]) -> Iterator[str]:
    """The address of the page of the ended run, with buttons."""
    project, fleet = night
    argv = [*PROGRAM, "watch", "--web", "--web-control"]
    server = subprocess.Popen(
        argv, cwd=project.folder, env=project.environment, stdout=subprocess.DEVNULL
    )
    yield until(lambda: url(fleet.state_directory) or "")
    server.terminate()
    server.wait()


def write(page: Page, label: str, text: str) -> None:
    """Type into the box with this label."""
    page.click(f"[aria-label^='{label}']")
    page.type(text)


SAID = "document.getElementById('answer').textContent"


def reject_on_the_page(page: Page) -> None:
    """Comment on two lines of the opened diff, and send the branch back with them."""
    page.until("document.getElementById('diff').textContent.includes('+pence')")
    for line, text in (("+pounds", "use euros"), ("+pence", "and cents")):
        lines = "[...document.querySelectorAll('#diff .line')]"
        found = f"{lines}.find((e) => e.textContent.startsWith('{line}'))"
        page.value(f"{found}.id = 'here'")
        page.click("#here")
        page.until("document.querySelector('#diff .writing textarea') !== null")
        page.type(text)
        page.click("#diff .writing button")
        page.until(f"document.getElementById('diff').textContent.includes('{text}')")
        page.value(f"{found}.id = ''")
    page.until("document.querySelector('#acts .reject:enabled')?.textContent.includes('2 comm')")
    page.click("#acts .reject")
    page.until(f"{SAID}.startsWith('rejected')")
    page.click("#close")


def test_a_person_decides_everything_on_the_page(
    browser: Browser, night: tuple[Any, Fleet], served: str, start: StartFleet
) -> None:
    project, _ = night
    named = ids(project)
    page = browser.open(served, 400)
    page.until("document.querySelector('#awaiting .diff') !== null")

    def card(section: str, title: str) -> str:
        """The selector of a card, which gets an id for it."""
        cards = f"[...document.querySelectorAll('{section} li')]"
        found = f"{cards}.find((e) => e.textContent.includes('{title}'))"
        name = f"card-{title.replace(' ', '-')}"
        page.until(f"{found} !== undefined")
        page.value(f"{found}.id = '{name}'")
        return f"#{name}"

    write(page, f"Answer to {named['Name it']}", "call it FOO")
    page.click(f"{card('#asking', 'Name it')} .reply")
    page.until(f"{SAID}.startsWith('answered')")

    one = card("#awaiting", "One")
    assert page.value(f"document.querySelector('{one} .approve').disabled"), "it was not looked at"
    page.click(f"{one} .diff")
    page.until("document.getElementById('diff').textContent.includes('+one')")
    page.until("document.querySelector('#acts .approve:enabled') !== null")
    page.click("#acts .approve")
    page.until("document.getElementById('asked').textContent.includes('(One)')")
    page.click("#yes")
    page.until(f"{SAID}.startsWith('approved')")
    page.click("#close")

    page.click(f"{card('#awaiting', 'Prices')} .diff")
    reject_on_the_page(page)

    page.click(f"{card('#quarantined', 'Nothing to do')} .needless")
    page.until("document.getElementById('asked').textContent.includes('Nothing to do')")
    page.click("#yes")
    page.until(f"{SAID}.startsWith('closed')")

    page.click(f"{card('#aside', 'test_cents')} .again-all")
    page.click("#yes")
    page.until(f"{SAID}.startsWith('will be retried')")

    page.click("#needs .merge")
    page.click("#yes")
    page.until(f"{SAID}.startsWith('merged')")
    page.until("document.getElementById('needs').hidden")
    assert page.complaints() == []
    assert page.value("document.documentElement.scrollWidth") == 400
    page.close()
    assert waits(project) == {"questions": [], "approvals": [], "quarantined": [], "merge": None}
    the_next_start_does_the_rest(project, start)
