"""The verdict on a run, from its events and its end, by one order for all agents.

The exit status alone is not enough. claude exits with 0 when it is interrupted or was refused all
of its tools. It exits with 1 for a limit, a login, an overload and its own caps alike.
"""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, tzinfo

from beads_workers.agents.events import Kind, RunFailure, Tally
from beads_workers.agents.texts import RESET_SECONDS_MAX, recognise, reset, sentence
from beads_workers.core.base.model import value


@value
class RunEnding:
    """End of the process, and its results."""

    # The exit status; None if ``signal`` ended it.
    status: int | None
    signal: int | None = None
    # The clock of ours that ended it: ``timeout``, ``stall``, ``result`` (it lingered after its
    # result), else empty.
    clock: str = ""
    # Whether there is a commit or a change; None if that is unknown.
    changed: bool | None = None
    # Epoch seconds.
    at: float = 0.0
    # Zone of the process, for times of day in its texts; None: that of this machine.
    zone: tzinfo | None = UTC


@value
class Verdict:
    """Verdict on a run."""

    kind: Kind
    # One short sentence for people.
    why: str = ""
    # When a limit ends, in epoch seconds; None if that is unknown.
    until: float | None = None
    # The agent's answer.
    text: str = ""
    # The next run must begin a new session; nothing was tried in this one.
    session_lost: bool = False
    # Window of a limit, as in ``Limit``; empty if unknown.
    window: str = ""
    # The only model that the limit is for; empty if unknown.
    model: str = ""
    # What the agent asked a person by a tool.
    question: str = ""
    # As in ``FinalResult``.
    call: str = ""
    # As in ``AccountRefusal``.
    doubted: bool = False


WINDOWS = {
    "five_hour": "5-hour limit",
    "seven_day": "weekly limit",
    "seven_day_opus": "weekly limit of Opus",
    "seven_day_sonnet": "weekly limit of Sonnet",
    "overage": "limit of extra usage",
}
"""Windows of accounts as people know them."""

_LASTS = {"five_hour": 5 * 3600.0}
_LASTS_MOST = 7 * 86_400.0
"""Longest time to the reset of a window, in seconds; without an own one, that of a week."""

CLOCKS = {
    "timeout": "it ran into its time-out",
    "stall": "it said nothing for too long",
    "result": "it did not end after its result",
}


def judge(tally: Tally, ending: RunEnding) -> Verdict:
    """Return the verdict, in the order of ``Kind``. A run without a good result has failed
    somehow.

    ``DONE`` with a ``why``: the work may be there, but the process failed and nothing says why.
    Only the caller can prove the work.
    """
    result, why = tally.result, _cut_short(ending)
    is_good = result is not None and result.ok
    if not is_good and (failure := _failure(tally)):
        return _failed(failure, tally, ending)
    # It reported its end, or it is a version that prints nothing; so it was not cut short.
    has_ended = result is not None or not (tally.began or tally.printed)
    if has_ended and ending.status and not ending.clock and ending.changed:
        found = succeeded(tally, ending)
        return replace(found, why=why) if found.kind is Kind.DONE else found
    if not is_good:
        return _unfinished(tally, ending)
    return Verdict(Kind.UNFINISHED, why, text=tally.text) if why else succeeded(tally, ending)


def succeeded(tally: Tally, ending: RunEnding) -> Verdict:
    """Return the verdict on a run that ended well by its own account: is the work there?"""
    if tally.result is not None and tally.result.call:
        return _asked(tally, tally.result.question, tally.result.call)
    outcome, reason = said_outcome(tally.text)
    if outcome in ("blocked", "question"):
        why = sentence(reason) or f"it says: {outcome}"
        return Verdict(Kind.QUESTION, why, text=tally.text)
    if tally.denied and not ending.changed:
        tools = ", ".join(sorted(tally.denied)[:3])
        return Verdict(Kind.UNFINISHED, f"refused: {tools}; nothing changed", text=tally.text)
    if tally.asked and not outcome and not ending.changed:
        return _asked(tally, "\n".join(dict.fromkeys(tally.asked)))
    if not outcome and not ending.changed and (asked := last_question(tally.text, changed=False)):
        return Verdict(Kind.QUESTION, sentence(asked), text=tally.text)
    if ending.changed is False or (outcome == "no change needed" and not ending.changed):
        why = sentence(reason or tally.text) or "it changed nothing"
        return Verdict(Kind.NO_CHANGE, why, text=tally.text)
    return Verdict(Kind.DONE, text=tally.text)


