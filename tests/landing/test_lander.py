"""The lander as a program, on real repositories: docs/LANDING.md, sentence by sentence."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from beads_workers.core.records.journal import Entry, Started, encode
from beads_workers.core.records.landing import (
    Add,
    After,
    CancelLanding,
    Gate,
    GatedAhead,
    GoOn,
    Idle,
    Into,
    Landed,
    LanderSettings,
    LanderWarned,
    LandingCancelled,
    LandingPaused,
    LandingResumed,
    Order,
    Refused,
    Tip,
    WithoutVerdict,
    from_line,
    refusal_text,
    to_line,
)
from beads_workers.landing.repository import landing_folder
from beads_workers.runtime.run_directory import RunDirectory
from beads_workers.runtime.sessions import kill, with_variable
from beads_workers.runtime.side_programs import LINE_BYTES_MAX
from beads_workers.worktrees.ledger import entries
from beads_workers.worktrees.records import Records, WorktreeRecord
from tests.landing.program import Program
from tests.landing.world import BRANCH, LandingWorld
from tests.support.fleet import until
from tests.support.mortal_git import MortalGit
from tests.support.repository import FORMATS, git, ref_lock

pytestmark = pytest.mark.daily(3)

CHECK = """\
#!/bin/sh
git rev-parse HEAD^{tree} >>"$GATED"
test ! -e slow || sleep 30
test ! -e broken && { test ! -e left || test ! -e right; } && exit 0
echo "it does not work"; exit 1
"""


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LandingWorld:
    world = LandingWorld(tmp_path, monkeypatch)
    monkeypatch.setenv("GATED", str(tmp_path / "gated"))
    (world.top / "check").write_text(CHECK)
    (world.top / "check").chmod(0o755)
    world.main({"check": CHECK, "file": "0\n"})
    return world


def landing(world: LandingWorld, *orders: Order, **fields: object) -> Program:
    """A lander whose gate is the project's own check."""
    return Program(world.settings("./check", **fields), *orders)


def gated(world: LandingWorld) -> list[str]:
    """The trees that the gate has really seen, in order."""
    file = world.folder / "gated"
    return file.read_text().split() if file.exists() else []


def tips(world: LandingWorld) -> list[str]:
    """Every value that the branch ever had, the oldest first."""
    shown = git(world.top, "reflog", "show", "--format=%H", BRANCH).splitlines()
    return list(reversed(shown))


def assert_every_tip_was_gated(world: LandingWorld) -> None:
    """As that very tree."""
    trees = [git(world.top, "rev-parse", f"{tip}^{{tree}}") for tip in tips(world)]
    assert set(trees[1:]) <= set(gated(world))


# --- what lands -----------------------------------------------------------------------------------


def test_branches_land_as_one_train_with_one_gate(world: LandingWorld) -> None:
    before = world.checkout_digest()
    program = landing(world, *[world.work(f"app-{n}", {f"f{n}": "x"}) for n in range(4)])
    program.idle("app-0", "app-1", "app-2", "app-3")
    assert program.end() == 0
    landed = program.of(Landed)
    assert [news.issue_id for news in landed] == ["app-0", "app-1", "app-2", "app-3"]
    assert landed[-1].commit == world.tip()
    assert {news.train for news in landed} == {("app-0", "app-1", "app-2", "app-3")}
    tree = git(world.top, "rev-parse", f"{world.tip()}^{{tree}}")
    assert {news.verified for news in landed} == {tree}
    known = entries(str(world.top), BRANCH)
    assert {each.train for each in known} == {news.train for news in landed}
    assert {each.verified for each in known} == {tree}
    assert len(tips(world)) == 2 and len(gated(world)) <= 2
    assert world.checkout_digest() == before


def test_a_conflict_with_the_tip_is_refused_and_holds_nobody_up(world: LandingWorld) -> None:
    adds = [world.work(f"app-{n}", {"file": f"{n}\n", f"f{n}": "x"}) for n in (1, 2)]
    program = landing(world, *adds, world.work("app-3", {"f3": "x"}))
    program.idle("app-1", "app-2", "app-3")
    assert program.landed == {"app-1", "app-3"}
    (refused,) = program.of(Refused)
    assert (refused.why, refused.files, refused.against) == ("conflict", ("file",), ("app-1",))
    assert "Merge conflict in file" in refused.text and refused.tip == world.tip()
    assert_every_tip_was_gated(world)


def test_two_that_break_each_other_only_together_one_lands_and_mended_the_other_does(
    world: LandingWorld,
) -> None:
    one, two = world.work("one", {"left": "x"}), world.work("two", {"right": "x"})
    program = landing(world, one, two, world.work("three", {"three": "x"}))
    program.idle("one", "two", "three")
    assert program.landed == {"one", "three"}
    (refused,) = program.of(Refused)
    assert (refused.issue_id, refused.why) == ("two", "verify")
    assert "it does not work" in refused.text and "one" in refused.against
    git(world.desk, "checkout", "-q", "--force", two.branch)
    git(world.desk, "merge", "-q", "--no-edit", world.tip())
    git(world.desk, "mv", "right", "mended")
    git(world.desk, "commit", "-qm", "mended")
    program.tell(world.added("two", two.base, branch=two.branch, repairs=1))
    program.until(lambda news: isinstance(news, Landed) and news.issue_id == "two")
    assert world.files() == [".gitignore", "check", "file", "left", "mended", "three"]
    assert_every_tip_was_gated(world)


