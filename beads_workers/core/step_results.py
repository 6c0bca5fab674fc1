"""What the end of a step means: exit statuses and output turned into an outcome.

Source: docs/PROTOCOL.md, "Failure and retry". The exit status decides; output is only for
people.
"""

from __future__ import annotations

import re

from beads_workers.core import limits
from beads_workers.core.message_types import CANNOT_START, Task
from beads_workers.core.outcomes import Outcome, OutcomeKind
from beads_workers.core.plans import Step, StepKind
from beads_workers.core.worker_events import StepAnswered, StepEnded, StepNotStarted, StepOver

EX_TEMPFAIL = 75
"""sysexits.h: try again later, without fault of the task."""

NOT_EXECUTABLE, NOT_FOUND = 126, 127
"""What shells, and programs like ``env``, exit with when they could not run a command."""

ERROR_TEXT_SHOWN = 300
"""Characters of a quoted output line inside a longer error text."""


def failure(step: Step, ended: StepOver) -> Outcome:
    """The outcome of a step that did not succeed, for every kind of step.

    A claim or a preparation that fails is no fault of the task: a retry charges nothing, and
    backs off.
    """
    if isinstance(ended, StepAnswered):
        return ended.outcome
    match step.kind:
        case StepKind.CLAIM:
            return Outcome(OutcomeKind.RETRY, _cap(f"claim failed: {_why(ended)}"))
        case StepKind.PREPARE:
            return Outcome(OutcomeKind.RETRY, _cap(f"no worktree: {_why(ended)}"))
        case StepKind.VALIDATE:
            return _not_valid(ended)
        case StepKind.VERIFY:
            return Outcome(_kind(ended), _cap(f"verify failed: {_why(ended)}"))
        case _:
            return Outcome(_kind(ended), _cap(_run_error(step, ended)))


def passed(ended: StepOver) -> bool:
    """Whether a step came to a good end."""
    if isinstance(ended, StepAnswered):
        return ended.outcome.kind is OutcomeKind.SUCCESS
    return isinstance(ended, StepEnded) and ended.status == 0


def reported(ended: StepOver) -> Outcome:
    """The outcome of a task that had succeeded before its report: whatever came of that, and
    whoever ended it, the work is done."""
    if isinstance(ended, StepEnded) and ended.status == 0:
        return Outcome(OutcomeKind.SUCCESS, note=last_line(ended.tail))
    return Outcome(OutcomeKind.SUCCESS)


def timed_out(step: Step, seconds: float, ended: StepOver) -> Outcome:
    """The outcome of a task that was ended after its timeout; what came before it is no fault
    of it, nor is what its executor answers for: that it was never begun, or ended for another's
    sake."""
    if isinstance(ended, StepAnswered) and ended.outcome.kind is OutcomeKind.RETRY:
        return ended.outcome
    if step.kind is StepKind.CLAIM:
        return Outcome(OutcomeKind.RETRY, "claim failed: the tracker did not answer")
    if step.kind is StepKind.PREPARE:
        return Outcome(OutcomeKind.RETRY, f"no worktree: not ready after {seconds:g} s")
    return Outcome(OutcomeKind.TIMEOUT, f"timed out after {seconds:g} s")


def detail(step: Step, task: Task, ended: StepOver) -> str:
    """``CANNOT_START`` where no task of this fleet can run: its own command is missing."""
    missing = isinstance(ended, StepNotStarted) and ended.missing
    of_fleet = step.kind is StepKind.RUN and not task.payload.get("command")
    return CANNOT_START if missing and of_fleet else ""


def last_line(tail: str) -> str:
    """The last line of ``tail`` that shows anything, without what would steer a terminal."""
    for line in reversed(_LINE_END.split(_ESCAPE.sub("", tail))):
        if shown := _CONTROL.sub("", line).strip():
            return shown[: limits.ERROR_CHARS_MAX].rstrip()
    return ""


def _not_valid(ended: StepEnded | StepNotStarted) -> Outcome:
    """What becomes of a script that its validator did not pass: one that could not say anything
    has not refused it, but nothing is run without its word."""
    why = _why(ended)
    if isinstance(ended, StepNotStarted) or ended.status in (
        EX_TEMPFAIL,
        NOT_EXECUTABLE,
        NOT_FOUND,
    ):
        return Outcome(OutcomeKind.RETRY, _cap(f"not validated: {why}"))
    if ended.status < 0:
        return Outcome(OutcomeKind.ERROR, _cap(f"not validated: {why}"))
    return Outcome(OutcomeKind.NOT_FOUND, _cap(f"refused: {why}"))


def _kind(ended: StepEnded | StepNotStarted) -> OutcomeKind:
    if isinstance(ended, StepNotStarted):
        # A machine that is full is no fault of the task.
        return OutcomeKind.RETRY if ended.hindered else OutcomeKind.ERROR
    if ended.status == EX_TEMPFAIL:
        return OutcomeKind.RETRY
    return OutcomeKind.ERROR


def _run_error(step: Step, ended: StepEnded | StepNotStarted) -> str:
    if isinstance(ended, StepNotStarted):
        return f"Task execution failed: {ended.error}"
    said = last_line(ended.tail)[:ERROR_TEXT_SHOWN]
    if ended.status == NOT_FOUND:
        return f"Task execution failed: command not found: {said or step.name}"
    if ended.status == NOT_EXECUTABLE:
        return f"Task execution failed: not executable: {said or step.name}"
    return _why(ended)


def _why(ended: StepEnded | StepNotStarted) -> str:
    if isinstance(ended, StepNotStarted):
        return ended.error
    said = last_line(ended.tail)
    if ended.status < 0:
        killed = _LIMITS.get(ended.signal) or f"killed by signal {ended.signal or -ended.status}"
        return f"{killed} ({said[:ERROR_TEXT_SHOWN]})" if said else killed
    return said or f"exit status {ended.status}"


_LIMITS = {"XCPU": "used up its CPU time", "XFSZ": "a file grew beyond its limit"}
"""Signals that say by themselves which limit was met."""


def _cap(text: str) -> str:
    return text[: limits.ERROR_CHARS_MAX]


_LINE_END = re.compile(r"[\r\n\v\f\x85\u2028\u2029]")
_ESCAPE = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # colours, cursor movements
    r"|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)?"  # titles, links and other strings
    r"|\x1b[ -/]*[0-~]"
)
_CONTROL = re.compile("[\x00-\x08\x0e-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")
