"""Fleets of the real claude and codex on the stub: done means done, limits cost nothing."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.agents_api import ModelApi
from tests.support.agent_projects import AgentProject
from tests.support.fleet import Fleet, until
from tests.support.real_agents import AgentHome, git
from tests.support.screens import TmuxScreen
from tests.support.worktrees import in_worktrees

pytestmark = pytest.mark.daily(3)


@pytest.fixture
def project(tmp_path: Path, home: AgentHome) -> AgentProject:
    return AgentProject(tmp_path, home)


def test_one_line_and_the_backlog_is_done_each_in_a_worktree(
    start: Any, project: AgentProject, api: ModelApi
) -> None:
    project.issues(*[f'write file{n}.py "{n}"' for n in range(3)])
    fleet: Fleet = start(project, "-n", "2", "--agent", "codex", "--until-empty")
    assert fleet.wait() == 0, fleet.said()
    assert project.statuses() == ["closed"] * 3
    landed = git(project.folder, "ls-tree", "--name-only", "bw-landing/main").split()
    assert set(landed) == {"README", *(f"file{n}.py" for n in range(3))}
    kept = git(project.folder, "for-each-ref", "--format=%(refname)", "refs/bw/attempts")
    assert len(kept.splitlines()) == 3
    assert git(project.folder, "for-each-ref", "refs/heads/bw") == "", "they hold no work any more"
    assert git(project.folder, "status", "--porcelain", "--untracked-files=no") == ""


def test_a_limit_costs_nothing_and_the_fleet_goes_on_after_its_reset(
    start: Any, project: AgentProject, api: ModelApi
) -> None:
    project.issues('limit five_hour 12s; write a.py "a"', 'write f.py "f"')
    options = ("-n", "2", "--agent", "claude", "--until-empty", "--reset-grace", "1s")
    fleet: Fleet = start(project, *options, "--no-land")
    fleet.wait_for("account_closed")
    found = json.loads(fleet.call("status", "--json").stdout)
    (account,) = found["accounts"]
    assert (account["agent"], account["state"]) == ("claude", "limited")
    assert fleet.wait(120) == 0, fleet.said()
    assert project.statuses() == ["closed"] * 2
    assert sum(end.get("charged", 0) for end in fleet.journal("finished")) == 0
    closed = fleet.journal("account_closed")
    assert len(closed) == 1, closed
    assert len(fleet.journal("account_opened")) == 1
    began = [row["t"] for row in fleet.journal("started") if row["t"] > closed[0]["t"] + 1]
    assert min(began) >= closed[0]["until"]


@pytest.mark.parametrize("passed", [61, 300])
def test_a_reset_in_words_that_has_just_passed_is_not_that_of_tomorrow(
    start: Any, project: AgentProject, api: ModelApi, passed: int
) -> None:
    """codex names its reset to the minute, as a time of day; the provider opens 15 s from now."""
    account = api.account(project.environment["STUB_KEY"])
    project.issues('write a.py "a"', 'write b.py "b"')
    account.close("primary", -passed, late=passed + 15)
    options = ("--agent", "codex", "--until-empty", "--no-land", "--probe", "10s")
    fleet: Fleet = start(project, "-n", "2", *options, "--reset-grace", "3s")
    assert fleet.wait(90) == 0, fleet.said()
    assert project.statuses() == ["closed"] * 2
    assert sum(end.get("charged", 0) for end in fleet.journal("finished")) == 0
    (opened,) = fleet.journal("account_opened")
    assert opened["t"] - account.opens < 10 + 10, (
        "one probe, and a start of codex on a busy machine"
    )
    assert account.refused["limit"] <= 2 + 4, "two attempts met it; then one canary after the other"


def test_the_next_agent_takes_over_at_a_limit(
    start: Any, project: AgentProject, api: ModelApi
) -> None:
    api.account(project.environment["CLAUDE_CODE_OAUTH_TOKEN"]).close("five_hour", 3600)
    project.issues('write a.py "a"', 'write b.py "b"')
    options = ("--agent", "claude,codex", "--until-empty", "--no-land")
    fleet: Fleet = start(project, "-n", "2", *options)
    assert fleet.wait(90) == 0, fleet.said()
    assert project.statuses() == ["closed"] * 2
    agents = [row["agent"] for row in fleet.journal("started")]
    assert set(agents) == {"claude", "codex"}


def test_work_that_fails_its_check_is_not_closed_and_the_next_attempt_learns(
    start: Any, project: AgentProject, api: ModelApi
) -> None:
    project.create_many(
        [
            {
                "description": '[[stub: write a.py "1"]]'
                ' [[stub when "broken wheel": write wheel.py "2"]]'
            }
        ]
    )
    verify = "test -e wheel.py || { echo broken whee''l; false; }"
    options = ("-n", "1", "--agent", "codex", "--until-empty", "--fix-rounds", "0")
    fleet: Fleet = start(
        *(project, *options, "--verify", verify, "--retry-delay", "0", "--skip-base-check"),
        "--no-land",
    )
    assert fleet.wait(90) == 0, fleet.said()
    ends = fleet.journal("finished")
    assert [end["outcome"] for end in ends] == ["error", "success"]
    receipts = [end["receipt"] for end in ends]
    assert receipts[0]["session"] == receipts[1]["session"]
    assert receipts[1]["verified"] is True


def test_the_last_attempt_runs_with_the_stronger_model(
    start: Any, project: AgentProject, api: ModelApi
) -> None:
    table = '[agents.claude]\nmodel = "claude-haiku-4-5"\nescalate = "claude-opus-4-8"\n'
    (project.folder / "beads-workers.toml").write_text(table)
    project.issues('write a.py "a"; say "I made a.py."')
    check = 'test "$BW_ATTEMPT" = 3 || { echo not yet; false; }'
    options = ("--agent", "claude", "--until-empty", "--no-land", "--retry", "fresh")
    verify = ("--verify", check, "--fix-rounds", "0", "--retry-delay", "0", "--skip-base-check")
    fleet: Fleet = start(project, "-n", "1", *options, *verify)
    assert fleet.wait(90) == 0, fleet.said()
    assert "model claude-haiku-4-5, last attempt by claude-opus-4-8, account" in fleet.errors
    sessions = [end["receipt"]["session"] for end in fleet.journal("finished")]
    asked = {each.session: each.model for each in api.accounts.charges}
    models = [asked[session] for session in sessions]
    assert [model.rpartition("-4-")[0] for model in models] == [
        *["claude-haiku"] * 2,
        "claude-opus",
    ], "so it was seen by the API"
    (issue,) = json.loads(fleet.call("list", "--all", "--json").stdout)
    for command in ("show", "why"):
        assert "escalated from claude claude-haiku" in fleet.call(command, issue["id"]).stdout
    assert "by claude claude-opus-4-8 instead of claude claude-haiku" in fleet.output


def test_the_last_attempt_is_made_by_the_other_agent_in_a_session_of_its_own(
    start: Any, project: AgentProject, api: ModelApi
) -> None:
    (project.folder / "beads-workers.toml").write_text('[agents.claude]\nescalate = "codex"\n')
    project.issues('write a.py "a"', 'write b.py "b"')
    check = 'test "$BW_ATTEMPT" = 2 || { echo not yet; false; }'
    options = ("--agent", "claude", "--until-empty", "--no-land", "--max-attempts", "2")
    verify = ("--verify", check, "--fix-rounds", "0", "--retry-delay", "0", "--skip-base-check")
    fleet: Fleet = start(project, "-n", "2", *options, *verify)
    assert fleet.wait(120) == 0, fleet.said()
    began = [(row["attempt"], row["agent"]) for row in fleet.journal("started")]
    assert sorted(began) == [(1, "claude")] * 2 + [(2, "codex")] * 2
    assert "ok agent    codex, for last attempts, account" in fleet.errors


def test_while_it_works_people_see_what_it_does_and_what_it_costs(
    start: Any, project: AgentProject
) -> None:
    project.issues('tokens 5000 500; write a.py "a"; run "touch began"; stall 30s; write b.py "b"')
    fleet: Fleet = start(project, "-n", "1", "--agent", "claude", "--limit", "1", "--no-land")
    until(lambda: in_worktrees(project, "began"))

    def working() -> Any:
        (worker,) = json.loads(fleet.call("status", "--json").stdout)["workers"]
        return worker if worker["activity"] == "running touch began" else None

    worker = until(working)
    assert worker["agent"] == "claude"
    assert worker["tokens"] >= 5500


def test_what_an_attempt_did_is_shown_wherever_one_looks(start: Any, project: AgentProject) -> None:
    project.issues('tokens 5000 500; write a.py "a"; run "echo hello"; say "I made a.py."')
    options = (
        "-n",
        "1",
        "--agent",
        "claude",
        "--until-empty",
        "--verify",
        "test -e a.py",
        "--skip-base-check",
    )
    fleet: Fleet = start(project, *options, "--budget", "20")
    assert fleet.wait(90) == 0, fleet.said()
    assert "ok agent    claude, account " in fleet.errors
    assert "ok budget   $20 for the night" in fleet.errors
    assert "agents used $" in fleet.output

    (issue,) = json.loads(fleet.call("list", "--all", "--json").stdout)
    shown = json.loads(fleet.call("show", issue["id"], "--json").stdout)
    reason = f"done, by claude; branch bw/{issue['id']}/1; 1 commit"
    assert shown["close_reason"].partition("; ")[2].startswith(reason), shown["close_reason"]
    assert shown["close_reason"].endswith("test -e a.py; attempt 1")
    assert "I made" not in shown["close_reason"]
    (attempt,) = shown["attempts"]
    assert (attempt["outcome"], attempt["receipt"]["verdict"]) == ("success", "done")
    for command in ("show", "why"):
        said = fleet.call(command, issue["id"]).stdout
        assert "verify    passed: test -e a.py" in said
        assert "said      I made a.py." in said

    log = fleet.call("logs", issue["id"]).stdout
    assert "[beads-workers] agent claude, adapter claude, session " in log
    assert "editing a.py\n" in log
    assert "$ echo hello\n" in log
    assert '{"type"' not in log
    assert '{"type"' in fleet.call("logs", issue["id"], "--raw").stdout

    report = json.loads(fleet.call("report", "--json").stdout)
    assert report["money"]["spent_usd"] > 0
    assert report["money"]["by_issue"].keys() == {issue["id"]}
    (row,) = report["attempts"]
    assert (row["agent"], row["verdict"], row["outcome"]) == ("claude", "done", "success")
    assert row["tokens"] == report["money"]["tokens"]["total"] >= 5500
    assert "what it cost" in fleet.call("report").stdout


def test_a_dashboard_of_any_size_shows_agents_at_work_and_an_account_that_is_closed(
    project: AgentProject, api: ModelApi
) -> None:
    work = 'tokens 5000 500; write cart{n}.py "a"; run "touch began"; stall 60s; write b.py "b"'
    project.create_many(
        [
            {"title": f"Mend the cart, part {n}", "description": f"[[stub: {work.format(n=n)}]]"}
            for n in range(4)
        ]
    )
    with TmuxScreen() as screen:
        quiet = {**project.environment, "NO_COLOR": "1"}
        screen.start("", 80, 24, quiet, project.folder)
        bw = shlex.join([sys.executable, "-m", "beads_workers"])
        api.account(project.environment["CLAUDE_CODE_OAUTH_TOKEN"]).close("five_hour", 3600)
        screen.type(f"{bw} start -n 2 --agent claude,codex --budget 5Mtok")
        for columns, rows in ((80, 24), (100, 30), (200, 50)):
            screen.resize(columns, rows)
            screen.wait_for(_has_all_of_it, 60)
            screen.keys("Down", "l")
            screen.wait_for("adapter codex")
            screen.keys("Escape")
        screen.keys("C-c")
        screen.wait_for("closed 0", 60)


def _has_all_of_it(text: str) -> bool:
    return (
        len(re.findall(r"^ W[12] .* running touch ", text, re.MULTILINE)) == 2
        and re.search(r"W1 .* bw-\d +codex +running touch ", text) is not None
        and re.search(
            r" agents  claude: 5-hour limit until \d\d:\d\d \((59 min|1 h|1 h 1 min)\)", text
        )
        is not None
        and " tok of 5Mtok" in text
    )


def test_a_limit_that_one_fleet_met_holds_for_the_next_one_elsewhere_and_after_kill_9(
    start: Any, project: AgentProject, api: ModelApi, home: AgentHome, tmp_path: Path
) -> None:
    api.account(project.environment["CLAUDE_CODE_OAUTH_TOKEN"]).close("five_hour", 3600)
    project.issues('write a.py "a"')
    first: Fleet = start(project, "-n", "1", "--agent", "claude")
    closed = first.wait_for("account_closed")
    (tmp_path / "other").mkdir()
    other = AgentProject(tmp_path / "other", home)
    other.environment["XDG_STATE_HOME"] = project.environment["XDG_STATE_HOME"]
    other.issues('write b.py "b"')
    second: Fleet = start(other, "-n", "1", "--agent", "claude")
    learned = second.wait_for("account_closed")
    assert (learned["account"], learned["until"]) == (closed["account"], closed["until"])
    os.kill(first.pid, signal.SIGKILL)
    first.process.wait()
    third: Fleet = start(project, "-n", "1", "--agent", "claude")
    third.wait_for("run_changed", state="running")
    third.wait_for("account_closed")
    for fleet in (second, third):
        assert not fleet.journal("started"), "nobody asks before the reset"