def _asked(tally: Tally, question: str, call: str = "") -> Verdict:
    why = sentence(question)
    return Verdict(Kind.QUESTION, why, text=tally.text, question=question, call=call)


def said_outcome(text: str) -> tuple[str, str]:
    """Parse the last line as the prompt asks for it (``Outcome: blocked: no such file``). Return
    the outcome (``done``, ``no change needed``, ``blocked``, ``question``) and the reason; ""
    without such a line."""
    lines = text.rstrip().rsplit("\n", 1)
    match = _OUTCOME.match(lines[-1])
    return (match[1].lower(), match[2].strip(" *_`")) if match else ("", "")


_OUTCOME = re.compile(
    r"[\s>*_`#-]*outcome[\s*_`]*:[\s*_`]*(done|no change needed|blocked|question)\b"
    r"[\s*_`:.,–—-]*(.*)",
    re.IGNORECASE,
)


def question_of(text: str) -> str:
    """Return what an answer asks a person: its last words, with the choices that stand there."""
    text = text.rstrip()
    lines = text.rsplit("\n", 1)
    outcome, reason = said_outcome(text)
    if outcome in ("blocked", "question"):
        lines[-1] = reason
    return "\n".join(lines).strip()[-QUESTION_CHARS_MAX:]


QUESTION_CHARS_MAX = 2000
"""Maximum length of a question: people read it in a notification and on a small screen."""


def last_question(text: str, *, changed: bool = True) -> str:
    """Return the sentence that asks a person at the end of an answer, before the outcome line; ""
    if there is none. An offer ("Anything else?") asks nothing.

    ``changed``: there is work, so the answer has to end with the question itself. Without a change,
    choices may follow, a request ("let me know"), and what the agent would do then.
    """
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if lines and _OUTCOME.match(lines[-1]):
        lines.pop()
    for line in reversed(lines[-_LINES_SEARCHED:]):
        for said in [line] if _CHOICE.match(line) else reversed(_SENTENCES.split(line)):
            if _OFFERS.search(said):
                continue
            if _QUESTION.search(said) or (not changed and _REQUESTS.search(said)):
                return said
            if changed or not (_CHOICE.match(said) or _FOLLOWS.match(said)):
                return ""
    return ""


_LINES_SEARCHED = 20
_SENTENCES = re.compile(r"(?<=[.!?])[*_`)\"']* +(?=[*_`(\"']*[A-Z])")
_QUESTION = re.compile(r"[?\uff1f][\s*_`)\"']*$")
_OFFERS = re.compile(
    r"\banything (?:else|more)\b|\b(?:any|other|further|more) (?:changes|help|questions)\b"
    r"|\b(?:feel free|let me know|tell me)\b[^?]{0,60}\bif\b|\b(?:do|work on) next\b",
    re.IGNORECASE,
)
_REQUESTS = re.compile(
    r"\b(?:let me know|tell me (?:how|what|where|whether|which|who)"
    r"|please (?:advise|answer|choose|clarify|confirm|decide|provide|reply|specify|tell)"
    r"|(?:need|await|waiting for|without) (?:your|an?|more|some|further)\b.{0,40}\b(?:answer"
    r"|approval|choice|clarification|confirmation|decision|details|guidance|information|input))\b",
    re.IGNORECASE,
)
_CHOICE = re.compile(r"[*_`>\s]*(?:[-+*\u2022]|\w{1,2}[.):]|option \w)\s|\(")
_FOLLOWS = re.compile(
    r"[*_`\s]*(?:i (?:can|could|will|would)|i.{0,6} (?:not|waiting)|i.d|i.ll|i \w+n.t|both|either"
    r"|if|my|no|nothing|once|or|otherwise|reply|then|until|without)\b",
    re.IGNORECASE,
)
"""Beginnings of sentences that may stand behind a question: what the agent did not do, or would
do."""


