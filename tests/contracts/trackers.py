"""The trackers that ``test_sources`` runs against: one class and one entry in ``TRACKERS`` each.

To add a tracker, write a class of the shape ``Tracker`` whose constructor takes an empty folder,
and name it in ``TRACKERS``. Every test uses a fresh one with a handful of issues.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

import pytest

from beads_workers.core.base.model import Filters, IssueId
from beads_workers.core.base.ready import BLOCKS, PARENT_CHILD
from beads_workers.core.base.source import Source
from beads_workers.kinds import Capabilities
from beads_workers.registry import kind_of, kinds
from beads_workers.trackers.issue import Dependency, TrackerIssue
from beads_workers.trackers.sqlite.exchange import write_issues
from beads_workers.trackers.sqlite.source import SqliteSource
from beads_workers.trackers.sqlite.store import SqliteStore, connect, create, transaction
from tests.contracts import github
from tests.contracts.memory import MemorySource, MemoryTracker
from tests.support import fake_gh
from tests.support.bd import new_project, old_project

NOBODY = ""

CAPABILITIES = {
    "memory": Capabilities(dependencies=True, parents=True),
    "sqlite": kind_of("sqlite").capabilities,
    "bd-0.44.0": kind_of("bd").capabilities,
    "bd-1.3.0": kind_of("bd").capabilities,
    "github": github.KIND.capabilities,
}
"""What each promises: tests of what one does not promise leave it out (``needs``)."""


def needs(*capabilities: str) -> pytest.MarkDecorator:
    """Marks a test of what only some trackers promise."""
    return pytest.mark.needs(capabilities)


GIVEN = frozenset({"ready"})
"""Labels that a tracker has on all issues for a fleet."""


class Tracker(Protocol):
    """A fresh tracker, and what a person or a stranger does to it behind the source's back."""

    def source(self, actor: str, filters: Filters, listed_max: int) -> Source:
        """One more source on this tracker; the tests close it."""

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
        """Create an open, unassigned issue."""

    def put(self, issue_id: IssueId, status: str, assignee: str) -> None:
        """Set both as they are given; ``NOBODY`` clears the assignee."""

    def close_as(self, issue_id: IssueId, actor: str) -> None:
        """``actor`` closes it, whoever holds it; the holder stays."""

    def read(self, issue_id: IssueId) -> tuple[str, str]:
        """Its status and its assignee (``NOBODY`` without one), straight from the tracker."""

    def read_all(self) -> dict[IssueId, tuple[str, str]]:
        """The same of every issue, in one call."""

    def notes(self, issue_id: IssueId) -> str:
        """All that a person reads beside the description: notes, comments, the close's reason."""


