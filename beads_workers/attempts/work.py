"""The work of an attempt as git sees it: state before, state now, and keeping it.

Nothing here touches a branch that is not the attempt's own, and no hook of the user's runs.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from beads_workers.agents.planted import OBEYED, WATCHED, is_watched
from beads_workers.attempts.conflicts import left_marks, tracked_changes, unmerged
from beads_workers.attempts.git_calls import Git, Misplaced
from beads_workers.attempts.litter import is_litter, of_agents
from beads_workers.attempts.nested import (
    add_hidden,
    bare_gitlinks,
    hidden,
    in_index,
    nested,
    newly_hidden,
    others_in,
    settle_submodules,
    without,
    wrong_in_submodules,
)
from beads_workers.attempts.own_branch import BranchNow, DoesNotFit, OwnBranch, whole_tree
from beads_workers.attempts.refs import moved, refs_at_first, refs_now
from beads_workers.core.base import commit_form, limits
from beads_workers.core.base.model import value
from beads_workers.core.base.text import some
from beads_workers.core.records.landing import FILES_NAMED
from beads_workers.core.records.receipts import Receipt
from beads_workers.executors.files import branch_part
from beads_workers.worktrees import branch_movers, git, ref_files, submodules
from beads_workers.worktrees.landed import ATTEMPTS, LANDING
from beads_workers.worktrees.programs import EXCLUDE, EXCLUDE_KEPT, changed
from beads_workers.worktrees.records import REFS_FILE, WorktreeRecord, run_of
from beads_workers.worktrees.removal import OPERATIONS, STATUS, parse_status

NO_REPOSITORY = 128
"""The exit status of ``git status`` outside of a repository."""

COMMIT_TRIES_MAX = 3

_COMMITTED = "--ignore-submodules=dirty"
"""Option of ``git diff``: what is not committed in a submodule is no change of the project."""


class CannotCommit(Exception):
    """Error: the content of the worktree cannot be committed as it is; ``str()`` is one line."""


class BrokenWorktree(Misplaced):
    """Error: git works in the repository, but not in this worktree any more."""


@value
class Changes:
    """Changes of an attempt."""

    # Commits since the attempt began, oldest first.
    commits: tuple[str, ...] = ()
    # Files that are changed and not committed.
    files: tuple[str, ...] = ()
    # Whether anybody can tell; False outside of git, and if others work there as well.
    known: bool = True

    @property
    def any(self) -> bool:
        """Whether there is work, as far as one can tell."""
        return bool(self.commits or self.files) or not self.known


@dataclass(slots=True)
class Workplace:
    """The folder in which an agent works."""

    folder: str
    # A worktree that nobody else uses, so that all changes are the attempt's, and may be committed
    # for it.
    own: bool
    # The commit that the attempt began with; None outside of git.
    base: str | None
    issue_id: str
    attempt: int
    run_id: str
    dirty: tuple[str, ...] = ()
    # The longest time of a call of git.
    seconds: float = git.SECONDS_MAX
    began: float = field(default_factory=time.time)
    # The branch of a worktree that is ``own``; our code reads and commits nowhere else.
    mine: OwnBranch | None = None
    # Where git keeps what belongs to the worktree.
    directory: Path | None = None
    # ``dot_git`` and ``dot_git_text`` are the file that leads to ``directory``.
    dot_git: Path | None = None
    dot_git_text: str = ""
    # All refs as the attempt began.
    refs: Mapping[str, str] = field(default_factory=dict)
    # Templates of the trailers of commits made here.
    trailers: tuple[str, ...] = commit_form.OWN_TRAILERS
    # The agent that did the work.
    agent: str = ""
    # See ``BrokenWorktree``.
    is_broken: bool = False
    # Commits in submodules are pushed.
    pushes: bool = False
    _places: tuple[str, str, str] | None = None
    """Git's answers on where it is: asked once, so that the agent cannot move them."""
    _rests: bool = False
    _seen: str | None = None
    """Output of ``git status``, while it is known to hold; None: ask."""
    _known: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """The commits up to each tip since ``base``: they never change."""

    @classmethod
    def enter(cls, folder: str, issue_id: str, attempt: int, run_id: str) -> Workplace:
        """Return the workplace before the agent begins; the environment says whether there is a
        worktree.

        Raises ``GitError`` if a worktree cannot be read, and ``GitNoAnswer``.
        """
        place = cls._of_environment(folder, issue_id, attempt, run_id)
        if not place.own:
            return place._shared()
        place._take(os.environ.get("BW_BRANCH", ""), begins=True)
        if place.mine is not None:
            place.mine.look()
        return place

    @classmethod
    def ended(cls, folder: str, issue_id: str, attempt: int, run_id: str) -> Workplace:
        """Return the workplace of a command that has ended in a worktree of its own, without a look
        before; raises as ``enter`` does, and ``Misplaced`` without such a worktree."""
        place = cls._of_environment(folder, issue_id, attempt, run_id)
        if not place.own:
            raise Misplaced("this task has no worktree")
        try:
            place._take(os.environ.get("BW_BRANCH", ""))
        except git.GitError as error:
            if isinstance(error, git.GitNoAnswer | Misplaced):
                raise
            # It was whole when the command began: the command broke it, if the repository is whole.
            git.git(os.environ.get("BW_CHECKOUT", folder), *git.questions("--git-common-dir"))
            raise BrokenWorktree(f"its worktree is broken ({error})") from None
        if place.mine is not None:
            place.refs = place.mine.before
            with suppress(OSError):
                place.began = (place._git_directory() / REFS_FILE).stat().st_mtime
        return place

    @classmethod
    def left(cls, record: WorktreeRecord) -> Workplace:
        """Return the workplace that an attempt has left; raises as ``enter`` does."""
        of = (record.issue_id, record.attempt, record.run_id)
        place = cls(record.path, True, record.base, *of)
        place._take(record.branch)
        return place

    @classmethod
    def _of_environment(cls, folder: str, issue_id: str, attempt: int, run_id: str) -> Workplace:
        base = os.environ.get("BW_BASE") if os.environ.get("BW_WORKTREE") else None
        return cls(folder, base is not None, base, issue_id, attempt, run_id)

    def _shared(self) -> Workplace:
        try:
            head, _, dirty = self.status(good=(0, NO_REPOSITORY))
        except git.GitNoAnswer:
            raise
        except git.GitError:
            return self
        return replace(self, base=head, dirty=dirty)

    def _take(self, branch: str, *, begins: bool = False) -> None:
        """Note the branch, and how git finds the worktree; raises ``GitError``. ``begins``: also
        note all refs as they are now."""
        directory, top = self._git_directory(), self._at_top.folder
        if not branch:
            return
        before, is_first = refs_at_first(self._git, directory)
        if begins:
            self.refs = before if is_first else refs_now(self._git, directory)
        places = directory, self._common()
        self.mine = OwnBranch(self._git, branch, before, self.base or "", *places)
        file = Path(top, ".git")
        with suppress(OSError):
            self.dot_git_text = file.read_text("utf-8", "surrogateescape")
            self.directory, self.dot_git = directory, file

    def rest(self, *, on: bool) -> None:
        """Note whether nobody works here now: git is not asked for the same files again then, until
        we change them ourselves."""
        self._rests, self._seen = on, None

    def come_back(self) -> str:
        """Bring HEAD back to the attempt's own branch; return what was done, "" for nothing.

        Raises ``CannotCommit`` if changes elsewhere do not fit there, and ``GitError``.
        """
        self._check_dot_git()
        if self.mine is None or self.mine.look().checked_out:
            return ""
        self._unlock()
        if under_way := self._operation():
            raise CannotCommit(f"{under_way} is under way in the worktree")
        self._seen = None
        try:
            return self.mine.come_back()
        except DoesNotFit as trouble:
            raise CannotCommit(str(trouble)) from None

    def moved(self) -> tuple[str, ...]:
        """Return what happened to other refs while the attempt ran, a line each; raises
        ``GitError``."""
        if self.mine is None:
            return ()
        return tuple(moved(self._git, self._git_directory(), self._common(), self.refs))

    def trespass(self, since: float) -> str:
        """Return in one line how this attempt has moved an integration branch by itself, and note
        it for the lander; "" if it has not. ``since``: its begin in epoch seconds. Raises
        ``GitError``."""
        if self.mine is None:
            return ""
        directory, common = self._git_directory(), self._common()
        refs = [ref for ref in refs_now(self._git, directory) if ref.startswith(f"{LANDING}/")]
        found = branch_movers.moved_by(
            common, (directory, Path(self._asked_places()[2])), refs, since
        )
        if found is None:
            return ""
        name = branch_movers.name_of(self.run_id, self.issue_id, self.attempt)
        git.git(str(common), "update-ref", f"{branch_movers.TRESPASSED}/{name}", found[1].commit)
        return branch_movers.trespass_text(found[0].removeprefix("refs/heads/"), found[1].commit)

    def status(
        self, good: tuple[int, ...] = (0,)
    ) -> tuple[str | None, str | None, tuple[str, ...]]:
        """See ``removal.status``."""
        head, branch, files = self._status(good)
        if self.own and any(name.endswith("/") for name in files):
            files = self._without_worktrees(files)
        return head, branch, (*files, *self._newly_hidden())

    def _status(
        self, good: tuple[int, ...] = (0,)
    ) -> tuple[str | None, str | None, tuple[str, ...]]:
        if self._seen is not None:
            return self._with_submodules(*parse_status(self._seen))
        done = self._git.ask(*STATUS, good=good)
        if done.status != 0:
            raise git.GitError(done.error or f"git status exited with {done.status}")
        if self._rests and self.own:
            self._seen = done.output
        return self._with_submodules(*parse_status(done.output))

    def _with_submodules(
        self, head: str | None, branch: str | None, files: tuple[str, ...]
    ) -> tuple[str | None, str | None, tuple[str, ...]]:
        """Add the submodules that differ from their gitlinks, although git does not show that."""
        found = [each.path for each in self.submodules() if each.differs]
        return head, branch, (*files, *(path for path in found if path not in files))

    def submodules(self) -> list[submodules.Submodule]:
        """Return the submodules of a worktree of its own; raises ``GitError``."""
        return list(submodules.look(self._at_top.folder)) if self.own else []

    def _newly_hidden(self) -> list[str]:
        """See ``nested.newly_hidden``: what another attempt has hidden since the run began."""
        if self.mine is None:
            return []
        run = run_of(self._git_directory(), self.run_id)
        before = run / EXCLUDE_KEPT if run is not None else None
        return newly_hidden(self._at_top, self._common() / EXCLUDE, before)

    def _without_worktrees(self, files: tuple[str, ...]) -> tuple[str, ...]:
        """Leave out the worktrees of sub-agents, which are no change of this worktree."""
        at_top = self._at_top
        left_out = {*self._nested(at_top)[0]}
        there = [name for name in others_in(at_top) if name not in left_out] if left_out else []
        return tuple(
            name
            for name in files
            if not (left_out and name.endswith("/"))
            or any(other.startswith(name) for other in there)
        )

    def _nested(self, at_top: Git) -> tuple[list[str], list[str]]:
        return nested(at_top, self._common())

    @property
    def _at_top(self) -> Git:
        """git at the top of the worktree; raises ``GitError``."""
        self._check_dot_git()
        return Git(self._asked_places()[2], self.seconds)

    @property
    def _git(self) -> Git:
        self._check_dot_git()
        return Git(self.folder, self.seconds)

    def _check_dot_git(self) -> None:
        """Check the ``.git`` file, without which git would use any repository around the worktree.
        Write it again if it was removed. Raises ``GitError`` if it leads elsewhere."""
        if self.directory is None or self.dot_git is None:
            return
        try:
            found = self.dot_git.read_text("utf-8", "surrogateescape")
        except FileNotFoundError:
            if not self.dot_git.parent.is_dir() or not self.directory.is_dir():
                raise Misplaced(f"its worktree is gone: {self.dot_git.parent}") from None
            self.dot_git.write_text(self.dot_git_text, "utf-8", "surrogateescape")
        except OSError:
            raise Misplaced(f"{self.dot_git} is another repository; remove it") from None
        else:
            if found != self.dot_git_text:
                raise Misplaced(f"{self.dot_git} leads to another repository; remove it")

    def changes(self) -> Changes:
        """Return what the attempt has changed up to now; raises ``GitError``."""
        if self.base is None:
            return Changes(known=False)
        commits, files = self._commits(self._tip()), self.status()[2]
        if not self.own:
            # Changes that the user made before are not this attempt's work.
            files = tuple(name for name in files if name not in self.dirty)
        if files and not commits and is_litter(files, self._at_top, self.base):
            files = ()
        return Changes(commits, files)

    def _commits(self, tip: str) -> tuple[str, ...]:
        """Return the commits since the attempt began, oldest first; raises ``GitError``."""
        if tip == self.base:
            return ()
        if tip not in self._known or not git.is_object(tip):
            output = self._git(
                "log", "--reverse", git.log_format("%H", "%T"), f"{self.base}..{tip}", "--"
            )
            found = git.rows(output, 2)
            if self.mine is not None:
                self.mine.know(found)
            self._known[tip] = tuple(git.objects("".join(f"{commit}\n" for commit, _ in found)))
        return self._known[tip]

    def commit(self, title: str, text: str = "") -> str | None:
        """Commit what is not committed, in a worktree of its own; return the new commit.

        None: nothing to commit. The agent or command must have ended. Raises ``CannotCommit`` while
        a merge or a rebase is under way, and ``GitError``.
        """
        if not self.own:
            return None
        for tries_left in reversed(range(COMMIT_TRIES_MAX)):
            before = ""
            try:
                self.come_back()
                # ``come_back`` has just seen the branch.
                before = self.head() if self.mine is None else self.mine.tip
                return self._commit(title, text, before)
            except git.GitError as error:
                # A killed git may have committed before it could say so.
                if before and self.head() != before and not self.status()[2]:
                    return self.head()
                if not tries_left:
                    self._rescue(error)
                    raise
        raise AssertionError("the last try returns or raises")

    def _commit(self, title: str, text: str, tip: str) -> str | None:
        self._unlock()
        self._check_operation(tip)
        subject = (
            commit_form.shortened(commit_form.one_line(title), commit_form.SUBJECT_COLUMNS)
            or commit_form.NO_TITLE
        )
        if settle_submodules(self._at_top.folder, subject, commits=self.pushes):
            self._seen = None
        found = self._status()[2]
        # A repository inside is shown as a folder, or in one.
        has_folders = any(name.endswith("/") for name in found)
        files = self._without_worktrees(found) if has_folders else found
        besides = self._newly_hidden()
        files = (*files, *besides)
        if not files and not self._merging():
            self._check_gitlinks(tip)
            return None
        if tip == self.base and is_litter(files, self._at_top, tip):
            if of_agents(files):
                raise CannotCommit(f"nothing changed but an agent's own files: {some(files)}")
            return None
        if not self._stage(tip, besides, has_folders=has_folders) and not self._merging():
            return None
        words = f"{commit_form.wrapped(text)}\n\n" if text.strip() else ""
        names_committer = any("{committer}" in each for each in self.trailers)
        who = self._identity() if names_committer else ()
        message = f"{subject}\n\n{words}{self._trailers(self.trailers, who)}"
        asked = ("commit", "--no-gpg-sign", "--quiet", "--file=-")
        done = self._git.once(*who, *asked, stdin=message)
        if done.status != 0 and not names_committer and (who := self._identity()):
            done = self._git.once(*who, *asked, stdin=message)
        if done.status != 0:
            raise git.GitError(done.error or f"git commit exited with {done.status}")
        return self.head()

    def _stage(self, tip: str, besides: Sequence[str], *, has_folders: bool) -> bool:
        """Stage all changes, and the hidden files ``besides``; return whether the index differs
        from ``tip``."""
        at_top = self._at_top
        worktrees, repositories = self._nested(at_top) if has_folders else ([], [])
        _refuse(repositories)
        self._seen = None
        at_top("add", "--all", "--sparse", *without(worktrees))
        add_hidden(at_top, besides)
        is_changed = self._check_gitlinks(tip)
        if self.base in (None, tip):
            return is_changed
        return bool(self._git("diff", "--cached", "--name-only", "-z"))

    def _check_gitlinks(self, tip: str) -> bool:
        """Refuse bare gitlinks, and submodules that do not hold what the commit would name; return
        whether anything in the index differs from its base."""
        base, at_top = self.base or tip, self._at_top
        found = in_index(at_top, base)
        _refuse(bare_gitlinks(at_top, base, found))
        moved = [name for about, name in found if about.split(" ")[1] == git.GITLINK]
        branch = self.mine.branch if self.pushes and self.mine else ""
        if wrong := wrong_in_submodules(at_top.folder, moved, branch):
            raise CannotCommit(wrong)
        return bool(found)

    def _identity(self) -> tuple[str, ...]:
        """Return options with which a commit can be made, even if no identity is configured."""
        known = self._git.ask("var", "GIT_COMMITTER_IDENT")
        return () if known.status == 0 else git.FALLBACK_IDENTITY

    def head(self) -> str:
        """Return the commit of the attempt's branch; raises ``GitError``."""
        tip = self._tip()
        return tip if git.is_object(tip) else self._git("rev-parse", tip).strip()

    def _tip(self) -> str:
        self._check_dot_git()
        if self.mine is None:
            return "HEAD"
        self.mine.look()
        return self.mine.tip

    def _look(self) -> BranchNow:
        """Return the branch as it is, or its last known commit; raises ``GitError``."""
        self._check_dot_git()
        seen = BranchNow() if self.mine is None else self.mine.look()
        if seen.commit:
            return seen
        return BranchNow(self._state_of(self.mine.tip if self.mine else "HEAD")[0])

    def _state_of(self, tip: str) -> tuple[str, str]:
        """Return a commit and its tree; raises ``GitError``."""
        if self.mine is not None and git.is_object(tip):
            return tip, self.mine.tree(tip)
        commit, tree = git.lines(self._git("rev-parse", tip, f"{tip}^{{tree}}"), 2)
        return commit, tree

    def branch(self) -> str:
        """Return the attempt's own branch; in a shared folder the checked-out branch, "" if none
        is."""
        if self.mine is not None:
            return self.mine.branch
        return self.status()[1] or ""

    def diffstat(self) -> str:
        """Return the size of the change in git's words: ``2 files changed, 10 insertions(+)``."""
        return self._changed()[0]

    def _changed(self) -> tuple[str, list[str]]:
        """Return the size of the change, and the names of all files in it, from the top; raises
        ``GitError``."""
        if self.base is None:
            return "", []
        asked = ("diff", "--raw", "--shortstat", "-z", _COMMITTED, self.base)
        *rows, size = self._git(*asked).split("\0")
        return size.strip(), [row for row in rows if not row.startswith(":")]

    def diff(self) -> str:
        """Return the reviewer's diff: everything since the base, committed or not; of a submodule
        its commits."""
        if self.base is None:
            return ""
        options = ("--no-color", "--no-ext-diff", "--submodule=log", _COMMITTED)
        return self._git("diff", *options, self.base)

    def keep_for_answer(self) -> None:
        """Keep the worktree, changed or not, until the answer has come: its session is found again
        only there. Raises ``OSError``."""
        if self.own and self.directory is not None:
            git.keep_for_answer(self.directory)

    def receipt(self, receipt: Receipt) -> Receipt:
        """Return the receipt with what git says of the work; raises ``GitError``."""
        if self.base is None:
            return receipt
        seen = self._look()
        return replace(
            receipt,
            branch=self.branch(),
            base=self.base,
            head=seen.commit if self.own else "",
            commits=self._commits(seen.commit)[-limits.RECEIPT_ITEMS_MAX :],
            diffstat=(size := self._changed())[0],
            tree=self._state_of(seen.commit)[1],
            flags=(*receipt.flags, *self.moved(), *self._obeyed(size[1]), *self._programs()),
        )

    def _obeyed(self, files: Sequence[str]) -> list[str]:
        """Return a line on those of the changed files that others obey or run once they are merged;
        raises ``GitError``."""
        if not any(map(is_watched, files)):
            return []
        found = git.names(self._git("diff", "--name-only", "-z", str(self.base), "--", *WATCHED))
        return [f"{OBEYED}: {some(found)}"] if found else []

    def _programs(self) -> list[str]:
        """Return what has changed that all worktrees share; raises ``GitError``."""
        return changed(self._git_directory(), self._git) if self.mine is not None else []

    def merge(self, tip: str) -> tuple[str, ...]:
        """Merge what has landed into the attempt's branch; return the files with unresolved
        conflicts.

        From here on the work is what differs from ``tip``. Raises ``GitError``.
        """
        if not self.own:
            return ()
        self.come_back()
        self._seen = None
        self._known.clear()
        links = submodules.gitlinks(self._at_top.folder)
        if not self._merging():
            try:
                self._merge(tip)
            except git.GitNoAnswer:
                raise
            except git.GitError:
                if not self.status()[2]:
                    raise
                # Uncommitted changes are in the way. The branch was whole, so they came later, from
                # a check for instance; they are kept.
                self.keep()
                self.discard()
                self._merge(tip)
        # git has left them where they were: as they are, the next commit would take back what has
        # landed.
        submodules.restore(self._at_top.folder, links)
        self.base = tip
        return unmerged(self.folder, self._at_top)

    def _merge(self, tip: str) -> None:
        for tries_left in reversed(range(COMMIT_TRIES_MAX)):
            try:
                done = self._git.once(
                    *self._identity(), "merge", "--no-gpg-sign", "--quiet", "--no-edit", tip
                )
            except git.GitNoAnswer:
                if not tries_left:
                    raise
                # Nobody else works here: locks of a killed git can be removed.
                self._unlock()
            else:
                if done.status == 0 or self._merging():
                    return
                if not tries_left:
                    raise git.GitError(done.error or f"git merge exited with {done.status}")
            if self._merging():
                return

    def discard(self) -> None:
        """Restore the files of HEAD, and remove all others except ignored files and repositories.

        For a caller that knows whose changes these are. Raises ``GitError``.
        """
        self._unlock()
        at_top = self._at_top
        self._seen = None
        at_top("reset", "--quiet", "--hard")
        at_top("clean", "--quiet", "-d", "--force")
        submodules.restore(at_top.folder)

    def keep(self, besides: Sequence[str] | None = None) -> str | None:
        """Keep the tree as it is, whatever becomes of the worktree; return the name of the ref.

        ``besides``: hidden files, if they are known; other ignored files are left out. None outside
        of a worktree of its own.
        """
        if not self.own or self.base is None:
            return None
        besides = self.hidden()[0] if besides is None else besides
        seen = self._look()
        head = seen.commit if seen.checked_out else "HEAD"
        head, committed = self._state_of(head)
        tree, commit = self._whole_tree(besides, committed), head
        if tree != committed or seen.commit != head:
            commit = self._git(
                *(*self._identity(), "commit-tree", tree),
                *(word for each in dict.fromkeys((head, seen.commit)) for word in ("-p", each)),
                *("-F", "-"),
                stdin=self._as_left + "\n" + self._trailers(commit_form.OWN_TRAILERS),
            ).strip()
        return self._refer(self._git, commit)

    @property
    def _as_left(self) -> str:
        return f"Attempt {self.attempt} at {self.issue_id}, as it was left\n"

    def _rescue(self, error: git.GitError) -> None:
        """Keep the files as ``keep`` does, but without git's own directory for the worktree. If
        that works, the repository and the machine do: raise ``BrokenWorktree``."""
        if isinstance(error, git.GitNoAnswer | Misplaced):
            return
        _, common, top = self._asked_places()
        outside = Git(top, self.seconds, {"GIT_DIR": common, "GIT_WORK_TREE": top})
        with suppress(git.GitError, OSError):
            made = ("commit-tree", whole_tree(outside), "-p", str(self.base))
            commit = outside(*git.FALLBACK_IDENTITY, *made, stdin=self._as_left).strip()
            ref, self.is_broken = self._refer(outside, commit), True
        if self.is_broken:
            raise BrokenWorktree(f"its worktree is broken ({error}); its files are kept in {ref}")

    def _refer(self, asks: Git, commit: str) -> str:
        ref = f"{ATTEMPTS}/{branch_part(self.issue_id)}/{self.attempt}"
        git.unlock(str(self._common()), ref)
        asks("update-ref", ref, commit)
        return ref

    def keep_all(self, hidden: tuple[list[str], list[str]]) -> list[str]:
        """Keep the tree as ``keep`` does; return what a person should know of ``hidden`` files."""
        kept, left = hidden
        ref = self.keep(kept)
        rules = "your own ignore rules hide"
        flags = [f"{rules} {some(kept)}: kept in {ref}"] if kept else []
        return [*flags, f"{rules} {some(left)}: too large or too many, not kept"] if left else flags

    def hidden(self) -> tuple[list[str], list[str]]:
        """See ``nested.hidden``; raises ``GitError``."""
        return hidden(self._at_top, self.began) if self.own else ([], [])

    def whole_tree(self) -> str:
        """Return the tree of all files, committed or not, except ignored ones; raises
        ``GitError``."""
        return self._whole_tree((), self._state_of("HEAD")[1])

    def _whole_tree(self, besides: Sequence[str], committed: str) -> str:
        besides = (*besides, *self._newly_hidden())
        if not besides and not self.status()[2]:
            return committed
        at_top = self._at_top
        worktrees, repositories = self._nested(at_top)
        return whole_tree(at_top, without([*worktrees, *repositories]), besides)

    def _check_operation(self, tip: str) -> None:
        if under_way := self._operation(except_for=("BISECT_LOG", "MERGE_HEAD")):
            raise CannotCommit(f"{under_way} is under way in the worktree")
        # A merge ends with the commit, once no conflict is left.
        of = (self._git_directory(), self.base or tip, tip)
        if standing := left_marks(self.folder, self._at_top, *of, self._uncommitted(tip)):
            raise CannotCommit(f"conflicts stand in {', '.join(standing[:FILES_NAMED])}")

    def _uncommitted(self, tip: str) -> list[str] | None:
        """Return the files that are tracked and differ from ``base``, from the top; None if only a
        comparison can tell: there are commits, or unmerged files."""
        if tip != self.base:
            return None
        self._status()
        return tracked_changes(self._seen) if self._seen is not None else None

    def _operation(self, except_for: Sequence[str] = ("BISECT_LOG",)) -> str:
        directory = self._git_directory()
        there = [
            what
            for name, what in OPERATIONS.items()
            if name not in except_for and (directory / name).exists()
        ]
        return there[0] if there else ""

    def _git_directory(self) -> Path:
        return Path(self._asked_places()[0])

    def _common(self) -> Path:
        return Path(self._asked_places()[1])

    def _asked_places(self) -> tuple[str, str, str]:
        if self._places is None and self.own:
            self._places = ref_files.places(Path(self.folder))
        if self._places is None:
            asked = git.questions("--absolute-git-dir", "--git-common-dir", "--show-toplevel")
            own, common, top = git.answers(self._git(*asked), 3)
            self._places = own, common, top
        return self._places

    def _unlock(self) -> None:
        """Remove locks that a killed git has left: nobody else works here any more."""
        git.unlock_here(self._git_directory(), self._common())

    def _merging(self) -> bool:
        return (self._git_directory() / "MERGE_HEAD").exists()

    def _trailers(self, templates: tuple[str, ...], who: Sequence[str] = ()) -> str:
        values = {"id": self.issue_id, "attempt": str(self.attempt), "run": self.run_id}
        if any("{committer}" in each for each in templates):
            ident = self._git(*who, "var", "GIT_COMMITTER_IDENT")
            values["committer"] = ident[: ident.rindex(">") + 1]
        return "".join(
            f"{line}\n" for line in commit_form.filled_trailers(templates, self.agent, **values)
        )


def _refuse(repositories: Sequence[str]) -> None:
    if repositories:
        raise CannotCommit(
            f"a git repository of its own: {', '.join(repositories[:FILES_NAMED])}; remove its .git"
            " so that its files are committed (first 'git rm --cached' it if it was added), or make"
            " it a submodule"
        )
