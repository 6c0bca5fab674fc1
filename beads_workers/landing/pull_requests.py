"""Branches in review: pushed, with a pull request each, until the forge has merged them.

What passes the gate is pushed as ``bw/<issue>/pr``: the commit that would have landed, on top of
what was pushed before. ``refs/bw/pulls/<issue>/<commit of the branch>`` names that commit before
it is pushed, so that a lander finds out after any kill what there is already: the forge is asked
for all pull requests of the branch before anything is pushed or opened. Source: docs/PULLS.md.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Protocol

from beads_workers import registry
from beads_workers.core.base import pulls
from beads_workers.core.base.pulls import PullRefused, PullRequest, PullRequests
from beads_workers.core.base.settings import AUTO, CHECKS, NEVER, PullRules
from beads_workers.core.base.source import SourceError
from beads_workers.core.base.text import counted, in_one_line, printable, some
from beads_workers.core.records import landing as messages
from beads_workers.core.records.landing import Add, LanderSettings, Pull
from beads_workers.executors.files import branch_part
from beads_workers.landing.repository import CannotLand, LandingRepository
from beads_workers.landing.scratch_merges import Conflict, Coupled
from beads_workers.worktrees import remote

MERGEABLE_SECONDS, AGAIN_SECONDS = 30.0, 1.0
"""How long, and how often, a forge is asked to merge while it computes whether it can."""
FIRST_LOOK_SECONDS = 5.0
"""After a push, until the forge has told its CI."""
LOG_LINES, REMARK_CHARS = 200, 4000
TEMPLATES = tuple(
    f"{folder}{name}"
    for folder in ("", ".github/", ".gitea/", ".forgejo/", "docs/")
    for name in ("pull_request_template.md", "PULL_REQUEST_TEMPLATE.md")
)
BY_HAND = "a person who merges it"
LATER_WAITS = "the forge, which merges it once it may"


@contextmanager
def of_forge() -> Iterator[None]:
    """Raise ``RemoteTrouble`` for a forge that does not answer, or not as it should."""
    try:
        yield
    except SourceError as error:
        raise remote.RemoteTrouble(str(error)) from None
    except remote.LostRace:
        raise remote.RemoteTrouble("somebody else pushes to a branch of ours") from None


def forge_of(settings: LanderSettings) -> PullRequests:
    """Return the pull requests of the forge; raises ``CannotLand``."""
    try:
        found: PullRequests = registry.need("pull_requests").open_pulls(
            settings.landing.forge, settings.logins
        )
    except (registry.Missing, SourceError) as error:
        raise CannotLand(str(error)) from None
    return found


class UndoInReview:
    """The pull request that takes something back. ``name``: what is taken back."""

    def __init__(self, settings: LanderSettings, repository: LandingRepository, name: str) -> None:
        self._forge, self._repository = forge_of(settings), repository
        self._head = f"bw/undo-{branch_part(name)}/pr"
        self._base = settings.landing.proposed_for
        with of_forge():
            self._found = self._forge.of_head(self._head)

    def merged_since(self, commits: Sequence[str]) -> str:
        """Return the commit as which it was merged, once all of these were there; "" if it was
        not. Raises ``GitError``."""
        objects = self._repository.objects
        for each in self._found:
            at = self._repository.commit_of(each.merged_as) if each.merged_as else None
            if at is not None and all(objects.contains(at, commit) for commit in commits):
                return at
        return ""

    def propose(self, commit: str) -> str:
        """Open it with this commit, unless it is open; return its address. Raises ``GitError``."""
        ref, repository = f"refs/heads/{self._head}", self._repository
        with of_forge():
            there = repository.at_remote(ref)
            if there != commit:
                repository.push(remote.RefMove(ref, there, commit))
            is_open = [each for each in self._found if each.state == pulls.OPEN]
            new = pulls.NewPull(self._head, self._base, *repository.message(commit))
            return (is_open[0] if is_open else self._forge.open(new)).url


def head_of(issue_id: str) -> str:
    """Return the name of the branch that is pushed for an issue."""
    return f"bw/{branch_part(issue_id)}/pr"


@dataclass(slots=True)
class _InReview:
    """A branch in review. ``gated_on``: the tip on which our own gate has passed."""

    add: Add
    pull: Pull
    gated_on: str = ""
    seen: PullRequest | None = None
    is_told: bool = False
    # Until when the forge may compute whether it merges; 0 if it was not asked to.
    asked_until: float = 0.0
    # How it was when the forge refused to merge it: until that changes, it is not asked again.
    refused: tuple[str, Pull] | None = None

    @property
    def likeness(self) -> Pull:
        """The pull request without our own words."""
        return replace(self.pull, waits="")


class RefuseBranch(Protocol):
    """Says that a branch cannot land as it is."""

    def __call__(self, add: Add, why: str, text: str, files: tuple[str, ...] = (), /) -> None: ...


class BranchesInReview:
    """The branches in review. ``say`` is told the news; ``gate``: has a branch gated on the present
    tip, and ends in ``propose``."""

    def __init__(
        self,
        settings: LanderSettings,
        repository: LandingRepository,
        forge: PullRequests,
        say: Callable[[messages.News], None],
        gate: Callable[[Add], None],
        refuse: RefuseBranch,
        has_passed: Callable[[str], bool],
    ) -> None:
        self._settings, self._repository = settings, repository
        repository.login = forge.login_of_git()
        self._rules: PullRules = settings.landing.rules.pulls
        self._forge, self._say, self._gate = forge, say, gate
        self._refuse, self._has_passed = refuse, has_passed
        self._base = settings.landing.proposed_for
        self._under: dict[str, _InReview] = {}
        self._no_room: dict[str, Add] = {}
        self._tip = ""
        self._due = 0.0

    @property
    def due(self) -> float:
        """When ``look`` is to be called, in monotonic seconds."""
        return self._due if self._under or self._no_room else math.inf

    @property
    def is_busy(self) -> bool:
        """Whether a pull request was not looked at yet, or is being merged."""
        return any(e.seen is None or e.asked_until for e in self._under.values())

    # --- what comes in ----------------------------------------------------------------------------

    def takes(self, add: Add) -> bool:
        """Return whether the branch has a pull request already: the next look says what became of
        it. Otherwise it is to be gated."""
        pull = add.pull
        if pull is None or not pull.number or pull.of != add.commit:
            return False
        if add.issue_id not in self._under:
            self._under[add.issue_id] = _InReview(add, pull)
            self._due = 0.0
        return True

    def withdraw(self, issue_id: str) -> bool:
        """Look after a branch no more; return False if it is not here."""
        found = self._under.pop(issue_id, None), self._no_room.pop(issue_id, None)
        return any(found)

    def passed(self, add: Add, tip: str, coupled: Coupled) -> None:
        """Propose a branch that has passed the gate on this tip, or go on with it."""
        self._tip = tip
        known = self._under.get(add.issue_id)
        if known is not None and known.add.commit == add.commit:
            known.gated_on = tip
            if known.seen is not None:
                known.seen = replace(known.seen, is_fresh=False)  # The gate took its time.
            self._merge(known)
            return
        if not add.approved and (file := self._guarded(tip, coupled.tree)):
            of = (add.issue_id, add.attempt, f"it changes {printable(file, 80)}, which CI obeys")
            self._say(messages.NeedsApproval(*of))
            return
        if len(self._under) < self._rules.open_max or (add.pull and add.pull.number):
            self._propose(add, coupled)
            return
        waits = f"room: {counted(len(self._under), 'pull request')} of ours are open"
        self._no_room[add.issue_id] = add
        self._say(messages.InReview(add.issue_id, add.attempt, Pull(of=add.commit, waits=waits)))

    def contained(self, add: Add) -> bool:
        """End the pull request of a branch whose work is there already: somebody has put it there,
        or the forge has merged it without saying so. Return whether it was merged, which is said
        then."""
        ours = self._repository.pushed(add.issue_id).values()
        if not ours:
            return False
        found = [e for e in self._forge.of_head(head_of(add.issue_id)) if e.commit in ours]
        merged = next((each for each in found if each.state == pulls.MERGED), None)
        if merged is not None:
            known = replace(add.pull or Pull(), number=merged.number, url=merged.url)
            one = self._under[add.issue_id] = _InReview(add, known, seen=merged)
            self._merged(one, merged)
            return True
        for each in found:
            if each.state == pulls.OPEN:
                self._forge.comment(each.number, f"Its work is on {self._base} already.")
                self._forge.close(each.number)
        self._end(add)
        self._repository.forget_pushed(add)
        return False

    def _guarded(self, tip: str, tree: str) -> str:
        """Return a file that CI obeys, and that the tree has otherwise than the tip; "" if none."""
        objects = self._repository.objects
        changed = objects.changed(objects.tree(tip), tree)
        found = (n for n in changed if any(fnmatchcase(n, each) for each in self._rules.guarded))
        return next(found, "")

    # --- proposing --------------------------------------------------------------------------------

    def _propose(self, add: Add, coupled: Coupled) -> None:
        """Push the branch and open its pull request, each unless that is done."""
        head, known = head_of(add.issue_id), add.pull or Pull()
        repository, ref = self._repository, f"refs/heads/{head}"
        there = repository.at_remote(ref)
        found = self._forge.of_head(head)
        ours = repository.pushed(add.issue_id)
        commit = ours.get(add.commit, "")
        over = next((e for e in found if e.state != pulls.OPEN and e.commit == commit), None)
        is_open = next((each for each in found if each.state == pulls.OPEN), None)
        if commit and over is not None:
            self._under[add.issue_id] = _InReview(
                add, replace(known, number=over.number), seen=over
            )
            self._judge(self._under[add.issue_id], over)
            return
        if there not in ("", *ours.values()):
            text = f"somebody else has pushed {there[:12]} to {head}, and that is not overwritten"
            self._refuse(add, "branch", text)
            return
        if not commit:
            verified = coupled.tree if self._settings.verify is not None else ""
            on = there if is_open is not None else ""
            commit = repository.propose(add, self._tip, coupled, on, verified)
        try:
            if there != commit:
                repository.push(remote.RefMove(ref, there, commit))
        except remote.Refuses as error:
            self._refuse(add, "branch", str(error))
            return
        title, text = repository.message(commit)
        if is_open is None:
            body = self._body(add, text)
            new = pulls.NewPull(head, self._base, title, body, draft=self._rules.draft)
            try:
                is_open = self._forge.open(new)
            except PullRefused as error:
                self._refuse(add, "branch", f"no pull request: {error}")
                return
            self._ask_for(is_open)
        elif known.told and known.of != add.commit:
            self._forge.comment(is_open.number, f"{commit[:12]} answers this:\n\n{text or title}")
        pull = replace(known, number=is_open.number, url=is_open.url, commit=commit, of=add.commit)
        pull = replace(pull, checks="", review="", waits="")
        one = self._under[add.issue_id] = _InReview(add, pull, self._tip, is_open)
        self._say(messages.InReview(add.issue_id, add.attempt, pull))
        self._due = time.monotonic() + FIRST_LOOK_SECONDS
        if self._rules.merge == AUTO:
            self._merge_later(one, replace(is_open, commit=commit), title, text)

    def _ask_for(self, opened: PullRequest) -> None:
        try:
            self._forge.ask_for(opened.number, self._rules.labels, self._rules.reviewers)
        except PullRefused as error:
            what = "its labels and reviewers are not all there"
            self._say(messages.LanderWarned(f"{opened.url}: {what}: {error}"))

    def _template(self) -> str:
        """Return what the repository has pull requests say, as it is on the tip."""
        objects = self._repository.objects
        there = objects.git("ls-tree", "--name-only", self._tip, "--", *TEMPLATES).splitlines()
        return objects.git("cat-file", "blob", f"{self._tip}:{there[0]}") if there else ""

    def _body(self, add: Add, text: str) -> str:
        how = "It passes the gate of the fleet." if self._settings.verify is not None else ""
        of = f"{printable(add.issue_id)}, attempt {add.attempt}"
        cost = f"It has cost ${add.money:.2f}." if self._rules.cost and add.money else ""
        about = " ".join(filter(None, (f"For {of}, by beads-workers.", how, cost)))
        parts = (text.strip(), about, self._template().strip())
        return "\n\n".join(filter(None, parts)) + "\n"

    # --- looking ----------------------------------------------------------------------------------

    def look(self, tip: str) -> None:
        """See what became of the pull requests; raises ``RemoteTrouble`` for a forge that does not
        answer."""
        now = time.monotonic()
        self._tip = tip
        if now < self._due:
            return
        if asked := [one for one in self._under.values() if one.asked_until]:
            self._due = now + AGAIN_SECONDS
            self._ask_again(asked[0], now)
            return
        self._due = now + self._rules.look_seconds
        numbers = [one.pull.number for one in self._under.values()]
        seen = self._forge.look(numbers) if numbers else {}
        for one in sorted(self._under.values(), key=lambda one: messages.turn(one.add)):
            if (found := seen.get(one.pull.number)) is not None:
                self._judge(one, found)
        if self._no_room and len(self._under) < self._rules.open_max:
            self._gate(self._no_room.pop(min(self._no_room)))  # The tip may be another one now.

    def _judge(self, one: _InReview, seen: PullRequest) -> None:
        """Say what became of a pull request, and do what is next."""
        add, one.seen = one.add, seen
        pull = replace(one.pull, checks=seen.verdict, review=seen.review, url=seen.url)
        pull = replace(pull, others=seen.others)
        new = [each for each in seen.remarks if each.key not in pull.told]
        is_ours = seen.commit == pull.commit
        waits = ""
        if seen.state == pulls.MERGED:
            self._merged(one, seen)
            return
        if seen.state == pulls.CLOSED and self._is_there(add):
            # A killed lander has closed it, or a person who has put its work there.
            self._end(add)
            self._repository.forget_pushed(add)
            of = add.issue_id, add.attempt, self._tip
            self._say(messages.Landed(*of, contained=True))
            return
        if seen.state == pulls.CLOSED:
            # Its branch stays: a forge may take another one of that name for it.
            self._refuse(add, "closed", f"somebody has closed {seen.url} without a merge")
            return
        if seen.base != self._base:
            waits = f"a person, who has pointed it at {printable(seen.base, 60)}"
        elif not is_ours:
            waits = f"a person, who has pushed {seen.commit[:12]} to it"
        elif new and pull.rounds >= self._rules.rounds:
            waits = f"a person, as {counted(pull.rounds, 'round')} of remarks are spent"
        elif new:
            told = (*pull.told, *(each.key for each in new))
            pull = replace(pull, told=told, rounds=pull.rounds + 1)
            self._tell(one, pull)
            self._refuse(add, "rejected", _remarks(new))
            return
        elif seen.verdict == pulls.RED and pull.again != pull.commit and self._runs_again(seen):
            pull, waits = replace(pull, again=pull.commit), "flaky checks, which run once more"
        elif seen.verdict == pulls.RED:
            self._tell(one, pull)
            self._refuse(add, "verify", self._red(seen))
            return
        elif pull.waits.startswith(f"{BY_HAND}:"):
            waits = pull.waits  # The forge was asked to merge it, and does not.
        elif seen.verdict == pulls.PENDING:
            waits = "its checks"
        elif seen.is_refused:
            waits = "a person who wants changes"
        elif self._rules.merge == NEVER:
            waits = BY_HAND
        elif self._rules.merge == AUTO:
            waits = LATER_WAITS
        elif not seen.checks and self._rules.checks != "none":
            waits = "a check, none of which has come"
        else:
            is_refused = one.refused == (self._tip, replace(pull, waits=""))
            waits = pull.waits if is_refused else "the fleet, which merges one after the other"
        self._tell(one, replace(pull, waits=waits))
        if not (seen.merges is False and is_ours and self._conflicts(add)):
            self._merge(one)

    def _is_there(self, add: Add) -> bool:
        """Return whether the forge's branch has the work already."""
        self._catch_up()
        found = self._repository.builder.couple(self._tip, add)
        return not isinstance(found, Conflict) and not found.changes

    def _catch_up(self) -> None:
        self._repository.fetch()
        self._tip = self._repository.tip()

    def _conflicts(self, add: Add) -> bool:
        """Refuse a branch that does not merge any more; return whether that is so. Our own
        merge knows the files; a forge may not know yet."""
        found = self._repository.builder.couple(self._tip, add)
        if not isinstance(found, Conflict) or not found.files:
            return False
        self._refuse(add, "conflict", found.text, found.files)
        return True

    def _tell(self, one: _InReview, pull: Pull) -> None:
        if one.pull != pull or not one.is_told:
            one.pull, one.is_told = pull, True
            one.add = replace(one.add, pull=pull)
            self._say(messages.InReview(one.add.issue_id, one.add.attempt, pull))

    def _runs_again(self, seen: PullRequest) -> bool:
        """Have the red checks run once more if all are flaky; return whether they do."""
        red = [each for each in seen.checks if each.state == pulls.RED]
        flaky = self._rules.flaky
        if not all(any(fnmatchcase(each.name, known) for known in flaky) for each in red):
            return False
        with suppress(PullRefused):
            return all(self._forge.run_again(each) for each in red)
        return False

    def _red(self, seen: PullRequest) -> str:
        """Return what the red checks say, for the agent."""
        red = [each for each in seen.checks if each.state == pulls.RED]
        names = some([in_one_line(each.name, 80) for each in red])
        parts = [f"{messages.CHECKS_RED}: {names}"]
        for each in red:
            log = "\n".join(self._forge.log(each).splitlines()[-LOG_LINES:])
            about = " ".join(filter(None, (each.text, each.url)))
            parts.append(f"{in_one_line(each.name, 80)}: {about}\n{log}".rstrip())
        return "\n\n".join(parts)

    # --- merging ----------------------------------------------------------------------------------

    def _is_ready(self, one: _InReview) -> bool:
        seen, rules = one.seen, self._rules
        if rules.merge != CHECKS or seen is None or seen.state != pulls.OPEN or seen.is_refused:
            return False
        is_green = seen.verdict == pulls.GREEN or (not seen.checks and rules.checks == "none")
        has_news = any(each.key not in one.pull.told for each in seen.remarks)
        is_ours = seen.commit == one.pull.commit and seen.base == self._base
        is_new = one.refused != (self._tip, one.likeness)
        return is_green and is_ours and is_new and not has_news

    def _merge(self, one: _InReview) -> None:
        """Merge a pull request if our own gate has passed on the present tip, too."""
        if not self._is_ready(one) or one.seen is None:
            return
        number = one.pull.number
        if not one.seen.is_fresh:
            if (found := self._forge.look([number], again=True).get(number)) is not None:
                self._judge(one, found)
            return
        self._catch_up()
        if one.gated_on != self._tip:
            self._gate(one.add)
            return
        try:
            self._forge.merge(one.seen, *self._repository.message(one.pull.commit))
        except PullRefused as error:
            now = time.monotonic()
            if one.asked_until == 0.0:
                one.asked_until, self._due = now + MERGEABLE_SECONDS, now + AGAIN_SECONDS
                return
            one.asked_until, one.refused = 0.0, (self._tip, one.likeness)
            self._tell(one, replace(one.pull, waits=f"the forge, which says: {error}"))
            return
        one.asked_until = 0.0
        if (found := self._forge.look([number]).get(number)) is not None:
            self._judge(one, found)

    def _ask_again(self, one: _InReview, now: float) -> None:
        """Merge what was refused a moment ago, once the forge knows whether it merges."""
        found = self._forge.look([one.pull.number]).get(one.pull.number)
        if found is not None and (found.merges or now >= one.asked_until):
            self._judge(one, found)
        if one.asked_until and now >= one.asked_until:
            one.asked_until = 0.0

    def _merge_later(self, one: _InReview, seen: PullRequest, title: str, text: str) -> None:
        try:
            self._forge.merge_later(seen, title, text)
        except PullRefused as error:
            waits = f"{BY_HAND}: the forge does not by itself ({error})"
            self._tell(one, replace(one.pull, waits=waits))

    def _merged(self, one: _InReview, seen: PullRequest) -> None:
        """Record that the forge has merged it, once the commit is here."""
        add, repository = one.add, self._repository
        self._catch_up()
        if repository.commit_of(seen.merged_as) is None:
            return  # The next look finds it.
        tree = repository.objects.tree(seen.merged_as)
        verified = tree if self._has_passed(tree) else ""
        self._end(add)
        repository.merged(add, seen.merged_as, verified)
        of = add.issue_id, add.attempt, seen.merged_as, verified
        self._say(messages.Landed(*of, pull=seen.number))

    def _end(self, add: Add) -> None:
        """Forget a pull request that was merged, and remove its branch."""
        self._under.pop(add.issue_id, None)
        ref = f"refs/heads/{head_of(add.issue_id)}"
        with suppress(remote.RemoteTrouble, remote.LostRace):  # Then it only stays there.
            there = self._repository.at_remote(ref)
            if there in self._repository.pushed(add.issue_id).values():
                self._repository.push(remote.RefMove(ref, there, ""))


def _remarks(some: Sequence[pulls.ReviewRemark]) -> str:
    """Return the remarks of reviewers, as the agent reads them."""
    parts = []
    for each in some:
        place = f" on {printable(each.place, 200)}" if each.place else ""
        parts.append(f"{printable(each.author, 60)} says{place}: {each.text[:REMARK_CHARS]}")
    return "\n\n".join(parts)