def test_who_stands_before_a_culprit_in_the_train_lands_and_so_do_those_behind(
    world: LandingWorld,
) -> None:
    adds = [
        world.work(f"app-{n}", {f"f{n}": "x"} | ({"broken": ""} if n == 3 else {}))
        for n in range(7)
    ]
    program = landing(world, *adds)
    program.idle(*(add.issue_id for add in adds))
    assert program.refused == {"app-3"}
    assert program.landed == {f"app-{n}" for n in range(7) if n != 3}
    assert_every_tip_was_gated(world)


def test_a_tree_that_was_gated_is_never_gated_again(world: LandingWorld) -> None:
    adds = [world.work(f"app-{n}", {f"f{n}": "x"}) for n in range(2)]
    program = landing(world, *adds)
    program.idle("app-0", "app-1")
    program.end()
    seen = gated(world)
    git(world.top, "update-ref", f"refs/heads/{BRANCH}", world.start)
    again = landing(world, *adds)
    again.idle("app-0", "app-1")
    assert again.landed == {"app-0", "app-1"} and gated(world) == seen
    # The tip's own gate was stopped in the first run, where the branches' was quicker.
    ended = [news for news in again.of(Gate) if news.state not in ("began", "stopped")]
    assert ended and all(news.kept for news in ended)


def test_two_gates_that_end_in_the_same_moment(world: LandingWorld) -> None:
    """The first one's verdict makes the other one's void, before that can be told to stop."""
    verify = 'test -e f1 || sleep 0.5; echo x >>"$GATED"'
    program = Program(world.settings(verify), world.work("app-1", {"f1": "x"}))
    program.until(lambda news: len([g for g in program.of(Gate) if g.state == "began"]) == 2)
    program.process.send_signal(signal.SIGSTOP)
    until(lambda: len(gated(world)) == 2)
    time.sleep(1.0)
    program.process.send_signal(signal.SIGCONT)
    program.idle("app-1")
    assert program.landed == {"app-1"} and program.end() == 0


# --- ahead of approval ----------------------------------------------------------------------------


def awaiting(world: LandingWorld, *branches: Add) -> Program:
    """A lander with branches that await approval, once it has nothing more to do."""
    program = landing(world, *(replace(add, awaits=True) for add in branches))
    shown = {add.issue_id for add in branches}
    program.until(
        lambda news: (
            isinstance(news, Idle)
            and shown <= {each.issue_id for each in program.of(GatedAhead)} | program.refused
        )
    )
    assert not program.landed and world.tip() == world.start, "nobody has approved it"
    return program


def test_a_branch_approved_on_the_tip_on_which_it_was_gated_lands_without_another_gate(
    world: LandingWorld,
) -> None:
    add = world.work("app-1", {"f1": "x"})
    program = awaiting(world, add)
    (ahead,) = program.of(GatedAhead)
    assert ahead == GatedAhead("app-1", add.commit, "green", world.start)
    seen = gated(world)
    assert len(seen) == 1
    program.tell(add)
    program.idle("app-1")
    assert program.landed == {"app-1"} and gated(world)[:2] == seen
    assert_every_tip_was_gated(world)


def test_branches_approved_together_or_on_another_tip_are_gated_as_the_tree_that_results(
    world: LandingWorld,
) -> None:
    adds = [world.work("app-1", {"left": ""}), world.work("app-2", {"right": ""})]
    program = awaiting(world, *adds)
    assert [each.verdict for each in program.of(GatedAhead)] == ["green"] * 2
    program.tell(*adds)
    program.idle("app-1", "app-2")
    assert program.landed == {"app-1"} and program.refused == {"app-2"}
    assert_every_tip_was_gated(world)


def test_what_is_red_or_conflicts_is_refused_before_a_person_has_looked_at_it(
    world: LandingWorld,
) -> None:
    branches = [world.work("app-1", {"broken": ""}), world.work("app-2", {"file": "1\n"})]
    world.main({"file": "2\n"})
    program = landing(world, world.work("app-0", {"f0": "x"}))
    program.idle("app-0")
    program.tell(*(replace(add, awaits=True) for add in branches))
    program.idle("app-1", "app-2")
    assert {each.issue_id: each.why for each in program.of(Refused)} == {
        "app-1": "verify",
        "app-2": "conflict",
    }
    assert program.landed == {"app-0"} and not program.of(GatedAhead)


def test_a_killed_lander_has_landed_nothing_and_the_next_knows_the_verdict(
    world: LandingWorld,
) -> None:
    add = world.work("app-1", {"f1": "x"})
    awaiting(world, add).kill()
    seen = gated(world)
    again = landing(world, add)
    again.idle("app-1")
    assert again.landed == {"app-1"}
    assert [news.kept for news in again.of(Gate) if news.issues and news.state == "green"] == [True]
    assert set(gated(world)) - set(seen) <= {git(world.top, "rev-parse", f"{world.start}^{{tree}}")}


def test_an_empty_branch_that_awaits_approval_is_not_told_as_landed(world: LandingWorld) -> None:
    program = awaiting(world, Add("empty", 1, "run-1", world.start, world.start))
    assert program.of(GatedAhead)[0].why == "it brings nothing that is not there"


