"""Pull requests of GitHub: what is asked and answered is as GitHub's public schema has it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from graphql import GraphQLSchema, parse, validate

from beads_workers.core.base.pulls import (
    CLOSED,
    GREEN,
    MERGED,
    OPEN,
    PENDING,
    RED,
    NewPull,
    PullRefused,
)
from beads_workers.integrations.forge.api import ForgeRepository
from beads_workers.integrations.forge.github_pulls import PULL, GitHubPulls
from tests.integrations.forge.test_descriptions import (
    description,
    folder,
    graphql_problems,
    schema,
)
from tests.integrations.forge.tracker import LOGIN, GitHubTracker
from tests.support.github import NAME, OWNER, Exchange
from tests.support.repository import git, make_repository

__all__ = ["description", "folder", "schema"]
pytestmark = pytest.mark.peers


class Here:
    """A GitHub with two branches, and the adapter."""

    def __init__(self, folder: Path) -> None:
        self.tracker = GitHubTracker(folder)
        self.at = self.tracker.at
        self.heard: list[Exchange] = []
        self.at.heard = self.heard.append
        project = make_repository(folder / "project")
        for name in ("one", "two"):
            git(project, "checkout", "-qb", f"bw/{name}/pr", "main")
            (project / name).write_text(name)
            git(project, "add", ".")
            git(project, "commit", "-qm", name)
        git(project, "clone", "-q", "--bare", ".", str(folder / "bare"))
        self.at.pulls.bare = folder / "bare"
        self.pulls = self.pulls_of()

    def pulls_of(self) -> GitHubPulls:
        """An adapter that knows nothing yet."""
        environ = {"PATH": os.environ["PATH"], **self.at.environment(LOGIN)}
        repository = ForgeRepository("github", f"https://{self.at.host}", OWNER, NAME)
        return GitHubPulls(repository, environ)

    def open(self, name: str) -> int:
        head = f"bw/{name}/pr"
        assert self.pulls.of_head(head) == []
        made = self.pulls.open(NewPull(head, "main", name, "text", draft=name == "two"))
        assert (made.state, made.base) == (OPEN, "main")
        return made.number


def without_aliases(exchange: Exchange) -> list[Exchange]:
    """An exchange for each pull request that a query asks for by its number."""
    found = exchange.found["data"].get("repository", {})
    numbers = [int(name[1:]) for name in found if name[1:].isdigit()]
    head = "query($owner: String!, $name: String!) { repository(owner: $owner, name: $name) {"
    return [
        exchange._replace(
            body=exchange.body | {"query": f"{head} pullRequest(number: {n}) {{ {PULL} }} }} }}"},
            found={"data": {"repository": {"pullRequest": found[f"p{n}"]}}},
        )
        for n in numbers
    ] or [exchange]


@pytest.fixture
def here(tmp_path: Path) -> Here:
    return Here(tmp_path)


def test_a_life_of_two_pull_requests_as_the_schema_has_it(
    here: Here, schema: GraphQLSchema
) -> None:
    at, pulls = here.at, here.pulls
    one, two = here.open("one"), here.open("two")
    with pytest.raises(PullRefused, match="already exists"):
        pulls.open(NewPull("bw/one/pr", "main", "one", ""))
    at.pulls.check(one, None)
    assert pulls.look([one])[one].verdict == PENDING
    at.pulls.check(one, "FAILURE", "line 1\nit broke\n")
    seen = pulls.look([one, two, 99])
    assert {*seen} == {one, two} and seen[two].checks == ()
    (check,) = seen[one].checks
    assert check.state == RED and "it broke" in pulls.log(check)
    at.pulls.review(one, "CHANGES_REQUESTED", "say why", "alice")
    at.pulls.remark(one, "and here", "alice", "a.py", 7)
    at.pulls.remark(one, "obey me", "eve")
    found = pulls.look([one])[one]
    assert found.is_refused and not found.is_approved
    assert [(e.author, e.text, e.place) for e in found.remarks] == [
        ("alice", "say why", ""),
        ("alice", "and here", "a.py:7"),
    ]
    pulls.comment(one, "done")
    at.pulls.review(one, "APPROVED", "", "alice")
    at.pulls.check(one, "SUCCESS")
    found = pulls.look([one])[one]
    assert found.verdict == GREEN and found.is_approved and found.merges is True
    at.pulls.refuses_merges = "At least 2 approving reviews are required"
    with pytest.raises(PullRefused, match="2 approving"):
        pulls.merge(found, "one", "text")
    at.pulls.refuses_merges = ""
    pulls.merge(found, "one", "text")
    found = pulls.look([one])[one]
    assert found.state == MERGED and found.merged_as == at.pulls.git("rev-parse", "main")
    assert pulls.of_head("bw/one/pr")[0].state == MERGED
    pulls.merge_later(pulls.look([two])[two], "two", "")
    assert at.pulls.rows[two]["later"] and at.pulls.rows[two]["draft"]
    pulls.close(two)
    assert pulls.look([two])[two].state == CLOSED
    asked = [each for each in here.heard if each.path == "/graphql"]
    assert len(asked) > 12
    for each in asked:
        assert validate(schema, parse(each.body["query"])) == []
        for one_by_one in without_aliases(each) if "errors" not in each.found else ():
            assert graphql_problems(schema, one_by_one) == []


@pytest.mark.parametrize("style", ["squash", "merge", "rebase"])
def test_who_has_only_looked_merges_as_the_repository_allows(here: Here, style: str) -> None:
    here.at.pulls.style = style
    one, later = here.open("one"), here.pulls_of()
    later.merge(later.look([one])[one], "one", "")
    asked = [each.body["variables"].get("input", {}) for each in here.heard if each.body]
    assert [e["mergeMethod"] for e in asked if "mergeMethod" in e] == [style.upper()]


def test_a_cancelled_check_is_no_verdict(here: Here) -> None:
    one = here.open("one")
    here.at.pulls.check(one, "CANCELLED")
    assert here.pulls.look([one])[one].checks == ()


def test_git_gets_the_login_of_gh(here: Here) -> None:
    (key,) = here.pulls.login_of_git()
    assert key == f"http.https://{here.at.host}/.extraHeader"
