"""Gates in real worktrees: the exact tree, and what makes a warm worktree lie.

Traps 2, 3, 8 and 9 of git.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from beads_workers.core.records.landing import LanderSettings
from beads_workers.landing.gate import GateOrder, GateProcess, GateResult, Verdicts, start_gate
from beads_workers.landing.queue import GateVerdict
from beads_workers.landing.repository import landing_folder
from beads_workers.runtime.sessions import with_variable
from tests.landing.world import LandingWorld
from tests.support.repository import git
from tests.support.shortage import EATER, memory_group, small_disk
from tests.support.worktrees import ruled


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LandingWorld:
    return LandingWorld(tmp_path, monkeypatch)


class Lane:
    """Gates one commit after the other, in one lane."""

    def __init__(self, world: LandingWorld, settings: LanderSettings, lane: int = 0) -> None:
        self.world, self.settings, self.lane = world, settings, lane
        self.folder = landing_folder(settings.worktrees)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.verdicts = Verdicts(settings, self.folder)
        self.path = self.folder / f"bw-gate-{lane}"

    def start(self, commit: str = "", *, fresh: bool = False) -> GateProcess:
        """Begin one."""
        commit = commit or self.world.start
        tree = git(self.world.top, "rev-parse", f"{commit}^{{tree}}")
        self.verdicts.look_again()
        order = GateOrder(self.lane, commit, tree, self.world.start, fresh)
        return start_gate(self.settings, self.folder, order, self.verdicts)

    def gate(self, commit: str = "", *, fresh: bool = False) -> GateResult:
        """Run one to its end."""
        gate = self.start(commit, fresh=fresh)
        select.select([gate.pidfd], [], [], 60)
        return gate.result()


def lane(world: LandingWorld, verify: str, **landing: object) -> Lane:
    """For this command."""
    return Lane(world, world.settings(verify, **landing))


def test_the_command_sees_the_exact_tree_and_where_it_is(world: LandingWorld) -> None:
    add = world.work("a", {"a": "1"})
    (world.top / "junk").write_text("only in the checkout")
    seen = "env | grep ^BW_ | grep -v ^BW_SLOTS_ | sort"
    verify = f'ls -A >"$OUT"; {seen} >>"$OUT"; git rev-parse HEAD >>"$OUT"'
    os.environ["OUT"] = str(world.folder / "out")
    place = lane(world, verify)
    assert place.gate(add.commit).verdict is GateVerdict.GREEN
    assert (world.folder / "out").read_text().splitlines() == [
        *(".git", ".gitignore", "a"),
        f"BW_BASE={world.start}",
        "BW_BRANCH=bw-landing/main",
        f"BW_CHECKOUT={world.top}",
        f"BW_GATE={place.path}",
        "BW_SLOT=0",
        f"BW_WORKTREE={place.path}",
        add.commit,
    ]


@pytest.mark.parametrize(
    ("script", "verdict", "why"),
    [
        ("exit 0", GateVerdict.GREEN, ""),
        ("echo no; exit 3", GateVerdict.RED, "verify: exit status 3"),
        ("exit 75", GateVerdict.NONE, "verify: exit status 75"),
        ("./no-such-command", GateVerdict.NONE, "verify: exit status 127"),
        ("./.gitignore", GateVerdict.NONE, "verify: exit status 126"),
        ("exit 130", GateVerdict.NONE, "verify: exit status 130"),
        ("kill -9 $$", GateVerdict.NONE, "verify: ended by signal 9"),
    ],
)
def test_what_an_exit_status_says(
    world: LandingWorld, script: str, verdict: GateVerdict, why: str
) -> None:
    """Trap 9."""
    result = lane(world, script).gate()
    assert (result.verdict, result.why) == (verdict, why)
    if verdict is GateVerdict.RED:
        assert result.text == "$ echo no; exit 3\nno"


def test_a_python_environment_of_the_checkout_does_not_reach_a_gate(
    world: LandingWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``poetry install`` would put the code of the gate there, in place of the checkout's."""
    monkeypatch.setenv("VIRTUAL_ENV", str(world.folder))
    unset = 'test -z "${VIRTUAL_ENV+x}"'
    settings = world.settings(unset)
    place = Lane(world, replace(settings, worktrees=ruled(settings.worktrees, setup=unset)))
    assert place.gate().verdict is GateVerdict.GREEN


