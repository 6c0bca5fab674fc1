"""What is made of how an attempt ended: by what its worker says, or by its worker's death."""

from __future__ import annotations

from dataclasses import replace

from beads_workers.core.held import Held, lost
from beads_workers.core.message_types import CANNOT_START, NOT_BEGUN, RECALLED, Done, Failed
from beads_workers.core.outcomes import Outcome, OutcomeKind, kept, note_of
from beads_workers.core.parts import Parts
from beads_workers.core.replies import Replies
from beads_workers.core.roster import Connection
from beads_workers.core.states import ConnState, RunState


class Judging:
    """One per orchestrator."""

    def __init__(self, parts: Parts, replies: Replies) -> None:
        self._parts = parts
        self._desk = parts.desk
        self._tasks = parts.tasks
        self._replies = replies
        self.command_unusable = ""
        """Why no task of this fleet can run, once a worker of ours has found out."""

    def judge(self, connection: Connection, message: Done | Failed) -> bool:
        """DONE or FAILED; False where no attempt has ended, because none had begun."""
        held = self._tasks.held[message.issue_id]
        if message.is_stopping:
            self._replies.will_leave(connection)
        self._replies.ended(connection, held.job.issue_id)
        failed = message if isinstance(message, Failed) else None
        unbegun = bool(failed and failed.error_detail == NOT_BEGUN and connection.keeps)
        if failed and unbegun and self._goes_on(held):
            self._tasks.not_begun(held, failed.error)
            return False
        for warning in message.warnings:
            self._desk.note("warning", f"{connection.worker_id}: {warning}")
        if connection.own and failed and failed.error_detail == CANNOT_START:
            self.command_unusable = failed.error
        outcome = _outcome(message, bool(held.job.call or self._parts.settings.work.function))
        asked = unbegun or self._asked_to_end(connection, held)
        if outcome.kind is OutcomeKind.CANCELLED and not asked:
            # Nobody asked for that: free like a retry, but it backs off, and not for ever.
            outcome = replace(outcome, kind=OutcomeKind.RETRY)
        self._tasks.conclude(held, outcome, message.duration_ms)
        if connection.own:
            self._parts.crew.worked(connection.pid)
        return True

    def _goes_on(self, held: Held) -> bool:
        """Whether what was not begun is for somebody else, because nobody has taken it away."""
        runs = self._parts.state in (RunState.RUNNING, RunState.PAUSED)
        return runs and held.cancelled in ("", RECALLED)

    def _asked_to_end(self, connection: Connection, held: Held) -> bool:
        told_to_leave = connection.state in (ConnState.ENDING, ConnState.LEAVING)
        return bool(told_to_leave or held.cancelled or self.command_unusable)

    def conclude_loose(self, held: Held) -> None:
        """A worker's death charges the attempt; one that we asked for does not."""
        if held.behind and self._goes_on(held):
            self._tasks.not_begun(held, f"its worker (pid {held.holder_pid}) died before")
            return
        ends = self._parts.state in (RunState.STOPPING, RunState.SETTLING)
        if held.cancelled or held.behind or ends:
            outcome = Outcome(OutcomeKind.CANCELLED, held.cancelled or "stopped")
        else:
            outcome = lost(held.holder_pid)
        if held.overdue:
            outcome = Outcome(OutcomeKind.TIMEOUT, "timed out, and its worker with it")
        self._tasks.conclude(held, outcome)


def _outcome(message: Done | Failed, of_function: bool) -> Outcome:
    if isinstance(message, Done):
        note, result = note_of(message.result), kept(message.result, of_function=of_function)
        return Outcome(OutcomeKind.SUCCESS, "", None, note, result, message.result_file)
    if message.error == "busy" or message.error_detail == CANNOT_START:
        return Outcome(OutcomeKind.CANCELLED, message.error)
    return Outcome(message.outcome, message.error, message.retry_after_seconds)
