"""``land``, ``branches`` and ``undo``, on a real repository, tracker and journal."""

from __future__ import annotations

import json
import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

from beads_workers.checks.landing import clones_land_together
from beads_workers.cli import clean, land
from beads_workers.cli.config import resolve
from beads_workers.cli.preparation import check_gate, prepare
from beads_workers.cli.throwaway import make_tracker, statuses
from beads_workers.core.records import journal as rec
from beads_workers.core.records.journal import Entry, encode
from beads_workers.core.records.receipts import Receipt
from beads_workers.errors import CommandError
from beads_workers.exits import EXIT_RUNNING, EXIT_UNFINISHED, EXIT_UNKNOWN, EXIT_USAGE
from beads_workers.landing.gate import LOCK
from beads_workers.landing.undo import Undo
from beads_workers.options import Options, options_of
from beads_workers.runtime.locks import try_lock
from tests.support.commands import Commands
from tests.support.fleet import unproved
from tests.support.repository import IDENTITY, git
from tests.support.worktrees import World

pytestmark = pytest.mark.daily(3)

BRANCH = "bw-landing/main"
ROOT = Path(__file__).parent.parent.parent


class Left(World):
    """What a run left: branches, their journal, and issues that are blocked until they land."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.now = 1_700_000_000.0
        self.issues: list[dict[str, Any]] = []

    def branch(
        self,
        issue_id: str,
        files: dict[str, str],
        outcome: str = "success",
        receipt: Receipt | None = None,
    ) -> Path:
        """One attempt at an issue; its worktree."""
        place = self.make(issue_id, worker=f"W-{issue_id}")
        for name, text in files.items():
            (place.folder / name).write_text(text)
        if files:
            git(place.folder, "add", "--all")
            git(place.folder, "commit", "-qm", f"Work on {issue_id}")
        self.now += 1
        journal = self.runs.run(self.run_id) / "journal.jsonl"
        of = (issue_id, f"W-{issue_id}", 1, f"r-{issue_id}", outcome, "finish")
        end = rec.Finished(*of, receipt=receipt)
        with journal.open("ab") as file:
            for record in (rec.Claimed(issue_id, f"The title of {issue_id}"), end):
                file.write(encode(Entry(record, self.now, 1.0)))
        row = {"id": issue_id, "title": issue_id, "status": "blocked", "issue_type": "task"}
        date = "2026-01-02T03:04:05Z"
        self.issues.append({**row, "priority": 2, "created_at": date, "updated_at": date})
        return Path(place.folder)

    def uncommitted(self, issue_id: str, name: str, *ended: Any) -> Path:
        """An attempt that left a file in its worktree, which is given."""
        folder = self.branch(issue_id, {}, *ended)
        (folder / name).write_text("left")
        return folder

    def ended(self) -> None:
        """The run is over, and the tracker has the issues."""
        self.end_run()
        rows = [json.dumps(row).encode() for row in self.issues]
        make_tracker(self.state / "tracker.db", "app", rows)

    def status(self) -> dict[str, str]:
        """Of each issue in the tracker."""
        return {str(key): status for key, status in statuses(self.state / "tracker.db").items()}


@pytest.fixture
def left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Left:
    for name in [name for name in os.environ if name.startswith(("GIT_", "BW_", "BEADS_"))]:
        monkeypatch.delenv(name)
    for name, text in IDENTITY.items():
        monkeypatch.setenv(name, text)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    world = Left(tmp_path)
    monkeypatch.chdir(world.project)
    return world


class Unproved(Commands):
    """What verify tests is seen in ``tests.landing.test_sees``."""

    def asked(self, *arguments: str, given: str | bytes = "") -> Result:
        return super().asked(*unproved(*arguments), given=given)


commands = Unproved(land)
cleaning = Commands(clean)


def files(world: Left) -> set[str]:
    """What has landed."""
    return set(git(world.top, "ls-tree", "--name-only", BRANCH).splitlines())


def test_what_earlier_runs_left_lands_and_its_issues_are_closed(left: Left) -> None:
    left.branch("app-1", {"one": "1"})
    left.branch("app-2", {"two": "2"})
    theirs = {"three": "3", "beads-workers.toml": "workers = 1\n"}
    left.branch("app-3", theirs, outcome="error")
    left.ended()
    shown = json.loads(commands.told("branches", "--json"))["branches"]
    assert [(row["issue_id"], row["outcome"], row["merges"], row["commits"]) for row in shown] == [
        ("app-1", "success", True, 1),
        ("app-2", "success", True, 1),
        ("app-3", "error", True, 1),
    ]
    assert [row["obeyed"] for row in shown] == [[], [], ["beads-workers.toml"]]
    obeyed = "changes what is run by whoever merges it: beads-workers.toml\n"
    assert commands.told("branches").endswith(obeyed)
    dry = commands.told("land", "--dry-run", "--verify", "true")
    assert "app-1" in dry and "app-3" not in dry
    assert not git(left.top, "for-each-ref", f"refs/heads/{BRANCH}")
    said = commands.told("land", "--verify", "test -e one || test ! -e two")
    assert "app-1 landed as" in said and "app-2 landed as" in said
    assert files(left) == {".gitignore", "one", "two"}
    assert left.status() == {"app-1": "closed", "app-2": "closed", "app-3": "blocked"}
    assert "The title of app-2" in git(left.top, "log", "-1", "--format=%s", BRANCH)
    rows = json.loads(commands.told("branches", "--json"))["branches"]
    assert [bool(row["landed"]) for row in rows] == [True, True, False]
    commands.told("land", "app-3", "--verify", "true")
    assert "three" in files(left)


def test_what_commands_left_uncommitted_is_committed_on_their_branches_and_lands(
    left: Left,
) -> None:
    """As after ``--no-land``; but for those of attempts that failed, unless they are named, and of
    agents, whose attempts say what is theirs."""
    left.uncommitted("app-1", "one")
    left.uncommitted("app-2", "two", "error")
    left.branch("app-3", {"three": "3"}, receipt=Receipt(head="a" * 40))
    coverage = left.uncommitted("app-4", ".coverage", "success", Receipt(head="a" * 40))
    left.ended()
    dry = commands.told("land", "--dry-run", "--verify", "true")
    assert "app-1: 1 file to be committed on bw/app-1/1" in dry and "app-4" not in dry
    said = commands.told("land", "--verify", "true")
    assert "app-1: committed 1 file that its command had left" in said
    assert files(left) == {".gitignore", "one", "three"} and (coverage / ".coverage").exists()
    commands.told("land", "app-2", "--verify", "true")
    assert "two" in files(left)


def test_what_does_not_land_is_said_and_is_the_exit_status(left: Left) -> None:
    left.branch("app-1", {"same": "1"})
    left.branch("app-2", {"same": "2"})
    left.ended()
    result = commands.asked("land", "--verify", "true")
    assert isinstance(result.exception, CommandError)
    assert result.exception.exit_code == EXIT_UNFINISHED
    assert (
        "app-2 did not land: its branch conflicts with what has landed (landed by app-1): same"
        in (result.stdout)
    )
    assert left.status() == {"app-1": "closed", "app-2": "blocked"}


def test_an_issue_without_a_branch_and_a_running_fleet_are_refused(left: Left) -> None:
    left.branch("app-1", {"one": "1"})
    left.ended()
    error = commands.asked("land", "app-9").exception
    assert isinstance(error, CommandError) and error.exit_code == EXIT_UNKNOWN
    lock = left.runs.lock()
    try:
        for command in (("land",), ("undo", "app-1")):
            error = commands.asked(*command).exception
            assert isinstance(error, CommandError) and error.exit_code == EXIT_RUNNING
    finally:
        os.close(lock)


def with_remote(options: Options) -> Options:
    return replace(options, landing=replace(options.landing, remote="origin"))


def test_to_land_from_several_clones_needs_a_remote_that_is_there(left: Left) -> None:
    shared = clones_land_together(options_of({"shared": True}), left.project)
    assert shared is not None and "[landing] remote" in shared.hint
    make_tracker(left.state / "tracker.db", "app", [])
    said = {"worktree": True, "command": ("true",)}
    resolved = resolve(said, left.project, {})
    resolved = replace(resolved, options=with_remote(resolved.options))
    with pytest.raises(CommandError) as refused:
        prepare(resolved, (), owned=True)
    assert refused.value.exit_code == EXIT_USAGE
    assert "no remote origin" in refused.value.message and "git remote" in refused.value.hint
    assert "--no-land" in refused.value.hint
    alone = replace(resolved, options=replace(resolved.options, land=False))
    assert prepare(alone, (), owned=True).landing is None
    git(left.top, "init", "--quiet", "--bare", "../origin.git")
    git(left.top, "remote", "add", "origin", "../origin.git")
    there = with_remote(replace(alone.options, land=None))
    found = prepare(replace(alone, options=there), (), owned=True)
    assert found.landing is not None and found.landing.rules.remote == "origin"
    assert found.work.worktrees is not None and found.work.worktrees.remote == "origin"


@pytest.mark.parametrize(
    ("verify", "named"),
    [
        ("test -e $BW_ISSUE_ID.txt", "BW_ISSUE_ID"),
        ('./check "${BW_ATTEMPT}"', "BW_ATTEMPT"),
        ("make && cat $BW_ISSUE_FILE", "BW_ISSUE_FILE"),
        ("./check ${BW_ISSUE_ID:-none} ${BW_ATTEMPT-0}", ""),
        ('test -n "$BW_GATE" || ./check $BW_ISSUE_ID', ""),
        ("diff $BW_BASE $BW_ISSUE_IDS $BW_ISSUE_FILES", ""),
        ("echo BW_ISSUE_ID $BW_WORKTREE $BW_RUN_ID", ""),
    ],
)
def test_a_gate_that_asks_of_which_issue_it_is_is_refused(verify: str, named: str) -> None:
    if not named:
        check_gate(verify)
        return
    with pytest.raises(CommandError) as refused:
        check_gate(verify)
    assert refused.value.exit_code == EXIT_USAGE and f"names {named}," in refused.value.message
    assert "BW_GATE" in refused.value.hint


def test_land_and_undo_refuse_such_a_gate_and_without_landing_it_is_fine(left: Left) -> None:
    verify = ("--verify", "test -e $BW_ISSUE_ID")
    make_tracker(left.state / "tracker.db", "app", [])
    for command in (("land",), ("undo", "app-1")):
        error = commands.asked(*command, *verify).exception
        assert isinstance(error, CommandError) and error.exit_code == EXIT_USAGE
    said = {"worktree": True, "command": ("true",), "verify": verify[1]}
    resolved = resolve(said, left.project, {})
    with pytest.raises(CommandError):
        prepare(resolved, (), owned=True)
    without = replace(resolved, options=replace(resolved.options, land=False))
    assert prepare(without, (), owned=True).landing is None


def test_clean_removes_the_worktrees_of_gates_that_nobody_uses(left: Left) -> None:
    left.branch("app-1", {"one": "1"})
    left.ended()
    commands.told("land", "--verify", "true")

    def gates() -> list[str]:
        rows = git(left.top, "worktree", "list", "--porcelain").splitlines()
        return [row.removeprefix("worktree ") for row in rows if "/bw-gate-" in row]

    (gate, *_) = gates()
    lock = try_lock(left.top / ".git" / LOCK)
    assert lock is not None
    assert gate not in cleaning.told(), "somebody lands"
    os.close(lock)
    assert f"would remove {gate}" in cleaning.told("--dry-run") and gates()
    assert f"removed {gate}" in cleaning.told()
    assert gates() == [] and not Path(gate).exists()
    commands.told("undo", "app-1", "--verify", "true")


def old_lock(path: Path, seconds: float = 60.0) -> Path:
    """A lock that a git has left which was killed so long ago."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    os.utime(path, (time.time() - seconds,) * 2)
    return path


