"""One attempt, whole, with the real claude and codex: work, receipt, rounds, review, refusals."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import fields as dataclass_fields
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from beads_workers.core.base.settings import AgentRules
from beads_workers.core.records.assignment import AgentSpec, Assignment, write_assignment
from beads_workers.core.records.receipts import Receipt, read_receipt
from beads_workers.runtime.usage_file import read_usage
from tests.agents_api import ModelApi
from tests.support import warm
from tests.support.real_agents import CLAUDE, CODEX, AgentHome, git, program, repository
from tests.support.versions import AGENTS as EITHER_AGENT

pytestmark = pytest.mark.daily(3)

AGENTS = {"claude": CLAUDE, "codex": CODEX}


class Attempts:
    """A repository with a worktree, in which attempts are made as a worker makes them."""

    def __init__(self, folder: Path, home: AgentHome) -> None:
        self.home = home
        self.checkout = repository(folder / "checkout")
        self.remote = folder / "remote.git"
        subprocess.run(["git", "init", "-q", "--bare", str(self.remote)], check=True)
        git(self.checkout, "remote", "add", "origin", str(self.remote))
        self.base = git(self.checkout, "rev-parse", "HEAD")
        self.worktree = folder / "worktree"
        git(self.checkout, "worktree", "add", "-q", "-b", "bw/i-1/1", str(self.worktree))
        self.folder = folder
        self.progress: list[dict[str, Any]] = []
        self.log = ""

    def assignment(self, description: str, agent: str = "codex", **others: Any) -> Assignment:
        """For an issue with this description.

        By codex where the agent does not matter: claude computes five times as long until it asks.
        """
        issue = {"id": "i-1", "title": "A cart", "description": description, "created_by": "me"}
        spec = AgentSpec(agent, agent)
        fields: dict[str, Any] = {
            "attempt": 1,
            "request_id": "run.1",
            "run_id": "run",
            "worker_id": "W1",
            "guards": str(self.folder / "guards"),
            "usage_file": str(self.folder / "usage" / "i-1.jsonl"),
        }
        named = {each.name for each in dataclass_fields(AgentRules)}
        asking = AgentRules(
            **{"fix_rounds": 0, **{k: others.pop(k) for k in named & others.keys()}}
        )
        return Assignment("i-1", "A cart", issue, agent=spec, asking=asking, **{**fields, **others})

    def environment(self) -> dict[str, str]:
        """What a worker's task gets in a worktree."""
        path = ":".join(str(program(name, version).parent) for name, version in AGENTS.items())
        home = self.home.environment
        return home | {
            "PATH": f"{path}:{home['PATH']}",
            "BW_WORKTREE": str(self.worktree),
            "BW_BRANCH": git(self.worktree, "symbolic-ref", "--short", "HEAD"),
            "BW_BASE": self.base,
        }

    def run(self, asked: Assignment) -> tuple[str, str, Receipt]:
        """Outcome, error and receipt."""
        given = write_assignment(asked)
        ran = warm.run_module(warm.ATTEMPT, given, self.worktree, self.environment(), timeout=90)
        self.log = ran.stderr
        rows = [json.loads(line) for line in ran.stdout.splitlines()]
        self.progress = [row["progress"] for row in rows if "progress" in row]
        answer = rows[-1]["answer"]
        receipt = read_receipt(answer["receipt"])
        assert receipt is not None
        return answer["outcome"], answer["error"], receipt


@pytest.fixture
def attempts(tmp_path: Path, home: AgentHome) -> Attempts:
    return Attempts(tmp_path, home)


@pytest.mark.parametrize("agent", AGENTS, ids=EITHER_AGENT)
def test_work_that_lies_in_the_files_is_committed_and_receipted(
    attempts: Attempts, api: ModelApi, agent: str
) -> None:
    script = '[[stub: write cart.py "total = 1"; ask "In euros?"]]'
    asked = attempts.assignment(script, agent, verify="test -e cart.py")
    outcome, error, receipt = attempts.run(asked)
    assert (outcome, error) == ("success", ""), attempts.log
    assert receipt.flags == ("it asked: In euros?",), "and a person reads it in the morning"
    assert git(attempts.worktree, "status", "--porcelain") == ""
    message = git(attempts.worktree, "log", "-1", "--format=%B")
    assert "Issue: i-1\nAttempt: 1\nRun: run" in message
    assert receipt.verdict == "done"
    assert (receipt.verified, receipt.branch) == (True, "bw/i-1/1")
    assert receipt.commits == (git(attempts.worktree, "rev-parse", "HEAD"),)
    assert receipt.tree == git(attempts.worktree, "rev-parse", "HEAD^{tree}")
    assert receipt.diffstat.startswith("1 file changed")
    assert receipt.session
    assert git(attempts.checkout, "rev-parse", "refs/bw/attempts/i-1/1") == receipt.commits[0]


