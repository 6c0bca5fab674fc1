"""Codex' stream, line by line as 0.169 wrote it."""

from __future__ import annotations

import json
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from beads_workers.agents.adapter import AgentRequest, Permission
from beads_workers.agents.events import (
    Denied,
    Doing,
    FinalResult,
    Kind,
    OpenQuestion,
    Retrying,
    RunFailure,
    Session,
    Usage,
    Words,
)
from beads_workers.agents.totals import Totals
from beads_workers.agents.verdict import RunEnding
from tests.agents.streams import GOOD, NOW, adapter, events, stream, tally_of

STARTED = {"type": "thread.started", "thread_id": "t1"}
BERLIN = ZoneInfo("Europe/Berlin")


def failed(message: str) -> list[dict[str, Any]]:
    """How a turn ends badly."""
    return [
        {"type": "error", "message": message},
        {"type": "turn.failed", "error": {"message": message}},
    ]


def turn(tokens: int, output: int) -> dict[str, Any]:
    """How a turn ends well, with the total of the thread."""
    usage = {"input_tokens": tokens, "cached_input_tokens": 0, "output_tokens": output}
    return {"type": "turn.completed", "usage": usage}


def test_a_good_run_is_these_events() -> None:
    assert events("codex", GOOD["codex"]) == [
        Session("t1"),
        Doing("running", "pytest -q"),
        Doing("editing", "shop/cart.py"),
        Words("All is there."),
        Usage("", 600, 20, 400),
        FinalResult("All is there.", True),
    ]


def test_the_invocation_asks_nobody_and_reads_stdin() -> None:
    assert adapter("codex").arguments(AgentRequest("Do it.", "u-1", model="o9")).argv == (
        *("codex", "exec", "--json", "--sandbox", "workspace-write"),
        *("-c", 'approval_policy="never"', "-c", "allow_login_shell=false", "-m", "o9", "-"),
    )
    again = adapter("codex").arguments(
        AgentRequest("Go on.", "t1", resume=True, permission=Permission.READ)
    )
    assert again.argv[3:5] == ("--sandbox", "read-only")
    assert again.argv[-3:] == ("resume", "t1", "-")


@pytest.mark.parametrize(
    ("message", "until"),
    [
        ("You’ve hit your usage limit. Visit x or try again at 11:20 AM.", 1_795_342_800.0),
        ("You've hit your usage limit. Try again at Nov 25th, 2026 8:25 AM.", 1_795_591_500.0),
        ("You’ve hit your usage limit. To get more, ask your admin or try again later.", None),
    ],
)
def test_a_limit_names_its_reset_in_the_zone_of_the_process(
    message: str, until: float | None
) -> None:
    for lines in (failed(message), failed(message)[:1]):
        tally = tally_of("codex", stream(STARTED, *lines))
        verdict = adapter("codex").verdict(tally, RunEnding(1, at=NOW, zone=BERLIN))
        assert (verdict.kind, verdict.until) == (Kind.LIMITED, until)


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("exceeded retry limit, last status: 429 Too Many Requests", Kind.TRANSIENT),
        ("We’re currently experiencing high demand, wait", Kind.TRANSIENT),
        ("Quota exceeded. Check your plan and billing details.", Kind.NEEDS_PERSON),
        ("unexpected status 401 Unauthorized: no, url: x", Kind.NEEDS_PERSON),
        ("Incomplete response returned, reason: max_output_tokens", Kind.UNFINISHED),
    ],
)
def test_a_failed_turn_is_known_by_its_sentence(message: str, expected: Kind) -> None:
    tally = tally_of("codex", stream(STARTED, *failed(message)))
    assert adapter("codex").verdict(tally, RunEnding(1)).kind is expected


def test_an_error_line_is_not_the_end() -> None:
    again = "Reconnecting... 1/5 (unexpected status 401 Unauthorized: x)"
    data = stream(STARTED, {"type": "error", "message": again})
    assert events("codex", data)[1] == Retrying(again, Kind.NEEDS_PERSON)
    tally = tally_of("codex", data + GOOD["codex"])
    assert adapter("codex").verdict(tally, RunEnding(0, changed=True)).kind is Kind.DONE
    assert events("codex", stream({"type": "error", "message": "hm"})) == [Retrying("hm")]


