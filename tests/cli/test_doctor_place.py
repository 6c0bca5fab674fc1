"""What ``doctor`` says of disk, run directory, repository and leftovers: real faults, mended."""

from __future__ import annotations

import functools
import os
import shlex
import signal
import subprocess
from pathlib import Path

import pytest

from beads_workers.runtime import sessions
from tests.cli.doctor_support import Patient, initialised
from tests.support.fleet import until


@functools.cache
def may_mount() -> bool:
    """Whether file systems can be mounted here, in a namespace of their own."""
    done = subprocess.run(
        ["unshare", "-m", "mount", "-t", "tmpfs", "none", "/mnt"], capture_output=True, check=False
    )
    return done.returncode == 0


@pytest.fixture
def project(tmp_path: Path) -> Patient:
    """A project with a built-in tracker."""
    return initialised(tmp_path)


def mended(project: Patient, name: str, *arguments: str) -> None:
    """Type the remedy of that line, and all is well."""
    remedy = project.doctor(*arguments).one(name)["remedy"]
    done = project.type(remedy)
    assert done.returncode == 0, (remedy, done.stderr)
    assert name not in project.doctor(*arguments).problems()


# --- disk and run directory -------------------------------------------------------------------


@pytest.mark.skipif(not may_mount(), reason="needs the right to mount")
@pytest.mark.parametrize(
    ("options", "name", "grade", "said"),
    [("size=1m", "disk", "fail", "only 1 MB free at "),
     ("size=100m", "disk", "warn", "logs may fill it"),
     ("size=3g,nr_inodes=50", "disk", "fail", "more files fit at "),
     ("size=3g,ro", "state", "fail", "read-only")],
)  # fmt: skip
def test_a_file_system_without_room_or_read_only_is_named(
    project: Patient, options: str, name: str, grade: str, said: str
) -> None:
    state = project.folder.parent / "state"
    state.mkdir()
    found = project.doctor(
        *("--state-dir", str(state), "--", "true"),
        before=f"mount -t tmpfs -o {options} none {shlex.quote(str(state))}",
        within=["unshare", "-m"],
    )
    assert found.problems() == {name}
    assert (found.one(name)["status"], said in found.one(name)["text"]) == (grade, True)


def test_a_file_in_place_of_the_run_directory_is_moved_away(project: Patient) -> None:
    (project.folder.parent / "state dir").write_text("")
    mended(project, "state", "--state-dir", str(project.folder.parent / "state dir"), "--", "true")


@pytest.mark.skipif(os.geteuid() != 0, reason="needs another user")
def test_a_run_directory_of_another_user_is_taken_back(project: Patient) -> None:
    project.put("sudo", '#!/bin/sh\nexec "$@"\n')
    os.chown(project.folder / ".beads-workers", 12345, 12345)
    assert project.doctor("--", "true").problems() == {"state", "tracker"}
    mended(project, "state", "--", "true")


def test_a_run_directory_that_is_to_be_made_must_have_a_place(project: Patient) -> None:
    found = project.doctor("--state-dir", str(project.folder / "a" / "b"), "--", "true")
    assert (found.status, "not made yet" in found.one("state")["text"]) == (0, True)
    assert not (project.folder / "a").exists()


def test_a_long_path_moves_the_control_socket_and_is_said(project: Patient) -> None:
    long = project.folder / ("x" * 120)
    found = project.doctor("--state-dir", str(long), "--", "true")
    assert (found.status, "/tmp/beads-workers-" in found.one("state")["text"]) == (0, True)


# --- the repository ---------------------------------------------------------------------------


