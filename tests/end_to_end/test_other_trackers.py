"""A tracker of somebody else's: one file, one line in the registry, and every command is right.

The line is added by a ``sitecustomize`` that every process of the test finds, the orchestrator too.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support import fake_gh
from tests.support.trust import TRUSTED

ROOT = Path(__file__).parent.parent.parent
LINE = """
from beads_workers.registry import KINDS
KINDS["labels"] = "tests.contracts.github:KIND"
KINDS["gone"] = "beads_workers.sources.gone.kind:KIND"
"""


class Repository:
    """A folder whose settings name a GitHub repository, with a ``gh`` on the PATH."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "project"
        self.folder.mkdir()
        self.gh = fake_gh.install(folder / "bin")
        (folder / "site").mkdir()
        (folder / "site" / "sitecustomize.py").write_text(LINE)
        self.settings('source = "labels:me/shop"')
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("BEADS_", "BD_", "BW_"))}
        path = f"{self.gh.parent}:{Path(sys.executable).parent}:{os.environ['PATH']}"
        places = f"{folder / 'site'}:{ROOT}"
        self.environment = {**kept, **TRUSTED, "PATH": path, "PYTHONPATH": places, "NO_COLOR": "1"}

    def settings(self, text: str) -> None:
        (self.folder / "beads-workers.toml").write_text(text + "\n")

    def call(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-P", "-m", "beads_workers", *words],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    def asked(self, *words: str) -> Any:
        done = self.call(words[0], "--json", *words[1:])
        assert done.stdout, done.stderr
        return json.loads(done.stdout)


@pytest.fixture
def shop(tmp_path: Path) -> Repository:
    """Two issues, of which the second waits for the first, and one that is closed."""
    shop = Repository(tmp_path)
    fake_gh.create(shop.gh, "Pay", labels=("P1", "money"))
    fake_gh.create(shop.gh, "Ship", "Blocked by #1\n", ("P0",))
    fake_gh.create(shop.gh, "Old")
    fake_gh.change(shop.gh, "3", state="CLOSED")
    return shop


def test_list_and_show_tell_of_its_issues(shop: Repository) -> None:
    listed = shop.call("list")
    assert listed.stdout.splitlines() == [
        "2  P0  open         Ship  waits for 1",
        "1  P1  open         Pay  [money]",
    ]
    assert [row["id"] for row in shop.asked("list")] == ["2", "1"]
    assert shop.call("list", "--all").returncode == 2
    shown = shop.call("show", "3").stdout
    assert "title: Old\n" in shown and "status: closed\n" in shown
    assert shop.asked("show", "2")["dependencies"][0]["depends_on_id"] == "1"
    unknown = shop.call("show", "9")
    assert (unknown.returncode, unknown.stderr.splitlines()[0]) == (4, "error: no such issue: 9")


def test_why_explains_before_and_after_a_run(shop: Repository) -> None:
    waiting = shop.asked("why", "2")
    assert [reason["cause"] for reason in waiting["reasons"]] == ["blocked", "no_fleet"]
    assert waiting["waits_for"][-1]["issue_id"] == "1"
    overview = shop.asked("why")
    assert {each["cause"]: each["count"] for each in overview["groups"]} == {
        "ready": 1,
        "blocked": 1,
    }
    assert shop.call("why", "9").returncode == 4


def test_a_fleet_drains_it_in_the_order_of_its_dependencies(shop: Repository) -> None:
    dry = shop.call("start", "--dry-run", "--", "true")
    assert "tracker  labels: me/shop, gh version 2.60.0 (fake); 3 issues\n" in dry.stdout
    assert "1 P1 Pay\n" in dry.stdout and "Ship" not in dry.stdout
    (shop.folder / "do.sh").write_text("echo $1 >> ../order; test -s $BW_ISSUE_FILE\n")
    done = shop.call("start", "-n", "2", "--until-empty", "--", "sh", "do.sh", "{id}")
    assert done.returncode == 0, done.stderr
    assert (shop.folder.parent / "order").read_text().split() == ["1", "2"]
    assert [fake_gh.read(shop.gh, number)["state"] for number in ("1", "2")] == ["CLOSED"] * 2
    assert shop.asked("status")["last_run"]["exit_code"] == 0


def test_what_fails_is_quarantined_there_and_why_says_so(shop: Repository) -> None:
    words = ("-n", "1", "--until-empty", "--max-attempts", "1", "--", "sh", "-c", "echo no; exit 3")
    assert shop.call("start", *words).returncode == 7
    issue = fake_gh.read(shop.gh, "1")
    assert "status:blocked" in issue["labels"] and "no" in issue["comments"][-1]
    assert "quarantined" in [each["cause"] for each in shop.asked("why", "1")["reasons"]]


def test_doctor_looks_at_it_and_at_what_is_in_its_way(shop: Repository) -> None:
    sound = shop.asked("doctor", "--", "true")
    checks = {check["name"]: check for check in sound["checks"]}
    assert checks["tracker"]["status"] == "ok"
    assert checks["tracker"]["text"].startswith("labels: me/shop, gh version 2.60.0 (fake)")
    assert checks["issues"]["text"] == "1 ready, 1 blocked"
    (shop.gh.parent / "issues.json").write_text("no JSON")
    broken = shop.call("doctor", "--", "true")
    assert broken.returncode == 6 and "FAIL  tracker" in broken.stdout


def test_what_it_does_not_promise_is_refused(shop: Repository) -> None:
    shared = shop.call("start", "--shared", "--", "true")
    assert shared.returncode == 2
    assert (
        shared.stderr.splitlines()[0] == "error: --shared goes with bd only: GitHub has no leases"
    )
    worker = shop.call("start", "--bd-calls", "worker", "--", "true")
    assert worker.returncode == 2 and "--bd-calls worker goes with bd only" in worker.stderr


@pytest.mark.parametrize("command", [("start", "--", "true"), ("why",), ("doctor",), ("list",)])
def test_a_kind_whose_module_is_missing_is_one_clear_line(
    shop: Repository, command: tuple[str, ...]
) -> None:
    shop.settings('source = "gone"')
    done = shop.call(*command)
    assert done.returncode == 2
    error, hint = done.stderr.splitlines()
    assert error == "error: the source gone is not part of this installation"
    assert hint == "hint: known are bd, sqlite, rrq, hero, dispatcherd, forge, labels"


def test_a_repository_that_is_none_is_told(shop: Repository) -> None:
    shop.settings('source = "labels:shop"')
    done = shop.call("start", "--", "true")
    assert done.returncode == 6
    assert done.stderr.splitlines()[0] == "error: --source: 'labels:shop' names no repository"


def test_the_form_of_it_is_named_among_the_others(shop: Repository) -> None:
    shop.settings("")
    done = shop.call("start", "--source", "jira", "--", "true")
    assert '"labels:OWNER/REPOSITORY" or a URL' in done.stderr
