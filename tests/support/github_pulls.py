"""Pull requests of our GitHub, over a bare repository; see ``tests.support.github``."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from graphql import (
    FieldNode,
    InlineFragmentNode,
    IntValueNode,
    OperationDefinitionNode,
    SelectionSetNode,
)

Json = dict[str, Any]
WHO = {
    f"GIT_{role}_{what}": f"{role}@x"
    for role in ("AUTHOR", "COMMITTER")
    for what in ("NAME", "EMAIL")
}


def actor(login: str) -> Json:
    """Somebody, as the GraphQL API shows them: programs have no ``[bot]`` in their names."""
    name = login.removesuffix("[bot]")
    return {"__typename": "User" if name == login else "Bot", "login": name}


def chosen(fields: SelectionSetNode, found: Json) -> Json:
    """Return of an object what a query asks for, and nothing else."""
    made: Json = {}
    for each in fields.selections:
        if isinstance(each, InlineFragmentNode):
            assert each.type_condition is not None
            if found["__typename"] == each.type_condition.name.value:
                made |= chosen(each.selection_set, found)
            continue
        assert isinstance(each, FieldNode)
        value = found[each.name.value]
        if each.selection_set is not None and isinstance(value, list):
            value = [chosen(each.selection_set, entry) for entry in value]
        elif each.selection_set is not None and value is not None:
            value = chosen(each.selection_set, value)
        made[each.alias.value if each.alias else each.name.value] = value
    return made


class Pulls:
    """The pull requests, and what people and CI do with them."""

    def __init__(self, new_id: Callable[[], int]) -> None:
        self.bare: Path = Path("/nonexistent")
        self.rows: dict[int, Json] = {}
        self.logs: dict[int, str] = {}
        self.style = "squash"
        self.refuses_merges = ""
        """Why nothing is merged, as branch protection says it."""
        self.approvals = 0
        """How many the branch needs."""
        self._id = new_id

    def git(self, *words: str, stdin: str = "") -> str:
        done = subprocess.run(
            ["git", "-C", str(self.bare), *words], input=stdin, capture_output=True, text=True,
            env={"PATH": "/usr/bin:/bin", "HOME": "/nonexistent", **WHO},
        )  # fmt: skip
        assert done.returncode == 0, (words, done.stderr)
        return done.stdout.strip()

    # --- what people and CI do --------------------------------------------------------------------

    def check(self, number: int, conclusion: str | None, log: str = "") -> None:
        """CI begins (None), or has found something."""
        row, key = self.rows[number], 10_000_000_000 + self._id()
        self.logs[key] = log
        row["checks"][self.head(row)] = {
            "__typename": "CheckRun", "databaseId": key if key < 1 << 31 else None,
            "name": "ci", "status": "COMPLETED" if conclusion else "IN_PROGRESS",
            "conclusion": conclusion, "title": None, "summary": None,
            "detailsUrl": f"https://localhost/actions/runs/1/job/{key}",
        }  # fmt: skip

    def run_again(self, key: int) -> None:
        """A job begins anew."""
        for row in self.rows.values():
            for check in row["checks"].values():
                if check["detailsUrl"].endswith(f"/job/{key}"):
                    check |= {"status": "IN_PROGRESS", "conclusion": None}
                    row["again"] = row.get("again", 0) + 1

    def review(self, number: int, state: str, text: str, by: str) -> None:
        row = self.rows[number]
        made = {"id": f"R_{self._id()}", "state": state, "body": text, "author": actor(by)}
        row["reviews"].append(made)

    def remark(self, number: int, text: str, by: str, path: str = "a.py", line: int = 1) -> None:
        comment = {"id": f"C_{self._id()}", "body": text, "author": actor(by)}
        thread = {"isResolved": False, "path": path, "line": line, "comments": {"nodes": [comment]}}
        self.rows[number]["threads"].append(thread)

    def close(self, number: int) -> None:
        row = self.rows[number]
        row["commit"], row["state"] = self.head(row), "CLOSED"

    def merge(self, number: int, title: str = "", text: str = "") -> None:
        row = self.rows[number]
        head, base = self.head(row), self.git("rev-parse", f"refs/heads/{row['base']}")
        tree = self.git("merge-tree", "--write-tree", base, head).splitlines()[0]
        message = f"{title or row['title']}\n\n{text}"
        commit = self.git("commit-tree", tree, "-p", base, stdin=message)
        self.git("update-ref", f"refs/heads/{row['base']}", commit, base)
        row |= {"commit": head, "state": "MERGED", "merged_as": commit}

    def head(self, row: Json) -> str:
        """Where its branch stands, or stood when it ended."""
        return row["commit"] or self.git("rev-parse", f"refs/heads/{row['head']}")

    # --- what the API shows -----------------------------------------------------------------------

    def shown(self, row: Json) -> Json:
        commit = self.head(row)
        latest = {
            each["author"]["login"]: each for each in row["reviews"] if each["state"] != "COMMENTED"
        }
        of = [each for each in row["reviews"] if each["state"] != "APPROVED"]
        found = [row["checks"][commit]] if commit in row["checks"] else []
        rollup = {"contexts": {"nodes": found}} if found else None
        return {
            "id": f"PR_{row['number']}", "number": row["number"], "state": row["state"],
            "url": f"https://localhost/team/shop/pull/{row['number']}",
            "isCrossRepository": False, "baseRefName": row["base"], "headRefOid": commit,
            "mergeable": self._mergeable(row, commit),
            "mergeCommit": {"oid": row["merged_as"]} if row["merged_as"] else None,
            "latestOpinionatedReviews": {"nodes": [*latest.values()]},
            "reviews": {"nodes": of}, "reviewThreads": {"nodes": row["threads"]},
            "commits": {"nodes": [{"commit": {"statusCheckRollup": rollup}}]},
        }  # fmt: skip

    def _mergeable(self, row: Json, commit: str) -> str:
        words = ["git", "-C", str(self.bare), "merge-tree", "--write-tree", row["base"], commit]
        merges = subprocess.run(words, capture_output=True).returncode == 0
        return "MERGEABLE" if merges else "CONFLICTING"

    def answer(self, asked: OperationDefinitionNode, variables: Json, login: str) -> Json:
        (field,) = asked.selection_set.selections
        assert isinstance(field, FieldNode) and field.selection_set is not None
        name = field.name.value
        if name == "repository":
            return self._of_repository(field.selection_set, variables)
        done = getattr(self, f"_{name}")(variables["input"], login)
        if isinstance(done, str):
            return {"data": {name: None}, "errors": [{"type": "UNPROCESSABLE", "message": done}]}
        made = chosen(field.selection_set, {"pullRequest": self.shown(done)})
        return {"data": {name: made}}

    def _of_repository(self, fields: SelectionSetNode, variables: Json) -> Json:
        head, errors, found = variables.get("head"), list[Json](), Json()
        rows = [row for row in self.rows.values() if row["head"] == head]
        of_head = [self.shown(row) for row in sorted(rows, key=lambda row: -row["number"])]
        about = {"id": "R_1", "pullRequests": {"nodes": of_head}}
        styles = ("squashMergeAllowed", "mergeCommitAllowed", "rebaseMergeAllowed")
        about["ref"] = {"refUpdateRule": {"requiredApprovingReviewCount": self.approvals}}
        about |= {name: name.startswith(self.style) for name in styles}
        for each in fields.selections:
            assert isinstance(each, FieldNode)
            if each.name.value != "pullRequest":
                found |= chosen(SelectionSetNode(selections=(each,)), about)
                continue
            number = each.arguments[0].value
            assert isinstance(number, IntValueNode) and each.alias and each.selection_set
            row = self.rows.get(int(number.value))
            key = each.alias.value
            found[key] = chosen(each.selection_set, self.shown(row)) if row else None
            if row is None:
                error = {"type": "NOT_FOUND", "message": "no PullRequest", "path": ["repository"]}
                errors.append(error)
        return {"data": {"repository": found}, **({"errors": errors} if errors else {})}

    def _createPullRequest(self, asked: Json, login: str) -> Json | str:
        head = asked["headRefName"]
        if any(row["head"] == head and row["state"] == "OPEN" for row in self.rows.values()):
            return f"A pull request already exists for team:{head}."
        number = self._id()
        self.rows[number] = {
            "number": number, "title": asked["title"], "body": asked["body"], "state": "OPEN",
            "head": head, "base": asked["baseRefName"], "draft": asked.get("draft", False),
            "by": login, "commit": "", "merged_as": "", "checks": {}, "reviews": [], "threads": [],
            "later": False, "comments": [],
        }  # fmt: skip
        return self.rows[number]

    def _mergePullRequest(self, asked: Json, login: str) -> Json | str:
        row = self.rows[int(asked["pullRequestId"].rpartition("_")[2])]
        if self.refuses_merges:
            return self.refuses_merges
        if asked["expectedHeadOid"] != self.head(row):
            return "Head branch was modified. Review and try the merge again."
        if row["state"] != "OPEN" or self._mergeable(row, self.head(row)) != "MERGEABLE":
            return "Pull Request is not mergeable"
        self.merge(row["number"], asked["commitHeadline"], asked["commitBody"])
        return row

    def _updatePullRequest(self, asked: Json, login: str) -> Json | str:
        row = self.rows[int(asked["pullRequestId"].rpartition("_")[2])]
        row |= {"title": asked["title"], "body": asked["body"]}
        return row

    def _closePullRequest(self, asked: Json, login: str) -> Json | str:
        number = int(asked["pullRequestId"].rpartition("_")[2])
        self.close(number)
        return self.rows[number]

    def _enablePullRequestAutoMerge(self, asked: Json, login: str) -> Json | str:
        row = self.rows[int(asked["pullRequestId"].rpartition("_")[2])]
        if self.refuses_merges:
            return self.refuses_merges
        row["later"] = True
        return row
