"""Fleets whose attempts run in git worktrees of their own: nothing that was done there is lost."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from beads_workers.worktrees.records import Records
from tests.end_to_end.conftest import StartFleet
from tests.support.bd import NEW, OLD, BdProject
from tests.support.embedded import EmbeddedProject
from tests.support.fleet import call, until
from tests.support.repository import IDENTITY, commits, git
from tests.support.worktrees import in_worktrees

pytestmark = pytest.mark.daily(3)

COMMIT = 'echo x >"$BW_ISSUE_ID" && git add . && git commit --quiet -m "$BW_ISSUE_ID"'
START = ("--worktree", "--no-land", "--until-empty", "--retry-delay", "0.1s")


def repository(project: Any) -> Path:
    """The project becomes a repository with a first commit."""
    project.environment |= IDENTITY
    git(project.folder, "init", "--quiet", "--initial-branch=main")
    (project.folder / ".gitignore").write_text(".beads-workers/\n.beads.gate.lock\n")
    git(project.folder, "add", ".")
    git(project.folder, "commit", "--quiet", "-m", "first")
    return Path(project.folder)


def cleaned(project: Any) -> tuple[list[str], dict[str, list[str]]]:
    """The branches that clean removed, and those that it kept and why.

    It removed what its dry run had named, and nothing else.
    """
    before = git(project.folder, "worktree", "list").splitlines()
    shown = json.loads(call(project, "clean", "--dry-run", "--json").stdout)
    assert shown["removed"] == []
    assert git(project.folder, "worktree", "list").splitlines() == before
    done = json.loads(call(project, "clean", "--json").stdout)
    # Another test's fleet may have left a dead socket meanwhile: that is everybody's to remove.
    named, removed = (
        [path for path in paths if not path.startswith("/tmp/beads-workers-")]
        for paths in (shown["found"], done["removed"])
    )
    assert removed == named and done["worktrees"] == shown["worktrees"]
    left = git(project.folder, "worktree", "list").splitlines()
    assert {line.split()[0] for line in before if line not in left} == set(removed)
    rows = {row["branch"]: row["reasons"] for row in done["worktrees"]}
    gone = [branch for branch, reasons in rows.items() if not reasons]
    assert not any(git(project.folder, "branch", "--list", branch) for branch in gone)
    return gone, {branch: reasons for branch, reasons in rows.items() if reasons}


def test_four_at_once_commit_each_on_a_branch_and_clean_takes_what_was_merged(
    embedded: EmbeddedProject, start: StartFleet
) -> None:
    top = repository(embedded)
    ids = embedded.create_many([{} for _ in range(4)])
    # Nobody ends before all four have begun: they are at it at the same time.
    meet = embedded.folder.parent / "meet"
    meet.mkdir()
    together = (
        f'touch "{meet}/$BW_ISSUE_ID"; until [ $(ls {meet} | wc -l) = 4 ]; do sleep 0.2; done'
    )
    fleet = start(embedded, "-n", "4", *START, "--", "sh", "-c", f"{together}; {COMMIT}")
    assert fleet.wait() == 0, fleet.said()
    assert fleet.output.count(": 1 commit on bw/") == 4
    assert "4 branches hold work to merge" in fleet.output
    for issue_id in ids:
        assert git(top, "show", f"bw/{issue_id}/1:{issue_id}") == "x"
    assert git(top, "status", "--porcelain") == ""
    git(top, "merge", "--quiet", f"bw/{ids[0]}/1")
    removed, kept = cleaned(embedded)
    assert removed == [f"bw/{ids[0]}/1"]
    assert kept == {f"bw/{i}/1": ["1 commit on no other branch"] for i in ids[1:]}
    fleet.leaves_nothing()


def test_what_failed_timed_out_or_was_killed_keeps_what_it_had_done(
    embedded: EmbeddedProject, start: StartFleet
) -> None:
    top = repository(embedded)
    titles = ("fails", "hangs", "killed", "empty")
    embedded.create_many([{"id": t, "title": t} for t in titles])
    script = (
        'case "$BW_ISSUE_ID" in fails) echo x >new; exit 1;;'
        f" hangs) {COMMIT}; sleep 1000;;"
        f" killed) {COMMIT}; kill -KILL $PPID; sleep 1000;;"
        " empty) touch x.local; exit 1;; esac"
    )
    options = ("--max-attempts", "1", "--timeout", "2s")
    fleet = start(embedded, "-n", "4", *START, *options, "--", "sh", "-c", script)
    assert fleet.wait() == 7, fleet.said()
    assert "2 branches hold work of attempts that did not succeed" in fleet.output
    assert "2 worktrees hold work that is not committed" in fleet.output
    assert "to merge" not in fleet.output
    assert "x.local" not in git(top, "status", "--porcelain")
    removed, kept = cleaned(embedded)
    assert kept == {
        "bw/empty/1": ["1 change not committed: x.local"],
        "bw/fails/1": ["1 change not committed: new"],
        "bw/hangs/1": ["1 commit on no other branch"],
        "bw/killed/1": ["1 commit on no other branch"],
    }
    assert removed == []
    fleet.leaves_nothing()


def test_a_killed_orchestrator_loses_no_work_and_the_next_attempt_has_a_branch_of_its_own(
    embedded: EmbeddedProject, start: StartFleet
) -> None:
    top = repository(embedded)
    ids = embedded.create_many([{} for _ in range(4)])
    hold = embedded.folder.parent / "hold"
    hold.touch()
    script = f'{COMMIT}; while [ -e "{hold}" ]; do sleep 0.2; done'
    fleet = start(embedded, "-n", "4", *START, "--", "sh", "-c", script)
    made = [f"bw/{i}/1" for i in ids]
    until(lambda: all(git(top, "log", "-1", "--format=%s", b, check=False) in ids for b in made))
    before = commits(top)
    os.kill(fleet.pid, signal.SIGKILL)
    fleet.wait()
    hold.unlink()
    time.sleep(1)  # In one second both attempts would make the same commit, and one branch do.
    again = start(embedded, "-n", "4", *START, "--", "sh", "-c", COMMIT)
    assert again.wait() == 0, again.said()
    assert before <= commits(top)
    _, kept = cleaned(embedded)
    # The first attempt ended with our own death: it was not charged, and has its number again.
    assert sorted(kept) == sorted([*made, *(f"{branch}.2" for branch in made)])
    again.leaves_nothing()


def test_a_maker_killed_in_the_middle_is_a_free_retry_and_leaves_nothing(
    embedded: EmbeddedProject, start: StartFleet
) -> None:
    top = repository(embedded)
    (issue_id,) = embedded.create_many([{}])
    mark = embedded.folder.parent / "first"
    setup = f'[ -e "{mark}" ] || {{ touch "{mark}" left; kill -KILL $PPID; sleep 1000; }}'
    with (embedded.folder / "beads-workers.toml").open("a") as file:
        file.write(f"\n[worktree]\nsetup = '''{setup}'''\n")
    fleet = start(embedded, "-n", "1", *START, "--", "sh", "-c", COMMIT)
    assert fleet.wait() == 0, fleet.said()
    assert "no worktree: killed by signal KILL" in fleet.output
    assert [r.branch for r in Records(fleet.state_directory).all()] == [f"bw/{issue_id}/1"]
    assert git(top, "branch", "--list", "bw/*", "--format=%(refname:short)") == f"bw/{issue_id}/1"
    fleet.leaves_nothing()


def test_too_little_disk_and_a_failing_setup_charge_nothing_and_say_so(
    embedded: EmbeddedProject, start: StartFleet
) -> None:
    top = repository(embedded)
    embedded.create_many([{}])
    with (embedded.folder / "beads-workers.toml").open("a") as file:
        file.write('\n[worktree]\nenabled = true\ndisk_floor = "8000000TB"\n')
    slow = ("-n", "1", "--retry-delay", "100s", "--skip-check", "worktree")
    fleet = start(embedded, *slow, "--", "sh", "-c", COMMIT)
    failed = fleet.wait_for("finished")
    assert (failed["outcome"], failed.get("charged", 0)) == ("retry", 0)
    assert "GB of disk are free" in failed["error"] and "the floor is" in failed["error"]
    assert fleet.call("stop").returncode == 0
    assert git(top, "worktree", "list").count("\n") == 0
    fleet.leaves_nothing()


@pytest.mark.parametrize("version", [OLD, NEW])
def test_with_bd_an_agents_own_close_reaches_the_one_tracker(
    tmp_path: Path, start: StartFleet, version: str
) -> None:
    project = BdProject(tmp_path, version)
    top = repository(project)
    assert (top / ".beads").is_dir() and git(top, "ls-files", ".beads")
    issue_id = project.create("one")
    script = f'{COMMIT}; test "$BEADS_DIR" = "{top}/.beads" && bd close "$BW_ISSUE_ID"'
    options = ("--bd-calls", "worker", "--limit", "1", "--no-land")
    fleet = start(project, "-n", "1", *START, *options, "--", "sh", "-c", script)
    assert fleet.wait() == 0, fleet.said()
    assert project.read_all()[issue_id][0] == "closed"
    assert git(top, "show", f"bw/{issue_id}/1:{issue_id}") == "x"
    fleet.leaves_nothing()


@pytest.mark.parametrize("version", [OLD, NEW])
def test_worktrees_lie_outside_of_the_checkout_and_lead_to_its_tracker(
    tmp_path: Path, start: StartFleet, version: str
) -> None:
    project = BdProject(tmp_path, version)
    top = repository(project)
    issue_id = project.create("one")
    ours = f'"{sys.executable}" -m beads_workers'
    script = (
        f'bd show "$BW_ISSUE_ID" >bd.local && {ours} why "$BW_ISSUE_ID" >why.local'
        f" && env -u BEADS_DIR {ours} status --json >status.local && touch done.local"
    )
    fleet = start(project, "-n", "1", *START, "--", "sh", "-c", f"{script}; sleep 1000")
    (written,) = until(lambda: in_worktrees(project, "done.local"), what=fleet.said())
    assert not written.is_relative_to(top)
    assert written.parent.parent.stat().st_mode & 0o777 == 0o700
    assert "one" in (written.parent / "bd.local").read_text()
    assert issue_id in (written.parent / "why.local").read_text()
    status = json.loads((written.parent / "status.local").read_text())
    assert [w["issue_id"] for w in status["workers"]] == [issue_id]
    assert fleet.call("stop").returncode == 0
    cleaned(project)
    fleet.leaves_nothing()


def test_attempts_begin_in_worktrees_that_were_made_while_others_worked(
    embedded: EmbeddedProject, start: StartFleet
) -> None:
    top = repository(embedded)
    embedded.create_many([{} for _ in range(3)])
    with (embedded.folder / "beads-workers.toml").open("a") as file:
        file.write("\n[worktree]\nreuse = false\npool = 1\nsetup = 'echo run >>setup.local'\n")
    (top / ".gitignore").write_text("*.local\n.beads-workers/\n")
    git(top, "commit", "--quiet", "--all", "-m", "begin")
    seen = embedded.folder.parent / "seen"
    records = f'"{embedded.folder}/.beads-workers/worktree-records"'
    script = (
        f"until ls {records}/*.over >&2; do sleep 0.1; done;"
        f' echo "$(pwd) $(wc -l <setup.local)" $(ls) >>"{seen}"; touch loose left.local'
    )
    fleet = start(embedded, "-n", "1", *START, "--no-land", "--", "sh", "-c", script)
    assert fleet.wait() == 0, fleet.said()
    rows = [line.split() for line in seen.read_text().splitlines()]
    assert [Path(row[0]).name.partition("-")[0] for row in rows] == ["bw", "again", "again"]
    assert all(row[1:] == ["1", "beads-workers.toml", "setup.local"] for row in rows), rows
    # What was made ahead and never used went with the run.
    assert not Records(fleet.state_directory).over()
    assert len(cleaned(embedded)[1]) == 3
    fleet.leaves_nothing()


def test_a_killed_fleet_leaves_a_pool_that_the_next_one_uses_and_clean_removes(
    embedded: EmbeddedProject, start: StartFleet
) -> None:
    top = repository(embedded)
    ids = embedded.create_many([{} for _ in range(2)])
    with (embedded.folder / "beads-workers.toml").open("a") as file:
        file.write("\n[worktree]\npool = 2\n")
    fleet = start(embedded, "-n", "1", *START, "--", "sleep", "1000")
    records = Records(fleet.state_directory)
    until(lambda: len(records.over()) == 2)
    os.kill(fleet.pid, signal.SIGKILL)
    fleet.wait()
    made = {found.path for name in records.over() if (found := records.find(name))}
    again = start(
        embedded, "-n", "1", *START, "--land", "--", "sh", "-c", "pwd >$BW_ISSUE_ID.where"
    )
    assert again.wait() == 0, again.said()
    # Each in a file of its own: the second one may begin before the first has landed.
    where = [git(top, "show", f"bw-landing/main:{issue_id}.where") for issue_id in ids]
    assert where[0] in made
    call(embedded, "clean")
    left = git(top, "worktree", "list").splitlines()[1:]
    assert all("[bw/" in line for line in left) and records.over() == []
    again.leaves_nothing()


def test_several_agents_in_one_checkout_need_a_word(embedded: EmbeddedProject) -> None:
    repository(embedded)
    embedded.create_many([{}])
    with (embedded.folder / "beads-workers.toml").open("a") as file:
        file.write('\n[agents.own]\nargv = ["cat"]\n')
    agent = ("start", "--dry-run", "--agent", "own")
    refused = call(embedded, *agent, "-n", "2")
    assert refused.returncode == 2 and "--worktree" in refused.stderr
    assert call(embedded, *agent, "-n", "1").returncode == 0
    assert call(embedded, *agent, "-n", "2", "--shared-checkout").returncode == 0
    apart = call(embedded, *agent, "-n", "2", "--worktree")
    assert apart.returncode == 0 and "bw/<issue>/<attempt> from bw-landing/main" in apart.stdout
    assert "git worktree of your own" in apart.stdout


def test_what_has_landed_leaves_no_branch_and_one_command_to_type(
    embedded: EmbeddedProject, start: StartFleet
) -> None:
    top = repository(embedded)
    embedded.create_many([{"id": t, "title": t} for t in ("one", "two", "bad")])
    work = ("--worktree", "--until-empty", "--verify", "! test -e bad")
    fleet = start(embedded, "-n", "1", *work, "--", "sh", "-c", COMMIT)
    assert fleet.wait() == 7, fleet.said()
    command = "git merge --ff-only bw-landing/main"
    assert "landed 2 on bw-landing/main" in fleet.output
    assert "  bad (bw/bad/1) did not land: verify fails on its branch" in fleet.output
    assert "1 branch holds work that has not landed" in fleet.output
    assert f"to bring what landed to main: {command}" in fleet.output
    assert git(top, "branch", "--list", "bw/*").split() == ["+", "bw/bad/1"]
    left = Records(embedded.folder / ".beads-workers").all()
    assert [record.branch for record in left] == ["", "bw/bad/1"], "one stays for the next run"
    assert f"next: {command}" in call(embedded, "status").stdout
    git(top, *command.split()[1:])
    assert "next:" not in call(embedded, "status").stdout
    assert {"one", "two"} <= set(git(top, "ls-files").split())
    fleet.leaves_nothing()


def test_worktrees_of_landed_branches_are_used_again_and_stay_for_the_next_run(
    embedded: EmbeddedProject, start: StartFleet
) -> None:
    top = repository(embedded)
    (top / ".gitignore").write_text(".beads-workers/\n*.local\n")
    git(top, "commit", "--quiet", "--all", "-m", "ignore")
    with (embedded.folder / "beads-workers.toml").open("a") as file:
        file.write("\n[worktree]\nsetup = 'date +%N >setup.local'\n")
    seen = embedded.folder.parent / "seen"
    script = f'echo "$(basename $(pwd)) $(cat *.local)" >>"{seen}"; touch left.local; {COMMIT}'
    work = ("-n", "1", "--worktree", "--until-empty", "--verify", "true", "--skip-base-check")
    for issues in (("a", "b", "c", "d"), ("e",)):
        embedded.create_many([{"id": issue, "title": issue} for issue in issues])
        fleet = start(embedded, *work, "--", "sh", "-c", script)
        assert fleet.wait() == 0, fleet.said()
    rows = [line.split() for line in seen.read_text().splitlines()]
    names = {name for name, _ in rows}
    assert all(len(row) == 2 for row in rows), "one attempt sees what another has left"
    assert len(rows) == 5 and len({made for _, made in rows}) == len(names) < 5
    shown = json.loads(call(embedded, "branches", "--json").stdout)
    (staying,) = shown["staying"]
    assert shown["branches"] == [] and Path(staying).name in names
    assert f"1 worktree for the next run: {Path(staying).name}" in call(embedded, "branches").stdout
    assert "1 worktree of earlier runs" in call(embedded, "doctor", "--worktree").stdout
    assert git(top, "branch", "--list", "bw/*") == ""
    call(embedded, "clean")
    assert not Path(staying).exists() and Records(fleet.state_directory).all() == []
    fleet.leaves_nothing()
