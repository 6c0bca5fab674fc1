"""Worktrees made ahead, with real git: what an attempt gets from one, and what a kill leaves."""

from __future__ import annotations

import fcntl
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from beads_workers.core.base.settings import WorktreeRules, Worktrees
from beads_workers.runtime.sessions import with_variable
from beads_workers.worktrees import reuse
from beads_workers.worktrees.freshness import must_set_up
from beads_workers.worktrees.making import CannotPrepare
from beads_workers.worktrees.pool import MODULE, NotAhead, make_free
from beads_workers.worktrees.records import AHEAD, WorktreeRecord
from tests.support import warm
from tests.support.fleet import until
from tests.support.repository import IDENTITY, commit, git
from tests.support.worktrees import Place, World, ruled, start_preparation

MARK = "TEST_PREPARES"
SETUP = "echo run >>setups.local; mkdir -p cache.local; echo warm >cache.local/file"


@pytest.fixture
def world(tmp_path: Path) -> World:
    world = World(tmp_path)
    world.settings = replace(
        world.settings,
        folder=str(tmp_path / "trees"),
        rules=replace(world.settings.rules, pool=2, setup=SETUP),
    )
    return world


def ahead(world: World, **settings: Any) -> WorktreeRecord:
    """Make one ahead."""
    return make_free(ruled(world.settings, **settings), world.records, world.run_id)


def free(world: World) -> list[WorktreeRecord]:
    """Those that the next attempts may take."""
    return [each for each in reuse.candidates(world.settings, world.records) if not each.issue_id]


def setups(place: Place) -> int:
    """How often the set-up hook has run in it."""
    return len((place.folder / "setups.local").read_text().splitlines())


def is_left(world: World) -> list[str]:
    """All that there is of worktrees, in files and in git."""
    world.swept()
    trees = Path(world.settings.folder)
    records = [p.name for p in world.records.folder.glob("*") if p.name != "pool.wake"]
    return [
        *(p.name for p in trees.glob("*")),
        *records,
        *git(world.top, "worktree", "list").splitlines()[1:],
        *world.branches(),
    ]


# --- what an attempt gets ---------------------------------------------------------------------


def test_an_attempt_takes_one_as_its_own(world: World) -> None:
    record = ahead(world)
    place = world.make("bw-1", 2)
    assert place.folder == Path(record.path), "set-up hooks write its path into what they make"
    assert (place.record.name, place.record.branch) == ("bw-1.2", "bw/bw-1/2")
    assert git(place.folder, "branch", "--show-current") == "bw/bw-1/2"
    assert git(place.folder, "status", "--porcelain") == ""
    assert place.environment["BW_BASE"] == git(world.top, "rev-parse", "main")
    assert setups(place) == 1 and (place.folder / "cache.local" / "file").exists()
    assert free(world) == []
    commit(place.folder, "work")
    world.end_run()
    assert list(world.kept().values()) == ["1 commit on no other branch"]


def test_where_there_is_none_an_attempt_makes_its_own(world: World) -> None:
    ahead(world)
    first, second = world.make("a", worker="W1"), world.make("b", worker="W2")
    assert first.folder.name.startswith("again-") and second.folder.name == "b.1"


def test_the_base_has_moved_meanwhile(world: World) -> None:
    commit(world.top, "old/module.py")
    ahead(world)
    git(world.top, "rm", "--quiet", "old/module.py")
    tip = commit(world.top, "new", "new\n")
    place = world.make("a")
    assert place.record.base == git(place.folder, "rev-parse", "HEAD") == tip
    assert (place.folder / "new").read_text() == "new\n" and not (place.folder / "old").exists()
    assert setups(place) == 1 and git(place.folder, "status", "--porcelain") == ""


def test_what_git_ignores_in_a_folder_that_is_no_more_goes(world: World) -> None:
    commit(world.top, "pkg/module.py")
    record = ahead(world, setup="touch pkg/stale.local")
    git(world.top, "rm", "--quiet", "pkg/module.py")
    git(world.top, "commit", "--quiet", "-m", "gone")
    place = world.make("a", setup="touch pkg/stale.local")
    assert str(place.folder) == record.path and not (place.folder / "pkg").exists()


