"""Worktrees whose work is nowhere else, and the removal of those that hold none."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Collection, Iterable, Iterator, Set
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from beads_workers.core.base.model import value
from beads_workers.core.base.text import counted, some
from beads_workers.executors.files import branch_part
from beads_workers.runtime import sessions
from beads_workers.worktrees import slots
from beads_workers.worktrees.git import (
    BRANCHES,
    GitError,
    call,
    failure,
    git,
    git_or_none,
    is_ancestor,
    log_format,
    names,
    objects,
    row_format,
    rows,
    unlock,
)
from beads_workers.worktrees.landed import ATTEMPTS, LANDING, landed_commits, still_landed
from beads_workers.worktrees.ledger import LandedCommit
from beads_workers.worktrees.records import (
    AHEAD,
    Records,
    WorktreeRecord,
    git_directories,
    led_to,
    token_in,
)
from beads_workers.worktrees.sweep import aside, delete, give_up, make_writable, sweep

# --- worktrees -----------------------------------------------------------------------------------
# The rule for removal: a worktree is removed only if nobody's work there would be lost.


NAMES_SHOWN = 3
"""Files that are named; further ones are only counted."""


@value
class Found:
    """State of one worktree that we made."""

    # A task may have run in it at some time.
    prepared: bool = True
    in_use: bool = False
    locked: str | None = None
    # Files that are modified, staged or untracked (not ignored).
    changes: tuple[str, ...] = ()
    operation: str | None = None
    stashes: int = 0
    # Number of its own commits that are on no other branch, remote branch or tag.
    commits: int = 0
    branch_used_at: str | None = None
    submodules: bool = False
    # Why it could not be examined.
    trouble: str | None = None
    # Its commits are kept by a ref when it is removed.
    superseded: bool = False
    # Repositories in ignored folders with work that is nowhere else, looked for if nothing else
    # keeps the worktree.
    inside: tuple[str, ...] = ()


def reasons_to_keep(found: Found) -> tuple[str, ...]:
    """Return why the worktree stays, for people; empty: it may be removed, with its branch."""
    if found.in_use:
        return ("in use by a running fleet",)
    reasons = []
    if found.trouble is not None:
        reasons.append(found.trouble)
    if found.locked is not None:
        reasons.append(f"locked by 'git worktree lock'{_because(found.locked)}")
    if found.commits:
        reasons.append(f"{counted(found.commits, 'commit')} on no other branch")
    # Before a task has run there, changes only come from unfinished making.
    if found.changes and found.prepared:
        reasons.append(f"{counted(len(found.changes), 'change')} not committed: {_names(found)}")
    if found.operation is not None:
        reasons.append(f"{found.operation} is under way")
    if found.stashes:
        reasons.append(counted(found.stashes, "stash", "stashes"))
    if found.branch_used_at is not None:
        reasons.append(f"its branch is checked out at {found.branch_used_at}")
    if found.inside:
        reasons.append(f"work that is nowhere else in {some(found.inside, NAMES_SHOWN)}")
    if found.submodules:
        reasons.append("it holds submodules, whose commits git does not look at")
    return tuple(reasons)


def what_came_of_it(branch: str | None, commits: int, changes: int) -> str:
    """Return one line on what a task left in its worktree, for the person who looks at it."""
    on = f"on {branch}" if branch else "on no branch"
    left = f"{counted(changes, 'change')} not committed" if changes else ""
    if commits:
        return f"{counted(commits, 'commit')} {on}" + (f", {left}" if left else "")
    return f"{left} {on}" if left else "nothing changed"


def _because(text: str) -> str:
    return f" ({text})" if text else ""


def _names(found: Found) -> str:
    shown = ", ".join(found.changes[:NAMES_SHOWN])
    return f"{shown}, ..." if len(found.changes) > NAMES_SHOWN else shown


# --- inspection ----------------------------------------------------------------------------------
# Examining the worktrees that we made, and the work in them that is nowhere else.


OPERATIONS = {
    "MERGE_HEAD": "a merge",
    "rebase-merge": "a rebase",
    "rebase-apply": "a rebase",
    "CHERRY_PICK_HEAD": "a cherry-pick",
    "REVERT_HEAD": "a revert",
    "sequencer": "a cherry-pick",
    "BISECT_LOG": "a bisection",
}
"""Files of git in a worktree's own directory while an operation is under way."""

