"""What has landed is known whatever the commits say: with each kind of trailers, in each style, and
after a person has rewritten the branch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from beads_workers.checks.landing import unsigned
from beads_workers.core.base.commit_form import CommitForm
from beads_workers.core.records.landing import Add, LanderWarned
from beads_workers.core.records.receipts import INDEPENDENT
from beads_workers.landing.left_branches import LeftBranch, states
from beads_workers.landing.repository import CannotLand, LandingRepository
from beads_workers.landing.scratch_merges import Coupled
from beads_workers.landing.undo import Undo
from beads_workers.worktrees.git import GitError
from beads_workers.worktrees.landed import as_landed, landed_commits
from beads_workers.worktrees.ledger import LandedCommit, entries, entry_commit, ledger_ref
from tests.landing.program import Program
from tests.landing.world import BRANCH, LandingWorld
from tests.support.repository import git

NONE = CommitForm(trailers="none")


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LandingWorld:
    return LandingWorld(tmp_path, monkeypatch)


def land(repository: LandingRepository, *adds: Add) -> list[str]:
    """One train."""
    onto, changes = repository.tip(), []
    for add in adds:
        found = repository.builder.couple(onto, add)
        assert isinstance(found, Coupled)
        onto = found.commit
        changes.append(found.changes)
    train = tuple(add.issue_id for add in adds)
    return repository.land(repository.tip(), changes, repository.objects.tree(onto), train)


def two_steps(world: LandingWorld, issue_id: str, **fields: object) -> Add:
    """A branch of two commits."""
    world.work(issue_id, {issue_id: "1\n"}, **fields)
    world.commit(world.desk, {f"{issue_id}2": "2\n"}, f"{issue_id} goes on")
    return world.added(issue_id, world.start, branch=f"bw/{issue_id}/1", **fields)


def history_of(world: LandingWorld, commit: str, style: str) -> str:
    """What the history says of an issue that landed: its author, messages and files."""
    commits = {"squash": "-1", "rebase": "-2", "merge": "-3"}[style]
    return git(world.top, "log", "--topo-order", commits, "--format=%an %ad%n%B", "-p", commit)


@pytest.mark.parametrize(
    ("trailers", "style"),
    [("none", "squash"), ("none", "merge"), ("none", "rebase"), ("short", "squash")],
)
def test_it_is_found_taken_back_and_landed_again(
    world: LandingWorld, trailers: str, style: str
) -> None:
    form = CommitForm(trailers=trailers)
    settings = replace(world.settings(form=form, style=style), run_id="run-1")
    repository = world.repository(form=form, style=style)
    adds = [two_steps(world, name, title=f"Do {name}") for name in ("a", "b")]
    land(repository, *adds)
    again = LandingRepository(settings)  # As after a crash.
    first = again.landed_as(adds[0], world.tip())
    assert first is not None and first.train == ("a", "b")
    assert first.verified == git(world.top, "rev-parse", f"{world.tip()}^{{tree}}")
    of = landed_commits(str(world.top), world.start, [f"refs/heads/{BRANCH}"])
    assert [each.issue_id for each in of] == (list("bbaa") if style == "rebase" else list("ba"))
    message = git(world.top, "log", "--format=%B", f"{world.start}..{BRANCH}", "--first-parent")
    assert ("Issue: " in message) == (trailers == "short")
    assert "Attempt: " not in message and "Verified" not in message
    git(world.top, "update-ref", "refs/bw/attempts/a/1", adds[0].commit)
    before = history_of(world, first.commit, style)
    asked = list[Sequence[str]]()

    def waits_for(issue_ids: Sequence[str]) -> dict[str, tuple[str, ...]]:
        asked.append(issue_ids)
        return {}

    undo = Undo(settings, ("a",), waits_for=waits_for)
    assert undo.run().issue_ids == ("a",)
    assert again.landed_as(adds[0], world.tip()) is None and "a" not in world.files()
    assert git(world.top, "log", "-1", "--format=%s", BRANCH).startswith('Revert "')
    (gone,) = as_landed(str(world.top), [*again.undone().values()])
    back = again.order_again(gone)
    assert back is not None
    (landed,) = land(again, back)
    found = again.landed_as(adds[0], world.tip())
    assert found is not None and found.commit == landed
    assert history_of(world, landed, style) == before
    assert undo.run().moved_back
    assert asked == [["b", "a"]], "nothing stands on what landed last"
    assert again.landed_as(adds[0], world.tip()) is None
    assert again.landed_as(adds[1], world.tip()) is not None
    assert again.gone(world.tip()) == []


@pytest.mark.parametrize("trailers", ["full", "none"])
def test_what_a_check_said_that_depends_on_no_source_is_read_back(
    world: LandingWorld, trailers: str
) -> None:
    """``full``: as in a clone without a ledger."""
    repository = world.repository(form=CommitForm(trailers=trailers))
    add, verified = two_steps(world, "a"), f"{'e' * 40} {INDEPENDENT}"
    found = repository.builder.couple(repository.tip(), add)
    assert isinstance(found, Coupled)
    repository.land(repository.tip(), [found.changes], verified)
    if trailers == "full":
        git(world.top, "update-ref", "-d", ledger_ref(BRANCH))
    (state,) = states(repository, [LeftBranch(add)])
    assert state.verified == verified


def test_a_whole_run_is_taken_back_by_what_the_ledger_says(world: LandingWorld) -> None:
    repository = world.repository(form=NONE)
    land(repository, *(two_steps(world, name) for name in ("a", "b")))
    done = Undo(world.settings(form=NONE), ("run-1",)).run()
    assert {*done.issue_ids} == {"a", "b"} and world.tip() == world.start


def test_what_is_older_than_the_first_run_is_nobodys(world: LandingWorld) -> None:
    """A history that came with a clone; nor is it read to the end."""
    copied = "Old work\n\nIssue: old\nAttempt: 1\nRun: run-0\nVerified: none"
    git(world.top, "commit", "--quiet", "--allow-empty", "-m", copied)
    world.start = git(world.top, "rev-parse", "HEAD")
    land(world.repository(), two_steps(world, "a"))
    with pytest.raises(CannotLand, match="nothing of old is on"):
        Undo(world.settings(), ("old",)).run()


def test_without_the_ledger_the_commit_of_an_issue_is_named_with_what_takes_it_back(
    world: LandingWorld,
) -> None:
    (commit,) = land(world.repository(), two_steps(world, "a"))
    for ref in git(world.top, "for-each-ref", "--format=%(refname)", "refs/bw").splitlines():
        git(world.top, "update-ref", "-d", ref)
    with pytest.raises(
        CannotLand, match=f"has no entry for {commit[:12]}.*'git revert {commit[:12]}'"
    ):
        Undo(world.settings(), ("a",)).run()


def test_an_entry_whose_landing_never_came_says_nothing(world: LandingWorld) -> None:
    """A kill between the two refs of the transaction."""
    repository = world.repository(form=NONE)
    add = two_steps(world, "a")
    ghost = LandedCommit("d" * 40, "a", 1, "run-1")
    git(world.top, "update-ref", ledger_ref(BRANCH), entry_commit(str(world.top), (), [ghost]))
    assert repository.landed_as(add, world.tip()) is None
    (commit,) = land(repository, add)
    assert [each.commit for each in entries(str(world.top), BRANCH)] == [ghost.commit, commit]
    found = repository.landed_as(add, world.tip())
    assert found is not None and found.commit == commit


def rewritten(world: LandingWorld, *pick: str, change: str = "") -> list[str]:
    """The branch as a person makes it anew: these commits, on one of their own."""
    git(world.desk, "checkout", "--quiet", "--force", "--detach", world.start)
    world.commit(world.desk, {"first": "x"}, "by hand")
    made = []
    for commit in pick:
        git(world.desk, "cherry-pick", "--no-edit", commit)
        if change:
            (world.desk / change).write_text("changed\n")
        git(world.desk, "commit", "--quiet", "-a", "--amend", "-m", "other words")
        made.append(git(world.desk, "rev-parse", "HEAD"))
    git(world.top, "update-ref", f"refs/heads/{BRANCH}", made[-1])
    return made


def test_what_a_person_has_rebased_and_reworded_is_found_again(world: LandingWorld) -> None:
    repository = world.repository(form=NONE)
    adds = [two_steps(world, name) for name in ("a", "b")]
    made = rewritten(world, *land(repository, *adds))
    repository = world.repository(form=NONE)
    for add, commit in zip(adds, made, strict=True):
        found = repository.landed_as(add, world.tip())
        assert found is not None and found.commit == commit
    assert repository.gone(world.tip()) == []
    assert Undo(world.settings(form=NONE), ("a",)).run().issue_ids == ("a",)
    assert "a" not in world.files() and {"b", "first"} <= {*world.files()}
    assert repository.landed_as(adds[0], world.tip()) is None
    assert repository.landed_as(adds[1], world.tip()) is not None


def test_what_is_not_found_again_is_named(world: LandingWorld) -> None:
    repository = world.repository(form=NONE)
    commits = land(repository, *(two_steps(world, name) for name in ("a", "b")))
    rewritten(world, commits[1], change="b")
    repository = world.repository(form=NONE)
    assert [each.issue_id for each in repository.gone(world.tip())] == ["a", "b"]
    program = Program(world.settings(form=NONE))
    warned = program.until(lambda news: isinstance(news, LanderWarned))
    assert f"any more: a ({commits[0][:12]}), b ({commits[1][:12]})" in warned.text
    assert program.end() == 0
    with pytest.raises(CannotLand, match=f"a landed as {commits[0][:12]}, and .* rewritten"):
        Undo(world.settings(form=NONE), ("a",)).run()


def test_what_was_rewritten_from_before_a_run_is_not_taken_back_with_it(
    world: LandingWorld,
) -> None:
    first = land(world.repository(form=NONE), two_steps(world, "a"))
    later = replace(world.settings(form=NONE), run_id="run-2")
    repository = LandingRepository(later)
    repository.open()
    second = land(repository, replace(two_steps(world, "b"), run_id="run-2"))
    rewritten(world, *first, *second)
    assert Undo(later, ("run-2",)).run().issue_ids == ("b",)
    assert "a" in world.files() and "b" not in world.files()


def test_what_is_signed_off_says_in_whose_name(world: LandingWorld) -> None:
    form = CommitForm(trailers="none", signoff=True)
    repository, settings = world.repository(form=form), world.settings(form=form)
    assert unsigned(settings.landing, settings.worktrees) is None
    land(repository, two_steps(world, "a", title="Do it"))
    message = git(world.top, "log", "-1", "--format=%B", BRANCH)
    signed = "Signed-off-by: tester <tester@localhost>"
    assert message == f"Do it\n\n- work on a\n- a goes on\n\n{signed}"
    add = two_steps(world, "b")
    git(world.top, "config", "--remove-section", "user")
    assert unsigned(settings.landing, settings.worktrees) is not None
    with pytest.raises(GitError, match="who commits"):
        land(repository, add)
