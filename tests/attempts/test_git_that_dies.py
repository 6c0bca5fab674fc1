"""A git that cannot do what an attempt needs: whose fault it is, and in which words.

``scripts/faults git`` breaks each call of an attempt, by its position.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections import Counter
from pathlib import Path

import pytest

from beads_workers.attempts.deliver import answered
from beads_workers.attempts.run import AgentAttempt, not_begun
from beads_workers.attempts.work import Workplace
from beads_workers.core.base.model import IssueId, OutcomeKind
from beads_workers.core.base.plans import Step, StepKind
from beads_workers.core.base.settings import Worktrees
from beads_workers.core.base.wire import CANNOT_PREPARE, Task
from beads_workers.core.records.assignment import AgentSpec, Assignment, AttemptAnswer, to_fields
from beads_workers.core.workers.worker import detail
from beads_workers.runtime.attempt_channel import AttemptChannel
from beads_workers.worktrees.git import GitError
from beads_workers.worktrees.orders import Preparation
from beads_workers.worktrees.preparation import keep_refs
from tests.support.mortal_git import MortalGit as CountingGit
from tests.support.repository import IDENTITY, git, make_repository

RESULT = {"type": "result", "subtype": "success", "is_error": False, "num_turns": 1, "result": "ok"}
PREPARATION = Preparation(Worktrees("", "", "", "", "", "", ""), "i-1", 1, "W1", "r", "")


class MortalGit:
    """A ``git`` on PATH that dies as a line of the shell says."""

    def __init__(self, folder: Path) -> None:
        self._program, self._real = folder / "git", shutil.which("git")

    def dies(self, how: str) -> None:
        """``how``: run before each call."""
        self._program.write_text(f'#!/bin/sh\n{how}\nexec "{self._real}" "$@"\n')
        self._program.chmod(0o755)


class Place:
    """A worktree as an attempt finds it."""

    def __init__(self, folder: Path) -> None:
        self.checkout = make_repository(folder / "checkout")
        self.base = git(self.checkout, "rev-parse", "HEAD")
        self.worktree = folder / "worktree"
        self.mortal = MortalGit(folder / "bin")
        self.folder = folder

    def begin_again(self) -> None:
        git(self.checkout, "worktree", "remove", "--force", str(self.worktree), check=False)
        git(self.checkout, "update-ref", "-d", "refs/bw/attempts/i-1/1")
        git(self.checkout, "worktree", "add", "-q", "-B", "bw/i-1/1", str(self.worktree), self.base)
        os.chdir(self.worktree)

    def asked(self, verify: str | None = None) -> Assignment:
        return Assignment(
            "i-1",
            "A cart",
            {"id": "i-1", "title": "A cart"},
            attempt=1,
            request_id="r.1",
            run_id="r",
            worker_id="W1",
            agent=AgentSpec("claude", "claude"),
            guards=str(self.folder / "guards"),
            usage_file=str(self.folder / "usage"),
            verify=verify,
        )

    def attempt(self) -> AttemptAnswer:
        asked = self.asked()
        try:
            return AgentAttempt(asked).run()
        except GitError:
            return not_begun(asked, GitError("as main has it"))


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    (tmp_path / "bin").mkdir()
    agent = tmp_path / "bin" / "claude"
    agent.write_text(
        f"#!/bin/sh\n[ -z \"$WORKS\" ] || echo 1 >cart.py\necho '{json.dumps(RESULT)}'\n"
    )
    agent.chmod(0o755)
    place = Place(tmp_path)
    for name, text in IDENTITY.items():
        monkeypatch.setenv(name, text)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    monkeypatch.setenv("BW_WORKTREE", str(place.worktree))
    monkeypatch.setenv("BW_BRANCH", "bw/i-1/1")
    monkeypatch.setenv("BW_BASE", place.base)
    monkeypatch.chdir(tmp_path)
    return place


def test_what_a_command_did_to_other_refs_and_what_is_hidden_is_named(place: Place) -> None:
    place.begin_again()
    (place.checkout / ".git/info").mkdir(exist_ok=True)
    (place.checkout / ".git/info/exclude").write_text("*.cache\n")
    keep_refs(str(place.worktree))
    (place.worktree / "cart.py").write_text("1\n")
    (place.worktree / "hit.cache").write_text("2\n")
    git(place.worktree, "tag", "v1")
    git(place.worktree, "branch", "other")
    flags = answered(PREPARATION, "A cart").receipt.flags
    made = [f"{name} was made while this attempt ran" for name in ("other", "refs/tags/v1")]
    assert [flag.partition(":")[0] for flag in flags[1:]] == made
    assert flags[0] == "your own ignore rules hide hit.cache: kept in refs/bw/attempts/i-1/1"


def test_what_a_command_left_is_delivered_with_few_calls_of_git(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.begin_again()
    keep_refs(str(place.worktree))
    (place.worktree / "cart.py").write_text("1\n")
    counting = CountingGit(tmp_path / "counting")
    monkeypatch.setenv("PATH", counting.variables()["PATH"])
    counting.counts()
    assert answered(PREPARATION, "A cart").outcome is OutcomeKind.SUCCESS
    calls = counting.named()
    # Where it is, and what its branch is, files say.
    kinds = Counter(" ".join(call.split()[:2]) for call in calls)
    assert kinds["rev-parse --path-format=absolute"] == 0
    assert len(calls) <= 14, calls


def test_an_attempt_asks_git_nothing_twice(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its branch is read from its file, and its status while nobody works there is asked once."""
    place.begin_again()
    monkeypatch.setenv("WORKS", "1")
    counting = CountingGit(tmp_path / "counting")
    monkeypatch.setenv("PATH", counting.variables()["PATH"])
    counting.counts()
    answer = AgentAttempt(place.asked("true")).run()
    assert answer.outcome is OutcomeKind.SUCCESS
    calls = counting.named()
    kinds = Counter(" ".join(call.split()[:1]) for call in calls)
    # After the agent, after the commit, and after verify.
    assert kinds["status"] == 3
    assert kinds["for-each-ref"] == 0, "all refs are read from their files"
    assert len(calls) <= 13, calls


