"""Questions by a tool: claude waits at the call for its answer, codex asks and goes on."""

from __future__ import annotations

import json
import os
import shutil
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from beads_workers.core.records.assignment import Assignment
from beads_workers.core.records.receipts import Receipt
from tests.agents_api import ModelApi
from tests.end_to_end.test_agent_attempts import Attempts
from tests.end_to_end.test_questions import OPTIONS, asked, ends, its_second_is_over
from tests.support.agent_projects import AgentBdProject, AgentProject
from tests.support.bd import NEW, OLD
from tests.support.fleet import Fleet, until
from tests.support.real_agents import AgentHome, git

pytestmark = pytest.mark.daily(3)

ASKS = (
    '[[stub: question "Which key?" FOO BAR]]'
    ' [[stub when "Nobody answered": write a.py "none"]]'
    ' [[stub when "FOO": write a.py "FOO"]] [[stub when "BAR": write a.py "BAR"]]'
)
SHOWN = "Which key?\n  1. FOO: FOO it is\n  2. BAR: BAR it is"
CLAUDE = (*OPTIONS, "--agent", "claude")


@pytest.fixture
def project(tmp_path: Path, home: AgentHome) -> AgentProject:
    return AgentProject(tmp_path, home)


def landed(project: AgentProject, file: str = "a.py") -> str:
    until(lambda: project.statuses() == ["closed"], 90)
    return git(project.folder, "show", f"bw-landing/main:{file}").strip()


def sessions(fleet: Fleet) -> list[str]:
    return [row["receipt"]["session"] for row in fleet.journal("finished")]


@pytest.mark.parametrize("answer", ["FOO", "1", "the first, that is FOO"])
def test_a_choice_is_asked_for_whole_and_its_answer_goes_on_at_the_call(
    start: Any, project: AgentProject, api: ModelApi, answer: str
) -> None:
    project.create_many([{"description": ASKS}])
    fleet: Fleet = start(project, *CLAUDE)
    row = asked(fleet)
    assert (row["question"], row["agent"]) == (SHOWN, "claude")
    why = fleet.call("why", row["issue_id"]).stdout
    assert "asks a person: Which key?" in why and "asked       2. BAR: BAR it is" in why
    assert "2. BAR: BAR it is" in fleet.call("answer").stdout
    said = fleet.call("answer", row["issue_id"], answer)
    assert said.returncode == 0, said.stderr
    assert landed(project) == "FOO"
    assert ends(fleet) == [("question", 0), ("success", 0)]
    first, second = sessions(fleet)
    assert first == second
    # The question, the answer at its call, and the end: no prompt came in between.
    assert [request.outcome for request in api.requests].count("answered") == 3


def test_each_question_of_a_call_gets_its_own_answer(start: Any, project: AgentProject) -> None:
    script = (
        '[[stub: question "Which key?" FOO BAR + "Which colour?" red blue; write a.py "lost"]]'
        ' [[stub when "dark blue": write a.py "both"]]'
    )
    project.create_many([{"description": script}])
    fleet: Fleet = start(project, *CLAUDE)
    row = asked(fleet)
    lines = row["question"].splitlines()
    assert (lines[0], lines[3]) == ("1/2: Which key?", "2/2: Which colour?")
    assert fleet.call("answer", row["issue_id"], "1; dark blue").returncode == 0
    assert landed(project) == "both"


@pytest.mark.parametrize("at_once", [False, True])
def test_a_second_question_waits_again_in_the_same_session(
    start: Any, project: AgentProject, at_once: bool
) -> None:
    """Of two calls in one message claude keeps one, and forgets the other, which is asked anew."""
    key, colour = 'question "Which key?" FOO BAR', '"Which colour?" red blue'
    script, titles = f"{key}; question {colour}", [{"Which key?"}, {"Which colour?"}]
    if at_once:
        script, titles = f"{key} ++ {colour}; {key}", [set.union(*titles), {"Which key?"}]
    project.create_many([{"description": f'[[stub: {script}; write a.py "all"]]'}])
    fleet: Fleet = start(project, *CLAUDE)
    for number, title in enumerate(titles, 1):
        until(lambda number=number: len(fleet.journal("finished")) == number)
        row = asked(fleet)
        assert row["question"].splitlines()[0] in title
        assert fleet.call("answer", row["issue_id"], "1").returncode == 0
    assert landed(project) == "all"
    assert ends(fleet) == [("question", 0), ("question", 0), ("success", 0)]
    assert len(set(sessions(fleet))) == 1


