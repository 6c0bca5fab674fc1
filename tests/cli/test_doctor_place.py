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
def here(tmp_path: Path) -> Patient:
    """A project with a built-in tracker."""
    return initialised(tmp_path)


def mended(here: Patient, name: str, *arguments: str) -> None:
    """Type the remedy of that line, and all is well."""
    remedy = here.doctor(*arguments).one(name)["remedy"]
    done = here.type(remedy)
    assert done.returncode == 0, (remedy, done.stderr)
    assert name not in here.doctor(*arguments).problems()


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
    here: Patient, options: str, name: str, grade: str, said: str
) -> None:
    state = here.folder.parent / "state"
    state.mkdir()
    found = here.doctor(
        *("--state-dir", str(state), "--", "true"),
        before=f"mount -t tmpfs -o {options} none {shlex.quote(str(state))}",
        within=["unshare", "-m"],
    )
    assert found.problems() == {name}
    assert (found.one(name)["status"], said in found.one(name)["text"]) == (grade, True)


def test_a_file_in_place_of_the_run_directory_is_moved_away(here: Patient) -> None:
    (here.folder.parent / "state dir").write_text("")
    mended(here, "state", "--state-dir", str(here.folder.parent / "state dir"), "--", "true")


@pytest.mark.skipif(os.geteuid() != 0, reason="needs another user")
def test_a_run_directory_of_another_user_is_taken_back(here: Patient) -> None:
    here.put("sudo", '#!/bin/sh\nexec "$@"\n')
    os.chown(here.folder / ".beads-workers", 12345, 12345)
    assert here.doctor("--", "true").problems() == {"state", "tracker"}
    mended(here, "state", "--", "true")


def test_a_run_directory_that_is_to_be_made_must_have_a_place(here: Patient) -> None:
    found = here.doctor("--state-dir", str(here.folder / "a" / "b"), "--", "true")
    assert (found.status, "not made yet" in found.one("state")["text"]) == (0, True)
    assert not (here.folder / "a").exists()


def test_a_long_path_moves_the_control_socket_and_is_said(here: Patient) -> None:
    long = here.folder / ("x" * 120)
    found = here.doctor("--state-dir", str(long), "--", "true")
    assert (found.status, "/tmp/beads-workers-" in found.one("state")["text"]) == (0, True)


# --- the repository ---------------------------------------------------------------------------


