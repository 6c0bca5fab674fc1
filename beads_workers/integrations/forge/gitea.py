"""Gitea and Forgejo, over their REST API. Source: measured with Gitea 1.26."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from urllib.parse import quote

from beads_workers.integrations.forge import reading
from beads_workers.integrations.forge.api import (
    TOKENS,
    Blocker,
    ForgeError,
    ForgeIssue,
    ForgeRepository,
    Gone,
    IssueChange,
    LabelEvent,
    Thread,
)
from beads_workers.integrations.forge.rest import (
    Found,
    Json,
    Remembered,
    RestForge,
    comment_of,
    fields_of,
    issue_of,
    login_of,
    number_of,
    read,
    rows_of,
    text_of,
)
from beads_workers.integrations.forge.web import Http


class Gitea(RestForge):
    """``Forge``; the token comes from the environment."""

    lag_seconds = 2.0

    def __init__(
        self, repository: ForgeRepository, environ: Mapping[str, str] = os.environ
    ) -> None:
        token = next((environ[name] for name in TOKENS if environ.get(name)), "")
        if not token:
            hint = f"set {TOKENS[0]} to a token that may read and write issues"
            raise ForgeError(f"no token for {repository.url}", hint)
        super().__init__(repository, Http(f"{repository.url}/api/v1", token))
        self.token = token
        self._labels: dict[str, int] = {}
        self._writers = Remembered()

    def describe(self) -> str:
        """See ``Forge``."""
        version = read(self._ask("GET", "/version").data, lambda data: str(data["version"])[:40])
        self.refuse_unwritable()
        return f"Gitea {version}, as {self.login()}"

    def issues(self, since: str) -> list[ForgeIssue]:
        """See ``Forge``."""
        which = f"state=all&since={quote(since)}" if since else "state=open"
        return self._pages(f"{self._path}/issues?type=issues&{which}", issue_of)

    def thread(
        self, number: int, issue: ForgeIssue | None = None, *, history: bool = True
    ) -> Thread:
        """See ``Forge``; the history is a list of its own, from whose pages entries are left out
        that this login may not see."""
        issue, path = issue or self.issue(number), f"{self._path}/issues/{number}"
        comments, events, renamed = self._list(f"{path}/comments", comment_of), [], ""
        for each in self._pages(f"{path}/timeline?", dict, to_the_end=True) if history else ():
            kind, label = each.get("type"), each.get("label")
            if kind == "label" and isinstance(label, dict):
                author, at = login_of(each.get("user")), text_of(each, "created_at")
                is_on = each.get("body") == "1"
                events.append(LabelEvent(text_of(label, "name"), author, at, is_on))
            elif kind == "change_title":
                renamed = text_of(each, "created_at")
        return Thread(issue, tuple(comments), tuple(events), renamed)

    def blockers(self, number: int) -> tuple[Blocker, ...]:
        """See ``Forge``."""
        path = f"{self._path}/issues/{number}/dependencies?"
        return tuple(self._pages(path, self.blocker_of))

    def can_write(self, login: str) -> bool:
        """See ``Forge``. Only an administrator may ask for the rights of one login, so those are
        asked for who may be assigned."""
        path = f"{self._path}/assignees"
        return login in self._writers.get("", lambda: frozenset(self._list(path, login_of)))

    def change(
        self, number: int, change: IssueChange, seen: Sequence[str] = ()
    ) -> ForgeIssue | None:
        """See ``Forge``; labels are calls of their own: those that are taken off one each."""
        path = f"{self._path}/issues/{number}"
        if on := [self._label(name) for name in change.labels_on]:
            self._ask("POST", f"{path}/labels", {"labels": on})
        fields, changed = fields_of(change), None
        if fields:
            changed = read(self._ask("PATCH", path, fields).data, issue_of)
        for name in change.labels_off:
            if name in seen:
                try:
                    self._ask("DELETE", f"{path}/labels/{self._label(name)}")
                except Gone:
                    continue
        return changed

    def create(self, change: IssueChange) -> int:
        """See ``Forge``."""
        labels = [self._label(name) for name in change.labels_on]
        made = self._ask("POST", f"{self._path}/issues", fields_of(change) | {"labels": labels})
        return read(made.data, lambda data: number_of(data, "number"))

    def depend(self, number: int, other: int, *, on: bool) -> None:
        """See ``Forge``."""
        body = {"owner": self.repository.owner, "repo": self.repository.name, "index": other}
        path = f"{self._path}/issues/{number}/dependencies"
        self._ask("POST" if on else "DELETE", path, body)

    def _list(self, path: str, read_one: Callable[[Json], Found]) -> list[Found]:
        """Return all entries of a list that has no pages."""
        return rows_of(self._ask("GET", path).data, path, read_one)

    def _label(self, name: str) -> int:
        """Return the id of a label, which is made if there is none."""
        if name not in self._labels:
            self._list_labels()
        if name not in self._labels:
            fields = {"name": name, "color": "#c5def5", "description": reading.ABOUT.get(name, "")}
            made = self._ask("POST", f"{self._path}/labels", fields)
            own = read(made.data, lambda data: number_of(data, "id"))
            # Another fleet may have made it meanwhile: the first one is everybody's.
            self._list_labels()
            if self._labels.setdefault(name, own) != own:
                self._ask("DELETE", f"{self._path}/labels/{own}")
        return self._labels[name]

    def _list_labels(self) -> None:
        known = self._pages(f"{self._path}/labels?", lambda data: (data["name"], data["id"]))
        self._labels = dict(sorted(known, key=lambda each: each[1], reverse=True))
