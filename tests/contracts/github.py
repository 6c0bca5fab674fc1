"""A tracker for GitHub issues, over the ``gh`` command line: what adding a tracker takes.

It is this file and one line of ``registry.KINDS``; ours is ``integrations.forge``. GitHub
has no field for most of what an issue of ours has, so labels and the body carry it: ``P0`` to
``P4``, ``type:bug``, ``status:in_progress`` or ``status:blocked``, ``held-by:ACTOR``, and lines
``Blocked by #7``.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from beads_workers.core.base import source
from beads_workers.core.base.model import Filters, IssueId, ListedIssue
from beads_workers.kinds import Capabilities, Located, Opening, SourceKind
from beads_workers.trackers import settlement_rules
from beads_workers.trackers.issue import Dependency, TrackerIssue, to_job, to_seen
from tests.contracts.memory import is_wanted

PREFIX = "labels:"
FIELDS = "number,title,body,state,labels,createdAt,closedAt"
LISTED_MAX = 1000
CALL_SECONDS = 30.0
STATUS, HELD, TYPE = "status:", "held-by:", "type:"
_REPOSITORY = re.compile(r"[\w.-]+/[\w.-]+")
_BLOCKED_BY = re.compile(r"(?m)^Blocked by #(\d+)$")


class GitHubSource:
    """See ``core.base.source.Source``."""

    name = "labels"
    self_claiming = False

    def __init__(
        self, repository: str, *, actor: str, filters: Filters, listed_max: int, program: str = "gh"
    ) -> None:
        self.actor = actor
        self.calls = source.Calls()
        self._repository = repository
        self._filters = filters
        self._listed_max = listed_max
        self._program = program

    def describe(self) -> str:
        """The version of ``gh``, and the repository."""
        version = self._gh("--version").split("\n")[0]
        return f"labels: {self._repository}, {version}; {len(self._all())} issues"

    def take(self, limit: int, skip: Collection[IssueId]) -> source.Taken:
        """Claim what is ready; each claim is read back, because GitHub has no atomic ones."""
        known = self._all()
        wanted = [i for i in _in_order(known) if is_wanted(i, self._filters)]
        free = [i for i in wanted if i.assignee in ("", self.actor)]
        blocked = {i.id for i in wanted if _waits(i, known)}
        ready = [i for i in free if i.id not in blocked and i.id not in skip]
        claimed = [each.id for each in ready[: max(limit, 0)]]
        for number in claimed:
            self._put(
                known[number], settlement_rules.Ownership(settlement_rules.IN_PROGRESS, self.actor)
            )
        after = self._all() if claimed else {}
        others = ready[max(limit, 0) :]
        return source.Taken(
            jobs=tuple(to_job(after[i], self.name) for i in claimed if self._is_ours(after, i)),
            listed=tuple(
                ListedIssue(IssueId(i.id), i.title, i.priority) for i in others[: self._listed_max]
            ),
            more=len(others) > self._listed_max,
            blocked=len(blocked),
        )

    def settle(self, settlements: Sequence[source.Settlement]) -> list[source.Settled]:
        """One listing for the group, and a call or two for each."""
        return self._settled(settlements, self.actor) if settlements else []

    def renew(self, issue_ids: Sequence[IssueId]) -> source.Renewed:
        """There are no leases."""
        return source.Renewed()

    def recover(self, dead: source.CrashedRun) -> list[source.Settled]:
        """Close what the crashed run had done, requeue whatever else is in its name."""
        held = [
            IssueId(each.id)
            for each in _in_order(self._all())
            if settlement_rules.is_left_by(
                dead, each.id, settlement_rules.Ownership(each.status, each.assignee)
            )
        ]
        return self._settled(settlement_rules.pending(dead, held), dead.actor)

    def look(self, issue_ids: Sequence[IssueId]) -> dict[IssueId, source.TrackedIssue]:
        """These issues, from one listing."""
        known = self._all() if issue_ids else {}
        return {i: to_seen(known[i]) for i in issue_ids if i in known}

    def unfinished(self, rows_max: int) -> list[source.TrackedIssue]:
        """Everything that is not closed."""
        found = [
            to_seen(each)
            for each in _in_order(self._all())
            if each.status != settlement_rules.CLOSED
        ]
        return found[:rows_max]

    def ready(self) -> frozenset[IssueId]:
        """Open, and waiting for nothing."""
        known = self._all()
        open_ones = [each for each in known.values() if each.status == settlement_rules.OPEN]
        return frozenset(IssueId(each.id) for each in open_ones if not _waits(each, known))

    def close(self) -> None:
        """There is nothing to end."""

    def _is_ours(self, known: dict[str, TrackerIssue], issue_id: str) -> bool:
        return issue_id in known and known[issue_id].assignee == self.actor

    def _settled(
        self, settlements: Sequence[source.Settlement], actor: str
    ) -> list[source.Settled]:
        known = self._all()
        answers = []
        for settlement in settlements:
            found = known.get(settlement.issue_id)
            holding = settlement_rules.Ownership(found.status, found.assignee) if found else None
            ruling = settlement_rules.rule(settlement, holding, actor)
            try:
                if found is not None and ruling.write is not None:
                    self._write(found, settlement, ruling.write)
                answers.append(source.Settled(settlement, ruling.result, ruling.error))
            except source.SourceError as error:
                answers.append(source.Settled(settlement, source.Result.FAILED, str(error)))
        return answers

    def _write(
        self,
        found: TrackerIssue,
        settlement: source.Settlement,
        holding: settlement_rules.Ownership,
    ) -> None:
        if settlement.action is source.Action.QUARANTINE and settlement.note:
            self._gh("issue", "comment", found.id, "--body", settlement.note)
        if holding.status == settlement_rules.CLOSED:
            said = ("--comment", settlement.note) if settlement.note else ()
            self._gh("issue", "close", found.id, *said)
            return
        if found.status == settlement_rules.CLOSED:
            self._gh("issue", "reopen", found.id)
        self._put(found, holding)

    def _put(self, found: TrackerIssue, holding: settlement_rules.Ownership) -> None:
        before = {*_label(STATUS, found.status), *_label(HELD, found.assignee)}
        after = {*_label(STATUS, holding.status), *_label(HELD, holding.assignee)}
        words = [f"--add-label={label}" for label in sorted(after - before)]
        words += [f"--remove-label={label}" for label in sorted(before - after)]
        if words:
            self._gh("issue", "edit", found.id, *words)

    def _all(self) -> dict[str, TrackerIssue]:
        words = ("issue", "list", "--state", "all", "--limit", str(LISTED_MAX), "--json", FIELDS)
        try:
            rows = json.loads(self._gh(*words))
            return {issue.id: issue for issue in map(_issue, rows)}
        except (ValueError, KeyError, TypeError) as error:
            raise source.SourceError(f"gh answers what is no list of issues: {error}") from None

    def _gh(self, *words: str) -> str:
        self.calls.count += 1
        place = () if words == ("--version",) else ("--repo", self._repository)
        try:
            done = subprocess.run(
                [self._program, *words, *place],
                capture_output=True,
                text=True,
                timeout=CALL_SECONDS,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise source.SourceError(
                f"gh cannot be asked: {error}", "install gh: cli.github.com"
            ) from None
        if done.returncode:
            said = " ".join(done.stderr.split())[:200]
            raise source.SourceError(f"gh {' '.join(words[:2])}: {said}", "gh auth status")
        return done.stdout


def _issue(row: dict[str, Any]) -> TrackerIssue:
    labels = [str(each["name"]) for each in row["labels"]]
    priority = next((int(label[1:]) for label in labels if re.fullmatch("P[0-4]", label)), 2)
    closed = row["state"] == "CLOSED"
    return TrackerIssue(
        id=str(row["number"]),
        title=row["title"],
        description=row["body"],
        status=settlement_rules.CLOSED if closed else _of(labels, STATUS) or settlement_rules.OPEN,
        priority=priority,
        issue_type=_of(labels, TYPE) or "task",
        assignee=_of(labels, HELD),
        labels=tuple(
            label
            for label in labels
            if not label.startswith((STATUS, HELD, TYPE)) and not re.fullmatch("P[0-4]", label)
        ),
        created_at=row["createdAt"],
        updated_at=row["createdAt"],
        closed_at=row["closedAt"] or "",
        dependencies=tuple(Dependency(number) for number in _BLOCKED_BY.findall(row["body"])),
    )


def _of(labels: list[str], prefix: str) -> str:
    # Of two that claim it, the first by name has it; both see the same.
    found = sorted(label for label in labels if label.startswith(prefix))
    return found[0].removeprefix(prefix) if found else ""


def _label(prefix: str, value: str) -> tuple[str, ...]:
    return (prefix + value,) if value and value != settlement_rules.OPEN else ()


def _in_order(known: dict[str, TrackerIssue]) -> list[TrackerIssue]:
    return sorted(known.values(), key=lambda issue: (issue.priority, int(issue.id)))


def _waits(issue: TrackerIssue, known: dict[str, TrackerIssue]) -> bool:
    others = (known.get(each.depends_on_id) for each in issue.dependencies)
    return any(other is not None and other.status != settlement_rules.CLOSED for other in others)


def _open(opening: Opening) -> source.Source:
    return GitHubSource(
        opening.settings.source_options["repository"],
        actor=opening.actor,
        filters=opening.settings.filters,
        listed_max=opening.listed_max,
    )


def _locate(text: str, folder: Path) -> Located:
    repository = text.removeprefix(PREFIX)
    if not _REPOSITORY.fullmatch(repository):
        raise source.SourceError(f"{text!r} names no repository", "labels:OWNER/REPOSITORY")
    return Located(folder / ".beads-workers", folder, {"repository": repository})


KIND = SourceKind(
    name="labels",
    called="GitHub",
    open=_open,
    capabilities=Capabilities(dependencies=True),
    prefixes=(PREFIX,),
    forms=("labels:OWNER/REPOSITORY",),
    named=False,
    locate=_locate,
)
