"""Finished branches land: closed means on the branch that the next one starts from."""

from __future__ import annotations

import json
import os
import signal
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.agents_api import ModelApi
from tests.end_to_end.conftest import StartFleet
from tests.support.agent_projects import AgentProject
from tests.support.embedded import EmbeddedProject
from tests.support.fleet import Fleet, until
from tests.support.real_agents import AgentHome
from tests.support.repository import IDENTITY, commit, git

pytestmark = pytest.mark.daily(3)

TIP = "bw-landing/main"


def after(number: int, other: int) -> dict[str, Any]:
    """The second issue waits for the first."""
    row = {"issue_id": f"bw-{number}", "depends_on_id": f"bw-{other}", "type": "blocks"}
    return {"dependencies": [row | {"created_at": "2026-01-02T03:04:05Z", "created_by": "tester"}]}


CHAIN: list[dict[str, Any]] = [{}, after(2, 1), after(3, 2)]
WRITE = 'echo "$BW_ISSUE_ID" >"$BW_ISSUE_ID.txt"'
PATIENCE = 120.0


def repository(project: Any) -> Path:
    """The project becomes a repository with a first commit on ``main``."""
    project.environment |= IDENTITY
    if not (
        project.folder / ".git"
    ).exists():  # bd has made one: git 2.47 makes no reftables of it.
        git(project.folder, "init", "--quiet", "--initial-branch=main")
    git(project.folder, "symbolic-ref", "HEAD", "refs/heads/main")
    (project.folder / ".gitignore").write_text(".beads-workers/\n.beads/\n.beads.gate.lock\n")
    git(project.folder, "add", ".")
    git(project.folder, "commit", "--quiet", "-m", "first")
    return Path(project.folder)


def fleet_of(start: StartFleet, project: Any, *options: str, run: str = WRITE) -> Fleet:
    """Two workers, until nothing is left; ``run`` in a worktree for each."""
    fixed = ("-n", "2", "--until-empty", "--worktree", "--retry-delay", "0.1s")
    return start(project, *fixed, *options, "--", "sh", "-c", run)


def files(top: Path, at: str = TIP) -> set[str]:
    """What a commit holds, but for what the repository began with."""
    found = git(top, "ls-tree", "--name-only", "-r", at).splitlines()
    return {name for name in found if name.startswith(("bw-", "person"))}


def landed(fleet: Fleet) -> list[str]:
    """The issues that landed, in their order."""
    return [row["issue_id"] for row in fleet.journal("branch_landed")]


def seen_of(top: Path) -> tuple[str, ...]:
    """HEAD, the index and the files of the user's checkout."""
    index = (top / ".git" / "index").read_bytes().hex()
    # Without locks: "status" would write the index anew, with the times that it has just read.
    shown = git(top, "--no-optional-locks", "status", "--porcelain=v2", "--untracked-files=all")
    return git(top, "rev-parse", "HEAD"), git(top, "symbolic-ref", "HEAD"), index, shown


@pytest.mark.timeout(240)
def test_commands_land_on_every_tracker_and_what_depends_starts_from_them(
    any_project: Any, start: StartFleet
) -> None:
    top = repository(any_project)
    ids = any_project.create_many(CHAIN)
    before = seen_of(top)
    # Each needs what the one before it made, and must find it where it starts.
    fleet = fleet_of(start, any_project, "--verify", "ls", run=f'ls >"$BW_ISSUE_ID.found"; {WRITE}')
    assert fleet.wait(PATIENCE) == 0, fleet.said()
    assert landed(fleet) == ids
    for earlier, later in pairwise(ids):
        assert f"{earlier}.txt" in git(top, "show", f"{TIP}:{later}.found").splitlines()
    assert all(any_project.read(issue_id)[0] == "closed" for issue_id in ids)
    assert seen_of(top) == before
    trailers = git(top, "log", "-1", "--format=%(trailers:key=Issue,valueonly)", TIP)
    assert trailers.split() == [ids[-1]]
    fleet.leaves_nothing()