def of_text(text: str, kind: Kind = Kind.UNFINISHED) -> RunFailure:
    """Return a failure that is known by its text only; ``kind``: if no pattern matches."""
    pattern = recognise(text)
    if pattern is None:
        return RunFailure(kind, text)
    return RunFailure(pattern.kind, text, session_lost=pattern.session_lost)


def of_status(status: int, text: str) -> RunFailure:
    """Return the failure of a request: by its text if a pattern matches, else by its HTTP status
    (0: none)."""
    if recognise(text):
        return of_text(text)
    if status in (401, 402, 403):
        return RunFailure(Kind.NEEDS_PERSON, text)
    if status in (408, 429) or status >= 500:
        return RunFailure(Kind.TRANSIENT, text)
    return RunFailure(Kind.UNFINISHED, text)


def of_quoted(status: re.Match[str] | None, text: str) -> RunFailure:
    """Return such a failure for a text that quotes the status: the first group of the match, if
    any."""
    return of_status(int(status[1] or 0) if status else 0, text)


def printed_failure(tally: Tally) -> RunFailure | None:
    """Return a failure found in the last lines that are no events; None if there is none."""
    for line in reversed(tally.printed):
        if recognise(line):
            return of_text(line)
    return None


def _failure(tally: Tally) -> RunFailure | None:
    if tally.failure:
        return tally.failure
    if tally.result is None:
        if tally.retrying:
            return RunFailure(tally.retrying.kind, tally.retrying.why)
        return printed_failure(tally)
    return of_text(tally.text) if recognise(tally.text) else None


def _failed(failure: RunFailure, tally: Tally, ending: RunEnding) -> Verdict:
    why = WINDOWS.get(failure.text) or sentence(failure.text) or failure.kind.value
    if failure.kind is Kind.LIMITED:
        return _limited(failure, why, tally, ending)
    return Verdict(failure.kind, why, text=tally.text, session_lost=failure.session_lost)


def _limited(failure: RunFailure, why: str, tally: Tally, ending: RunEnding) -> Verdict:
    full = [limit for limit in tally.limits.values() if limit.rejected]
    window, model = (full[-1].window, full[-1].model) if full else ("", "")
    until = failure.until or reset(failure.text, ending.at, ending.zone)
    wait = until - ending.at if until and ending.at else 0.0
    if wait > RESET_SECONDS_MAX:
        until = None
    doubted = failure.until is None or wait > _LASTS.get(window, _LASTS_MOST)
    return Verdict(
        Kind.LIMITED, why, until, tally.text, window=window, model=model, doubted=doubted
    )


def _unfinished(tally: Tally, ending: RunEnding) -> Verdict:
    why = _cut_short(ending)
    if tally.result is not None:
        why = sentence(tally.text) or why or "it ended with an error"
    elif not why or (ending.signal is None and not ending.clock):
        why = sentence(_complaint(tally)) or why or "it ended without a result"
    return Verdict(Kind.UNFINISHED, why, text=tally.text)


def _complaint(tally: Tally) -> str:
    """Return its last line, preferably the last that calls itself an error: a trace may follow."""
    errors = [line for line in tally.printed if line.lower().startswith("error")]
    return next(reversed(errors or tally.printed), "")


def _cut_short(ending: RunEnding) -> str:
    """Return why the process did not end well by itself; "" if it did."""
    if ending.clock == "result":
        return ""  # Only a process that has reported its result lingers after it.
    if ending.clock:
        return CLOCKS.get(ending.clock, f"it was ended: {ending.clock}")
    if ending.signal is not None:
        return f"it was ended by signal {ending.signal}"
    return f"it exited with status {ending.status}" if ending.status else ""