def test_what_awaits_approval_gives_way_to_what_does_not(world: LandingWorld) -> None:
    program = landing(world, replace(world.work("app-1", {"slow": ""}), awaits=True), jobs=1)
    program.until(lambda news: isinstance(news, Gate) and news.state == "began")
    program.tell(world.work("app-2", {"f2": "x"}))
    program.until(lambda news: isinstance(news, Landed))
    assert program.landed == {"app-2"} and not program.of(GatedAhead)
    assert program.of(Gate)[1].state == "stopped"
    program.kill()


def test_without_verify_what_merges_lands(world: LandingWorld) -> None:
    program = Program(world.settings(None), world.work("a", {"broken": ""}))
    program.idle("a")
    assert program.of(Landed)[0].verified == "" and gated(world) == []


def test_an_empty_branch_and_one_that_is_contained_close_with_the_commit_that_has_it(
    world: LandingWorld,
) -> None:
    empty = Add("empty", 1, "run-1", world.start, world.start)
    same = [world.work(n, {"same": "x"}) for n in ("one", "two")]
    program = landing(world, empty, *same)
    program.idle("empty", "one", "two")
    landed = {news.issue_id: news for news in program.of(Landed)}
    assert landed["empty"].contained and landed["empty"].commit == world.start
    assert landed["two"].contained and landed["two"].commit == world.tip()
    assert not landed["one"].contained


def test_a_flaky_gate_convicts_nobody_and_is_told(world: LandingWorld) -> None:
    flag = world.folder / "flag"
    world.main({"flaky": f"test ! -e only || test -e {flag} || {{ touch {flag}; exit 1; }}\n"})
    program = Program(world.settings("sh flaky"), world.work("a", {"only": "x"}))
    program.idle("a")
    assert program.landed == {"a"} and not program.refused
    assert [news.state for news in program.of(Gate) if news.flaky] == ["green"]


def test_a_gate_that_cannot_tell_convicts_nobody_until_the_tip_alone_can(
    world: LandingWorld,
) -> None:
    """It is set aside, named, and tried once more when nothing else is to be done."""
    mended = world.folder / "mended"
    verify = f"test ! -e odd || test -e {mended} || exit 75"
    settings = world.settings(verify, gate_retry_seconds=1.0)
    program = Program(settings, world.work("a", {"odd": ""}), world.work("b", {"b": ""}))
    program.until(lambda news: isinstance(news, Refused))
    program.until(lambda news: isinstance(news, Idle))
    (refused,) = program.of(Refused)
    assert (refused.issue_id, refused.why) == ("a", "gate")
    assert "no verdict, tried for" in refused.text and "exit status 75" in refused.text
    assert program.landed == {"b"}, "nothing waits any more"
    mended.touch()
    program.until(lambda news: isinstance(news, Landed) and news.issue_id == "a")
    assert program.end() == 0


def test_gates_that_are_killed_five_times_convict_nobody_and_it_lands(world: LandingWorld) -> None:
    many = world.folder / "many"
    verify = f"test ! -e odd || {{ echo x >>{many}; test $(wc -l <{many}) -gt 5 || kill -9 $$; }}"
    program = Program(world.settings(verify, gate_retry_seconds=1.0), world.work("a", {"odd": ""}))
    program.idle("a")
    assert program.landed == {"a"} and not program.refused and not program.of(LandingPaused)
    untold = program.of(WithoutVerdict)
    assert [each.times for each in untold] == [1, 2, 3, 4, 5]
    # Behind a semicolon stands what the machine ran out of: another test may do that now.
    assert {each.why.partition(";")[0] for each in untold} == {"verify: ended by signal 9"}
    assert not any(news.flaky for news in program.of(Gate)), "a green after no verdict is no lie"
    assert program.end() == 0


def under_way(records: Records) -> None:
    """The journal says that an attempt at ``a`` has begun a second ago (the times of files are some
    milliseconds late), and is written to for ten minutes more."""
    journal = RunDirectory(records.state_directory).run("run-1") / "journal.jsonl"
    journal.parent.mkdir(parents=True)
    began = time.time() - 1.0
    journal.write_bytes(encode(Entry(Started("a", "W1", 1, "run-1.1"), began, 0.0)))
    os.utime(journal, (time.time() + 600.0,) * 2)  # However slow the machine is.


def under_way_in_worktree(world: LandingWorld) -> Add:
    """An attempt that can put its work on the integration branch by itself."""
    world.repository()
    add = replace(world.work("a", {"a": ""}), branch="bw/a/1")
    worktrees = world.settings().worktrees
    made = WorktreeRecord(
        *("a.1", "a", 1, "bw/a/1", add.base, str(world.desk), worktrees.common, "run-1", "W1", "t")
    )
    records = Records(Path(worktrees.state_directory))
    os.close(records.begin(made))
    records.mark(made, Path(git(world.desk, "rev-parse", "--absolute-git-dir")), worktrees)
    under_way(records)
    return add


def trespass(world: LandingWorld, add: Add) -> None:
    git(world.desk, "update-ref", f"refs/heads/{BRANCH}", add.commit)


