"""Work that is done and not landed yet: the core's half of the conversation with the lander.

Each orchestrator has one. A success with a branch is not closed at once. The lander is asked to
land the branch (``core.records.landing``), and the slot is free for others. The issue is closed
when the lander reports its commit. A branch that cannot land as it is goes back to its own agent,
or its issue is quarantined with the branch. The lander forgets everything when it dies; it is then
asked for the same again, and answers at once for what had landed. Source: docs/LANDING.md.
"""

from __future__ import annotations

from dataclasses import replace
from typing import assert_never

from beads_workers.core.base import limits
from beads_workers.core.base.model import IssueId
from beads_workers.core.base.policy import unlanded
from beads_workers.core.base.settings import NEVER, FleetSettings
from beads_workers.core.base.source import Action, Result, Settled, Settlement
from beads_workers.core.base.states import IssueState, IssueStimulus
from beads_workers.core.base.text import counted
from beads_workers.core.records import journal as rec
from beads_workers.core.records import landing as ld
from beads_workers.core.records.issues import REJECTED, Issue, Standing
from beads_workers.core.schedule.commands import StartLander, TellLander
from beads_workers.core.schedule.effects import Effects
from beads_workers.core.schedule.inflight import InFlight, Tasks
from beads_workers.core.schedule.round_trips import RoundTrips

LANDER_DUE = "lander due"
"""Timer key: the lander has died, and is due to be started again."""

LANDING_HELPLESS = "landing helpless"
"""Timer key: nothing has landed for as long as a person is waited for."""

REVIEWS_WAITED = "reviews waited for"
"""Timer key: a run has waited for pull requests for as long as it does."""

WHAT = "landing"
"""Name of the condition while nothing lands."""


