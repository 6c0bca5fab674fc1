"""The state of a run, and how it ends.

Source: docs/OPERATIONS.md, "Life of a fleet". The moves are in ``states.RUN``.
"""

from __future__ import annotations

from typing import assert_never

from beads_workers.core.base import limits
from beads_workers.core.base.model import FLEETS, IssueId
from beads_workers.core.base.states import RUN, ConnState, RunReaction, RunState, RunStimulus, step
from beads_workers.core.records.issues import OUT, Standing
from beads_workers.core.records.journal import BudgetSpent, RunChanged, RunEnded
from beads_workers.core.schedule.claims import ClaimScheduler
from beads_workers.core.schedule.commands import End, HangUp
from beads_workers.core.schedule.events import FatalError, StopAsked
from beads_workers.core.schedule.hours import ENDED, Hours
from beads_workers.core.schedule.inflight import InFlight
from beads_workers.core.schedule.parts import Parts
from beads_workers.core.workers.connections import Connections
from beads_workers.core.workers.sender import Sender

STOP_DEADLINE = "stop deadline"
"""Timer key: workers that are still there now are killed."""

SETTLE_TIMEOUT = "settle timeout"
"""Timer key: writes that are still pending are left to the next start."""

IDLE_OUT = "idle out"
"""Timer key: --idle-timeout."""

RUN_OUT = "run out"
"""Timer key: --max-runtime."""

BREAKER_HINT = "put that right, then 'beads-workers resume'"
"""Advice after a spawn storm has opened the circuit breaker; the end of such a pause's reason."""


_WORKING = (RunState.RECOVERING, RunState.WAITING, RunState.RUNNING, RunState.PAUSED)