NO_SPACE = "fatal: unable to write new index file: No space left on device"
NO_COMMIT = (
    f'case "$*" in *" commit "* | *" commit-tree "*) echo "{NO_SPACE}" >&2; exit 128 ;; esac'
)


@pytest.mark.parametrize(
    ("how", "error"),
    [
        (NO_COMMIT, "its work cannot be committed: unable to write new index file: No space"),
        ('case "$*" in *" commit "*) kill -TERM $$ ;; esac', "git does not say what was done: "),
    ],
)
def test_work_that_git_cannot_commit_is_no_fault_of_its_issue(
    place: Place, how: str, error: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORKS", "1")
    place.begin_again()
    place.mortal.dies(how)
    by_agent = place.attempt()
    by_command = answered(PREPARATION, "A cart")
    for answer in (by_agent, by_command):
        assert answer.outcome is OutcomeKind.RETRY and answer.error.startswith(error), answer
        channel = AttemptChannel()
        channel.take(json.dumps({"answer": to_fields(answer)}).encode() + b"\n")
        ended = channel.end()
        assert ended is not None and ended.outcome.unprepared
        assert detail(Step(StepKind.RUN, ()), Task(IssueId("i"), 1, "r"), ended) == CANNOT_PREPARE


def test_what_the_agent_has_put_in_the_way_of_its_work_is_charged(place: Place) -> None:
    place.begin_again()
    (place.worktree / "cart.py").write_text("1\n")
    git(place.worktree, "checkout", "-q", "--detach")
    (place.checkout / ".git/worktrees/worktree/CHERRY_PICK_HEAD").write_text(f"{place.base}\n")
    answer = answered(PREPARATION, "A cart")
    assert (answer.outcome, answer.unprepared) == (OutcomeKind.ERROR, False)


def test_a_git_that_refuses_in_the_middle_is_an_answer_with_its_words(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A traceback would be none, and what the agent said and used would be lost."""
    monkeypatch.setenv("WORKS", "1")
    place.begin_again()
    answer = AgentAttempt(place.asked("rm .git && git init -q .")).run()
    assert answer.outcome is OutcomeKind.ERROR and "is another repository" in answer.error
    assert answer.receipt.agent == "claude"


def test_a_machine_that_fails_is_no_missing_program(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORKS", "1")
    place.begin_again()

    def full(*arguments: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/tmp/index")

    monkeypatch.setattr(Workplace, "commit", full)
    answer = place.attempt()
    assert (answer.outcome, answer.unprepared) == (OutcomeKind.RETRY, True)
    assert "/tmp/index: No space left on device" in answer.error
