"""Removing worktrees that hold no work, with their branches; git has the last word on each."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Set
from dataclasses import replace
from pathlib import Path

from beads_workers.core.values import value
from beads_workers.core.worktrees import reasons_to_keep
from beads_workers.edge.git import GitError, git
from beads_workers.edge.worktrees.looking import Survey, Worktree, status
from beads_workers.edge.worktrees.records import Record, Records


@value
class Looked:
    """``kept_because`` is empty for one that was removed, or would be.

    ``path`` is None where only the branch is left, ``branch`` where only the folder is.
    """

    record: Record
    path: Path | None
    branch: str | None
    kept_because: tuple[str, ...]


def clean(state_directory: Path, *, dry_run: bool) -> Iterator[Looked]:
    """Look at every worktree that we made, and remove those that hold no work."""
    records = Records(state_directory)
    waiting, gone, last = list(records.all()), set[Path](), False
    while waiting:
        survey, held, went = Survey(records), list[Record](), len(gone)
        for record in waiting:
            worktree = _without(survey.look(record), gone)
            if worktree.found.branch_used_at is not None and not last:
                held.append(record)  # By a worktree that may go itself.
                continue
            reasons = reasons_to_keep(worktree.found)
            if not reasons and not dry_run:
                reasons = remove(records, worktree)
            if not reasons and worktree.path is not None:
                gone.add(worktree.path.resolve())
            branch = record.branch if worktree.tip or worktree.found.in_use else None
            yield Looked(record, worktree.path, branch, reasons)
        waiting, last = held, len(gone) == went


def _without(worktree: Worktree, gone: Set[Path]) -> Worktree:
    """As it is when these folders are not there: in a dry run they still are."""
    used_at = worktree.found.branch_used_at
    if used_at is None or Path(used_at).resolve() not in gone:
        return worktree
    return replace(worktree, found=replace(worktree.found, branch_used_at=None))


def tidy(records: Records, some: Iterable[Record]) -> None:
    """Remove those of these that hold no work; the others stay, without a word."""
    _tidy(records, Survey(records, thorough=False), some)


def _tidy(records: Records, survey: Survey, some: Iterable[Record]) -> None:
    for record in some:
        worktree = survey.look(record)
        if not reasons_to_keep(worktree.found):
            remove(records, worktree)


def tidy_run(state_directory: Path, run_id: str) -> None:
    """The same for a run whose workers have all left."""
    records = Records(state_directory)
    survey = Survey(records, thorough=False, ended=run_id)
    _tidy(records, survey, [record for record in records.all() if record.run_id == run_id])


def unmerged_branches(state_directory: Path) -> int:
    """How many branches of ours hold commits that are on no other branch."""
    survey = Survey(Records(state_directory), thorough=False)
    try:
        return sum(survey.has_commits(record) for record in survey.records.all())
    except GitError:
        return 0  # Only for a line of the summary; ``clean`` says what is wrong.


def changes(folder: str) -> tuple[str, ...]:
    """What is not committed in a worktree; raises ``GitError``."""
    return status(folder)[2]


def remove(records: Records, worktree: Worktree) -> tuple[str, ...]:
    """Remove one that was just found without work; returns why it stays all the same."""
    lock = records.lock(worktree.record)
    if lock is None:
        return ("it is being made, or removed, just now",)
    try:
        _remove_folder(worktree)
        _remove_branch(worktree)
    except GitError as error:
        return (f"git says: {error}",)
    except OSError as error:
        return (f"{error.filename}: {error.strerror}",)
    else:
        records.forget(worktree.record)
        return ()
    finally:
        os.close(lock)


def _remove_folder(worktree: Worktree) -> None:
    if worktree.git_directory is None:
        if worktree.path is not None:
            # Killed while git made it: an empty folder, or one with nothing but a ``.git`` file.
            (worktree.path / ".git").unlink(missing_ok=True)
            worktree.path.rmdir()
        return
    # Without --force git refuses what holds changes: work that came since we looked is safe.
    force = () if worktree.found.prepared else ("--force", "--force")
    look = ("-c", "status.showUntrackedFiles=normal")
    git(worktree.record.common, *look, "worktree", "remove", *force, str(worktree.path))


def _remove_branch(worktree: Worktree) -> None:
    if worktree.tip is None:
        return
    # With the commit that we looked at: a branch that has moved since is refused.
    ref = f"refs/heads/{worktree.record.branch}"
    git(worktree.record.common, "update-ref", "-d", ref, worktree.tip)