def test_clean_removes_what_killed_gits_and_landers_have_left(left: Left) -> None:
    left.branch("app-1", {"one": "1"})
    left.ended()
    commands.told("land", "--verify", "true")
    common = left.top / ".git"
    packed = old_lock(common / "packed-refs.lock")
    ours = old_lock(common / "refs/bw/attempts/app-1/1.lock")
    young = old_lock(common / "refs/bw/attempts/app-2/1.lock", 0.0)
    theirs = old_lock(common / "refs/heads/main.lock")
    tip = git(left.top, "rev-parse", BRANCH)
    git(left.top, "update-ref", f"refs/bw/train/{tip}", tip)
    dry = cleaning.told("--dry-run")
    assert f"would remove {packed}" in dry and f"would remove {ours}" in dry
    assert packed.exists() and ours.exists()
    told = cleaning.told()
    assert f"removed {packed}" in told and f"removed {ours}" in told
    assert not packed.exists() and not ours.exists() and young.exists() and theirs.exists()
    assert git(left.top, "for-each-ref", "refs/bw/train") == ""


def test_clean_removes_the_folders_of_gates_whose_repository_is_gone(
    left: Left, tmp_path: Path
) -> None:
    left.branch("app-1", {"one": "1"})
    left.ended()
    commands.told("land", "--verify", "true")
    place = tmp_path / "cache" / "beads-workers"
    gone, older, known, odd = (
        place / "landing" / "0123",
        place / "worktrees" / "shop-1.landing",
        place / "landing" / "4567",
        place / "landing" / "89ab",
    )
    for folder in (gone, older, known, odd):
        (folder / "verdicts").mkdir(parents=True)
        (folder / "big").write_bytes(b"x" * 3_000_000)
    (gone / "repository").write_text(str(tmp_path / "gone" / ".git"))
    (older / "bw-gate-0").mkdir()
    (older / "bw-gate-0" / ".git").write_text(f"gitdir: {tmp_path}/gone/.git/worktrees/bw-gate-0\n")
    (known / "repository").write_text(str(left.top / ".git"))
    assert f"would remove {gone} (3 MB), whose repository is gone" in cleaning.told("--dry-run")
    assert gone.exists()
    told = cleaning.told()
    assert f"removed {gone} (3 MB)" in told and f"removed {older} (3 MB)" in told
    assert not gone.exists() and not older.exists() and known.exists() and odd.exists()