@pytest.mark.timeout(240)
def test_with_a_remote_attempts_begin_with_what_another_clone_landed_and_land_there(
    embedded: EmbeddedProject, start: StartFleet, tmp_path: Path
) -> None:
    top, origin, other = repository(embedded), tmp_path / "origin.git", tmp_path / "other"
    git(tmp_path, "clone", "--quiet", "--bare", str(top), str(origin))
    git(top, "remote", "add", "origin", str(origin))
    git(tmp_path, "clone", "--quiet", str(origin), str(other))
    commit(other, "bw-of-another-clone.txt")
    git(other, "push", "--quiet", "origin", f"HEAD:refs/heads/{TIP}")
    (embedded.folder / "beads-workers.toml").write_text('[landing]\nremote = "origin"\n')
    ids = embedded.create_many(CHAIN[:2])
    run = f"test -e bw-of-another-clone.txt && {WRITE}"
    fleet = fleet_of(start, embedded, "--verify", "ls", run=run)
    assert fleet.wait(PATIENCE) == 0, fleet.said()
    assert landed(fleet) == ids
    assert files(origin) == {"bw-of-another-clone.txt", *(f"{i}.txt" for i in ids)}
    assert git(top, "rev-parse", TIP) == git(origin, "rev-parse", TIP)
    assert git(origin, "for-each-ref", "--format=%(refname)").split() == [
        "refs/bw/landed/main",
        f"refs/heads/{TIP}",
        "refs/heads/main",
    ]
    fleet.leaves_nothing()


def test_diff_shows_what_has_landed(embedded: EmbeddedProject, start: StartFleet) -> None:
    repository(embedded)
    embedded.create_many([{}])
    fleet = fleet_of(start, embedded, "--verify", "ls")
    assert fleet.wait(PATIENCE) == 0, fleet.said()
    shown = fleet.call("diff", "bw-1")
    assert "landed as" in shown.stdout and "+bw-1" in shown.stdout
    assert "+bw-1" not in fleet.call("diff", "bw-1", "--stat").stdout
    assert fleet.call("diff", "bw-2").returncode != 0
    night = fleet.call("diff", "--night")
    assert night.stdout.startswith("== bw-1 ") and "+bw-1" in night.stdout
    (told,) = json.loads(fleet.call("diff", "--night", "--stat", "--json").stdout)["night"]
    assert (told["issue_id"], "+bw-1" in told["diff"]) == ("bw-1", False)
    page = fleet.call("report", "--html", "-").stdout
    assert "<h2>Diffs</h2>" in page and "+bw-1" in page


def test_without_landing_branches_stay_as_they_are(
    embedded: EmbeddedProject, start: StartFleet
) -> None:
    top = repository(embedded)
    embedded.create_many([{}])
    fleet = fleet_of(start, embedded, "--no-land", run=f"{WRITE}; git add .; git commit -qm x")
    assert fleet.wait() == 0, fleet.said()
    assert git(top, "branch", "--list", TIP) == ""
    assert git(top, "branch", "--list", "bw/*") != ""
    assert not fleet.journal("branch_landed")


def test_a_branch_that_breaks_the_tip_does_not_land_and_the_others_do(
    embedded: EmbeddedProject, start: StartFleet
) -> None:
    top = repository(embedded)
    good, bad = embedded.create_many([{}, {}])
    fleet = fleet_of(start, embedded, "--verify", f"! test -e {bad}.txt", "--max-attempts", "1")
    assert fleet.wait(PATIENCE) == 7, fleet.said()
    assert landed(fleet) == [good]
    assert files(top) == {f"{good}.txt"}
    assert embedded.read(bad)[0] == "blocked"
    assert "verify fails on its branch" in embedded.notes(bad)
    assert git(top, "for-each-ref", f"refs/bw/attempts/{bad}/") != "", "its work is kept"


