"""What the REST API of Gitea and that of GitHub have in common: issues, comments, pages."""

from __future__ import annotations

import time
from base64 import b64encode
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar
from urllib.parse import quote

from beads_workers.core.base.source import Calls
from beads_workers.integrations.forge.api import (
    Blocker,
    ForgeComment,
    ForgeError,
    ForgeIssue,
    ForgeRepository,
    Gone,
    IssueChange,
)
from beads_workers.integrations.forge.web import HttpAnswer, earlier

PAGES_MAX = 200
PERMISSION_SECONDS = 3600.0
BAD = (AttributeError, KeyError, TypeError, ValueError)
"""What comes of an answer that is not of a forge."""

Json = dict[str, Any]
Found = TypeVar("Found")


class Transport(Protocol):
    """How a forge is asked. ``said_at``: when it answered last, by its own clock."""

    calls: Calls
    said_at: str

    def ask(self, method: str, path: str, body: Any = None) -> HttpAnswer:
        """Return the answer to a request; raises ``ForgeError``."""


class RestForge:
    """The common half of ``Forge``."""

    lag_seconds: float
    page = 50
    """Entries of a page."""
    per_page = "limit"
    """The parameter that asks for so many."""

    def __init__(self, repository: ForgeRepository, transport: Transport) -> None:
        self.repository = repository
        self.calls = transport.calls
        self._transport = transport
        self._path = f"/repos/{quote(repository.owner, safe='')}/{quote(repository.name, safe='')}"
        self._login = ""

    def is_past(self, at: str, seconds: float = 0.0) -> bool:
        """See ``Forge``."""
        return at < earlier(self._transport.said_at, self.lag_seconds + seconds)

    def login(self) -> str:
        """See ``Forge``."""
        if not self._login:
            self._login = read(self._ask("GET", "/user").data, lambda data: str(data["login"]))
        return self._login

    def refuse_unwritable(self) -> HttpAnswer:
        """Return what the forge says of the repository; raise ``ForgeError`` unless issues can be
        written there."""
        answer = self._ask("GET", self._path)
        found = answer.data
        if read(found, lambda data: data.get("archived")):
            raise ForgeError(f"{self.repository.text} is archived: nobody can write to it")
        if not read(found, lambda data: data["permissions"]["push"]):
            raise ForgeError(f"{self.login()} may not write to {self.repository.text}")
        return answer

    def hurdles(self, base: str, *, may_be_fork: bool) -> list[str]:
        """See ``PullRequests``."""
        about = self.refuse_unwritable()
        parent = read(about.data, _parent)
        if parent and not may_be_fork:
            why = f"{self.repository.text} is a fork of {parent}, and none are opened from forks"
            raise ForgeError(why, "[landing] remote names the remote that they are for")
        found = self._lacks(about)
        path = f"{self._path}/assignees"
        needed, us = self._approvals(base), self.login()
        if needed and rows_of(self._ask("GET", path).data, path, login_of) == [us]:
            found.append(f"{base} needs an approval, and nobody but {us} could give one")
        return found

    def _lacks(self, about: HttpAnswer) -> list[str]:
        """Return what the token of an answer lacks, as sentences."""
        return []

    def _approvals(self, base: str) -> int:
        """Return how many approvals a pull request for a branch needs."""
        raise NotImplementedError

    def ask_for(self, number: int, labels: Sequence[str], reviewers: Sequence[str]) -> None:
        """See ``PullRequests``."""
        if labels:
            path = f"{self._path}/issues/{number}/labels"
            self._ask("POST", path, {"labels": [self._key_of(each) for each in labels]})
        teams = [each.rpartition("/")[2] for each in reviewers if "/" in each]
        people = [each for each in reviewers if "/" not in each]
        if reviewers:
            path = f"{self._path}/pulls/{number}/requested_reviewers"
            self._ask("POST", path, {"reviewers": people, "team_reviewers": teams})

    def _key_of(self, label: str) -> str | int:
        """Return what the API calls a label, which is made if need be."""
        return label

    def issue(self, number: int) -> ForgeIssue:
        """See ``Forge``."""
        return read(self._ask("GET", f"{self._path}/issues/{number}").data, issue_of)

    def comment(self, number: int, text: str) -> ForgeComment:
        """See ``Forge``."""
        path = f"{self._path}/issues/{number}/comments"
        return read(self._ask("POST", path, {"body": text}).data, comment_of)

    def edit_comment(self, comment_id: int, text: str) -> None:
        """See ``Forge``."""
        self._ask("PATCH", f"{self._path}/issues/comments/{comment_id}", {"body": text})

    def delete_comment(self, comment_id: int) -> None:
        """See ``Forge``."""
        try:
            self._ask("DELETE", f"{self._path}/issues/comments/{comment_id}")
        except Gone:
            return

    def blocker_of(self, data: Json) -> Blocker:
        """Read an issue that another one waits for."""
        issue, place = issue_of(data), data.get("repository")
        url = text_of(data, "repository_url").rstrip("/")
        name = (
            text_of(place, "full_name")
            if isinstance(place, dict)
            else "/".join(url.split("/")[-2:])
        )
        ours = f"{self.repository.owner}/{self.repository.name}".lower()
        return Blocker(issue.number, issue.is_open, "" if name.lower() in ("", ours) else name)

    def _pages(
        self, path: str, read_one: Callable[[Json], Found], *, to_the_end: bool = False
    ) -> list[Found]:
        """Return all entries of a list; raises ``ForgeError`` if it never ends. ``to_the_end``: a
        page may be short though it is not the last one."""
        joined, found = path if path.endswith("?") else f"{path}&", list[Found]()
        for page in range(1, PAGES_MAX + 1):
            reply = self._ask("GET", f"{joined}{self.per_page}={self.page}&page={page}")
            rows = rows_of(reply.data, path, read_one, may_be_null=to_the_end)
            found += rows
            # The server may have a smaller limit of its own.
            has_more = to_the_end or f"page={page + 1}" in reply.headers.get("link", "")
            if not rows or (len(rows) < self.page and not has_more):
                return found
        raise ForgeError(f"{path}: there are more than {PAGES_MAX} pages")

    def _ask(self, method: str, path: str, body: Any = None) -> HttpAnswer:
        return self._transport.ask(method, path, body)