def test_uncommitted_changes_are_a_warning_and_the_remedy_commits_them(here: Patient) -> None:
    here.environment |= {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1"}
    assert (
        here.type("git init -q .; git config user.name A; git config user.email a@b").stdout == ""
    )
    (here.folder / "notes").write_text("unfinished")
    found = here.doctor("--", "true")
    assert (found.status, found.problems()) == (0, {"git"})
    assert found.one("git")["text"].startswith("2 uncommitted changes")
    mended(here, "git", "--", "true")


def test_what_the_tracker_writes_is_nobody_s_unfinished_work(here: Patient) -> None:
    assert (
        here.type("rm beads-workers.toml; git init -q . && mkdir .beads && touch .beads/x").stdout
        == ""
    )
    assert here.doctor("--source", "sqlite", "--", "true").one("git")["status"] == "ok"


def test_agents_need_a_repository_and_a_name_to_commit_with(here: Patient) -> None:
    here.environment |= {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1"}
    here.put("mine", "#!/bin/sh\n")
    (here.folder / "beads-workers.toml").write_text('[agents.mine]\nargv = ["mine"]\n')
    mended_once = here.doctor("--agent", "mine").one("git")
    assert mended_once["remedy"] == "git init"
    assert here.type("git init -q . && git add -A && rm .git/index && echo '*' >.git/info/exclude")
    found = here.doctor("--agent", "mine").one("git")
    assert "user.name and user.email not set" in found["text"]
    mended(here, "git", "--agent", "mine")


def test_branches_of_ours_are_counted(here: Patient) -> None:
    script = "git init -q . && git add -A && git -c user.name=a -c user.email=b commit -qm x"
    assert here.type(f"{script} && git branch bw/x/1 && git branch bw/x/2").returncode == 0
    assert here.doctor("--", "true").one("git")["text"].endswith("clean, 2 branches bw/*")


@pytest.mark.skipif(os.geteuid() != 0, reason="needs another user")
def test_a_repository_of_another_user_is_declared_safe(here: Patient) -> None:
    assert here.type("git init -q .").returncode == 0
    os.chown(here.folder, 12345, 12345)
    os.chown(here.folder / ".git", 12345, 12345)
    assert "belongs to another user" in here.doctor("--", "true").one("git")["text"]
    assert here.type(here.doctor("--", "true").one("git")["remedy"]).returncode == 0
    assert "uncommitted" in here.doctor("--", "true").one("git")["text"]


# --- leftovers --------------------------------------------------------------------------------


def pid_of(here: Patient) -> int:
    """The orchestrator that runs there."""
    shown = here.type("beads-workers status --json").stdout
    return int(shown.split('"pid": ')[1].split(",")[0])


def test_a_living_fleet_is_no_fault_and_a_killed_one_is_settled_by_the_remedy(
    here: Patient,
) -> None:
    """From a fleet at work to one that was killed, with a task that escaped it, and back."""
    assert here.type("beads-workers add one -- sleep 100").returncode == 0
    started = here.type("beads-workers start -d -n 1")
    assert started.returncode == 0, started.stderr
    pid = pid_of(here)
    until(
        lambda: (
            '"status":"in_progress"' in here.type("beads-workers export").stdout.replace(" ", "")
        )
    )
    found = here.doctor()
    assert (found.problems(), f"pid {pid}" in found.one("fleet")["text"]) == (set(), True)
    other = here.doctor("--state-dir", str(here.folder.parent / "other"))
    assert (other.problems(), f"(pid {pid})" in other.one("fleet")["text"]) == ({"fleet"}, True)
    began = sessions.start_time(pid)
    assert began is not None
    assert sessions.kill(pid, began, signal.SIGKILL)
    until(lambda: sessions.start_time(pid) is None)
    found = here.doctor()
    assert found.problems() == {"leftovers"}
    assert "ended without settling" in str(found.shown)
    assert "in /tmp of orchestrators" in str(found.shown)
    # The start that settles it removes its dead socket, too; others may be other people's.
    (crashed,) = [check for check in found.all("leftovers") if "settling" in check["text"]]
    assert here.type(crashed["remedy"]).returncode == 0
    assert not Path(f"/tmp/beads-workers-{pid}.sock").exists()
    assert here.doctor().problems() == set()
    assert '"in_progress"' not in here.type("beads-workers export").stdout


def test_a_process_that_a_crashed_run_left_is_named_and_ended_by_the_remedy(here: Patient) -> None:
    assert here.type("beads-workers start -n 1 --until-empty -- true").returncode == 0
    (run,) = (here.folder / ".beads-workers" / "runs").iterdir()
    script = f"exec flock {shlex.quote(str(run / 'alive'))} sleep 100"
    left = subprocess.Popen(["sh", "-c", script])
    try:
        until(lambda: here.doctor("--", "true").problems() == {"leftovers"})
        assert f"still live: {left.pid}" in here.doctor("--", "true").one("leftovers")["text"]
        remedy = here.doctor("--", "true").one("leftovers")["remedy"]
        assert here.type(remedy).returncode == 0
        left.wait(10)
    finally:
        left.kill()
        left.wait()


# --- worktrees --------------------------------------------------------------------------------


def test_agents_that_would_share_a_checkout_are_refused_as_start_refuses_them(
    here: Patient,
) -> None:
    here.put("mine", "#!/bin/sh\n")
    (here.folder / "beads-workers.toml").write_text('[agents.mine]\nargv = ["mine"]\n')
    script = "git init -q . && git config user.name a && git config user.email b && git add -A"
    assert here.type(f"{script} && git commit -qm x").returncode == 0
    found = here.doctor("--agent", "mine", "-n", "3")
    assert (found.status, found.problems()) == (1, {"worktree"})
    remedy = shlex.split(found.one("worktree")["remedy"])
    assert remedy[:2] == ["beads-workers", "doctor"]
    for arguments in (remedy[2:], ["--agent", "mine", "-n", "3", "--shared-checkout"]):
        # That nothing is verified before it lands is another matter.
        assert here.doctor(*arguments).problems() <= {"landing"}
    (here.folder / "new").touch()
    text = here.doctor(*remedy[2:]).one("git")["text"]
    assert text == "1 uncommitted change: tasks in worktrees would not see them"


@pytest.mark.parametrize("already", ["", "git init -q ."])
def test_worktrees_need_a_commit_and_the_remedy_makes_one(here: Patient, already: str) -> None:
    identity = {"GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "b"}
    here.environment |= identity | {"GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "b"}
    assert here.type(already or ":").returncode == 0
    mended(here, "worktree", "--worktree", "--", "true")


def test_a_disk_below_the_floor_of_worktrees_is_said_before_the_attempts_say_it(
    here: Patient,
) -> None:
    script = "git init -q . && git config user.name a && git config user.email b && git add -A"
    assert here.type(f"{script} && git commit -q --allow-empty -m x").returncode == 0
    (here.folder / "beads-workers.toml").write_text('[worktree]\ndisk_floor = "1000000GB"\n')
    found = here.doctor("--worktree", "--", "true").one("worktree")
    assert found["status"] == "fail" and "no attempt begins below 1000000 GB" in found["text"]
    assert here.type(found["remedy"]).returncode == 0