def test_tokens_and_money_are_those_of_the_meter(attempts: Attempts, api: ModelApi) -> None:
    steps = 'tokens 5000 70 300 40; write a.py "1"; write b.py "2"'
    asked = attempts.assignment(f"[[stub: {steps}]]", "claude")
    _, _, receipt = attempts.run(asked)
    meter = api.accounts.total()
    assert receipt.money == pytest.approx(meter.dollars)
    assert (receipt.tokens.input, receipt.tokens.output) == (
        meter.tokens.input,
        meter.tokens.output,
    )
    told = read_usage(Path(asked.usage_file))
    assert told is not None
    assert (told.money, told.usage) == (receipt.money, receipt.usage)
    assert attempts.progress[-1]["money"] == pytest.approx(meter.dollars, rel=0.01)


def test_an_agent_that_changes_nothing_has_not_done_it(attempts: Attempts) -> None:
    outcome, error, receipt = attempts.run(attempts.assignment('[[stub: say "All done."]]'))
    assert (outcome, receipt.verdict) == ("error", "no_change")
    assert "changed nothing" in error


def test_one_that_says_done_and_changed_nothing_is_not_said_to_need_no_change(
    attempts: Attempts,
) -> None:
    said = '[[stub: say "I have written it.\\nOutcome: done"]]'
    outcome, error, receipt = attempts.run(attempts.assignment(said))
    assert (outcome, receipt.flags) == ("not_found", ("changed nothing and says that it is done",))
    assert error == "it changed nothing and says that it is done: I have written it."


ENDED = """echo '{"type":"result","sessionId":"s","exitCode":1}'"""
WORDS = """echo '{"type":"assistant.message","data":{"content":"Did it."}}'"""
COMMITS = "git add -A && git commit -qm did"


@pytest.mark.parametrize(
    ("does", "verify", "outcome"),
    [
        ((COMMITS, WORDS, ENDED), "test -e cart.py", "success"),
        ((COMMITS,), "test -e cart.py", "success"),
        ((COMMITS, WORDS, ENDED), None, "error"),
        ((COMMITS, WORDS, ENDED), "false", "error"),
        ((WORDS, ENDED), "test -e cart.py", "error"),
        ((COMMITS, WORDS), "test -e cart.py", "error"),
        ((COMMITS, "echo 'Error: no memory'"), "test -e cart.py", "error"),
    ],
    ids=["said", "silent", "no-verify", "verify-fails", "uncommitted", "cut", "a-reason"],
)
def test_an_exit_that_nothing_explains_is_left_to_verify_if_all_is_committed(
    attempts: Attempts, does: tuple[str, ...], verify: str | None, outcome: str
) -> None:
    """As some versions of copilot end (github/copilot-cli issue 3189)."""
    copilot = attempts.folder / "copilot"
    steps = ("#!/bin/sh", "cat >/dev/null", "echo 1 >cart.py", *does, "exit 1")
    copilot.write_text("\n".join(steps))
    copilot.chmod(0o755)
    spec = AgentSpec("copilot", "copilot", program=str(copilot))
    asked = attempts.assignment("Add a cart.", verify=verify, fix_rounds=0)
    found, error, receipt = attempts.run(replace(asked, agent=spec))
    assert found == outcome, (error, attempts.log)
    if outcome == "success":
        assert (receipt.verified, receipt.why) == (True, "it exited with status 1")


def test_one_that_says_that_nothing_is_to_be_changed_waits_for_a_person(attempts: Attempts) -> None:
    said = '[[stub: say "It is there already.\\nOutcome: no change needed: it exists"]]'
    outcome, error, receipt = attempts.run(attempts.assignment(said))
    assert (outcome, receipt.flags) == ("not_found", ("says that no change is needed",))
    assert "it exists" in error
    outcome, _, _ = attempts.run(attempts.assignment(said, allows_no_change=True))
    assert outcome == "success"
    outcome, error, _ = attempts.run(
        attempts.assignment(said, allows_no_change=True, verify="echo not yet; false")
    )
    assert (outcome, error) == ("error", "verify failed: not yet")


@pytest.mark.parametrize("agent", AGENTS, ids=EITHER_AGENT)
def test_what_verify_finds_goes_back_to_the_same_session(
    attempts: Attempts, api: ModelApi, agent: str
) -> None:
    description = (
        '[[stub: write cart.py "total = 1"]]\n'
        '[[stub when "AssertionError": write cart.py "total = 2"; run "sleep 2"]]'
    )
    # -B: of two files of one size, written within a second, Python takes the compiled first one.
    verify = "python3 -B -c 'import cart; assert cart.total == 2, cart.total'"
    asked = attempts.assignment(description, agent, verify=verify, fix_rounds=2)
    outcome, error, receipt = attempts.run(asked)
    assert outcome == "success", (error, attempts.log)
    assert receipt.rounds == 1
    assert len({charge.session for charge in api.accounts.charges}) == 1
    dollars = [each.get("money", 0.0) for each in attempts.progress]
    assert dollars == sorted(dollars), "what the first run has cost counts during the second"