def rows_of(
    data: Any, path: str, read_one: Callable[[Json], Found], *, may_be_null: bool = False
) -> list[Found]:
    """Read the entries of a list; raises ``ForgeError`` for all else."""
    rows = [] if data is None and may_be_null else data
    if not isinstance(rows, list):
        raise ForgeError(f"{path}: the answer is no list")
    return [read(each, read_one) for each in rows]


def fields_of(change: IssueChange) -> Json:
    """Return the fields of a change, without labels."""
    fields: Json = {}
    if change.title is not None:
        fields["title"] = change.title
    if change.body is not None:
        fields["body"] = change.body
    if change.is_open is not None:
        fields["state"] = "open" if change.is_open else "closed"
    if change.assignees is not None:
        fields["assignees"] = [*change.assignees]
    return fields


def login_of_git(url: str, user: str, password: str) -> dict[str, str]:
    """Return the settings of git, by their keys, that log in at a forge."""
    word = b64encode(f"{user}:{password}".encode()).decode()
    return {f"http.{url}/.extraHeader": f"Authorization: Basic {word}"}


class Remembered:
    """Answers that are believed for an hour."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[float, Any]] = {}

    def get(self, key: str, ask: Callable[[], Found]) -> Found:
        """Return the answer for a key, which is asked for if need be."""
        now = time.monotonic()
        until, known = self._known.get(key, (0.0, None))
        if now >= until:
            known = ask()
            self._known[key] = now + PERMISSION_SECONDS, known
        found: Found = known
        return found


# --- reading -------------------------------------------------------------------------------------


def issue_of(data: Any) -> ForgeIssue:
    """Read an issue."""
    return ForgeIssue(
        number=number_of(data, "number"),
        title=text_of(data, "title"),
        body=text_of(data, "body"),
        author=login_of(data.get("user")),
        is_open=data["state"] == "open",
        labels=tuple(text_of(each, "name") for each in data.get("labels") or ()),
        assignees=tuple(login_of(each) for each in data.get("assignees") or ()),
        created_at=text_of(data, "created_at"),
        updated_at=text_of(data, "updated_at"),
        closed_at=text_of(data, "closed_at"),
        is_locked=bool(data.get("is_locked") or data.get("locked")),
        is_edited=bool(data.get("content_version")),
    )


def comment_of(data: Any) -> ForgeComment:
    """Read a comment."""
    user, at = data.get("user"), text_of(data, "created_at")
    author, text = login_of(user), text_of(data, "body")
    return ForgeComment(number_of(data, "id"), author, text, at, is_bot(user))


def _parent(data: Any) -> str:
    return text_of(data["parent"], "full_name") if data.get("fork") else ""


def login_of(user: Any) -> str:
    """Read the login of somebody; "" for nobody."""
    return text_of(user, "login") if isinstance(user, dict) else ""


def is_bot(user: Any) -> bool:
    """Return whether somebody is a program, as far as the forge says so."""
    return isinstance(user, dict) and (user.get("type") == "Bot" or bool(user.get("is_bot")))


def text_of(data: Json, name: str) -> str:
    """Read a text; "" without one."""
    found = data.get(name)
    return found if isinstance(found, str) else ""


def number_of(data: Json, name: str) -> int:
    """Read a whole number; raises ``ValueError``."""
    found = data[name]
    if isinstance(found, bool) or not isinstance(found, int):
        raise ValueError(name)
    return found


def read(data: Any, read_one: Callable[[Any], Found]) -> Found:
    """Return what an answer says; raises ``ForgeError`` if it is none of a forge."""
    try:
        return read_one(data)
    except BAD as error:
        raise ForgeError(f"the forge answers what makes no sense ({error!r:.80})") from None