ASTRAY = "its .git file is gone, or leads elsewhere"
MAKING_LOCK = "initializing"
"""Reason that ``git worktree add`` writes into its own lock."""


@value
class Worktree:
    """One worktree that we made, as it is now."""

    record: WorktreeRecord
    found: Found
    # ``path`` and ``git_directory`` are None if the worktree is gone.
    path: Path | None = None
    git_directory: Path | None = None
    # The commit of its branch; None if that is gone.
    tip: str | None = None


class Repository:
    """A repository, read once for all its worktrees: its branches, and what they share."""

    def __init__(self, common: str) -> None:
        self.common = common
        self.by_token: dict[str, tuple[Path, Path]] = {}
        self.by_path: dict[str, Path] = {}
        self._landed_since: dict[str, list[LandedCommit]] = {}
        self._has_landed: dict[tuple[str, str], bool] = {}
        for directory, folder in git_directories(common):
            token = token_in(directory)
            if token is None:
                self.by_path[str(folder)] = directory
            else:
                self.by_token[token] = directory, folder

    @cached_property
    def branches(self) -> dict[str, tuple[str, str]]:
        """Our branches: the commit of each, and the worktree that has it checked out ("" for
        none)."""
        wanted = row_format("%(refname:lstrip=2)", "%(objectname)", "%(worktreepath)")
        output = git(self.common, "for-each-ref", wanted, f"refs/heads/{BRANCHES}/")
        return {branch: (commit, path) for branch, commit, path in rows(output, 3)}

    @cached_property
    def elsewhere(self) -> list[str]:
        """Commits that keep others alive: every branch but ours, remote branches, and tags."""
        kinds = ("%(objecttype)", "%(objectname)", "%(*objecttype)", "%(*objectname)")
        places = ("refs/heads", "refs/remotes", "refs/tags")
        output = git(self.common, "for-each-ref", row_format("%(refname)", *kinds), *places)
        found: set[str] = set()
        for name, kind, commit, tagged_kind, tagged in rows(output, 5):
            if not name.startswith(f"refs/heads/{BRANCHES}/"):
                both = ((kind, commit), (tagged_kind, tagged))
                found.update(each for what, each in both if what == "commit")
        return sorted(found)

    @cached_property
    def unmerged(self) -> set[str]:
        """All commits of our branches that are nowhere else."""
        tips = [commit for commit, _ in self.branches.values()]
        return set(self.only_in(tips)) if tips else set()

    def has_landed(self, record: WorktreeRecord, tip: str) -> bool:
        """Return whether the work of this tip is on an integration branch, in a commit of its own.

        This is only so if the ref of the landed attempt keeps the tip: numbers of attempts are
        reused, and later commits have not landed. Raises ``GitError``.
        """
        of = record.name, tip
        if of not in self._has_landed:
            self._has_landed[of] = self._is_kept_as_landed(record, tip)
        return self._has_landed[of]

    def _is_kept_as_landed(self, record: WorktreeRecord, tip: str) -> bool:
        for each in self._landed(record.base):
            if (each.issue_id, each.run_id) != (record.issue_id, record.run_id):
                continue
            kept = _kept_at(each.issue_id, each.attempt)
            if is_ancestor(self.common, tip, kept):
                return True
        return False

    def is_superseded(self, record: WorktreeRecord, tip: str) -> bool:
        """Return whether the issue has landed from another attempt since, so that nobody needs this
        one. Its commits are kept by a ref when it is removed. Raises ``GitError``.

        A number of an attempt may be used again: then only the commits tell the two apart.
        """
        for attempt in {
            e.attempt for e in self._landed(record.base) if e.issue_id == record.issue_id
        }:
            kept = self._kept(record.issue_id, attempt)
            is_other = attempt != record.attempt or is_ancestor(self.common, kept, tip) is False
            if kept and is_other:
                return True
        return False

    def _kept(self, issue_id: str, attempt: int) -> str:
        ref = _kept_at(issue_id, attempt)
        return git(self.common, "for-each-ref", "--format=%(objectname)", ref).strip()

    def _landed(self, base: str) -> list[LandedCommit]:
        """Return what has landed since an attempt began, and was not undone."""
        if base not in self._landed_since:
            tips, found = self._landing_tips, list[LandedCommit]()
            with suppress(GitError):  # The base is gone: nothing is known to have landed.
                found = landed_commits(self.common, base, tips) if tips else []
            self._landed_since[base] = still_landed(found)
        return self._landed_since[base]

    @cached_property
    def _landing_tips(self) -> list[str]:
        return objects(git(self.common, "for-each-ref", "--format=%(objectname)", f"{LANDING}/"))

    @cached_property
    def stashes(self) -> list[str]:
        """Branches on which something was stashed, once for each stash."""
        if not git(self.common, "for-each-ref", "refs/stash"):
            return []
        output = git(self.common, "log", "-g", log_format("%gs"), "refs/stash", "--")
        heads = [subject.partition(":")[0] for (subject,) in rows(output, 1)]
        return [head.removeprefix("WIP on ").removeprefix("On ") for head in heads]

    def only_in(self, tips: list[str]) -> list[str]:
        """Return the commits behind these tips that are on no branch, remote branch or tag but
        ours."""
        others = [f"^{commit}" for commit in self.elsewhere]
        revisions = "".join(f"{line}\n" for line in (*tips, *others))
        return objects(git(self.common, "rev-list", "--stdin", stdin=revisions))


