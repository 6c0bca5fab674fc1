"""The lander: carries out the commands of the queue with git and gates, and reports the results.

The lander keeps nothing that it could not read from the repository. It moves the branch first, then
reports it. After a kill in between, the orchestrator asks again and learns what has landed.
"""

from __future__ import annotations

import os
import selectors
import shlex
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import accumulate
from pathlib import Path
from typing import assert_never

from beads_workers.core.base.settings import Sight
from beads_workers.core.base.source import SourceError
from beads_workers.core.records import landing as messages
from beads_workers.core.records.landing import Add, CancelLanding, GoOn, LanderSettings, News, Order
from beads_workers.core.records.receipts import INDEPENDENT
from beads_workers.landing.gate import (
    LOCK,
    GateOrder,
    GatePlace,
    GateProcess,
    GateResult,
    Verdicts,
    start_gate,
)
from beads_workers.landing.pull_requests import BranchesInReview, forge_of, of_forge
from beads_workers.landing.queue import (
    Advance,
    Build,
    Command,
    GateVerdict,
    Later,
    PauseReason,
    Queue,
    Refuse,
    RunGate,
    Say,
    Show,
    StopGate,
    WaitingBranch,
)
from beads_workers.landing.repository import (
    CannotLand,
    CannotMeet,
    Held,
    LandingRepository,
    Moved,
    Unclear,
    landing_folder,
)
from beads_workers.landing.run_in_review import RunInReview
from beads_workers.landing.scratch_merges import Conflict, Coupled, Follow, Passenger
from beads_workers.landing.sees.again import LookBeforeTrains
from beads_workers.runtime.kernel import system
from beads_workers.runtime.locks import try_lock
from beads_workers.runtime.processes import say
from beads_workers.worktrees import git, reuse
from beads_workers.worktrees.branch_movers import name_of, trespass_text
from beads_workers.worktrees.places import GATED_REPOSITORY, make_folder
from beads_workers.worktrees.programs import pinned
from beads_workers.worktrees.remote import Refuses, RemoteTrouble

LOCK_SECONDS = 10.0
"""Time for the previous lander to end its gates, in seconds."""

POLL_SECONDS = 2.0
"""Interval of the checks of branches that others move, in seconds."""
AGAIN_SECONDS = (30.0, 600.0)
"""Delays, in seconds, before a red tip, or a gate without a verdict, is tried again: the first,
doubled up to the last."""
GIT_AGAIN_SECONDS = (1.0, 300.0)
"""Delays after an error of git or the system, in the same form. The first error is not reported."""
FETCH_SECONDS = 30.0
"""Interval of the fetches from the remote, besides one before each train, in seconds: other clones
land there, too."""
REMOTE_SECONDS = (5.0, 300.0)
"""Delays for a remote that cannot be reached, in the form of ``AGAIN_SECONDS``."""
NO_VERDICTS_SHARES = (0.025, 0.075, 0.15, 0.3, 0.45)
"""Delays between the tries of a branch without a verdict, as shares of ``gate_retry``."""
NO_VERDICTS_LONGEST = 6.0
"""Limit of the retries, in units of ``gate_retry``, for gates that end late."""
STOP_SECONDS = 5.0
"""Seconds between the request that a gate stop and its kill."""

FOLLOWED = "\0followed"
"""Key of the user's own branch: no issue has this id."""
AGAINST_MAX = 20
GONE_MAX = 5
NAMES_BYTES_MAX = 1 << 16
TEXT_CHARS_MAX = 1 << 14
"""Limits of a message for the names of files in conflict, and for the texts of git and verify: a
line longer than ``LINE_BYTES_MAX`` of ``runtime.lander`` is not read."""
AFTER_TAIL_BYTES = 2000


@dataclass(slots=True)
class _Train:
    """A train. ``base``: the tip that it was built on; ``landed``: number of its branches that have
    landed."""

    base: str
    tree: str
    keys: tuple[str, ...] = ()
    coupled: tuple[Coupled, ...] = ()
    landed: int = 0

    def at(self, place: int) -> tuple[str, str]:
        """Return the commit and the tree of a place."""
        if place == 0:
            return self.base, self.tree
        return self.coupled[place - 1].commit, self.coupled[place - 1].tree


@dataclass(slots=True)
class _Running:
    """A running gate. ``key``: key of the last branch in its tree, "" for the tip alone."""

    gate: GateProcess
    issues: tuple[str, ...]
    key: str
    stopped_at: float | None = None


@dataclass(slots=True)
class _After:
    process: subprocess.Popen[bytes]
    pidfd: int
    runs_again: bool = False