@pytest.mark.peers
@pytest.mark.parametrize("version", [OLD, NEW])
def test_comments_of_bd_answer_at_the_call(
    start: Any, tmp_path: Path, home: AgentHome, version: str
) -> None:
    project = AgentBdProject(tmp_path, home, version)
    (issue_id,) = project.create_many([{"description": ASKS}])
    fleet: Fleet = start(project, *CLAUDE)
    asked(fleet)
    until(lambda: project.read_all()[issue_id][0] == "blocked")
    its_second_is_over(fleet)
    project.bd("comments", "add", issue_id, "2")
    until(lambda: project.read_all()[issue_id][0] == "closed", 90)
    main = git(project.folder, "symbolic-ref", "--short", "HEAD")
    assert git(project.folder, "show", f"bw-landing/{main}:a.py").strip() == "BAR"
    assert len(set(sessions(fleet))) == 1


@pytest.mark.parametrize("at", ["asked", "answered"])
def test_a_killed_fleet_loses_neither_the_call_nor_its_answer(
    start: Any, project: AgentProject, at: str
) -> None:
    (issue_id,) = project.create_many([{"description": ASKS}])
    fleet: Fleet = start(project, *CLAUDE)
    asked(fleet)
    if at == "answered":
        its_second_is_over(fleet)
        assert fleet.call("comment", issue_id, "bar").returncode == 0
    os.kill(fleet.pid, signal.SIGKILL)
    later: Fleet = start(project, *CLAUDE)
    if at == "asked":
        assert asked(later)["question"] == SHOWN
        assert later.call("answer", issue_id, "bar").returncode == 0
    assert landed(project) == "BAR"
    assert sessions(later)[-1] == sessions(fleet)[0]


def test_an_issue_opened_without_an_answer_goes_on_with_a_prompt(
    start: Any, project: AgentProject
) -> None:
    project.create_many([{"description": ASKS}])
    fleet: Fleet = start(project, *CLAUDE)
    assert fleet.call("edit", asked(fleet)["issue_id"], "--status", "open").returncode == 0
    assert landed(project) == "none"
    assert len(set(sessions(fleet))) == 1


def test_codex_asks_and_goes_on_and_a_person_reads_it_in_the_morning(
    start: Any, project: AgentProject
) -> None:
    project.issues('question "Which key?" FOO BAR; write a.py "FOO"')
    fleet: Fleet = start(project, *OPTIONS, "--agent", "codex", "--until-empty")
    assert fleet.wait(90) == 0, fleet.said()
    noted = "it asked: Which key? (FOO / BAR)"
    (finished,) = fleet.journal("finished")
    assert finished["receipt"]["flags"] == [noted]
    assert noted in fleet.call("report").stdout
    assert noted in fleet.call("why", finished["issue_id"]).stdout


def test_codex_that_asked_and_changed_nothing_waits_for_its_answer(
    start: Any, project: AgentProject
) -> None:
    script = '[[stub: question "Which key?" FOO BAR; say "I wait."]]'
    project.create_many([{"description": f'{script} [[stub when "call it": write a.py "FOO"]]'}])
    fleet: Fleet = start(project, *OPTIONS, "--agent", "codex")
    row = asked(fleet)
    assert row["question"] == "Which key? (FOO / BAR)"
    assert fleet.call("answer", row["issue_id"], "call it FOO").returncode == 0
    assert landed(project) == "FOO"


# --- one attempt ----------------------------------------------------------------------------------


@pytest.fixture
def attempts(tmp_path: Path, home: AgentHome) -> Attempts:
    return Attempts(tmp_path, home)


def tools(attempts: Attempts) -> list[str]:
    """The tools of the last process of claude, as it lists them."""
    rows = [json.loads(line) for line in attempts.log.splitlines() if '"subtype":"init"' in line]
    found: list[str] = rows[-1]["tools"]
    return found


def after(first: Assignment, receipt: Receipt, *answers: str) -> Assignment:
    """The attempt that follows a question, with the answers of a person."""
    comments = [
        {"author": "me", "text": text, "created_at": f"2026-11-28T00:00:0{at}Z"}
        for at, text in enumerate(answers)
    ]
    issue = {**first.issue, "comments": comments}
    question = receipt.question or first.question
    return replace(
        first,
        issue=issue,
        attempt=2,
        earlier=receipt,
        question=question,
        asked_at=1.0,
        resumes=True,
    )


def question(attempts: Attempts, script: str = ASKS, **others: Any) -> tuple[Assignment, Receipt]:
    """An attempt that has asked."""
    asked = attempts.assignment(script, "claude", may_ask=True, **others)
    outcome, why, receipt = attempts.run(asked)
    assert (outcome, why) == ("question", "Which key?"), attempts.log
    assert receipt.question == SHOWN and receipt.call.startswith("toolu_")
    return asked, receipt


