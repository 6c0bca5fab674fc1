"""What ``doctor`` says of trackers: both generations of ``bd``, and the built-in one."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from beads_workers.checks.tracker import _known_faults
from beads_workers.runtime.run_directory import host_name
from tests.cli.doctor_support import Patient, initialised, patient
from tests.support.bd import OLD, BdProject
from tests.support.fleet import until

pytestmark = pytest.mark.daily(3)

GONE = f"beads-workers/{host_name()}/20200101-000000.000-abcdef"
"""The actor of a run whose run directory somebody has deleted."""


def of(project: BdProject) -> Patient:
    """The project of a tracker, with its ``bd`` on PATH."""
    found = patient(project.folder.parent, {k: project.environment[k] for k in ("HOME",)})
    found.environment["BEADS_AUTO_START_DAEMON"] = "false"
    (found.bin / "bd").symlink_to(project.directory / "bd")
    return found


def test_a_sound_bd_is_described_counted_and_left_as_it_is(project: BdProject) -> None:
    sqlite_project = of(project)
    ready = project.create_many([{}, {"status": "in_progress", "assignee": "ann"}])[0]
    before = project.read_all()
    found = sqlite_project.doctor("--", "true")
    assert (found.status, found.problems() - {"git"}) == (0, set())
    text = found.one("tracker")["text"]
    assert text.startswith(f"bd {project.version} (") and str(project.folder / ".beads") in text
    assert ("has atomic claims, leases, batch" in text) == (project.version != OLD)
    assert found.one("issues")["text"] == "1 ready, 0 blocked, 1 in progress"
    assert project.read_all() == before
    assert before[ready] == ("open", "")


def test_issues_of_a_run_that_nobody_knows_are_requeued_by_the_remedy(project: BdProject) -> None:
    sqlite_project = of(project)
    stuck, other = project.create_many([{}, {}])
    project.put(stuck, "in_progress", GONE)
    project.put(other, "in_progress", "ann")
    settled = project.folder / ".beads-workers" / "runs" / GONE.rpartition("/")[2] / "settled"
    settled.parent.mkdir(parents=True)
    settled.touch()
    found = sqlite_project.doctor("--", "true").one("issues")
    lost = "; that run had opened or closed them: the tracker did not keep what it wrote"
    assert found["text"] == f"1 issue held by a run that is over ({GONE}): {stuck}{lost}"
    assert sqlite_project.type(found["remedy"]).returncode == 0
    assert project.read_all() == {stuck: ("open", ""), other: ("in_progress", "ann")}


def test_what_is_in_progress_in_nobodys_name_is_opened_by_the_remedy(project: BdProject) -> None:
    sqlite_project = of(project)
    stale, other = project.create_many([{"status": "in_progress"}, {"status": "in_progress"}])
    project.put(other, "in_progress", "ann")
    found = sqlite_project.doctor("--", "true").one("issues")
    assert found["text"].startswith(f"1 issue is in progress, in nobody's name: {stale};")
    assert sqlite_project.type(found["remedy"]).returncode == 0
    assert project.read_all() == {stale: ("open", ""), other: ("in_progress", "ann")}
    assert sqlite_project.type(f"beads-workers release {other}").returncode == 0
    assert project.read(other) == ("open", "")


def test_known_faults_of_bd_are_named(tmp_path: Path) -> None:
    withdrawn, server = list(_known_faults("1.2.1", tmp_path)), tmp_path / "dolt"
    assert "1.2.1 was withdrawn" in withdrawn[0].text and withdrawn[0].remedy
    shutil.copy("/bin/sleep", server)
    with subprocess.Popen([server, "60"]) as process:
        (tmp_path / "dolt-server.pid").write_text(f"{process.pid}\n")
        assert list(_known_faults("1.3.0", tmp_path)) == []
        server.unlink()
        (old,) = _known_faults("1.3.0", tmp_path)
        assert f"pid {process.pid}" in old.text and "bd dolt stop" in old.remedy
        process.kill()
    assert list(_known_faults("1.3.0", tmp_path)) == []


def test_a_bd_that_is_not_on_path_is_found_where_installers_put_it(project_old: BdProject) -> None:
    sqlite_project = of(project_old)
    home = sqlite_project.folder.parent / "home of somebody"
    (home / "go" / "bin").mkdir(parents=True)
    (sqlite_project.bin / "bd").rename(home / "go" / "bin" / "bd")
    sqlite_project.environment["HOME"] = str(home)
    found = sqlite_project.doctor("--", "true")
    assert found.status == 6
    remedy = found.one("tracker")["remedy"]
    # On a machine with too much to do a call of bd may take longer than doctor waits for it.
    until(
        lambda: sqlite_project.doctor("--", "true", before=remedy).one("tracker")["status"] == "ok"
    )
    shutil.rmtree(home / "go")
    assert (
        sqlite_project.doctor("--", "true").one("tracker")["remedy"].startswith("npm install -g ")
    )


def test_a_bd_that_is_locked_names_the_holder_and_the_remedy_waits_for_it(
    project_new: BdProject,
) -> None:
    sqlite_project = of(project_new)
    lock = project_new.folder / ".beads" / "embeddeddolt.gate.lock"
    holder = subprocess.Popen(["flock", "-x", str(lock), "sleep", "100"], start_new_session=True)
    try:
        until(lambda: sqlite_project.doctor("--", "true").status == 6)
        # From another process: children of one's own are not in one's own way.
        found = sqlite_project.doctor("--", "true", before=":").one("tracker")
        assert f"pid {holder.pid} (flock -x) has it open" in found["text"]
        waiting = subprocess.Popen(["sh", "-c", found["remedy"]])
    finally:
        os.killpg(holder.pid, 9)
        holder.wait()
    assert waiting.wait(10) == 0
    assert sqlite_project.doctor("--", "true").status == 0


def test_a_variable_that_sends_bd_elsewhere_is_named(project_old: BdProject) -> None:
    sqlite_project = of(project_old)
    sqlite_project.environment["BEADS_DIR"] = str(project_old.folder / ".beads")
    assert sqlite_project.doctor("--", "true").one("tracker")["status"] == "ok"
    elsewhere = project_old.folder.parent / "elsewhere"
    shutil.copytree(project_old.folder / ".beads", elsewhere / ".beads")
    sqlite_project.environment["BEADS_DIR"] = str(elsewhere / ".beads")
    found = sqlite_project.doctor("--", "true").one("tracker")
    assert found["remedy"] == "unset BEADS_DIR"
    assert (
        sqlite_project.doctor("--", "true", before="unset BEADS_DIR").one("tracker")["status"]
        == "ok"
    )


def test_a_bd_without_claims_is_too_old(project_old: BdProject) -> None:
    sqlite_project = of(project_old)
    (sqlite_project.bin / "bd").unlink()
    sqlite_project.put("bd", "#!/bin/sh\necho bd version 0.9.0, Usage: bd\n")
    found = sqlite_project.doctor("--", "true")
    assert (found.status, "too old" in found.one("tracker")["text"]) == (6, True)


def test_a_bd_that_cannot_be_understood_is_shown_as_it_is(project_old: BdProject) -> None:
    sqlite_project = of(project_old)
    (sqlite_project.bin / "bd").unlink()
    sqlite_project.put("bd", "#!/bin/sh\necho 'some other program'\n")
    found = sqlite_project.doctor("--", "true")
    assert (found.status, "is no tracker" in found.one("tracker")["text"]) == (6, False)
    assert found.one("tracker")["remedy"]


# --- the built-in tracker ---------------------------------------------------------------------


@pytest.fixture
def sqlite_project(tmp_path: Path) -> Patient:
    """A project with a built-in tracker."""
    return initialised(tmp_path)


def test_a_database_that_is_none_is_put_aside_by_the_remedy(sqlite_project: Patient) -> None:
    database = sqlite_project.folder / ".beads-workers" / "tracker.db"
    database.write_bytes(b"not a database" * 100)
    found = sqlite_project.doctor("--", "true")
    assert (found.status, found.problems()) == (6, {"tracker"})
    assert sqlite_project.type(found.one("tracker")["remedy"]).returncode == 0
    assert sqlite_project.doctor("--", "true").status == 0
    assert database.with_name("tracker.db.broken").exists()


def test_issues_that_agents_filed_are_counted_as_such(sqlite_project: Patient) -> None:
    script = "beads-workers add mine; BEADS_ACTOR=beads-workers/host/run/W1 beads-workers add found"
    assert sqlite_project.type(script).returncode == 0
    text = sqlite_project.doctor("--agent", "claude").one("issues")["text"]
    assert text.startswith("1 ready, 0 blocked, 1 filed by agents, which wait for you")
    assert sqlite_project.doctor("--", "true").one("issues")["text"] == "2 ready, 0 blocked"


def test_counts_are_those_of_the_filters(sqlite_project: Patient) -> None:
    script = "a=$(beads-workers add one); beads-workers add two --dep $a -l x"
    assert sqlite_project.type(script).returncode == 0
    assert sqlite_project.doctor("--", "true").one("issues")["text"] == "1 ready, 1 blocked"
    assert sqlite_project.doctor().one("issues")["text"] == "1 ready, 1 blocked", (
        "without a command as well"
    )
    (sqlite_project.folder / "beads-workers.toml").write_text('label = ["x"]\n')
    text = sqlite_project.doctor("--", "true").one("issues")["text"]
    assert text == "0 ready, 1 blocked, with the filters of this fleet"