@dataclass(slots=True)
class Lander:
    """The lander. ``say``: called with each news. ``selector``: the selector of the loop; the
    lander's descriptors are registered in it with a callback."""

    settings: LanderSettings
    say: Callable[[News], None]
    selector: selectors.BaseSelector
    queue: Queue = field(init=False)
    _repository: LandingRepository = field(init=False)
    _verdicts: Verdicts = field(init=False)
    _look_before_trains: LookBeforeTrains = field(init=False)
    _reviews: BranchesInReview | None = None
    _proposal: RunInReview | None = None
    _folder: Path = field(init=False)
    _lock: int = -1
    _tip: str = ""
    _passengers: dict[str, Passenger] = field(default_factory=dict)
    _trains: dict[int, _Train] = field(default_factory=dict)
    _gates: dict[int, _Running] = field(default_factory=dict)
    _bad: dict[str, GateResult] = field(default_factory=dict)
    _later: dict[str, float] = field(default_factory=dict)
    _no_verdicts_since: dict[str, float] = field(default_factory=dict)
    _unread: dict[str, Add] = field(default_factory=dict)
    _conflict: Conflict | None = None
    _stuck: str = ""
    _refused_push: str = ""
    _gone: set[str] = field(default_factory=set)
    _stuck_until: float = 0.0
    _stuck_reported: bool = False
    _git_seconds: float = GIT_AGAIN_SECONDS[0]
    _into_due: bool = False
    _must_open: bool = False
    _remote_seconds: float = REMOTE_SECONDS[0]
    _fetch_at: float = 0.0
    _after: _After | None = None
    _idle: bool = False
    _look_at: float = 0.0
    _again_at: float | None = None
    _again_seconds: float = AGAIN_SECONDS[0]

    def open(self) -> None:
        """Become the repository's only lander. Raises ``CannotLand``."""
        settings = self.settings
        try:
            os.environ.update(pinned(settings.worktrees, settings.run_id, os.environ))
        except (git.GitError, OSError) as error:
            raise CannotLand(f"cannot tell who commits: {error}") from None
        self._repository = LandingRepository(settings)
        self._folder = landing_folder(settings.worktrees)
        make_folder(self._folder)
        (self._folder / GATED_REPOSITORY).write_bytes(os.fsencode(settings.worktrees.common))
        self._lock = take_lock(settings)
        self.queue = Queue(max(1, settings.landing.rules.jobs), gated=settings.verify is not None)
        for lane in range(self.settings.landing.rules.jobs):
            GatePlace(settings, self._folder, lane).sweep()
        self._verdicts = Verdicts(settings, self._folder)
        self._look_before_trains = LookBeforeTrains(settings, self.selector, self._go_on)
        if settings.landing.is_proposed_whole:
            forge = forge_of(settings)
            self._proposal = RunInReview(settings, self._repository, forge, self.say)
        if settings.landing.theirs:
            told = self.say, self._wait_for_gate, self._refuse, self._verdicts.has_passed
            forge = forge_of(settings)
            self._reviews = BranchesInReview(settings, self._repository, forge, *told)
        try:
            self._tip = self._repository.open()
        except (RemoteTrouble, Held, CannotLand) as trouble:
            self._cannot_fetch(trouble)
            with suppress(git.GitError):
                self._tip = self._repository.commit_of(self._repository.ref) or ""
        else:
            self._fetch_at = time.monotonic() + FETCH_SECONDS
            try:
                self._tip = self._without_trespass(self._tip)
            except Unclear as trouble:
                self._get_stuck(str(trouble))
            except git.GitError:
                pass  # The next look finds the trespass, too.
        if self._tip:
            self.say(messages.Tip(self._tip, settings.landing.branch))
            with suppress(git.GitError):  # A warning for people only.
                self._warn_of_gone(self._tip)
        self._into_due = bool(self._tip)
        with suppress(git.GitError):  # The next look tries again.
            self._move_into()

    # --- orders -----------------------------------------------------------------------------------

    def handle(self, order: Order) -> None:
        """Take an order; the caller calls ``work`` next."""
        self._idle = False
        match order:
            case Add():
                self._add(order)
            case CancelLanding(issue_id):
                unread = self._unread.pop(issue_id, None)
                with suppress(git.GitError):
                    # The issue's next attempt in this run may have the same number.
                    self._repository.pardon(self.settings.run_id, issue_id)
                under = self._reviews is not None and self._reviews.withdraw(issue_id)
                if self.queue.withdraw(issue_id) or unread is not None or under:
                    self._passengers.pop(issue_id, None)
                    self.say(messages.LandingCancelled(issue_id))
            case GoOn():
                self._go_on()
            case _:
                assert_never(order)

    def _add(self, add: Add) -> None:
        if self._passengers.get(add.issue_id) == add and add.issue_id in self.queue.order:
            return
        try:
            if commit := self._repository.trespassed(add):
                self._refuse(add, "branch", trespass_text(self._repository.branch, commit))
                return
            if self._reviews is not None and not add.awaits and self._reviews.takes(add):
                return
            # Without a tip the remote was never reached: its state is not known yet.
            if self._tip and self._is_there(add, self._repository.contains(add, self._tip)):
                return
        except CannotMeet as error:
            self._refuse(add, "branch", str(error))
            return
        except git.GitError as error:
            # The error says nothing about the branch: it is read again when git answers.
            self._unread[add.issue_id] = add
            self._git_fails(error)
            return
        self._no_verdicts_since.pop(add.issue_id, None)
        self._wait_for_gate(add)
        self._look_at = 0.0  # The train is to stand on the latest commits of others.

    def _wait_for_gate(self, add: Add) -> None:
        self._idle = False
        if self._passengers.get(add.issue_id) == add and add.issue_id in self.queue.order:
            return
        self._passengers[add.issue_id] = add
        of, proposed = (add.issue_id, add.priority, add.ended_at), self._reviews is not None
        needs = proposed and not add.awaits
        self.queue.add(WaitingBranch(*of, awaits=add.awaits or proposed, needs_verdict=needs))

    def _is_there(self, add: Add, contained: bool) -> bool:
        """Return whether the branch has landed, and report that it has. Raises ``GitError``."""
        if add.awaits:
            return False
        landed = self._repository.landed_as(add, self._tip)
        if landed is not None:
            of = (add.issue_id, add.attempt, landed.commit)
            self._landed(add, messages.Landed(*of, landed.verified, landed.train))
        elif contained:
            with of_forge():
                self._is_over(add, add.commit)
        else:
            return False
        return True

    def _landed(self, add: Add, news: messages.Landed) -> None:
        """Report that the branch has landed, and that nobody needs its worktree any more."""
        self.say(news)
        with suppress(git.GitError, OSError):  # Then it is not used again, but removed.
            reuse.landed(self.settings.worktrees, add)

    def _go_on(self) -> None:
        self._stuck_until = self._look_at = self._fetch_at = 0.0
        self._again_at = None
        self.queue.go_on()

    # --- the loop's turn --------------------------------------------------------------------------

    def work(self) -> None:
        """Do all work that can be done now. To be called after each order, each event, and when
        ``due``."""
        now = time.monotonic()
        try:
            if now >= self._look_at or 0 < self._stuck_until <= now:
                self._look_at = now + POLL_SECONDS
                self._look()
            if self._again_at is not None and now >= self._again_at:
                self._again_at = None
                self.queue.go_on()
            for key in [key for key, at in self._later.items() if now >= at]:
                del self._later[key]
                self.queue.put_back(key)
            for running in self._gates.values():
                if running.stopped_at is not None and now >= running.stopped_at + STOP_SECONDS:
                    running.gate.end(signal.SIGKILL)
            self._read_again()
            self._look_at_reviews()
            if self._idle and not self._stuck:
                self.queue.one_more()
            while not self._stuck and (command := self.queue.next()) is not None:
                self._carry_out(command)
            if not self._stuck:
                self._git_seconds = GIT_AGAIN_SECONDS[0]
        except Refuses as trouble:
            self._get_stuck(str(trouble), known=str(trouble) == self._refused_push)
            self._refused_push = str(trouble)
            self._wait_for_remote()
        except RemoteTrouble as trouble:
            self._cannot_fetch(trouble)
        except Held as held:
            self._cannot_fetch(held)
        except Unclear as trouble:
            self._get_stuck(str(trouble))
        except (git.GitError, OSError) as error:
            self._git_fails(error)
        quiet = self._stuck_reported if self._stuck else self.queue.idle
        if self.queue.idle and not self._stuck:
            self._taken()
        if self.queue.idle and not self._stuck:
            self._propose_all()
        quiet = quiet and not (self._reviews is not None and self._reviews.is_busy)
        if not self._idle and quiet and not self._gates and self._after is None:
            self._idle = True
            with suppress(git.GitError):  # Only for 'git gc'; the next train unpins again.
                self._repository.unpin()
            to_land = sum(not self._awaits(key) for key in self.queue.order)
            self.say(messages.Idle(to_land + len(self._unread)))

    def _look_at_reviews(self) -> None:
        """See what became of pull requests; raises ``GitError``."""
        if self._reviews is None or self._stuck or time.monotonic() < self._reviews.due:
            return
        self._idle, self._look_at = False, 0.0  # What was merged is on the forge's branch.
        with of_forge():
            self._reviews.look(self._tip)
        self._remote_seconds = REMOTE_SECONDS[0]

    def _propose_all(self) -> None:
        """Bring the pull request of the run up to date. A forge that is down is no pause: all that
        it will list has landed."""
        proposal, now = self._proposal, time.monotonic()
        if proposal is None or (now < proposal.due and not proposal.is_behind(self._tip)):
            return
        try:
            proposal.look(self._tip)
        except (SourceError, git.GitError) as error:
            proposal.due = now + REMOTE_SECONDS[0]
            self.say(messages.LanderWarned(f"no pull request of the run: {error}"))

    def _awaits(self, key: str) -> bool:
        """Return whether this branch lands only once a person has approved it."""
        passenger = self._passengers.get(key)
        return isinstance(passenger, Add) and passenger.awaits

    def _taken(self) -> None:
        """End a pause for a refused push: the remote has taken it, or nobody wants it any more."""
        if self._refused_push:
            self._refused_push = ""
            self.say(messages.LandingResumed())

    def _read_again(self) -> None:
        unread = list(self._unread.values())
        for add in unread if not self._stuck else ():
            del self._unread[add.issue_id]
            self._add(add)
            if self._stuck:
                return

    @property
    def due(self) -> float:
        """When ``work`` is to be called again at the latest, in monotonic seconds."""
        times = [self._look_at, self._again_at, self._stuck_until or None, *self._later.values()]
        times += [r.stopped_at + STOP_SECONDS for r in self._gates.values() if r.stopped_at]
        if self._reviews is not None and not self._stuck:
            times.append(self._reviews.due)
        if self._proposal is not None and not self._stuck:
            times.append(self._proposal.due)
        return min(at for at in times if at is not None)

    def close(self) -> None:
        """End all gates, and discard an unfinished train; the next lander would do the same."""
        for running in self._gates.values():
            running.gate.end()
        self._look_before_trains.close()
        until = time.monotonic() + STOP_SECONDS
        for running in self._gates.values():
            if not _ended(running.gate.pidfd, until - time.monotonic()):
                running.gate.end(signal.SIGKILL)
            running.gate.result()
        for lane in self._gates:
            GatePlace(self.settings, self._folder, lane).sweep()
        with suppress(git.GitError, Unclear, OSError):
            # An attempt may have moved the branch, and ended, since the last look.
            if (tip := self._repository.tip()) != self._tip:
                self._without_trespass(tip)
        with suppress(git.GitError):
            self._repository.unpin(by_others=True)

    # --- what others do in the repository ---------------------------------------------------------

    def _look(self) -> None:
        repository = self._repository
        if self._stuck and not self._is_free():
            return
        if time.monotonic() >= self._fetch_at:
            self._fetch()
            self._remote_seconds = REMOTE_SECONDS[0]
        tip = repository.commit_of(repository.ref)
        if tip is None:
            self._restored()
            tip = repository.tip()
        if tip != self._tip:
            self._idle = False
            self._moved(tip)
        self._move_into()
        follow = repository.follow(tip)
        if follow is None:
            self._passengers.pop(FOLLOWED, None)
            self.queue.withdraw(FOLLOWED)
        elif self._passengers.get(FOLLOWED) != follow:
            self._idle = False
            self._passengers[FOLLOWED] = follow
            self.queue.add(WaitingBranch(FOLLOWED, first=True))

    def _restored(self) -> bool:
        """Restore the landing branch if somebody has deleted it; return whether it was gone. Raises
        ``GitError``."""
        repository = self._repository
        if not self._tip or repository.commit_of(repository.ref) is not None:
            return False
        repository.restore(self._tip)
        why = f"somebody has deleted {repository.branch}: it is at {self._tip[:12]} again"
        self.say(messages.LanderWarned(f"{why}, with all that has landed"))
        return True

    def _is_free(self) -> bool:
        """Return whether the obstacle to landing is gone, and report that it is."""
        repository = self._repository
        if time.monotonic() < self._stuck_until:
            return False
        self._stuck_until = 0.0
        if repository.worktree_of(repository.ref) or self._is_unclear():
            return False
        self._unlock()
        if self._must_open:
            try:
                repository.open()
            except (RemoteTrouble, Held, CannotLand) as trouble:
                if self._stuck_reported:
                    self._wait_for_remote()
                else:
                    self._cannot_fetch(trouble)
                return False
            self._must_open, self._fetch_at = False, time.monotonic() + FETCH_SECONDS
        self._stuck, self._stuck_until = "", 0.0
        # A refused push is only tried again: nothing is fixed yet.
        if self._stuck_reported and not self._refused_push:
            self.say(messages.LandingResumed())
        return True

    def _is_unclear(self) -> bool:
        """Return whether still nobody knows who has moved the branch. Raises ``GitError``."""
        try:
            if tip := self._repository.commit_of(self._repository.ref):
                self._repository.trespass(tip)
        except Unclear:
            return True
        return False

    def _unlock(self) -> None:
        """Remove the locks of git: a git killed by others may leave them at any time."""
        for lock in git.unlock_all(self.settings.worktrees.common):
            say("lander", f"removed {lock}, which a killed git has left")

    def _fetch(self) -> None:
        """Update the branch from the remote; raises as ``LandingRepository.fetch`` does."""
        self._repository.fetch()
        self._fetch_at = time.monotonic() + FETCH_SECONDS

    def _cannot_fetch(self, trouble: RemoteTrouble | Held | CannotLand) -> None:
        self._must_open = True
        if isinstance(trouble, Held):
            self._get_stuck(self._held_text(trouble))
        elif isinstance(trouble, CannotLand):
            self._git_fails(trouble)
        else:
            self._get_stuck(str(trouble))
            self._wait_for_remote()

    def _wait_for_remote(self) -> None:
        self._stuck_until = time.monotonic() + self._remote_seconds
        self._remote_seconds = min(self._remote_seconds * 2, REMOTE_SECONDS[1])

    def _held_text(self, held: Held) -> str:
        text = f"{self.settings.landing.branch} is checked out in {held}"
        if Path(str(held)).is_dir():
            return f"{text}: nothing lands while it is"
        return f"{text}, which is gone: nothing lands until 'git worktree prune'"

    def _moved(self, tip: str) -> None:
        if (tip := self._without_trespass(tip)) == self._tip:
            return
        earlier, self._tip = self._tip, tip
        try:
            self._look_who_landed(tip)
            self._warn_of_gone(tip)
        except git.GitError:
            self._tip = earlier  # Nothing is known yet: the tip is looked at again.
            raise

    def _without_trespass(self, tip: str) -> str:
        """Take back the commits that an attempt put on the branch by itself; return the tip. Raises
        ``Unclear`` and ``GitError``."""
        found = self._repository.trespass(tip)
        if found is None:
            return tip
        # First, so that a lander killed here does not forget the trespass.
        self._repository.mark_trespass(found)
        try:
            self._repository.take_back(found)
        except Moved:
            return self._repository.tip()
        why = trespass_text(self.settings.landing.branch, found.commit)
        say("lander", f"{', '.join(found.attempts)}: {why}")
        for add in [each for each in self._passengers.values() if isinstance(each, Add)]:
            own = name_of(add.run_id, add.issue_id, add.attempt) in found.attempts
            if own and self.queue.withdraw(add.issue_id):
                del self._passengers[add.issue_id]
                self._refuse(add, "branch", why)
        return found.back

    def _warn_of_gone(self, tip: str) -> None:
        """Warn of branches that landed and are not on the branch any more, if a person moved it."""
        gone = [e for e in self._repository.gone(tip) if e.commit not in self._gone]
        self._gone |= {each.commit for each in gone}
        if gone:
            named = ", ".join(f"{each.issue_id} ({each.commit[:12]})" for each in gone[:GONE_MAX])
            more = f" and {len(gone) - GONE_MAX} more" if len(gone) > GONE_MAX else ""
            branch = self.settings.landing.branch
            again = f"'beads-workers land {gone[0].issue_id}' lands it again"
            text = f"landed, and not on {branch} any more: {named}{more}; {again}"
            self.say(messages.LanderWarned(text))

    def _look_who_landed(self, tip: str) -> None:
        self.say(messages.Tip(tip, self.settings.landing.branch))
        self.queue.tip_moved()
        for key in self.queue.order:
            # An earlier lander, or a push whose end nobody saw, may have landed the branch.
            passenger = self._passengers.get(key)
            if isinstance(passenger, Add):
                contained = self._repository.objects.contains(tip, passenger.commit)
                if self._is_there(passenger, contained):
                    self.queue.withdraw(key)
                    self._passengers.pop(key)

    def _git_fails(self, error: git.GitError | OSError | CannotLand) -> None:
        """Schedule a retry of the failed work of git; the first failure is not reported. If git
        failed because the landing branch is gone, the branch is restored at once."""
        with suppress(git.GitError):
            if isinstance(error, git.GitError) and self._restored():
                self.queue.tip_moved()
                return
        why = str(error)
        if isinstance(error, OSError):
            why = f"{error.filename or 'nothing can be written'}: {error.strerror}"
        elif isinstance(error, git.GitError) and not isinstance(error, RemoteTrouble):
            why = f"git: {error}"
        first, most = GIT_AGAIN_SECONDS
        self._get_stuck(why, self._git_seconds, reported=self._git_seconds > first)
        self._git_seconds = min(self._git_seconds * 2, most)

    def _get_stuck(
        self, why: str, seconds: float = 0.0, *, reported: bool = True, known: bool = False
    ) -> None:
        """Stop landing for this reason. ``seconds``: delay until the next try; ``reported``: report
        the pause; ``known``: the reason is the same as before, and is not reported twice."""
        self._idle = False
        self._stuck, self._stuck_reported = why, reported
        self._stuck_until = time.monotonic() + seconds if seconds else 0.0
        self.queue.tip_moved()
        if reported and not known:
            self._taken()
            self.say(messages.LandingPaused(why))

    # --- what the queue says ----------------------------------------------------------------------

    def _carry_out(self, command: Command) -> None:
        match command:
            case Build(number, keys):
                self._build(number, keys)
            case RunGate():
                self._run_gate(command)
            case StopGate(lane):
                # Its verdict does not count any more: the gate is reported as stopped.
                running = self._gates.get(lane)
                if running is None:
                    self.queue.stopped(lane)  # The gate has ended, or git did not let it begin.
                else:
                    running.stopped_at = time.monotonic()
                    running.gate.end()
            case Advance(number, place):
                self._advance(number, place)
            case Later(key, times):
                self._try_later(key, times)
            case Refuse(key, was_red):
                self._convict(key, was_red=was_red)
            case Show(key, verdict):
                self._show(key, verdict, self._said_of(key).why)
            case Say(pause):
                self._say_pause(pause)
            case _:
                assert_never(command)

    def _build(self, number: int, keys: tuple[str, ...]) -> None:
        self._fetch()
        if (now := self._repository.tip()) != self._tip:
            self._moved(now)
            return
        self._verdicts.look_again()
        if why := self._look_before_trains.why_not(self._verdicts, self._tip, self._tip_tree()):
            waits = float("inf") if self._look_before_trains.is_under_way else AGAIN_SECONDS[0]
            self._get_stuck(why, waits)
            return
        tip, onto = self._tip, self._tip
        on, coupled, contained = list[str](), list[Coupled](), list[str]()
        refused, blocked = dict[str, Conflict](), None
        for key in keys:
            passenger = self._passengers[key]
            found: Coupled | Conflict | None = self._couple(onto, passenger)
            if isinstance(found, Conflict) and onto != tip:
                # An earlier branch may still be evicted: only a conflict with the tip convicts.
                found = (
                    alone if isinstance(alone := self._couple(tip, passenger), Conflict) else None
                )
            if isinstance(found, Coupled) and found.changes:
                on.append(key)
                coupled.append(found)
                onto = found.commit
            elif isinstance(found, Coupled) and onto == tip:
                contained.append(key)
            elif isinstance(found, Conflict) and isinstance(passenger, Follow):
                blocked = found
                break
            elif isinstance(found, Conflict):
                refused[key] = found
        self._trains = {n: self._trains[n] for n in self.queue.in_use if n in self._trains}
        tree = self._repository.objects.tree(tip)
        if coupled:
            self._repository.pin(onto, only=not self._trains)
        elif not self._trains:
            self._repository.unpin()
        # From here on nothing fails; after an error of git above the whole build is repeated.
        self._trains[number] = _Train(tip, tree, tuple(on), tuple(coupled))
        self._conflict = blocked or self._conflict
        self.queue.built(tuple(on), (*contained, *refused), blocked=blocked is not None)
        for key in contained:
            self._contained(key)
        for key, conflict in refused.items():
            self._refuse_conflict(key, conflict)

    def _couple(self, onto: str, passenger: Passenger) -> Coupled | Conflict:
        """Merge a branch onto a commit. If git fails again and again with this branch only, return
        that as a conflict; else raise ``GitError`` or ``OSError``."""
        builder = self._repository.builder
        for tries_left in reversed(range(git.TRIES_MAX)):
            try:
                return builder.couple(onto, passenger)
            except git.GitError as error:
                hangs = isinstance(error, git.GitHangs)  # It was tried often by now.
                if isinstance(error, git.GitNoAnswer) and not hangs:
                    raise
                if hangs or not tries_left:
                    builder.check(self._tip)
                    return Conflict((), f"git cannot merge it: {error}")
            time.sleep(git.TRY_AGAIN_SECONDS)
        raise AssertionError("the last try returns or raises")

    def _run_gate(self, run: RunGate) -> None:
        train = self._trains[run.number]
        commit, tree = train.at(run.place)
        issues = tuple(k for k in train.keys[train.landed : run.place] if k != FOLLOWED)
        kept = None if run.repeated else self._verdicts.find(tree)
        if kept is not None:
            if kept.verdict is not GateVerdict.GREEN:
                self._bad[tree] = kept
            news = messages.Gate(run.lane, kept.verdict.value, tree, issues, kept=True)
            self.say(replace(news, why=kept.why))
            self.queue.judged(run.lane, kept.verdict, kept=True)
            return
        order = GateOrder(run.lane, commit, tree, self._tip, run.fresh)
        try:
            gate = start_gate(self.settings, self._folder, order, self._verdicts)
        except OSError as error:
            self._bad[tree] = GateResult(
                GateVerdict.NONE, f"no gate can be started: {error.strerror}"
            )
            self.queue.judged(run.lane, GateVerdict.NONE)
            return
        key = train.keys[run.place - 1] if run.place > train.landed else ""
        self._gates[run.lane] = _Running(gate, issues, key)
        self.selector.register(gate.pidfd, selectors.EVENT_READ, lambda: self._ended(run.lane))
        self.say(messages.Gate(run.lane, "began", tree, issues))

    def _ended(self, lane: int) -> None:
        running = self._gates.pop(lane)
        gate = running.gate
        self.selector.unregister(gate.pidfd)
        result, tree = gate.result(), gate.order.tree
        for line in result.changed:
            self.say(messages.LanderWarned(line))
        self._idle = False
        news = messages.Gate(lane, "stopped", tree, running.issues, time.monotonic() - gate.began)
        # The gate may have ended by itself, before it was stopped.
        if self.queue.is_stopping(lane):
            self.say(news)
            self.queue.stopped(lane)
            return
        green = result.verdict is GateVerdict.GREEN
        before = self._bad.get(tree)
        flaky = green and before is not None and before.verdict is GateVerdict.RED
        if green:
            self._bad.pop(tree, None)
        else:
            self._bad[tree] = result
        self.say(replace(news, state=result.verdict.value, why=result.why, flaky=flaky))
        since = self._no_verdicts_since.get(running.key, time.monotonic())
        longest = NO_VERDICTS_LONGEST * self.settings.landing.rules.gate_retry_seconds
        enough = time.monotonic() - since >= longest
        self.queue.judged(lane, result.verdict, enough=enough, set_up=result.set_up)
        if tree == self._tip_tree():
            self.say(messages.Tip(self._tip, self.settings.landing.branch, green))

    def _tip_tree(self) -> str:
        try:
            return self._repository.objects.tree(self._tip)
        except git.GitError:
            return ""

    # --- landing ----------------------------------------------------------------------------------

    def _advance(self, number: int, place: int) -> None:
        train = self._trains[number]
        keys = train.keys[train.landed : place]
        _, tree = train.at(place)
        verified = tree if self.settings.verify is not None else ""
        issues = tuple(key for key in keys if key != FOLLOWED)
        if verified and self.settings.sight == Sight.NOTHING:
            verified += f" {INDEPENDENT}"
        together = issues if verified and len(issues) > 1 else ()
        assert not any(map(self._awaits, keys)), "nobody has approved it"
        changes = [each.changes for each in train.coupled[train.landed : place]]
        try:
            commits = self._repository.land(self._tip, changes, verified, together)
        except Moved:
            self._fetch()
            self._moved(self._repository.tip())
            return
        except Held as held:
            self._get_stuck(self._held_text(held))
            return
        self._taken()
        train.landed, self._tip = place, commits[-1]
        for key, commit in zip(keys, commits, strict=True):
            passenger = self._passengers.pop(key)
            if isinstance(passenger, Add):
                of = (passenger.issue_id, passenger.attempt, commit)
                together = issues if verified else ()
                self._landed(passenger, messages.Landed(*of, verified, together))
        self.say(messages.Tip(self._tip, self.settings.landing.branch, bool(verified) or None))
        self.queue.advanced(place)
        self._again_seconds, self._remote_seconds = AGAIN_SECONDS[0], REMOTE_SECONDS[0]
        self._into_due = True
        try:
            self._move_into()
        finally:
            self._run_after()

    def _move_into(self) -> None:
        """Move the user's branch, if that is due. Raises ``GitError``; then the next look tries
        again."""
        if self._into_due:
            into = self._repository.move_into(self._tip)
            self._into_due = False
            if into is not None:
                self.say(into)

    def _contained(self, key: str) -> None:
        passenger = self._passengers[key]
        if self._awaits(key):
            self._show(key, GateVerdict.GREEN, "it brings nothing that is not there")
        elif isinstance(passenger, Add):
            del self._passengers[key]
            self._tell_forge(passenger, lambda: self._is_over(passenger, self._tip))

    def _show(self, key: str, verdict: GateVerdict, why: str) -> None:
        """Report the verdict on a branch that awaits approval, which is added again once it may
        land; propose a branch that needs a pull request. Raises ``GitError``."""
        add = self._passengers.get(key)
        if not isinstance(add, Add):
            return
        del self._passengers[key]
        if add.awaits:
            of = (add.issue_id, add.commit, verdict.value, self._tip)
            self.say(messages.GatedAhead(*of, why))
        elif self._reviews is not None:
            train, reviews = self._train_of(key), self._reviews
            coupled = train.coupled[train.keys.index(key)]
            self._tell_forge(add, lambda: reviews.passed(add, train.base, coupled))

    def _is_over(self, add: Add, commit: str) -> None:
        """Report that a branch has nothing that is not there, or as which pull request it was
        merged. Raises ``GitError``."""
        if self._reviews is None or not self._reviews.contained(add):
            of = (add.issue_id, add.attempt, commit)
            self._landed(add, messages.Landed(*of, contained=True))

    def _tell_forge(self, add: Add, tell: Callable[[], None]) -> None:
        """Tell the forge about a branch. If that fails, with ``RemoteTrouble``, the branch is added
        again later."""
        self._unread[add.issue_id] = add
        with of_forge():
            tell()
        self._unread.pop(add.issue_id, None)

    def _refuse_conflict(self, key: str, found: Conflict) -> None:
        add = self._passengers.pop(key)
        assert isinstance(add, Add)
        if not found.files:
            self._refuse(add, "branch", found.text)
            return
        against = self._landed_since(add, found.files)
        self._refuse(add, "conflict", found.text, found.files, against)

    def _convict(self, key: str, *, was_red: bool) -> None:
        add, result = self._passengers.get(key), self._said_of(key)
        if not isinstance(add, Add):
            return  # The branch was withdrawn while git failed.
        why, against = result.why, self._landed_since(add) if was_red else ()
        if not was_red:
            tried = time.monotonic() - self._no_verdicts_since.pop(key, time.monotonic())
            why = f"no verdict, tried for {tried:.0f} s: {why}"
        text = "\n".join(part for part in (why, result.text) if part)
        self._refuse(add, "verify" if was_red else "gate", text, against=against)

    def _train_of(self, key: str) -> _Train:
        return self._trains[max(n for n, each in self._trains.items() if key in each.keys)]

    def _said_of(self, key: str) -> GateResult:
        """Return the result of the last gate of this branch that was not green."""
        train = self._train_of(key)
        tree = train.at(train.keys.index(key) + 1)[1]
        return self._bad.get(tree, GateResult(GateVerdict.NONE))

    def _try_later(self, key: str, times: int) -> None:
        now, why = time.monotonic(), self._said_of(key).why
        seconds = NO_VERDICTS_SHARES[times - 1] * self.settings.landing.rules.gate_retry_seconds
        self._no_verdicts_since.setdefault(key, now)
        self._later[key] = now + seconds
        add = self._passengers.get(key)
        if isinstance(add, Add):
            self.say(messages.WithoutVerdict(add.issue_id, add.attempt, why, times, seconds))

    def _refuse(
        self,
        add: Add,
        why: str,
        text: str,
        files: tuple[str, ...] = (),
        against: tuple[str, ...] = (),
    ) -> None:
        if self._reviews is not None:
            self._reviews.withdraw(add.issue_id)
        of = (add.issue_id, add.attempt, why, _shortened(text))
        self.say(messages.Refused(*of, _named(files), self._tip, against))

    def _landed_since(self, add: Add, files: tuple[str, ...] = ()) -> tuple[str, ...]:
        try:
            # A program may not have as many arguments as there are conflicts.
            found = list(self._repository.landed(add.base, self._tip, _named(files)))
        except (git.GitError, OSError):
            return ()  # Only helps the agent that fixes it: the conviction is reported in any case.
        names = dict.fromkeys(each.issue_id for each in found if each.issue_id)
        return tuple(names)[:AGAINST_MAX]

    # --- pauses -----------------------------------------------------------------------------------

    def _say_pause(self, pause: PauseReason | None) -> None:
        if pause is None:
            self._again_at = None
            self.say(messages.LandingResumed())
            return
        branch, files = self.settings.landing.branch, tuple[str, ...]()
        bad = self._bad.get(self._tip_tree(), GateResult(GateVerdict.NONE))
        match pause:
            case PauseReason.TIP:
                why = f"{branch} at {self._tip[:12]} does not pass by itself: {bad.why}"
            case PauseReason.GATE:
                why = f"verify gave no verdict on {branch} at {self._tip[:12]}: {bad.why}"
            case PauseReason.FIRST:
                follow = self._passengers.get(FOLLOWED)
                if not isinstance(follow, Follow):
                    return  # The user's branch has landed, or is gone, while git failed.
                of = f"{follow.branch} at {follow.commit[:12]}"
                bad = self._said_of(FOLLOWED) if self._conflict is None else bad
                is_red = bad.verdict is GateVerdict.RED
                how = "does not pass" if is_red else "gave no verdict"
                why = f"with {of} verify {how} on {branch}: {bad.why}"
                if self._conflict is not None:
                    why, files = f"{of} does not merge with {branch}", self._conflict.files
                    # This also helps for a commit that was amended after it had landed.
                    folder = shlex.quote(self.settings.worktrees.checkout)
                    why += f"; 'git -C {folder} merge {branch}' brings both together"
                    self._conflict = None
            case _:
                assert_never(pause)
        if pause is not PauseReason.FIRST:
            self._again_at = time.monotonic() + self._again_seconds
            self._again_seconds = min(self._again_seconds * 2, AGAIN_SECONDS[1])
        self.say(messages.LandingPaused(why, _named(files)))

    # --- after ------------------------------------------------------------------------------------

    def _run_after(self) -> None:
        command = self.settings.landing.rules.after
        if command is None:
            return
        if self._after is not None:
            self._after.runs_again = True
            return
        added = {"BW_BRANCH": self.settings.landing.branch, "BW_TIP": self._tip}
        with open(self._folder / "after.log", "wb") as log:
            process = subprocess.Popen(
                ["sh", "-c", command],
                cwd=self.settings.worktrees.checkout,
                env=os.environ | added,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._after = _After(process, system.exit_descriptor(process.pid))
        self.selector.register(self._after.pidfd, selectors.EVENT_READ, self._after_ended)

    def _after_ended(self) -> None:
        after, self._after = self._after, None
        assert after is not None
        self._idle = False
        self.selector.unregister(after.pidfd)
        os.close(after.pidfd)
        status = after.process.wait()
        text = (self._folder / "after.log").read_bytes()[-AFTER_TAIL_BYTES:] if status else b""
        self.say(messages.After(status, text.decode("utf-8", "replace")))
        if after.runs_again:
            self._run_after()


def _named(files: tuple[str, ...]) -> tuple[str, ...]:
    """Return as many of the names as fit into a message."""
    ends = accumulate(len(os.fsencode(name)) + 1 for name in files)
    return tuple(name for name, end in zip(files, ends, strict=True) if end <= NAMES_BYTES_MAX)


def _shortened(text: str) -> str:
    """Return the text, or its beginning and its end if it is too long for a message."""
    if len(text) <= TEXT_CHARS_MAX:
        return text
    half = TEXT_CHARS_MAX // 2
    return f"{text[:half]}\n... {len(text) - 2 * half:,} characters left out ...\n{text[-half:]}"


def take_lock(settings: LanderSettings) -> int:
    """Take the repository's landing lock, and return its descriptor, which holds it while open.
    Raises ``CannotLand``."""
    path = Path(settings.worktrees.common, LOCK)
    until = time.monotonic() + LOCK_SECONDS
    while (lock := try_lock(path)) is None:
        if time.monotonic() >= until:
            raise CannotLand("another lander is at work in this repository")
        time.sleep(0.05)
    return lock


def _ended(pidfd: int, seconds: float) -> bool:
    with selectors.DefaultSelector() as selector:
        selector.register(pidfd, selectors.EVENT_READ)
        return bool(selector.select(max(0.0, seconds)))