def test_one_attempt_never_sees_what_another_has_left(world: World) -> None:
    for issue_id in ("a", "b"):
        ahead(world)
        place = world.make(issue_id)
        found = {path.name for path in place.folder.iterdir()}
        assert found == {".git", ".gitignore", "cache.local", "setups.local"}
        (place.folder / "untracked").write_text("x")
        (place.folder / "left.local").write_text("x")


@pytest.mark.parametrize(
    ("name", "setup", "again"),
    [
        ("package-lock.json", "npm ci", True),
        ("web/package.json", "npm ci", True),
        ("src/main.py", "npm ci", False),
        ("scripts/prepare.sh", "cd . && ./scripts/prepare.sh --all", True),
        ("scripts/lib/more.sh", "sh scripts", True),
        ("schema/1.sql", "migrate", True),
        ("README.md", "pip install -e .", False),
        ("package-lock.json", None, False),
    ],
)
def test_the_hook_runs_again_where_it_may_have_gone_by_what_has_changed(
    name: str, setup: str | None, again: bool
) -> None:
    settings = Worktrees(
        "/c", "", "/c/.git", "/f", "/s", "main", "main", rules=WorktreeRules(setup=setup)
    )
    settings = ruled(settings, setup_reads=("schema/*.sql",))
    assert (must_set_up(settings, [("M", name)]) == name) is again
    below = replace(settings, prefix="services/")
    assert (must_set_up(below, [("M", f"services/{name}")]) != "") is again


def test_a_changed_manifest_sets_up_again(world: World) -> None:
    ahead(world)
    commit(world.top, "package.json", "{}")
    place = world.make("a")
    assert place.folder.name.startswith("again-") and setups(place) == 1


def test_a_copied_file_that_changed_is_copied_anew_and_sets_up_again(world: World) -> None:
    (world.project / ".env").write_text("one")
    (world.project / "gone.local").write_text("x")
    copy = (".env", "*.local")
    ahead(world, copy=copy)
    (world.project / ".env").write_text("two")
    (world.project / "gone.local").unlink()
    place = world.make("a", copy=copy)
    assert place.folder.name.startswith("again-") and setups(place) == 1
    assert (place.folder / ".env").read_text() == "two"
    assert not (place.folder / "gone.local").exists()


def test_what_a_hook_did_to_a_copied_file_stays(world: World) -> None:
    (world.project / ".env").write_text("one\n")
    changed: dict[str, Any] = {"copy": (".env",), "setup": "echo two >>.env"}
    ahead(world, **changed)
    assert (world.make("a", **changed).folder / ".env").read_text() == "one\ntwo\n"


# --- what makes one of no use -----------------------------------------------------------------


def attributes(world: World, record: WorktreeRecord) -> None:
    """Trap 2: line ends would stay as they are."""
    commit(world.top, ".gitattributes", "* text eol=crlf\n")


def another(world: World, record: WorktreeRecord) -> None:
    """Another hook than the one that ran in it."""
    world.settings = ruled(world.settings, setup="touch other.local")


@pytest.mark.parametrize("spoil", [attributes, another])
def test_one_that_may_lie_is_not_taken_and_goes(world: World, spoil: Any) -> None:
    record = ahead(world)
    spoil(world, record)
    place = world.make("a")
    assert place.folder.name == "a.1" and git(place.folder, "status", "--porcelain") == ""
    world.end_run()
    world.clean()
    assert is_left(world) == []


def test_one_in_which_somebody_has_committed_is_not_taken_and_stays(world: World) -> None:
    record = ahead(world)
    git(Path(record.path), "commit", "--quiet", "--allow-empty", "-m", "theirs")
    assert world.make("a").folder.name == "a.1"
    world.end_run()
    world.clean()
    assert [p.name for p in Path(world.settings.folder).iterdir()] == [record.name]


def test_a_folder_that_leads_elsewhere_by_now_is_left_alone(world: World) -> None:
    world.settings = replace(world.settings, folder=str(world.state / "trees"))
    record = ahead(world)
    (Path(record.path) / ".git").unlink()
    (world.top / "loose").write_text("of the checkout around it")
    assert world.make("a").folder.name == "a.1"
    assert (world.top / "loose").exists() and Path(record.path).exists()


