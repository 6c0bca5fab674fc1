"""A whole fleet on a real Gitea: a backlog is drained, whatever is killed, and no token leaks."""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path

import pytest

from beads_workers.core.base.model import IssueId
from beads_workers.integrations.forge import reading
from tests.integrations.forge.tracker import LOGIN, GiteaTracker
from tests.support import warm
from tests.support.fleet import Fleet, until
from tests.support.processes import send
from tests.support.repository import git, make_repository

pytestmark = [pytest.mark.peers, pytest.mark.daily(2)]

WORK = 'echo "$BW_ISSUE_ID" >"w$BW_ISSUE_ID"; git add .; git commit -qm "work, fixes #1"; sleep 0.3'


class GiteaProject:
    """A git repository whose issues are on a forge."""

    def __init__(self, folder: Path) -> None:
        self.tracker = GiteaTracker(folder)
        self.at = self.tracker.at
        self.folder = make_repository(folder / "project")
        source = f"gitea:{self.at.server.url}/{self.at.owner}/{self.at.name}"
        (self.folder / "beads-workers.toml").write_text(f'source = "{source}"\n')
        git(self.folder, "add", ".")
        git(self.folder, "commit", "-qm", "settings")
        kept = {name: text for name, text in os.environ.items() if not name.startswith("BW_")}
        self.environment = kept | {
            "GITEA_TOKEN": self.at.server.user(LOGIN).token,
            "HOME": str(folder),
            "XDG_STATE_HOME": str(folder / "state"),
            "XDG_CACHE_HOME": str(folder / "cache"),
            "NO_COLOR": "1",
        }

    def read_all(self) -> dict[IssueId, tuple[str, str]]:
        return self.tracker.read_all()

    def landed(self) -> list[str]:
        found = git(self.folder, "ls-tree", "--name-only", "bw-landing/main").split()
        return sorted(name for name in found if name.startswith("w"))


@pytest.fixture
def project(tmp_path: Path) -> GiteaProject:
    return GiteaProject(tmp_path)


def test_a_backlog_is_drained_in_order_and_the_token_stays_with_the_source(
    project: GiteaProject,
) -> None:
    at = project.at
    for number in range(1, 7):
        waits = f"blocked by #{number - 1}" if number % 3 == 0 else ""
        assert at.issue(f"issue {number}", waits, "ready") == number
    at.issue("a stranger's", "", "ready", by="eve")
    token = project.environment["GITEA_TOKEN"]
    leak = f'! env | grep -q {token} && ! cat /proc/$PPID/environ | grep -aq "no such text";{WORK}'
    words = ("-n", "3", "--worktree", "--verify", "! env | grep -q GITEA_TOKEN", "--until-empty")
    fleet = Fleet(project, *words, "--skip-base-check", "--", "sh", "-c", leak)
    assert fleet.process.wait(120) == 0
    assert project.landed() == [f"w{number}" for number in range(1, 7)]
    shown = project.read_all()
    assert {key: shown[key][0] for key in map(IssueId, "1234567")} == {
        **dict.fromkeys(map(IssueId, "123456"), "closed"),
        IssueId("7"): "open",
    }
    for number in range(1, 8):
        labels = {each["name"] for each in at.read(number)["labels"]}
        assert labels == {"ready"}
        texts = [each["body"] for each in at.comments(number)]
        assert not any("beads-workers claim" in text for text in texts) and len(texts) <= 1
    fleet.end()


def test_the_commits_of_agents_close_nothing_when_they_are_pushed(project: GiteaProject) -> None:
    at = project.at
    done, other, last = at.issue("done", "", "ready"), at.issue("other"), at.issue("last")
    words = f"work, fixes #{other}\\n\\nCloses #{other} for @alice\\n\\nFixes: #{other}"
    commit = f'printf "{words}" | git commit -qF -'
    work = ("--worktree", "--until-empty", "--", "sh", "-c", f"echo x >w; git add w; {commit}")
    fleet = Fleet(project, "-n", "1", *work)
    assert fleet.process.wait(120) == 0
    fleet.end()
    assert at.read(done)["state"] == "closed"
    git(project.folder, "checkout", "-q", "bw-landing/main")
    said = git(project.folder, "log", "-1", "--format=%B").replace("\u200b", "")
    assert f"fixes #{other}" in said and f"Fixes: #{other}" in said
    git(project.folder, "commit", "--allow-empty", "-qm", f"a person: closes #{last}")
    token = at.server.user("root").token
    url = at.server.url.replace("//", f"//root:{token}@")
    git(project.folder, "push", "-qf", f"{url}/{at.owner}/{at.name}.git", "HEAD:main")
    until(lambda: at.read(last)["state"] == "closed", 30.0)
    assert at.read(other)["state"] == "open"


def test_nothing_is_lost_or_done_twice_whatever_is_killed(project: GiteaProject) -> None:
    at, chance = project.at, random.Random(7)
    count = 12
    for number in range(1, count + 1):
        waits = f"blocked by #{number - 1}" if number % 4 == 0 else ""
        at.issue(f"issue {number}", waits, "ready")
    words = ("-n", "3", "--worktree", "--until-empty", "--", "sh", "-c", WORK)
    for _ in range(6):
        fleet = Fleet(project, *words)
        time.sleep(chance.uniform(1.0, 6.0))
        if chance.random() < 0.5:
            at.server.kill()
            time.sleep(chance.uniform(0.1, 1.0))
            at.server.start()
            time.sleep(chance.uniform(0.5, 2.0))
        send([fleet.process.pid, fleet.pid, *fleet.token_holders()], signal.SIGKILL)
        fleet.process.wait(30)
        fleet.end()
    last = Fleet(project, *words)
    assert last.process.wait(180) == 0
    last.end()
    assert project.landed() == sorted(f"w{number}" for number in range(1, count + 1))
    subjects = git(project.folder, "log", "--format=%s", "bw-landing/main").splitlines()
    assert len(subjects) == count + 2, "each landed once"
    shown = until(lambda: project.read_all())
    assert {status for status, _ in shown.values()} == {"closed"}
    for number in range(1, count + 1):
        labels = {each["name"] for each in at.read(number)["labels"]}
        assert not labels & {*reading.OURS}
        texts = [each["body"] for each in at.comments(number)]
        assert not any("beads-workers claim" in text for text in texts), texts
        assert len(texts) <= 1, texts
        events = at.server.user("root").ask("GET", f"{at.path}/issues/{number}/timeline")
        assert [each["type"] for each in events].count("close") == 1


def test_an_undo_of_which_the_forge_was_not_told_says_so(project: GiteaProject) -> None:
    at = project.at
    number = at.issue("one", "", "ready")
    fleet = Fleet(project, "-n", "1", "--worktree", "--until-empty", "--", "sh", "-c", WORK)
    assert fleet.process.wait(120) == 0
    fleet.end()
    at.server.kill()
    done = warm.run(("undo", f"#{number}", "--trust"), project.folder, project.environment, 60)
    at.server.start()
    assert done.returncode == 7, (done.stdout, done.stderr)
    assert f"not open again in the tracker: {number}" in done.stderr
    again = warm.run(("reopen", f"#{number}"), project.folder, project.environment, 60)
    assert again.returncode == 0 and at.read(number)["state"] == "open"