@dataclass(slots=True)
class Survey:
    """A survey of many worktrees. ``thorough``: find every reason to keep one, not only the first.

    ``ended``: a run whose workers are all known to have ended.
    """

    records: Records
    thorough: bool = True
    ended: str = ""
    _repositories: dict[str, Repository] = field(default_factory=dict)

    def look(self, record: WorktreeRecord) -> Worktree:
        """Return what this worktree holds now."""
        used = record.run_id != self.ended and self.records.in_use(record)
        if used or self.records.is_locked(record):
            return Worktree(record, Found(in_use=True), Path(record.path))
        try:
            return self._look(record)
        except (GitError, OSError) as error:
            trouble = Found(trouble=f"cannot look at it: {error}")
            return Worktree(record, trouble, Path(record.path))

    def has_commits(self, record: WorktreeRecord) -> bool:
        """Return whether the branch holds commits that are nowhere else; raises ``GitError``."""
        repository = self._repository(record.common)
        tip, _ = repository.branches.get(record.branch, (None, ""))
        return self._commits(repository, record, tip) > 0

    def has_landed(self, record: WorktreeRecord) -> bool:
        """Return whether the branch still exists, and an integration branch has its work, or other
        work on its issue."""
        try:
            repository = self._repository(record.common)
            tip, _ = repository.branches.get(record.branch, (None, ""))
            if tip is None:
                return False
            return repository.has_landed(record, tip) or repository.is_superseded(record, tip)
        except GitError:
            return False  # This only tidies up: ``clean`` reports the error.

    def _look(self, record: WorktreeRecord) -> Worktree:
        repository = self._repository(record.common)
        tip, used_at = repository.branches.get(record.branch, (None, ""))
        prepared = self.records.is_ready(record)
        directory, folder = repository.by_token.get(record.token, (None, None))
        half_removed = aside(record).exists() and not os.path.lexists(record.path)
        if directory is None and (half_removed or not prepared):
            # Its maker was killed before it could mark the worktree, or git while it removed it.
            folder = Path(record.path)
            directory = repository.by_path.get(record.path)
        if used_at and folder is not None and _same(used_at, folder):
            used_at = ""
        found = Found(
            prepared=prepared,
            commits=self._commits(repository, record, tip),
            superseded=self._is_superseded(repository, record, tip),
            branch_used_at=used_at or None,
            stashes=repository.stashes.count(record.branch),
        )
        if half_removed:
            return Worktree(record, found, folder if directory else None, directory, tip)
        if directory is None or folder is None:
            return _unknown_to_git(record, found, tip)
        if self.thorough or not found.commits:
            base = record.base
            found = _look_inside(repository, (base, tip), found, directory, folder)
        if prepared and not reasons_to_keep(found):
            since = self.records.ready_at(record)
            found = replace(found, inside=tuple(_with_work_inside(repository, folder, since)))
        return Worktree(record, found, folder, directory, tip)

    def _commits(self, repository: Repository, record: WorktreeRecord, tip: str | None) -> int:
        # Commits below a base that was rewritten since are not this attempt's work.
        if tip is None or tip == record.base or tip not in repository.unmerged:
            return 0
        if repository.has_landed(record, tip) or repository.is_superseded(record, tip):
            return 0
        return len(repository.only_in([tip])) if self.thorough else 1

    def _is_superseded(
        self, repository: Repository, record: WorktreeRecord, tip: str | None
    ) -> bool:
        if tip is None or tip == record.base or tip not in repository.unmerged:
            return False
        return not repository.has_landed(record, tip) and repository.is_superseded(record, tip)

    def _repository(self, common: str) -> Repository:
        if common not in self._repositories:
            self._repositories[common] = Repository(common)
        return self._repositories[common]


