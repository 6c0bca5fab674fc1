"""What hosts have when no fleet runs: ``branches`` tells of it, and ``clean`` removes it."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support import fleet
from tests.support.embedded import EmbeddedProject
from tests.support.fleet import Fleet, until
from tests.support.hosts import Hosts
from tests.support.processes import send
from tests.support.repository import git, make_repository

pytestmark = pytest.mark.peers

AWAY = ".cache/beads-workers/away"
WORK = (
    'while [ ! -e ~/end ]; do sleep 0.1; done; echo a >"$BW_ISSUE_ID"; git add .; git commit -qm a'
)


class Left:
    """A project whose fleet had hosts."""

    def __init__(self, folder: Path, hosts: Hosts) -> None:
        self.hosts, self.project = hosts, EmbeddedProject(folder)
        make_repository(self.project.folder)
        self.project.environment |= {
            "PATH": f"{hosts.bin}:{self.project.environment['PATH']}",
            "HOME": str(folder),
        }

    def fleet(self, work: str = WORK, *options: str) -> Fleet:
        places = (f"--on=ssh:{host.name}:1" for host in self.hosts)
        words = (*places, *options, "--until-empty", "--", "sh", "-c", work)
        return Fleet(self.project, *words)

    def call(self, *words: str) -> dict[str, Any]:
        """What a command says as JSON."""
        found: dict[str, Any] = json.loads(fleet.call(self.project, *words, "--json").stdout)
        return found

    def away(self) -> list[tuple[str, bool]]:
        """Where attempts are, and whether they have ended."""
        rows = self.call("branches")["away"]
        return sorted((row["host"], row["ended"]) for row in rows)

    def reasons(self, *words: str) -> dict[str, str]:
        """Why ``clean`` leaves a host alone."""
        rows = self.call("clean", *words)["hosts"]
        return {row["host"]: " ".join(row["reasons"]) for row in rows}

    def kept(self) -> list[str]:
        """The hosts that have anything of the fleet."""
        return [host.name for host in self.hosts if [*(host.home / AWAY).glob("*")]]


@pytest.fixture
def left(tmp_path: Path) -> Iterator[Left]:
    with Hosts(tmp_path, 2) as hosts:
        yield Left(tmp_path, hosts)


def test_attempts_on_hosts_are_told_and_never_cleaned_away(left: Left) -> None:
    left.project.create_many([{}, {}])
    assert left.away() == [] and left.reasons() == {}
    first = left.fleet()
    until(lambda: len(left.away()) == 2)
    assert set(left.reasons()) == {"n1", "n2"} and "already running" in left.reasons()["n1"]

    send([first.process.pid, first.pid, *first.token_holders()], signal.SIGKILL)
    first.process.wait()
    assert left.away() == [("n1", False), ("n2", False)]
    assert "it has attempts: bw-" in left.reasons()["n1"]
    (left.hosts["n1"].home / "end").touch()
    until(lambda: left.away() == [("n1", True), ("n2", False)])
    assert "it has attempts: bw-" in left.reasons()["n1"]

    (left.hosts["n2"].home / "end").touch()
    second = left.fleet()
    assert second.process.wait(60) == 0
    assert {status for status, _ in left.project.read_all().values()} == {"closed"}
    landed = git(left.project.folder, "ls-tree", "--name-only", "bw-landing/main").split()
    assert {"bw-1", "bw-2"} <= set(landed)
    assert left.away() == []

    left.hosts["n1"].cut()
    assert "not answered" in left.reasons("--dry-run")["n1"] and left.kept() == ["n1", "n2"]
    assert left.reasons()["n2"] == "" and left.kept() == ["n1"]
    left.hosts["n1"].mend()
    assert left.reasons() == {"n1": "", "n2": ""} and left.kept() == []
    first.end()
    second.end()


def test_hosts_keep_what_may_be_work_of_an_issue_that_is_not_done(left: Left) -> None:
    left.project.create_many([{"id": "bw-1"}])
    first = left.fleet('echo a >"$BW_ISSUE_ID"; exit 3', "--max-attempts=1")
    first.process.wait(60)
    assert left.reasons() == dict.fromkeys(("n1", "n2"), "it may have work of bw-1")
    assert left.kept()
    first.end()