def test_somebody_commits_to_main_meanwhile_and_that_lands_too(
    embedded: EmbeddedProject, start: StartFleet, tmp_path: Path
) -> None:
    top, committed = repository(embedded), tmp_path / "committed"
    (only,) = embedded.create_many([{}])
    run = f'for _ in $(seq 600); do [ -e "{committed}" ] && break; sleep 0.1; done; {WRITE}'
    fleet = fleet_of(start, embedded, "--verify", "ls", run=run)
    fleet.wait_for("started")
    theirs = commit(top, "person.txt")
    committed.touch()
    assert fleet.wait(PATIENCE) == 0, fleet.said()
    assert files(top) == {f"{only}.txt", "person.txt"}
    assert git(top, "merge-base", "--is-ancestor", theirs, TIP) == ""
    assert git(top, "rev-parse", "main") == theirs


def test_into_main_moves_it_along_and_a_dirty_checkout_is_left_alone(
    embedded: EmbeddedProject, start: StartFleet
) -> None:
    top = repository(embedded)
    (first,) = embedded.create_many([{}])
    fleet = fleet_of(start, embedded, "--land-into", "main")
    assert fleet.wait(PATIENCE) == 0, fleet.said()
    assert git(top, "rev-parse", "main") == git(top, "rev-parse", TIP)
    assert (top / f"{first}.txt").exists(), "it is checked out, and clean"
    (top / ".gitignore").write_text("mine\n.beads-workers/\n")
    before = git(top, "rev-parse", "main")
    (second,) = embedded.create_many([{"id": "bw-second"}])
    again = fleet_of(start, embedded, "--land-into", "main")
    assert again.wait(PATIENCE) == 0, again.said()
    assert git(top, "rev-parse", "main") == before, "somebody works there"
    assert files(top) == {f"{first}.txt", f"{second}.txt"}
    assert "main was not moved" in again.said()


def test_a_stop_leaves_the_queue_and_the_next_start_lands_it_first(
    embedded: EmbeddedProject, start: StartFleet, tmp_path: Path
) -> None:
    top = repository(embedded)
    ids = embedded.create_many([{}, {}])
    gate = tmp_path / "open"
    verify = f"i=0; until test -e {gate}; do sleep 0.1; i=$((i+1)); test $i -lt 600; done"
    fleet = fleet_of(start, embedded, "--verify", verify)
    until(lambda: len([r for r in fleet.journal("finished") if r["verdict"] == "land"]) == 2)
    stopped = fleet.call("stop")
    assert stopped.returncode == 0, stopped
    assert fleet.wait() == 7, fleet.said()
    fleet.leaves_nothing()
    assert [embedded.read(issue_id)[0] for issue_id in ids] == ["blocked", "blocked"]
    assert "has not landed yet" in embedded.notes(ids[0])
    assert files(top, "main") == set()
    gate.touch()
    again = fleet_of(start, embedded, "--verify", verify)
    assert again.wait(PATIENCE) == 0, again.said()
    assert sorted(landed(again)) == sorted(ids)
    assert not again.journal("started"), "nobody does them again"
    assert all(embedded.read(issue_id)[0] == "closed" for issue_id in ids)
    assert files(top) == {f"{issue_id}.txt" for issue_id in ids}