def _unknown_to_git(record: WorktreeRecord, found: Found, tip: str | None) -> Worktree:
    path = Path(record.path)
    if not os.path.lexists(path):
        return Worktree(record, found, None, None, tip)
    if found.prepared or any(inner.name != ".git" for inner in path.iterdir()):
        found = replace(found, trouble="git does not know this folder as ours any more")
    return Worktree(record, found, path, None, tip)


def _look_inside(
    repository: Repository,
    base_and_tip: tuple[str, str | None],
    found: Found,
    directory: Path,
    folder: Path,
) -> Found:
    base, tip = base_and_tip
    found = replace(
        found,
        locked=_lock(directory, found.prepared),
        operation=next((o for n, o in OPERATIONS.items() if (directory / n).exists()), None),
        submodules=has_submodules(directory, folder),
    )
    if not folder.exists():
        missing = None if folder.parent.exists() else f"{folder.parent} is not there"
        return replace(
            found, trouble=missing, commits=_detached(repository, (base, tip), found, directory)
        )
    led = led_to(folder)
    if led is None or not _same(str(led), directory):
        # Its .git is another repository or none: its contents are not ours to judge.
        found = replace(found, trouble=ASTRAY)
    # With explicit places: without its ``.git`` file, git would use the checkout around it.
    place = (f"--git-dir={directory}", f"--work-tree={folder}")
    head, branch, changes = status(str(folder), *place)
    commits = found.commits
    if branch is None and head not in (None, base):
        tips = [commit for commit in (head, tip if commits else None) if commit is not None]
        commits = len(repository.only_in(tips))
    return replace(found, changes=changes, commits=commits)


def _with_work_inside(repository: Repository, folder: Path, since: float) -> Iterator[str]:
    """Yield the repositories below a worktree with work that is nowhere else."""
    for place, folders, files in os.walk(folder):
        is_repository = place != str(folder) and ".git" in (*folders, *files)
        if is_repository and _has_work(repository, place, since):
            yield str(Path(place).relative_to(folder))


def _has_work(repository: Repository, place: str, since: float) -> bool:
    """Return whether a worktree of the same repository has changes, or commits on no branch; or
    whether a clone has commits that were made after ``since`` (epoch seconds) and that no remote
    has."""
    at, led = f"--git-dir={place}/.git", led_to(Path(place))
    listed = (at, "rev-list", "--max-count=1")
    if led is not None and led.parent == Path(repository.common, "worktrees"):
        made = (*listed, "HEAD", "--not", "--branches", "--tags")
        return bool(status(place, at, f"--work-tree={place}")[2] or call(place, *made).output)
    made = (*listed, f"--since={int(since)}", "--all", "--not", "--remotes")
    return bool(call(place, at, "remote").output and call(place, *made).output)


def has_submodules(directory: Path, folder: Path) -> bool:
    """Return whether a submodule is filled, here or elsewhere: git removes no such worktree."""
    if (directory / "modules").exists():
        return True
    if not (folder / ".gitmodules").exists():
        return False
    place = (f"--git-dir={directory}", f"--work-tree={folder}")
    listed = git(str(folder), *place, "ls-files", "-z", "--stage")
    links = [row.partition("\t")[2] for row in names(listed) if row.startswith("160000 ")]
    return any((folder / name / ".git").exists() for name in links)