def test_what_an_attempt_lands_by_itself_is_refused_also_by_the_next_lander(
    world: LandingWorld,
) -> None:
    add = under_way_in_worktree(world)
    trespass(world, add)
    why = f"its attempt moved {BRANCH} to {add.commit[:12]} by itself, which was taken back"
    for _ in range(2):
        program = landing(world, add)
        refused = program.until(lambda news: isinstance(news, Refused))
        assert refused.why == "branch" and refused.text.startswith(why)
        assert refusal_text("branch", text=refused.text).startswith(why)
        assert "a" not in world.files()
        program.kill()
    # Its issue's next attempt has the same number.
    program = landing(world, CancelLanding("a"), add)
    program.idle("a")
    assert program.landed == {"a"}


def test_what_an_attempt_lands_by_itself_in_the_last_moment_is_taken_back(
    world: LandingWorld,
) -> None:
    add = under_way_in_worktree(world)
    program = landing(world)
    program.until(lambda news: isinstance(news, Idle))
    trespass(world, add)
    assert program.end() == 0
    assert "a" not in world.files()


# --- pauses ---------------------------------------------------------------------------------------


def test_a_red_tip_convicts_nobody_and_is_said_and_what_mends_it_lands(world: LandingWorld) -> None:
    world.main({"broken": ""})
    program = landing(world, world.work("a", {"a": ""}))
    paused = program.until(lambda news: isinstance(news, LandingPaused))
    assert "does not pass by itself" in paused.why
    assert program.until(lambda news: isinstance(news, Idle)).waiting == 1
    assert not program.refused and not program.landed
    assert [news.verified for news in program.of(Tip)][-1] is False
    git(world.top, "rm", "-q", "broken")
    world.main({"by-hand": ""})
    program.until(lambda news: isinstance(news, LandingResumed))
    program.idle("a")
    assert world.files() == [".gitignore", "a", "by-hand", "check", "file"]
    assert_every_tip_was_gated(world)


def test_what_a_person_commits_meanwhile_is_the_first_passenger(world: LandingWorld) -> None:
    program = landing(world, world.work("a", {"a": ""}))
    program.idle("a")
    by_hand = world.main({"by-hand": "x"})
    program.tell(world.work("b", {"b": ""}))
    program.idle("b")
    assert git(world.top, "merge-base", by_hand, world.tip()) == by_hand
    assert "by-hand" in world.files()
    assert_every_tip_was_gated(world)


def test_a_conflict_with_what_a_person_commits_pauses_and_names_the_files(
    world: LandingWorld,
) -> None:
    program = landing(world, world.work("a", {"file": "1\n"}))
    program.idle("a")
    world.main({"file": "2\n"})
    paused = program.until(lambda news: isinstance(news, LandingPaused))
    assert paused.files == ("file",) and "main at" in paused.why
    program.tell(world.work("b", {"b": ""}))
    program.until(lambda news: news == Idle(2))
    git(world.top, "merge", "-q", "-X", "theirs", "--no-edit", BRANCH)
    program.idle("b")
    assert "b" in program.landed


def test_a_commit_of_main_that_is_amended_after_it_landed_names_the_command(
    world: LandingWorld,
) -> None:
    program = landing(world, world.work("a", {"a": ""}))
    program.idle("a")
    world.main({"file": "1\n"})
    program.tell(world.work("b", {"b": ""}, base=world.tip()))
    program.idle("b")
    (world.top / "file").write_text("2\n")
    git(world.top, "commit", "-qa", "--amend", "--no-edit")
    paused = program.until(lambda news: isinstance(news, LandingPaused))
    command = f"git -C {world.top} merge {BRANCH}"
    assert f"'{command}' brings both together" in paused.why
    git(world.top, "merge", "-q", "-X", "ours", "--no-edit", BRANCH)
    program.until(lambda news: isinstance(news, LandingResumed))
    program.tell(world.work("c", {"c": ""}))
    program.idle("c")
    assert world.read("file") == "2" and program.end() == 0


def test_a_branch_that_is_checked_out_somewhere_is_held_until_it_is_not(
    world: LandingWorld,
) -> None:
    program = landing(world)
    program.until(lambda news: isinstance(news, Idle))
    place = world.folder / "other"
    git(world.top, "worktree", "add", "-q", str(place), BRANCH)
    program.tell(world.work("a", {"a": ""}))
    paused = program.until(lambda news: isinstance(news, LandingPaused))
    assert str(place) in paused.why and world.tip() == world.start
    git(place, "checkout", "-q", "--detach")
    program.until(lambda news: isinstance(news, Landed))


def test_somebody_else_moves_the_branch_and_it_goes_on_from_there(world: LandingWorld) -> None:
    program = landing(world)
    program.until(lambda news: isinstance(news, Idle))
    git(world.desk, "checkout", "-q", "--detach", BRANCH)
    moved = world.commit(world.desk, {"theirs": "x"})
    git(world.top, "update-ref", f"refs/heads/{BRANCH}", moved)
    program.tell(world.work("a", {"a": ""}))
    program.idle("a")
    assert world.files() == [".gitignore", "a", "check", "file", "theirs"]