@pytest.mark.timeout(240)
def test_killed_in_the_middle_nothing_lands_twice_and_nothing_is_done_again(
    any_project: Any, start: StartFleet, tmp_path: Path
) -> None:
    top = repository(any_project)
    ids = any_project.create_many([{} for _ in range(3)])
    verify = f"sleep 0.3; echo x >>{tmp_path}/gates"
    fleet = fleet_of(start, any_project, "--verify", verify)
    until(lambda: len([r for r in fleet.journal("finished") if r["verdict"] == "land"]) >= 2)
    os.kill(fleet.pid, signal.SIGKILL)
    fleet.wait()
    again = fleet_of(start, any_project, "--verify", verify)
    assert again.wait(PATIENCE) == 0, again.said()
    assert all(any_project.read(issue_id)[0] == "closed" for issue_id in ids)
    assert files(top) == {f"{issue_id}.txt" for issue_id in ids}
    carried = git(top, "log", "--format=%(trailers:key=Issue,valueonly)", TIP).split()
    assert sorted(carried) == sorted(ids)
    begun = [row["issue_id"] for run in (fleet, again) for row in run.journal("started")]
    to_land = {r["issue_id"] for r in fleet.journal("finished") if r["verdict"] == "land"}
    assert all(begun.count(issue_id) == 1 for issue_id in to_land)


# --- agents --------------------------------------------------------------------------------------


@pytest.fixture
def project(tmp_path: Path, home: AgentHome) -> AgentProject:
    return AgentProject(tmp_path, home)


def agents(start: StartFleet, project: AgentProject, *options: str) -> Fleet:
    return start(project, "-n", "2", "--agent", "codex", "--until-empty", *options)


@pytest.mark.timeout(240)
def test_a_before_b_by_agents_in_one_run(
    start: StartFleet, project: AgentProject, api: ModelApi
) -> None:
    project.create_many(
        [
            {"description": '[[stub: write a.py "A = 1"]]'},
            {"description": '[[stub: run "cat a.py a.py > b.py"]]', **after(2, 1)},
        ]
    )
    fleet = agents(start, project, "--verify", "ls")
    assert fleet.wait(PATIENCE) == 0, fleet.said()
    assert landed(fleet) == ["bw-1", "bw-2"]
    assert git(project.folder, "show", f"{TIP}:b.py").splitlines() == ["A = 1"] * 2
    assert project.statuses() == ["closed"] * 2


@pytest.mark.timeout(240)
def test_a_conflict_goes_back_to_its_agent_and_both_land_in_one_night(
    start: StartFleet, project: AgentProject, api: ModelApi
) -> None:
    mend = '[[stub when "conflicts stand in": write shop.py "both"; commit "mend"]]'
    project.create_many(
        [
            {"description": f'[[stub: write shop.py "one"]] {mend}'},
            {"description": f'[[stub: write shop.py "two"]] {mend}'},
        ]
    )
    fleet = agents(start, project)
    assert fleet.wait(PATIENCE) == 0, fleet.said()
    assert sorted(landed(fleet)) == ["bw-1", "bw-2"]
    (ended,) = fleet.journal("landing_ended")
    assert (ended["verdict"], ended["why"], ended["files"]) == ("mend", "conflict", ["shop.py"])
    assert git(project.folder, "show", f"{TIP}:shop.py") == "both"
    assert all(row.get("charged", 0) == 0 for row in fleet.journal("finished"))


@pytest.mark.timeout(240)
def test_two_that_break_each_other_only_together_both_land(
    start: StartFleet, project: AgentProject, api: ModelApi
) -> None:
    """A renames what B calls: each is green alone, and together the gate is red."""
    mend = '[[stub when "merged into your branch": write b.py "uses new"; commit "mend"]]'
    project.create_many(
        [
            {"description": f'[[stub: write a.py "new"]] {mend}'},
            {"description": f'[[stub: write b.py "uses old"]] {mend}'},
        ]
    )
    verify = "! test -e a.py || ! test -e b.py || grep -q 'uses new' b.py"
    fleet = agents(start, project, "--verify", verify)
    assert fleet.wait(PATIENCE) == 0, fleet.said()
    assert sorted(landed(fleet)) == ["bw-1", "bw-2"]
    (ended,) = fleet.journal("landing_ended")
    assert (ended["verdict"], ended["why"]) == ("mend", "verify")
    assert git(project.folder, "show", f"{TIP}:b.py") == "uses new"