# --- undo -----------------------------------------------------------------------------------------


def landed(left: Left, *issues: tuple[str, dict[str, str]]) -> None:
    """These land, one train each."""
    for issue_id, changed in issues:
        left.branch(issue_id, changed)
    left.ended()
    for issue_id, _ in issues:
        commands.told("land", issue_id, "--verify", "true")


def test_undo_takes_one_issue_back_and_opens_it_again(left: Left) -> None:
    landed(left, ("app-1", {"one": "1"}), ("app-2", {"two": "2"}))
    said = commands.told("undo", "app-1", "--verify", "test ! -e one")
    assert "taken back: app-1" in said
    assert files(left) == {".gitignore", "two"}
    assert left.status() == {"app-1": "open", "app-2": "closed"}
    assert git(left.top, "log", "-1", "--format=%s", BRANCH).startswith('Revert "')
    again = commands.asked("undo", "app-1").exception
    assert isinstance(again, CommandError) and "nothing of app-1" in again.message
    commands.told("land", "app-1", "--verify", "true")
    assert "one" in files(left)
    assert left.status() == {"app-1": "closed", "app-2": "closed"}


def test_undo_of_what_landed_last_moves_the_branch_back(left: Left) -> None:
    landed(left, ("app-1", {"one": "1"}))
    assert "moved back" in commands.told("undo", "app-1", "--verify", "true")
    assert git(left.top, "rev-parse", BRANCH) == git(left.top, "rev-parse", "main")


