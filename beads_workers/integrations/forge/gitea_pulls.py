"""Pull requests of Gitea and Forgejo. Source: measured with Gitea 1.26.

A list shows which pull requests have changed, and only those are read. The state of a commit is not
in it: it is asked for as long as it may change.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import quote

from beads_workers.core.base import pulls
from beads_workers.core.base.pulls import CheckRun, NewPull, PullRequest, ReviewRemark
from beads_workers.integrations.forge.api import ForgeRepository, Gone
from beads_workers.integrations.forge.gitea import Gitea
from beads_workers.integrations.forge.rest import (
    Json,
    login_of,
    login_of_git,
    number_of,
    read,
    rows_of,
    text_of,
)

_STATES = {"success": pulls.GREEN, "failure": pulls.RED, "error": pulls.RED}
_STYLES = {
    "squash": "allow_squash_merge",
    "merge": "allow_merge_commits",
    "rebase": "allow_rebase",
}
"""Ways of merging in the order of our liking, with what the repository says of each."""


class GiteaPulls(Gitea):
    """``PullRequests``."""

    def __init__(self, repository: ForgeRepository, environ: Mapping[str, str]) -> None:
        super().__init__(repository, environ)
        self._seen: dict[int, tuple[str, PullRequest]] = {}
        """By number: when it was changed last, and how it was then."""
        self._style = ""

    def of_head(self, head: str) -> list[PullRequest]:
        """See ``PullRequests``."""
        # The newest will do: what is older is known by its number.
        path = f"{self._path}/pulls?state=all&sort=recentupdate&limit={self.page}"
        ours = (_of_head(each, head) for each in rows_of(self._ask("GET", path).data, path, dict))
        return sorted(filter(None, ours), key=lambda each: -each.number)

    def look(self, numbers: Sequence[int], *, again: bool = False) -> dict[int, PullRequest]:
        """See ``PullRequests``."""
        path, found = f"{self._path}/pulls", dict[int, PullRequest]()
        listed = self._pages(f"{path}?state=open", dict) if len(numbers) > 1 else ()
        rows = {row["number"]: row for row in listed}
        for number in numbers:
            try:
                row = rows.get(number) or self._ask("GET", f"{path}/{number}").data
            except Gone:
                continue
            pull, at = read(row, pull_of), text_of(row, "updated_at")
            found[number] = self._looked(pull, at, again=again)
        self._seen = {n: each for n, each in self._seen.items() if n in found}
        return found

    def _looked(self, pull: PullRequest, changed_at: str, *, again: bool) -> PullRequest:
        """Return a pull request with its checks and remarks."""
        if pull.state != pulls.OPEN:
            return pull
        at, before = self._seen.get(pull.number, ("", pull))
        fresh = again or pull.commit != before.commit or before.verdict != pulls.GREEN
        checks = self._checks(pull.commit) if fresh else before.checks
        if at == changed_at:
            pull = replace(before, checks=checks, merges=pull.merges, is_fresh=fresh)
        else:
            pull = replace(self._with_reviews(replace(pull, checks=checks)), is_fresh=fresh)
        # Times have whole seconds: another change within this one would not show.
        self._seen[pull.number] = changed_at if self.is_past(changed_at) else "", pull
        return pull

    def _checks(self, commit: str) -> tuple[CheckRun, ...]:
        path = f"{self._path}/commits/{commit}/status"
        data = self._ask("GET", path).data
        rows = data.get("statuses") if isinstance(data, dict) else None
        return tuple(rows_of(rows, path, _check, may_be_null=True))

    def _with_reviews(self, pull: PullRequest) -> PullRequest:
        path = f"{self._path}/pulls/{pull.number}/reviews"
        states, remarks, us = dict[str, str](), list[ReviewRemark](), self.login()
        others = 0
        for row in self._pages(f"{path}?", dict):
            author, state = login_of(row.get("user")), text_of(row, "state")
            says = bool(text_of(row, "body").strip() or row.get("comments_count"))
            others += says and not row.get("official") and author != us
            if not row.get("official") or row.get("dismissed") or author == us:
                continue
            if state in ("APPROVED", "REQUEST_CHANGES"):
                states[author] = state
            number, text = read(row, lambda data: number_of(data, "id")), text_of(row, "body")
            if text.strip() and state in ("COMMENT", "REQUEST_CHANGES"):
                remarks.append(ReviewRemark(f"review-{number}", author, text))
            if row.get("comments_count"):
                of_it = f"{path}/{number}/comments"
                found = rows_of(self._ask("GET", of_it).data, of_it, _remark)
                remarks += [each for each in found if each is not None]
        refused = "REQUEST_CHANGES" in states.values()
        is_approved = "APPROVED" in states.values() and not refused
        pull = replace(pull, remarks=tuple(remarks), others=others)
        return replace(pull, is_approved=is_approved, is_refused=refused)

    def open(self, new: NewPull) -> PullRequest:
        """See ``PullRequests``. Gitea has drafts by their title only."""
        title = f"WIP: {new.title}" if new.draft else new.title
        fields = {"head": new.head, "base": new.base, "title": title, "body": new.body}
        return read(self._ask("POST", f"{self._path}/pulls", fields).data, pull_of)

    def edit(self, number: int, title: str, body: str) -> None:
        """See ``PullRequests``."""
        self._ask("PATCH", f"{self._path}/pulls/{number}", {"title": title, "body": body})

    def close(self, number: int) -> None:
        """See ``PullRequests``."""
        self._ask("PATCH", f"{self._path}/pulls/{number}", {"state": "closed"})

    def _key_of(self, label: str) -> str | int:
        return self._label(label)

    def run_again(self, check: CheckRun) -> bool:
        """See ``PullRequests``."""
        return False

    def log(self, check: CheckRun) -> str:
        """See ``PullRequests``: Gitea has no log of checks that others report."""
        return ""

    def merge(self, pull: PullRequest, title: str, text: str) -> None:
        """See ``PullRequests``."""
        self._merge(pull, title, text, later=False)

    def merge_later(self, pull: PullRequest, title: str, text: str) -> None:
        """See ``PullRequests``."""
        self._merge(pull, title, text, later=True)

    def _merge(self, pull: PullRequest, title: str, text: str, *, later: bool) -> None:
        if not self._style:
            allowed = self._ask("GET", self._path).data
            self._style = read(allowed, _style)
        fields: Json = {"Do": self._style, "head_commit_id": pull.commit}
        fields |= {"MergeTitleField": title, "MergeMessageField": text}
        fields |= {"merge_when_checks_succeed": True} if later else {}
        self._ask("POST", f"{self._path}/pulls/{pull.number}/merge", fields)

    def _approvals(self, base: str) -> int:
        path = f"{self._path}/branches/{quote(base, safe='')}"
        return read(self._ask("GET", path).data, lambda data: number_of(data, "required_approvals"))

    def login_of_git(self) -> Mapping[str, str]:
        """See ``PullRequests``."""
        return login_of_git(self.repository.url, self.token, "x-oauth-basic")


# --- reading -------------------------------------------------------------------------------------


def pull_of(data: Any) -> PullRequest:
    """Read a pull request, without its checks and remarks."""
    is_open = data["state"] == "open"
    merged_as = text_of(data, "merge_commit_sha") if data.get("merged") else ""
    state = pulls.OPEN if is_open else pulls.MERGED if data.get("merged") else pulls.CLOSED
    merges = data.get("mergeable")
    return PullRequest(
        number_of(data, "number"),
        text_of(data, "html_url"),
        state,
        text_of(data["head"], "sha"),
        text_of(data["base"], "ref"),
        merged_as,
        merges if isinstance(merges, bool) else None,
    )


def _style(data: Any) -> str:
    return next((style for style, key in _STYLES.items() if data.get(key)), "merge")


def _of_head(data: Json, head: str) -> PullRequest | None:
    """Read a pull request of this branch of the repository itself; None for others."""
    at = read(data, lambda data: data["head"])
    repository, other = at.get("repo"), read(data, lambda data: data["base"]["repo"])
    is_ours = text_of(at, "ref") == head or text_of(at, "label") == head
    here = not isinstance(repository, dict) or repository.get("id") == other.get("id")
    return read(data, pull_of) if is_ours and here else None


def _check(data: Any) -> CheckRun:
    state = _STATES.get(text_of(data, "status"), pulls.PENDING)
    name, url = text_of(data, "context"), text_of(data, "target_url")
    return CheckRun(name, state, url, text_of(data, "description"))


def _remark(data: Any) -> ReviewRemark | None:
    if data.get("resolver"):
        return None
    line = data.get("position") or data.get("original_position") or ""
    place = f"{text_of(data, 'path')}:{line}".rstrip(":")
    key, author = f"remark-{number_of(data, 'id')}", login_of(data.get("user"))
    return ReviewRemark(key, author, text_of(data, "body"), place)