def test_it_goes_on_in_another_worktree_of_its_branch(attempts: Attempts) -> None:
    first, receipt = question(attempts)
    git(attempts.checkout, "worktree", "remove", "-ff", str(attempts.worktree))
    attempts.worktree = attempts.folder / "elsewhere"
    git(attempts.checkout, "worktree", "add", "-q", str(attempts.worktree), "bw/i-1/1")
    outcome, _, later = attempts.run(after(first, receipt, "FOO"))
    assert (outcome, later.session) == ("success", receipt.session), attempts.log
    assert (attempts.worktree / "a.py").read_text() == "FOO\n"


def test_two_answers_are_both_given(attempts: Attempts) -> None:
    script = ASKS + ' [[stub when "FOO\n": write b.py "two"]]'
    first, receipt = question(attempts, script)
    outcome, _, _ = attempts.run(after(first, receipt, "1", "and BAR later"))
    assert outcome == "success", attempts.log
    assert "FOO\\nand BAR later" in attempts.log


def test_a_lost_session_begins_again_with_question_and_answer(attempts: Attempts) -> None:
    script = '[[stub: question "Which key?" FOO BAR]] [[stub when "call it": write a.py "FOO"]]'
    first, receipt = question(attempts, script)
    shutil.rmtree(attempts.home.folder / ".claude" / "projects")
    outcome, _, later = attempts.run(after(first, receipt, "call it FOO"))
    assert outcome == "success" and later.session != receipt.session, attempts.log
    assert (attempts.worktree / "a.py").read_text() == "FOO\n"


def test_an_answer_that_was_cut_off_by_a_limit_is_given_again(
    attempts: Attempts, api: ModelApi
) -> None:
    script = '[[stub: question "Which key?" FOO BAR; limit five_hour 1s; write a.py "FOO"]]'
    first, receipt = question(attempts, script)
    outcome, _, limited = attempts.run(after(first, receipt, "FOO"))
    assert (outcome, limited.session, limited.call) == ("retry", receipt.session, "")
    until(lambda: api.account(attempts.home.key).refusal("claude") is None)
    third = replace(after(first, limited, "FOO"), question=receipt.question)
    outcome, _, done = attempts.run(third)
    assert (outcome, done.session) == ("success", receipt.session), attempts.log


def test_the_guard_refuses_beside_it(attempts: Attempts) -> None:
    script = '[[stub: run "git push origin HEAD"; question "Which key?" FOO BAR]]'
    _, receipt = question(attempts, script)
    assert receipt.denied == ("Bash",)
    assert git(attempts.remote, "for-each-ref") == ""


@pytest.mark.parametrize("whose", ["committed", "the user's", "of the checkout"])
def test_where_hooks_are_switched_off_it_asks_by_its_last_line(
    attempts: Attempts, whose: str
) -> None:
    places = {
        "committed": attempts.worktree / ".claude/settings.json",
        "the user's": attempts.home.folder / ".claude/settings.json",
        "of the checkout": attempts.checkout / ".claude/settings.local.json",
    }
    places[whose].parent.mkdir(exist_ok=True)
    places[whose].write_text('{"disableAllHooks": true}')
    if whose == "committed":
        git(attempts.worktree, "add", ".claude")
        git(attempts.worktree, "commit", "-q", "-m", "no hooks")
    script = '[[stub: say "Outcome: question: FOO or BAR?"]]'
    asked = attempts.assignment(script, "claude", may_ask=True)
    environment = attempts.environment
    attempts.environment = lambda: {**environment(), "BW_CHECKOUT": str(attempts.checkout)}  # type: ignore[method-assign]
    outcome, _, receipt = attempts.run(asked)
    assert (outcome, receipt.question, receipt.call) == ("question", "FOO or BAR?", "")
    assert "AskUserQuestion" not in tools(attempts)


def test_a_session_whose_tool_is_gone_goes_on_in_words(attempts: Attempts) -> None:
    first, receipt = question(attempts)
    (attempts.home.folder / ".claude/settings.json").write_text('{"disableAllHooks": true}')
    outcome, _, later = attempts.run(after(first, receipt, "FOO"))
    assert (outcome, later.session) == ("success", receipt.session), attempts.log
    assert (attempts.worktree / "a.py").read_text() == "FOO\n"


def test_where_nobody_answers_there_is_no_such_tool(attempts: Attempts) -> None:
    asked = attempts.assignment('[[stub: write a.py "1"]]', "claude", may_ask=False)
    assert attempts.run(asked)[0] == "success"
    assert "AskUserQuestion" not in tools(attempts)
