"""Gitea's issues for the contract tests: a repository for each test, on one server."""

from __future__ import annotations

import atexit
import functools
import itertools
import re
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from beads_workers.core.base.model import Filters, IssueId
from beads_workers.core.base.source import Source
from beads_workers.integrations.forge import marks, reading
from beads_workers.integrations.forge.api import ForgeRepository
from beads_workers.integrations.forge.gitea import Gitea as Forge
from beads_workers.integrations.forge.source import WORKING, ForgeSource
from tests.contracts.pull_sources import THEM, US
from tests.support.gitea import TEAM, Gitea

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


class GiteaTracker:
    """See ``tests.contracts.trackers.Tracker``."""

    def __init__(self, folder: Path) -> None:
        self.server = server()
        self._people: dict[str, str] = {}
        self.at = self.server.repository(f"r{next(_numbers)}", LOGIN, "alice")

    def forge(self) -> Forge:
        token = self.server.user(LOGIN).token
        repository = ForgeRepository("gitea", self.server.url, TEAM, self.at.name)
        return Forge(repository, {"GITEA_TOKEN": token})

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

    def close_as(self, issue_id: IssueId, actor: str) -> None:
        self.at.edit(int(issue_id), state="closed", by=LOGIN)

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
        self.server.user(login)
        path = f"{self.at.path}/collaborators/{login}"
        self.server.user("root").ask("PUT", path, {"permission": "write"})
        return login

    def read_all(self) -> dict[IssueId, tuple[str, str]]:
        rows = self.server.user("root").ask("GET", f"{self.at.path}/issues?state=all&limit=50")
        ids = (IssueId(str(row["number"])) for row in rows)
        return {issue_id: self.read(issue_id) for issue_id in ids}

    def notes(self, issue_id: IssueId) -> str:
        texts = (each["body"] for each in self.at.comments(int(issue_id)))
        return "\n".join(texts).replace("\u200b", "")
