"""Trains: finished branches merged one upon the other in git's object database, without a checkout.

The merges made here are scratch: commits that no branch has. The commits that land are written only
after the gate has passed, because they say so (``Verified:``). Their trees are the gated ones.
Source: docs/LANDING.md, "What lands".
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from beads_workers.core.base.commit_form import CommitForm
from beads_workers.core.base.model import value
from beads_workers.core.records.landing import Add
from beads_workers.landing.message import (
    AgentCommit,
    Message,
    inert,
    landed_message,
    our_trailers,
    replayed_message,
    says_nothing,
    sealed,
    split,
)
from beads_workers.worktrees.git import (
    GitCall,
    GitError,
    GitNoAnswer,
    call,
    failure,
    identity,
    is_object,
    lines,
    log_format,
    merged,
    names,
    pairs,
    rows,
)
from beads_workers.worktrees.ledger import LandedCommit
from beads_workers.worktrees.lookup import Differences, Lookup, Refs, Scratch

GIT_SECONDS = 120.0
"""Time limit for a call of git, in seconds. A merge takes milliseconds; a merge driver, or a
program that signs, may wait for ever."""

COMMITS_MAX = 200
"""Number of a branch's commits, the newest, that are read for the message."""
SAME_SECONDS = 0.2
MERGE = ("-c", "merge.directoryRenames=true", "-c", "merge.renormalize=false")
"""Options of merges. If one side renames a folder, a file that the other side adds there moves
along; ``git merge`` would only propose that. Nothing is renormalized: that would run the filters
of a checkout."""


class CannotSign(GitError):
    """The user signs commits, and the signer refused, or did not answer."""


class CannotMerge(GitError):
    """git could not tell whether the branch merges: the cause is not known."""


@value
class Follow:
    """The user's own branch: its new commits land as they are."""

    branch: str
    commit: str


Passenger = Add | Follow

_About = tuple[tuple[str, str, str], str, str]
"""Author (name, mail, date), subject and body of a commit."""


@value
class PlannedCommit:
    """A planned commit: everything but its parent on the integration branch."""

    tree: str
    message: Message = Message("")
    # Name, mail, date.
    author: tuple[str, str, str] = ("", "", "")
    # Further parents.
    merged: tuple[str, ...] = ()
    # The existing commit, for a fast-forward.
    made: str = ""
    # What it lands, for the ledger.
    of: LandedCommit = LandedCommit("")


@value
class Coupled:
    """A passenger that merges: its changes in order, none if it brings nothing new.

    ``commit``: the scratch commit at this place of the train; ``tree``: its tree.
    """

    commit: str
    tree: str
    changes: tuple[PlannedCommit, ...] = ()


@value
class Conflict:
    """A branch that does not merge. ``text``: in git's words."""

    files: tuple[str, ...]
    text: str