def test_undo_of_a_run_takes_all_of_it_back(left: Left) -> None:
    left.branch("app-1", {"one": "1"})
    left.branch("app-2", {"two": "2"})
    left.ended()
    commands.told("land", "--verify", "true")
    (run,) = git(left.top, "for-each-ref", "--format=%(refname)", "refs/bw/runs").splitlines()
    commands.told("undo", run.removeprefix("refs/bw/runs/"), "--verify", "true")
    assert files(left) == {".gitignore"}
    assert left.status() == {"app-1": "open", "app-2": "open"}
    rows = json.loads(commands.told("branches", "--json"))["branches"]
    assert [row["outcome"] for row in rows] == ["taken back", "taken back"]
    assert "nothing to land" in commands.told("land", "--verify", "true")


def test_undo_takes_a_name_for_an_issue_before_it_takes_it_for_the_beginning_of_a_run(
    left: Left,
) -> None:
    left.branch("2", {"one": "1"})
    left.branch("app-2", {"two": "2"})
    left.ended()
    commands.told("land", "--verify", "true")
    assert "taken back: 2\n" in commands.told("undo", "2", "--verify", "true")
    assert left.status() == {"2": "open", "app-2": "closed"}


def test_undo_of_less_than_a_day_or_of_a_beginning_of_several_runs_takes_nothing_back(
    left: Left,
) -> None:
    landed(left, ("app-1", {"one": "1"}))
    (run,) = git(left.top, "for-each-ref", "--format=%(refname)", "refs/bw/runs").splitlines()
    name = run.removeprefix("refs/bw/runs/")
    for less in ("", name[:7]):
        error = commands.asked("undo", less, "--verify", "true").exception
        assert isinstance(error, CommandError) and f"nothing of {less}" in error.message
    git(left.top, "update-ref", f"refs/bw/runs/{name[:8]}-235959-land", "main")
    several = commands.asked("undo", name[:8], "--verify", "true").exception
    assert isinstance(several, CommandError) and name in several.message
    assert f"2 runs begin with {name[:8]}: " in several.message
    assert left.status() == {"app-1": "closed"}