def test_a_branch_that_a_person_deletes_stands_where_it_was_again(world: LandingWorld) -> None:
    program = landing(world, world.work("a", {"a": ""}))
    program.idle("a")
    before = world.tip()
    git(world.top, "branch", "-D", BRANCH)
    program.tell(world.work("b", {"b": ""}))
    program.idle("b")
    assert program.landed == {"a", "b"} and not program.refused
    (warned,) = program.of(LanderWarned)
    assert f"somebody has deleted {BRANCH}: it is at {before[:12]} again" in warned.text
    assert world.files() == [".gitignore", "a", "b", "check", "file"] and program.end() == 0


def test_what_a_person_takes_off_the_branch_is_said_and_stays_off_until_it_is_named(
    world: LandingWorld,
) -> None:
    off = world.work("off", {"off": ""})
    program = landing(world, off)
    program.idle("off")
    git(world.top, "branch", "--force", BRANCH, world.start)
    program.tell(world.work("b", {"b": ""}))
    program.until(lambda news: isinstance(news, LanderWarned) and "land off" in news.text)
    program.idle("b")
    assert "b" in world.files() and "off" not in world.files()
    program.tell(off)
    until(lambda: {"off", "b"} <= set(world.files()))
    assert not program.refused and program.end() == 0


def test_a_program_that_cannot_sign_pauses_and_goes_on_when_told(world: LandingWorld) -> None:
    git(world.top, "config", "gpg.program", "/bin/false")
    git(world.top, "config", "commit.gpgSign", "false")
    add = world.work("a", {"a": ""})
    git(world.top, "config", "commit.gpgSign", "true")
    program = landing(world, add)
    why = program.until(lambda news: isinstance(news, LandingPaused)).why
    assert "cannot be signed (gpg failed to sign the data): unlock the signer" in why
    git(world.top, "config", "commit.gpgSign", "false")
    program.tell(GoOn())
    program.idle("a")
    assert program.landed == {"a"}


# --- orders ---------------------------------------------------------------------------------------


def test_who_is_withdrawn_does_not_land_also_while_it_is_gated(world: LandingWorld) -> None:
    program = landing(world, world.work("slow", {"slow": ""}))
    program.until(lambda news: isinstance(news, Gate) and news.issues == ("slow",))
    program.tell(CancelLanding("slow"), world.work("b", {"b": ""}))
    program.until(lambda news: isinstance(news, LandingCancelled))
    program.idle("b")
    assert program.landed == {"b"}
    assert "slow" not in world.files()


def test_a_lock_that_a_killed_git_has_left_holds_nobody_up(world: LandingWorld) -> None:
    first = landing(world, world.work("app-1", {"f1": "x"}))
    first.idle("app-1")
    assert first.end() == 0
    second = world.work("app-2", {"f2": "x"})
    lock = ref_lock(world.top, f"refs/heads/{BRANCH}")
    lock.touch()
    os.utime(lock, (time.time() - 60.0,) * 2)
    program = landing(world, second)
    program.idle("app-2")
    assert program.landed == {"app-2"} and program.end() == 0


@pytest.mark.parametrize("format", FORMATS)
def test_it_lands_in_repositories_of_other_formats(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format: str
) -> None:
    world = LandingWorld(tmp_path, monkeypatch, format)
    world.main({"check": "exec test ! -e broken\n", "file": "0\n"})
    adds = [world.work(f"app-{n}", {f"f{n}": "x"}) for n in range(4)]
    adds += [world.work("bad", {"broken": "x"}), world.work("old", {"file": "1\n"})]
    world.main({"file": "2\n"})
    program = Program(world.settings("sh ./check", into="main"), *adds)
    program.idle(*(add.issue_id for add in adds))
    assert program.landed == {"app-0", "app-1", "app-2", "app-3"} and program.end() == 0
    assert {(each.issue_id, each.why) for each in program.of(Refused)} == {
        ("bad", "verify"),
        ("old", "conflict"),
    }
    assert git(world.top, "rev-parse", "main") == world.tip()


def test_locks_of_our_own_refs_and_of_packed_refs_go_when_they_are_old(world: LandingWorld) -> None:
    common = world.top / ".git"
    locks = [common / name for name in ("packed-refs.lock", "refs/bw/attempts/app-9/1.lock")]
    for lock in locks:
        lock.parent.mkdir(parents=True, exist_ok=True)
        lock.touch()
        os.utime(lock, (time.time() - 60.0,) * 2)
    program = landing(world, world.work("app-1", {"f1": "x"}))
    program.idle("app-1")
    assert program.end() == 0
    errors = program.errors()
    assert all(f"removed {lock}" in errors and not lock.exists() for lock in locks)


# --- only what it has put there has landed --------------------------------------------------------


def of_another(issue_id: str) -> str:
    """A message that carries trailers as the lander writes them."""
    return f"copied\n\nIssue: {issue_id}\nAttempt: 1\nRun: run-1\nVerified: none\n"


@pytest.mark.parametrize("style", ["merge", "rebase", "squash"])
def test_copied_trailers_in_a_branch_land_nothing_of_another_issue(
    world: LandingWorld, style: str
) -> None:
    other = world.work("other", {"other": ""})
    git(world.desk, "checkout", "--quiet", "--force", "-B", "bw/a/1", world.start)
    for n in range(2):
        world.commit(world.desk, {f"a{n}": ""}, of_another("other"))
    program = landing(world, world.added("a", world.start, branch="bw/a/1"), style=style)
    program.idle("a")
    program.tell(other)
    program.idle("other")
    assert {"a0", "a1", "other"} <= set(world.files())
    assert program.landed == {"a", "other"} and program.end() == 0


