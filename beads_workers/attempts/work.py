"""The work of an attempt as git sees it: what there was before, what there is now, and keeping it.

Nothing here touches a branch that is not the attempt's own, and no hook of the user's runs.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from beads_workers.agents.planted import OBEYED, WATCHED
from beads_workers.attempts.conflicts import at_top_of, left_marks, unmerged
from beads_workers.attempts.git_calls import Git, Misplaced
from beads_workers.attempts.nested import bare_gitlinks, hidden, nested, others_in, without
from beads_workers.attempts.own_branch import DoesNotFit, OwnBranch, whole_tree
from beads_workers.attempts.refs import moved, refs_at_first, refs_now
from beads_workers.core import limits
from beads_workers.core.commit_form import OWN_TRAILERS, filled_trailers
from beads_workers.core.landing import FILES_NAMED
from beads_workers.core.model import value
from beads_workers.core.receipts import Receipt
from beads_workers.core.text import some
from beads_workers.executors.files import branch_part
from beads_workers.worktrees.git import (
    FALLBACK_IDENTITY,
    SECONDS_MAX,
    GitError,
    GitNoAnswer,
    answers,
    is_object,
    names,
    objects,
    questions,
    unlock,
    unlock_worktree,
)
from beads_workers.worktrees.landed import ATTEMPTS
from beads_workers.worktrees.programs import changed
from beads_workers.worktrees.records import REFS_FILE, WorktreeRecord
from beads_workers.worktrees.removal import OPERATIONS, STATUS, parse_status

NO_REPOSITORY = 128
"""The exit status of ``git status`` in no repository."""

COMMIT_TRIES_MAX = 3


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
    committed for it. ``seconds``: what a call of git may take.
    ``mine``: the branch of such a worktree; nothing of ours reads or commits elsewhere. ``refs``:
    all of them as the attempt began. ``directory``: where git keeps what belongs to the worktree,
    ``dot_git`` and ``dot_git_text``: the file that leads there. ``trailers``: templates of what a
    commit says that is made here; ``agent``: whose work that is.
    """

    folder: str
    own: bool
    base: str | None
    issue_id: str
    attempt: int
    run_id: str
    dirty: tuple[str, ...] = ()
    seconds: float = SECONDS_MAX
    began: float = field(default_factory=time.time)
    mine: OwnBranch | None = None
    directory: Path | None = None
    dot_git: Path | None = None
    dot_git_text: str = ""
    refs: Mapping[str, str] = field(default_factory=dict)
    trailers: tuple[str, ...] = OWN_TRAILERS
    agent: str = ""
    _places: dict[str, str] = field(default_factory=dict)
    """What git has said of where it is: asked once, whoever works cannot move it."""

    @classmethod
    def enter(cls, folder: str, issue_id: str, attempt: int, run_id: str) -> Workplace:
        """Look before the agent begins; the environment says whether a worktree was made.

        Raises ``GitError`` if a worktree cannot be read, and ``GitNoAnswer``.
        """
        base = os.environ.get("BW_BASE") if os.environ.get("BW_WORKTREE") else None
        return cls(folder, base is not None, base, issue_id, attempt, run_id)._entered(
            os.environ.get("BW_BRANCH", "")
        )

    @classmethod
    def left(cls, record: WorktreeRecord) -> Workplace:
        """One that an attempt has left; raises as ``enter`` does."""
        of = (record.issue_id, record.attempt, record.run_id)
        return cls(record.path, True, record.base, *of)._entered(record.branch)

    def _entered(self, branch: str) -> Workplace:
        place, base = self, self.base
        try:
            head, _, dirty = place.status(good=(0,) if place.own else (0, NO_REPOSITORY))
        except GitNoAnswer:
            raise
        except GitError:
            if place.own:
                raise
            return place
        place = replace(place, base=base or head, dirty=dirty)
        if place.own and branch:
            place.refs = refs_now(place._git)
            before = refs_at_first(place._git, place._git_directory())
            place.mine = OwnBranch(place._git, branch, before, base or "")
            place.mine.commit()
            place.remember_dot_git()
        return place

    def remember_dot_git(self) -> None:
        """Know how git finds the worktree; raises ``GitError``."""
        directory, top = self._git_directory(), at_top_of(self._git).folder
        file = Path(top, ".git")
        with suppress(OSError):
            self.dot_git_text = file.read_text("utf-8", "surrogateescape")
            self.directory, self.dot_git = directory, file

    def come_back(self) -> str:
        """Bring HEAD back to the attempt's own branch; what was done, "" for nothing.

        Raises ``CannotCommit`` if what lies elsewhere does not fit there, and ``GitError``.
        """
        self._check_dot_git()
        if self.mine is None or not self.mine.is_elsewhere():
            return ""
        unlock_worktree(self.folder)
        if under_way := self._operation():
            raise CannotCommit(f"{under_way} is under way in the worktree")
        try:
            return self.mine.come_back()
        except DoesNotFit as trouble:
            raise CannotCommit(str(trouble)) from None

    def moved(self) -> tuple[str, ...]:
        """What happened to other refs while it ran, a line each; raises ``GitError``."""
        return tuple(moved(self._git, self.refs)) if self.mine is not None else ()

    def status(
        self, good: tuple[int, ...] = (0,)
    ) -> tuple[str | None, str | None, tuple[str, ...]]:
        """See ``removal.status``."""
        done = self._git.ask(*STATUS, good=good)
        if done.status != 0:
            raise GitError(done.error or f"git status exited with {done.status}")
        head, branch, files = parse_status(done.output)
        if self.own and any(name.endswith("/") for name in files):
            files = self._without_worktrees(files)
        return head, branch, files

    def _without_worktrees(self, files: tuple[str, ...]) -> tuple[str, ...]:
        """Without the worktrees of sub-agents, which are no change of this one."""
        at_top = at_top_of(self._git)
        left_out = {*self._nested(at_top)[0]}
        there = [name for name in others_in(at_top) if name not in left_out] if left_out else []
        return tuple(
            name
            for name in files
            if not (left_out and name.endswith("/"))
            or any(other.startswith(name) for other in there)
        )

    def _nested(self, at_top: Git) -> tuple[list[str], list[str]]:
        return nested(at_top, Path(self._place("--git-common-dir")))

    @property
    def _git(self) -> Git:
        self._check_dot_git()
        return Git(self.folder, self.seconds)

    def _check_dot_git(self) -> None:
        """Without its ``.git`` file git would take whatever repository lies around the worktree:
        one that was removed is written again. Raises ``GitError`` if it leads elsewhere."""
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
        """What the attempt has changed up to now; raises ``GitError``."""
        if self.base is None:
            return Changes(known=False)
        commits = self._git("rev-list", "--reverse", f"{self.base}..{self._tip()}")
        files = self.status()[2]
        if not self.own:
            # What the user had changed before is not this attempt's work.
            files = tuple(name for name in files if name not in self.dirty)
        return Changes(tuple(objects(commits)), files)

    def commit(self, title: str, text: str = "") -> str | None:
        """Commit what is not committed, in a worktree of its own; gives the new commit.

        None where nothing was to be committed. Whoever worked in it has ended. Raises
        ``CannotCommit`` while a merge or a rebase is under way, and ``GitError``.
        """
        if not self.own:
            return None
        for tries_left in reversed(range(COMMIT_TRIES_MAX)):
            before = self.head()
            try:
                self.come_back()
                return self._commit(title, text)
            except GitError:
                # A killed git may have made it before it could say so.
                if self.head() != before and not self.status()[2]:
                    return self.head()
                if not tries_left:
                    raise
        raise AssertionError("the last try returns or raises")

    def _commit(self, title: str, text: str) -> str | None:
        unlock_worktree(self.folder)
        self._check_operation()
        self._check_gitlinks()
        if not self.status()[2] and not self._merging():
            return None
        self._stage()
        if not self._git("diff", "--cached", "--name-only", "-z") and not self._merging():
            return None
        who = self._identity()
        message = f"{_subject(title)}\n\n{text}{self._trailers(self.trailers, who)}"
        done = self._git.once(*who, "commit", "--no-gpg-sign", "--quiet", "--file=-", given=message)
        if done.status != 0:
            raise GitError(done.error or f"git commit exited with {done.status}")
        return self.head()

    def _stage(self) -> None:
        at_top = at_top_of(self._git)
        worktrees, repositories = self._nested(at_top)
        _refuse(repositories)
        at_top("add", "--all", *without(worktrees))
        self._check_gitlinks()

    def _check_gitlinks(self) -> None:
        _refuse(bare_gitlinks(at_top_of(self._git), self.base or self._tip()))

    def _identity(self) -> tuple[str, ...]:
        """Options by which a commit can be made, also if nobody ever said who commits."""
        known = self._git.ask("var", "GIT_COMMITTER_IDENT")
        return () if known.status == 0 else FALLBACK_IDENTITY

    def head(self) -> str:
        """The commit of its branch; raises ``GitError``."""
        tip = self._tip()
        return tip if is_object(tip) else self._git("rev-parse", tip).strip()

    def _tip(self) -> str:
        self._check_dot_git()
        return "HEAD" if self.mine is None else self.mine.commit()

    def tree(self) -> str:
        """The tree of that commit; raises ``GitError``."""
        return self._git("rev-parse", f"{self._tip()}^{{tree}}").strip()

    def branch(self) -> str:
        """Its own branch; in a shared folder the one that is checked out, "" if none is."""
        if self.mine is not None:
            return self.mine.branch
        return self.status()[1] or ""

    def diffstat(self) -> str:
        """In git's words: ``2 files changed, 10 insertions(+)``."""
        if self.base is None:
            return ""
        return self._git("diff", "--shortstat", self.base).strip()

    def diff(self) -> str:
        """What a reviewer gets to see: everything since the base, committed or not."""
        if self.base is None:
            return ""
        return self._git("diff", "--no-color", "--no-ext-diff", self.base)

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
            flags=(*receipt.flags, *self.moved(), *self._obeyed(), *self._programs()),
        )

    def _obeyed(self) -> list[str]:
        """What it changes that others run once it is merged, in one line; raises ``GitError``."""
        found = names(self._git("diff", "--name-only", "-z", str(self.base), "--", *WATCHED))
        return [f"{OBEYED}: {some(found)}"] if found else []

    def _programs(self) -> list[str]:
        """What git runs for the user since the attempt, in one line; raises ``GitError``."""
        if self.mine is None:
            return []
        found = changed(self._git_directory(), self._git)
        return [f"changed what git runs in this repository: {some(found)}"] if found else []

    def merge(self, tip: str) -> tuple[str, ...]:
        """Merge what has landed into its branch; the files whose conflicts are left standing.

        From here on its work is what differs from ``tip``. Raises ``GitError``.
        """
        if not self.own:
            return ()
        self.come_back()
        if not self._merging():
            try:
                self._merge(tip)
            except GitNoAnswer:
                raise
            except GitError:
                if not self.status()[2]:
                    raise
                # What lies there is in the way. Its branch was whole, so this came later, from a
                # check for instance; it is kept.
                self.keep()
                self.discard()
                self._merge(tip)
        self.base = tip
        return unmerged(self._git)

    def _merge(self, tip: str) -> None:
        for tries_left in reversed(range(COMMIT_TRIES_MAX)):
            try:
                done = self._git.once(
                    *self._identity(), "merge", "--no-gpg-sign", "--quiet", "--no-edit", tip
                )
            except GitNoAnswer:
                if not tries_left:
                    raise
                # Nobody else works here: what the killed one has locked is nobody's.
                unlock_worktree(self.folder)
            else:
                if done.status == 0 or self._merging():
                    return
                if not tries_left:
                    raise GitError(done.error or f"git merge exited with {done.status}")
            if self._merging():
                return

    def discard(self) -> None:
        """Have the files of HEAD again, and no others but those that git ignores, and repositories.

        For a caller that knows whose changes these are. Raises ``GitError``.
        """
        unlock_worktree(self.folder)
        at_top = at_top_of(self._git)
        at_top("reset", "--quiet", "--hard")
        at_top("clean", "--quiet", "-d", "--force")

    def keep(self) -> str | None:
        """Keep the tree as it is, whatever becomes of the worktree; gives the name of the ref.

        Files that the repository ignores are left out. None outside of a worktree of its own.
        """
        if not self.own or self.base is None:
            return None
        tree, head = self.whole_tree(self.hidden()[0]), self._git("rev-parse", "HEAD").strip()
        commit, own = head, self.head()
        if tree != self._git("rev-parse", "HEAD^{tree}").strip() or own != head:
            message = f"Attempt {self.attempt} at {self.issue_id}, as it was left\n"
            commit = self._git(
                *(*self._identity(), "commit-tree", tree),
                *(word for each in dict.fromkeys((head, own)) for word in ("-p", each)),
                *("-F", "-"),
                given=message + "\n" + self._trailers(OWN_TRAILERS),
            ).strip()
        ref = f"{ATTEMPTS}/{branch_part(self.issue_id)}/{self.attempt}"
        unlock(self._place("--git-common-dir"), ref)
        self._git("update-ref", ref, commit)
        return ref

    def began_before(self) -> None:
        """Know what there was before the first attempt, which nobody looked at as it began."""
        if self.mine is not None:
            self.refs = self.mine.before
            with suppress(OSError):
                self.began = (self._git_directory() / REFS_FILE).stat().st_mtime

    def keep_all(self, hidden: tuple[list[str], list[str]]) -> list[str]:
        """``keep``; gives what a person should know of ``hidden`` files."""
        ref, (kept, left) = self.keep(), hidden
        rules = "your own ignore rules hide"
        flags = [f"{rules} {some(kept)}: kept in {ref}"] if kept else []
        return [*flags, f"{rules} {some(left)}: too large or too many, not kept"] if left else flags

    def hidden(self) -> tuple[list[str], list[str]]:
        """See ``nested.hidden``; raises ``GitError``."""
        return hidden(at_top_of(self._git), self.began) if self.own else ([], [])

    def whole_tree(self, besides: Sequence[str] = ()) -> str:
        """Of all that is there, committed or not, but for ignored files; raises ``GitError``."""
        if not besides and not self.status()[2]:
            return self._git("rev-parse", "HEAD^{tree}").strip()
        at_top = at_top_of(self._git)
        worktrees, repositories = self._nested(at_top)
        return whole_tree(at_top, without([*worktrees, *repositories]), besides)

    def _check_operation(self) -> None:
        if under_way := self._operation(except_for=("BISECT_LOG", "MERGE_HEAD")):
            raise CannotCommit(f"{under_way} is under way in the worktree")
        # A merge ends with the commit, once nothing is left of its conflicts.
        base = self.base or self._tip()
        if standing := left_marks(self._git, self._git_directory(), base, self._tip()):
            raise CannotCommit(f"conflicts stand in {', '.join(standing[:FILES_NAMED])}")

    def _operation(self, except_for: Sequence[str] = ("BISECT_LOG",)) -> str:
        directory = self._git_directory()
        there = [
            what
            for name, what in OPERATIONS.items()
            if name not in except_for and (directory / name).exists()
        ]
        return there[0] if there else ""

    def _git_directory(self) -> Path:
        return Path(self._place("--absolute-git-dir"))

    def _place(self, asked: str) -> str:
        if asked not in self._places:
            self._places[asked] = answers(self._git(*questions(asked)))[0]
        return self._places[asked]

    def _merging(self) -> bool:
        return (self._git_directory() / "MERGE_HEAD").exists()

    def _trailers(self, templates: tuple[str, ...], who: Sequence[str] = ()) -> str:
        said = {"id": self.issue_id, "attempt": str(self.attempt), "run": self.run_id}
        if any("{committer}" in each for each in templates):
            ident = self._git(*who, "var", "GIT_COMMITTER_IDENT")
            said["committer"] = ident[: ident.rindex(">") + 1]
        return "".join(f"{line}\n" for line in filled_trailers(templates, self.agent, **said))


def _refuse(repositories: Sequence[str]) -> None:
    if repositories:
        raise CannotCommit(
            f"a git repository of its own: {', '.join(repositories[:FILES_NAMED])}; remove its .git"
            " so that its files are committed (first 'git rm --cached' it if it was added), or make"
            " it a submodule"
        )


def _subject(title: str) -> str:
    line = " ".join(re.sub(r"[\x00-\x1f\x7f]", " ", title).split())
    return line[:72] or "Work of an agent"
