"""Issues of a forge as a source: a claim is a comment with a mark, and labels show how it stands.

Of two claims the one with the lower id holds, and each is read again before work begins and before
it lands. Source: docs/FORGE.md.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from beads_workers.core.base import source
from beads_workers.core.base.model import Filters, IssueId, Job, ListedIssue
from beads_workers.core.base.ready import NO_WORK
from beads_workers.integrations.forge import edits, marks, reading
from beads_workers.integrations.forge.api import (
    Forge,
    ForgeComment,
    ForgeError,
    ForgeIssue,
    Gone,
    IssueChange,
    Thread,
)
from beads_workers.integrations.forge.marks import ELSEWHERE
from beads_workers.integrations.forge.reading import BLOCKED, IN_PROGRESS, number_of
from beads_workers.integrations.forge.trust import Trust
from beads_workers.trackers import settlement_rules
from beads_workers.trackers.issue import to_job, to_seen
from beads_workers.trackers.settlement_rules import Ownership

Found = TypeVar("Found")
Known = dict[int, tuple[str, Found]]
"""What was asked about issues, and when each was changed last."""
LOOK_SECONDS = 30.0
"""Age up to which the list of issues serves."""
WHOLE_SECONDS = 900.0
"""Time after which all open issues are listed anew, instead of what has changed."""
FREED_SECONDS = 60.0
"""Age of a label from which on a claim without a comment is none: labels are written first."""
WORKING = "A fleet of agents works on this issue."
WRITTEN = {
    source.Action.CLOSE: marks.DONE,
    source.Action.QUARANTINE: marks.NOTE,
    source.Action.SHELVE: marks.NOTE,
    source.Action.ASK: marks.QUESTION,
}


@dataclass(frozen=True, slots=True)
class Seen:
    """The state of an issue, as its conversation tells it."""

    thread: Thread
    ownership: Ownership
    # Our comment, if any.
    claim: ForgeComment | None
    # Whose comments claim it, ours too; the first one has it.
    claimants: tuple[str, ...] = ()
    # A receipt of ours is there, and the issue was not closed yet.
    is_done: bool = False


class ForgeSource:
    """See ``core.base.source.Source``."""

    name = "forge"
    self_claiming = False

    def __init__(
        self,
        forge: Forge,
        *,
        texts_from: str,
        trusted: Collection[str] = (),
        actor: str,
        filters: Filters,
        listed_max: int,
        look_seconds: float = LOOK_SECONDS,
        sleep: Callable[[float], None] = time.sleep,
        remember: Callable[[], None] = lambda: None,
    ) -> None:
        """``remember``: called when issues are taken, after which branches are named."""
        self.actor = actor
        self.calls = forge.calls
        self._forge, self._sleep, self._remember = forge, sleep, remember
        self._filters, self._listed_max = filters, listed_max
        self._look_seconds = look_seconds
        self._labels = filters.labels or (reading.READY,)
        self._trust = Trust(forge, texts_from, trusted, self._labels)
        self._board: dict[int, ForgeIssue] = {}
        """All open issues."""
        self._looked = self._listed_all = -math.inf
        self._since = ""
        """When the newest issue of all lists was changed, by the forge's clock."""
        self._waits: Known[list[tuple[int, bool]]] = {}
        """What issues wait for: the other's number, 0 in another repository, and whether that one
        was open."""
        self._refused: Known[str] = {}
        """Why texts of strangers may not be read."""
        self._holders: Known[str] = {}
        """Who else has issues."""
        self._threads: Known[Seen | None] = {}
        """Issues that wait for an answer, as they were read last."""
        self._claims: dict[int, Seen] = {}
        """The issues in our hands, as they stood when we got them."""
        self._unsure: set[int] = set()
        """Issues that may have a claim of ours which nobody was told of."""

    # --- reading ------------------------------------------------------------------------------

    def describe(self) -> str:
        """See ``Source``."""
        return f"forge {self._forge.repository.text}, {self._forge.describe()}"

    def _look(self, *, now: bool = False) -> None:
        """Read what has changed, if it is time for that."""
        clock = time.monotonic()
        if clock - self._looked < (0.0 if now else self._look_seconds):
            return
        whole = clock - self._listed_all >= WHOLE_SECONDS
        found = self._forge.issues("" if whole else self._since)
        if whole:
            self._board.clear()
            self._listed_all = clock
        for issue in found:
            self._keep(issue)
        self._since = max((self._since, *(issue.updated_at for issue in found)))
        self._looked = clock

    def _keep(self, issue: ForgeIssue) -> None:
        if issue.is_open:
            self._board[issue.number] = issue
        else:
            self._board.pop(issue.number, None)

    def _once(self, answers: Known[Found], issue: ForgeIssue, ask: Callable[[], Found]) -> Found:
        """Return the answer about an issue, which is asked for again if it was changed since."""
        known = answers.get(issue.number)
        if known is None or known[0] != issue.updated_at:
            answer = ask()
            # Times are whole seconds, and comments are late: more of this change may be seen later.
            is_old = self._forge.is_past(issue.updated_at)
            known = answers[issue.number] = issue.updated_at if is_old else "", answer
        return known[1]

    def _blockers(self, issue: ForgeIssue) -> list[int]:
        """Return the open issues that an issue waits for; those of other repositories are 0."""

        def asked() -> list[tuple[int, bool]]:
            others = self._forge.blockers(issue.number) if issue.may_wait else ()
            found = [(0 if each.place else each.number, each.is_open) for each in others]
            found += [(number, True) for number in reading.waits_in(issue.body)]
            return [*dict.fromkeys(found)]

        known = self._once(self._waits, issue, asked)
        others_here = (n for n, was_open in known if (n in self._board if n else was_open))
        return [number for number in others_here if number != issue.number]

    def _refusal(self, issue: ForgeIssue) -> str:
        """Return why no agent may read an issue; "" if one may. A stranger's is read whole."""
        if (refused := self._trust.refusal(issue)) or not self._trust.asks_for_text(issue):
            return refused

        def asked() -> str:
            return self._trust.refusal_of_text(self._forge.thread(issue.number))

        return self._once(self._refused, issue, asked)

    def _is_wanted(self, issue: ForgeIssue) -> bool:
        """Return whether the filters let an issue through, whoever has it."""
        filters, labels = self._filters, frozenset(issue.labels)
        row = reading.to_tracker(issue, Ownership("open", ""))
        return (
            labels.issuperset(self._labels)
            and (not filters.labels_any or bool(labels & {*filters.labels_any}))
            and not labels & {*filters.exclude_labels}
            and (
                row.issue_type in filters.types if filters.types else row.issue_type not in NO_WORK
            )
            and (not filters.priorities or row.priority in filters.priorities)
            and (not filters.only or row.id in filters.only)
            and (not filters.bring or bool(source.brought(to_seen(row)) & {*filters.bring}))
            and filters.parent is None
        )

    def _is_free(self, issue: ForgeIssue) -> bool:
        return not (issue.is_locked or issue.assignees or {IN_PROGRESS, BLOCKED} & {*issue.labels})

    def _candidates(self, skip: Collection[str]) -> list[ForgeIssue]:
        """Return what may be ready but for those it waits for, in order."""
        found = reading.in_order(filter(self._is_wanted, self._board.values()))
        return [issue for issue in found if self._is_free(issue) and str(issue.number) not in skip]

    # --- taking -------------------------------------------------------------------------------

    def take(self, limit: int, skip: Collection[IssueId]) -> source.Taken:
        """See ``Source``. Claims of one take are read again together."""
        self._settle_unsure()
        self._look()
        ready, blocked, more = list[ForgeIssue](), 0, False
        for issue in self._candidates(skip):
            if len(ready) == max(limit, 0) + self._listed_max:
                more = True
                break
            if self._blockers(issue):
                blocked += 1
            elif not self._refusal(issue):
                ready.append(issue)
        picked, rest = ready[: max(limit, 0)], ready[max(limit, 0) :]
        listed = (
            ListedIssue(IssueId(str(i.number)), i.title, reading.priority_of(i.labels))
            for i in rest
        )
        return source.Taken(
            jobs=self._claim(picked),
            listed=tuple(listed),
            more=more,
            blocked=blocked,
            held=self._held(frees=True) if not picked else None,
        )

    def _claim(self, picked: Sequence[ForgeIssue]) -> tuple[Job, ...]:
        """Claim issues; return those that are ours, with their conversations."""
        mine: dict[int, tuple[int, ForgeIssue | None]] = {}
        text = marks.marked(marks.CLAIM, self.actor, WORKING, self._forge.login())
        assignees = (self._forge.login(),)
        for issue in picked:
            self._unsure.add(issue.number)
            change = IssueChange(labels_on=(IN_PROGRESS,), assignees=assignees)
            try:
                changed = self._forge.change(issue.number, change, issue.labels)
                claim = self._forge.comment(issue.number, text).comment_id
                mine[issue.number] = claim, changed
            except Gone:
                self._board.pop(issue.number, None)
        if mine:
            self._sleep(self._forge.lag_seconds)
        jobs = []
        for number, (claim, changed) in mine.items():
            seen = self._read(number, issue=changed)
            if seen is not None and seen.claim is not None and self._may_begin(seen):
                if seen.claim.comment_id != claim:  # It was ours already.
                    self._forge.delete_comment(claim)
                self._claims[number] = seen
                jobs.append(self._job(seen))
            else:
                self._give_up(number, claim, seen)
            self._unsure.discard(number)
        if jobs:
            self._remember()
        return tuple(jobs)

    def _may_begin(self, seen: Seen) -> bool:
        issue = seen.thread.issue
        ours = {*issue.assignees} <= {*seen.claimants}
        may = ours and not issue.is_locked and BLOCKED not in issue.labels
        return may and self._is_wanted(issue) and not self._trust.refusal_of_text(seen.thread)

    def _give_up(self, number: int, claim: int, seen: Seen | None) -> None:
        """Take a claim back that is not to be; the labels are those of who has won."""
        self._forge.delete_comment(claim)
        login = self._forge.login()
        if seen is None:
            return
        if seen.claimants and seen.claimants[0] != login:
            self._forge.change(number, IssueChange(assignees=seen.claimants[:1]))
            return
        found = (each for each in seen.thread.comments if each.comment_id == claim)
        kept = any(map(self._is_claim, found))
        if not kept or {*seen.thread.issue.assignees} - {login}:
            return  # Others meddle; whether one of them has claimed the issue may not be seen yet.
        if not seen.ownership.assignee.startswith(ELSEWHERE):
            status = "open" if seen.thread.issue.is_open else "closed"
            self._show(seen.thread.issue, Ownership(status, ""), "")

    def _job(self, seen: Seen) -> Job:
        comments = self._trust.comments(seen.thread)
        row = reading.to_tracker(seen.thread.issue, seen.ownership, (), comments)
        return to_job(row, self.name)

    def _settle_unsure(self) -> None:
        """Release claims without an answer, which may have been made."""
        for number in sorted(self._unsure):
            seen = self._read(number)
            if seen is not None and seen.ownership.assignee == self.actor:
                release = source.Settlement(source.Action.RELEASE, _id(number))
                self._write(seen, release, Ownership("open", ""))
            elif seen is not None:
                self._tidy(seen)
            self._unsure.discard(number)

    # --- how an issue stands ------------------------------------------------------------------

    def _read(self, number: int, actor: str = "", issue: ForgeIssue | None = None) -> Seen | None:
        """Return how an issue stands now, for one of our runs; None if there is none."""
        try:
            thread = self._forge.thread(number, issue, history=self._trust.reads_history)
        except Gone:
            self._board.pop(number, None)
            return None
        self._keep(thread.issue)
        return self._seen(thread, actor or self.actor)

    def _seen(self, thread: Thread, actor: str) -> Seen:
        login, issue = self._forge.login(), thread.issue
        claims = sorted(filter(self._is_claim, thread.comments), key=lambda each: each.comment_id)
        claimants = tuple(each.author for each in claims)
        holder = marks.mark_of(claims[0], claimants[0])[1] if claims else ""
        own_name = marks.name_of(actor)
        if not holder and IN_PROGRESS in issue.labels:
            # The comment of a claim was replaced, and what follows was not written any more.
            ended = [marks.mark_of(each, login) for each in thread.comments]
            done = [name for kind, name in ended if kind == marks.DONE]
            holder = own_name if own_name in {name for _, name in ended} else "".join(done[-1:])
        # Of a run elsewhere, also who had another login.
        is_ours = holder == own_name and (
            actor.startswith(ELSEWHERE) or {*claimants[:1]} <= {login}
        )
        own = claims[0] if claims and is_ours else None
        if not issue.is_open:
            return Seen(thread, Ownership("closed", ""), own)
        if holder:
            name = actor if is_ours else ELSEWHERE + holder
            return Seen(thread, Ownership("in_progress", name), own, claimants, not claims)
        if BLOCKED in issue.labels:
            return Seen(thread, Ownership("blocked", ""), None)
        people = [
            each for each in issue.assignees if each != login or IN_PROGRESS not in issue.labels
        ]
        status = "in_progress" if people and IN_PROGRESS in issue.labels else "open"
        return Seen(thread, Ownership(status, people[0] if people else ""), None)

    def _is_claim(self, comment: ForgeComment) -> bool:
        """Return whether a comment claims an issue: for our login, or for that of another fleet,
        which may write to the repository."""
        author = comment.author
        if marks.mark_of(comment, author)[0] != marks.CLAIM:
            return False
        return author == self._forge.login() or (
            marks.is_sealed(comment) and self._trust.is_writer(author, is_bot=comment.is_bot)
        )

    # --- settling -----------------------------------------------------------------------------

    def settle(self, settlements: Sequence[source.Settlement]) -> list[source.Settled]:
        """See ``Source``: one issue after the other."""
        return [self._settled(each, self.actor) for each in settlements]

    def _settled(self, settlement: source.Settlement, actor: str) -> source.Settled:
        number = number_of(settlement.issue_id)
        if number is None:
            return source.Settled(settlement, source.Result.NOT_OURS, "no issue has this id")
        try:
            seen = self._known(number, settlement, actor) or self._read(number, actor)
            found = seen.ownership if seen is not None else None
            if settlement.action is source.Action.CONFIRM and seen is not None:
                found = _confirmed(seen)
            elif settlement.action is source.Action.CLOSE and seen is not None and seen.is_done:
                found = Ownership("in_progress", actor)  # Any of our runs may end what one began.
            ruling = settlement_rules.rule(settlement, found, actor)
            if ruling.write is not None and seen is not None:
                self._write(seen, settlement, ruling.write, actor)
            elif seen is not None and found is not None:
                if seen.thread.issue.is_open and settlement_rules.unmarks(found, ruling.result):
                    self._unmark(seen.thread.issue, settlement.mark)
                self._tidy(replace(seen, ownership=found))
        except Gone:
            return source.Settled(settlement, source.Result.NOT_OURS, "it was taken away from us")
        except ForgeError as error:
            return source.Settled(settlement, source.Result.FAILED, str(error))
        if ruling.result is source.Result.NOT_OURS:
            self._claims.pop(number, None)
        return source.Settled(settlement, ruling.result, ruling.error)

    def _known(self, number: int, settlement: source.Settlement, actor: str) -> Seen | None:
        """Return how an issue stands that is in our hands, if that need not be read."""
        unread = settlement.read_first or settlement.taken_back or settlement.shelved
        if unread or settlement.action is source.Action.CONFIRM or actor != self.actor:
            return None
        issue, taken = self._board.get(number), self._claims.get(number)
        if taken is None or issue is None:
            return None
        return replace(taken, thread=replace(taken.thread, issue=issue))

    def _write(
        self,
        seen: Seen,
        settlement: source.Settlement,
        after: Ownership,
        actor: str = "",
    ) -> None:
        """Write what becomes of an issue: its comment first, then what lists show."""
        issue, actor, login = seen.thread.issue, actor or self.actor, self._forge.login()
        kind, note = WRITTEN.get(settlement.action, ""), settlement.note.strip()
        if kind == marks.DONE and not note:
            there = {marks.mark_of(each, login) for each in seen.thread.comments}
            has_receipt = seen.is_done or (marks.DONE, marks.name_of(actor)) in there
            note = "" if has_receipt else "It is done."
        text = marks.marked(kind, actor, marks.said(note)) if kind and note else ""
        if kind == marks.QUESTION and text:
            people = dict.fromkeys((issue.author, *issue.assignees))
            named = " ".join(f"@{each}" for each in people if each and each != login)
            text = f"{named}\n\n{text}".lstrip()
        self._say(seen, kind, text)
        self._claims.pop(issue.number, None)
        if others := {*seen.claimants} - {login}:
            left = tuple(each for each in issue.assignees if each not in others)
            issue = replace(issue, assignees=left)
        if settlement.taken_back:
            issue = replace(issue, assignees=(login,))
        self._show(issue, after, settlement.mark)

    def _say(self, seen: Seen, kind: str, text: str) -> None:
        """Write a comment in place of an earlier one of ours, if it is no question; end the claim.
        A run may have been killed between these."""
        claim, login = seen.claim, self._forge.login()
        ours = [each for each in seen.thread.comments if each.author == login]
        notes = marks.of_kind(ours, login, marks.NOTE)
        earlier = None if kind == marks.QUESTION else next(iter(notes[-1:]), claim)
        if text and not any(each.text == text for each in ours):
            if earlier is None:
                self._forge.comment(seen.thread.issue.number, text)
            else:
                self._forge.edit_comment(earlier.comment_id, text)
                claim = None if earlier is claim else claim
        if claim is not None:
            self._forge.delete_comment(claim.comment_id)

    def _show(self, issue: ForgeIssue, after: Ownership, mark: str) -> None:
        """Write state, labels and assignee of an issue."""
        shown = {BLOCKED} if after.status == "blocked" else set[str]()
        shown |= {reading.MARKED[mark]} if mark else set()
        login, is_open = self._forge.login(), after.status != "closed"
        # A claim may have been written by half; what is blocked is in nobody's hands.
        is_free = BLOCKED in issue.labels
        has = tuple(dict.fromkeys((*issue.labels, *(() if is_free else (IN_PROGRESS,)))))
        people = tuple(each for each in issue.assignees if each != login)
        change = IssueChange(
            is_open=is_open if is_open is not issue.is_open else None,
            labels_on=tuple(sorted(shown.difference(has))),
            labels_off=tuple(each for each in reading.OURS if each in has and each not in shown),
            assignees=None if is_free and people == issue.assignees else people,
        )
        self._forge.change(issue.number, change, has)
        labels = tuple(sorted(({*issue.labels} - {*change.labels_off}) | shown))
        self._keep(replace(issue, is_open=is_open, labels=labels, assignees=people))

    def _unmark(self, issue: ForgeIssue, mark: str) -> None:
        """Take off the labels of an issue that waits for no person any more."""
        off = tuple(label for each, label in reading.MARKED.items() if each != mark)
        if {*off} & {*issue.labels}:
            self._forge.change(issue.number, IssueChange(labels_off=off), issue.labels)
            labels = tuple(label for label in issue.labels if label not in off)
            self._keep(replace(issue, labels=labels))

    def renew(self, issue_ids: Sequence[IssueId]) -> source.Renewed:
        """Return an empty answer: claims do not expire."""
        return source.Renewed()

    def recover(self, dead: source.CrashedRun) -> list[source.Settled]:
        """See ``Source``: what the journal names, and what a label shows in somebody's hands."""
        self._look(now=True)
        named = {*dead.unclosed, *dead.reopened, *dead.unstarted, *dead.begun}
        named |= {key for key, _ in (*dead.quarantined, *dead.outcomes, *dead.to_land)}
        numbers = {number for number in map(number_of, named) if number is not None}
        numbers |= {issue.number for issue in self._board.values() if IN_PROGRESS in issue.labels}
        held = []
        for number in sorted(numbers):
            seen = self._read(number, dead.actor)
            if seen is not None and settlement_rules.is_left_by(dead, str(number), seen.ownership):
                held.append(_id(number))
            elif seen is not None:
                self._tidy(seen)
        return [self._settled(each, dead.actor) for each in settlement_rules.pending(dead, held)]

    def _tidy(self, seen: Seen) -> None:
        """Take off what shows a claim that is over: its run was killed between two calls, or
        somebody has removed the comment."""
        issue = seen.thread.issue
        left = {IN_PROGRESS} if issue.is_open else {*reading.OURS}
        if seen.claim is not None and not issue.is_open:
            self._forge.delete_comment(seen.claim.comment_id)
        if not seen.ownership.assignee and not seen.claimants and left & {*issue.labels}:
            self._show(issue, seen.ownership, "")

    # --- for people who ask -------------------------------------------------------------------

    def held(self) -> tuple[source.HeldElsewhere, ...]:
        """See ``ClaimingSource``; of a run elsewhere only the mark is known."""
        self._look()
        return self._held()

    def _held(self, *, frees: bool = False) -> tuple[source.HeldElsewhere, ...]:
        """Return what others hold. ``frees``: what is shown in hands in which nothing is any more
        becomes free."""
        found = []
        for issue in reading.in_order(self._board.values()):
            if IN_PROGRESS not in issue.labels or issue.number in self._claims:
                continue
            holder = self._holder(issue)
            if not frees or holder:
                found.append(source.HeldElsewhere(_id(issue.number), holder))
                continue
            is_old = self._forge.is_past(issue.updated_at, FREED_SECONDS)
            if is_old and (seen := self._read(issue.number)) is not None:
                self._tidy(seen)
        return tuple(found)

    def _holder(self, issue: ForgeIssue) -> str:
        """Return who has an issue that lists show in progress."""

        def asked() -> str:
            seen = self._read(issue.number)
            return seen.ownership.assignee if seen is not None else ""

        return self._once(self._holders, issue, asked)

    def look(self, issue_ids: Sequence[IssueId]) -> dict[IssueId, source.TrackedIssue]:
        """See ``Source``."""
        found = {}
        self._look()
        for issue_id in dict.fromkeys(issue_ids):
            number = number_of(issue_id)
            seen = self._read(number) if number is not None else None
            if seen is not None:
                found[issue_id] = self._tracked(seen.thread.issue, seen.ownership)
        return found

    def _tracked(
        self, issue: ForgeIssue, ownership: Ownership, *, whole: bool = True
    ) -> source.TrackedIssue:
        """``whole``: the forge is also asked about an issue that is not for us."""
        refused, waits = "", list[int]()
        if issue.is_locked:
            refused = "it is locked"
        elif missing := [label for label in self._labels if label not in issue.labels]:
            refused = f"it has no label {' '.join(missing)}"
        if issue.is_open and (whole or not refused):
            waits, refused = self._blockers(issue), refused or self._refusal(issue)
        row = to_seen(reading.to_tracker(issue, ownership, [n for n in waits if n]))
        return replace(row, refused=refused)

    def unfinished(self, rows_max: int) -> list[source.TrackedIssue]:
        """See ``Source``."""
        self._look()
        shown = reading.in_order(self._board.values())[:rows_max]
        return [self._tracked(issue, self._shown(issue), whole=False) for issue in shown]

    def _shown(self, issue: ForgeIssue) -> Ownership:
        """Return how an issue stands by what lists show."""
        if IN_PROGRESS in issue.labels:
            ours = issue.number in self._claims
            return Ownership("in_progress", self.actor if ours else self._holder(issue))
        return Ownership(
            "blocked" if BLOCKED in issue.labels else "open", next(iter(issue.assignees), "")
        )

    def ready(self) -> frozenset[IssueId]:
        """See ``Source``."""
        self._look()
        free = (issue for issue in self._candidates(()) if not self._blockers(issue))
        return frozenset(_id(issue.number) for issue in free if not self._refusal(issue))

    def read(self, issue_ids: Sequence[IssueId]) -> dict[IssueId, Job]:
        """See ``ReadableSource``."""
        found = {}
        for issue_id in issue_ids:
            number = number_of(issue_id)
            seen = self._read(number) if number is not None else None
            if seen is not None:
                found[issue_id] = self._job(seen)
        return found

    def conversations(self, issue_ids: Sequence[IssueId]) -> tuple[source.Conversation, ...]:
        """See ``ConversingSource``. Whether a comment is newer than the question is decided by the
        forge's own order, so an answer has our time."""
        found = []
        self._look()
        for issue_id in issue_ids:
            number = number_of(issue_id)
            seen = self._heard(number) if number is not None else None
            if seen is not None:
                now, own = time.time(), seen.ownership
                said = self._trust.answers(seen.thread)
                replies = tuple(source.Reply(each.author, each.text, now) for each in said)
                found.append(source.Conversation(issue_id, own.status, replies, own.assignee))
        return tuple(found)

    def _heard(self, number: int) -> Seen | None:
        """Return how an issue stands whose thread is read again only if it was changed."""
        issue = self._board.get(number)
        if issue is None:
            return self._read(number)
        return self._once(self._threads, issue, lambda: self._read(number))

    # --- for people who change an issue -------------------------------------------------------

    def add(self, change: source.IssueEdit, author: str) -> IssueId:
        """See ``EditableSource``."""
        return edits.add(self._forge, change)

    def edit(self, issue_id: IssueId, change: source.IssueEdit, author: str) -> None:
        """See ``EditableSource``."""
        seen = self._there(issue_id)
        edits.edit(self._forge, seen.thread, seen.ownership, change)

    def comment(self, issue_id: IssueId, text: str, author: str) -> source.IssueComment:
        """See ``EditableSource``; it is written by the token's login."""
        number = self._there(issue_id).thread.issue.number
        kept = self._forge.comment(number, text)
        return source.IssueComment(str(kept.comment_id), kept.author, kept.text, kept.created_at)

    def delete(self, issue_id: IssueId, author: str) -> None:
        """See ``EditableSource``."""
        self._there(issue_id)
        raise source.NotDone("an issue of a forge is not deleted from here; close it")

    def _there(self, issue_id: IssueId) -> Seen:
        number = number_of(issue_id)
        seen = self._read(number) if number is not None else None
        if seen is None:
            raise source.NoSuchIssue(issue_id)
        return seen

    def close(self) -> None:
        """Release what an unanswered claim may have claimed."""
        try:
            self._settle_unsure()
        except source.SourceError:
            return  # The next start asks for what this run holds.


def _confirmed(seen: Seen) -> Ownership:
    """Return how an issue stands if only a claim counts, and nothing that was written since."""
    lost = seen.ownership.status == "in_progress" and seen.claim is None
    return Ownership("open", "") if lost and "/" in seen.ownership.assignee else seen.ownership


def _id(number: int) -> IssueId:
    return IssueId(str(number))
