"""Taking back what has landed: one issue, or a whole run. Source: docs/LANDING.md, "Undo".

If nothing else has landed since, and no other branch has it, the integration branch goes back.
Otherwise one commit for each takes back its changes. The resulting tree goes through the gate like
any other.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from beads_workers.core.base.model import value
from beads_workers.core.records.landing import LanderSettings
from beads_workers.landing.gate import GateOrder, GatePlace, GateResult, Verdicts, start_gate
from beads_workers.landing.lander import take_lock
from beads_workers.landing.message import Message, revert_message
from beads_workers.landing.pull_requests import UndoInReview, forge_of
from beads_workers.landing.queue import GateVerdict
from beads_workers.landing.repository import (
    CannotLand,
    Held,
    LandingRepository,
    Moved,
    landing_folder,
)
from beads_workers.landing.scratch_merges import Conflict, PlannedCommit, reverting
from beads_workers.worktrees.branch_movers import moves
from beads_workers.worktrees.git import GitError, log_format, rows
from beads_workers.worktrees.landed import still_landed, trailers
from beads_workers.worktrees.ledger import LandedCommit, ledger_ref
from beads_workers.worktrees.places import make_folder
from beads_workers.worktrees.reuse import wanted_again

NAMED_MAX = 5


@value
class Undone:
    """Result of an undo."""

    # Issues to open again.
    issue_ids: tuple[str, ...]
    # Tip of the branch now.
    tip: str
    # No commit was needed.
    moved_back: bool
    # Address of the pull request that takes it back: nothing is taken back until it is merged.
    url: str = ""


@dataclass(slots=True)
class Undo:
    """``undo`` of what ``asked`` names: issues, and runs by their names or beginnings of names.

    The caller opens the issues again, and reports that by ``LandingRepository.reopened``. Until
    then the same undo can be repeated: issues that are off the branch already are returned once
    more.
    """

    settings: LanderSettings
    asked: tuple[str, ...]
    with_dependents: bool = False
    waits_for: Callable[[Sequence[str]], Mapping[str, Collection[str]]] = lambda issue_ids: {}
    """Function that returns the issues that each of these issues waits for, according to the
    tracker."""
    _dependents: tuple[str, ...] = field(init=False, default=())
    _runs: set[str] = field(init=False, default_factory=set)

    def run(self) -> Undone:
        """Take it back. Raises ``CannotLand`` with the reason if that is not possible."""
        repository = LandingRepository(self.settings)
        make_folder(landing_folder(self.settings.worktrees))
        lock = take_lock(self.settings)
        try:
            if self.settings.landing.forge:
                repository.login = forge_of(self.settings).login_of_git()
            repository.fetch()
            tip = repository.commit_of(repository.ref)
            if tip is None:
                raise CannotLand(f"there is no branch {repository.branch}: nothing has landed")
            return self._undo(repository, tip)
        except GitError as error:
            raise CannotLand(str(error)) from None
        except OSError as error:
            raise CannotLand(f"{error.filename or 'git'}: {error.strerror}") from None
        except Held as held:
            raise CannotLand(f"{repository.branch} is checked out in {held}") from None
        except Moved:
            raise CannotLand(f"{repository.branch} has moved meanwhile: try again") from None
        finally:
            os.close(lock)

    def _undo(self, repository: LandingRepository, tip: str) -> Undone:
        history = still_landed(repository.all_landed(tip))
        landed = {each.issue_id for each in history}
        self.asked = tuple(
            each if each in landed else _run_or_issue(repository, each) for each in self.asked
        )
        chosen, reopening = list[LandedCommit](), list[str]()
        for each in self.asked:
            found = self._chosen(repository, history, tip, each)
            left = [] if found else repository.reopening(each)
            if not found and not left:
                raise CannotLand(_not_there(repository, tip, each))
            chosen += found
            reopening += left
        gone = [each for each in history if each in chosen]
        if not gone:
            return Undone(tuple(dict.fromkeys(reopening)), tip, False)
        self._dependents = self._standing_on(gone, history)
        if self.with_dependents:
            gone = [e for e in history if e in gone or e.issue_id in self._dependents]
        done = self._take_back(repository, gone, history, tip)
        return replace(done, issue_ids=tuple(dict.fromkeys((*done.issue_ids, *reopening))))

    def _standing_on(
        self, gone: Sequence[LandedCommit], history: Sequence[LandedCommit]
    ) -> tuple[str, ...]:
        """Return the other landed issues that wait for the undone ones, directly or not."""
        found = {each.issue_id for each in gone}
        mine, together = frozenset(found), found.union(*(each.train for each in gone))
        # Issues that waited for these landed after them, or in the same train.
        near = [each.issue_id in together for each in history]
        since = history[: len(near) - near[::-1].index(True)]
        landed = list(dict.fromkeys(each.issue_id for each in since))
        waits_for = self.waits_for(landed) if set(landed) - mine else {}
        while more := {i for i in landed if i not in found and found & {*waits_for.get(i, ())}}:
            found |= more
        return tuple(i for i in landed if i in found - mine)

    def _take_back(
        self,
        repository: LandingRepository,
        gone: list[LandedCommit],
        history: list[LandedCommit],
        tip: str,
    ) -> Undone:
        if (back := self._whole_end(repository, gone, tip)) is not None:
            # The place may be inside a train, whose trees were not all gated.
            self._gate(repository, repository.objects.tree(back), back, gone)
            names = self._mark(repository, gone)
            repository.go_back(tip, back, gone)
            return Undone(names, back, True)
        review = None
        if self.settings.landing.theirs:
            review = UndoInReview(self.settings, repository, self.asked[0])
            if merged := review.merged_since([each.commit for each in gone]):
                names = self._mark(repository, gone)
                repository.taken_back(gone, merged)
                return Undone(names, tip, False)
        changes, tree = self._changes(repository, gone, history, tip)
        verified = self._gate(repository, tree, tip, gone)
        if review is not None:
            commits, _ = repository.builder.write(tip, [changes], verified)
            url = review.propose(commits[-1])
            return Undone(tuple(dict.fromkeys(e.issue_id for e in gone)), tip, False, url)
        names = self._mark(repository, gone)
        (*_, commit) = repository.land(tip, [changes], verified)
        return Undone(names, commit, False)

    def _chosen(
        self, repository: LandingRepository, history: list[LandedCommit], tip: str, asked: str
    ) -> list[LandedCommit]:
        in_run = repository.landed_in(asked, tip)
        if in_run is not None:
            self._runs.add(asked)
            commits = {each.commit for each in in_run}
            return [each for each in history if each.commit in commits]
        newest = next((e.attempt for e in history if e.issue_id == asked), None)
        return [e for e in history if e.issue_id == asked and e.attempt == newest]

    def _whole_end(
        self, repository: LandingRepository, gone: list[LandedCommit], tip: str
    ) -> str | None:
        """Return the commit to which the branch may go back, if these are its last commits, and no
        other branch has them; else None."""
        if repository.remote:
            return None  # Another clone may stand on the tip by now.
        objects, left, at = repository.objects, {each.commit for each in gone}, tip
        while at in left:
            left.discard(at)
            at = objects.git("rev-parse", f"{at}^1")
        if left or objects.git("branch", "--all", "--contains", gone[-1].commit).count("\n"):
            return None
        return at

    def _changes(
        self,
        repository: LandingRepository,
        gone: list[LandedCommit],
        history: list[LandedCommit],
        tip: str,
    ) -> tuple[list[PlannedCommit], str]:
        objects, changes, at = repository.objects, list[PlannedCommit](), tip
        taken: list[LandedCommit] = list(gone)
        while True:
            changes, at = [], tip
            in_the_way: LandedCommit | None = None
            for each in taken:
                found = reverting(objects, at, each.commit)
                if isinstance(found, Conflict):
                    in_the_way = self._later(repository, history, taken, each, found.files)
                    if in_the_way is None or not self.with_dependents:
                        raise CannotLand(_refusal(each, found, in_the_way))
                    break
                changes.append(_back(repository, each, found))
                at = objects.commit(found, (at,))
            if in_the_way is None:
                gone[:] = taken
                return changes, objects.tree(at)
            taken = [e for e in history if e in (*taken, in_the_way)]

    def _later(
        self,
        repository: LandingRepository,
        history: list[LandedCommit],
        taken: Sequence[LandedCommit],
        one: LandedCommit,
        files: tuple[str, ...],
    ) -> LandedCommit | None:
        """Return the newest commit that landed later on the same files."""
        touching = {e.commit for e in repository.landed(one.commit, repository.ref, files)}
        later = history[: history.index(one)]
        return next((e for e in later if e.commit in touching and e not in taken), None)

    def _mark(self, repository: LandingRepository, gone: Sequence[LandedCommit]) -> tuple[str, ...]:
        """Record the undo, before the branch moves; return the issues. ``gone``: the newest
        first."""
        for each in reversed(gone):
            repository.mark_undone(each)
            repository.mark_reopening(self._asked_for(each), each)
        issue_ids = tuple(dict.fromkeys(each.issue_id for each in gone))
        wanted_again(Path(self.settings.worktrees.state_directory), issue_ids)
        return issue_ids

    def _asked_for(self, each: LandedCommit) -> str:
        """Return the name under which the commit is found again: its issue, or a run."""
        own = each.issue_id in self.asked or not self._runs
        return each.issue_id if own else next(name for name in self.asked if name in self._runs)

    def _gate(
        self, repository: LandingRepository, tree: str, tip: str, gone: Sequence[LandedCommit]
    ) -> str:
        if self.settings.verify is None:
            return ""
        folder = landing_folder(self.settings.worktrees)
        verdicts = Verdicts(self.settings, folder)
        verdicts.look_again()
        result: GateResult | None = verdicts.find(tree)
        if result is None or result.verdict is not GateVerdict.GREEN:
            commit = repository.objects.commit(tree, (tip,))
            repository.pin(commit)
            order = GateOrder(0, commit, tree, tip)
            result = start_gate(self.settings, folder, order, verdicts).result()
            repository.unpin()
        if result.verdict is not GateVerdict.GREEN:
            names = ", ".join(dict.fromkeys(each.issue_id for each in gone))
            last_line = "" if result.said else next(reversed(result.text.splitlines()), "")
            why = f"without {names}, what has landed does not pass: {result.why}"
            log = GatePlace(self.settings, folder, 0).log
            also = ""
            if self._dependents and not self.with_dependents:
                waiting = ", ".join(self._dependents[:NAMED_MAX])
                also = f"; {waiting} waited for it: --with-dependents takes that back as well"
            raise CannotLand(f"{why}{f': {last_line}' if last_line else ''}; see {log}{also}")
        return tree


def _run_or_issue(repository: LandingRepository, asked: str) -> str:
    """Return the whole name of a run, if one begins so; raises ``CannotLand`` if several do."""
    runs = repository.runs_named(asked)
    if len(runs) > 1:
        named = ", ".join(runs[-NAMED_MAX:])
        raise CannotLand(f"{len(runs)} runs begin with {asked}: {named}")
    return runs[0] if runs else asked


def _back(repository: LandingRepository, each: LandedCommit, tree: str) -> PlannedCommit:
    builder = repository.builder
    text = revert_message(builder.form, builder.subject_of(each.commit), each.commit)
    of = LandedCommit("", each.issue_id, undoes=(each.commit, each.was)[: 2 if each.was else 1])
    return PlannedCommit(tree, Message(text), of=of)


def _not_there(repository: LandingRepository, tip: str, asked: str) -> str:
    if repository.pushed(asked):
        return f"{asked} is in review: to close its pull request on the forge takes it back"
    for each in repository.gone(tip):
        if asked in (each.issue_id, each.run_id):
            why = "that commit is gone, or was rewritten with other changes"
            return f"{each.issue_id} landed as {each.commit[:12]}, and {why}"
    asked_for = ("--fixed-strings", f"--grep=Issue: {asked}", log_format("%H", "%B"))
    began = [f"^{each.commit}" for each in moves(Path(repository.common), repository.ref)[-1:]]
    read = rows(repository.objects.git("log", "--first-parent", *asked_for, tip, *began), 2)
    known = {each.commit for each in repository.all_landed(tip)}
    found = next(
        (one for one, text in read if one not in known and trailers(text).get("Issue") == asked), ""
    )
    if found:
        why = f"{ledger_ref(repository.branch)} has no entry for {found[:12]}, which has its name"
        return f"{why}: 'git revert {found[:12]}' on {repository.branch} takes that back"
    return f"nothing of {asked} is on {repository.branch}"


def _refusal(each: LandedCommit, found: Conflict, later: LandedCommit | None) -> str:
    files = ", ".join(found.files[:NAMED_MAX])
    if later is None:
        return f"{each.issue_id} cannot be taken back: {files} was changed since, by hand"
    return f"{later.issue_id} landed on top of {each.issue_id}: {files}; or --with-dependents"