def _detached(
    repository: Repository, base_and_tip: tuple[str, str | None], found: Found, directory: Path
) -> int:
    """Count the commits of a worktree whose folder is gone, with those that only its HEAD keeps."""
    base, tip = base_and_tip
    if not (directory / "HEAD").exists():
        return found.commits
    # In a repository with reftables the file does not tell.
    place = f"--git-dir={directory}"
    if git_or_none(repository.common, place, "symbolic-ref", "--quiet", "HEAD") is not None:
        return found.commits
    head = git(repository.common, place, "rev-parse", "--verify", "HEAD").strip()
    if head == base:
        return found.commits
    return len(repository.only_in([head, *([tip] if tip and found.commits else [])]))


def _lock(directory: Path, prepared: bool) -> str | None:
    try:
        reason = (directory / "locked").read_text(errors="replace").strip()
    except FileNotFoundError:
        return None
    return None if reason == MAKING_LOCK and not prepared else reason


def _same(one: str, other: Path) -> bool:
    return Path(one).resolve() == other.resolve()


def status(folder: str, *place: str) -> tuple[str | None, str | None, tuple[str, ...]]:
    """Return a worktree's commit (None: none yet), its branch (None: detached), and its changes."""
    return parse_status(git(folder, *place, *STATUS))


STATUS = ("status", "--porcelain=v2", "--branch", "-z", "--ignore-submodules=none")
"""Arguments of the call whose output ``parse_status`` reads."""


def parse_status(output: str) -> tuple[str | None, str | None, tuple[str, ...]]:
    """Parse the output of git for ``status``."""
    head = branch = None
    changes: list[str] = []
    renamed = False
    for row in names(output):
        if renamed:
            renamed = False
        elif row.startswith("# branch.oid "):
            head = None if row.endswith("(initial)") else row.removeprefix("# branch.oid ")
        elif row.startswith("# branch.head "):
            branch = None if row.endswith(" (detached)") else row.removeprefix("# branch.head ")
        elif not row.startswith("#"):
            renamed = row.startswith("2 ")
            changes.append(row.split(" ", _FIELDS.get(row[:1], 1))[-1])
    return head, branch, tuple(changes)


_FIELDS = {"1": 8, "2": 9, "u": 10}
"""Number of fields before the name in each kind of line of ``git status``."""


# --- removal -------------------------------------------------------------------------------------
# Removing worktrees that hold no work, with their branches; git decides about each.


@value
class CleanupResult:
    """Result for one worktree."""

    record: WorktreeRecord
    # None if only the branch is left.
    path: Path | None
    # None if only the folder is left.
    branch: str | None
    # Empty if the worktree was removed, or would be.
    kept_because: tuple[str, ...]


def clean(state_directory: Path, *, dry_run: bool) -> Iterator[CleanupResult]:
    """Examine every worktree that we made, and remove those that hold no work; yield the
    results."""
    records = Records(state_directory)
    if not dry_run:
        records.forget_taken()
        slots.settle(str(state_directory))
    for worktree, reasons in _planned(records):
        if not reasons:
            carry_out = _occupied if dry_run else _carried_out
            reasons = carry_out(records, worktree)
        branch = worktree.record.branch if worktree.tip or worktree.found.in_use else ""
        yield CleanupResult(worktree.record, worktree.path, branch or None, reasons)


def _planned(records: Records) -> Iterator[tuple[Worktree, tuple[str, ...]]]:
    """Yield each worktree with the reasons why it stays, in the order of removal."""
    survey = Survey(records)
    waiting, gone, last = [survey.look(record) for record in records.all()], set[Path](), False
    while waiting:
        held, went = list[Worktree](), len(gone)
        for worktree in waiting:
            found = _without(worktree, gone).found
            if found.branch_used_at is not None and not last:
                held.append(worktree)  # By a worktree that may be removed itself.
                continue
            reasons = reasons_to_keep(found)
            if not reasons and worktree.path is not None:
                gone.add(worktree.path.resolve())
            yield worktree, reasons
        waiting, last = held, len(gone) == went


