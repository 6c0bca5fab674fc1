"""Several clones that land on one branch, through real bare repositories: docs/LANDING.md."""

from __future__ import annotations

import shutil
import time
from dataclasses import replace
from pathlib import Path

import pytest

from beads_workers.checks.landing import refused_ledger
from beads_workers.core.base.commit_form import CommitForm
from beads_workers.core.records import landing
from beads_workers.landing.repository import CannotLand
from beads_workers.landing.undo import Undo
from beads_workers.worktrees.ledger import entries, ledger_ref
from beads_workers.worktrees.making import base_of
from beads_workers.worktrees.remote import check_push
from tests.landing.program import Program
from tests.landing.world import BRANCH, LandingWorld, configure_user, use_our_configuration
from tests.support.fleet import until
from tests.support.repository import git
from tests.support.worktrees import ruled

pytestmark = pytest.mark.daily(3)

CHECK = """\
#!/bin/sh
git rev-parse HEAD^{tree} >>"$GATED"
test ! -e hold || while test ! -e "$GATED.go"; do sleep 0.05; done
test ! -e broken && { test ! -e left || test ! -e right; }
"""


class Clone(LandingWorld):
    """One that somebody works in; its remote is ``origin``."""

    def __init__(self, folder: Path, origin: Path) -> None:
        self.folder, self.origin, self.ended = folder, origin, 0.0
        self.top, self.desk = folder / "project", folder / "desk"
        folder.mkdir()
        git(folder, "clone", "--quiet", str(origin), str(self.top))
        configure_user(self.top, folder.name)
        git(self.top, "worktree", "add", "--quiet", "--detach", str(self.desk))
        self.start = git(self.top, "rev-parse", "main")

    def lander(self, *adds: landing.Add, **fields: object) -> Program:
        """Whose gate is the project's own check."""
        return Program(self.settings("./check", **{"remote": "origin", **fields}), *adds)


class Clones:
    """``origin``: bare; ``one`` and ``two`` are clones of it."""

    def __init__(self, folder: Path, origin: Path) -> None:
        self.gate = folder / "gated"
        self.origin = folder / "origin.git"
        shutil.copytree(origin, self.origin)
        self.one, self.two = (Clone(folder / name, self.origin) for name in ("one", "two"))
        self.refs = self.heads()

    def tip(self) -> str:
        """Where the branch stands that counts."""
        return git(self.origin, "rev-parse", f"refs/heads/{BRANCH}")

    def heads(self) -> dict[str, str]:
        """All refs of the remote but the branch and its ledger."""
        rows = git(self.origin, "for-each-ref", "--format=%(refname) %(objectname)").splitlines()
        ours = f"refs/heads/{BRANCH}", ledger_ref(BRANCH)
        return {ref: commit for ref, commit in map(str.split, rows) if ref not in ours}

    def landed(self) -> list[str]:
        """The issues on the branch, the oldest first."""
        asked = ("log", "--reverse", "--format=%(trailers:key=Issue,valueonly,separator=%x20)")
        return git(self.origin, *asked, BRANCH).split()

    def hook(self, name: str, script: str) -> None:
        """Have the remote run this."""
        hook = self.origin / "hooks" / name
        hook.parent.mkdir(exist_ok=True)
        hook.write_text(f"#!/bin/sh\n{script}\n")
        hook.chmod(0o755)

    def assert_sound(self) -> None:
        """Each value that the remote's branch ever had, but for its first, passed as that tree, and
        nothing else was pushed."""
        tips = git(self.origin, "reflog", "show", "--format=%H", BRANCH).splitlines()
        trees = {git(self.origin, "rev-parse", f"{tip}^{{tree}}") for tip in tips[:-1]}
        assert trees <= set(self.gate.read_text().split())
        assert self.heads() == self.refs


