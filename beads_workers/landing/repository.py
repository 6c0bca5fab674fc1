"""The repository as the lander sees it: the integration branch, and how it moves.

Nothing here touches the user's checkout, index or HEAD, except for ``--land-into``, which the user
asked for. No hook runs. The lander reads what has landed from the branch itself, by the trailers of
its commits. It keeps no state of its own, and may be killed at any moment. Source: docs/LANDING.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import takewhile
from pathlib import Path, PurePosixPath

from beads_workers.core.base.model import value
from beads_workers.core.base.settings import Worktrees
from beads_workers.core.base.text import printable
from beads_workers.core.records.landing import Add, Into, LanderSettings
from beads_workers.executors.files import branch_part
from beads_workers.landing.scratch_merges import (
    COMMITS_MAX,
    Builder,
    Coupled,
    Follow,
    Objects,
    PlannedCommit,
    TrackerFiles,
)
from beads_workers.runtime.processes import say
from beads_workers.worktrees import ledger, places, remote
from beads_workers.worktrees.branch_movers import TRESPASSED, Movers, last_moved_at, moves, name_of
from beads_workers.worktrees.git import (
    OWN_REFS,
    GitError,
    answers,
    delete_refs,
    failure,
    git,
    is_object,
    log_format,
    objects,
    questions,
    row_format,
    rows,
    unlock,
    unlock_all,
)
from beads_workers.worktrees.landed import (
    ATTEMPTS,
    PREFIX,
    PULLS,
    WHY,
    as_landed,
    branches_with,
    git_too_old,
    landed_commits,
    still_landed,
)
from beads_workers.worktrees.ledger import LandedCommit
from beads_workers.worktrees.ref_files import LoggedMove, is_nowhere_checked_out
from beads_workers.worktrees.removal import OPERATIONS, status

RUNS = "refs/bw/runs"
"""``refs/bw/runs/<run>``: tip of the integration branch before the run."""
UNDONE = "refs/bw/undone"
"""``refs/bw/undone/<run>/<issue>/<attempt>``: commit by which this attempt had landed, before it
was taken back: ``land`` lands it again only by name."""
ACCEPTED = "refs/bw/accepted"
"""``refs/bw/accepted/<branch>``: commit to which a person has moved the integration branch."""
REOPENING = "refs/bw/reopening"
"""``refs/bw/reopening/<asked>/<issue>``: the commit that was taken back, which is still to be
reported to the tracker. ``asked``: a run or an issue."""
DAY_CHARS = 8
"""Length of the day with which names of runs begin. A shorter text might be meant for an issue."""
PINS = "refs/bw/train"
"""The train that is being gated: without a ref, ``git gc`` would remove it."""
BROKEN = "refs/bw/broken"
"""The commit that a proof has broken on purpose. It is not a train: a lander forgets trains of
others as it begins, and a proof may run then."""


@value
class Trespass:
    """A trespass."""

    # The attempts that moved the branch (``movers.name_of``).
    attempts: tuple[str, ...]
    # The tip of the branch.
    commit: str
    # The tip before.
    back: str


class CannotLand(Exception):
    """Nothing can land in this repository as it is; ``str()`` is for people, one line."""


class CannotMeet(GitError):
    """This branch cannot be landed at all; ``str()`` says why."""


class Moved(Exception):
    """The branch is not where it was when the train was built."""


class Unclear(Exception):
    """Nobody knows whether an attempt or a person has moved the branch; ``str()`` is for people."""


class Held(Exception):
    """The branch is checked out in a worktree, which would show the landing as deletions."""


def landing_folder(worktrees: Worktrees) -> Path:
    """Return the folder in which gates work: see ``worktrees.places``."""
    paths = worktrees.folder, worktrees.checkout, worktrees.common
    return places.landing_folder(*map(Path, paths))


@dataclass(slots=True)
class _History:
    """What has landed up to ``tip``, and still counts, the oldest first. ``at``: tips of the
    branch, each with the number of commits that had landed there."""

    tip: str = ""
    at: dict[str, int] = field(default_factory=dict)
    landed: list[LandedCommit] = field(default_factory=list)

    def since(self, base: str) -> list[LandedCommit]:
        """Return what has landed since one of the tips, the newest first."""
        return self.landed[self.at[base] :][::-1]

    def moved(self, tip: str, commit: str, landed: Sequence[LandedCommit]) -> None:
        """The branch has moved from ``tip`` to a commit of ours."""
        if tip == self.tip and not any(each.undoes for each in landed):
            self.landed += landed
            self.tip, self.at[commit] = commit, len(self.landed)


class LandingRepository:
    """The repository. ``branch``: the integration branch. ``builder``: builds trains for the
    branch. ``login``: settings of git for the remote, as ``remote.NOBODY``."""

    def __init__(self, settings: LanderSettings) -> None:
        landing, worktrees = settings.landing, settings.worktrees
        self.settings = settings
        self.common = worktrees.common
        self.branch = landing.branch
        self.ref = f"refs/heads/{landing.branch}"
        self.objects = Objects(self.common, landing_folder(worktrees) / "attributes")
        self.tracker = TrackerFiles(worktrees.prefix)
        self.remote = landing.remote
        self._theirs = landing.theirs
        self.login: Mapping[str, str] = remote.NOBODY
        self._checkout = worktrees.checkout
        self._commits = set[str]()
        self._history = _History()
        self._followed_there: str | None = None
        rules = landing.rules
        self.builder = Builder(self.objects, self.tracker, rules.style, rules.form, landing.defuses)
        self._ledger = ledger.ledger_ref(self.branch)
        self._accepted = f"{ACCEPTED}/{branch_part(self.branch.partition('/')[2])}"
        self._ledger_there = ""
        self._pinned = set[str]()

    # --- at its start -----------------------------------------------------------------------------

    def open(self) -> str:
        """Make the branch if there is none, note where it stands, and discard what a killed lander
        left; return the tip. Raises ``CannotLand``, and as ``fetch`` does."""
        for lock in unlock_all(self.common):
            say("lander", f"removed {lock}, which a killed git has left")
        try:
            check_git()
            self.fetch()
            if self.commit_of(self.ref) is None:
                self._make_way()
                self._begin(self._start())
            tip = self.tip()
            before = f"{RUNS}/{branch_part(self.settings.run_id)}"
            if self.commit_of(before) is None:
                self._update("landing: before this run", remote.RefMove(before, "", tip))
            self.unpin(by_others=True)
        except remote.RemoteTrouble:
            raise
        except GitError as error:
            raise CannotLand(self._in_its_way() or f"{self._cannot_begin()}: {error}") from None
        return tip

    def _cannot_begin(self) -> str:
        return f"the branch {self.branch} cannot be made"

    def _in_its_way(self) -> str:
        """Return an error text that names the branch whose name conflicts with the integration
        branch's: one name is a folder of the other. "" if there is none."""
        with suppress(GitError):
            for name in self._rivals():
                remedy = f"'git branch -m {name} {name.replace('/', '-')}-earlier' moves it away"
                return f"{self._cannot_begin()}: a branch {name} is in its way; {remedy}"
        return ""

    def _rivals(self) -> list[str]:
        above = [str(each) for each in PurePosixPath(self.branch).parents]
        output = git(self.common, "for-each-ref", row_format("%(refname:lstrip=2)"), "refs/heads/")
        found = [name for (name,) in rows(output, 1)]
        return [name for name in found if name in above or name.startswith(f"{self.branch}/")]

    def _make_way(self) -> None:
        """Delete integration branches in the way of this one that nobody needs: the user's branch
        is gone, and another one has what had landed. Raises ``GitError``."""
        for name in self._rivals():
            ref, own = f"refs/heads/{name}", f"refs/heads/{name.removeprefix(f'{PREFIX}/')}"
            tip = self.commit_of(ref)
            if tip is None or self.commit_of(own) or self.worktree_of(ref):
                continue
            if self.commit_of(ledger.ledger_ref(name)) and branches_with(self.common, tip):
                self.objects.git("update-ref", "-d", ref, tip)

    def _start(self) -> str:
        start = self.commit_of(self.settings.landing.start)
        if start is None:
            raise CannotLand(f"no such commit: {self.settings.landing.start}")
        return start

    def _begin(self, commit: str) -> None:
        self._update(f"landing: branch {self.branch} begins", remote.RefMove(self.ref, "", commit))

    def tip(self) -> str:
        """Return the commit of the integration branch; raise ``GitError`` if the branch is gone."""
        if (found := self.objects.find(self.ref)) is None:
            raise GitError(f"there is no branch {self.branch}")
        return found

    def commit_of(self, name: str) -> str | None:
        """Return the commit that a name means; None if there is none. Raises ``GitError``."""
        return self.objects.find(name)

    def follow(self, tip: str) -> Follow | None:
        """Return the user's branch, here or at the remote, if it has commits that have not
        landed."""
        name = self.settings.landing.follows
        here = self.commit_of(f"refs/heads/{name}") if name else None
        there = self._followed_there
        for branch, commit in ((name, here), (f"{self.remote}/{name}", there)):
            if commit is not None and not self.objects.contains(tip, commit):
                return Follow(branch, commit)
        return None

    # --- the remote -------------------------------------------------------------------------------

    def fetch(self) -> None:
        """Move the branch to where the remote's branch stands, which is what counts. Without a
        remote, do nothing. A remote without such a branch gets it.

        Raises ``RemoteTrouble``, ``Held``, and ``GitError`` if the branch here cannot move.
        """
        if not self.remote:
            return
        if self._theirs:
            self._fetch_theirs()
            return
        name = self.settings.landing.follows
        followed = f"refs/heads/{name}" if name else self.ref
        asked = self.ref, followed, *([self._ledger] if self._shares_ledger else [])
        heads = remote.remote_heads(self._checkout, self.remote, asked, self.login)
        self._followed_there = heads.get(followed) if name else None
        self._ledger_there = heads.get(self._ledger, "")
        here, there = self.commit_of(self.ref), heads.get(self.ref)
        if there is None:
            there = here or self._start()
            try:
                self.push(remote.RefMove(self.ref, "", there))
            except remote.LostRace:
                self.fetch()
                return
        if here is None:
            self._begin(there)
        elif here != there:
            self._go_along(here, there)
        self._join_ledger()

    def _fetch_theirs(self) -> None:
        """Move the branch to the forge's branch, wherever that stands: people move it there."""
        there = self.at_remote(self._theirs)
        if not there:
            name = self._theirs.removeprefix("refs/heads/")
            raise remote.RemoteTrouble(f"{self.remote} has no branch {name}")
        here = self.commit_of(self.ref)
        if here is None:
            self._begin(there)
        elif here != there:
            if (held := self.worktree_of(self.ref)) is not None:
                raise Held(held)
            self._move(here, there, f"{WHY}as it is on {self.remote}")

    @property
    def _shares_ledger(self) -> bool:
        """Whether the ledger is pushed to the remote, too. With full trailers, the commits there
        say it all."""
        return bool(self.remote and not self._theirs) and self.builder.form.trailers != "full"

    def _join_ledger(self) -> None:
        here, there = self.commit_of(self._ledger) or "", self._ledger_there
        if not there or here == there or (here and self.objects.contains(here, there)):
            return
        both = here and not self.objects.contains(there, here)
        joined = ledger.entry_commit(self.common, (there, here), ()) if both else there
        self._update("landing: as it is on the remote", remote.RefMove(self._ledger, here, joined))

    def _go_along(self, own_tip: str, remote_tip: str) -> None:
        if not self.objects.contains(remote_tip, own_tip):
            raise remote.RemoteTrouble(remote.ahead(self.branch, self.remote, remote_tip))
        if (held := self.worktree_of(self.ref)) is not None:
            raise Held(held)
        self._move(own_tip, remote_tip, f"landing: as it is on {self.remote}")

    # --- what has landed --------------------------------------------------------------------------

    def landed(self, since: str, tip: str, files: Sequence[str] = ()) -> Iterator[LandedCommit]:
        """Yield what the lander wrote between two commits ("": from the beginning), the newest
        first; if files are named, only commits that changed one of them. Raises ``GitError``."""
        named = [f":(top,literal){file}" for file in files]
        yield from landed_commits(self.common, since, [tip], files=named, branch=self.branch)

    def all_landed(self, tip: str) -> list[LandedCommit]:
        """Return all that the lander wrote, the newest first; raises ``GitError``. The search ends
        at the first run here, unless other clones land as well."""
        first = ("for-each-ref", "--sort=refname", "--count=1", "--format=%(objectname)")
        began = "" if self.remote else self.objects.git(*first, f"{RUNS}/")
        return list(self.landed(began, tip))

    def gone(self, tip: str) -> list[LandedCommit]:
        """Return what has landed, was not taken back, and is not on the branch any more, as far as
        the ledger knows. Raises ``GitError``."""
        newest = f"--max-count={ledger.CANDIDATES_MAX}"
        seen = objects(self.objects.git("rev-list", "--first-parent", newest, tip))
        return ledger.moved(self.common, ledger.entries(self.common, self.branch), tip, seen)[1]

    def landed_as(self, add: Add, tip: str) -> LandedCommit | None:
        """Return the commit by which this attempt landed, unless that was undone; None if there is
        none. Raises ``GitError``."""
        history = self._history
        if history.tip != tip or add.base not in history.at:
            found = still_landed(list(self.landed(add.base, tip)))[::-1]
            history = self._history = _History(tip, {tip: len(found), add.base: 0}, found)
        for each in history.since(add.base):
            if _attempt_of(each) == _attempt_of(add):
                return each
        return None

    def landed_in(self, run_id: str, tip: str) -> list[LandedCommit] | None:
        """Return what landed while this run was the last one, the newest first; None: no such run.
        With a remote, only runs of this clone count, because others land there meanwhile. Raises
        ``GitError``."""
        wanted = row_format("%(refname)", "%(objectname)")
        output = self.objects.git("for-each-ref", wanted, f"{RUNS}/")
        runs = sorted((ref, commit) for ref, commit in rows(output, 2))  # By their time.
        name = f"{RUNS}/{branch_part(run_id)}"
        starts = [commit for ref, commit in runs if ref >= name]
        if (name, *starts[:1]) not in runs:
            return None
        start, *later = starts
        end = next((commit for commit in later if self.objects.contains(tip, commit)), tip)
        found = list(self.landed(start, end))
        if not self.objects.contains(tip, start):
            # A person has rewritten commits from before the run, too.
            found = [e for e in found if not (e.was and self.objects.contains(start, e.was))]
        if not self.remote:
            return found
        ours = {ref.removeprefix(f"{RUNS}/") for ref, _ in runs}
        return [each for each in found if branch_part(each.run_id or "none") in ours]

    def runs_named(self, beginning: str) -> list[str]:
        """Return the run of this name, or else all whose names begin so, with a day at least;
        raises ``GitError``."""
        if len(beginning) < DAY_CHARS:
            return []
        output = self.objects.git("for-each-ref", row_format("%(refname)"), f"{RUNS}/")
        names = [name.removeprefix(f"{RUNS}/") for (name,) in rows(output, 1)]
        part = branch_part(beginning)
        return [name for name in names if name == part] or [n for n in names if n.startswith(part)]

    def undone(self) -> dict[str, str]:
        """Return the taken-back commits: the last one of each attempt, by its ref. Raises
        ``GitError``."""
        output = self.objects.git("for-each-ref", row_format("%(refname)", "%(objectname)"), UNDONE)
        return {row[0]: row[1] for row in rows(output, 2)}

    def restore(self, tip: str) -> None:
        """Make the deleted branch again, where we had put it last. Raises ``GitError``."""
        self._update(f"{WHY}it was deleted", remote.RefMove(self.ref, "", tip))

    def order_all_again(self, some: Sequence[LandedCommit]) -> list[Add]:
        """Return ``order_again`` of those commits whose ref is there. Raises ``GitError``."""
        self.builder.know([each.commit for each in some])
        return [add for add in map(self.order_again, some) if add is not None]

    def order_again(self, landed: LandedCommit) -> Add | None:
        """Return the order to land a taken-back attempt once more: its work, in new commits that no
        branch has; None if its ref is gone. ``landed``: the attempt's last commit. Raises
        ``GitError``."""
        part = f"{branch_part(landed.issue_id)}/{landed.attempt}"
        kept = f"{ATTEMPTS}/{part}"
        head = self.commit_of(kept) or self.commit_of(f"refs/heads/bw/{part}")
        if head is None:
            return None
        own = self._landed_with(landed)
        base = self.objects.git("merge-base", f"{own[0]}^1", head)
        subject = self.builder.subject_of(landed.commit)
        ended_at = self.builder.written(landed.commit)
        again = self.builder.rewrite(base, head, own)
        of = (landed.issue_id, landed.attempt, landed.run_id, again, base, kept)
        return Add(*of, title=subject, subject=subject, ended_at=ended_at)

    def _landed_with(self, landed: LandedCommit) -> list[str]:
        """Return the commits as which the attempt landed, the oldest first. Raises ``GitError``."""
        if self.builder.style != "rebase":
            return [landed.commit]
        newest = f"--max-count={COMMITS_MAX}"
        asked = ("rev-list", "--first-parent", newest, landed.commit)
        near = as_landed(self.common, objects(self.objects.git(*asked)))
        own = takewhile(lambda each: _attempt_of(each) == _attempt_of(landed), near)
        return [each.commit for each in own][::-1] or [landed.commit]

    def mark_undone(self, each: LandedCommit) -> None:
        """Record that the commit is about to be taken back; of several commits of an attempt the
        last one counts. Raises ``GitError``."""
        self.objects.git("update-ref", undone_ref(each), each.was or each.commit)

    def trespass(self, tip: str) -> Trespass | None:
        """Return the commits that attempts have put on the integration branch by themselves; None
        if there are none. What a person did stays. Raises ``Unclear`` and ``GitError``."""
        others, back = self._moves_of_others(tip)
        if not others:
            return None
        movers = Movers(self.settings.worktrees, min(move.who[2] for move in others))
        newest = last_moved_at(Path(self.common), self.ref, others[0])
        by = [movers.of(move, None if n else newest) for n, move in enumerate(others)]
        theirs = list(takewhile(bool, by))
        # Nothing is taken from below what somebody else did.
        wrong = [m for m, who in zip(others, by, strict=True) if who is None]
        wrong += [m for m, who in zip(others, by, strict=True) if who][len(theirs) :]
        if wrong:
            raise Unclear(self._unclear_text(wrong[0], tip, back))
        if theirs:
            back = others[len(theirs)].commit if others[len(theirs) :] else back
            return Trespass(tuple(dict.fromkeys(filter(None, theirs))), tip, back)
        self.objects.git("update-ref", self._accepted, tip)
        return None

    def _moves_of_others(self, tip: str) -> tuple[list[LoggedMove], str]:
        """Return the moves that made the branch what it is since we have moved it, or a person's
        move was accepted, the newest first; and the commit before them."""
        found, accepted = moves(Path(self.common), self.ref), self.commit_of(self._accepted)
        known = [m.why.startswith(WHY) or m.commit == accepted for m in found]
        if True not in known or not found or found[0].commit != tip:
            return [], ""
        first = known.index(True)
        back = found[first].commit
        if tip == back:
            return [], back
        return [m for m in found[:first] if self.objects.contains(tip, m.commit)], back

    def _unclear_text(self, move: LoggedMove, tip: str, back: str) -> str:
        stands = "" if move.commit == tip else f", and {tip[:12]} stands on it"
        how = f"{move.commit[:12]} ({printable(move.why, 60)}){stands}"
        return (
            f"{self.branch} was moved to {how} while attempts ran, and nobody knows by whom;"
            f" 'git update-ref {self._accepted} {tip}' lands on it,"
            f" 'git update-ref {self.ref} {back}' takes it back"
        )

    def mark_trespass(self, found: Trespass) -> None:
        """Record that this trespass is about to be taken back. Raises ``GitError``."""
        for name in found.attempts:
            self.objects.git("update-ref", f"{TRESPASSED}/{name}", found.commit)

    def trespassed(self, add: Add) -> str:
        """Return the commit that this attempt put on the branch by itself, "" if none. Raises
        ``GitError``."""
        name = name_of(add.run_id, add.issue_id, add.attempt)
        return self.commit_of(f"{TRESPASSED}/{name}") or ""

    def pardon(self, run_id: str, issue_id: str) -> None:
        """Forget the trespasses of an issue in a run: a person wants another attempt, or wants this
        one to land all the same. Raises ``GitError``."""
        part = f"{branch_part(run_id or 'none')}/{branch_part(issue_id)}"
        delete_refs(self.common, f"{TRESPASSED}/{part}")

    def take_back(self, found: Trespass) -> None:
        """Take back a trespass by compare-and-swap, even if the branch is checked out somewhere: a
        new attempt would begin with what no gate has seen. Raises ``Moved`` and ``GitError``."""
        self._move(found.commit, found.back, f"{WHY}taken back, no gate has seen it")

    def mark_reopening(self, asked: str, each: LandedCommit) -> None:
        """Record that the commit is about to be taken back, and then reported to the tracker.
        Raises ``GitError``."""
        ref = f"{REOPENING}/{branch_part(asked)}/{branch_part(each.issue_id)}"
        self.objects.git("update-ref", ref, each.was or each.commit)

    def reopening(self, asked: str) -> list[str]:
        """Return the issues that were taken back under this name, a run's or an issue's, and are
        not yet reported to the tracker. An issue that was taken back with its run is found by its
        own name, too. Raises ``GitError``."""
        output = self.objects.git("for-each-ref", "--format=%(objectname)", *_reopening(asked))
        found = as_landed(self.common, objects(output))
        return list(dict.fromkeys(each.issue_id for each in found))

    def reopened(self, issue_ids: Sequence[str]) -> None:
        """Forget the marks of these issues: the tracker has been told. Raises ``GitError``."""
        refs = (ref for issue_id in issue_ids for ref in _reopening(issue_id))
        delete_refs(self.common, *refs)

    def contains(self, add: Add, tip: str) -> bool:
        """Return whether the integration branch contains this branch. Raises ``CannotMeet`` if the
        two have nothing in common, with the reason, and ``GitError``."""
        for name in (add.base, add.commit):
            if not self._is_commit(name):
                raise CannotMeet(f"there is no commit {printable(name, 80)}")
        if self.objects.is_known_to_contain(tip, add.base) and self.builder.begins_at(
            add.base, tip, add.commit
        ):
            return False
        done = self.objects.call("merge-base", self.ref, add.commit)
        if done.status == 0:
            return done.output.strip() == add.commit
        if done.status != 1:
            raise failure(("merge-base",), done)
        shallow = self.objects.git("rev-parse", "--is-shallow-repository") == "true"
        more = "; the repository is shallow, and 'git fetch --unshallow' mends that"
        raise CannotMeet(f"it has no history in common with {self.branch}{more if shallow else ''}")

    def _is_commit(self, name: str) -> bool:
        if name not in self._commits:
            if not is_object(name) or self.objects.find(name) != name:
                return False
            self._commits.add(name)
        return True

    # --- moving -----------------------------------------------------------------------------------

    def pin(self, commit: str, *, only: bool = False) -> None:
        """Keep a train until ``unpin``. ``only``: no other one is being gated; forget those."""
        gone = self._pinned - {commit} if only else set[str]()
        self._pinned.add(commit)
        self._set_pins([f"update {PINS}/{commit} {commit}"], gone)

    def unpin(self, *, by_others: bool = False) -> None:
        """Forget the trains: none is being gated. ``by_others``: also trains that a killed lander
        pinned."""
        if by_others:
            delete_refs(self.common, PINS)
            self._pinned.clear()
        elif self._pinned:
            self._set_pins([], self._pinned)

    def _set_pins(self, update: Sequence[str], gone: Set[str]) -> None:
        self.objects.change_refs(*update, *(f"delete {PINS}/{commit}" for commit in gone))
        self._pinned = self._pinned - gone

    def land(
        self,
        tip: str,
        changes: Sequence[Sequence[PlannedCommit]],
        verified: str = "",
        train: tuple[str, ...] = (),
    ) -> list[str]:
        """Write these changes on top of ``tip``, and move the branch and the ledger there, if the
        branch still stands on ``tip``. Return the last commit of each group, as it is on the branch
        now. ``verified`` and ``scratch_merges`` as in ``Builder.write``.

        A remote is moved first; if it refuses, nothing moves here. Raises ``Moved``, ``Held``,
        ``GitError`` if git refuses, and ``RemoteTrouble`` if the remote does.
        """
        if (held := self.worktree_of(self.ref)) is not None:
            raise Held(held)
        commits, landed = self.builder.write(tip, changes, verified, train)
        parent = commits[-1] if commits else tip
        if parent != tip:
            entry = self._entry(landed)
            self._publish(remote.RefMove(self.ref, tip, parent), entry)
            self._move(tip, parent, "landing: a train has passed", entry)
            self.objects.moved(tip, parent)
            self._history.moved(tip, parent, landed)
        return commits

    def _entry(self, landed: Sequence[LandedCommit]) -> remote.RefMove | None:
        """Return the move of the ledger, if there is something to record."""
        if not landed:
            return None
        before = self.commit_of(self._ledger) or ""
        parents = [before] if before else []
        tree = ledger.empty_tree(self.common)
        entry = self.objects.commit(tree, parents, ledger.entry_text(landed))
        return remote.RefMove(self._ledger, before, entry)

    def _publish(self, move: remote.RefMove, entry: remote.RefMove | None) -> None:
        if not self.remote:
            return
        also = [replace(entry, old=self._ledger_there)] if entry and self._shares_ledger else []
        try:
            self.push(move, *also)
        except remote.LostRace:
            raise Moved from None
        for each in also:
            self._ledger_there = each.new

    # --- pull requests ----------------------------------------------------------------------------

    def pushed(self, issue_id: str) -> dict[str, str]:
        """Return the commits that were made for pull requests of an issue, by the commits of its
        branch that are in them. Raises ``GitError``."""
        wanted = row_format("%(refname)", "%(objectname)")
        output = self.objects.git("for-each-ref", wanted, f"{PULLS}/{branch_part(issue_id)}/")
        return {ref.rpartition("/")[2]: commit for ref, commit in rows(output, 2)}

    def propose(self, add: Add, tip: str, coupled: Coupled, on: str, verified: str) -> str:
        """Write the commit of a pull request, and return it; ``on``: what is open already, which it
        goes on with. Raises ``GitError``."""
        group, base = coupled.changes, tip
        if on:
            since = () if self.objects.contains(on, tip) else (tip,)
            group, base = (replace(group[-1], merged=since, made=""),), on
        (commit,), _ = self.builder.write(base, [group], verified)
        ref = f"{PULLS}/{branch_part(add.issue_id)}/{add.commit}"
        self.objects.git("update-ref", ref, commit)
        return commit

    def merged(self, add: Add, commit: str, verified: str) -> None:
        """Record the commit as which the forge has merged a branch. Raises ``GitError``."""
        landed = LandedCommit(commit, add.issue_id, add.attempt, add.run_id, verified)
        known = self.landed_as(add, self.tip()) is not None
        if not known and (entry := self._entry([landed])) is not None:
            self._update("landing: a pull request was merged", entry)
            self._history = _History()
        self.forget_pushed(add)

    def forget_pushed(self, add: Add) -> None:
        """Forget the commits that were made for pull requests of an issue. Raises ``GitError``."""
        delete_refs(self.common, f"{PULLS}/{branch_part(add.issue_id)}")

    def message(self, commit: str) -> tuple[str, str]:
        """Return the subject of a commit, and the rest of its message. Raises ``GitError``."""
        ((subject, text),) = rows(self.objects.git("log", "-1", log_format("%s", "%b"), commit), 2)
        return subject, text.strip()

    def at_remote(self, ref: str) -> str:
        """Return the commit of a ref of the remote, "" if there is none. Raises
        ``RemoteTrouble``."""
        found = remote.remote_heads(self._checkout, self.remote, (ref,), self.login)
        return found.get(ref, "")

    def push(self, *moves: remote.RefMove) -> None:
        """Move refs of the remote, all or none; raises ``RemoteTrouble`` and ``LostRace``."""
        remote.push(self._checkout, self.remote, *moves, login=self.login)

    def go_back(self, tip: str, commit: str, gone: Sequence[LandedCommit]) -> None:
        """Move the branch from ``tip`` back to one of its commits; raises as ``land`` does. Not
        allowed with a remote: others may stand on the tip."""
        assert not self.remote, "a commit takes it back"
        if (held := self.worktree_of(self.ref)) is not None:
            raise Held(held)
        self._move(tip, commit, "landing: taken back", self._entry([_undoing(gone)]))

    def taken_back(self, gone: Sequence[LandedCommit], commit: str) -> None:
        """Record the commit as which the forge has merged what takes these back. Raises
        ``GitError``."""
        undone = replace(_undoing(gone), commit=commit, issue_id=gone[0].issue_id)
        if (entry := self._entry([undone])) is not None:
            self._update("landing: taken back by a pull request", entry)

    def _move(self, tip: str, commit: str, why: str, entry: remote.RefMove | None = None) -> None:
        try:
            # A killed git may have moved the ledger only: entries for commits that are not on the
            # branch do not count.
            self._update(why, *([entry] if entry else []), remote.RefMove(self.ref, tip, commit))
        except GitError:
            if self.tip() != tip:
                raise Moved from None
            raise
        # What is reported and recorded is the real state of the branch.
        if self.tip() != commit:
            raise Moved

    def worktree_of(self, ref: str) -> str | None:
        """Return the worktree that has this branch checked out; None if there is none."""
        if is_nowhere_checked_out(Path(self.common), ref):
            return None
        return self.objects.git("for-each-ref", "--format=%(worktreepath)", ref) or None

    def _update(self, why: str, *moves: remote.RefMove) -> None:
        """Move all of these refs or none, by compare-and-swap. Raises ``GitError``."""
        for each in moves:
            if each.ref == self.ref or each.ref.startswith(f"{OWN_REFS}/"):
                unlock(self.common, each.ref)  # Locks of the user's own refs stay.
        updates = [
            f"update {each.ref} {each.new} {each.old}"
            if each.old
            else f"create {each.ref} {each.new}"
            for each in moves
        ]
        stdin = "".join(f"{line}\n" for line in updates)
        try:
            self.objects.git("update-ref", "--create-reflog", "-m", why, "--stdin", stdin=stdin)
        except GitError:
            # A killed git may have moved the refs before it could say so.
            if any(self.commit_of(each.ref) != each.new for each in moves):
                raise

    # --- the user's branch ------------------------------------------------------------------------

    def move_into(self, tip: str) -> Into | None:
        """Carry out ``--land-into``: move the user's branch forward to ``tip``. It does not move if
        a commit would be lost, or a changed checkout is in the way. Return None if the option is
        not set, or if the branch is there already."""
        name = self.settings.landing.rules.into
        commit = self.commit_of(f"refs/heads/{name}") if name else None
        if name is None or commit == tip:
            return None
        if commit is None:
            return Into(name, "", "there is no such branch", f"git branch {name} {self.branch}")
        place = self.worktree_of(f"refs/heads/{name}")
        folder = place or self.settings.worktrees.checkout
        merge = f"git -C {folder} merge --ff-only {self.branch}"
        if not self.objects.contains(tip, commit):
            why = f"it has commits that are not on {self.branch} yet"
            return Into(name, commit, why, f"git -C {folder} merge {self.branch}")
        try:
            if place is None:
                self._update(
                    f"landing: {self.branch}", remote.RefMove(f"refs/heads/{name}", commit, tip)
                )
            elif (trouble := self._in_the_way(place)) is not None:
                return Into(name, commit, trouble, merge)
            else:
                git(place, "merge", "--quiet", "--ff-only", tip)
        except GitError as error:
            return Into(name, commit, str(error), merge)
        return Into(name, tip)

    def _in_the_way(self, place: str) -> str | None:
        directory = Path(answers(git(place, *questions("--absolute-git-dir")))[0])
        for file, operation in OPERATIONS.items():
            if file != "BISECT_LOG" and (directory / file).exists():
                return f"{operation} is under way in {place}"
        changed = [name for name in status(place)[2] if not self.tracker.holds(name)]
        return f"it is checked out in {place}, with changes: {changed[0]}" if changed else None


def _undoing(gone: Sequence[LandedCommit]) -> LandedCommit:
    return LandedCommit("", undoes=tuple(each.was or each.commit for each in gone))


def _attempt_of(one: LandedCommit | Add) -> tuple[str, int, str]:
    return one.issue_id, one.attempt, one.run_id


def undone_ref(one: LandedCommit | Add) -> str:
    """Return the ref that keeps the commit once it was taken back."""
    return f"{UNDONE}/{name_of(one.run_id, one.issue_id, one.attempt)}"


def _reopening(asked: str) -> tuple[str, str]:
    part = branch_part(asked)
    return f"{REOPENING}/{part}/*", f"{REOPENING}/*/{part}"


def check_git() -> None:
    """Raise ``CannotLand`` for a git that is too old."""
    if why := git_too_old():
        raise CannotLand(f"{why}; or --no-land")
