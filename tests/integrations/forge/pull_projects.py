"""Projects with a tracker of their own, whose repository is on a forge: what people and CI do
there with pull requests."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from beads_workers.core.base.model import IssueId, value
from tests.integrations.forge.tracker import LOGIN, GiteaTracker, GitHubTracker
from tests.support.embedded import EmbeddedProject
from tests.support.fleet import Fleet, until
from tests.support.github import NAME, OWNER
from tests.support.repository import git

WORK = 'echo "$BW_ISSUE_ID $(date +%N)" >"w$BW_ISSUE_ID"; git add .; git commit -qm "fixes #1"'
"""A new commit in each try."""
APPROVED, CHANGES = "APPROVED", "CHANGES"


@value
class Seen:
    """A pull request, as people see it."""

    number: int
    state: str
    commit: str
    title: str = ""
    body: str = ""


class _OnForge(EmbeddedProject):
    """See the module. Subclasses say how people do it on their forge."""

    forge: str
    repository_path: str
    """Of the repository itself, in the API."""
    url: str
    """Where people fetch and push."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        git(self.folder, "init", "-q", "-b", "main")
        (self.folder / ".gitignore").write_text(".beads-workers\n")
        (self.folder / "base").write_text("base\n")
        git(self.folder, "add", ".gitignore", "base")
        git(self.folder, "commit", "-qm", "base")

    def settings(self, *, look: str = "1s", **forge: Any) -> None:
        forge["look"] = look
        lines = [f"{name} = {json.dumps(value)}" for name, value in forge.items()]
        argv = f'argv = ["sh", "{self.folder.parent}/agent"]'
        agent = f'[agents.own]\nadapter = "plain"\n{argv}'
        parts = (agent, '[landing]\nvia = "pr"', "[forge]", *lines, "")
        (self.folder / "beads-workers.toml").write_text("\n".join(parts))

    def start(self, *words: str, work: str = WORK, verify: str = "true") -> Fleet:
        (self.folder.parent / "agent").write_text(work)
        options = ("-n", "2", "--worktree", "--until-empty", "--verify", verify, "--trust")
        return Fleet(self, *options, "--agent", "own", *words)

    def begin(self, *, work: str = WORK, verify: str = "true", **settings: Any) -> Fleet:
        """Start a fleet that has one issue to do."""
        self.settings(**settings)
        self.create_many([{"title": "one"}])
        return self.start(work=work, verify=verify)

    def state_of(self, issue_id: str) -> str:
        return self.read_all()[IssueId(issue_id)][0]

    def is_closed(self, issue_id: str) -> bool:
        return self.state_of(issue_id) == "closed"

    def only(self, holds: Callable[[Seen], bool] = lambda seen: True) -> Seen:
        """The one pull request, once this holds."""

        def found() -> Seen | None:
            seen = self.pulls()
            return seen[0] if len(seen) == 1 and holds(seen[0]) else None

        one = until(found)
        assert one is not None
        return one

    def pushed_after(self, before: Seen) -> Seen:
        """The one pull request, once something else was pushed to it."""
        return self.only(lambda seen: seen.commit != before.commit)

    def pulls(self) -> list[Seen]:
        """All of them, the oldest first."""
        raise NotImplementedError

    def delete_branch(self, seen: Seen) -> None:
        """Somebody deletes its branch; the forge closes it."""
        git(self.folder, "push", "-q", self.url, ":refs/heads/bw/bw-1/pr")

    def merge_what_waits(self) -> None:
        """The forge does what it was asked to do later, unless it does so by itself."""

    def push_to_main(self, files: Mapping[str, str]) -> None:
        """Somebody pushes to the branch."""
        clone = self.folder.parent / "somebody"
        git(self.folder, "clone", "-q", self.url, str(clone))
        for name, text in files.items():
            (clone / name).write_text(text)
        git(clone, "add", ".")
        git(clone, "commit", "-qm", "somebody's")
        git(clone, "push", "-q", "origin", "HEAD:main")