def _carried_out(records: Records, worktree: Worktree) -> tuple[str, ...]:
    used_at = worktree.found.branch_used_at
    if used_at is not None and Path(used_at).exists():
        return (f"its branch is checked out at {used_at}",)  # That worktree was kept.
    return remove(records, worktree, waits=True)


def _without(worktree: Worktree, gone: Set[Path]) -> Worktree:
    """Return the worktree as it is if these folders are gone."""
    used_at = worktree.found.branch_used_at
    if used_at is None or Path(used_at).resolve() not in gone:
        return worktree
    return replace(worktree, found=replace(worktree.found, branch_used_at=None))


def tidy(records: Records, some: Iterable[WorktreeRecord]) -> None:
    """Remove those of these worktrees that hold no work; the others stay, without a message."""
    _tidy(records, Survey(records, thorough=False), some)


def _tidy(
    records: Records, survey: Survey, some: Iterable[WorktreeRecord]
) -> dict[WorktreeRecord, tuple[str, ...]]:
    """Return those without work that stay all the same, with the reasons."""
    without_work = (
        (record, worktree)
        for record in some
        if not reasons_to_keep((worktree := survey.look(record)).found)
    )
    removed = {record: remove(records, worktree) for record, worktree in without_work}
    sweep(records)
    return {record: reasons for record, reasons in removed.items() if reasons}


def discard(records: Records, record: WorktreeRecord) -> None:
    """Remove a worktree that was made ahead, and that no attempt may take any more."""
    _tidy(records, Survey(records, thorough=False, ended=record.run_id), [record])


def tidy_run(
    state_directory: Path, run_id: str, spared: Collection[WorktreeRecord] = ()
) -> dict[WorktreeRecord, tuple[str, ...]]:
    """Remove the worktrees without work of a run whose workers have all ended, and of earlier runs
    as far as their work has landed. Return those that stay all the same, with the reasons.
    ``spared``: stay, for the next run."""
    records = Records(state_directory)
    records.forget_taken()
    survey = Survey(records, thorough=False, ended=run_id)
    rest = [record for record in records.all() if record not in spared]
    over = [
        record
        for record in rest
        if record.run_id == run_id or records.over_at(record) or survey.has_landed(record)
    ]
    stayed = _tidy(records, survey, over)
    slots.settle(str(state_directory), run_id)
    return stayed


@value
class LeftWork:
    """Work that is nowhere else: on ``branches`` of ours, and in ``worktrees`` on no branch yet."""

    branches: tuple[WorktreeRecord, ...] = ()
    worktrees: tuple[WorktreeRecord, ...] = ()


def left_work(state_directory: Path, ended: str = "") -> LeftWork:
    """Return the work that is left to merge or to commit; ``ended``: as in ``Survey``."""
    survey = Survey(Records(state_directory), ended=ended)
    records = survey.records.all()
    try:
        branches = tuple(record for record in records if survey.has_commits(record))
    except GitError:
        return LeftWork()  # Only for a line of the summary: ``clean`` reports the error.
    looked = {record: survey.look(record).found for record in records}
    only_there = (
        record
        for record, found in looked.items()
        if (found.prepared and (found.changes or found.stashes or found.inside))
        or (found.prepared and found.commits and record not in branches)
    )
    return LeftWork(branches, tuple(only_there))


def changes(folder: str) -> tuple[str, ...]:
    """Return the uncommitted files of a worktree; raises ``GitError``."""
    return status(folder)[2]


def unusable(record: WorktreeRecord) -> str:
    """Return why git cannot work in this worktree any more; "" if it can. Raises
    ``GitNoAnswer``."""
    led = led_to(Path(record.path))
    if led is None or token_in(led) != record.token:
        return ASTRAY
    done = call(record.path, *STATUS)
    return str(failure(STATUS, done)) if done.status else ""


