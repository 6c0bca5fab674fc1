"""What a process that calls functions tells its worker: other people's code runs in it."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from beads_workers.core.base import limits
from beads_workers.core.base.framing import ProtocolError
from beads_workers.core.base.model import Outcome, OutcomeKind
from beads_workers.executors.functions import NOTHING, CallResult
from beads_workers.runtime.functions import (
    CallAnswer,
    CallAsked,
    answer_line,
    asking_line,
    parse_answer,
)
from tests.fuzz.inputs import objects
from tests.fuzz.parser import Parser, require, well_typed

NUMBER = 7
KINDS = {kind.value for kind in OutcomeKind} - {"timeout", "cancelled", "lost"}
ANSWERS: list[dict[str, Any]] = [
    {"n": NUMBER, "kind": "success"},
    {"n": NUMBER, "kind": "success", "result": {"sent": [1, "two"]}, "spent": True},
    {"n": NUMBER, "kind": "success", "in_file": True},
    {"n": NUMBER, "kind": "error", "error": "ValueError: no", "spent": True},
    {"n": NUMBER, "kind": "retry", "error": "later", "retry_after_seconds": 2.5},
    {"n": NUMBER, "kind": "success", "result": "<exit>", "is_stopping": True},
    {"n": NUMBER, "control": "running", "control_data": {"uuid": "u"}},
    {"n": NUMBER, "kind": "not_found", "error": "there is no such function"},
]


def _read(line: bytes) -> CallAnswer | CallAsked:
    return parse_answer(line, NUMBER)


def answers_hold(parse: Any, data: bytes) -> None:
    try:
        said: CallAnswer | CallAsked = parse(data)
    except ProtocolError as error:
        require(len(str(error)) <= 300, "the reason is as long as the line")
        return
    well_typed(said)
    if isinstance(said, CallAsked):
        line = asking_line(NUMBER, said.command, said.control_data)
        require(parse(line) == said, "it is not read as it is written")
        return
    outcome = said.outcome
    require(json.loads(data)["n"] == NUMBER, "an answer to another call")
    require(outcome.kind.value in KINDS, "it is not for a function to say that")
    require(len(outcome.error) <= limits.ERROR_CHARS_MAX, "an error without end")
    require(len(outcome.result) <= limits.RESULT_CHARS_MAX, "a result without end")
    after = outcome.retry_after_seconds
    require(after is None or 0 <= after <= limits.RETRY_AFTER_MAX_SECONDS, "parked for ever")
    written = CallResult(outcome.kind, outcome.result, outcome.error, "", after, said.is_stopping)
    if outcome.kind is OutcomeKind.SUCCESS and not outcome.result and said.is_stopping:
        written = replace(written, result="null")
    elif outcome.kind is OutcomeKind.SUCCESS and not outcome.result:
        written = NOTHING
    line = answer_line(NUMBER, written, in_file=said.in_file, spent=said.spent)
    require(parse(line) == said, "it is not read as it is written")


def _any_number(line: bytes) -> CallAnswer | CallAsked:
    """Planted bug: an answer is an answer, whatever the question was."""
    fields = json.loads(line)
    return parse_answer(line, fields["n"] if type(fields["n"]) is int else NUMBER)


def _any_delay(line: bytes) -> CallAnswer | CallAsked:
    """Planted bug: takes a delay as it comes."""
    said = _read(line)
    after = json.loads(line).get("retry_after_seconds")
    if isinstance(said, CallAsked):
        return said
    if said.outcome.kind is OutcomeKind.RETRY and isinstance(after, int | float):
        return replace(said, outcome=Outcome(OutcomeKind.RETRY, said.outcome.error, after))
    return said


PARSERS = [
    Parser("answers of functions", ("runtime/functions.py",), _read, objects(ANSWERS), answers_hold,
           {"another call's": _any_number, "any delay": _any_delay}),
]  # fmt: skip