def test_what_landed_is_still_found_after_a_person_has_merged_it_into_main(
    world: LandingWorld,
) -> None:
    first = world.work("a", {"a": ""})
    program = landing(world, first)
    program.idle("a")
    world.main({"hand": ""})
    git(world.top, "merge", "--quiet", "--no-edit", BRANCH)
    world.main({"more": ""})
    second = world.work("b", {"b": ""}, base=world.tip())
    program.tell(second)
    program.idle("b")
    assert {"a", "b", "hand", "more"} <= set(world.files())
    program.tell(first)
    program.idle("a")
    assert not program.of(Landed)[-1].contained
    assert program.end() == 0


@pytest.mark.parametrize("while_it_lives", [True, False])
def test_an_attempt_that_moves_the_branch_itself_lands_nothing(
    world: LandingWorld, while_it_lives: bool
) -> None:
    program = landing(world)
    program.until(lambda news: isinstance(news, Tip))
    tip = world.tip()
    if not while_it_lives:
        assert program.end() == 0
    made = WorktreeRecord(
        *("a.1", "a", 1, "bw/a/1", tip, str(world.folder / "a.1"), str(world.top / ".git")),
        *("run-1", "W1", "token"),
    )
    git(world.top, "worktree", "add", "-q", "-b", "bw/a/1", made.path, tip)
    records = Records(world.top / ".beads-workers")
    os.close(records.begin(made))
    directory = Path(git(Path(made.path), "rev-parse", "--absolute-git-dir"))
    records.mark(made, directory, world.settings().worktrees)
    under_way(records)
    worktree = Path(made.path)
    git(worktree, "checkout", "-q", BRANCH)
    taken = world.commit(worktree, {"broken": ""})
    git(worktree, "checkout", "-q", "bw/a/1")
    own = world.commit(worktree, {"fine": ""})
    if not while_it_lives:
        program = landing(world)
    until(lambda: world.tip() == tip)
    moved = replace(world.added("a", tip, branch="bw/a/1"), commit=own)
    program.tell(moved, world.work("b", {"b": ""}))
    program.idle("a", "b")
    (refused,) = program.of(Refused)
    assert f"git branch NAME {taken[:12]}" in refused.text
    assert program.landed == {"b"} and "broken" not in world.files()
    assert program.end() == 0


# --- what it cannot do is a line and a pause ------------------------------------------------------

FOLDED = "Issue: a\n  folded\nAttempt: 1\nVerified: none"
ODD = "Issue: a\x0cb\nAttempt: 1\nRun: \u2028run\u0085\nVerified: \x0b1"


@pytest.mark.parametrize("trailers", [FOLDED, ODD, f"{FOLDED}\nVerified: 2", "Verified: "])
def test_it_lives_on_with_whatever_stands_in_the_commits_of_others(
    world: LandingWorld, trailers: str
) -> None:
    add = world.work("a", {"a": ""})
    (world.top / "file").write_text("1\n")
    git(world.top, "commit", "--quiet", "--cleanup=verbatim", "-am", f"x\n\n{trailers}\n")
    program = landing(world, add)
    program.idle("a")
    program.tell(add)
    program.idle("a")
    assert program.landed == {"a"} and program.end() == 0


def test_a_refusal_for_thousands_of_files_is_short_enough_to_be_heard(world: LandingWorld) -> None:
    names = [f"{n:04}-{'long' * 55}" for n in range(3000)]
    add = world.work("a", dict.fromkeys(names, "ours\n"))
    world.main(dict.fromkeys(names, "theirs\n"))
    program = landing(world, add, follows="")
    program.idle("a")
    (refused,) = program.of(Refused)
    assert refused.why == "conflict" and refused.files[0] == names[0]
    assert len(to_line(refused)) < LINE_BYTES_MAX
    assert program.end() == 0


def test_a_branch_in_its_way_is_a_pause_with_a_command_and_it_goes_on(world: LandingWorld) -> None:
    git(world.top, "branch", "bw-landing/foo")
    program = landing(world, world.work("a", {"a": ""}), branch="bw-landing/foo/bar")
    why = program.until(lambda news: isinstance(news, LandingPaused)).why
    command = "git branch -m bw-landing/foo bw-landing-foo-earlier"
    assert f"a branch bw-landing/foo is in its way; '{command}'" in why
    git(world.top, *command.split()[1:])
    program.tell(GoOn())
    program.idle("a")
    assert program.landed == {"a"} and program.end() == 0
    assert "a" in git(world.top, "ls-tree", "--name-only", "bw-landing/foo/bar").split()


def test_a_lock_of_packed_refs_that_comes_while_it_lands_ends_nothing(world: LandingWorld) -> None:
    program = landing(world, world.work("a", {"a": ""}))
    program.idle("a")
    git(world.top, "pack-refs", "--all")
    lock = world.top / ".git" / "packed-refs.lock"
    lock.touch()
    program.tell(world.work("b", {"b": ""}))
    program.idle("b")
    assert program.landed == {"a", "b"}
    lock.unlink()
    assert program.end() == 0