def test_uncommitted_changes_are_a_warning_and_the_remedy_commits_them(project: Patient) -> None:
    project.environment |= {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1"}
    assert (
        project.type("git init -q .; git config user.name A; git config user.email a@b").stdout
        == ""
    )
    # Its own settings are read from here only, and count as none.
    assert project.doctor("--", "true").one("git")["text"].endswith(", clean")
    (project.folder / "notes").write_text("unfinished")
    (project.folder / "more").write_text("unfinished")
    found = project.doctor("--", "true")
    assert (found.status, found.problems()) == (0, {"git"})
    assert found.one("git")["text"].startswith("2 uncommitted changes")
    mended(project, "git", "--", "true")


def test_what_the_tracker_writes_is_nobody_s_unfinished_work(project: Patient) -> None:
    assert (
        project.type(
            "rm beads-workers.toml; git init -q . && mkdir .beads && touch .beads/x"
        ).stdout
        == ""
    )
    assert project.doctor("--source", "sqlite", "--", "true").one("git")["status"] == "ok"


def test_agents_need_a_repository_and_a_name_to_commit_with(project: Patient) -> None:
    project.environment |= {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1"}
    project.put("mine", "#!/bin/sh\n")
    (project.folder / "beads-workers.toml").write_text('[agents.mine]\nargv = ["mine"]\n')
    mended_once = project.doctor("--agent", "mine").one("git")
    assert mended_once["remedy"] == "git init"
    assert project.type(
        "git init -q . && git add -A && rm .git/index && echo '*' >.git/info/exclude"
    )
    found = project.doctor("--agent", "mine").one("git")
    assert "user.name and user.email not set" in found["text"]
    mended(project, "git", "--agent", "mine")


def test_branches_of_ours_are_counted(project: Patient) -> None:
    script = "git init -q . && git add -A && git -c user.name=a -c user.email=b commit -qm x"
    assert project.type(f"{script} && git branch bw/x/1 && git branch bw/x/2").returncode == 0
    assert project.doctor("--", "true").one("git")["text"].endswith("clean, 2 branches bw/*")


@pytest.mark.skipif(os.geteuid() != 0, reason="needs another user")
def test_a_repository_of_another_user_is_declared_safe(project: Patient) -> None:
    assert project.type("git init -q .").returncode == 0
    os.chown(project.folder, 12345, 12345)
    os.chown(project.folder / ".git", 12345, 12345)
    assert "belongs to another user" in project.doctor("--", "true").one("git")["text"]
    assert project.type(project.doctor("--", "true").one("git")["remedy"]).returncode == 0
    assert project.doctor("--", "true").one("git")["text"].endswith(", clean")


# --- leftovers --------------------------------------------------------------------------------


def pid_of(project: Patient) -> int:
    """The orchestrator that runs there."""
    shown = project.type("beads-workers status --json").stdout
    return int(shown.split('"pid": ')[1].split(",")[0])


def test_a_living_fleet_is_no_fault_and_a_killed_one_is_settled_by_the_remedy(
    project: Patient,
) -> None:
    """From a fleet at work to one that was killed, with a task that escaped it, and back."""
    assert project.type("beads-workers add one -- sleep 100").returncode == 0
    started = project.type("beads-workers start -d -n 1")
    assert started.returncode == 0, started.stderr
    pid = pid_of(project)
    until(
        lambda: (
            '"status":"in_progress"' in project.type("beads-workers export").stdout.replace(" ", "")
        )
    )
    found = project.doctor()
    assert (found.problems(), f"pid {pid}" in found.one("fleet")["text"]) == (set(), True)
    other = project.doctor("--state-dir", str(project.folder.parent / "other"))
    assert (other.problems(), f"(pid {pid})" in other.one("fleet")["text"]) == ({"fleet"}, True)
    began = sessions.start_time(pid)
    assert began is not None
    assert sessions.kill(pid, began, signal.SIGKILL)
    until(lambda: sessions.start_time(pid) is None)
    found = project.doctor()
    assert found.problems() == {"leftovers"}
    assert "ended without settling" in str(found.shown)
    assert "in /tmp of orchestrators" in str(found.shown)
    # The start that settles it removes its dead socket, too; others may be other people's.
    (crashed,) = [check for check in found.all("leftovers") if "settling" in check["text"]]
    assert project.type(crashed["remedy"]).returncode == 0
    assert not Path(f"/tmp/beads-workers-{pid}.sock").exists()
    assert project.doctor().problems() == set()
    assert '"in_progress"' not in project.type("beads-workers export").stdout


def test_a_process_that_a_crashed_run_left_is_named_and_ended_by_the_remedy(
    project: Patient,
) -> None:
    assert project.type("beads-workers start -n 1 --until-empty -- true").returncode == 0
    (run,) = (project.folder / ".beads-workers" / "runs").iterdir()
    script = f"exec flock {shlex.quote(str(run / 'alive'))} sleep 100"
    left = subprocess.Popen(["sh", "-c", script])
    try:
        until(lambda: project.doctor("--", "true").problems() == {"leftovers"})
        assert f"still live: {left.pid}" in project.doctor("--", "true").one("leftovers")["text"]
        remedy = project.doctor("--", "true").one("leftovers")["remedy"]
        assert project.type(remedy).returncode == 0
        left.wait(10)
    finally:
        left.kill()
        left.wait()


# --- worktrees --------------------------------------------------------------------------------


def test_agents_that_would_share_a_checkout_are_refused_as_start_refuses_them(
    project: Patient,
) -> None:
    project.put("mine", "#!/bin/sh\n")
    (project.folder / "beads-workers.toml").write_text('[agents.mine]\nargv = ["mine"]\n')
    script = "git init -q . && git config user.name a && git config user.email b && git add -A"
    assert project.type(f"{script} && git commit -qm x").returncode == 0
    found = project.doctor("--agent", "mine", "-n", "3")
    assert (found.status, found.problems()) == (1, {"worktree"})
    remedy = shlex.split(found.one("worktree")["remedy"])
    assert remedy[:2] == ["beads-workers", "doctor"]
    for arguments in (remedy[2:], ["--agent", "mine", "-n", "3", "--shared-checkout"]):
        # That nothing is verified before it lands is another matter.
        assert project.doctor(*arguments).problems() <= {"landing"}
    (project.folder / "new").touch()
    text = project.doctor(*remedy[2:]).one("git")["text"]
    assert text == "1 uncommitted change: tasks in worktrees would not see them"


@pytest.mark.parametrize("already", ["", "git init -q ."])
def test_worktrees_need_a_commit_and_the_remedy_makes_one(project: Patient, already: str) -> None:
    identity = {"GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "b"}
    project.environment |= identity | {"GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "b"}
    assert project.type(already or ":").returncode == 0
    mended(project, "worktree", "--worktree", "--", "true")


def test_a_disk_below_the_floor_of_worktrees_is_said_before_the_attempts_say_it(
    project: Patient,
) -> None:
    script = "git init -q . && git config user.name a && git config user.email b && git add -A"
    assert project.type(f"{script} && git commit -q --allow-empty -m x").returncode == 0
    (project.folder / "beads-workers.toml").write_text('[worktree]\ndisk_floor = "1000000GB"\n')
    found = project.doctor("--worktree", "--", "true").one("worktree")
    assert found["status"] == "fail" and "no attempt begins below 1000000 GB" in found["text"]
    assert project.type(found["remedy"]).returncode == 0
