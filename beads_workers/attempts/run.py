"""One attempt of an agent: ``python -m beads_workers.attempts.run``, an ``Assignment`` on stdin.

The agent works; its changes are committed; ``--verify`` and the reviewer check them. Their findings
go back to the same session, in as many rounds as are allowed. The receipt says what came of it.
Source: docs/AGENTS.md.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from beads_workers.agents.adapter import Permission, load
from beads_workers.agents.events import Kind
from beads_workers.agents.texts import is_of_model, sentence
from beads_workers.agents.verdict import WINDOWS, Verdict, last_question, question_of, said_outcome
from beads_workers.attempts import review
from beads_workers.attempts.agent import AttemptContext, WorkingAgent
from beads_workers.attempts.delivered import delivered_by_us
from beads_workers.attempts.git_calls import Misplaced
from beads_workers.attempts.guards import (
    guard_environment,
    read_settings,
    refusals,
    write_answers,
    write_settings,
)
from beads_workers.attempts.log import MaskedLog
from beads_workers.attempts.process import AgentNotStarted, Clocks, Hearing, run_agent
from beads_workers.attempts.prompts import first_prompt, mend_prompt, told_since
from beads_workers.attempts.work import BrokenWorktree, CannotCommit, Changes, Workplace
from beads_workers.core.base import limits
from beads_workers.core.base.model import OutcomeKind
from beads_workers.core.base.text import some
from beads_workers.core.records import assignment
from beads_workers.core.records.landing import Mend
from beads_workers.core.records.receipts import Receipt, Tokens
from beads_workers.runtime.kernel import system
from beads_workers.runtime.usage_file import UsageFile
from beads_workers.worktrees.git import GitError, GitNoAnswer

VERIFY_TAIL_BYTES = 16_384
VERIFY_LINES_SHOWN = 60
COMMIT_TEXT_CHARS_MAX = 2000

CANNOT_READ = "git does not say what was done"
CANNOT_COMMIT = "its work cannot be committed"

REFUSED = (Kind.LIMITED, Kind.NEEDS_PERSON, Kind.TRANSIENT)
"""Verdicts that are about the account, and not about the issue."""


class AgentAttempt:
    """One attempt. ``run`` returns the answer; ``end`` asks the attempt to end with what it has."""

    def __init__(self, asked: assignment.Assignment) -> None:
        self._asked = asked
        folder = str(Path.cwd())
        self._place = Workplace.enter(folder, asked.issue_id, asked.attempt, asked.run_id)
        self._place.trailers, self._place.agent = asked.trailers, asked.agent.name
        self._place.pushes = asked.pushes_submodules
        self._guards = Path(asked.guards)
        self._log = MaskedLog(os.environ)
        self._flags: list[str] = []
        self._asked_of_us: list[str] = []
        self._rounds = 0
        self._verified = False
        self._is_told = False
        self._standing: tuple[str, ...] = ()
        self._unmerged = ""
        self._tree = ""
        self._is_renewed = False
        guarded = guard_environment(os.environ, folder, asked.issue_id, self._guards)
        self._around = AttemptContext(
            environment={**os.environ, **guarded},
            log=self._log,
            usage=UsageFile(asked.usage_file),
            clocks=Clocks(asked.asking.stall_seconds, term_seconds=asked.term_seconds),
            must_end=lambda: self._is_told,
            pays_overage=asked.asking.overage,
            changed=self._changed,
            tell=self._tell,
            settings=write_settings(asked.issue_id, self._guards),
            asks=self._may_ask_by_tool(folder),
        )
        self._worker = WorkingAgent(asked.agent, self._around, earlier=self._earlier())
        self._refused: assignment.AgentSpec | None = None
        self._unkept = ""
        """What git or the machine could not do with the work, for no fault of the agent; empty:
        nothing."""

    def _may_ask_by_tool(self, folder: str) -> bool:
        agent = load(self._asked.agent.adapter)
        if agent is None or not (agent.has_hook and self._asked.may_ask):
            return False
        folders = (folder, os.environ.get("BW_CHECKOUT", folder))
        arguments = self._asked.agent.arguments
        return not agent.hooks_off(arguments, os.environ, folders, read_settings)

    def end(self) -> None:
        """Ask the attempt to end."""
        self._is_told = True

    def run(self) -> assignment.AttemptAnswer:
        """Work, check and mend; return the answer. Raises ``AgentNotStarted``."""
        try:
            verdict, lesson = self._work_and_check()
        except GitError as error:
            verdict, lesson = Verdict(Kind.UNFINISHED, str(error)), ""
            self._unkept = _fault(error)
        except OSError as error:  # A full disk, no memory, too many files.
            why = f"{error.filename or 'nothing can be written'}: {error.strerror}"
            verdict, lesson, self._unkept = Verdict(Kind.UNFINISHED, why), "", CANNOT_COMMIT
        finally:
            self._keep()
        return self._answer(verdict, lesson)

    # --- rounds -----------------------------------------------------------------------------------

    def _work_and_check(self) -> tuple[Verdict, str]:
        """Return the verdict, and what the next attempt should know."""
        verdict = self._begin()
        while verdict.kind in (Kind.DONE, Kind.NO_CHANGE):
            found: str | Verdict = self._commit(verdict)
            if not found:
                verdict = self._as_it_is(verdict)
                found = self._check(verdict)
            if isinstance(found, Verdict):
                return found, ""
            if not found:
                return verdict, ""
            why = found.partition("\n")[0]
            if self._is_unchanged() and not (self._is_renewed or self._is_told):
                verdict = self._renew(
                    f"{why}, and it changed nothing", mend_prompt(self._asked, found)
                )
                continue
            more = self._rounds < self._asked.asking.fix_rounds and not self._is_told
            if not (more and self._worker.can_go_on):
                return Verdict(Kind.UNFINISHED, why, text=verdict.text), found
            self._rounds += 1
            self._log.say(f"round {self._rounds} of {self._asked.asking.fix_rounds}: {why}")
            verdict = self._ask(mend_prompt(self._asked, found), resume=True)
        return verdict, ""

    @property
    def _may_be_unchanged(self) -> bool:
        """Whether the work may be done without a change: the issue says so, or a reviewer checks
        it."""
        return self._asked.allows_no_change or self._asked.review is not None

    def _earlier(self) -> Receipt | None:
        """Return the receipt of the attempt whose session goes on; None: a new session begins.

        A new one begins if the session's memory does not belong to this worktree. The same holds if
        the session claimed that nothing was left to do while nothing was done: it would claim that
        again. See ``_is_unchanged``.
        """
        earlier = self._asked.earlier
        if earlier is None or not earlier.session or not self._asked.resumes:
            return None
        elsewhere = earlier.branch not in ("", self._place.branch())
        return None if elsewhere or earlier.verdict == Kind.NO_CHANGE.value else earlier

    def _begin(self) -> Verdict:
        earlier = self._earlier()
        # A killed attempt may have left HEAD elsewhere.
        self._come_back()
        if self._asked.repair is not None:
            self._merge(self._asked.repair)
        if earlier is not None and self._worker.adapter.resumes:
            if earlier.refused and self._changes().any:
                # The work was there; only its reviewer was refused.
                return Verdict(Kind.DONE, text=earlier.message)
            self._is_unchanged()
            verdict = self._resume(earlier.call)
            if verdict.session_lost:
                return self._renew("its session is gone")
            is_empty = verdict.kind is Kind.NO_CHANGE and not said_outcome(verdict.text)[0]
            if is_empty and not (self._may_be_unchanged or self._is_told):
                return self._renew("it changed nothing")
            return verdict
        self._worker = WorkingAgent(self._asked.agent, self._around)
        return self._ask(self._first_prompt(resumed=False), resume=False)

    def _resume(self, call: str) -> Verdict:
        """Go on in the session: at the call that a person has answered, else with a prompt."""
        found = told_since(self._asked)
        if call and found and self._around.asks and self._asked.repair is None:
            write_answers(self._guards, call, found)
            verdict = self._ask("", resume=True)
            if not verdict.session_lost:
                return verdict
            self._log.say("its session does not wait at the question any more")
        return self._ask(self._first_prompt(resumed=True), resume=True)

    def _renew(self, why: str, found: str = "") -> Verdict:
        """Begin again in a new session, once; ``found``: text added to the prompt, after the
        issue."""
        self._log.say(f"{why}: a new session begins")
        self._is_renewed = True
        self._worker = WorkingAgent(self._asked.agent, self._around)
        prompt = self._first_prompt(resumed=False, spare=len(found.encode()))
        return self._ask(f"{prompt}\n\n{found}" if found else prompt, resume=False)

    def _is_unchanged(self) -> bool:
        """Return whether the work is as it was at the last call. A resumed session may remember
        what a kill has undone, and say for ever that all is done."""
        before = self._tree
        try:
            self._tree = self._place.whole_tree() if self._place.own else ""
        except GitError:
            self._tree = ""
        return self._tree == before != ""

    def _merge(self, repair: Mend) -> None:
        """Merge what has landed into the attempt's branch; conflicts are left in the files, to be
        resolved by the agent."""
        try:
            self._standing = self._place.merge(repair.tip)
        except GitNoAnswer:
            raise
        except (CannotCommit, GitError) as error:
            self._unmerged = str(error)
            self._log.say(f"what has landed cannot be merged: {error}")
            return
        marks = f", conflicts in {', '.join(self._standing)}" if self._standing else ""
        self._log.say(f"merged what has landed, {repair.tip[:12]}{marks}")

    def _first_prompt(self, *, resumed: bool, spare: int = 0) -> str:
        """Return the first prompt; ``spare``: bytes to be left for text behind it."""
        room = self._worker.adapter.prompt_bytes_max
        room = room and room - spare - 2
        ends = delivered_by_us(self._asked)
        own, standing = self._place.own, self._standing
        return first_prompt(
            self._asked,
            ends,
            resumed=resumed,
            worktree=own,
            room=room,
            standing=standing,
            unmerged=self._unmerged,
            submodules=[each.path for each in self._place.submodules()],
        )

    def _ask(self, prompt: str, *, resume: bool) -> Verdict:
        money = self._asked.money
        if money is not None:
            money = max(0.01, money - (self._around.usage.spent()[1] or 0.0))
        began = self._place.head() if self._place.own and self._asked.verify is not None else ""
        self._place.rest(on=False)
        verdict = self._worker.work(prompt, resume=resume, money=money)
        self._asked_of_us += self._worker.tally.asked
        if verdict.kind is Kind.DONE and verdict.why and not self._can_prove(began):
            return replace(verdict, kind=Kind.UNFINISHED)
        return verdict

    def _can_prove(self, began: str) -> bool:
        """Return whether ``--verify`` may call work done whose agent failed at its end: the agent
        has committed all of it since that commit."""
        asked = self._asked
        if asked.verify is None or asked.independent or not self._place.own:
            return False
        head, _, files = self._place.status()
        return head != began and not files

    # --- checks -----------------------------------------------------------------------------------

    def _check(self, verdict: Verdict) -> str | Verdict:
        """Return what is wrong with the work, for the agent; "" if nothing is. Return a verdict if
        nobody could find out."""
        if verdict.kind is Kind.NO_CHANGE and not self._may_be_unchanged:
            return ""
        return self._verify() or self._review(verdict)

    def _commit(self, verdict: Verdict) -> str:
        """Commit what is not committed; return why that is not possible, if the agent can mend it.
        Raises ``GitError``."""
        if verdict.kind is Kind.NO_CHANGE:
            return ""
        try:
            words = verdict.text.strip()[:COMMIT_TEXT_CHARS_MAX]
            commit = self._place.commit(self._asked.title, words)
        except BrokenWorktree:
            raise  # The agent cannot mend it.
        except (CannotCommit, Misplaced) as error:
            return f"your work cannot be committed: {error}"
        if commit is not None:
            self._log.say(f"committed for it: {commit[:12]}")
        return ""

    def _as_it_is(self, verdict: Verdict) -> Verdict:
        """Return the verdict, corrected: only after the commit is it known whether anything has
        changed."""
        if verdict.kind is Kind.DONE and self._place.own and not self._place.changes().any:
            return replace(verdict, kind=Kind.NO_CHANGE)
        return verdict

    def _verify(self) -> str:
        command = self._asked.verify
        if command is None:
            return ""
        self._tell("running verify")
        self._log.say(f"verify: {command}")
        was_clean = self._place.own and not self._place.status()[2]
        status, lines, said = self._run_verify(command)
        self._verified = status == 0
        if was_clean:
            self._take_back_from_verify()
        if self._verified:
            return ""
        from beads_workers.core.workers.worker import reason  # Most work passes.

        said = said or reason("\n".join(lines)) or f"exit status {status}"
        output = "\n".join(lines)
        return f"verify failed: {said}\n\n$ {command} (exit status {status})\n{output}"

    def _take_back_from_verify(self) -> None:
        """Undo what a check writes, which is no work: in tracked files it would be in the way of a
        merge; other files would be committed, or keep the worktree after its landing."""
        if written := self._place.status()[2]:
            self._place.discard()
            self._log.say(f"verify wrote {some(written)}: taken back")

    def _run_verify(self, command: str) -> tuple[int, list[str], str]:
        """Run the command; return its exit status, the end of its output, and what failed."""
        from beads_workers.core.base.failures import FailureReader  # Others have no check.

        tail, reader = bytearray(), FailureReader(str(Path.cwd()))

        def keep_tail(data: bytes) -> None:
            reader.feed(data)
            tail.extend(data)
            del tail[:-VERIFY_TAIL_BYTES]
            self._log.write(data)

        self._place.rest(on=False)
        ended = run_agent(
            ("sh", "-c", command),
            None,
            dict(os.environ),
            Hearing(keep_tail, keep_tail, lambda: None),
            Clocks(None, term_seconds=self._asked.term_seconds),
            lambda: self._is_told,
        )
        self._place.rest(on=True)
        self._log.flush()
        lines = [line.rstrip() for line in tail.decode("utf-8", "replace").splitlines()]
        lines = [line for line in lines if line][-VERIFY_LINES_SHOWN:]
        return ended.status, lines, reader.reason()

    def _review(self, verdict: Verdict) -> str | Verdict:
        spec = self._asked.review
        if spec is None or self._is_told:
            return ""
        self._log.say(f"review by {spec.name}")
        reviewer = WorkingAgent(spec, self._around, Permission.READ)
        asked = review.prompt(self._asked, self._place.diff(), verdict.text)
        self._place.rest(on=False)
        answer = reviewer.work(asked, resume=False, money=None)
        if answer.kind in REFUSED:
            self._refused = spec
            return replace(answer, text=verdict.text)
        found = review.read(answer.text)
        if found is None:
            # Nobody has reviewed the work: that is no approval, and nothing that the agent could
            # mend.
            return Verdict(
                Kind.UNFINISHED, f"the review by {spec.name} cannot be read: {answer.why}"
            )
        self._log.say("the reviewer approves" if found.approved else "the reviewer has remarks")
        return "" if found.approved else f"the reviewer has remarks\n\n{found.remarks}"

    # --- answer -----------------------------------------------------------------------------------

    def _answer(self, verdict: Verdict, lesson: str) -> assignment.AttemptAnswer:
        verdict, receipt = self._with_work(verdict, self._receipt(verdict, lesson))
        why = verdict.why
        match verdict.kind:
            case Kind.UNFINISHED if self._unkept and not self._is_told:
                return assignment.not_kept(f"{self._unkept}: {why}", receipt)
            case Kind.DONE:
                return assignment.AttemptAnswer(OutcomeKind.SUCCESS, "", receipt)
            case Kind.NO_CHANGE if self._may_be_unchanged:
                return assignment.AttemptAnswer(OutcomeKind.SUCCESS, "", receipt)
            case Kind.NO_CHANGE if outcome := said_outcome(verdict.text)[0]:
                # Another attempt would say the same: a person has to look at it.
                said = "says that no change is needed"
                if outcome == "done":
                    said = "changed nothing and says that it is done"
                receipt = replace(receipt, flags=(*receipt.flags, said))
                error = f"it {said}: {why}"
                return assignment.AttemptAnswer(OutcomeKind.NOT_FOUND, error, receipt)
            case Kind.QUESTION if self._asked.may_ask and not self._is_told:
                self._place.keep_for_answer()
                question = verdict.question or question_of(verdict.text) or why
                receipt = replace(receipt, question=question, call=verdict.call)
                return assignment.AttemptAnswer(OutcomeKind.QUESTION, why, receipt)
            case Kind.NO_CHANGE:
                error = f"it ended well and changed nothing: {why}"
                return assignment.AttemptAnswer(OutcomeKind.ERROR, error, receipt)
            case _ if self._is_told:
                return assignment.AttemptAnswer(OutcomeKind.CANCELLED, why, receipt)
            case kind if kind in REFUSED:
                return assignment.AttemptAnswer(OutcomeKind.RETRY, why, receipt)
            case _:
                return assignment.AttemptAnswer(OutcomeKind.ERROR, why, receipt)

    def _receipt(self, verdict: Verdict, lesson: str) -> Receipt:
        worker = self._worker
        usage, money, unpriced = self._around.usage.spent()
        return Receipt(
            verdict=verdict.kind.value,
            why=verdict.why,
            agent=worker.spec.name,
            refused=self._refused.name if self._refused else "",
            model=worker.spec.model,
            session=worker.session,
            totals=worker.totals(),
            usage=usage,
            money=money,
            unpriced=unpriced,
            until=verdict.until,
            doubted=verdict.doubted,
            window=WINDOWS.get(verdict.window, verdict.window),
            limited_model=verdict.model or self._missing_model(verdict),
            verify=self._asked.verify or "",
            verified=self._verified,
            independent=self._asked.independent,
            rounds=self._rounds,
            denied=(*worker.tally.denied, *refusals(self._guards)),
            message=verdict.text[-limits.LESSON_CHARS_MAX :],
            lesson=lesson[: limits.LESSON_CHARS_MAX],
            flags=(*self._flags, *self._questions(verdict)),
            was_cut=self._around.usage.was_cut,
        )

    def _questions(self, verdict: Verdict) -> list[str]:
        """Return what the agent asked before it went on all the same: a person should look at
        that."""
        if verdict.kind is Kind.QUESTION:
            return []
        asked = [*self._asked_of_us]
        if verdict.kind is Kind.DONE:
            asked.append(last_question(verdict.text))
        shown = (sentence(each) for each in dict.fromkeys(asked) if each)
        return [f"it asked: {each}" for each in shown]

    def _missing_model(self, verdict: Verdict) -> str:
        is_missing = verdict.kind is Kind.NEEDS_PERSON and is_of_model(verdict.why)
        return (self._refused or self._worker.spec).model if is_missing else ""

    def _with_work(self, verdict: Verdict, receipt: Receipt) -> tuple[Verdict, Receipt]:
        """Return verdict and receipt with what git says of the work: nothing is done until its
        branch was read."""
        try:
            wrong = self._place.trespass(self._place.began)
            receipt = self._place.receipt(receipt)
        except GitError as error:
            receipt = replace(receipt, flags=(*receipt.flags, f"git: {error}"))
            if verdict.kind not in (Kind.DONE, Kind.NO_CHANGE):
                return verdict, receipt
            self._unkept = _fault(error)
            kind = Kind.UNFINISHED
            receipt = replace(receipt, verdict=kind.value, why=str(error))
            return Verdict(kind, str(error), text=verdict.text), receipt
        if not wrong or verdict.kind not in (Kind.DONE, Kind.NO_CHANGE):
            return verdict, receipt
        receipt = replace(receipt, verdict=Kind.UNFINISHED.value, why=wrong)
        return Verdict(Kind.UNFINISHED, wrong, text=verdict.text), receipt

    # --- what the agents ask for meanwhile --------------------------------------------------------

    def _changes(self) -> Changes:
        try:
            return self._place.changes()
        except GitError:
            return Changes(known=False)

    def _come_back(self) -> bool:
        """Bring HEAD to the attempt's own branch; return whether it is there. Raises
        ``GitError``."""
        try:
            if done := self._place.come_back():
                self._log.say(done)
        except CannotCommit:
            return False  # The commit reports why.
        return True

    def _changed(self) -> bool | None:
        self._place.rest(on=True)  # The agent is over, with all that it has started.
        try:
            if not self._come_back():
                return True
        except GitError:
            return None
        changes = self._changes()
        return changes.any if changes.known else None

    def _keep(self) -> None:
        try:
            hidden = self._place.hidden()
            if self._place.own and (not self._come_back() or self._changes().any or hidden[0]):
                self._flags += self._place.keep_all(hidden)
        except (GitError, OSError) as error:
            if not self._place.is_broken:
                self._flags.append(f"its tree could not be kept: {error}")

    def _tell(self, activity: str) -> None:
        usage, money, _ = self._around.usage.spent()
        progress: dict[str, Any] = {"activity": activity}
        if usage:
            progress["tokens"] = sum(usage.values(), Tokens()).total
        if money is not None:
            progress["money"] = round(money, 6)
        if full := [w.utilization for w in self._worker.tally.limits.values() if w.utilization]:
            progress["utilization"] = max(full)
        _print({"progress": progress})


def main() -> int:
    """Run the attempt, see the module text; return 0 once there is an answer, another status if
    nothing could be tried."""
    asked = assignment.read_assignment(sys.stdin.read())
    system.adopt()
    try:
        attempt = AgentAttempt(asked)
    except GitError as error:
        return _tell_answer(not_begun(asked, error))
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: attempt.end())
    try:
        answer = attempt.run()
    except AgentNotStarted as error:
        sys.stderr.write(f"cannot start {error}\n")
        return 127 if error.missing else 1
    return _tell_answer(answer)


def not_begun(asked: assignment.Assignment, error: GitError) -> assignment.AttemptAnswer:
    """Return the answer of an attempt whose worktree cannot be read; its session may go on
    later."""
    nothing_used = Receipt()
    receipt = replace(
        asked.earlier or nothing_used,
        verdict=Kind.UNFINISHED.value,
        why=str(error),
        usage=nothing_used.usage,
        money=None,
        unpriced=0,
        refused="",
        flags=(),
    )
    return assignment.not_kept(f"{CANNOT_READ}: {error}", receipt)


def _tell_answer(answer: assignment.AttemptAnswer) -> int:
    """Print the answer for the worker; return an exit status: without an answer nothing is done."""
    return 0 if _print({"answer": assignment.to_fields(answer)}) else 1


def _print(row: dict[str, Any]) -> bool:
    """Write a line; return whether all of it was written."""
    data = json.dumps(row).encode() + b"\n"
    try:
        while data:
            data = data[os.write(1, data) :]
    except OSError:
        return False  # The worker is gone; the worktree and the usage file have what counts.
    return True


def _fault(error: GitError) -> str:
    """Return what git or the machine could not do; "" if the agent is the reason."""
    if isinstance(error, GitNoAnswer):
        return CANNOT_READ
    return "" if isinstance(error, Misplaced) else CANNOT_COMMIT


if __name__ == "__main__":
    gc.freeze()  # Loaded modules are no garbage; Python would look for some at its end, too.
    sys.exit(main())