@pytest.mark.parametrize("whole", [True, False])
def test_undo_that_was_killed_before_the_tracker_knew_is_finished_when_it_is_asked_again(
    left: Left, whole: bool
) -> None:
    landed(left, ("app-1", {"one": "1"}), ("app-2", {"two": "2"}))
    asked = "app-2" if whole else "app-1"
    settings, _ = land._settings(left.state, "true")
    done = Undo(settings, (asked,)).run()
    assert done.moved_back == whole
    tip = git(left.top, "rev-parse", BRANCH)
    assert left.status() == {"app-1": "closed", "app-2": "closed"}
    assert f"taken back: {asked}" in commands.told("undo", asked, "--verify", "true")
    assert left.status()[asked] == "open" and git(left.top, "rev-parse", BRANCH) == tip
    error = commands.asked("undo", asked, "--verify", "true").exception
    assert isinstance(error, CommandError) and f"nothing of {asked}" in error.message
    assert git(left.top, "for-each-ref", "refs/bw/reopening") == ""


def test_undo_of_a_run_that_was_killed_is_finished_by_the_run_or_by_its_issue(left: Left) -> None:
    left.branch("app-1", {"one": "1"})
    left.branch("app-2", {"two": "2"})
    left.ended()
    commands.told("land", "--verify", "true")
    (ref,) = git(left.top, "for-each-ref", "--format=%(refname)", "refs/bw/runs").splitlines()
    run = ref.removeprefix("refs/bw/runs/")
    Undo(land._settings(left.state, "true")[0], (run,)).run()
    commands.told("undo", "app-1", "--verify", "true")
    assert left.status() == {"app-1": "open", "app-2": "closed"}
    assert "taken back: app-2" in commands.told("undo", run, "--verify", "true")
    assert left.status() == {"app-1": "open", "app-2": "open"}