class Landings:
    """Sends orders with ``add`` and takes news with ``handle``; idle without
    ``FleetSettings.landing``."""

    def __init__(
        self, effects: Effects, tasks: Tasks, round_trips: RoundTrips, settings: FleetSettings
    ) -> None:
        self._effects = effects
        self._issues = effects.issues
        self._tasks = tasks
        self._round_trips = round_trips
        self._settings = settings.landing
        self._has_agents = bool(settings.work.agents) and not settings.work.command
        self._has_gate = settings.work.verify is not None
        self._alive = False
        self._begun = False
        self._died = 0
        self._paused = False
        self._why = ""
        self._blocked_since: float | None = None
        self._until_empty = settings.ending.until_empty
        self._person_wait = settings.pace.person_wait_seconds
        self._idle = True
        self._reviewed_at = 0.0
        self._early: dict[str, list[ld.News]] = {}
        self._without_verdict: dict[str, ld.WithoutVerdict] = {}
        self._gates: dict[int, tuple[tuple[str, ...], float]] = {}
        """Running gates by lane: the issues in each, and since when."""
        self.mends = True
        """True while branches that cannot land go back to their agents; False once the run ends."""

    # --- what is asked of the lander ----------------------------------------------------------

    def begin(self) -> None:
        """Start the lander: earlier runs are settled, and their branches come first."""
        if self._settings is not None and not self._begun:
            self._begun = True
            self._start()

    def add(self, issue: Issue) -> None:
        """Have an issue's branch landed, if the tracker confirms that the issue is still ours.
        A person may have closed it while its agent worked."""
        if issue.landing is not None and issue.landing.awaits:
            self._set_aside(issue)
            self._gate_ahead(issue)
        elif issue.in_review and self._alive and issue.state is IssueState.SHELVED:
            self._tell(issue)  # The forge knows first: its merge may have closed the issue.
        elif self._alive and issue.landing is not None:
            shelved = issue.state is IssueState.SHELVED
            ask = Settlement(Action.CONFIRM, IssueId(issue.issue_id), read_first=True)
            self._round_trips.enqueue(replace(ask, by_agent=True, shelved=shelved))

    def found(self, issue_id: str) -> None:
        """Land the branch of an issue that an earlier run has shelved meanwhile."""
        issue = self._issues.known.get(issue_id)
        if self._begun and issue is not None and issue.state is IssueState.SHELVED:
            self.add(issue)

    def shelved(self, issue_id: IssueId) -> None:
        """Go on with an issue that the tracker shows as set aside now."""
        self.settled(issue_id)
        if (issue := self._issues.known.get(issue_id)) is not None:
            self._gate_ahead(issue)

    def _gate_ahead(self, issue: Issue) -> None:
        """Have a branch gated that awaits approval: a person sees the verdict, and if the tip is
        the same, the branch lands at once."""
        past = issue.retry_entry
        wanted = self._has_gate and self._alive and self.mends
        wanted = wanted and issue.standing is Standing.AWAITS_APPROVAL
        if wanted and past is not None and past.landing and past.ahead is None:
            self._idle = False
            self._effects.ask(TellLander(past.landing))

    def named(self, settled: Settled) -> Settled:
        """Add the place of the work to an answer to ``CONFIRM`` that another one has the issue."""
        issue = self._issues.known.get(settled.settlement.issue_id)
        if issue is None or settled.result is not Result.NOT_OURS:
            return settled
        return replace(settled, error=ld.kept_text(settled.error, issue.landing))

    def confirmed(self, settled: Settled) -> None:
        """Land the branch of an issue that the tracker has confirmed as ours.
        A lander that has died meanwhile is told after another look."""
        issue_id = settled.settlement.issue_id
        if settled.result is Result.NOT_OURS:
            self._effects.note("warning", f"{issue_id}: {settled.error}")
            self.withdraw(issue_id)  # The lander may gate it, or try it once more.
        issue = self._issues.known.get(issue_id)
        applied = settled.result is Result.APPLIED and self._alive
        if applied and issue is not None and issue.state in _WAITS:
            self._tell(issue)

    def _tell(self, issue: Issue) -> None:
        past = issue.retry_entry
        if past is not None and past.landing is not None:
            self._idle = False
            self._effects.ask(TellLander(replace(past.landing, pull=past.pull)))

    def withdraw(self, issue_id: IssueId) -> None:
        """Cancel the landing of an issue; later news of the lander does not change that."""
        if self._alive:
            self._effects.ask(TellLander(ld.CancelLanding(issue_id)))

    def retried(self, issue_id: IssueId) -> None:
        """Withdraw a refused branch: a person wants another attempt."""
        issue = self._issues.known.get(issue_id)
        if issue is not None and issue.state in _CONVICTED and issue.landing is not None:
            self.withdraw(issue_id)

    def go_on(self) -> None:
        """Have the lander look again: a person says that the cause of the pause is fixed."""
        if self._alive:
            self._effects.ask(TellLander(ld.GoOn()))

    def waiting(self) -> int:
        """Return how many branches are to land yet, of this run and of earlier ones.
        Those that await approval or are in review do not count."""
        if self._settings is None:
            return 0
        set_aside = len(self.awaiting()) + len(self._issues.standing(Standing.IN_REVIEW))
        return self._issues.count(*_WAITS) - set_aside

    def awaiting(self) -> list[Issue]:
        """Return the issues whose branches await a person's approval."""
        return self._issues.standing(Standing.AWAITS_APPROVAL)

    def approve(self, issue_id: IssueId, commit: str) -> bool:
        """Have a branch landed that a person has seen at this commit; return False if none awaits
        approval there."""
        issue = self._awaiting(issue_id)
        add = issue.landing if issue is not None else None
        if issue is None or add is None or not add.commit.startswith(commit):
            return False
        self._effects.write(rec.Approved(issue_id, add.commit))
        self.add(issue)
        return True

    def reject(self, issue_id: IssueId, text: str) -> bool:
        """Send a branch back to its agent with a person's remarks; return False if none awaits
        approval or is in review."""
        reviewed = self._issues.standing(Standing.IN_REVIEW)
        found = (each for each in (*self.awaiting(), *reviewed) if each.issue_id == issue_id)
        issue = next(found, None)
        if issue is None or issue.landing is None:
            return False
        self._give_back(issue, ld.Refused(issue_id, issue.landing.attempt, REJECTED, text))
        return True

    def _awaiting(self, issue_id: IssueId) -> Issue | None:
        return next((each for each in self.awaiting() if each.issue_id == issue_id), None)

    @property
    def is_blocked(self) -> bool:
        """Whether landing has paused, and nothing has come of it since, though it tried again."""
        return self._blocked_since is not None

    def helpless(self) -> str | None:
        """Return why a run ends on branches that nobody came to help; None while a person may."""
        if self._blocked_since is None or not self._paused or not self.waiting():
            return None
        if self._effects.now - self._blocked_since < self._person_wait:
            return None
        return f"{counted(self.waiting(), 'branch', 'branches')} did not land: {self._why}"

    def is_busy(self) -> bool:
        """Return whether a branch is to land yet, or the lander is not done with the last one.
        While landing is paused, it is busy only with ``--until-empty``, until the wait for a person
        is over: most pauses end by themselves."""
        if self._settings is None or not self._begun:
            return False
        if self._waits_for_reviews():
            return True
        if self._paused:
            return self._until_empty and self.waiting() > 0 and self.helpless() is None
        return self.waiting() > 0 or not self._idle

    def _waits_for_reviews(self) -> bool:
        """Return whether pull requests may be merged yet that no person has to merge."""
        assert self._settings is not None, "something is to land"
        rules = self._settings.rules.pulls
        if rules.merge == NEVER or not self._until_empty:
            return False
        waits = self._effects.now < self._reviewed_at + rules.wait_seconds
        return waits and bool(self._issues.standing(Standing.IN_REVIEW))

    def _in_review(self, news: ld.InReview) -> None:
        issue = self._issues.known.get(news.issue_id)
        if issue is None or not self._is_of(issue, news.attempt) or issue.state in _CONVICTED:
            return
        self._works()
        stood = issue.standing
        self._effects.write(rec.PullSeen(news.issue_id, news.pull))
        if stood is not Standing.IN_REVIEW:
            self._mark(issue)
            self._set_aside(issue)
        if self._settings is not None and self._settings.rules.pulls.merge != NEVER:
            self._reviewed_at = self._effects.now
            due = self._reviewed_at + self._settings.rules.pulls.wait_seconds
            self._effects.timers.set(REVIEWS_WAITED, due)

    def _needs_approval(self, news: ld.NeedsApproval) -> None:
        issue = self._issues.known.get(news.issue_id)
        if issue is not None and issue.state in _WAITS and self._is_of(issue, news.attempt):
            self._effects.write(rec.ApprovalNeeded(news.issue_id, news.text))
            self._effects.note("warning", f"{news.issue_id} awaits approval: {news.text}")
            self._mark(issue)
            self._set_aside(issue)

    def shelve(self) -> None:
        """Leave all unlanded branches to the next start, because the run ends.
        Nobody repeats the work."""
        self.mends = False
        for in_flight in self._in_flight():
            self.withdraw(in_flight.job.issue_id)
            self._set_aside(in_flight.issue)

    def _set_aside(self, issue: Issue) -> None:
        """Block an issue in nobody's name, as done: its branch lands later."""
        issue_id = IssueId(issue.issue_id)
        awaits = issue.landing is not None and issue.landing.awaits
        pull = issue.in_review
        if issue.state is not IssueState.LANDING:
            return
        why = ld.AWAITS if awaits else ld.REVIEW if pull else ""
        shelved = rec.LandingEnded(issue_id, "shelve", text=why)
        self._tasks.move(issue, IssueStimulus.SHELVE, shelved)
        shelve = Settlement(Action.SHELVE, issue_id, ld.shelve_note(issue.landing, pull))
        shelve = replace(shelve, awaits=awaits, in_review=pull is not None)
        self._round_trips.enqueue(self._looked_at(shelve, issue))

    def _mark(self, issue: Issue) -> None:
        """Have the tracker show why an issue is set aside: an earlier run had another reason."""
        if issue.state is IssueState.SHELVED:
            look = Settlement(
                Action.CONFIRM, IssueId(issue.issue_id), read_first=True, shelved=True
            )
            awaits = issue.standing is Standing.AWAITS_APPROVAL
            self._round_trips.enqueue(replace(look, awaits=awaits, in_review=not awaits))

    def drop(self, in_flight: InFlight) -> None:
        """Give up an issue whose claim is lost, or that a person wants back.
        Its branch stays, and does not land."""
        self.withdraw(in_flight.job.issue_id)
        self._give_back(in_flight.issue, ld.Refused(in_flight.job.issue_id, 0, ""))

    # --- what the lander says -----------------------------------------------------------------

    def handle(self, news: ld.News) -> None:
        """Take in news from the lander."""
        if self._comes_early(news):
            return
        match news:
            case ld.Landed():
                self._landed(news)
            case ld.Refused():
                self._refused(news)
            case ld.Gate(lane, state, tree, issues, seconds, why, flaky, kept):
                self._gates.pop(lane, None)
                if state == "began":
                    self._gates[lane] = issues, self._effects.now
                self._effects.write(
                    rec.GateRan(lane, state, tree, issues, seconds, why, flaky, kept)
                )
            case ld.WithoutVerdict(issue_id):
                self._without_verdict[issue_id] = news
                self._effects.note("warning", f"{issue_id} {ld.without_verdict_text(news)}")
            case ld.GatedAhead(issue_id, commit):
                issue = self._awaiting(IssueId(issue_id))
                if issue is not None and issue.landing and issue.landing.commit == commit:
                    self._effects.write(
                        rec.BranchGated(issue_id, commit, news.verdict, news.tip, news.why)
                    )
            case ld.InReview():
                self._in_review(news)
            case ld.NeedsApproval():
                self._needs_approval(news)
            case ld.Tip(commit, branch):
                self._effects.write(rec.LandingTip(commit, branch))
            case ld.Into(branch, commit, why, command, url):
                self._effects.write(rec.LandingTip(commit, "", branch, why, command, url))
                if why and not url:
                    self._effects.note("warning", f"{branch} was not moved: {why}")
            case ld.LanderWarned(text):
                self._effects.note("warning", text)
            case ld.LandingPaused(why, files):
                self._pause(why, files)
            case ld.LandingResumed():
                self._go_on()
            case ld.After(status, text):
                if status:
                    last = text.strip().splitlines()[-1:] or [f"exit status {status}"]
                    self._effects.note("warning", f"[landing] after failed: {last[0]}")
            case ld.Idle(waiting):
                self._idle = True
                if not waiting:
                    self._works()
                    if not self._paused:
                        self._blocked_since = None
            case ld.LandingCancelled():
                pass
            case _:
                assert_never(news)

    def behind(self, issue: Issue) -> tuple[str, ...]:
        """Return the issues that are to land before this one, by priority and end of attempt."""
        mine = issue.landing
        if mine is None or issue.state not in _WAITS:
            return ()
        others = [add for each in self._waiting() if (add := each.landing) and not add.awaits]
        return ld.ahead_of(mine, others)

    def gate_seconds(self, issue: Issue) -> float | None:
        """Return how long the gate has run that it is in, or waits for; None if no gate runs."""
        if issue.state not in _WAITS or not self._gates:
            return None
        of_it = [since for issues, since in self._gates.values() if issue.issue_id in issues]
        began = of_it or [since for _, since in self._gates.values()]
        return round(self._effects.now - min(began), 1)

    def no_verdict(self, issue: Issue) -> str:
        """Return why no gate has a verdict on the issue so far; "" if that is not so."""
        news = self._without_verdict.get(issue.issue_id)
        if news is None or not self._is_of(issue, news.attempt) or issue.state not in _WAITS:
            return ""
        return f"{news.why} ({counted(news.times, 'time')})"

    def settled(self, issue_id: str) -> None:
        """Take in what came while the tracker was still being told of this issue."""
        for news in self._early.pop(issue_id, ()) if self._early else ():
            self.handle(news)

    def _comes_early(self, news: ld.News) -> bool:
        """Keep news of an issue that the tracker is being told of: blocked, or set aside."""
        if not isinstance(news, ld.Landed | ld.Refused | ld.InReview):
            return False
        issue = self._issues.known.get(news.issue_id)
        add = issue.landing if issue is not None else None
        if issue is None or add is None or add.attempt != news.attempt:
            return False
        is_told = issue.state is IssueState.SHELVING
        is_told = is_told or (issue.state is IssueState.QUARANTINING and type(news) is ld.Landed)
        if is_told:
            self._early.setdefault(news.issue_id, []).append(news)
        return is_told

    def died(self, why: str) -> None:
        """Start the lander again after its death, and ask it for the same."""
        self._alive, self._idle = False, True
        self._gates.clear()
        self._died += 1
        if self._died > limits.LANDER_DEATHS_MAX:
            self._pause(f"the lander died {self._died} times: {why}", ())
        elif why:
            self._effects.note("warning", f"the lander died, and is started again: {why}")
        delay = min(
            limits.LANDER_DELAY_SECONDS * 2.0 ** (self._died - 1), limits.LANDER_DELAY_MAX_SECONDS
        )
        self._effects.timers.set(LANDER_DUE, self._effects.now + delay)

    def restart(self) -> None:
        """Start the lander again: its delay is over."""
        self._start()

    def _start(self) -> None:
        self._alive = True
        if self._died <= limits.LANDER_DEATHS_MAX:
            self._go_on()  # A new lander finds out by itself what blocks it.
        self._effects.ask(StartLander())
        for issue in self._waiting():
            self.add(issue)

    def _works(self) -> None:
        """Forget the lander's deaths: it has come to the end of something."""
        if self._died > limits.LANDER_DEATHS_MAX:
            self._go_on()
        self._died = 0

    def _landed(self, landed: ld.Landed) -> None:
        self._works()
        self._blocked_since = None
        if self._settings is not None and self._settings.is_proposed_whole:
            self._idle = False  # It is idle once the pull request of the run lists this.
        issue = self._issues.known.get(landed.issue_id)
        if issue is None or not self._is_of(issue, landed.attempt):
            return
        assert self._settings is not None, "there is a lander"
        record = rec.BranchLanded(
            *(landed.issue_id, landed.attempt, landed.commit, self._settings.branch),
            *(landed.verified, landed.train, landed.contained, landed.pull),
        )
        self._tasks.move(issue, IssueStimulus.LANDED, record)
        close = Settlement(Action.CLOSE, IssueId(landed.issue_id), issue.close_note)
        self._round_trips.enqueue(self._looked_at(replace(close, shelved=issue.shelved), issue))

    def _refused(self, refused: ld.Refused) -> None:
        issue = self._issues.known.get(refused.issue_id)
        if issue is None or not self._is_of(issue, refused.attempt) or issue.state in _CONVICTED:
            return
        self._give_back(issue, refused)

    def _give_back(self, issue: Issue, refused: ld.Refused) -> None:
        issue_id = IssueId(issue.issue_id)
        repairs = issue.retry_entry.repairs if issue.retry_entry else 0
        repairs += refused.why not in ("", REJECTED)  # What people want is no failure.
        text = refused.text[: limits.LESSON_CHARS_MAX]
        details = refused.why, text, refused.files, refused.tip, refused.against, repairs
        shelved = issue.state is IssueState.SHELVED
        in_flight = self._tasks.in_flight.get(issue_id)
        at_once = in_flight is not None and self.mends
        verdict = unlanded(refused.why, self._repairs_left(issue), at_once=at_once)
        ended = rec.LandingEnded(issue_id, verdict, *details)
        if refused.why and verdict != "quarantined":
            self.withdraw(issue_id)  # The agent goes on with its branch.
        if verdict == "quarantined":
            if issue.standing in (Standing.AWAITS_APPROVAL, Standing.IN_REVIEW):
                # It stays blocked, and the look takes its label off.
                look = Settlement(Action.CONFIRM, issue_id, read_first=True, shelved=True)
                self._round_trips.enqueue(look)
            self._tasks.move(issue, IssueStimulus.SPENT, ended)
            self._tasks.quarantined_unlanded(issue, shelved=shelved)
        elif verdict == "mend" and in_flight is not None:
            self._tasks.send_back(in_flight, ended)
        else:
            self._tasks.move(issue, IssueStimulus.REQUEUED, ended)
            self._round_trips.enqueue(self._back(issue, given_up=not refused.why, shelved=shelved))

    def _back(self, issue: Issue, *, given_up: bool, shelved: bool) -> Settlement:
        issue_id = IssueId(issue.issue_id)
        if shelved:
            return Settlement(Action.REOPEN, issue_id)
        back = self._looked_at(Settlement(Action.RELEASE, issue_id), issue)
        # Another actor has closed the issue or taken it, and that stands.
        return replace(back, read_first=True) if given_up else back

    def _repairs_left(self, issue: Issue) -> int:
        assert self._settings is not None, "there is a lander"
        repairs = issue.retry_entry.repairs if issue.retry_entry else 0
        return self._settings.rules.repairs_max - repairs if self._has_agents else 0

    def _pause(self, why: str, files: tuple[str, ...]) -> None:
        named = f": {', '.join(files[: ld.FILES_NAMED])}" if files else ""
        self._why = f"{why}{named}"
        if not self._paused:
            self._paused = True
            if self._blocked_since is None:
                self._blocked_since = self._effects.now
                due = self._effects.now + self._person_wait
                self._effects.timers.set(LANDING_HELPLESS, due)
            todo = "put that right, then 'beads-workers resume'"
            self._effects.write(rec.DegradedBegan(WHAT, f"nothing lands, {why}{named}", todo))

    def _go_on(self) -> None:
        if self._paused:
            self._paused = False
            self._effects.write(rec.DegradedEnded(WHAT))

    # --- inside -------------------------------------------------------------------------------

    def _is_of(self, issue: Issue, attempt: int) -> bool:
        """Return whether an issue waits with the work of this attempt, withdrawn or not."""
        add = issue.landing
        return issue.state in (*_WAITS, *_CONVICTED) and add is not None and add.attempt == attempt

    def _looked_at(self, settlement: Settlement, issue: Issue) -> Settlement:
        """Return the settlement with the reads that it needs first.
        Its agent may have closed the issue by itself, which does not count. And nobody knows whose
        it became while the machine slept, or while it was shelved."""
        by_agent, in_flight = bool(issue.agent), self._tasks.in_flight.get(settlement.issue_id)
        unknown = by_agent or settlement.shelved or in_flight is None or in_flight.slept
        return replace(settlement, read_first=unknown, by_agent=by_agent)

    def _in_flight(self) -> list[InFlight]:
        if not self._issues.count(IssueState.LANDING):
            return []
        held = self._tasks.in_flight.values()
        return [each for each in held if each.issue.state is IssueState.LANDING]

    def _waiting(self) -> list[Issue]:
        return [issue for issue in self._issues.known.values() if issue.state in _WAITS]


_WAITS = (IssueState.LANDING, IssueState.SHELVED)
_CONVICTED = (IssueState.QUARANTINING, IssueState.QUARANTINED)
"""States in which the lander may try a branch once more, if gates are flaky."""