class GiteaPullProject(_OnForge):
    """On the one real Gitea."""

    forge = "gitea"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.at = GiteaTracker(folder).at
        server, self.repository_path = self.at.server, f" {self.at.path}"
        url = f"{server.url}/{self.at.owner}/{self.at.name}"
        self.url = url.replace("//", f"//root:{server.user('root').token}@")
        git(self.folder, "remote", "add", "origin", url)
        git(self.folder, "push", "-qf", self.url, "HEAD:main")
        self.environment["GITEA_TOKEN"] = server.user(LOGIN).token

    def ask(self, method: str, path: str, body: Any = None, by: str = "root") -> Any:
        return self.at.server.user(by).ask(method, f"{self.at.path}{path}", body)

    def pulls(self) -> list[Seen]:
        rows = self.ask("GET", "/pulls?state=all")
        found = [
            Seen(
                row["number"],
                "merged" if row["merged"] else row["state"],
                row["head"]["sha"],
                row["title"],
                row["body"],
            )
            for row in rows
        ]
        return sorted(found, key=lambda seen: seen.number)

    def check(self, seen: Seen, *, green: bool) -> None:
        state = "success" if green else "failure"
        fields = {"state": state, "context": "ci", "description": f"it is {state}"}
        self.ask("POST", f"/statuses/{seen.commit}", fields)

    def review(self, seen: Seen, state: str, text: str, by: str = "alice") -> None:
        event = "APPROVED" if state == APPROVED else "REQUEST_CHANGES"
        self.ask("POST", f"/pulls/{seen.number}/reviews", {"event": event, "body": text}, by)

    def merge(self, seen: Seen) -> None:
        path = f"/pulls/{seen.number}"
        until(lambda: self.ask("GET", path)["mergeable"])
        self.ask("POST", f"{path}/merge", {"Do": "squash"})

    def close(self, seen: Seen) -> None:
        self.ask("PATCH", f"/pulls/{seen.number}", {"state": "closed"})

    def reopen(self, seen: Seen) -> None:
        self.ask("PATCH", f"/pulls/{seen.number}", {"state": "open"})

    def retarget(self, seen: Seen, base: str) -> None:
        self.ask("PATCH", f"/pulls/{seen.number}", {"base": base})

    def comments(self, seen: Seen) -> list[str]:
        return [each["body"] for each in self.at.comments(seen.number)]

    def labels(self, seen: Seen) -> set[str]:
        return {each["name"] for each in self.ask("GET", f"/pulls/{seen.number}")["labels"]}

    def asked(self, seen: Seen) -> set[str]:
        rows = self.ask("GET", f"/pulls/{seen.number}")["requested_reviewers"]
        return {each["login"] for each in rows}

    def fork(self) -> None:
        name = f"{self.at.name}-of-root"
        self.ask("POST", "/forks", {"name": name})
        git(self.folder, "remote", "set-url", "origin", f"{self.at.server.url}/root/{name}")

    def need_approval(self) -> None:
        rule = {"rule_name": "main", "required_approvals": 1}
        self.ask("POST", "/branch_protections", rule)
        for other in self.ask("GET", "/collaborators"):
            self.ask("DELETE", f"/collaborators/{other['login']}")
        self.environment["GITEA_TOKEN"] = self.at.server.user("root").token

    def requests(self) -> list[str]:
        return [each for each in self.at.server.requests(LOGIN) if self.at.path in each]


class GitHubPullProject(_OnForge):
    """On a GitHub of its own, asked by the real ``gh``; git finds its repository in a folder."""

    forge = "github"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        tracker = GitHubTracker(folder)
        self.server, self.keeps = tracker.at, tracker
        self.repository_path = f" /repos/{OWNER}/{NAME}?"
        assert self.server.environment(LOGIN)
        bare = folder / "bare"
        git(self.folder, "clone", "-q", "--bare", ".", str(bare))
        self.server.pulls.bare = bare
        self.url = str(bare)
        url = f"https://{self.server.host}/{OWNER}/{NAME}.git"
        git(self.folder, "remote", "add", "origin", url)
        git(self.folder, "config", f"url.{bare}.insteadOf", url)
        self.environment |= self.server.environment(LOGIN)

    def pulls(self) -> list[Seen]:
        with self.server.lock:
            of, rows = self.server.pulls, self.server.pulls.rows.values()
            return [
                Seen(e["number"], e["state"].lower(), of.head(e), e["title"], e["body"])
                for e in rows
            ]

    def check(self, seen: Seen, *, green: bool) -> None:
        with self.server.lock:
            log = "one\ntwo\nit is broken here\n"
            self.server.pulls.check(seen.number, "SUCCESS" if green else "FAILURE", log)

    def review(self, seen: Seen, state: str, text: str, by: str = "alice") -> None:
        with self.server.lock:
            said = state if state == APPROVED else "CHANGES_REQUESTED"
            self.server.pulls.review(seen.number, said, text, by)

    def merge_what_waits(self) -> None:
        rows = self.server.pulls.rows
        until(lambda: all(row["later"] for row in rows.values()))
        with self.server.lock:
            for number in rows:
                self.server.pulls.merge(number)

    def merge(self, seen: Seen) -> None:
        with self.server.lock:
            self.server.pulls.merge(seen.number)

    def close(self, seen: Seen) -> None:
        with self.server.lock:
            self.server.pulls.close(seen.number)

    def reopen(self, seen: Seen) -> None:
        with self.server.lock:
            self.server.pulls.rows[seen.number] |= {"state": "OPEN", "commit": ""}

    def retarget(self, seen: Seen, base: str) -> None:
        with self.server.lock:
            self.server.pulls.rows[seen.number]["base"] = base

    def delete_branch(self, seen: Seen) -> None:
        self.close(seen)
        super().delete_branch(seen)

    def comments(self, seen: Seen) -> list[str]:
        return [str(each) for each in self.server.pulls.rows[seen.number]["comments"]]

    def labels(self, seen: Seen) -> set[str]:
        return {*self.server.pulls.rows[seen.number]["labels"]}

    def asked(self, seen: Seen) -> set[str]:
        return {*self.server.pulls.rows[seen.number]["asked"]["reviewers"]}

    def fork(self) -> None:
        self.server.parent = "other/shop"

    def need_approval(self) -> None:
        with self.server.lock:
            self.server.pulls.approvals = 1
            self.server.scopes = "gist, repo"
            self.server.rights = {LOGIN: "write"}

    def requests(self) -> list[str]:
        return self.server.requests(LOGIN)


PullProject = GiteaPullProject | GitHubPullProject