def test_what_verify_writes_is_taken_back(attempts: Attempts) -> None:
    verify = "echo formatted >>cart.py; echo x >.coverage; test $(wc -l <cart.py) = 3"
    description = (
        '[[stub: write cart.py "total = 1"]]\n'
        '[[stub when "verify failed": run "test ! -e .coverage && printf \'1\\n2\\n\' >cart.py"]]'
    )
    asked = attempts.assignment(description, verify=verify, fix_rounds=1)
    outcome, error, receipt = attempts.run(asked)
    assert (outcome, receipt.rounds) == ("success", 1), (error, attempts.log)
    assert git(attempts.worktree, "status", "--porcelain") == ""
    assert git(attempts.worktree, "show", "HEAD:cart.py") == "1\n2"
    assert not (attempts.worktree / ".coverage").exists()


def test_rounds_end_and_leave_a_lesson(attempts: Attempts) -> None:
    asked = attempts.assignment('[[stub: write a.py "1"]]', verify="echo broken wheel; false")
    outcome, error, receipt = attempts.run(asked)
    assert (outcome, error) == ("error", "verify failed: broken wheel")
    assert "broken wheel" in receipt.lesson
    assert receipt.verified is False


def test_the_next_attempt_goes_on_with_the_session_and_the_lesson(
    attempts: Attempts, api: ModelApi
) -> None:
    description = '[[stub: write a.py "1"]] [[stub when "broken wheel": write wheel.py "2"]]'
    verify = "test -e wheel.py || { echo broken wheel; false; }"
    _, _, first = attempts.run(attempts.assignment(description, "claude", verify=verify))
    asked = attempts.assignment(
        description, "claude", verify=verify, earlier=first, resumes=True, error=first.why
    )
    outcome, error, second = attempts.run(asked)
    assert outcome == "success", (error, attempts.log)
    assert second.session == first.session
    total = (first.money or 0) + (second.money or 0)
    assert total == pytest.approx(api.accounts.total().dollars)


@pytest.mark.parametrize("agent", AGENTS, ids=EITHER_AGENT)
def test_a_session_that_a_kill_has_left_unreadable_is_begun_anew(
    attempts: Attempts, agent: str
) -> None:
    description = '[[stub: write a.py "1"]]'
    _, _, earlier = attempts.run(attempts.assignment(description, agent, verify="false"))
    for left, verify in ((0, "false"), (150, "true")):
        kept = [*Path(attempts.home.environment["HOME"]).rglob(f"*{earlier.session}.jsonl")]
        assert len(kept) == 1
        os.truncate(kept[0], left)
        resumed = {"earlier": earlier, "resumes": True, "error": earlier.why}
        asked = attempts.assignment(description, agent, verify=verify, **resumed)
        outcome, error, receipt = attempts.run(asked)
        assert outcome == ("success" if verify == "true" else "error"), (error, attempts.log)
        assert receipt.verified is (verify == "true"), error
        assert receipt.session and receipt.session != earlier.session
        earlier = receipt


@pytest.mark.parametrize(
    ("agent", "branch"), [("claude", "bw/i-1/1"), ("codex", "bw/i-1/2")], ids=EITHER_AGENT
)
def test_a_session_whose_work_is_gone_does_not_say_for_ever_that_it_is_done(
    attempts: Attempts, agent: str, branch: str
) -> None:
    description = '[[stub: write a.py "1"]]'
    _, _, receipt = attempts.run(attempts.assignment(description, agent, verify="false"))
    git(attempts.worktree, "checkout", "-q", "-B", branch, attempts.base)
    asked = attempts.assignment(description, agent, earlier=receipt, resumes=True)
    outcome, _, second = attempts.run(asked)
    assert (outcome, second.verdict) == ("success", "done"), attempts.log
    assert second.session != receipt.session


@pytest.mark.parametrize("agent", AGENTS, ids=EITHER_AGENT)
def test_nor_does_one_of_whose_work_a_part_is_gone(attempts: Attempts, agent: str) -> None:
    description = '[[stub: write a.py "1"; write b.py "2"]]'
    _, _, receipt = attempts.run(attempts.assignment(description, agent, verify="false"))
    git(attempts.worktree, "rm", "-q", "b.py")
    git(attempts.worktree, "commit", "-q", "--amend", "-m", "half of it")
    asked = attempts.assignment(
        description, agent, earlier=receipt, resumes=True, verify="cat a.py b.py"
    )
    outcome, _, second = attempts.run(asked)
    assert (outcome, second.verified, second.rounds) == ("success", True, 0), attempts.log
    assert second.session != receipt.session
    assert "and it changed nothing: a new session begins" in attempts.log


