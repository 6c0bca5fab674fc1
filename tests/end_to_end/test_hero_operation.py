"""A fleet and a client on one Redis, each with the least rights: what they can do, who sees what.

The rules are those of docs/HERO.md; the client is our own.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.end_to_end.conftest import StartFleet
from tests.support import warm
from tests.support.fleet import Fleet, until
from tests.support.hero_client import HeroPlace
from tests.support.peers import Redis
from tests.support.redis_users import add_user, denied

pytestmark = pytest.mark.daily(2)

SECRET = "swordfish-of-the-client"
VALIDATOR = """#!/bin/sh
echo x >>validated
if grep -q forbidden; then echo 'forbidden words'; exit 1; fi
"""
SETTINGS = """
[hero]
url = "{url}"
worker = "w1"
log_root = "{root}"

[hero.contexts.sh]
command = ["sh"]
validator = ["./check"]
env = ["*"]
file_size = "1MB"
"""


class Site:
    """A project with settings, whose Redis has a user for the fleet and one for the client."""

    def __init__(self, folder: Path, redis: Redis, start: StartFleet) -> None:
        self.redis = redis
        self.place = HeroPlace(folder, redis)
        self.folder = self.place.folder
        self.root = folder / "logs"
        self.root.mkdir()
        fleet, client = (add_user(redis, kind, folder) for kind in ("fleet", "client"))
        self._client_url = f"{client}?password_file={client.password_file}"
        settings = SETTINGS.format(url=fleet, root=self.root)
        (self.folder / "beads-workers.toml").write_text(settings)
        check = self.folder / "check"
        check.write_text(VALIDATOR)
        check.chmod(0o755)
        self._start = start

    def start(self) -> Fleet:
        """A fleet that finds its password in its environment."""
        password = {"BEADS_WORKERS_REDIS_PASSWORD": "of-fleet"}
        options = ("--source", "hero", "-n", "2")
        return self._start(self.place, *options, environment=password).started()

    def hero(self, verb: str, *words: str) -> subprocess.CompletedProcess[str]:
        """The client's command."""
        return warm.run(
            ("hero", verb, "--url", self._client_url, *words),
            self.folder,
            {**self.place.environment, "API_TOKEN": SECRET},
            timeout=90,
        )

    def run(self, script: str, *words: str) -> str:
        """Its output, or ``error: ...``."""
        done = self.hero("run", "--context", "sh", "--wait", "60", "-e", script, *words)
        return done.stdout if done.returncode == 0 else done.stderr.splitlines()[0]

    def submit(self, script: str, *words: str) -> str:
        """Its id."""
        done = self.hero("submit", "--context", "sh", "-e", script, *words)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()


@pytest.fixture
def site(tmp_path: Path, redis: Redis, start: StartFleet) -> Site:
    return Site(tmp_path, redis, start)


def test_both_do_all_their_work_under_the_least_rights(site: Site) -> None:
    fleet = site.start()
    assert site.run("echo hello") == "hello\n"
    assert site.run("mkdir once && exit 1; echo twice", "--retries", "1") == "twice\n"
    before = site.submit("echo before")
    assert site.run("echo after", "--after", before) == "after\n"
    failing = site.submit("test -e mended && echo mended")
    until(lambda: "status: error" in site.hero("status", failing).stdout)
    (site.folder / "mended").touch()
    assert site.hero("retry", failing).stdout == f"{failing} queued again\n"
    until(lambda: "output: mended" in site.hero("status", failing).stdout)
    blocker = site.submit("touch there; sleep 600")
    until((site.folder / "there").exists)
    waits = site.submit("echo never", "--after", blocker)
    for job_id in (waits, blocker):
        done = site.hero("stop", job_id, "--wait", "60")
        assert done.stdout == f"{job_id} ended: error stopped_by_request\n", done.stderr
    # What a run leaves that is killed is found by the next one.
    lost = site.submit("mkdir lost && sleep 600; echo again", "--retries", "1")
    until((site.folder / "lost").exists)
    os.kill(fleet.pid, signal.SIGKILL)
    fleet.wait()
    again = site.start()
    until(lambda: "again" in site.hero("status", lost).stdout)
    assert again.call("stop").returncode == 0
    assert denied(site.redis).split() == []


def test_a_script_that_is_refused_is_looked_at_once_and_never_run(site: Site) -> None:
    site.start()
    told = site.run("echo forbidden; touch ran", "--retries", "5")
    assert told == "error: the job failed: refused: forbidden words"
    assert (site.folder / "validated").read_text() == "x\n"
    assert not (site.folder / "ran").exists()
    told = site.run("touch ran", "--log-path", "../elsewhere", "--retries", "5")
    assert told.startswith("error: the job failed: log_path: ")
    assert not (site.folder / "ran").exists()


def test_secrets_are_seen_by_the_script_and_by_nobody_else(site: Site) -> None:
    fleet = site.start()
    words = ("--env", "API_TOKEN", "--log-path", "a/job.log", "--caller", "ann")
    script = "env >seen; echo $API_TOKEN; echo $API_TOKEN >&2; echo done"
    masked = "*" * len(SECRET)
    assert site.run(script, *words) == f"{masked}\ndone\n"
    assert site.run(f"{script}; exit 3", *words) in (
        "error: the job failed: done",
        f"error: the job failed: {masked}",
    )
    seen = (site.folder / "seen").read_text()
    assert f"API_TOKEN={SECRET}\n" in seen
    assert "of-fleet" not in seen, "a script has the fleet's own password"
    jobs = site.hero("list", "--json").stdout + site.hero("status", *ids(site)).stdout
    told = fleet.call("status", "--json").stdout + fleet.output + fleet.errors + jobs
    kept = [path for path in fleet.state_directory.rglob("*") if path.is_file()]
    logs = [path for path in site.root.rglob("*") if path.is_file()]
    found = {path: path.read_bytes() for path in (*kept, *logs)}
    for secret in (SECRET, "of-fleet"):
        assert secret not in told
        assert [path for path, content in found.items() if secret.encode() in content] == []
        assert secret.encode() not in arguments_of(fleet)
    assert [path.stat().st_mode & 0o777 for path in logs] == [0o600]
    assert masked in site.hero("logs", ids(site)[0]).stdout


def test_the_journal_says_who_wanted_what_run(site: Site) -> None:
    fleet = site.start()
    site.run("echo audited", "--caller", "ann", "--env", "A=b")
    (claimed,) = fleet.journal("claimed")
    assert claimed["path"] == "hero.script"
    assert claimed["arguments"]["kwargs"] == {
        "caller_id": "ann",
        "context_id": "sh",
        "script_sha256": hashlib.sha256(b"echo audited").hexdigest(),
        "env_vars": ["A"],
    }


def ids(site: Site) -> list[str]:
    """Of all jobs, the newest first."""
    return [job["id"] for job in json.loads(site.hero("list", "--json").stdout)["jobs"]]


def arguments_of(fleet: Fleet) -> bytes:
    """What ``ps`` shows of the orchestrator and of all that it has started."""
    found = b""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            session = (process / "stat").read_text().rpartition(")")[2].split()
            if fleet.pid in (int(process.name), int(session[1])):
                found += (process / "cmdline").read_bytes()
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found
