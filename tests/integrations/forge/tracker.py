"""Issues of forges for the contract tests: a repository for each test."""

from __future__ import annotations

import atexit
import functools
import itertools
import os
import re
import shutil
import tempfile
import weakref
from collections.abc import Sequence
from pathlib import Path

from beads_workers.core.base.model import Filters, IssueId
from beads_workers.core.base.source import Source
from beads_workers.integrations.forge import marks, reading
from beads_workers.integrations.forge.api import Forge, ForgeRepository
from beads_workers.integrations.forge.gitea import Gitea as GiteaForge
from beads_workers.integrations.forge.github import GitHub
from beads_workers.integrations.forge.source import WORKING, ForgeSource
from tests.contracts.pull_sources import THEM, US
from tests.support.gitea import TEAM, Gitea, Repository
from tests.support.github import NAME, OWNER, GitHubServer

LOGIN = "fleet"
"""Whose token the fleets have; ``root`` is who acts behind their back."""
_numbers = itertools.count(1)


@functools.cache
def server() -> Gitea:
    """The one server of this process."""
    folder = Path(tempfile.mkdtemp(prefix="beads-workers-gitea-"))
    made = Gitea(folder / "gitea")
    made.__enter__()
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    atexit.register(made.kill)
    made.user("alice")
    return made


class ForgeTracker:
    """See ``tests.contracts.trackers.Tracker``. ``at``: what people see and do there."""

    at: Repository | GitHubServer

    def __init__(self) -> None:
        self._people: dict[str, str] = {}

    def forge(self, login: str = LOGIN) -> Forge:
        """The adapter, with somebody's token."""
        raise NotImplementedError

    def allow(self, login: str) -> None:
        """Let somebody write to the repository."""
        raise NotImplementedError

    def source(self, actor: str, filters: Filters, listed_max: int) -> Source:
        return ForgeSource(
            self.forge(),
            texts_from="writers",
            actor=actor,
            filters=filters,
            listed_max=listed_max,
            look_seconds=0.0,
            sleep=lambda seconds: None,
        )

    def create(
        self,
        title: str,
        *,
        priority: int = 2,
        issue_type: str = "task",
        labels: Sequence[str] = (),
        blocked_by: Sequence[IssueId] = (),
        parent: IssueId | None = None,
    ) -> IssueId:
        assert parent is None, "it promises no parents"
        kinds = {kind: label for label, kind in reading.TYPES.items()}
        kept = [*labels, "ready", f"P{priority}"]
        kept += [kinds[issue_type]] if issue_type in kinds else []
        number = self.at.issue(title, "", *kept)
        self.at.depend(number, *map(int, blocked_by))
        return IssueId(str(number))

    def put(self, issue_id: IssueId, status: str, assignee: str) -> None:
        number = int(issue_id)
        for each in self.at.comments(number):
            if "<!-- beads-workers claim" in each["body"]:
                self.at.remove_comment(each["id"])
        labels = {each["name"] for each in self.at.read(number)["labels"]}
        wanted = {"in_progress": {reading.IN_PROGRESS}, "blocked": {reading.BLOCKED}}.get(
            status, set()
        )
        for label in labels & {*reading.OURS} - wanted:
            self.at.unmark(number, label)
        self.at.mark(number, *(wanted - labels))
        if assignee.startswith("beads-workers/"):
            self.at.comment(number, marks.marked(marks.CLAIM, assignee, WORKING), by=LOGIN)
        people = [self._person(assignee)] if assignee and "/" not in assignee else []
        self.at.edit(number, assignees=people, state="closed" if status == "closed" else "open")

    def read(self, issue_id: IssueId) -> tuple[str, str]:
        number = int(issue_id)
        issue, holder = self.at.read(number), ""
        for each in self.at.comments(number):
            if "<!-- beads-workers claim" in each["body"] and not holder:
                found = each["body"].split()[-2]
                holder = next((a for a in (US, THEM) if marks.name_of(a) == found), "?")
        labels = {each["name"] for each in issue["labels"]}
        status = "in_progress" if reading.IN_PROGRESS in labels else "open"
        status = "blocked" if reading.BLOCKED in labels else status
        people = [each["login"] for each in issue["assignees"] or () if each["login"] != LOGIN]
        shown = "closed" if issue["state"] == "closed" else status
        return shown, holder or next((self._people.get(each, each) for each in people), "")

    def _person(self, name: str) -> str:
        """The login of somebody, who may be assigned."""
        login = re.sub("[^a-z]", "", name.lower())
        self._people[login] = name
        self.allow(login)
        return login

    def close_as(self, issue_id: IssueId, actor: str) -> None:
        self.at.edit(int(issue_id), state="closed", by=LOGIN)

    def read_all(self) -> dict[IssueId, tuple[str, str]]:
        ids = (IssueId(str(row["number"])) for row in self.at.all())
        return {issue_id: self.read(issue_id) for issue_id in ids}

    def notes(self, issue_id: IssueId) -> str:
        texts = (each["body"] for each in self.at.comments(int(issue_id)))
        return "\n".join(texts).replace("\u200b", "")


class GiteaTracker(ForgeTracker):
    """A repository of its own on the one Gitea."""

    at: Repository

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.server = server()
        self.server.start()  # The test before may have failed while it was down.
        self.at = self.server.repository(f"r{next(_numbers)}", LOGIN, "alice")

    def forge(self, login: str = LOGIN) -> Forge:
        token = self.server.user(login).token
        repository = ForgeRepository("gitea", self.server.url, TEAM, self.at.name)
        return GiteaForge(repository, {"GITEA_TOKEN": token})

    def allow(self, login: str) -> None:
        self.server.user(login)
        path = f"{self.at.path}/collaborators/{login}"
        self.server.user("root").ask("PUT", path, {"permission": "write"})


class GitHubTracker(ForgeTracker):
    """A GitHub of its own, which the real ``gh`` asks."""

    at: GitHubServer

    def __init__(self, folder: Path, *, late: float = 0.0) -> None:
        super().__init__()
        self.at = self.server = GitHubServer(late=late).__enter__()
        weakref.finalize(self, self.at.__exit__)
        self.at.rights |= {LOGIN: "write", "alice": "write", "eve": "read"}

    def forge(self, login: str = LOGIN) -> Forge:
        environ = {"PATH": os.environ["PATH"], **self.at.environment(login)}
        repository = ForgeRepository("github", f"https://{self.at.host}", OWNER, NAME)
        return GitHub(repository, environ)

    def allow(self, login: str) -> None:
        self.at.rights[login] = "write"