def test_a_call_that_fails_when_a_branch_is_told_is_not_the_branchs_fault(
    world: LandingWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, place = shutil.which("git"), world.folder / "bin"
    place.mkdir()
    broken = 'case " $* " in *" log "*) test ! -e "$0.broken" || exit 128 ;; esac'
    (place / "git").write_text(f'#!/bin/sh\n{broken}\nexec {real} "$@"\n')
    (place / "git").chmod(0o755)
    (place / "git.broken").touch()
    add = world.work("a", {"a": ""})
    monkeypatch.setenv("PATH", f"{place}:{os.environ['PATH']}")
    program = landing(world, add)
    reported = program.until(lambda news: isinstance(news, LandingPaused | Refused))
    assert isinstance(reported, LandingPaused), reported
    (place / "git.broken").unlink()
    program.tell(GoOn())
    program.idle("a")
    assert program.landed == {"a"} and program.end() == 0


def test_what_git_fails_at_once_is_done_a_little_later_and_nobody_is_told(
    world: LandingWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of these, failing once, had a good branch refused."""
    mortal, asked = MortalGit(world.folder / "mortal"), world.folder / "asked"
    git_once = f"""#!/bin/sh
read -r what <{asked} 2>/dev/null
case " $* " in *" $what "*) rm {asked}; echo "fatal: no" >&2; exit 128 ;; esac
exec {mortal.real} "$@"
"""
    (mortal.path / "git").write_text(git_once)
    asked.write_text("merge-tree\n")
    adds = [world.work(name, {name: ""}) for name in ("a", "b", "c")]
    monkeypatch.setenv("PATH", f"{mortal.path}:{os.environ['PATH']}")
    program = landing(world, adds[0], jobs=1)
    program.idle("a")
    for add, what in zip(adds[1:], ("diff-tree", "commit-tree"), strict=True):
        asked.write_text(f"{what}\n")
        program.tell(add)
        program.idle(add.issue_id)
    assert not asked.exists() and program.landed == {"a", "b", "c"}
    assert not program.of(LandingPaused) and program.end() == 0


def test_a_branch_that_git_cannot_merge_is_refused_only_if_git_can_merge_without_it(
    world: LandingWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    mortal = MortalGit(world.folder / "mortal")
    one, two = world.work("a", {"a": ""}), world.work("b", {"b": ""})
    script = mortal.path / "git"
    fails = f"""#!/bin/sh
case "$*" in *{{what}}*) echo "fatal: no" >&2; exit 128 ;; esac
exec {mortal.real} "$@"
"""
    script.write_text(fails.format(what=f"merge-tree*{one.commit}"))
    monkeypatch.setenv("PATH", f"{mortal.path}:{os.environ['PATH']}")
    program = landing(world, one, two, jobs=1)
    program.idle("a", "b")
    assert program.landed == {"b"}
    assert [each.text for each in program.of(Refused)] == ["git cannot merge it: no"]
    # As on a full disk: that is nobody's fault.
    script.write_text(fails.format(what="merge-tree"))
    three = world.work("c", {"c": ""})
    program.tell(three)
    paused = program.until(lambda news: isinstance(news, LandingPaused | Refused))
    assert paused == LandingPaused("git: no")
    script.write_text(fails.format(what="nothing"))
    program.idle("c")
    assert program.landed == {"b", "c"} and program.end() == 0


def test_a_train_asks_git_once_for_what_nobody_changes(
    world: LandingWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    mortal = MortalGit(world.folder / "mortal")
    one, two = world.work("a", {"a": ""}), world.work("b", {"b": ""})
    monkeypatch.setenv("PATH", f"{mortal.path}:{os.environ['PATH']}")
    program = landing(world, one, jobs=1)
    program.idle("a")
    mortal.counts()
    program.tell(two)
    program.idle("b")
    mortal.rests()
    assert program.landed == {"a", "b"} and program.end() == 0
    asked = Counter(call.partition(" refs/")[0] for call in mortal.named())
    assert {each: n for each, n in asked.items() if each.startswith(ONCE) and n > 1} == {}


ONCE = ("mktree", "for-each-ref --format=delete", "rev-parse --path")


def test_a_train_that_is_under_way_is_thrown_away_at_the_end(world: LandingWorld) -> None:
    program = landing(world, world.work("slow", {"slow": ""}))
    program.until(lambda news: isinstance(news, Gate) and news.issues == ("slow",))
    assert git(world.top, "for-each-ref", "refs/bw/train") != ""
    assert program.end() == 0
    assert git(world.top, "for-each-ref", "refs/bw/train") == ""


def test_a_git_that_is_killed_convicts_nobody(
    world: LandingWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by the kernel, when there is no memory left."""
    real, place = shutil.which("git"), world.folder / "bin"
    place.mkdir()
    script = f"""#!/bin/sh
case " $* " in *" merge-tree "*) kill -9 $$ ;; esac
exec {real} "$@"
"""
    (place / "git").write_text(script)
    (place / "git").chmod(0o755)
    add = world.work("app-1", {"f1": "x"})
    monkeypatch.setenv("PATH", f"{place}:{os.environ['PATH']}")
    program = landing(world, add)
    reported = program.until(lambda news: isinstance(news, LandingPaused | Refused))
    assert isinstance(reported, LandingPaused), reported
    assert program.end() == 0


