"""Return of HEAD of an attempt's worktree to the attempt's own branch.

Agents check out other branches, detach HEAD, or delete their branch. Commits that they made there
on top of others' commits are put onto the attempt's branch. Uncommitted changes stay in the files,
and no other ref moves. What does not fit is refused by name.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from beads_workers.attempts.conflicts import CONFLICTS
from beads_workers.attempts.git_calls import Git
from beads_workers.attempts.nested import add_hidden
from beads_workers.attempts.refs import moved_by_lander, refs_now
from beads_workers.core.base.model import value
from beads_workers.core.records.landing import FILES_NAMED
from beads_workers.worktrees.git import (
    BRANCHES,
    FALLBACK_IDENTITY,
    NONE_THERE,
    GitNoAnswer,
    lines,
    log_format,
    merged,
    objects,
    row_format,
    rows,
)
from beads_workers.worktrees.landed import LANDING
from beads_workers.worktrees.ref_files import is_checked_out, loose_ref
from beads_workers.worktrees.sparse import is_sparse


class DoesNotFit(Exception):
    """Error: work from elsewhere cannot be put onto the attempt's branch; ``str()`` is one line."""


@value
class BranchNow:
    """The branch as it is. ``commit``: "" if it is gone; ``checked_out``: whether HEAD is on it."""

    commit: str = ""
    checked_out: bool = False


