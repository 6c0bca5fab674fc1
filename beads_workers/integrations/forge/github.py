"""GitHub, by the user's own ``gh``. Source: GitHub's public REST and GraphQL descriptions."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import quote

from beads_workers.integrations.forge.api import (
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
from beads_workers.integrations.forge.gh import Gh
from beads_workers.integrations.forge.rest import (
    Json,
    Remembered,
    RestForge,
    fields_of,
    issue_of,
    number_of,
    read,
    text_of,
)
from beads_workers.kinds import CallLog

THREAD = """
query($owner: String!, $name: String!, $number: Int!, $after: String) {
  repository(owner: $owner, name: $name) { issue(number: $number) {
    number title body state locked createdAt updatedAt closedAt lastEditedAt
    author { __typename login }
    labels(first: 100) { nodes { name } }
    assignees(first: 20) { nodes { login } }
    comments(first: 100, after: $after) {
      pageInfo { hasNextPage endCursor }
      nodes { url body createdAt author { __typename login } }
    }
    timelineItems(last: 100, itemTypes: [LABELED_EVENT, UNLABELED_EVENT, RENAMED_TITLE_EVENT]) {
      nodes {
        __typename
        ... on LabeledEvent { createdAt actor { __typename login } label { name } }
        ... on UnlabeledEvent { createdAt actor { __typename login } label { name } }
        ... on RenamedTitleEvent { createdAt }
      }
    }
  } }
}"""
COMMENT_PAGES_MAX = 50
NOT_FOUND = "NOT_FOUND"
"""Type of an error."""


class GitHub(RestForge):
    """``Forge``. Comments are seen a few seconds after they were written."""

    lag_seconds = 6.0
    page, per_page = 100, "per_page"

    def __init__(
        self,
        repository: ForgeRepository,
        environ: Mapping[str, str] = os.environ,
        call_log: CallLog | None = None,
    ) -> None:
        self.gh = Gh(repository.url.partition("://")[2], environ, call_log)
        super().__init__(repository, self.gh)
        self._writers = Remembered()

    def describe(self) -> str:
        """See ``Forge``."""
        self.refuse_unwritable()
        return f"GitHub by gh, as {self.login()}"

    def issues(self, since: str) -> list[ForgeIssue]:
        """See ``Forge``; pull requests are left out."""
        which = f"state=all&since={quote(since)}" if since else "state=open"
        path = f"{self._path}/issues?{which}&sort=created&direction=asc"
        return [issue for issue in self._pages(path, _listed) if issue is not None]

    def thread(
        self, number: int, issue: ForgeIssue | None = None, *, history: bool = True
    ) -> Thread:
        """See ``Forge``: one query for a hundred comments, and the history with it."""
        comments, after = list[ForgeComment](), None
        for _ in range(COMMENT_PAGES_MAX):
            found = self._query(number, after)
            comments += read(found, lambda data: [*map(_comment, data["comments"]["nodes"])])
            page = read(found, lambda data: data["comments"]["pageInfo"])
            if not read(page, lambda data: data["hasNextPage"]):
                break
            after = read(page, lambda data: str(data["endCursor"]))
        events, renamed = read(found, _events)
        comments.sort(key=lambda comment: comment.comment_id)
        return Thread(read(found, _issue), tuple(comments), events, renamed)

    def blockers(self, number: int) -> tuple[Blocker, ...]:
        """See ``Forge``: dependencies, and issues below it."""
        found = list[Blocker]()
        for name in ("dependencies/blocked_by", "sub_issues"):
            try:
                found += self._pages(f"{self._path}/issues/{number}/{name}?", self.blocker_of)
            except Gone:
                continue  # An older GitHub Enterprise has no such thing.
        return tuple(found)

    def can_write(self, login: str) -> bool:
        """See ``Forge``."""
        path = f"{self._path}/collaborators/{quote(login, safe='')}/permission"

        def asked() -> bool:
            try:
                said = read(self._ask("GET", path).data, lambda data: str(data["permission"]))
            except Gone:
                return False
            return said in ("write", "maintain", "admin")

        return self._writers.get(login, asked)

    def change(
        self, number: int, change: IssueChange, seen: Sequence[str] = ()
    ) -> ForgeIssue | None:
        """See ``Forge``: one call; GitHub makes labels by itself."""
        fields = fields_of(change)
        if change.is_open is False:
            fields["state_reason"] = "completed"
        off = {*change.labels_off}
        labels = [name for name in dict.fromkeys((*seen, *change.labels_on)) if name not in off]
        if {*labels} != {*seen}:
            fields["labels"] = labels
        if not fields:
            return None
        return read(self._ask("PATCH", f"{self._path}/issues/{number}", fields).data, issue_of)

    def create(self, change: IssueChange) -> int:
        """See ``Forge``."""
        fields = fields_of(change) | {"labels": [*change.labels_on]}
        made = self._ask("POST", f"{self._path}/issues", fields)
        return read(made.data, lambda data: number_of(data, "number"))

    def depend(self, number: int, other: int, *, on: bool) -> None:
        """See ``Forge``; GitHub names the other issue by the id that it has in all of GitHub."""
        found = self._ask("GET", f"{self._path}/issues/{other}")
        key = read(found.data, lambda data: number_of(data, "id"))
        path = f"{self._path}/issues/{number}/dependencies/blocked_by"
        if on:
            self._ask("POST", path, {"issue_id": key})
        else:
            self._ask("DELETE", f"{path}/{key}")

    def graphql(self, query: str, variables: Json) -> tuple[Any, dict[str, str]]:
        """Return the data of an answer, and its errors: a text for each of their types."""
        answer = self._ask("POST", "graphql", {"query": query, "variables": variables}).data
        data = answer if isinstance(answer, dict) else {}
        return data.get("data"), read(data.get("errors") or (), _errors)

    def _query(self, number: int, after: str | None) -> Json:
        variables = {"owner": self.repository.owner, "name": self.repository.name}
        data, errors = self.graphql(THREAD, {**variables, "number": number, "after": after})
        for said in errors.values():
            raise (Gone if NOT_FOUND in errors else ForgeError)(f"issue {number}: {said}")
        found = read(data, lambda data: data["repository"]["issue"])
        if not isinstance(found, dict):
            raise Gone(f"issue {number}: there is none, or this login cannot see it")
        return found


def _errors(data: Any) -> dict[str, str]:
    said = ((each.get("type") or "", " ".join(each["message"].split())[:200]) for each in data)
    return dict(said)


def _listed(data: Json) -> ForgeIssue | None:
    if "pull_request" in data:
        return None
    waits, below = data.get("issue_dependencies_summary"), data.get("sub_issues_summary")
    if not isinstance(waits, dict) or not isinstance(below, dict):
        return issue_of(data)
    return replace(issue_of(data), may_wait=bool(waits["total_blocked_by"] or below["total"]))


def _issue(data: Json) -> ForgeIssue:
    return ForgeIssue(
        number=number_of(data, "number"),
        title=text_of(data, "title"),
        body=text_of(data, "body"),
        author=login_in(data.get("author")),
        is_open=data["state"] == "OPEN",
        labels=tuple(text_of(each, "name") for each in data["labels"]["nodes"]),
        assignees=tuple(login_in(each) for each in data["assignees"]["nodes"]),
        created_at=text_of(data, "createdAt"),
        updated_at=text_of(data, "updatedAt"),
        closed_at=text_of(data, "closedAt"),
        is_locked=bool(data.get("locked")),
        is_edited=bool(data.get("lastEditedAt")),
        edited_at=text_of(data, "lastEditedAt"),
    )


def _comment(data: Json) -> ForgeComment:
    author, at = data.get("author"), text_of(data, "createdAt")
    is_bot = isinstance(author, dict) and author.get("__typename") == "Bot"
    # ``databaseId`` has 32 bits, which are too few.
    key = int(text_of(data, "url").rpartition("#issuecomment-")[2])
    return ForgeComment(key, login_in(author), text_of(data, "body"), at, is_bot)


def _events(data: Json) -> tuple[tuple[LabelEvent, ...], str]:
    """Return who put labels on and off, and when the title was changed last."""
    events, renamed = [], ""
    for each in data["timelineItems"]["nodes"]:
        kind, at = each.get("__typename"), text_of(each, "createdAt")
        if kind == "RenamedTitleEvent":
            renamed = at
        elif kind in ("LabeledEvent", "UnlabeledEvent"):
            author, label = login_in(each.get("actor")), text_of(each["label"], "name")
            events.append(LabelEvent(label, author, at, kind == "LabeledEvent"))
    return tuple(events), renamed


def login_in(author: Any) -> str:
    """Return a login as the REST API has it, where programs end with ``[bot]``."""
    if not isinstance(author, dict):
        return ""
    login = text_of(author, "login")
    return f"{login}[bot]" if author.get("__typename") == "Bot" and login else login
