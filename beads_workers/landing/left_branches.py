"""Branches that earlier runs left to land, and how the attempts ended that made them."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path

from beads_workers.core.base.model import value
from beads_workers.core.base.source import Action
from beads_workers.core.records import journal as rec
from beads_workers.core.records.landing import Add
from beads_workers.landing.repository import LandingRepository, undone_ref
from beads_workers.landing.scratch_merges import Conflict
from beads_workers.runtime.journal_file import read_journal
from beads_workers.runtime.run_directory import RunDirectory
from beads_workers.worktrees.git import BRANCHES, GitError, git, names, row_format, rows
from beads_workers.worktrees.landed import PREFIX, as_landed, still_landed
from beads_workers.worktrees.ledger import LandedCommit
from beads_workers.worktrees.records import Records, WorktreeRecord

RUNS_MAX = 20
"""Number of runs whose journals are read for the outcomes of attempts."""

SUCCESS = "success"
UNDONE = "taken back"
LEFT_ALONE = "left alone"


@value
class LeftBranch:
    """A branch with work. ``outcome``: how its attempt ended, "" if that is unknown, ``taken back``
    if it had landed once, ``left alone`` if somebody else had closed or taken its issue.
    ``worktree``: its folder, "" if that is gone."""

    add: Add
    outcome: str = ""
    worktree: str = ""

    @property
    def may_land(self) -> bool:
        """Whether the attempt of the branch succeeded."""
        return self.outcome == SUCCESS


@value
class BranchState:
    """State of a branch relative to the integration branch."""

    left: LeftBranch
    commits: int
    # In git's words.
    diffstat: str
    # The commit by which the branch is on the integration branch.
    landed: str = ""
    # Files in conflict; None if the branch merges.
    conflicts: tuple[str, ...] | None = None
    trouble: str = ""
    # As in ``landing.Landed``.
    verified: str = ""
    # The watched files that the branch changes.
    watched: tuple[str, ...] = ()

    @property
    def merges(self) -> bool:
        """Whether the branch would merge now."""
        return self.conflicts is None and not self.trouble


def left_branches(
    state_directory: Path, repository: LandingRepository, named: Collection[str] | None = None
) -> list[LeftBranch]:
    """Return the newest branch of each issue, in the order in which they land; raises ``GitError``.
    A branch that was taken back and does not exist any more is only included if its issue is among
    ``named`` (None: all of them)."""
    common = repository.common
    wanted = row_format("%(refname:lstrip=2)", "%(objectname)")
    output = git(common, "for-each-ref", wanted, f"refs/heads/{BRANCHES}/")
    heads = {row[0]: row[1] for row in rows(output, 2)}
    ended, issues = _ended(RunDirectory(state_directory))
    newest: dict[str, LeftBranch] = {}
    undone = repository.undone()
    records = Records(state_directory)
    for record in sorted(records.all(), key=records.written_at):
        head = heads.get(record.branch)
        if head is None or head == record.base or record.common != common:
            continue
        outcome, at = ended.get((record.issue_id, record.attempt), ("", 0.0))
        claimed = issues.get(record.issue_id, rec.Claimed(record.issue_id))
        add = Add(
            *(record.issue_id, record.attempt, record.run_id, head, record.base, record.branch),
            title=claimed.title,
            priority=claimed.priority,
            ended_at=at or records.written_at(record),
            issue_type=claimed.issue_type,
            labels=claimed.labels,
        )
        if undone_ref(add) in undone:
            outcome = UNDONE
        worktree = record.path if Path(record.path).exists() else ""
        newest[record.issue_id] = LeftBranch(add, outcome, worktree)
    gone = as_landed(common, [*undone.values()] if named is None or named else [])
    gone = [each for each in gone if named is None or each.issue_id in named]
    for left in _taken_back(repository, [e for e in gone if e.issue_id not in newest]):
        newest[left.add.issue_id] = left
    return sorted(newest.values(), key=lambda left: (left.add.priority, left.add.ended_at))


def elsewhere(state_directory: Path, branch: str, run_id: str) -> tuple[str, str] | None:
    """Return why a branch of this run is not to land on this integration branch, and the command
    that helps; None if it may, or nobody knows, for instance because HEAD was detached."""
    settings = RunDirectory(state_directory).read_settings(run_id)
    if settings is None:
        return None
    on = settings.work.worktrees.on if settings.work.worktrees is not None else ""
    made = settings.landing.branch if settings.landing is not None else f"{PREFIX}/{on}"
    if made in (f"{PREFIX}/", branch):
        return None
    why = f"was made for {made}, and work would land on {branch}"
    return why, f"git switch {shlex.quote(made.removeprefix(f'{PREFIX}/'))}"


def _taken_back(repository: LandingRepository, gone: Sequence[LandedCommit]) -> list[LeftBranch]:
    """Return what was taken back and has not landed since, for branches removed when they
    landed."""
    tip = repository.commit_of(repository.ref)
    if tip is None or not gone:
        return []
    there = {each.issue_id for each in still_landed(repository.all_landed(tip))}
    left = repository.order_all_again([each for each in gone if each.issue_id not in there])
    return [LeftBranch(add, UNDONE) for add in left]


def states(
    repository: LandingRepository, some: list[LeftBranch], watched: Sequence[str] = ()
) -> list[BranchState]:
    """Return the state of each branch relative to the integration branch, or to its future start.
    ``watched``: patterns of the files that git looks for in the branches."""
    tip = repository.commit_of(repository.ref) or repository.settings.landing.start
    found = [_state(repository, left, tip) for left in some]
    return [_watched(repository, each, watched) for each in found]


def _watched(
    repository: LandingRepository, state: BranchState, watched: Sequence[str]
) -> BranchState:
    if not watched or state.trouble:
        return state
    span = f"{state.left.add.base}..{state.left.add.commit}"
    try:
        found = repository.objects.git("diff", "--name-only", "-z", span, "--", *watched)
    except GitError as error:
        return replace(state, trouble=str(error))
    return replace(state, watched=tuple(names(found)))


def _state(repository: LandingRepository, left: LeftBranch, tip: str) -> BranchState:
    add, objects = left.add, repository.objects
    span = f"{add.base}..{add.commit}"
    try:
        commits = int(objects.git("rev-list", "--count", span))
        diffstat = objects.git("diff", "--shortstat", span).strip()
        landed = repository.landed_as(add, tip)
        if landed is not None:
            of = (left, commits, diffstat, landed.commit)
            return BranchState(*of, verified=landed.verified)
        if objects.contains(tip, add.commit):
            return BranchState(left, commits, diffstat, add.commit)
        found = repository.builder.couple(tip, add)
    except (GitError, OSError) as error:
        return BranchState(left, 0, "", trouble=str(error))
    if isinstance(found, Conflict):
        return BranchState(left, commits, diffstat, conflicts=found.files)
    return BranchState(left, commits, diffstat, landed="" if found.changes else tip)


def succeeded(state_directory: Path, records: Collection[WorktreeRecord]) -> list[WorktreeRecord]:
    """Return the records whose attempt succeeded, according to the journal of their run."""
    runs = RunDirectory(state_directory)
    fine = {
        (run_id, entry.record.issue_id, entry.record.attempt)
        for run_id in {record.run_id for record in records}
        for entry in read_journal(runs.run(run_id) / "journal.jsonl")
        if isinstance(entry.record, rec.Finished) and entry.record.outcome == SUCCESS
    }
    return [each for each in records if (each.run_id, each.issue_id, each.attempt) in fine]


def uncommitted(
    state_directory: Path, common: str, issues: Collection[str]
) -> list[tuple[WorktreeRecord, str]]:
    """Return worktrees that may hold work of a command that is on no branch, with the issue's
    title. The attempt succeeded, or its issue is among ``issues``, and its result was not inspected
    (``--no-land``)."""
    records, runs = Records(state_directory), RunDirectory(state_directory)
    ended, titles = _ended(runs)
    looked_at = _looked_at(runs)
    found = []
    for record in records.all():
        key = (record.issue_id, record.attempt)
        wanted = record.issue_id in issues or ended.get(key, ("", 0.0))[0] == SUCCESS
        free = not records.in_use(record) and not records.is_locked(record)
        here = record.common == common and Path(record.path).is_dir()
        if wanted and free and here and key not in looked_at and key in ended:
            claimed = titles.get(record.issue_id)
            found.append((record, claimed.title if claimed else ""))
    return found


_Ended = dict[tuple[str, int], tuple[str, float]]


def _looked_at(runs: RunDirectory) -> set[tuple[str, int]]:
    """Return the attempts whose journal says what they left on their branch."""
    return {
        (end.issue_id, end.attempt)
        for run_id in runs.run_ids()[-RUNS_MAX:]
        for entry in read_journal(runs.run(run_id) / "journal.jsonl")
        if isinstance(end := entry.record, rec.Finished) and end.receipt
    }


def _ended(runs: RunDirectory) -> tuple[_Ended, dict[str, rec.Claimed]]:
    """Return the outcome and the end of each attempt, and the last claim of each issue."""
    ended: _Ended = {}
    issues: dict[str, rec.Claimed] = {}
    for run_id in runs.run_ids()[-RUNS_MAX:]:
        for entry in read_journal(runs.run(run_id) / "journal.jsonl"):
            match entry.record:
                case rec.Finished() as end:
                    ended[end.issue_id, end.attempt] = (end.outcome, entry.at)
                case rec.SettledRecord(issue_id, Action.CONFIRM.value):
                    # Another attempt may have followed: the settlement is about the last one.
                    last = max((key for key in ended if key[0] == issue_id), default=None)
                    if last is not None:
                        ended[last] = (LEFT_ALONE, ended[last][1])
                case rec.Claimed() as claimed:
                    issues[claimed.issue_id] = claimed
    return ended, issues