@pytest.mark.parametrize("agent", AGENTS, ids=EITHER_AGENT)
def test_a_limit_is_an_uncharged_retry_with_its_reset(attempts: Attempts, agent: str) -> None:
    outcome, error, receipt = attempts.run(attempts.assignment("[[stub: limit 2h]]", agent))
    assert (outcome, receipt.verdict) == ("retry", "limited")
    assert "limit" in error
    assert receipt.until is not None
    assert receipt.refusal is not None


def test_a_lost_login_needs_a_person(attempts: Attempts, api: ModelApi) -> None:
    api.account(attempts.home.key).lose_login()
    outcome, _, receipt = attempts.run(attempts.assignment('[[stub: write a.py "1"]]'))
    assert (outcome, receipt.verdict) == ("retry", "needs_person")


def test_a_model_that_does_not_exist_closes_that_model_only(attempts: Attempts) -> None:
    asked = attempts.assignment("[[stub: error 404 always]]", "claude")
    wanted = replace(asked.agent, model="no-such-model")
    outcome, _, receipt = attempts.run(replace(asked, agent=wanted))
    refusal = receipt.refusal
    assert refusal is not None
    assert (outcome, refusal.trouble.value, refusal.model) == (
        *("retry", "needs_person"),
        "no-such-model",
    )


@pytest.mark.parametrize("agent", AGENTS, ids=EITHER_AGENT)
def test_a_push_is_refused_and_the_rest_goes_on(attempts: Attempts, agent: str) -> None:
    description = '[[stub: write a.py "1"; commit; run "git push origin HEAD:main"; say "Pushed."]]'
    outcome, _, _ = attempts.run(attempts.assignment(description, agent))
    assert outcome == "success"
    assert git(attempts.remote, "for-each-ref") == ""


def test_a_close_of_its_own_issue_is_refused_and_named(attempts: Attempts, tmp_path: Path) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    called = tmp_path / "called"
    (tools / "bd").write_text(f'#!/bin/sh\necho "$@" >>{called}\n')
    (tools / "bd").chmod(0o755)
    real = attempts.environment

    def with_tools() -> dict[str, str]:
        return real() | {"PATH": f"{tools}:{real()['PATH']}"}

    attempts.environment = with_tools  # type: ignore[method-assign]
    steps = 'run "bd show i-1"; run "bd close i-1 --reason done"; run "bd close i-2"'
    outcome, _, receipt = attempts.run(attempts.assignment(f'[[stub: write a.py "1"; {steps}]]'))
    assert outcome == "success"
    assert called.read_text().splitlines() == ["show i-1", "close i-2"]
    assert receipt.denied  # By claude's hook before it ran, or by the guard.


def test_a_hook_of_claude_says_why_before_anything_is_run(
    attempts: Attempts, tmp_path: Path
) -> None:
    ran = tmp_path / "ran"
    steps = f'run "touch {ran} && git push origin HEAD:main"; run "echo fine"'
    asked = attempts.assignment(f'[[stub: write a.py "1"; {steps}]]', "claude")
    outcome, _, _ = attempts.run(asked)
    assert outcome == "success"
    # The guards alone would have let the first half of the line run.
    assert not ran.exists()
    assert "nothing is pushed in this task" in attempts.log
    assert "fine" in attempts.log


def test_a_reviewer_sends_remarks_back(attempts: Attempts, api: ModelApi) -> None:
    description = (
        '[[stub: write cart.py "total = 1"]]\n[[stub when "+vat": say "{\\"approve\\": true}"]]\n'
        '[[stub when "You review": say "{\\"approve\\": false, \\"remarks\\": [\\"no tax\\"]}"]]\n'
        '[[stub when "- no tax": write tax.py "vat"]]'
    )
    reviewer = AgentSpec("codex", "codex")
    asked = attempts.assignment(description, fix_rounds=1, review=reviewer)
    outcome, error, receipt = attempts.run(asked)
    assert outcome == "success", (error, attempts.log)
    assert receipt.rounds == 1
    assert (attempts.worktree / "tax.py").exists()


def test_an_agent_that_is_silent_is_ended_by_its_clock(attempts: Attempts) -> None:
    asked = attempts.assignment("[[stub: silence]]", stall_seconds=4.0, term_seconds=1.0)
    outcome, error, receipt = attempts.run(asked)
    assert (outcome, receipt.verdict) == ("error", "unfinished")
    assert "said nothing" in error