def remove(records: Records, worktree: Worktree, *, waits: bool = False) -> tuple[str, ...]:
    """Remove a worktree that was found to hold no work; return why it stays all the same.

    The record is forgotten last: whoever is killed before leaves something that the next call for
    this record removes. ``waits``: delete its files, too; otherwise ``sweep`` has to be called.
    """
    lock = records.lock(worktree.record)
    if lock is None:
        return ("it is being made, or removed, just now",)
    try:
        if not worktree.record.issue_id:
            end_set_up(worktree.record.path)
        if occupied := _occupied(records, worktree):
            return occupied
        if (claim := slots.claim_of(worktree.record.path)) is not None:
            slots.give_up(claim, is_removed=True)
        _remove_folder(worktree)
        _remove_branch(worktree)
        give_up(records, worktree.record)
        if waits:
            delete(records, worktree.record)
    except GitError as error:
        return (f"git says: {error}",)
    except slots.NoSlot as error:
        return (str(error),)
    except OSError as error:
        return (f"{error.filename}: {error.strerror}",)
    else:
        records.forget(worktree.record)
        return ()
    finally:
        os.close(lock)


def _occupied(records: Records, worktree: Worktree) -> tuple[str, ...]:
    """Return why the worktree stays if a person stands in it; else nothing."""
    if worktree.path is None:
        return ()
    # Imported here: most attempts remove nothing.
    from beads_workers.runtime.occupants import described, occupants

    found = occupants(str(worktree.path), records.state_directory)
    return (f"you stand in it ({described(found)})",) if found else ()


def end_set_up(path: str) -> None:
    """Send KILL to every process that a set-up hook has left running after it ran ahead."""
    for _ in range(sessions.ROUNDS_MAX):
        found = sessions.with_variable(f"{AHEAD}={path}")
        if not any(sessions.kill(p.pid, p.started, signal.SIGKILL) for p in found):
            return


def _remove_folder(worktree: Worktree) -> None:
    if worktree.git_directory is None:
        if worktree.path is not None:
            # git was killed while it made this: an empty folder, or only a ``.git`` file.
            (worktree.path / ".git").unlink(missing_ok=True)
            worktree.path.rmdir()
        return
    # Without --force git refuses to remove changes: work done since the check is safe.
    force = () if worktree.found.prepared else ("--force", "--force")
    moved = _set_aside(worktree)
    try:
        git(worktree.record.common, "worktree", "remove", *force, str(worktree.path))
    except GitError:
        if moved is not None and token_in(worktree.git_directory) == worktree.record.token:
            moved.rename(worktree.path or worktree.record.path)
            raise
        if aside(worktree.record).exists():
            # git was killed in the middle. Nothing is lost: the worktree was looked at before.
            shutil.rmtree(worktree.git_directory, ignore_errors=True)
            return
        if worktree.path is None or worktree.git_directory.exists():
            raise
        # git found nothing to keep, and failed at a read-only folder; or it was killed when it had
        # removed everything.
        if worktree.path.exists():
            shutil.rmtree(worktree.path, onerror=make_writable)


def _set_aside(worktree: Worktree) -> Path | None:
    """Move a worktree to where it may be deleted, in one step that cannot be half done; return its
    place there.

    None if there is nothing to move, or it cannot be moved: then git removes it where it is. Raises
    ``GitError`` if there are changes since the check.
    """
    path, to = worktree.path, aside(worktree.record)
    if path is None or not path.exists():
        return None
    # What git asks as well before it removes a worktree.
    place = (f"--git-dir={worktree.git_directory}", f"--work-tree={path}")
    if worktree.found.prepared and status(str(path), *place)[2]:
        raise GitError(f"'{path}' contains modified or untracked files")
    try:
        to.parent.mkdir(mode=0o700, exist_ok=True)
        path.rename(to)
    except OSError:
        return None  # It is read-only, or on another disk.
    return to


def _remove_branch(worktree: Worktree) -> None:
    if worktree.tip is None:
        return
    record, tip = worktree.record, worktree.tip
    if worktree.found.superseded:
        ref = _kept_at(record.issue_id, record.attempt)
        if is_ancestor(record.common, ref, tip) is False:
            ref += f".{tip[:12]}"  # The attempt's number was used again.
        git(record.common, "update-ref", ref, tip)
    unlock(record.common, f"refs/heads/{record.branch}")
    # With the commit that we checked: a branch that has moved since is not deleted.
    git(record.common, "update-ref", "-d", f"refs/heads/{record.branch}", tip)


def _kept_at(issue_id: str, attempt: int) -> str:
    return f"{ATTEMPTS}/{branch_part(issue_id)}/{attempt}"