def test_a_command_that_nobody_allowed_is_refused() -> None:
    item = {"type": "command_execution", "command": "git push", "status": "declined"}
    data = stream({"type": "item.completed", "item": item})
    assert events("codex", data) == [Denied("git push")]


def test_a_total_of_the_thread_counts_what_is_new() -> None:
    first = adapter("codex").parser("o9")
    assert first.feed(stream(STARTED, turn(1000, 20)))[1] == Usage("o9", 1000, 20)
    again = adapter("codex").parser("o9", first.totals())
    assert again.feed(stream(STARTED, turn(2000, 40)))[1] == Usage("o9", 1000, 20)
    other = adapter("codex").parser("o9", Totals("t0", first.totals().reported))
    assert other.feed(stream(STARTED, turn(1000, 20)))[1] == Usage("o9", 1000, 20)


def record(number: int, tokens: int) -> str:
    """A line of the file of its session."""
    usage = {"input_tokens": tokens, "cached_input_tokens": 0, "output_tokens": 0}
    payload = {"response_id": f"r{number}", "usage": usage}
    return json.dumps({"type": "token_usage_record", "payload": payload})


@pytest.mark.parametrize("late", [True, False])
def test_answers_in_the_file_of_its_session_and_the_total_count_once(late: bool) -> None:
    first = adapter("codex").parser("o9")
    first.feed(stream(STARTED))
    # Killed after the second answer, which it has no total of.
    assert [first.usage_told(record(n, 100)) for n in (1, 2, 2)] == [
        [Usage("o9", 100)],
        [Usage("o9", 100)],
        [],
    ]
    again = adapter("codex").parser("o9", first.totals())
    again.feed(stream(STARTED))
    said = []
    for step in ("total", "answers") if late else ("answers", "total"):
        if step == "total":  # Its own sum lacks the answer after which it was killed.
            said += again.feed(stream(turn(100 + 300, 0)))
        else:
            said += [e for n in (3, 4) for e in again.usage_told(record(n, 150))]
    assert sum(event.tokens for event in said if isinstance(event, Usage)) == 300


@pytest.mark.parametrize("line", ["", "token_usage_record", '{"type": "token_usage_record"}', "[]"])
def test_other_lines_of_that_file_say_nothing(line: str) -> None:
    assert adapter("codex").parser().usage_told(line) == []


def test_a_question_with_which_it_goes_on_stands_in_that_file() -> None:
    questions = [{"title": "In euros?", "options": ["yes", "no"]}, {"title": ""}]
    item = {"type": "AgentMessage", "delivery": "async", "questions": questions}
    payload = {"type": "item_completed", "item": item}
    line = json.dumps({"type": "event_msg", "payload": payload})
    assert adapter("codex").parser().usage_told(line) == [OpenQuestion("In euros? (yes / no)")]


def test_the_file_of_a_session_lies_below_the_day_of_its_id() -> None:
    session = "01a2051e-2551-7ff1-8343-c033fdf6c90f"
    found = adapter("codex").usage_files(session, {"HOME": "/home/me"})
    assert ("/home/me/.codex/sessions/2026/11/22", f"rollout-*-{session}.jsonl") in found
    elsewhere = adapter("codex").usage_files(session, {"HOME": "/home/me", "CODEX_HOME": "/c"})
    assert elsewhere[0][0].startswith("/c/sessions/")
    assert adapter("codex").usage_files("../*", {}) == []


def test_what_it_could_not_begin_is_told_on_stderr() -> None:
    data = b"thread/resume failed: no rollout found for thread id t9\n"
    verdict = adapter("codex").verdict(tally_of("codex", data), RunEnding(1))
    assert (verdict.kind, verdict.session_lost) == (Kind.UNFINISHED, True)


def test_what_it_complained_of_stands_before_its_trace() -> None:
    data = b"Error: it is empty (code 3)\n\nStack backtrace:\n   0: <unknown>\n   1: <unknown>\n"
    verdict = adapter("codex").verdict(tally_of("codex", data), RunEnding(1))
    assert verdict.why == "Error: it is empty (code 3)"


def test_a_turn_that_fails_without_a_word_has_failed() -> None:
    found = events("codex", stream({"type": "turn.failed"}))
    assert found == [
        RunFailure(Kind.UNFINISHED, "the turn failed"),
        FinalResult("the turn failed", False),
    ]