@dataclass(slots=True)
class OwnBranch:
    """The attempt's own branch."""

    git: Git
    # Name of the branch.
    branch: str
    # All refs before the attempt began.
    before: Mapping[str, str]
    # The branch's last known commit, should it be gone.
    tip: str
    # ``directory`` and ``common`` are the worktree's git directories.
    directory: Path
    common: Path
    _trees: dict[str, str] = field(default_factory=dict)
    """The tree of each commit that was asked for: it never changes."""

    @property
    def ref(self) -> str:
        """The branch's ref."""
        return f"refs/heads/{self.branch}"

    def look(self) -> BranchNow:
        """Return the branch as it is now; raises ``GitError``. git is only asked if the files of
        the branch and of HEAD leave it open."""
        commit = loose_ref(self.common, self.ref)
        if commit and is_checked_out(self.directory, self.ref):
            seen = BranchNow(commit, checked_out=True)
        else:
            seen = self._asked()
        self.tip = seen.commit or self.tip
        return seen

    def tree(self, commit: str) -> str:
        """Return the tree of a commit; raises ``GitError``."""
        if commit not in self._trees:
            self.know([(commit, self._tree(commit))])
        return self._trees[commit]

    def know(self, trees: Iterable[tuple[str, ...]]) -> None:
        """Remember the trees of commits: pairs of a commit and its tree."""
        for commit, tree in trees:
            self._trees[commit] = tree

    def come_back(self) -> str:
        """Bring HEAD back from elsewhere; return in one line what was done.

        Raises ``DoesNotFit`` and ``GitError``; then HEAD is where it was.
        """
        name, there = self._head_name(), self.look().commit
        tip = self.tip
        head = self._commit("HEAD")
        where = name.removeprefix("refs/heads/") if name else "a detached HEAD"
        if not head:
            # A branch without a commit; it may be the deleted own branch, created again.
            self.git("update-ref", self.ref, tip, there or "")
            self.git("symbolic-ref", "HEAD", self.ref)
            self.git("reset", "--quiet")
            return f"HEAD was on {where}, which has no commit: it is back on {self.branch}"
        goal = self._taken_over(name, head, tip, where)
        whole = whole_tree(self.git)
        files = self._tree(goal)
        if whole != self._tree(head):
            why = f"what was changed on {where} does not fit on {self.branch}"
            files = self._picked(self._tree(head), whole, goal, why)
        self.git("update-ref", self.ref, goal, there)
        self.tip = goal
        if files != whole:
            self.git("add", "--all", "--sparse")
            self.git("read-tree", "-m", "-u", whole, files)
        self.git("symbolic-ref", "HEAD", self.ref)
        self.git("reset", "--quiet")
        return f"HEAD was on {where}: it is back on {self.branch}"

    # --- inside -----------------------------------------------------------------------------------

    def _asked(self) -> BranchNow:
        asked = row_format("%(refname)", "%(objectname)", "%(tree)", "%(HEAD)")
        seen = BranchNow()
        # Once the branch is gone, there may be branches below its name.
        for name, commit, tree, head in rows(self.git("for-each-ref", asked, self.ref), 4):
            if name == self.ref and tree:
                self.know([(commit, tree)])
                seen = BranchNow(commit, checked_out=head == "*")
        return seen

    def _taken_over(self, name: str, head: str, tip: str, where: str) -> str:
        """Return the commit of the branch with the attempt's own commits under ``head`` on top of
        it."""
        own = self._own_commits(name, head, tip)
        if own and self._parent(own[0]) == tip:
            return head
        for commit in own:
            parent = self._parent(commit)
            before = self._tree(parent) if parent else self.git("mktree").strip()
            why = f"commit {commit[:12]} on {where} does not fit on {self.branch}"
            tree = self._picked(before, self._tree(commit), tip, why)
            if tree != self._tree(tip):
                tip = self._copied(commit, tree, tip)
        return tip

    def _own_commits(self, name: str, head: str, tip: str) -> list[str]:
        """Return the first parents under ``head`` that nobody else has made, oldest first."""
        now = refs_now(self.git, self.directory)
        others = {tip, *self.before.values()}
        for ref, found in now.items():
            attempts = ref.startswith((f"refs/heads/{BRANCHES}/", "refs/remotes/"))
            if ref not in (name, self.ref) and (attempts or ref in self.before):
                others.add(found)
        asked = "".join(f"{each}\n" for each in (head, *(f"^{other}" for other in sorted(others))))
        listed = ("rev-list", "--first-parent", "--ignore-missing", "--stdin")
        own: list[str] = []
        is_landers = name.startswith(f"{LANDING}/")
        landed = moved_by_lander(self.common, name) if is_landers else ()
        for commit in objects(self.git(*listed, stdin=asked)):
            if commit in landed:
                break
            own.append(commit)
        return own[::-1]

    def _picked(self, before: str, after: str, onto: str, why: str) -> str:
        """Return the tree of ``onto`` with the changes between two trees. Raises ``DoesNotFit``."""
        base = self._scratch(before)
        ours, theirs = (self._scratch(each, base) for each in (self._tree(onto), after))
        asked = ("merge-tree", "--write-tree", "-z", "--name-only", "--no-messages", ours, theirs)
        done = self.git.answered(*asked, good=(0, CONFLICTS))
        tree, files, _ = merged(done.output)
        if done.status == CONFLICTS:
            named = ", ".join(files[:FILES_NAMED])
            raise DoesNotFit(f"{why} (conflicts in {named}): put it there yourself")
        return tree

    def _scratch(self, tree: str, *parents: str) -> str:
        words = [word for parent in parents for word in ("-p", parent)]
        return self.git(*FALLBACK_IDENTITY, "commit-tree", tree, *words, stdin="x\n").strip()

    def _copied(self, commit: str, tree: str, parent: str) -> str:
        asked = ("log", "-1", "--date=raw", log_format("%an", "%ae", "%ad", "%B"), commit)
        ((name, mail, date, message),) = rows(self.git(*asked), 4)
        author = {"GIT_AUTHOR_NAME": name, "GIT_AUTHOR_EMAIL": mail, "GIT_AUTHOR_DATE": date}
        identity = FALLBACK_IDENTITY if self.git.ask("var", "GIT_COMMITTER_IDENT").status else ()
        made = (*identity, "commit-tree", tree, "-p", parent)
        return self.git(*made, stdin=message, places=author).strip()

    def _head_name(self) -> str:
        """Return the ref that is checked out, "" if HEAD is detached."""
        return self._line("symbolic-ref", "--quiet", "HEAD")

    def _commit(self, name: str) -> str:
        return self._line("rev-parse", "--verify", "--quiet", f"{name}^{{commit}}")

    def _parent(self, commit: str) -> str:
        return self._line("rev-parse", "--verify", "--quiet", f"{commit}^1")

    def _tree(self, commit: str) -> str:
        return self.git("rev-parse", f"{commit}^{{tree}}").strip()

    def _line(self, *asked: str) -> str:
        done = self.git.answered(*asked, good=(0, NONE_THERE))
        return lines(done.output, 1)[0] if done.status == 0 else ""


def whole_tree(git: Git, only: Sequence[str] = (), besides: Sequence[str] = ()) -> str:
    """Return the tree of all files, committed or not, except ignored ones.

    ``only``: pathspecs; ``besides``: ignored files, as seen from the folder of ``git``.

    Uses an index of its own: what the agent has staged stays staged. Raises ``GitError``.
    """
    try:
        folder = tempfile.TemporaryDirectory(prefix="bw-index-")
    except OSError as error:  # A full disk, which says nothing of the work.
        raise GitNoAnswer(f"no folder for an index: {error.strerror}") from None
    with folder as place:
        index = str(Path(place, "index"))
        git("read-tree", "HEAD", index=index)
        if is_sparse(git.folder):
            # Here git does not know what is only not checked out, and would miss it.
            git("add", "--no-all", "--sparse", *(only or (":/",)), index=index)
            git("add", "--update", *only, index=index)
        else:
            git("add", "--all", *only, index=index)
        add_hidden(git, besides, index)
        return git("write-tree", index=index).strip()