@pytest.fixture(scope="module")
def origin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bare repository, to be copied."""
    folder = tmp_path_factory.mktemp("origin")
    seed = LandingWorld(folder / "seed")
    (seed.top / "check").write_text(CHECK)
    (seed.top / "check").chmod(0o755)
    seed.main({"check": CHECK, "file": "0\n"})
    bare = folder / "origin.git"
    git(folder, "clone", "--quiet", "--bare", str(seed.top), str(bare))
    git(bare, "config", "core.logAllRefUpdates", "always")
    return bare


@pytest.fixture
def clones(origin: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Clones:
    use_our_configuration(monkeypatch)
    monkeypatch.setenv("GATED", str(tmp_path / "gated"))
    return Clones(tmp_path, origin)


# --- two clones -----------------------------------------------------------------------------------


def test_a_push_that_is_tried_is_tried_again_if_git_is_killed(clones: Clones) -> None:
    receiver = clones.origin.with_name("receiver")
    receiver.write_text(
        f'#!/bin/sh\nmkdir {receiver}.once && kill -PIPE 0\nexec git-receive-pack "$1"\n'
    )
    receiver.chmod(0o755)
    git(clones.one.top, "config", "remote.origin.receivepack", str(receiver))
    check_push(str(clones.one.top), "origin", f"refs/heads/{BRANCH}", clones.one.start, 20.0)
    assert receiver.with_name("receiver.once").exists()


def test_what_one_clone_landed_is_what_the_other_one_stands_on(clones: Clones) -> None:
    one, two = clones.one, clones.two
    program = one.lander(one.work("a", {"a": "1"}))
    program.idle("a")
    assert clones.tip() == one.tip() == program.of(landing.Landed)[0].commit
    place = replace(two.settings().worktrees, base=f"refs/heads/{BRANCH}", remote="origin")
    assert base_of(place) == clones.tip(), "an attempt begins with what landed elsewhere"
    other = two.lander(two.work("b", {"b": "1"}))
    other.idle("b")
    assert two.files() == [".gitignore", "a", "b", "check", "file"]
    assert clones.landed() == ["a", "b"]
    program.tell(one.work("c", {"c": "1"}))
    program.idle("c")
    assert one.tip() == clones.tip() and clones.landed() == ["a", "b", "c"]
    assert program.end() == 0 and other.end() == 0
    clones.assert_sound()


def test_who_loses_the_race_builds_anew_on_what_won(clones: Clones) -> None:
    one, two = clones.one, clones.two
    late = one.lander(one.work("late", {"hold": "1"}))
    late.until(lambda news: isinstance(news, landing.Gate) and news.issues == ("late",))
    first = two.lander(two.work("first", {"first": "1"}))
    first.idle("first")
    Path(f"{clones.gate}.go").touch()
    late.idle("late")
    assert clones.landed() == ["first", "late"] and "first" in one.files()
    assert late.end() == 0 and first.end() == 0
    clones.assert_sound()


def test_two_that_break_each_other_do_not_meet_on_the_branch(clones: Clones) -> None:
    one, two = clones.one, clones.two
    programs = one.lander(one.work("l", {"left": "1"})), two.lander(two.work("r", {"right": "1"}))
    for program, issue_id in zip(programs, ("l", "r"), strict=True):
        program.idle(issue_id)
    answers = [(len(p.landed), len(p.refused)) for p in programs]
    assert sorted(answers) == [(0, 1), (1, 0)]
    for program in programs:
        assert program.end() == 0
    clones.assert_sound()


def test_two_landers_at_once_lose_nothing_and_land_nothing_twice(clones: Clones) -> None:
    programs = [clone.lander() for clone in (clones.one, clones.two)]
    issues = [[f"{name}-{n}" for n in range(8)] for name in ("one", "two")]
    for n in range(8):
        for clone, program, mine in zip((clones.one, clones.two), programs, issues, strict=True):
            files = {mine[n]: "x"} | ({"broken": ""} if n == 5 else {})
            program.tell(clone.work(mine[n], files))
    for program, mine in zip(programs, issues, strict=True):
        program.idle(*mine)
    wanted = {issue for mine in issues for issue in mine if not issue.endswith("-5")}
    assert sorted(clones.landed()) == sorted(wanted)
    commits = {news.commit for program in programs for news in program.of(landing.Landed)}
    assert commits == set(git(clones.origin, "rev-list", f"main..{BRANCH}").splitlines())
    for program in programs:
        assert program.end() == 0
    clones.assert_sound()


def test_what_a_person_pushes_to_the_followed_branch_lands_too(clones: Clones) -> None:
    one, two = clones.one, clones.two
    two.main({"by-hand": "1"})
    git(two.top, "push", "--quiet", "origin", "main")
    program = one.lander(one.work("a", {"a": "1"}))
    program.idle("a")
    until(lambda: "by-hand" in one.files())
    assert git(one.top, "rev-parse", "main") == one.start, "the clone's own is not touched"
    assert program.end() == 0


# --- a remote that does not answer ----------------------------------------------------------------


def test_a_remote_that_is_gone_pauses_and_it_goes_on_by_itself(clones: Clones) -> None:
    one, away = clones.one, clones.origin.with_name("away")
    clones.origin.rename(away)
    program = one.lander(one.work("a", {"a": "1"}))
    paused = program.until(lambda news: isinstance(news, landing.LandingPaused))
    assert paused.why.startswith("origin cannot be reached: ")
    assert program.until(lambda news: isinstance(news, landing.Idle)).waiting == 1
    assert git(one.top, "branch", "--list", BRANCH) == ""
    away.rename(clones.origin)
    program.until(lambda news: isinstance(news, landing.LandingResumed))
    program.idle("a")
    clones.origin.rename(away)
    program.tell(one.work("b", {"b": "1"}))
    program.until(lambda news: isinstance(news, landing.LandingPaused))
    assert "b" not in one.files(), "nothing lands here that has not landed there"
    away.rename(clones.origin)
    program.tell(landing.GoOn())
    program.idle("b")
    assert clones.landed() == ["a", "b"] and program.end() == 0
    clones.assert_sound()


def test_a_remote_that_refuses_is_a_pause_and_the_branch_stays(clones: Clones) -> None:
    one = clones.one
    program = one.lander()
    program.until(lambda news: isinstance(news, landing.Idle))
    clones.hook("pre-receive", "echo the subject has no type; echo; echo see RULES; exit 1")
    program.tell(one.work("a", {"a": "1"}))
    paused = program.until(lambda news: isinstance(news, landing.LandingPaused))
    assert f"origin does not take {BRANCH}" in paused.why and "hook declined" in paused.why
    assert paused.why.endswith("it says: the subject has no type / see RULES")
    for _ in range(2):
        program.tell(landing.GoOn())
        program.until(lambda news: isinstance(news, landing.Idle))
    assert one.tip() == clones.tip() == one.start
    (clones.origin / "hooks" / "pre-receive").unlink()
    gated = len(clones.gate.read_text().split())
    program.tell(landing.GoOn())
    program.idle("a")
    assert len(program.of(landing.LandingPaused)) == len(program.of(landing.LandingResumed)) == 1, (
        "it is said once"
    )
    assert clones.landed() == ["a"] and program.end() == 0
    assert len(clones.gate.read_text().split()) == gated, "its tree has passed"


RULES = """
while read -r old new ref; do
  case $ref in refs/heads/*) ;; *) continue ;; esac
  for commit in $(git rev-list "$old..$new"); do
    git log -1 --format=%s "$commit" | grep -Eq '^(feat|fix|chore): [a-z].*[^.]$' || exit 1
    git log -1 --format=%b "$commit" | grep -q '^Signed-off-by: one <' || exit 1
  done
done
"""


def test_a_remote_with_rules_for_messages_is_satisfied_by_settings(clones: Clones) -> None:
    """A small commitlint, and DCO; ``scripts/prove messages`` has the real one."""
    clones.hook("pre-receive", RULES)
    adds = [
        clones.one.work("a", {"a": "1"}, title="Add it.", issue_type="feature"),
        clones.one.work("b", {"b": "1"}, title="README lies", issue_type="bug"),
    ]
    form = CommitForm(subject="{type}: {title:lower}", signoff=True)
    program = clones.one.lander(*adds, form=form)
    program.idle("a", "b")
    assert program.of(landing.LandingPaused) == [] and program.end() == 0
    subjects = git(clones.origin, "log", "-2", "--format=%s", BRANCH).splitlines()
    assert subjects == ["fix: readme lies", "feat: add it"]


def test_a_remote_that_refuses_the_ledger_takes_neither(clones: Clones) -> None:
    one = clones.one
    clones.hook("update", "case $1 in refs/bw/*) echo no refs of yours; exit 1;; esac")
    program = one.lander(one.work("a", {"a": "1"}))
    paused = program.until(lambda news: isinstance(news, landing.LandingPaused))
    assert "origin does not take refs/bw/landed/main: " in paused.why
    assert "it says: no refs of yours" in paused.why and one.tip() == clones.tip() == one.start
    assert program.end() == 0
    full = one.lander(one.work("b", {"b": "1"}), form=CommitForm(trailers="full"))
    full.idle("b")
    assert clones.landed() == ["b"] and full.end() == 0
    clones.assert_sound()


def test_a_start_finds_out_whether_the_remote_takes_the_ledger(clones: Clones) -> None:
    settings = clones.one.settings("./check", remote="origin")
    lands, where = settings.landing, settings.worktrees
    clones.hook("update", "case $1 in refs/bw/*) echo no refs of yours; exit 1;; esac")
    refused = refused_ledger(lands, where)
    assert refused is not None and refused.text.endswith("it says: no refs of yours")
    assert 'trailers = "full"' in refused.hint
    assert refused_ledger(ruled(lands, form=CommitForm(trailers="full")), where) is None
    (clones.origin / "hooks" / "update").unlink()
    assert refused_ledger(lands, where) is None
    assert git(clones.origin, "rev-parse", "--verify", ledger_ref(BRANCH))
    program = clones.one.lander(clones.one.work("a", {"a": "1"}))
    program.idle("a")
    assert program.end() == 0 and [e.issue_id for e in entries(str(clones.origin))] == ["a"]
    clones.assert_sound()


def test_two_ledgers_that_began_apart_are_joined(clones: Clones) -> None:
    one, two = clones.one, clones.two
    full = one.lander(one.work("a", {"a": "1"}), form=CommitForm(trailers="full"))
    full.idle("a")
    assert full.end() == 0
    other = two.lander(two.work("b", {"b": "1"}))
    other.idle("b")
    short = one.lander(one.work("c", {"c": "1"}))
    short.idle("c")
    known = {each.issue_id for each in entries(str(clones.origin), BRANCH)}
    assert known == {"a", "b", "c"} and other.end() == 0 and short.end() == 0
    clones.assert_sound()


def test_commits_that_only_this_clone_has_pause_it_with_what_to_type(clones: Clones) -> None:
    one, two = clones.one, clones.two
    alone = two.lander(two.work("old", {"old": "1"}), remote=None)
    alone.idle("old")
    assert alone.end() == 0
    program = one.lander(one.work("a", {"a": "1"}))
    program.idle("a")
    assert program.end() == 0
    other = two.lander(two.work("b", {"b": "1"}))
    paused = other.until(lambda news: isinstance(news, landing.LandingPaused))
    assert f"git branch -f {BRANCH} {clones.tip()[:12]}" in paused.why
    git(two.top, "branch", "-f", BRANCH, clones.tip())
    other.tell(landing.GoOn())
    other.idle("b")
    assert clones.landed() == ["a", "b"] and other.end() == 0


# --- kills ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("hook", ["pre-receive", "post-receive"])
def test_killed_while_it_pushes_the_next_one_finds_it_landed(clones: Clones, hook: str) -> None:
    """Before the remote has moved, with a push that lives on, and after."""
    one = clones.one
    program = one.lander()
    program.until(lambda news: isinstance(news, landing.Idle))
    victim = clones.gate.with_name("victim")
    victim.write_text(str(program.process.pid))
    clones.hook(hook, f"test ! -e {victim} || kill -9 $(cat {victim}); rm -f {victim}; sleep 0.5")
    add = one.work("a", {"a": "1"})
    program.tell(add)
    program.process.wait(60)
    program.kill()
    assert one.tip() == one.start and not program.of(landing.Landed)
    again = one.lander(add)
    again.idle("a")
    assert (
        clones.landed() == ["a"]
        and again.of(landing.Landed)[-1].commit == clones.tip() == one.tip()
    )
    assert again.end() == 0
    clones.assert_sound()


def test_killed_after_it_landed_the_next_one_says_so_again(clones: Clones) -> None:
    one, add = clones.one, clones.one.work("a", {"a": "1"})
    program = one.lander(add)
    landed = program.until(lambda news: isinstance(news, landing.Landed))
    program.kill()
    time.sleep(0.1)
    again = one.lander(add)
    assert again.until(lambda news: isinstance(news, landing.Landed)).commit == landed.commit
    assert again.end() == 0 and clones.landed() == ["a"]


# --- undo -----------------------------------------------------------------------------------------


def test_what_is_taken_back_is_taken_back_at_the_remote_by_a_commit(clones: Clones) -> None:
    one, two = clones.one, clones.two
    for clone, issue_id in ((one, "a"), (two, "b")):
        program = clone.lander(clone.work(issue_id, {issue_id: "1"}))
        program.idle(issue_id)
        assert program.end() == 0
    before = clones.tip()
    settings = one.settings("./check", remote="origin")
    done = Undo(settings, ("b",)).run()
    assert not done.moved_back and clones.tip() == one.tip() == done.tip != before
    assert one.files() == [".gitignore", "a", "check", "file"]
    clones.origin.rename(clones.origin.with_name("away"))
    with pytest.raises(CannotLand, match="origin cannot be reached"):
        Undo(settings, ("a",)).run()
    clones.origin.with_name("away").rename(clones.origin)
    clones.assert_sound()


def test_a_run_that_is_taken_back_is_that_of_this_clone(clones: Clones) -> None:
    one, two = clones.one, clones.two
    first = one.lander(one.work("a", {"a": "1"}))
    first.idle("a")
    other = two.lander(two.work("b", {"b": "1"}, run_id="run-of-two"))
    other.idle("b")
    assert first.end() == 0 and other.end() == 0
    done = Undo(one.settings("./check", remote="origin"), ("run-1",)).run()
    assert done.issue_ids == ("a",) and "b" in one.files()


def test_git_that_hangs_on_the_network_is_ended(
    clones: Clones, monkeypatch: pytest.MonkeyPatch
) -> None:
    from beads_workers.worktrees import remote

    monkeypatch.setattr(remote, "NETWORK_SECONDS", 0.5)
    git(clones.one.top, "config", "remote.origin.uploadpack", "sleep 77; true")
    began = time.monotonic()
    with pytest.raises(remote.RemoteTrouble, match="no answer in"):
        remote.remote_heads(str(clones.one.top), "origin", (f"refs/heads/{BRANCH}",))
    assert time.monotonic() - began < 10
    monkeypatch.setattr(remote, "NETWORK_SECONDS", 60.0)
    left = [f for f in Path("/proc").glob("[0-9]*/cmdline") if f.read_bytes() == b"sleep\x0077\0"]
    assert not left