def test_a_gate_that_takes_too_long_has_no_verdict_and_is_gone(world: LandingWorld) -> None:
    place = lane(world, "trap '' TERM; sleep 100", gate_timeout_seconds=0.3)
    place.settings = replace(place.settings, term_grace_seconds=0.2)
    result = place.gate()
    assert result.verdict is GateVerdict.NONE and "not ended after 0.3 seconds" in result.why
    assert with_variable(f"BW_GATE={place.path}") == []


def test_a_red_while_the_kernel_ends_something_for_want_of_memory_is_no_verdict(
    world: LandingWorld,
) -> None:
    """Also of a child: whoever waited for it says 2, as make does."""
    with memory_group() as members:
        script = f"echo $$ >{members}; '{sys.executable}' -c '{EATER}' || exit 2"
        result = lane(world, script).gate()
        why = "verify: exit status 2; the system ended 1 process for want of memory meanwhile"
        assert (result.verdict, result.why) == (GateVerdict.NONE, why)


OWN_GROUP = """
import os, subprocess, sys
from pathlib import Path
from beads_workers.landing import shortage
from beads_workers.runtime.kernel import system
Path(sys.argv[1]).write_text(str(os.getpid()))
found = system.memory_groups()
assert Path(sys.argv[1]).parent in found, found
system.MACHINES_KILLS = os.devnull  # In a container it is another one's.
before = shortage.Shortage()
assert before.why() == ""
subprocess.run([sys.executable, "-c", sys.argv[2]])
print(before.why())
"""


def test_what_the_kernel_ends_in_our_own_group_is_counted_there() -> None:
    with memory_group() as members:
        argv = [sys.executable, "-c", OWN_GROUP, str(members), EATER]
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.stdout == "the system ended 1 process for want of memory meanwhile\n", done.stderr


def test_a_red_on_a_full_disk_is_no_verdict(world: LandingWorld) -> None:
    result = lane(world, "head -c 9 /dev/zero >/dev/full || exit 1").gate()
    assert (result.verdict, result.why) == (
        *(GateVerdict.NONE, "verify: exit status 1; the disk is full"),
    )