def test_what_is_asked_again_is_answered_again_and_lands_once(world: LandingWorld) -> None:
    add = world.work("a", {"a": ""})
    program = landing(world, add, add)
    program.idle("a")
    program.tell(add)
    program.idle()
    first, *others = program.of(Landed)
    assert others and all(news.commit == first.commit for news in others)
    assert len(tips(world)) == 2


def test_a_branch_that_is_not_there_is_refused(world: LandingWorld) -> None:
    add = world.work("a", {"a": ""})
    program = landing(world, replace(add, commit="1" * 40))
    program.idle("a")
    assert [(news.why, news.text) for news in program.of(Refused)] == [
        ("branch", f"there is no commit {'1' * 40}")
    ]


def test_nonsense_is_passed_over(world: LandingWorld) -> None:
    program = landing(world)
    program.write(b"nonsense\n", b'{"tip": {"commit": "x", "branch": "y"}}\n')
    program.tell(world.work("a", {"a": ""}))
    program.idle("a")
    assert program.landed == {"a"}


# --- after a landing ------------------------------------------------------------------------------


def test_the_users_branch_moves_and_the_command_runs_after_each_landing(
    world: LandingWorld,
) -> None:
    git(world.top, "checkout", "-q", "-b", "elsewhere")
    after = f'git rev-parse "$BW_BRANCH" >>{world.folder}/after'
    program = landing(world, world.work("a", {"a": ""}), into="main", after=after)
    program.until(lambda news: isinstance(news, After))
    program.idle("a")
    assert program.of(Into) == [Into("main", world.tip())]
    assert git(world.top, "rev-parse", "main") == world.tip()
    assert (world.folder / "after").read_text().split() == [world.tip()]
    assert program.of(After) == [After(0)]


# --- one lander, crashes --------------------------------------------------------------------------


def test_a_second_lander_is_told_that_there_is_one(
    world: LandingWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = landing(world)
    first.until(lambda news: isinstance(news, Idle))
    second = landing(world)
    assert second.process.wait(30) == 1
    assert "another lander is at work" in second.errors()
    assert first.end() == 0


def test_the_end_of_its_input_and_a_signal_end_its_gates(world: LandingWorld) -> None:
    token = f"BW_GATE={landing_folder(world.settings().worktrees)}/bw-gate-"
    for end in (Program.end, lambda p: p.process.send_signal(signal.SIGTERM) or p.process.wait(30)):
        program = landing(world, world.work("slow", {"slow": ""}))
        program.until(lambda news: isinstance(news, Gate) and news.issues == ("slow",))
        time.sleep(0.3)
        assert end(program) == 0
        assert not any(with_variable(f"{token}{lane}") for lane in (0, 1))


KILLS = int(os.environ.get("LANDING_KILLS", "6"))


def test_killed_at_any_moment_nothing_lands_twice_and_nothing_is_lost(
    world: LandingWorld, every_version: bool
) -> None:
    """Everything of it is killed, as often as ``LANDING_KILLS`` says, every day half as
    often, and asked the same again.

    ``scripts/prove landing`` kills a whole fleet that lands 100 times."""
    random = Random(7)
    settings = world.settings("./check")
    adds = [
        world.work(f"app-{n}", {f"f{n}": "x"} | ({"broken": ""} if n % 5 == 4 else {}))
        for n in range(max(10, KILLS // 2))
    ]
    before = world.checkout_digest()
    reported: dict[str, set[str]] = {}
    refused: set[str] = set()
    for _ in range(KILLS if every_version else KILLS // 2):
        program = Program(settings, *adds)
        deadline = time.monotonic() + random.uniform(0.2, 1.6)
        while (line := program._line(deadline)) is not None:
            program.news.append(from_line(line))
        kill_all(settings, program)
        note(program, reported, refused)
    program = Program(settings, *adds)
    program.idle(*(add.issue_id for add in adds))
    note(program, reported, refused)
    assert program.end() == 0
    assert set(reported) == {f"app-{n}" for n in range(len(adds)) if n % 5 != 4}
    assert refused == {f"app-{n}" for n in range(len(adds)) if n % 5 == 4}
    history = git(world.top, "rev-list", f"{world.start}..{world.tip()}").splitlines()
    assert sorted(commit for (commit,) in reported.values()) == sorted(history), (
        "each has one commit"
    )
    assert_every_tip_was_gated(world)
    assert world.checkout_digest() == before
    places = git(world.top, "worktree", "list").splitlines()
    assert len(places) == 4 and git(world.top, "for-each-ref", "refs/bw/train") == ""


def kill_all(settings: LanderSettings, program: Program) -> None:
    """The lander and its gates, at once."""
    pid = program.process.pid
    program.process.send_signal(signal.SIGSTOP)
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        os.kill(int(child), signal.SIGKILL)
    for lane in (0, 1):
        token = f"BW_GATE={landing_folder(settings.worktrees)}/bw-gate-{lane}"
        for process in with_variable(token):
            kill(process.pid, process.started, signal.SIGKILL)
    program.kill()


def note(program: Program, reported: dict[str, set[str]], refused: set[str]) -> None:
    """Remember what was said for good."""
    for news in program.of(Landed):
        reported.setdefault(news.issue_id, set()).add(news.commit)
    refused |= {news.issue_id for news in program.of(Refused)}