class Ending:
    """Owns the state of the run."""

    def __init__(
        self, parts: Parts, sender: Sender, connections: Connections, scheduler: ClaimScheduler
    ) -> None:
        self._parts = parts
        self._effects = parts.effects
        self._sender = sender
        self._connections = connections
        self._scheduler = scheduler
        self._hours = Hours(self._effects, parts.settings.start_at, parts.settings.until)
        self._stop_seconds = parts.settings.ending.stop_seconds
        self._settle_seconds = limits.SETTLE_TIMEOUT_SECONDS
        self._exit_code = 0
        self._why = ""
        self._kills = 0
        self._lands_on = False
        """Whether this stop waits until the queue has landed."""

    def move(self, stimulus: RunStimulus, reason: str = "") -> RunReaction:
        """Change the state by the table, and do what goes with it."""
        before = self._parts.state
        move = step(RUN, before, stimulus)
        if move.to is not before:
            self._parts.state, self._parts.state_reason = move.to, reason
            until = (self._hours.start_at or 0.0) if move.to is RunState.WAITING else 0.0
            self._effects.write(RunChanged(move.to.name.lower(), reason, until))
        if before is RunState.WAITING:
            self._count_runtime()
        self._react(move.reaction)
        return move.reaction

    def begin(self) -> None:
        """Set the timers of a run that begins now."""
        self.look_at_hours()
        if not self._hours.is_early:
            self._count_runtime()

    def _count_runtime(self) -> None:
        if (seconds := self._parts.settings.ending.runtime_max_seconds) is not None:
            self._effects.timers.set(RUN_OUT, self._effects.now + seconds)

    def recovered(self) -> None:
        """Begin to work, or wait for ``--start-at``: the earlier run is settled."""
        self._parts.recovered = True
        if self._hours.is_early:
            self.move(RunStimulus.RECOVERED_EARLY, "--start-at")
        else:
            self.move(RunStimulus.RECOVERED)

    def look_at_hours(self) -> None:
        """Begin to work, or begin nothing more, if the wall clock says so."""
        if self._hours.is_over:
            if self._parts.state in _WORKING:
                self.stop(StopAsked(drain=True, reason="idle_timeout", why=ENDED))
            return
        if self._parts.state is RunState.WAITING and not self._hours.is_early:
            self.move(RunStimulus.BEGIN)
        self._hours.look_later()

    def stop(self, asked: StopAsked) -> None:
        """Stop, gracefully or now; asking again can only make it sooner."""
        if self._parts.state is RunState.ENDED:
            return
        self._lands_on = False
        if asked.seconds is not None:
            self._stop_seconds = (
                min(self._stop_seconds, asked.seconds)
                if (self._parts.state is RunState.STOPPING)
                else asked.seconds
            )
        self._exit_code = self._exit_code or asked.exit_code
        if asked.why:
            self._why = asked.why
            self._effects.note("error" if asked.exit_code else "info", asked.why)
        if self._parts.state not in (RunState.STOPPING, RunState.SETTLING):
            self._parts.reason = asked.reason
        if asked.drain:
            self.move(RunStimulus.DRAIN, asked.why or asked.reason)
        else:
            self.move(RunStimulus.STOP, asked.reason)

    def consider(self) -> None:
        """Check after every event whether the run ends, or takes a step towards its end."""
        state = self._parts.state
        if self._connections.command_unusable and state in (RunState.RUNNING, RunState.PAUSED):
            why = f"the command cannot be run: {self._connections.command_unusable}"
            self.stop(StopAsked(reason="error", exit_code=1, why=why))
        elif self._parts.breaker.is_open and state in (RunState.RUNNING, RunState.PAUSED):
            self._defy_breaker()
        elif state is RunState.RUNNING and (spent := self._parts.agents.spent()) is not None:
            self._keep_to_budget(spent)
        elif state is RunState.PAUSED and self._parts.state_reason.endswith(BREAKER_HINT):
            self.move(RunStimulus.RESUME, "an attempt has succeeded after all")
        elif state is RunState.RUNNING and self._nobody_comes():
            self.stop(StopAsked(reason="error", exit_code=7, why="nobody mended the login"))
        elif state is RunState.RUNNING and (unlanded := self._lands_nothing()) is not None:
            self.stop(StopAsked(reason="error", exit_code=7, why=unlanded))
        elif state is RunState.RUNNING:
            self._consider_empty()
        elif state is RunState.WAITING and self._crashed_out():
            self._give_up()
        elif state is RunState.DRAINING and not (
            self._parts.tasks.running_here() or self._parts.landings.is_busy()
        ):
            self.move(RunStimulus.DRAINED, "drained")
        lands = self._lands_on and self._parts.landings.is_busy()
        if self._parts.state is RunState.STOPPING and self._everybody_left() and not lands:
            self.move(RunStimulus.ALL_LEFT)
            self._all_left()
        if self._parts.state is RunState.SETTLING:
            if self._parts.degraded.gone:
                due = self._effects.now + limits.FORGETFUL_SETTLE_SECONDS
                self._effects.timers.set_earlier(SETTLE_TIMEOUT, due)
            tasks = self._parts.tasks
            nothing = len(tasks.in_flight) == len(tasks.orphaned())
            trips = self._parts.round_trips
            unsure = trips.claims_unknown and not self._parts.push
            if nothing and not (trips.pending or trips.busy or unsure):
                self.move(RunStimulus.SETTLED)

    def _defy_breaker(self) -> None:
        """Begin nothing new: everything fails at its start.
        Running attempts may finish, and show otherwise."""
        text = self._parts.breaker.text()
        if self._parts.settings.ending.until_empty:
            # Perhaps no person is there to type 'resume'.
            why = f"{text}; put that right, then start again"
            self.stop(StopAsked(reason="error", exit_code=7, why=why, drain=True))
        else:
            self.move(RunStimulus.PAUSE, f"{text}; {BREAKER_HINT}")

    def _keep_to_budget(self, spent: str) -> None:
        """Begin nothing beyond the budget; running attempts come to their end."""
        self._effects.write(BudgetSpent(spent))
        if self._parts.settings.ending.until_empty:
            self.stop(StopAsked(reason="error", exit_code=7, why=spent, drain=True))
        else:
            self.move(RunStimulus.PAUSE, spent)

    def _nobody_comes(self) -> bool:
        """Return whether every account has waited for a person who did not come in time."""
        helpless = self._parts.agents.accounts.helpless_for()
        if helpless is None or self._parts.tasks.in_flight:
            return False
        if helpless < self._parts.settings.pace.person_wait_seconds:
            return False
        # If one model is closed, there may be work for others.
        return self._parts.agents.all_closed() or self._scheduler.found_nothing

    def _lands_nothing(self) -> str | None:
        """Return why ``--until-empty`` ends over branches that a person would have to help."""
        parts = self._parts
        if not parts.settings.ending.until_empty or parts.tasks.running_here():
            return None
        return parts.landings.helpless()

    def settle_timed_out(self) -> None:
        """Settle without the tracker, which had its time; the journal remembers what is pending."""
        if self._parts.state is RunState.SETTLING:
            pending = ", ".join(list(self._parts.round_trips.pending)[:10])
            why = f"left for the next start, the tracker fails: {pending}"
            if not pending:
                why = "the tracker was not asked what is left in our name: the next start does"
            self._effects.note("error", why)
            self._exit_code = self._exit_code or 7
            self.move(RunStimulus.SETTLED)

    def idle_out(self) -> None:
        """Stop: --idle-timeout has passed without work."""
        if self._parts.state is RunState.RUNNING and not self._parts.tasks.in_hand():
            self.stop(StopAsked(reason="idle_timeout", why="idle for long enough"))

    def run_out(self) -> None:
        """Stop: --max-runtime has passed."""
        code = 124 if self._parts.tasks.in_flight or not self._scheduler.found_nothing else 0
        # Done work still lands, unless a person says stop; nothing is mended any more.
        self._parts.landings.mends = False
        self.stop(StopAsked(exit_code=code, why="the time for this run is over"))
        self._lands_on = True

    def _react(self, reaction: RunReaction) -> None:
        match reaction:
            case RunReaction.TAKE:
                self._scheduler.reschedule()
            case RunReaction.STOP_ACCEPTING:
                self._parts.landings.mends = False
                self._parts.tasks.requeue_unsent()
                # Workers that are sent home are not replaced.
                self._parts.supervisor.close()
                for connection in self._parts.registry.in_state(ConnState.READY, ConnState.IDLE):
                    self._sender.shut_down(connection)
            case RunReaction.SHUTDOWN:
                self._shut_down()
            case RunReaction.HASTEN if self._parts.state is RunState.SETTLING:
                if self._stop_seconds == 0.0:
                    self._effects.timers.set_earlier(SETTLE_TIMEOUT, self._effects.now)
            case RunReaction.HASTEN:
                self._effects.timers.set_earlier(
                    STOP_DEADLINE, self._effects.now + self._stop_seconds
                )
            case RunReaction.KILL:
                self._kill()
            case RunReaction.END:
                self._end()
            case RunReaction.NONE | RunReaction.REFUSE:
                pass
            case RunReaction.BUG:
                raise AssertionError(reaction)
            case _:
                assert_never(reaction)

    def _shut_down(self) -> None:
        self._parts.tasks.requeue_unsent()
        self._parts.supervisor.close()
        for connection in self._parts.registry:
            silent = connection.state is ConnState.NEW and not connection.own
            if connection.state not in (ConnState.LEAVING, ConnState.ENDING):
                self._sender.shut_down(connection)
            if silent:
                # The connection may be no worker at all; nobody waits for it.
                self._effects.ask(HangUp(connection.conn_id, "said nothing before the stop"))
        self._effects.timers.set(STOP_DEADLINE, self._effects.now + self._stop_seconds)

    def _kill(self) -> None:
        self._kills += 1
        for member in self._parts.supervisor.alive():
            if member.pid is not None:
                self._parts.supervisor.kill(member.pid)
        for connection in self._parts.registry:
            if not connection.own:
                who = f"{connection.worker_id or 'a connection'} (pid {connection.pid})"
                self._effects.note("warning", f"{who} did not leave; it is not ours to kill")
                connection.overstayed = True
            self._effects.ask(HangUp(connection.conn_id, "did not leave in time"))
        # A worker that was asked for and has no pid yet is killed as soon as it has one. Others may
        # exit because their connections were closed.
        if self._parts.supervisor.alive() or self._kills == 1:
            again = self._effects.now + limits.LAST_LOOK_SECONDS
            self._effects.timers.set(STOP_DEADLINE, again)

    def _everybody_left(self) -> bool:
        if len(self._parts.registry) or self._parts.supervisor.alive():
            return False
        return self._kills > 1 or not self._lost_here()

    def _lost_here(self) -> list[InFlight]:
        return [each for each in self._parts.tasks.orphaned() if not each.issue.inherited]

    def _all_left(self) -> None:
        self._parts.landings.shelve()
        for in_flight in self._parts.tasks.orphaned():
            issue_id, pid = in_flight.job.issue_id, in_flight.issue.lost_pid
            if in_flight.obeyed:
                text = f"{issue_id} goes back although pid {pid} still lives"
                self._effects.note("warning", text)
                self._connections.end_orphaned(in_flight)
                continue
            if (lease := in_flight.issue.lease) is not None:
                until = in_flight.issue.orphaned
                left = max(0.0, until.lease_until - self._effects.epoch) if until else 0.0
                text = f"{issue_id} is left on {lease.host}, for {left:.0f} s at most"
                self._effects.note("error", text)
                self._exit_code = self._exit_code or 1
                continue
            who = f"{in_flight.issue.worker_id} (pid {pid})"
            self._effects.note("error", f"{who} has not left, and keeps {issue_id}")
            self._exit_code = self._exit_code or 1
        # Requeueing must not wait for the end of an earlier rest.
        self._parts.round_trips.hurry()
        self._effects.timers.set(SETTLE_TIMEOUT, self._effects.now + self._settle_seconds)

    def fail(self, fatal: FatalError) -> None:
        """Stop: the run cannot go on.
        Without a journal, patience with the tracker would keep nothing, and nobody can see this
        fleet any more."""
        self.stop(StopAsked(reason="error", exit_code=1, why=fatal.error))
        if fatal.forgets:
            self._settle_seconds = limits.FORGETFUL_SETTLE_SECONDS
            if self._parts.state is RunState.SETTLING:
                due = self._effects.now + self._settle_seconds
                self._effects.timers.set_earlier(SETTLE_TIMEOUT, due)

    def tried(self) -> None:
        """Settle after one more try at the tracker, if its writes have failed for a minute."""
        if self._parts.state is RunState.SETTLING and self._only_failing_closes():
            self.settle_timed_out()

    def _consider_empty(self) -> None:
        parts = self._parts
        if self._crashed_out():
            # Also with issues in hand: no worker is left that could ever work on them.
            self._give_up()
            return
        in_hand = parts.tasks.in_hand() or parts.landings.waiting()
        if in_hand and not self._only_failing_closes():
            self._effects.timers.cancel(IDLE_OUT)
            return
        if (limit := parts.settings.ending.issues_max) is not None and parts.tasks.ended >= limit:
            self.stop(
                StopAsked(
                    reason="idle_timeout",
                    why=f"{limit} {'issue is' if limit == 1 else 'issues are'} done",
                )
            )
        elif parts.settings.ending.until_empty and self._is_empty():
            self.stop(StopAsked(reason="idle_timeout"))
        elif (
            parts.settings.ending.idle_timeout_seconds is not None
            and IDLE_OUT not in self._effects.timers
        ):
            self._effects.timers.set(
                IDLE_OUT, self._effects.now + parts.settings.ending.idle_timeout_seconds
            )

    def _crashed_out(self) -> bool:
        supervisor = self._parts.supervisor
        nobody = not supervisor.members and not len(self._parts.registry)
        return bool(supervisor.crashed_out and nobody)

    def _give_up(self) -> None:
        why = "every worker crashed at its start"
        self.stop(StopAsked(reason="error", exit_code=1, why=why))

    def _is_empty(self) -> bool:
        parts = self._parts
        if parts.agents.waiting():
            return False  # Issues that wait for a reset are not nothing.
        if self._scheduler.unwanted:
            return False  # Nor are those that wait for a worker that accepts them.
        if parts.preparation.is_on:
            return False  # Nor are those that wait for a worktree.
        if parts.landings.is_busy() or parts.landings.waiting() or self._scheduler.others_work:
            return False
        quiet = not parts.round_trips.busy and not parts.retry_state.cooling()
        if parts.round_trips.pending and quiet:
            return self._only_failing_closes()
        return quiet and not parts.tasks.in_flight and self._scheduler.found_nothing

    def _only_failing_closes(self) -> bool:
        # A close that fails for a minute is kept for the next start; it must not keep the run here.
        seconds = self._parts.round_trips.failing_for()
        if seconds is None or seconds < limits.SETTLE_TIMEOUT_SECONDS:
            return False
        return self._parts.tasks.in_flight.keys() <= self._parts.round_trips.pending.keys()

    def _end(self) -> None:
        code = self._exit_code or (7 if self._something_failed() else 0)
        self._effects.write(RunEnded(code, self._why or self._parts.reason))
        round_trips, pending = self._parts.round_trips, self.held()
        # A round trip that is under way, or that failed, may hold claims nobody has heard of.
        unknown = round_trips.busy or round_trips.troubled_now or round_trips.claims_unknown
        settled = not pending and not unknown and not self._lost_here()
        self._effects.ask(End(code, pending, settled))

    def held(self) -> tuple[IssueId, ...]:
        """Return the issues that this run took and whose end the tracker has not heard.
        Issues of a worker that has not left are excluded."""
        tasks = self._parts.tasks
        kept = {in_flight.job.issue_id for in_flight in tasks.orphaned()}
        ours = (issue_id for issue_id in tasks.in_flight if issue_id not in kept)
        return tuple(dict.fromkeys((*ours, *self._parts.round_trips.pending)))

    def _something_failed(self) -> bool:
        # Failures of earlier runs that this one did not touch are not its failures.
        retry_state, issues = self._parts.retry_state, self._effects.issues
        charged = (retry_state.history(each).charged for each in retry_state.failed_here)
        # A branch that could not land is charged to nobody, and stays quarantined all the same.
        stands = (retry_state.standing(each) for each in retry_state.failed_here)
        unfinished = bool(issues.standing(Standing.UNCLOSED)) or any(charged)
        unfinished = unfinished or any(each in OUT for each in stands)
        awaited = (Standing.ASKED, Standing.AWAITS_APPROVAL, Standing.IN_REVIEW, Standing.OCCUPIED)
        waits = any(issues.standing(each) for each in awaited)
        if self._parts.settings.ending.until_empty and waits:
            return True
        runs = [each for each in self._parts.listed.holders if each.startswith(FLEETS)]
        if self._parts.settings.ending.until_empty and runs:
            return True  # Their runs are not done, and perhaps nobody is at work on them.
        return unfinished or bool(self._parts.round_trips.pending) or self._parts.breaker.is_open
