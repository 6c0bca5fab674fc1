"""The work of an attempt as git sees it: what there was before, what there is now, and keeping it.

Nothing here touches a branch that is not the attempt's own, and no hook of the user's runs.
"""

from __future__ import annotations

import os
import re
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

from beads_workers.core import limits
from beads_workers.core.landing import FILES_NAMED
from beads_workers.core.model import value
from beads_workers.core.receipts import Receipt
from beads_workers.executors.files import branch_part
from beads_workers.worktrees.git import GitError, git, identity, unlock, unlock_worktree
from beads_workers.worktrees.landed import ATTEMPTS
from beads_workers.worktrees.removal import OPERATIONS, status


class CannotCommit(Exception):
    """What lies in the worktree cannot be committed as it is; ``str()`` is one line."""


@value
class Changes:
    """``commits``: since the attempt began, oldest first. ``files``: changed and not committed.

    ``known``: whether anybody can tell; not outside of git, nor where others work as well.
    """

    commits: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    known: bool = True

    @property
    def any(self) -> bool:
        """Whether there is work, as far as one can tell."""
        return bool(self.commits or self.files) or not self.known


@dataclass(slots=True)
class Workplace:
    """The folder an agent works in. ``base``: the commit it began with, None outside of git.

    ``own``: a worktree that nobody else uses, so that all changes are the attempt's, and may be
    committed for it.
    """

    folder: str
    own: bool
    base: str | None
    issue_id: str
    attempt: int
    run_id: str
    dirty: tuple[str, ...] = ()

    @classmethod
    def enter(cls, folder: str, issue_id: str, attempt: int, run_id: str) -> Workplace:
        """Look before the agent begins; the environment says whether a worktree was made."""
        base = os.environ.get("BW_BASE") if os.environ.get("BW_WORKTREE") else None
        try:
            head, _, dirty = status(folder)
        except GitError:
            return cls(folder, False, None, issue_id, attempt, run_id)
        return cls(folder, base is not None, base or head, issue_id, attempt, run_id, dirty)

    def changes(self) -> Changes:
        """What the attempt has changed up to now; raises ``GitError``."""
        if self.base is None:
            return Changes(known=False)
        commits = git(self.folder, "rev-list", "--reverse", f"{self.base}..HEAD").split()
        files = status(self.folder)[2]
        if not self.own:
            # What the user had changed before is not this attempt's work.
            files = tuple(name for name in files if name not in self.dirty)
        return Changes(tuple(commits), files)

    def commit(self, title: str, text: str = "") -> str | None:
        """Commit what is not committed, in a worktree of its own; gives the new commit.

        None where nothing was to be committed. Whoever worked in it has ended. Raises
        ``CannotCommit`` while a merge or a rebase is under way, and ``GitError``.
        """
        if not self.own or not status(self.folder)[2]:
            return None
        unlock_worktree(self.folder)
        self._check_operation()
        git(self.folder, "add", "--all")
        if not git(self.folder, "diff", "--cached", "--name-only", "-z"):
            return None
        message = f"{_subject(title)}\n\n{text}{self._trailers()}"
        git(self.folder, *identity(self.folder), "commit", "--quiet", "--file=-", given=message)
        return self.head()

    def head(self) -> str:
        """The commit that is checked out; raises ``GitError``."""
        return git(self.folder, "rev-parse", "HEAD").strip()

    def tree(self) -> str:
        """The tree of that commit; raises ``GitError``."""
        return git(self.folder, "rev-parse", "HEAD^{tree}").strip()

    def branch(self) -> str:
        """The branch, "" where none is checked out."""
        return status(self.folder)[1] or ""

    def diffstat(self) -> str:
        """In git's words: ``2 files changed, 10 insertions(+)``."""
        if self.base is None:
            return ""
        return git(self.folder, "diff", "--shortstat", self.base).strip()

    def diff(self) -> str:
        """What a reviewer gets to see: everything since the base, committed or not."""
        if self.base is None:
            return ""
        return git(self.folder, "diff", "--no-color", "--no-ext-diff", self.base)

    def receipt(self, receipt: Receipt) -> Receipt:
        """With what git says of the work; raises ``GitError``."""
        if self.base is None:
            return receipt
        commits = self.changes().commits
        return replace(
            receipt,
            branch=self.branch(),
            base=self.base,
            head=self.head() if self.own else "",
            commits=commits[-limits.RECEIPT_ITEMS_MAX :],
            diffstat=self.diffstat(),
            tree=self.tree(),
        )

    def merge(self, tip: str) -> tuple[str, ...]:
        """Merge what has landed into its branch; the files whose conflicts are left standing.

        From here on its work is what differs from ``tip``. Raises ``GitError``.
        """
        if not self.own:
            return ()
        if not self._merging():
            try:
                git(self.folder, *identity(self.folder), "merge", "--quiet", "--no-edit", tip)
            except GitError:
                if not self._merging():
                    raise
        self.base = tip
        return self._unmerged()

    def keep(self) -> str | None:
        """Keep the tree as it is, whatever becomes of the worktree; gives the name of the ref.

        Files that git ignores are left out. None outside of a worktree of its own.
        """
        if not self.own or self.base is None:
            return None
        tree, head = self.whole_tree(), self.head()
        commit = head
        if tree != self.tree():
            message = f"Attempt {self.attempt} at {self.issue_id}, as it was left\n"
            commit = git(
                self.folder,
                *(*identity(self.folder), "commit-tree", tree, "-p", head, "-F", "-"),
                given=message + "\n" + self._trailers(),
            ).strip()
        ref = f"{ATTEMPTS}/{branch_part(self.issue_id)}/{self.attempt}"
        common = git(self.folder, "rev-parse", "--path-format=absolute", "--git-common-dir")
        unlock(common.rstrip("\n"), ref)
        git(self.folder, "update-ref", ref, commit)
        return ref

    def whole_tree(self) -> str:
        """Of all that is there, committed or not, but for ignored files; raises ``GitError``."""
        if not status(self.folder)[2]:
            return self.tree()
        # Through an index of its own: what the agent has staged stays staged.
        with tempfile.TemporaryDirectory(prefix="bw-index-") as place:
            index = str(Path(place, "index"))
            git(self.folder, "read-tree", "HEAD", index=index)
            git(self.folder, "add", "--all", index=index)
            return git(self.folder, "write-tree", index=index).strip()

    def _check_operation(self) -> None:
        directory = self._git_directory()
        for name, operation in OPERATIONS.items():
            if name in ("BISECT_LOG", "MERGE_HEAD") or not (directory / name).exists():
                continue
            raise CannotCommit(f"{operation} is under way in the worktree")
        # A merge ends with the commit, once nothing is left of its conflicts.
        standing = [name for name in self._unmerged() if self._has_marks(name)]
        if standing:
            raise CannotCommit(f"conflicts stand in {', '.join(standing[:FILES_NAMED])}")

    def _git_directory(self) -> Path:
        return Path(git(self.folder, "rev-parse", "--absolute-git-dir").rstrip("\n"))

    def _merging(self) -> bool:
        return (self._git_directory() / "MERGE_HEAD").exists()

    def _unmerged(self) -> tuple[str, ...]:
        names = git(self.folder, "diff", "--name-only", "--diff-filter=U", "-z", "--relative")
        return tuple(name for name in names.split("\0") if name)

    def _has_marks(self, name: str) -> bool:
        try:
            with Path(self.folder, name).open("rb") as file:
                return any(line.startswith(b"<<<<<<< ") for line in file)
        except OSError:
            return False  # It was removed, which is an answer.

    def _trailers(self) -> str:
        return f"Issue: {self.issue_id}\nAttempt: {self.attempt}\nRun: {self.run_id}\n"


def _subject(title: str) -> str:
    line = " ".join(re.sub(r"[\x00-\x1f\x7f]", " ", title).split())
    return line[:72] or "Work of an agent"
