"""Gitea and Forgejo, over their REST API. Source: measured with Gitea 1.26."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar
from urllib.parse import quote

from beads_workers.integrations.forge import reading
from beads_workers.integrations.forge.api import (
    TOKENS,
    Blocker,
    ForgeComment,
    ForgeError,
    ForgeIssue,
    ForgeRepository,
    Gone,
    IssueChange,
    LabelEvent,
    Thread,
)
from beads_workers.integrations.forge.web import Http, HttpAnswer

PAGE = 50
PAGES_MAX = 200
PERMISSION_SECONDS = 3600.0
BAD = (AttributeError, KeyError, TypeError, ValueError)
"""What comes of an answer that is not of a forge."""

Json = dict[str, Any]
Found = TypeVar("Found")


class Gitea:
    """``Forge``; the token comes from the environment."""

    lag_seconds = 2.0

    def __init__(
        self, repository: ForgeRepository, environ: Mapping[str, str] = os.environ
    ) -> None:
        self.repository = repository
        token = next((environ[name] for name in TOKENS if environ.get(name)), "")
        if not token:
            hint = f"set {TOKENS[0]} to a token that may read and write issues"
            raise ForgeError(f"no token for {repository.url}", hint)
        self._http = Http(f"{repository.url}/api/v1", token)
        self.calls = self._http.calls
        self._path = f"/repos/{quote(repository.owner, safe='')}/{quote(repository.name, safe='')}"
        self._login = ""
        self._labels: dict[str, int] = {}
        self._writers: frozenset[str] = frozenset()
        self._writers_until = 0.0

    @property
    def said_at(self) -> str:
        """See ``Forge``."""
        return self._http.said_at

    def login(self) -> str:
        """See ``Forge``."""
        if not self._login:
            self._login = _read(self._ask("GET", "/user").data, lambda data: str(data["login"]))
        return self._login

    def describe(self) -> str:
        """See ``Forge``."""
        version = _read(self._ask("GET", "/version").data, lambda data: str(data["version"])[:40])
        found = self._ask("GET", self._path)
        if _read(found.data, lambda data: data.get("archived")):
            raise ForgeError(f"{self.repository.text} is archived: nobody can write to it")
        if not _read(found.data, lambda data: data["permissions"]["push"]):
            raise ForgeError(f"{self.login()} may not write to {self.repository.text}")
        return f"Gitea {version}, as {self.login()}"

    def issues(self, since: str) -> list[ForgeIssue]:
        """See ``Forge``."""
        which = f"state=all&since={quote(since)}" if since else "state=open"
        return self._pages(f"{self._path}/issues?type=issues&{which}", _issue)

    def issue(self, number: int) -> ForgeIssue:
        """See ``Forge``."""
        return _read(self._ask("GET", f"{self._path}/issues/{number}").data, _issue)

    def thread(self, number: int, issue: ForgeIssue | None = None) -> Thread:
        """See ``Forge``."""
        issue = issue or self.issue(number)
        comments, events, renamed = [], [], ""
        for each in self._pages(f"{self._path}/issues/{number}/timeline?", dict):
            kind, label = each.get("type"), each.get("label")
            author, at = _login(each.get("user")), _str(each, "created_at")
            if kind == "comment":
                comments.append(_read(each, _comment))
            elif kind == "label" and isinstance(label, dict):
                events.append(LabelEvent(_str(label, "name"), author, at, each.get("body") == "1"))
            elif kind == "change_title":
                renamed = at
        return Thread(issue, tuple(comments), tuple(events), renamed)

    def blockers(self, number: int) -> tuple[Blocker, ...]:
        """See ``Forge``."""
        ours = f"{self.repository.owner}/{self.repository.name}".lower()

        def blocker(data: Json) -> Blocker:
            issue, place = _issue(data), data.get("repository")
            name = _str(place, "full_name") if isinstance(place, dict) else ""
            elsewhere = "" if name.lower() in ("", ours) else name
            return Blocker(issue.number, issue.is_open, elsewhere)

        return tuple(self._pages(f"{self._path}/issues/{number}/dependencies?", blocker))

    def can_write(self, login: str) -> bool:
        """See ``Forge``; the answer is believed for an hour. Only an administrator may ask for the
        rights of one login, so those are asked for who may be assigned."""
        now = time.monotonic()
        if now >= self._writers_until:
            self._writers = frozenset(self._pages(f"{self._path}/assignees?", _login))
            self._writers_until = now + PERMISSION_SECONDS
        return login in self._writers

    def comment(self, number: int, text: str) -> ForgeComment:
        """See ``Forge``."""
        path = f"{self._path}/issues/{number}/comments"
        return _read(self._ask("POST", path, {"body": text}).data, _comment)

    def edit_comment(self, comment_id: int, text: str) -> None:
        """See ``Forge``."""
        self._ask("PATCH", f"{self._path}/issues/comments/{comment_id}", {"body": text})

    def delete_comment(self, comment_id: int) -> None:
        """See ``Forge``."""
        try:
            self._ask("DELETE", f"{self._path}/issues/comments/{comment_id}")
        except Gone:
            return

    def change(
        self, number: int, change: IssueChange, seen: Sequence[str] = ()
    ) -> ForgeIssue | None:
        """See ``Forge``; labels are calls of their own: those that are taken off one each."""
        path = f"{self._path}/issues/{number}"
        if on := [self._label(name) for name in change.labels_on]:
            self._ask("POST", f"{path}/labels", {"labels": on})
        fields: Json = {}
        changed = None
        if change.title is not None:
            fields["title"] = change.title
        if change.body is not None:
            fields["body"] = change.body
        if change.is_open is not None:
            fields["state"] = "open" if change.is_open else "closed"
        if change.assignees is not None:
            fields["assignees"] = [*change.assignees]
        if fields:
            changed = _read(self._ask("PATCH", path, fields).data, _issue)
        for name in change.labels_off:
            if name in seen:
                try:
                    self._ask("DELETE", f"{path}/labels/{self._label(name)}")
                except Gone:
                    continue
        return changed

    def create(self, change: IssueChange) -> int:
        """See ``Forge``."""
        fields = {
            "title": change.title or "",
            "body": change.body or "",
            "labels": [self._label(name) for name in change.labels_on],
            "assignees": [*(change.assignees or ())],
        }
        made = self._ask("POST", f"{self._path}/issues", fields)
        return _read(made.data, lambda data: _number(data, "number"))

    def depend(self, number: int, other: int, *, on: bool) -> None:
        """See ``Forge``."""
        body = {"owner": self.repository.owner, "repo": self.repository.name, "index": other}
        path = f"{self._path}/issues/{number}/dependencies"
        self._ask("POST" if on else "DELETE", path, body)

    def close(self) -> None:
        """Close all connections."""
        self._http.close()

    def _label(self, name: str) -> int:
        """Return the id of a label, which is made if there is none."""
        if name not in self._labels:
            known = self._pages(f"{self._path}/labels?", lambda data: (data["name"], data["id"]))
            self._labels |= dict(known)
        if name not in self._labels:
            fields = {"name": name, "color": "#c5def5", "description": reading.ABOUT.get(name, "")}
            made = self._ask("POST", f"{self._path}/labels", fields)
            self._labels[name] = _read(made.data, lambda data: _number(data, "id"))
        return self._labels[name]

    def _pages(self, path: str, read: Callable[[Json], Found]) -> list[Found]:
        """Return all entries of a list; raises ``ForgeError`` if it never ends."""
        joined, found = path if path.endswith("?") else f"{path}&", list[Found]()
        for page in range(1, PAGES_MAX + 1):
            reply = self._ask("GET", f"{joined}limit={PAGE}&page={page}")
            if not isinstance(reply.data, list):
                raise ForgeError(f"{path}: the answer is no list")
            found += [_read(each, read) for each in reply.data]
            if len(reply.data) < PAGE and not _has_more(reply, page, len(reply.data)):
                return found
        raise ForgeError(f"{path}: there are more than {PAGES_MAX} pages")

    def _ask(self, method: str, path: str, body: Any = None) -> HttpAnswer:
        return self._http.ask(method, path, body)


def _has_more(reply: HttpAnswer, page: int, count: int) -> bool:
    """Return whether a short page is not the last one: the server may have a smaller limit."""
    return count > 0 and f"page={page + 1}" in reply.headers.get("link", "")


def _issue(data: Any) -> ForgeIssue:
    return ForgeIssue(
        number=_number(data, "number"),
        title=_str(data, "title"),
        body=_str(data, "body"),
        author=_login(data.get("user")),
        is_open=data["state"] == "open",
        labels=tuple(_str(each, "name") for each in data.get("labels") or ()),
        assignees=tuple(_login(each) for each in data.get("assignees") or ()),
        created_at=_str(data, "created_at"),
        updated_at=_str(data, "updated_at"),
        closed_at=_str(data, "closed_at"),
        is_locked=bool(data.get("is_locked")),
        is_edited=bool(data.get("content_version")),
    )


def _comment(data: Any) -> ForgeComment:
    user, at = data.get("user"), _str(data, "created_at")
    is_bot = isinstance(user, dict) and bool(user.get("is_bot"))
    return ForgeComment(_number(data, "id"), _login(user), _str(data, "body"), at, is_bot)


def _login(user: Any) -> str:
    return _str(user, "login") if isinstance(user, dict) else ""


def _str(data: Json, name: str) -> str:
    found = data.get(name)
    return found if isinstance(found, str) else ""


def _number(data: Json, name: str) -> int:
    found = data[name]
    if isinstance(found, bool) or not isinstance(found, int):
        raise ValueError(name)
    return found


def _read(data: Any, read: Callable[[Any], Found]) -> Found:
    """Return what an answer says; raises ``ForgeError`` if it is none of a forge."""
    try:
        return read(data)
    except BAD as error:
        raise ForgeError(f"the forge answers what makes no sense ({error!r:.80})") from None