def test_a_sparse_checkout_of_the_user_is_not_taken_over(world: World) -> None:
    """Trap 3."""
    commit(world.top, "in/file")
    commit(world.top, "out/file")
    git(world.top, "sparse-checkout", "set", "in")
    ahead(world)
    for place in (world.make("a", worker="W1"), world.make("b", worker="W2")):
        assert (place.folder / "out" / "file").exists()
    assert not (world.top / "out").exists(), "the user's own stays as it is"


@pytest.mark.parametrize(
    "setup", ["touch shown", "echo x >>.gitignore", "git commit --allow-empty -m x"]
)
def test_a_hook_whose_work_would_be_lost_does_not_run_ahead(
    world: World, setup: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in IDENTITY.items():
        monkeypatch.setenv(name, text)
    with pytest.raises(NotAhead):
        ahead(world, setup=setup)
    assert is_left(world) == []


def test_a_hook_that_fails_or_a_full_disk_leaves_nothing(world: World) -> None:
    with pytest.raises(CannotPrepare, match="setup failed: exit status 3"):
        ahead(world, setup="exit 3")
    with pytest.raises(CannotPrepare, match="the floor is"):
        ahead(world, disk_floor_bytes=1 << 62)
    assert is_left(world) == []


# --- kills, and others at the same time -------------------------------------------------------


def orders(world: World) -> bytes:
    """What the program that fills the pool is told."""
    refill = {"worktrees": asdict(world.settings), "run_id": world.run_id}
    return json.dumps(refill).encode() + b"\n"


class Filling:
    """The program that fills the pool, as a fleet starts it."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", MODULE],
            stdin=subprocess.PIPE,
            start_new_session=True,
            env=os.environ | IDENTITY,
        )
        assert self.process.stdin is not None
        self.process.stdin.write(orders(world))
        self.process.stdin.flush()
        until(lambda: (world.records.folder / "pool.wake").exists())

    def waits(self, many: int) -> None:
        """Until so many may be taken."""
        until(lambda: len(free(self.world)) == many)

    def end(self, number: int = 0) -> None:
        """Kill it, or let it end by itself."""
        if number:
            self.process.send_signal(number)
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(30)


@pytest.fixture
def filling(world: World) -> Iterator[Filling]:
    found = Filling(world)
    yield found
    if found.process.returncode is None:
        found.end(signal.SIGKILL)


def test_after_each_attempt_that_has_begun_what_is_missing_is_made(filling: Filling) -> None:
    world = filling.world
    assert world.make("a").folder.name == "a.1"
    filling.waits(2)
    first, second = world.make("b", worker="W2"), world.make("c", worker="W3")
    assert {p.folder.name[:6] for p in (first, second)} == {"again-"}
    filling.waits(2)
    assert all(reason == ("in use by a running fleet",) for reason in reasons(world))
    filling.end()
    assert filling.process.returncode == 0
    world.end_run()
    world.clean()
    assert is_left(world) == []


def reasons(world: World) -> list[tuple[str, ...]]:
    """Why clean keeps those that are made ahead."""
    found = world.clean()
    return [r.kept_because for r in found if r.record.name.startswith("again-")]


def test_what_an_earlier_run_left_is_of_use(world: World) -> None:
    record = ahead(world)
    world.end_run()
    world.run_id, _ = world.runs.create_run()
    filling = Filling(world)
    assert world.make("a").folder == Path(record.path)
    filling.end()


def test_those_that_need_another_set_up_are_made_anew_before_they_are_taken(
    filling: Filling,
) -> None:
    world = filling.world
    world.make("a")
    filling.waits(2)
    old = {record.name for record in free(world)}
    commit(world.top, "package.json", "{}")
    world.make("b", worker="W2")
    until(lambda: not old & {record.name for record in free(world)})
    filling.waits(2)
    assert setups(world.make("c", worker="W3")) == 1


def test_a_kill_in_the_middle_of_the_set_up_leaves_nothing_that_clean_does_not_remove(
    tmp_path: Path,
) -> None:
    world = World(tmp_path)
    setup = f"touch {tmp_path}/began; setsid sleep 1000 & sleep 1000"
    world.settings = replace(
        world.settings,
        folder=str(tmp_path / "trees"),
        rules=replace(world.settings.rules, pool=1, setup=f'[ -z "$BW_AHEAD" ] || {{ {setup}; }}'),
    )
    filling = Filling(world)
    world.make("a")
    until(lambda: (tmp_path / "began").exists())
    (record,) = (each for each in world.records.all() if not each.issue_id)
    filling.end(signal.SIGKILL)
    until(lambda: not world.records.is_locked(record))
    world.end_run()
    world.clean()
    assert is_left(world) == []
    assert with_variable(f"{AHEAD}={record.path}") == []


def test_an_attempt_that_began_before_it_listened_is_seen(world: World) -> None:
    world.make("a")
    filling = Filling(world)
    filling.waits(2)
    filling.end()


def test_told_to_end_it_takes_back_what_it_has_half_made(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.settings = replace(
        world.settings,
        folder=str(tmp_path / "trees"),
        rules=replace(
            world.settings.rules,
            pool=1,
            setup=f'[ -z "$BW_AHEAD" ] || {{ touch {tmp_path}/began; sleep 1000; }}',
        ),
    )
    filling = Filling(world)
    world.make("a")
    until(lambda: (tmp_path / "began").exists())
    (record,) = (each for each in world.records.all() if not each.issue_id)
    filling.end()
    assert filling.process.returncode == 0 and free(world) == []
    assert not Path(record.path).exists()


def preparing(world: World, issue_id: str, worker: str) -> warm.Process:
    """The PREPARE step."""
    asked = json.dumps(asdict(world.asked(issue_id, worker=worker)))
    with open(os.devnull, "w") as nowhere:
        return start_preparation(asked, nowhere.fileno(), **{MARK: str(world.top)})


@pytest.mark.share(3)
@pytest.mark.parametrize("seed", range(8))
def test_whoever_is_killed_while_it_takes_one_leaves_nothing_that_clean_does_not_remove(
    world: World, seed: int
) -> None:
    ahead(world)
    commit(world.top, "package.json", "{}")
    process = preparing(world, "a", "W1")
    time.sleep(random.Random(seed).uniform(0.05, 0.4))
    process.kill()
    process.wait()
    # Its git lives on, and may still make the branch.
    until(lambda: with_variable(f"{MARK}={world.top}") == [])
    world.end_run()
    world.clean()
    assert is_left(world) == []


def test_killed_while_it_writes_a_record_it_leaves_nothing(world: World) -> None:
    fresh = world.records.folder / "a.1.new"
    world.records.folder.mkdir()
    fresh.write_text('{"name"')
    held = os.open(fresh, os.O_RDWR)
    fcntl.flock(held, fcntl.LOCK_EX)
    world.clean()
    assert fresh.exists(), "it is written just now"
    os.close(held)
    world.clean()
    assert is_left(world) == []
    fresh.write_text("longer than any record " * 100)
    assert world.make("a").record.name == "a.1"


def test_killed_between_its_two_records_one_worktree_is_removed_once(world: World) -> None:
    record = ahead(world)
    taken = reuse.take(world.settings, world.records, record.base, world.run_id)
    assert taken is not None
    mine = replace(record, name="a.1", issue_id="a", attempt=1, branch="bw/a/1")
    os.close(world.records.begin(mine))
    os.close(taken.lock)
    assert [r.name for r in world.records.all()] == ["a.1"]
    world.end_run()
    world.clean()
    assert is_left(world) == []


def test_clean_that_has_looked_at_one_leaves_it_to_whoever_took_it_since(world: World) -> None:
    record = ahead(world)
    place = world.make("a")
    assert place.folder == Path(record.path)
    assert world.records.lock(record) is None, "it would remove the worktree of an attempt"


def test_eight_at_once_all_get_one_each(world: World) -> None:
    made = [ahead(world) for _ in range(4)]
    processes = [preparing(world, f"i{n}", f"W{n}") for n in range(8)]
    assert [process.wait() for process in processes] == [0] * 8
    folders = [record.path for record in world.records.all()]
    assert len(set(folders)) == 8 and {record.path for record in made} <= set(folders)