def test_undo_names_who_stands_on_it_and_takes_dependents_along_when_told(left: Left) -> None:
    landed(left, ("app-1", {"same": "1\n"}))
    place = left.make("app-2", worker="W2", base=BRANCH)
    (place.folder / "same").write_text("2\n")
    git(place.folder, "commit", "-qam", "on top")
    commands.told("land", "app-2", "--verify", "true")
    error = commands.asked("undo", "app-1").exception
    assert isinstance(error, CommandError) and "app-2 landed on top of app-1: same" in error.message
    commands.told("undo", "app-1", "--with-dependents", "--verify", "true")
    assert files(left) == {".gitignore"}
    assert left.status()["app-1"] == "open"


def test_undo_goes_through_the_gate(left: Left) -> None:
    landed(left, ("app-1", {"one": "1"}), ("app-2", {"two": "2"}))
    tip = git(left.top, "rev-parse", BRANCH)
    error = commands.asked("undo", "app-1", "--verify", "test -e one").exception
    assert isinstance(error, CommandError) and "does not pass" in error.message
    assert "without app-1, " in error.message and "gate-0.log" in error.message
    said = commands.asked("undo", "app-1", "--verify", "test -e one || ! echo 'FAILED x: 3'")
    assert isinstance(said.exception, CommandError) and "FAILED x: 3" in said.exception.message
    assert git(left.top, "rev-parse", BRANCH) == tip
    assert left.status() == {"app-1": "closed", "app-2": "closed"}


def test_undo_takes_several_back_at_once_also_by_the_beginning_of_a_run(left: Left) -> None:
    landed(left, ("app-1", {"one": "1"}), ("app-2", {"two": "2"}), ("app-3", {"three": "3"}))
    error = commands.asked("undo", "app-1", "app-9", "--verify", "true").exception
    assert isinstance(error, CommandError) and "nothing of app-9" in error.message
    assert left.status() == dict.fromkeys(("app-1", "app-2", "app-3"), "closed")
    commands.told("undo", "app-1", "app-3", "--verify", "true")
    assert files(left) == {".gitignore", "two"}
    assert left.status() == {"app-1": "open", "app-2": "closed", "app-3": "open"}


def test_a_run_is_named_by_its_beginning(left: Left) -> None:
    left.branch("app-1", {"one": "1"})
    left.ended()
    commands.told("land", "--verify", "true")
    (ref,) = git(left.top, "for-each-ref", "--format=%(refname)", "refs/bw/runs").splitlines()
    commands.told("undo", ref.removeprefix("refs/bw/runs/")[:11], "--verify", "true")
    assert left.status() == {"app-1": "open"}


def test_undo_knows_who_waited_for_it_in_the_tracker(left: Left) -> None:
    for n in (1, 2, 3):
        left.branch(f"app-{n}", {f"f{n}": ""})
    waits = {"type": "blocks", "created_at": "2026-01-02T03:04:05Z", "created_by": "x"}
    for n in (2, 3):
        needs = {"issue_id": f"app-{n}", "depends_on_id": f"app-{n - 1}"}
        left.issues[n - 1]["dependencies"] = [waits | needs]
    left.ended()
    commands.told("land", "--verify", "true")
    verify = "test -e f1 || test ! -e f2"
    error = commands.asked("undo", "app-1", "--verify", verify).exception
    assert isinstance(error, CommandError)
    assert "app-2 waited for it: --with-dependents" in error.message.replace("app-3, ", "")
    commands.told("undo", "app-1", "--with-dependents", "--verify", verify)
    assert files(left) == {".gitignore"}
    assert left.status() == dict.fromkeys(("app-1", "app-2", "app-3"), "open")


def test_a_project_that_was_renamed_has_its_branches(
    left: Left, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left.branch("app-1", {"one": "1"})
    left.ended()
    moved = left.top.rename(tmp_path / "renamed")
    monkeypatch.chdir(moved)
    (row,) = json.loads(commands.told("branches", "--json"))["branches"]
    assert row["issue_id"] == "app-1" and row["merges"]
    commands.told("land", "--verify", "true")
    assert "one" in git(moved, "ls-tree", "--name-only", BRANCH).splitlines()
    assert statuses(moved / ".beads-workers" / "tracker.db") == {"app-1": "closed"}