@dataclass(slots=True)
class Objects:
    """The object database of a repository, and the folder in which merges run.

    git reads ``.gitattributes`` from its current folder, so the user's checked-out files would
    affect the result of a merge. ``folder`` is ours. It holds the ``.gitattributes`` of the commit
    that is merged into, and nothing else.
    """

    common: str
    folder: Path
    _stands: str = ""
    _trees: dict[str, str] = field(default_factory=dict)
    _below: dict[str, set[str]] = field(default_factory=dict)
    """Ancestors of commits, as far as they are known: they never change."""
    _lookup: Lookup = field(init=False)
    _differences: Differences = field(init=False)
    _scratch: Scratch = field(init=False)
    _refs: Refs = field(init=False)

    def __post_init__(self) -> None:
        places = self._places | {"GIT_WORK_TREE": self.common}  # It is there for certain.
        self._lookup = Lookup(self.common, places, GIT_SECONDS)
        self._differences = Differences(self.common, places, GIT_SECONDS)
        self._scratch = Scratch(Path(f"{self.folder}.commit"), places, GIT_SECONDS)
        self._refs = Refs(self.common, places, GIT_SECONDS)

    @property
    def _places(self) -> dict[str, str]:
        return {
            "GIT_DIR": self.common,
            "GIT_WORK_TREE": str(self.folder),
            "GIT_INDEX_FILE": f"{self.folder}.index",
            "GIT_NO_REPLACE_OBJECTS": "1",
        }

    def find(self, name: str, kind: str = "commit") -> str | None:
        """Return the object that a name means now, followed to this kind; None if there is none.
        Raises ``GitError``."""
        return self._lookup.find(name, kind)

    def call(self, *arguments: str, stdin: str = "", author: Sequence[str] = ()) -> GitCall:
        """Call git without a checkout; raises ``GitNoAnswer``."""
        self.folder.mkdir(parents=True, exist_ok=True)
        places = self._places
        if author:
            places |= dict(zip(_AUTHOR, author, strict=True))
        return call(str(self.folder), *arguments, stdin=stdin, places=places, seconds=GIT_SECONDS)

    def git(self, *arguments: str, stdin: str = "", author: Sequence[str] = ()) -> str:
        """Return the output of git, without the newline at its end. Raises ``GitError``."""
        done = self.call(*arguments, stdin=stdin, author=author)
        if done.status != 0:
            raise failure(arguments, done)
        return done.output.rstrip("\n")

    def says(self, *arguments: str) -> bool:
        """Return the answer of git to a question: yes (0) or no (1). Raises ``GitError``."""
        done = self.call(*arguments)
        if done.status not in (0, 1):
            raise failure(arguments, done)
        return done.status == 0

    def tree(self, commit: str) -> str:
        """Return the tree of a commit; raises ``GitError``."""
        if commit not in self._trees:
            if (tree := self.find(commit, "tree")) is None:
                raise GitError(f"there is no commit {commit}")
            self._trees[commit] = tree
        return self._trees[commit]

    def commit(self, tree: str, parents: Iterable[str], message: str = "-") -> str:
        """Write a scratch commit, which nobody signs; raises ``GitError`` and ``OSError``."""
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        commit = self._scratch.commit(tree, parents, f"{message}\n")
        self._trees[commit] = tree
        return commit

    def change_refs(self, *changes: str) -> None:
        """Change refs of ours; raises ``GitError``. See ``Refs``."""
        try:
            self._refs.change(*changes)
        except GitNoAnswer:  # A lock that a killed git has left, perhaps: a call removes it.
            self.git("update-ref", "--stdin", stdin="".join(f"{line}\n" for line in changes))

    def contains(self, commit: str, other: str) -> bool:
        """Return whether ``other`` is ``commit`` or one of its ancestors; raises ``GitError``."""
        if other in self._below.get(commit, ()):
            return True
        found = self.says("merge-base", "--is-ancestor", other, commit)
        if found and is_object(commit) and is_object(other):
            self._below.setdefault(commit, set()).add(other)
        return found

    def is_known_to_contain(self, commit: str, other: str) -> bool:
        """Return whether ``contains`` holds, as far as that is known without git."""
        return commit == other or other in self._below.get(commit, ())

    def moved(self, tip: str, commit: str) -> None:
        """Note that ``commit`` stands on ``tip``, which nobody asks about any more, and so contains
        all that is known of it."""
        self._below[commit] = self._below.pop(tip, set()) | {tip}

    def merge(self, ours: str, theirs: str) -> str | Conflict:
        """Return the tree of both commits merged; raises ``CannotMerge``, ``GitError`` and
        ``OSError``."""
        self._stand_in(self.tree(ours))
        done = self.call(
            *(*MERGE, "merge-tree", "--write-tree", "-z", "--name-only", "--messages"),
            *(ours, theirs),
        )
        if done.status > 1 or not done.output:
            raise CannotMerge(done.error or f"git merge-tree exited with {done.status}")
        tree, files, messages = merged(done.output)
        return Conflict(tuple(files), "\n".join(messages) or "conflict") if done.status else tree

    def changed(self, tree: str, other: str) -> list[str]:
        """Return the names of the files in which two trees differ."""
        found = self._differences.between(tree, other)
        if self._stands == tree and not any(map(_is_attributes, found)):
            self._stands = other
        return found

    def _stand_in(self, tree: str) -> None:
        if self._stands == tree:
            return
        if self._stands:
            self.changed(self._stands, tree)
            if self._stands == tree:
                return
        self._stands = ""
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        for row in names(self.git("ls-tree", "-r", "-z", "--full-tree", tree)):
            about, _, name = row.partition("\t")
            if _is_attributes(name) and about.startswith("100"):
                asked = ("cat-file", "blob", about.split()[2])
                blob = self.call(*asked)
                if blob.status != 0:
                    raise failure(asked, blob)
                file = self.folder / name
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(os.fsencode(blob.output))
        self._stands = tree