class InMemory:
    """``MemorySource``: several sources share one ``MemoryTracker``."""

    def __init__(self, folder: Path) -> None:
        self._tracker = MemoryTracker()

    def source(self, actor: str, filters: Filters, listed_max: int) -> Source:
        return MemorySource(
            actor=actor, tracker=self._tracker, filters=filters, listed_max=listed_max
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
        key = f"m-{len(self._tracker.issues) + 1}"
        issue = _issue(key, title, priority, issue_type, labels, blocked_by, parent)
        self._tracker.add(issue)
        return IssueId(key)

    def put(self, issue_id: IssueId, status: str, assignee: str) -> None:
        self._tracker.put(issue_id, status, assignee)

    def close_as(self, issue_id: IssueId, actor: str) -> None:
        self.put(issue_id, "closed", self.read(issue_id)[1])

    def read(self, issue_id: IssueId) -> tuple[str, str]:
        return self.read_all()[issue_id]

    def read_all(self) -> dict[IssueId, tuple[str, str]]:
        issues = self._tracker.issues.values()
        return {IssueId(issue.id): (issue.status, issue.assignee) for issue in issues}

    def notes(self, issue_id: IssueId) -> str:
        issue = self._tracker.issues[issue_id]
        return f"{issue.notes}\n{issue.close_reason}"


class Embedded:
    """``SqliteSource``: every source has a connection of its own to one file."""

    def __init__(self, folder: Path) -> None:
        self._database = folder / "tracker.db"
        create(self._database, "t")
        self._connection = connect(self._database)
        self._store = SqliteStore(self._connection)

    def source(self, actor: str, filters: Filters, listed_max: int) -> Source:
        return SqliteSource(self._database, actor=actor, filters=filters, listed_max=listed_max)

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
        key = self._store.new_id()
        issue = _issue(key, title, priority, issue_type, labels, blocked_by, parent)
        with transaction(self._connection):
            write_issues(self._store, [issue])
        return IssueId(key)

    def put(self, issue_id: IssueId, status: str, assignee: str) -> None:
        with transaction(self._connection):
            self._connection.execute(
                "UPDATE issues SET status = ?, assignee = ? WHERE id = ?",
                (status, assignee, issue_id),
            )
            self._store.refresh(self._store.dependants([issue_id]))

    def close_as(self, issue_id: IssueId, actor: str) -> None:
        self.put(issue_id, "closed", self.read(issue_id)[1])

    def read(self, issue_id: IssueId) -> tuple[str, str]:
        return self.read_all()[issue_id]

    def read_all(self) -> dict[IssueId, tuple[str, str]]:
        issues = self._store.in_batches(self._store.ids(finished=True))
        return {IssueId(issue.id): (issue.status, issue.assignee) for issue in issues}

    def notes(self, issue_id: IssueId) -> str:
        issue = self._store.issues([issue_id])[0]
        return f"{issue.notes}\n{issue.close_reason}"


class GitHub:
    """``GitHubSource`` over a ``gh`` that keeps issues in a file."""

    def __init__(self, folder: Path) -> None:
        self._program = fake_gh.install(folder / "bin")

    def source(self, actor: str, filters: Filters, listed_max: int) -> Source:
        return github.GitHubSource(
            "o/r", actor=actor, filters=filters, listed_max=listed_max, program=str(self._program)
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
        body = "".join(f"Blocked by #{number}\n" for number in blocked_by)
        kept = (*labels, f"P{priority}", f"type:{issue_type}")
        return IssueId(fake_gh.create(self._program, title, body, kept))

    def put(self, issue_id: IssueId, status: str, assignee: str) -> None:
        labels = [
            label
            for label in fake_gh.read(self._program, issue_id)["labels"]
            if not label.startswith(("status:", "held-by:"))
        ]
        labels += [f"held-by:{assignee}"] if assignee else []
        labels += [f"status:{status}"] if status in ("in_progress", "blocked") else []
        state = "CLOSED" if status == "closed" else "OPEN"
        fake_gh.change(self._program, issue_id, labels=labels, state=state)

    def close_as(self, issue_id: IssueId, actor: str) -> None:
        self.put(issue_id, "closed", self.read(issue_id)[1])

    def read(self, issue_id: IssueId) -> tuple[str, str]:
        return self._shown(fake_gh.read(self._program, issue_id))

    def read_all(self) -> dict[IssueId, tuple[str, str]]:
        issues = fake_gh.read_all(self._program)
        return {IssueId(issue_id): self._shown(issue) for issue_id, issue in issues.items()}

    def _shown(self, issue: dict[str, Any]) -> tuple[str, str]:
        said = {name: value for name, _, value in (x.partition(":") for x in issue["labels"])}
        status = "closed" if issue["state"] == "CLOSED" else said.get("status", "open")
        return status, said.get("held-by", NOBODY)

    def notes(self, issue_id: IssueId) -> str:
        return "\n".join(fake_gh.read(self._program, issue_id)["comments"])


def _issue(
    key: str,
    title: str,
    priority: int,
    issue_type: str,
    labels: Sequence[str],
    blocked_by: Sequence[IssueId],
    parent: IssueId | None,
) -> TrackerIssue:
    dependencies = [Dependency(other, BLOCKS) for other in blocked_by]
    if parent is not None:
        dependencies.append(Dependency(parent, PARENT_CHILD))
    return TrackerIssue(
        id=key,
        title=title,
        priority=priority,
        issue_type=issue_type,
        labels=tuple(labels),
        created_at="2026-01-02T03:04:05Z",
        updated_at="2026-01-02T03:04:05Z",
        dependencies=tuple(dependencies),
    )


TRACKERS: dict[str, Callable[[Path], Tracker]] = {
    "memory": InMemory,
    "sqlite": Embedded,
    "bd-0.44.0": old_project,
    "bd-1.3.0": new_project,
    "github": GitHub,
}


def _gitea(folder: Path) -> Tracker:
    from tests.integrations.forge.tracker import GiteaTracker

    return GiteaTracker(folder)


def _gh(folder: Path) -> Tracker:
    from tests.integrations.forge.tracker import GitHubTracker

    return GitHubTracker(folder)


for kind in kinds():
    if kind.name == "forge":  # It may be left out of an installation.
        TRACKERS |= {"gitea": _gitea, "gh": _gh}
        CAPABILITIES |= dict.fromkeys(("gitea", "gh"), kind.capabilities)