def test_a_disk_that_was_full_meanwhile_is_noticed(
    world: LandingWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    with small_disk(world.folder / "tmp") as tmp:
        monkeypatch.setattr(tempfile, "tempdir", str(tmp))
        script = f"head -c 3m /dev/zero >{tmp}/f 2>&-; sleep 0.7; rm {tmp}/f; exit 1"
        result = lane(world, script).gate()
    assert (result.verdict, result.why) == (
        *(GateVerdict.NONE, f"verify: exit status 1; the disk is full at {tmp}"),
    )


def test_verdicts_are_kept_for_the_same_tree_command_and_surroundings(world: LandingWorld) -> None:
    (world.top / ".env").write_text("1")
    settings = world.settings("test -e yes", tools=("cat ../tool",))
    settings = replace(settings, worktrees=ruled(settings.worktrees, copy=(".env",)))
    (world.folder / "tool").write_text("1.0")
    place = Lane(world, settings)
    tree = git(world.top, "rev-parse", f"{world.start}^{{tree}}")
    assert place.verdicts.find(tree) is None if place.verdicts.look_again() is None else False
    place.gate()
    found = place.verdicts.find(tree)
    assert found is not None and found.verdict is GateVerdict.RED

    def known(settings: LanderSettings) -> bool:
        verdicts = Verdicts(settings, place.folder)
        verdicts.look_again()
        return verdicts.find(tree) is not None

    assert known(settings)
    assert not known(replace(settings, verify="test -e no"))
    assert not known(replace(settings, worktrees=ruled(settings.worktrees, setup="true")))
    (world.top / ".env").write_text("2")
    assert not known(settings)
    (world.top / ".env").write_text("1")
    (world.folder / "tool").write_text("2.0")
    assert not known(settings)


def test_nothing_is_kept_of_a_gate_that_could_not_tell(world: LandingWorld) -> None:
    place = lane(world, "exit 75")
    place.gate()
    assert list((place.folder / "verdicts").iterdir()) == []


# --- warm worktrees -------------------------------------------------------------------------------


def test_what_git_ignores_stays_and_what_it_does_not_goes(world: LandingWorld) -> None:
    world.main({".gitignore": "cache/\n"})
    place = lane(world, "ls -A; mkdir -p cache; touch cache/kept untracked; echo x >.gitignore")
    place.gate()
    assert place.gate().verdict is GateVerdict.GREEN
    log = (place.folder / "gate-0.log").read_text().split()
    assert "cache" in log and "untracked" not in log
    place.gate(fresh=True)
    assert "cache" not in (place.folder / "gate-0.log").read_text().split()


def test_a_package_that_was_deleted_is_not_imported_from_its_cache(world: LandingWorld) -> None:
    world.main({".gitignore": "__pycache__/\n", "pkg/sub/__init__.py": "", "keep": ""})
    verify = "env -u PYTHONDONTWRITEBYTECODE -u PYTHONPYCACHEPREFIX python3 -c 'import pkg.sub'"
    place = lane(world, verify)
    assert place.gate().verdict is GateVerdict.GREEN
    assert (place.path / "pkg/sub/__pycache__").is_dir()
    add = world.work("gone", {"pkg/sub/__init__.py": None})
    assert place.gate(add.commit).verdict is GateVerdict.RED
    assert not (place.path / "pkg").exists()


def test_line_ends_follow_a_change_of_the_attributes(world: LandingWorld) -> None:
    world.main({"text": "a\nb\n"})
    place = lane(world, "! grep -q \"$(printf '\\r')\" text")
    assert place.gate().verdict is GateVerdict.GREEN
    add = world.work("crlf", {".gitattributes": "text text eol=crlf\n"})
    assert place.gate(add.commit).verdict is GateVerdict.RED
    assert place.gate().verdict is GateVerdict.GREEN


@pytest.mark.parametrize("flag", ["--skip-worktree", "--assume-unchanged"])
def test_a_bit_that_hides_a_file_from_git_does_not_outlive_its_gate(
    world: LandingWorld, flag: str
) -> None:
    world.main({"file": "right\n"})
    hides = f"git update-index {flag} file; echo wrong >file"
    place = lane(world, f'grep -q right file && {{ test -n "$BW_KEEP" || {{ {hides}; }}; }}')
    assert place.gate().verdict is GateVerdict.GREEN
    assert place.gate(world.work("b", {"b": "1"}).commit).verdict is GateVerdict.GREEN


def test_a_child_that_was_left_behind_is_gone_before_the_next_gate(world: LandingWorld) -> None:
    verify = "test ! -e late || exit 1; setsid sh -c 'sleep 0.4; touch late; sleep 60' & sleep 0.1"
    place = lane(world, verify)
    assert place.gate().verdict is GateVerdict.GREEN
    time.sleep(0.6)
    assert place.gate().verdict is GateVerdict.GREEN
    assert not (place.path / "late").exists()
    assert with_variable(f"BW_GATE={place.path}") == []


def test_locks_and_branches_that_a_gate_left_are_in_nobodys_way(world: LandingWorld) -> None:
    git(world.top, "branch", "other", world.start)
    leaves = 'touch "$(git rev-parse --git-dir)/index.lock"'
    place = lane(world, f"git checkout -q other; git commit -q --allow-empty -m x; {leaves}")
    assert place.gate().verdict is GateVerdict.GREEN
    moved = git(world.top, "rev-parse", "other")
    add = world.work("a", {"a": "1"})
    assert place.gate(add.commit).verdict is GateVerdict.GREEN
    assert git(world.top, "rev-parse", "other~1") == moved, "by its own commit, and not by ours"


@pytest.fixture
def sparse(world: LandingWorld) -> LandingWorld:
    """Its checkout has one of three folders."""
    world.main({"in/a": "1", "out/b": "1", "far/c": "1"})
    git(world.top, "sparse-checkout", "set", "in")
    return world


def test_all_files_are_there_unless_the_cone_of_the_user_is_taken_over(
    sparse: LandingWorld,
) -> None:
    """Trap 3."""
    assert lane(sparse, "test -e in/a && test -e out/b").gate().verdict is GateVerdict.GREEN
    assert not (sparse.top / "out").exists()


def test_a_sparse_gate_has_the_folders_that_its_train_changes(sparse: LandingWorld) -> None:
    settings = sparse.settings(f"echo * >>'{sparse.folder}/seen'; grep -s x out/b; true")
    worktrees = ruled(replace(settings.worktrees, cone=("in",)), setup="touch made.local")
    place = Lane(sparse, replace(settings, worktrees=worktrees))
    outside = sparse.work("a", {"out/b": "changed"})
    inside = sparse.work("b", {"in/a": "changed"})
    ran = [place.gate(), place.gate(outside.commit), place.gate(inside.commit), place.gate()]
    assert [each.verdict for each in ran] == [GateVerdict.GREEN] * len(ran)
    assert [each.set_up for each in ran] == [True, False, False, False], "what it made is kept"
    seen = (sparse.folder / "seen").read_text().splitlines()
    assert seen == ["in made.local", "in made.local out", *["in made.local"] * 2]
    git(place.path, "update-index", "--skip-worktree", "in/a")
    (place.path / "in/a").unlink()
    assert place.gate(outside.commit).set_up, "something is hidden from git: all is made anew"
    assert (place.path / "in/a").read_text() == "1"


def test_copied_files_are_as_they_are_now_and_the_set_up_hook_runs(world: LandingWorld) -> None:
    settings = world.settings("grep -q right .env && test -e made.local")
    worktrees = ruled(settings.worktrees, copy=(".env",), setup="touch made.local")
    place = Lane(world, replace(settings, worktrees=worktrees))
    (world.top / ".env").write_text("wrong")
    assert place.gate().verdict is GateVerdict.RED
    (world.top / ".env").write_text("right")
    assert place.gate().verdict is GateVerdict.GREEN
    failing = ruled(worktrees, setup="echo broken; exit 1")
    result = Lane(world, replace(settings, worktrees=failing)).gate()
    assert (result.verdict, result.why) == (GateVerdict.NONE, "setup failed: exit status 1: broken")
    assert "broken" in result.text


class SetUps:
    """Gates with a set-up that notes when it runs; verify is what ``verify`` says in the tree."""

    def __init__(self, world: LandingWorld, setup: str) -> None:
        self.world, self.runs = world, world.folder / "set-ups"
        world.main({"src/a": "1", "src/b": "1", "verify": "true"})
        settings = world.settings("sh ./verify")
        setup = f"{setup}; echo x >>{self.runs}"
        worktrees = ruled(settings.worktrees, setup=setup)
        self.lane = Lane(world, replace(settings, worktrees=worktrees))

    def gate(self, files: Mapping[str, str | bytes | None]) -> tuple[str, int]:
        """What the gate says of the tip with these changed, and how often the set-up ran for it."""
        before = self._many()
        commit = self.world.work(f"w{before}", files).commit
        verdict = self.lane.gate(commit).verdict.value
        return verdict, self._many() - before

    def _many(self) -> int:
        return len(self.runs.read_text().splitlines()) if self.runs.exists() else 0


def test_a_set_up_is_kept_until_what_it_read_has_changed(world: LandingWorld) -> None:
    """Also what git sees of it, and whatever its line does not name. A stale build is no tree."""
    tells = "cat $(printf s)rc/a >built; echo 1 >made"
    place = SetUps(world, f"sh -c '{tells}'")
    check = {"verify": "cmp src/a built && test -e made"}
    assert place.gate(check) == ("green", 1)
    assert place.gate({**check, "src/b": "2"}) == ("green", 0)
    assert place.gate({**check, "src/new/c": "3"}) == ("green", 0)
    assert place.gate({**check, "src/a": "2"}) == ("green", 1)
    assert place.gate({**check, "src/a": "2"}) == ("green", 0)
    assert place.gate({**check, "package.json": "{}"}) == ("green", 1), "it may look for that"


def test_a_set_up_that_lists_a_folder_runs_again_when_that_looks_different(
    world: LandingWorld,
) -> None:
    place = SetUps(world, "ls $(printf s)rc >built")
    check = {"verify": "ls src | cmp - built"}
    assert place.gate(check) == ("green", 1)
    assert place.gate({**check, "src/a": "2", "top": "1"}) == ("green", 0)
    assert place.gate({**check, "src/new/c": "1"}) == ("green", 1)
    assert place.gate({**check, "src/new/c": "1", "src/new/d": "1"}) == ("green", 0)
    assert place.gate(check) == ("green", 1)


def test_a_set_up_that_copies_from_the_checkout_runs_again_when_that_has_changed(
    world: LandingWorld,
) -> None:
    (world.top / "seed").write_text("1")
    place = SetUps(world, 'cp "$BW_CHECKOUT/seed" made')
    check = {"verify": f"cmp {world.top}/seed made"}
    assert [place.gate(check), place.gate(check)] == [("green", 1), ("green", 0)]
    (world.top / "seed").write_text("22")
    assert place.gate(check) == ("green", 1)


def test_a_set_up_runs_again_when_a_gate_has_changed_what_it_made_or_was_red(
    world: LandingWorld,
) -> None:
    world.main({".gitignore": "made\n"})
    place = SetUps(world, "echo 1 >made; mkdir -p build; echo 1 >build/x")
    assert place.gate({"verify": "echo 2 >>made; echo 1 >made.too"}) == ("green", 1)
    assert place.gate({"verify": "test $(cat made) = 1 && test ! -e made.too"}) == ("green", 1)
    assert place.gate({"verify": "rm build/x"}) == ("green", 0)
    assert place.gate({"verify": "test -e build/x"}) == ("green", 1)
    assert place.gate({"verify": "exit 1"}) == ("red", 0)
    assert place.gate({"verify": "true"}) == ("green", 1), "it may have spoiled more than is seen"


def test_below_the_disk_floor_there_is_no_verdict(world: LandingWorld) -> None:
    settings = world.settings("true")
    worktrees = ruled(settings.worktrees, disk_floor_bytes=1 << 62)
    result = Lane(world, replace(settings, worktrees=worktrees)).gate()
    assert result.verdict is GateVerdict.NONE and "the floor is" in result.why


def test_filters_of_the_checkout_run_in_the_gate(world: LandingWorld) -> None:
    """As with LFS: the branch holds pointers, the gate sees contents."""
    git(world.top, "config", "filter.fake.smudge", "sed s/pointer/content/")
    git(world.top, "config", "filter.fake.clean", "sed s/content/pointer/")
    world.main({".gitattributes": "*.bin filter=fake\n", "a.bin": "pointer\n"})
    assert lane(world, "grep -q content a.bin").gate().verdict is GateVerdict.GREEN


# --- lanes, crashes -------------------------------------------------------------------------------


def test_two_lanes_run_side_by_side_in_worktrees_of_their_own(world: LandingWorld) -> None:
    settings = world.settings(f"touch $BW_GATE.here; sleep 0.5; ls {world.folder}/*/*.here | wc -l")
    lanes = [Lane(world, settings, number) for number in (0, 1)]
    for each in lanes:
        each.gate()
    began = time.monotonic()
    gates = [each.start() for each in lanes]
    for gate in gates:
        select.select([gate.pidfd], [], [], 60)
        assert gate.result().verdict is GateVerdict.GREEN
    assert time.monotonic() - began < 1.4


def test_somebody_who_prunes_meanwhile_is_in_nobodys_way(world: LandingWorld) -> None:
    """Trap 7."""
    prunes = ["sh", "-c", "while git worktree prune; do :; done"]
    with subprocess.Popen(prunes, cwd=world.top, stderr=subprocess.DEVNULL) as pruning:
        try:
            for number in range(12):
                result = Lane(world, world.settings("true"), number).gate()
                assert result.verdict is GateVerdict.GREEN, result
        finally:
            pruning.kill()


def test_a_gate_that_is_told_to_end_leaves_nothing(world: LandingWorld) -> None:
    place = lane(world, "sleep 100 & setsid sleep 100 & wait")
    gate = place.start()
    while len(with_variable(f"BW_GATE={place.path}")) < 3:
        time.sleep(0.02)
    gate.end()
    select.select([gate.pidfd], [], [], 10)
    assert gate.result().verdict is GateVerdict.NONE
    assert with_variable(f"BW_GATE={place.path}") == []


def test_a_gate_that_was_killed_leaks_no_worktree_and_the_next_one_is_right(
    world: LandingWorld,
) -> None:
    """Trap 8."""
    place = lane(
        world, "test ! -e left || exit 1; touch left; echo changed >>.gitignore; sleep 100"
    )
    gate = place.start()
    while not (place.path / "left").exists():
        time.sleep(0.02)
    gate.end(signal.SIGKILL)
    assert gate.result().verdict is GateVerdict.NONE
    assert with_variable(f"BW_GATE={place.path}"), "its command lives on"
    after = Lane(world, world.settings("test ! -e left && ! grep changed .gitignore"))
    assert after.gate().verdict is GateVerdict.GREEN
    assert with_variable(f"BW_GATE={place.path}") == []
    listed = subprocess.run(
        ["git", "worktree", "list"], cwd=world.top, capture_output=True, text=True, check=True
    )
    assert listed.stdout.count("bw-gate-0") == 1