def _is_attributes(name: str) -> bool:
    return name.rpartition("/")[2] == ".gitattributes"


_AUTHOR = ("GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "GIT_AUTHOR_DATE")


# --- building ------------------------------------------------------------------------------------


@value
class TrackerFiles:
    """Files of a tracker, whose changes never land: those that it writes into every checkout, and
    all others of its folder if they are removed. ``prefix``: the project's folder, seen from the
    top of the repository."""

    prefix: str = ""

    def holds(self, name: str, *, removed: bool = False) -> bool:
        """Return whether a change of this file, seen from the top, never lands."""
        return any(self._is_one(name.removeprefix(root), removed) for root in self._roots)

    @property
    def pathspecs(self) -> tuple[str, ...]:
        """Pathspecs for git of all files that may be held."""
        names = (".beads/**", ".beads-workers", ".beads-workers/**")
        return tuple(f":(top,glob){root}{name}" for root in self._roots for name in names)

    @property
    def _roots(self) -> tuple[str, ...]:
        below = self.prefix.strip("/")
        return ("", f"{below}/") if below else ("",)

    @staticmethod
    def _is_one(name: str, removed: bool) -> bool:
        folder, _, file = name.partition("/")
        if folder == ".beads":
            return removed or file in {"", "metadata.json"} or file.endswith((".jsonl", "/"))
        return folder == ".beads-workers"


class _Branch(NamedTuple):
    """What is known of a branch."""

    # The last commit.
    newest: _About
    # Commits without merges, the oldest first.
    commits: list[AgentCommit]
    # The parents of all commits that are the branch's own.
    parents: frozenset[str]
    # The commit that the branch began with, if it was to land on something that lacks this commit;
    # else "".
    base: str = ""


@dataclass(slots=True)
class Builder:
    """Builder of trains: couples passengers. ``style``: one of ``LANDING_STYLES``."""

    objects: Objects
    tracker: TrackerFiles
    style: str = "squash"
    form: CommitForm = field(default_factory=CommitForm)
    defuses: bool = False
    _known: dict[str, _About] = field(default_factory=dict)
    _branches: dict[str, _Branch] = field(default_factory=dict)
    _who: tuple[str, ...] | None = None
    _signs: bool | None = None

    def couple(self, onto: str, passenger: Passenger) -> Coupled | Conflict:
        """Merge the passenger onto this commit; raises ``GitError`` and ``OSError``."""
        if isinstance(passenger, Follow):
            return self._follow(onto, passenger)
        tree = self.objects.tree(onto)
        merged = self.objects.merge(onto, passenger.commit)
        if base := self._branch(onto, passenger.commit, passenger.base).base:
            # What its base has and ``onto`` has not is no work of this branch.
            states = self.objects.tree(base), self._kept_tree(tree, passenger.commit)
            merged = _picked(self.objects, tree, *states)
        touched = (
            merged.files if isinstance(merged, Conflict) else self.objects.changed(tree, merged)
        )
        if any(self.tracker.holds(name, removed=True) for name in touched):
            merged = self.objects.merge(onto, self._without_tracker(tree, passenger.commit))
        if isinstance(merged, Conflict):
            return merged
        if merged == tree:
            return Coupled(onto, tree)
        changes = tuple(self._changes(onto, passenger, merged))
        scratch = onto
        for change in changes:
            scratch = self.objects.commit(change.tree, (scratch, *change.merged))
        return Coupled(scratch, merged, changes)

    def check(self, tip: str) -> None:
        """Do the work of ``couple`` with an empty commit that is new, to see whether git works at
        all. Raises as ``couple`` does."""
        tree = self.objects.tree(tip)
        empty = self.objects.commit(tree, (tip,), f"nothing, {time.time_ns()}")
        self.objects.merge(tip, empty)
        self._read("-1", empty)

    def write(
        self,
        tip: str,
        groups: Sequence[Sequence[PlannedCommit]],
        verified: str = "",
        train: tuple[str, ...] = (),
    ) -> tuple[list[str], list[LandedCommit]]:
        """Write the commits that land on ``tip``, signed if the user signs. Return the last one of
        each group, and the entries for the ledger. ``verified``: the tree of the last one, if a
        gate has passed; ``scratch_merges``: the issues in it. Raises ``GitError``."""
        parent, last, landed = tip, list[str](), list[LandedCommit]()
        signs, who = self._signature()
        signer = self._signer(who)
        end = groups[-1][-1] if groups and groups[-1] else None
        for group in groups:
            for change in group:
                of = replace(change.of, verified=verified, train=train)
                ours = our_trailers(self.form, of, last=change is end)
                text = sealed(change.message, ours, signer)
                parent = change.made or self._write(change, parent, text, who, signs=signs)
                if of.issue_id:
                    landed.append(replace(of, commit=parent))
            last.append(parent)
        return last, landed

    def _signature(self) -> tuple[bool, tuple[str, ...]]:
        """Return whether the user signs, and as of ``identity``: read once."""
        if self._signs is None:
            asked = ("config", "--type=bool", "--default=false", "commit.gpgSign")
            self._signs = self.objects.git(*asked) == "true"
        if self._who is None:
            self._who = identity(self.objects.common)
        return self._signs, self._who

    def _write(
        self, change: PlannedCommit, parent: str, text: str, who: Sequence[str], *, signs: bool
    ) -> str:
        parents = [word for each in (parent, *change.merged) for word in ("-p", each)]
        commit = (*who, "commit-tree", *(("-S",) if signs else ()), change.tree, *parents)
        try:
            author = change.author if change.author[0] else ()
            return self.objects.git(*commit, stdin=text, author=author)
        except GitError as error:
            self._signs = self._who = None  # A person may mend that.
            if not signs or isinstance(error, GitNoAnswer):
                raise
            raise CannotSign(
                f"the commit that lands cannot be signed ({error}): unlock the signer"
            ) from None

    def _signer(self, who: Sequence[str]) -> str:
        """Return who signs off the commits that land: the committer; "" if there is no sign-off."""
        if not self.form.signoff:
            return ""
        known = ("-c", "user.useConfigOnly=true", "var", "GIT_COMMITTER_IDENT")
        done = self.objects.call(*known)
        if who or done.status != 0:
            raise GitError("[landing] signoff: git does not know who commits: git config user.name")
        ident = done.output
        return ident[: ident.rindex(">") + 1]

    def know(self, commits: Sequence[str]) -> None:
        """Read the messages of all these commits in one call; raises ``GitError``."""
        if commits:
            read = self._read("--no-walk=unsorted", *commits)
            self._known |= {commit: about for (commit, _), about in read.items()}

    def subject_of(self, commit: str) -> str:
        """Return the first line of a commit; raises ``GitError``."""
        return self._about(commit)[1]

    def written(self, commit: str) -> float:
        """Return when the author wrote the commit, in epoch seconds; raises ``GitError``."""
        return float(self._about(commit)[0][2].partition(" ")[0])

    def rewrite(self, base: str, head: str, landed: Sequence[str]) -> str:
        """Write new commits for the work of ``head`` beyond ``base``, as many as the style lands,
        and return the last. ``landed``: the commits as which it landed, the oldest first. The new
        ones keep the authors and, without our trailers, the messages. Raises ``GitError``."""
        if self.style == "merge":
            return self._copied_branch(base, head)
        if len(landed) > 1 and (made := self._picked_anew(base, landed)):
            return made
        return self._copied(self.objects.tree(head), [base], landed[-1])

    def _copied_branch(self, base: str, head: str) -> str:
        asked = ("rev-list", "--reverse", "--topo-order", "--parents", f"{base}..{head}")
        made = {head: head}
        for commit, *parents in (row.split(" ") for row in lines(self.objects.git(*asked))):
            on = [made.get(each, each) for each in parents]
            made[commit] = self._copied(self.objects.tree(commit), on, commit, with_trailers=True)
        return made[head]

    def _picked_anew(self, base: str, landed: Sequence[str]) -> str:
        """Pick one commit upon the other, and return the last one; "" if one conflicts."""
        objects, on, tree = self.objects, base, self.objects.tree(base)
        for each in landed:
            picked = _picked(objects, tree, objects.tree(f"{each}^1"), objects.tree(each))
            if isinstance(picked, Conflict):
                return ""
            tree, on = picked, self._copied(picked, [on], each)
        return on

    def _copied(
        self, tree: str, parents: Sequence[str], words: str, *, with_trailers: bool = False
    ) -> str:
        """Write a copy. ``words``: the commit whose message and author it gets;
        ``with_trailers``: with our trailers."""
        author, subject, text = self._about(words)
        body, found = (text, []) if with_trailers else split(text)
        message = sealed(Message(f"{subject}\n\n{body}".rstrip(), tuple(found)), (), "")
        named = [word for each in parents for word in ("-p", each)]
        made_by = (*self._signature()[1], "commit-tree", tree, *named)
        while (made := self.objects.git(*made_by, stdin=message, author=author)) == words:
            time.sleep(SAME_SECONDS)  # In the same second it would be the same commit.
        return made

    # --- inside -----------------------------------------------------------------------------------

    def _follow(self, onto: str, follow: Follow) -> Coupled | Conflict:
        objects = self.objects
        if objects.contains(onto, follow.commit):
            return Coupled(onto, objects.tree(onto))
        ahead = objects.contains(follow.commit, onto)
        if ahead and self._stands_on(follow.commit, onto):
            tree = objects.tree(follow.commit)
            return Coupled(follow.commit, tree, (PlannedCommit(tree, made=follow.commit),))
        # Landed commits are found by first parents: ``onto`` has to stay one.
        merged = objects.tree(follow.commit) if ahead else objects.merge(onto, follow.commit)
        if isinstance(merged, Conflict):
            return merged
        message = Message(f"Merge branch '{follow.branch}'")
        scratch = objects.commit(merged, (onto, follow.commit))
        return Coupled(scratch, merged, (PlannedCommit(merged, message, merged=(follow.commit,)),))

    def _stands_on(self, commit: str, onto: str) -> bool:
        """Return whether ``onto`` is among the first parents of ``commit``, which contains it."""
        asked = ("log", "--first-parent", "--format=%P", f"{onto}..{commit}")
        (*_, oldest) = lines(self.objects.git(*asked))
        return oldest.split(" ")[0] == onto

    def _changes(self, onto: str, add: Add, merged: str) -> Iterator[PlannedCommit]:
        replayed = self._replayed(onto, add) if self.style == "rebase" else []
        if replayed and replayed[-1].tree == merged:
            yield from replayed
            return
        branch = self._branch(onto, add.commit, add.base)
        author = branch.newest[0]
        said = inert(add, branch.commits) if self.defuses else (add, branch.commits)
        message = landed_message(self.form, *said, _written(author))
        second = (add.commit,) if self.style == "merge" and not branch.base else ()
        yield PlannedCommit(merged, message, author, second, of=_of(add))

    def _replayed(self, onto: str, add: Add) -> list[PlannedCommit]:
        """Return the branch's commits, one after the other. If the branch has merges, or a commit
        conflicts alone, return none: the branch lands as one commit then."""
        objects, found = self.objects, list[PlannedCommit]()
        since = self._branch(onto, add.commit, add.base).base or onto
        listed = objects.git("rev-list", "--reverse", "--parents", f"{since}..{add.commit}")
        tree = objects.tree(onto)
        for commit, *parents in (line.split(" ") for line in lines(listed)):
            if len(parents) != 1:
                return []
            kept = self._kept_tree(tree, commit)
            replayed = _picked(objects, tree, objects.tree(parents[0]), kept)
            if isinstance(replayed, Conflict):
                return []
            if replayed != tree:
                author, subject, text = self._about(commit)
                agent_commit = AgentCommit(subject, text)
                issue, commits = (
                    inert(add, [agent_commit]) if self.defuses else (add, [agent_commit])
                )
                message = replayed_message(self.form, issue, *commits)
                change = PlannedCommit(replayed, message, author, of=_of(add))
                before = found[-1:] if says_nothing(add, agent_commit) else []
                twins = [e for e in before if (e.message, e.author[:2]) == (message, author[:2])]
                found[len(found) - len(twins) :] = [change]
            tree = replayed
        return found

    def _about(self, commit: str) -> _About:
        if commit not in self._known:
            (self._known[commit],) = self._read("-1", commit).values()
        return self._known[commit]

    def begins_at(self, base: str, onto: str, commit: str) -> bool:
        """Return whether the branch has commits that ``onto`` has not, and the first stands on
        ``base``; False if that is not known: it is too long, or was read for another ``onto``.
        Raises ``GitError``."""
        return commit not in self._branches and base in self._branch(onto, commit, base).parents

    def _branch(self, onto: str, commit: str, base: str) -> _Branch:
        known = self._branches.get(commit)
        if known is None or (known.base and self.objects.contains(onto, base)):
            asked = ("--topo-order", f"--max-count={COMMITS_MAX}")
            read = self._read(*asked, f"{onto}..{commit}")
            if lacks_base := base in {name for name, _ in read}:
                read = self._read(*asked, f"{base}..{commit}")
            own = [
                AgentCommit(subject, text, _written(author))
                for (_, parents), (author, subject, text) in reversed(read.items())
                if " " not in parents
            ]
            newest = next(iter(read.values()), None) or self._about(commit)
            parents = frozenset(each for _, named in read for each in named.split(" "))
            self._branches[commit] = _Branch(newest, own, parents, base if lacks_base else "")
        return self._branches[commit]

    def _read(self, *asked: str) -> dict[tuple[str, str], _About]:
        """Return commits; the key of each is its own name and those of its parents."""
        form = log_format("%H", "%P", "%an", "%ae", "%ad", "%s", "%b")
        return {
            (commit, parents): ((name or mail or "unknown", mail or "unknown", date), subject, text)
            for commit, parents, name, mail, date, subject, text in rows(
                self.objects.git("log", "--date=raw", form, *asked), 7
            )
        }

    def _without_tracker(self, tree: str, commit: str) -> str:
        """Return a new commit on top of this one, with the tracker's files as ``tree`` has them."""
        kept = self._kept_tree(tree, commit)
        return commit if kept == self.objects.tree(commit) else self.objects.commit(kept, (commit,))

    def _kept_tree(self, tree: str, commit: str) -> str:
        raw = self.objects.git(
            "diff-tree", "-r", "-z", tree, self.objects.tree(commit), "--", *self.tracker.pathspecs
        )
        if not raw:
            return self.objects.tree(commit)
        entries = []
        for about, name in pairs(raw):
            mode, after, blob, *_ = about.lstrip(":").split(" ")
            if self.tracker.holds(name, removed=after == "000000"):
                entries.append(f"{'0' if mode == '000000' else mode} {blob}\t{name}\0")
        Path(f"{self.objects.folder}.index").unlink(missing_ok=True)
        self.objects.git("read-tree", commit)
        self.objects.git("update-index", "-z", "--index-info", stdin="".join(entries))
        written = self.objects.git("write-tree")
        Path(f"{self.objects.folder}.index").unlink(missing_ok=True)
        return written


def reverting(objects: Objects, tip: str, landed: str) -> str | Conflict:
    """Return the tree of ``tip`` without the changes of ``landed`` against its first parent. Raises
    ``GitError`` and ``OSError``."""
    before, after = objects.tree(landed), objects.tree(f"{landed}^1")
    return _picked(objects, objects.tree(tip), before, after)


def _picked(objects: Objects, tree: str, before: str, after: str) -> str | Conflict:
    """Return ``tree`` with the changes from ``before`` to ``after``."""
    # Three commits, the first being the base of the others: git 2.39 takes no base.
    base = objects.commit(before, ())
    ours, theirs = (objects.commit(each, (base,)) for each in (tree, after))
    return objects.merge(ours, theirs)


def _of(add: Add) -> LandedCommit:
    return LandedCommit("", add.issue_id, add.attempt, add.run_id)


def _written(author: tuple[str, str, str]) -> str:
    return f"{author[0]} <{author[1]}>"
