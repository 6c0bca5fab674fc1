"""Pull requests of GitHub: one query for all of them. Source: GitHub's public GraphQL schema."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from beads_workers.core.base import pulls
from beads_workers.core.base.pulls import CheckRun, NewPull, PullRequest, ReviewRemark
from beads_workers.integrations.forge.api import ForgeDown, ForgeError, ForgeRepository, NotTaken
from beads_workers.integrations.forge.github import NOT_FOUND, GitHub, login_in
from beads_workers.integrations.forge.rest import Json, login_of_git, number_of, read, text_of
from beads_workers.integrations.forge.web import CALL_SECONDS, HttpAnswer

PULL = """
id number url state isCrossRepository baseRefName headRefOid mergeable
mergeCommit { oid }
latestOpinionatedReviews(first: 50, writersOnly: true) {
  nodes { state author { __typename login } }
}
reviews(last: 50, states: [COMMENTED, CHANGES_REQUESTED]) {
  nodes { id body author { __typename login } }
}
reviewThreads(last: 100) { nodes {
  isResolved path line comments(first: 20) { nodes { id body author { __typename login } } }
} }
commits(last: 1) { nodes { commit { statusCheckRollup { contexts(first: 100) { nodes {
  __typename
  ... on CheckRun { name status conclusion detailsUrl title summary }
  ... on StatusContext { context state targetUrl description }
} } } } } }
"""
REPOSITORY = "id squashMergeAllowed mergeCommitAllowed rebaseMergeAllowed"
OF_HEAD = f"""
query($owner: String!, $name: String!, $head: String!) {{
  repository(owner: $owner, name: $name) {{
    {REPOSITORY}
    pullRequests(headRefName: $head, first: 20, orderBy: {{field: CREATED_AT, direction: DESC}}) {{
      nodes {{ {PULL} }}
    }}
  }}
}}"""
RULE = f"""
query($owner: String!, $name: String!, $ref: String!) {{
  repository(owner: $owner, name: $name) {{
    {REPOSITORY} ref(qualifiedName: $ref) {{ refUpdateRule {{ requiredApprovingReviewCount }} }}
  }}
}}"""
CREATE = f"""
mutation($input: CreatePullRequestInput!) {{
  createPullRequest(input: $input) {{ pullRequest {{ {PULL} }} }}
}}"""
MERGE = """
mutation($input: MergePullRequestInput!) {
  mergePullRequest(input: $input) { pullRequest { number } }
}"""
UPDATE = """
mutation($input: UpdatePullRequestInput!) {
  updatePullRequest(input: $input) { pullRequest { number } }
}"""
CLOSE = """
mutation($input: ClosePullRequestInput!) {
  closePullRequest(input: $input) { pullRequest { number } }
}"""
MERGE_LATER = """
mutation($input: EnablePullRequestAutoMergeInput!) {
  enablePullRequestAutoMerge(input: $input) { pullRequest { number } }
}"""
STYLES = (
    ("SQUASH", "squashMergeAllowed"),
    ("MERGE", "mergeCommitAllowed"),
    ("REBASE", "rebaseMergeAllowed"),
)
"""Ways of merging in the order of our liking, with what the repository says of each."""
PASSED = ("SUCCESS", "NEUTRAL", "SKIPPED")
WITHOUT_VERDICT = ("CANCELLED", "STALE", "STARTUP_FAILURE", None)
ASKED_MAX = 40
_JOB = re.compile(r"/actions/runs/\d+/job/(\d+)")


class GitHubPulls(GitHub):
    """``PullRequests``."""

    def __init__(self, repository: ForgeRepository, environ: Mapping[str, str]) -> None:
        super().__init__(repository, environ)
        self._environ = environ
        self._ids: dict[int, str] = {}
        self._id, self._style = "", "SQUASH"

    def of_head(self, head: str) -> list[PullRequest]:
        """See ``PullRequests``."""
        found = self._repository(OF_HEAD, head=head)
        rows = read(found, lambda data: [*data["pullRequests"]["nodes"]])
        return [self._pull(row) for row in rows if not row.get("isCrossRepository")]

    def look(self, numbers: Sequence[int], *, again: bool = False) -> dict[int, PullRequest]:
        """See ``PullRequests``."""
        found: dict[int, PullRequest] = {}
        for at in range(0, len(numbers), ASKED_MAX):
            asked = numbers[at : at + ASKED_MAX]
            parts = (f"p{number}: pullRequest(number: {number}) {{ {PULL} }}" for number in asked)
            query = "query($owner: String!, $name: String!) {\n"
            asks = f"{REPOSITORY} {' '.join(parts)}"
            query += f"repository(owner: $owner, name: $name) {{ {asks} }} }}"
            for row in self._repository(query).values():
                if isinstance(row, dict):
                    pull = self._pull(row)
                    found[pull.number] = pull
        return found

    def open(self, new: NewPull) -> PullRequest:
        """See ``PullRequests``."""
        fields = {"repositoryId": self._id, "headRefName": new.head, "baseRefName": new.base}
        fields |= {"title": new.title, "body": new.body}
        made = self._change(CREATE, {**fields, "draft": new.draft})
        return self._pull(read(made, lambda data: data["createPullRequest"]["pullRequest"]))

    def edit(self, number: int, title: str, body: str) -> None:
        """See ``PullRequests``."""
        fields = {"pullRequestId": self._ids.get(number, ""), "title": title, "body": body}
        self._change(UPDATE, fields)

    def close(self, number: int) -> None:
        """See ``PullRequests``."""
        self._change(CLOSE, {"pullRequestId": self._ids.get(number, "")})

    def run_again(self, check: CheckRun) -> bool:
        """See ``PullRequests``: one job of GitHub Actions."""
        if check.key:
            self._ask("POST", f"{self._path}/actions/jobs/{check.key}/rerun")
        return bool(check.key)

    def log(self, check: CheckRun) -> str:
        """See ``PullRequests``."""
        try:
            return self.gh.text(f"{self._path}/actions/jobs/{check.key}/logs") if check.key else ""
        except ForgeDown:
            return ""  # What the check says of itself has to do.

    def merge(self, pull: PullRequest, title: str, text: str) -> None:
        """See ``PullRequests``."""
        self._change(MERGE, self._merging(pull, title, text))

    def merge_later(self, pull: PullRequest, title: str, text: str) -> None:
        """See ``PullRequests``."""
        self._change(MERGE_LATER, self._merging(pull, title, text))

    def _merging(self, pull: PullRequest, title: str, text: str) -> Json:
        fields = {"pullRequestId": self._ids.get(pull.number, ""), "mergeMethod": self._style}
        return {
            **fields,
            "expectedHeadOid": pull.commit,
            "commitHeadline": title,
            "commitBody": text,
        }

    def _lacks(self, about: HttpAnswer) -> list[str]:
        scopes = about.headers.get("x-oauth-scopes", "")
        if not scopes or "workflow" in scopes.replace(",", " ").split():
            return []
        return ["branches with workflows: gh auth refresh -s workflow lets them be pushed"]

    def _approvals(self, base: str) -> int:
        rule = self._repository(RULE, ref=f"refs/heads/{base}")["ref"] or {}
        return int((rule.get("refUpdateRule") or {}).get("requiredApprovingReviewCount") or 0)

    def login_of_git(self) -> Mapping[str, str]:
        """See ``PullRequests``: the token of ``gh``."""
        host = self.repository.url.partition("://")[2]
        argv = ["gh", "auth", "token", "--hostname", host]
        try:
            done = subprocess.run(
                argv, env=dict(self._environ), capture_output=True, text=True, timeout=CALL_SECONDS
            )
        except (OSError, subprocess.TimeoutExpired):
            return {}
        token = done.stdout.strip()
        if done.returncode or not token:
            return {}  # The user's own way to push has to do.
        return login_of_git(self.repository.url, "x-access-token", token)

    # --- reading ----------------------------------------------------------------------------------

    def _repository(self, query: str, **variables: Any) -> Json:
        of = {"owner": self.repository.owner, "name": self.repository.name}
        data = self._asked(query, {**of, **variables})
        found = read(data, lambda data: data["repository"])
        if not isinstance(found, dict):
            raise ForgeError(f"{self.repository.text}: this login cannot see it")
        self._id = read(found, lambda data: str(data["id"]))
        self._style = next((style for style, key in STYLES if found.get(key)), "MERGE")
        return found

    def _change(self, query: str, fields: Json) -> Json:
        return self._asked(query, {"input": fields}, changes=True)

    def _asked(self, query: str, variables: Json, *, changes: bool = False) -> Json:
        found, errors = self.graphql(query, variables)
        for kind, said in errors.items():
            if changes or kind != NOT_FOUND:
                raise (NotTaken if changes else ForgeError)(f"graphql: {said}")
        if not isinstance(found, dict):
            raise ForgeError("graphql: the answer has no data")
        return found

    def _pull(self, row: Json) -> PullRequest:
        pull = read(row, _pull_of)
        self._ids[pull.number] = text_of(row, "id")
        found = [each for each in read(row, _remarks) if each.author != self.login()]
        remarks = [each for each in found if self._is_heard(each.author)]
        states = {state for author, state in read(row, _opinions) if self._is_heard(author)}
        return replace(
            pull,
            is_approved="APPROVED" in states and "CHANGES_REQUESTED" not in states,
            is_refused="CHANGES_REQUESTED" in states,
            remarks=tuple(remarks),
            others=len(found) - len(remarks),
        )

    def _is_heard(self, login: str) -> bool:
        """Return whether somebody else may write here, and is no program."""
        is_person = bool(login) and not login.endswith("[bot]") and login != self.login()
        return is_person and self.can_write(login)


def _pull_of(data: Any) -> PullRequest:
    merged = data.get("mergeCommit")
    return PullRequest(
        number_of(data, "number"),
        text_of(data, "url"),
        {"OPEN": pulls.OPEN, "MERGED": pulls.MERGED}.get(data["state"], pulls.CLOSED),
        text_of(data, "headRefOid"),
        text_of(data, "baseRefName"),
        text_of(merged, "oid") if data["state"] == "MERGED" and isinstance(merged, dict) else "",
        {"MERGEABLE": True, "CONFLICTING": False}.get(text_of(data, "mergeable")),
        tuple(_checks(data)),
    )


def _checks(data: Any) -> list[CheckRun]:
    found = []
    for node in data["commits"]["nodes"]:
        rollup = node["commit"]["statusCheckRollup"]
        for each in rollup["contexts"]["nodes"] if rollup else ():
            found.append(_run(each) if each["__typename"] == "CheckRun" else _status(each))
    return [each for each in found if each is not None]


def _run(data: Any) -> CheckRun | None:
    ended, conclusion = data["status"] == "COMPLETED", data.get("conclusion")
    if ended and conclusion in WITHOUT_VERDICT:
        return None
    state = pulls.GREEN if conclusion in PASSED else pulls.RED
    url = text_of(data, "detailsUrl")
    text = " ".join(filter(None, (text_of(data, "title"), text_of(data, "summary"))))
    job = _JOB.search(url)  # ``databaseId`` has 32 bits, which are too few.
    state = state if ended else pulls.PENDING
    return CheckRun(text_of(data, "name"), state, url, text, job[1] if job else "")


def _status(data: Any) -> CheckRun:
    states = {"SUCCESS": pulls.GREEN, "FAILURE": pulls.RED, "ERROR": pulls.RED}
    state = states.get(data["state"], pulls.PENDING)
    about = text_of(data, "targetUrl"), text_of(data, "description")
    return CheckRun(text_of(data, "context"), state, *about)


def _opinions(data: Any) -> list[tuple[str, str]]:
    nodes = data["latestOpinionatedReviews"]["nodes"]
    return [(login_in(each.get("author")), text_of(each, "state")) for each in nodes]


def _remarks(data: Any) -> list[ReviewRemark]:
    found = [_remark(each, "") for each in data["reviews"]["nodes"]]
    for thread in data["reviewThreads"]["nodes"]:
        if not thread.get("isResolved"):
            line = thread.get("line")
            place = f"{text_of(thread, 'path')}{f':{line}' if line else ''}"
            found += [_remark(each, place) for each in thread["comments"]["nodes"]]
    return [each for each in found if each.text.strip()]


def _remark(data: Any, place: str) -> ReviewRemark:
    return ReviewRemark(
        text_of(data, "id"), login_in(data.get("author")), text_of(data, "body"), place
    )
