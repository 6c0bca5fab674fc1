"""Claude's stream, line by line as its versions wrote it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from beads_workers.agents.adapter import AgentRequest, Permission, shown
from beads_workers.agents.events import (
    Denied,
    Doing,
    FinalResult,
    Kind,
    Limit,
    OpenQuestion,
    Retrying,
    RunFailure,
    Session,
    Usage,
    Words,
)
from beads_workers.agents.totals import Totals
from beads_workers.agents.verdict import RunEnding
from beads_workers.attempts.guards import read_settings
from tests.agents import streams

RESET = int(streams.NOW) + 3000
REJECTED = {
    "type": "rate_limit_event",
    "rate_limit_info": {
        "status": "rejected",
        "resetsAt": RESET,
        "rateLimitType": "five_hour",
        "overageStatus": "rejected",
        "isUsingOverage": False,
        "unifiedWindows": {
            "five_hour": {"utilization": 1, "resetsAt": RESET, "status": "rejected"},
            "seven_day": {"utilization": 0.4, "resetsAt": RESET + 9, "status": "allowed"},
        },
    },
}
TEXT_OF_LIMIT = "You've hit your 5-hour limit · resets 10:22am (UTC)"


def error(kind: str, text: str, **more: Any) -> dict[str, Any]:
    """An assistant line of an error of the API."""
    message = {"model": "<synthetic>", "content": [{"type": "text", "text": text}]}
    return {"type": "assistant", "error": kind, "message": message, **more}


def failed(text: str, **more: Any) -> dict[str, Any]:
    """The result behind it."""
    fields = {"is_error": True, "result": text, "modelUsage": {}, "total_cost_usd": 0}
    return streams.claude_result(0, 0, 0.0, **{"terminal_reason": "api_error", **fields, **more})


def kind(*lines: dict[str, Any] | str, status: int = 1) -> Kind:
    """The verdict on such a run."""
    tally = streams.tally_of("claude", streams.stream(streams.CLAUDE_INIT, *lines))
    return (
        streams.adapter("claude")
        .verdict(tally, RunEnding(status, changed=True, at=streams.NOW))
        .kind
    )


def test_a_good_run_is_these_events() -> None:
    answer = Usage("opus-1", 1000, 20, 5)
    assert streams.events("claude", streams.GOOD["claude"]) == [
        Session("s1"),
        answer,
        Words("Adding it up."),
        Doing("editing", "shop/cart.py"),
        answer,
        Words("All is there."),
        Usage("opus-1", money=0.005),
        FinalResult("All is there.", True),
    ]


UNWANTED = (
    "--disallowedTools",
    "EnterWorktree,ExitWorktree,EnterPlanMode,ExitPlanMode,ScheduleWakeup",
)


def test_the_invocation_says_its_permissions_and_its_form() -> None:
    found = streams.adapter("claude").arguments(
        AgentRequest("Do it.", "u-1", money=2.5, turns=9, settings="/s.json")
    )
    assert found.argv == (
        *("claude", "-p", "--output-format", "stream-json", "--verbose"),
        *("--permission-mode", "acceptEdits", "--allowedTools", "Bash,Edit,Write,Read,Glob,Grep"),
        *UNWANTED,
        *("--session-id", "u-1", "--max-budget-usd", "2.5", "--max-turns", "9"),
        *("--settings", "/s.json"),
    )
    again = streams.adapter("claude").arguments(
        AgentRequest("Go on.", "u-1", resume=True, model="opus", permission=Permission.ALL)
    )
    assert again.argv[5:] == (
        *("--permission-mode", "bypassPermissions", *UNWANTED),
        *("--resume", "u-1", "--model", "opus"),
    )
    assert again.environment == {"CLAUDE_CODE_DROP_UNAVAILABLE_DEFERRED_TOOL": "1"}
    asks = streams.adapter("claude").arguments(AgentRequest("", "u-1", resume=True, asks=True))
    assert asks.argv[-2:] == ("--permission-prompt-tool", "stdio")
    assert (asks.stdin, asks.environment) == ("", {})


def test_a_limit_of_the_account_has_its_reset() -> None:
    last = error(
        "rate_limit",
        TEXT_OF_LIMIT,
        api_error_status=429,
        api_error="usage_limit_reached",
        api_error_params={"rate_limit_info": REJECTED["rate_limit_info"]},
    )
    data = streams.stream(
        streams.CLAUDE_INIT, REJECTED, last, failed(TEXT_OF_LIMIT, api_error_status=429)
    )
    assert Limit("five_hour", 1.0, RESET, rejected=True) in streams.events("claude", data)
    verdict = streams.adapter("claude").verdict(
        streams.tally_of("claude", data), RunEnding(1, at=streams.NOW)
    )
    assert (verdict.kind, verdict.until) == (Kind.LIMITED, RESET)
    assert verdict.why == TEXT_OF_LIMIT


def test_a_limit_of_an_older_version_has_the_reset_of_its_event() -> None:
    """2.1.197 named no ``api_error``, and its ``terminal_reason`` was ``completed``."""
    last = failed(TEXT_OF_LIMIT, terminal_reason="completed")
    data = streams.stream(streams.CLAUDE_INIT, REJECTED, error("rate_limit", TEXT_OF_LIMIT), last)
    verdict = streams.adapter("claude").verdict(
        streams.tally_of("claude", data), RunEnding(1, at=streams.NOW)
    )
    assert (verdict.kind, verdict.until) == (Kind.LIMITED, RESET)


def test_a_stream_that_is_cut_behind_the_event_is_a_limit() -> None:
    assert kind(REJECTED) is Kind.LIMITED


def test_all_windows_that_are_full_have_to_reset() -> None:
    info = REJECTED["rate_limit_info"]
    assert isinstance(info, dict)
    week = {"utilization": 1, "resetsAt": RESET + 9000, "status": "rejected"}
    both = {**info, "unifiedWindows": {**info["unifiedWindows"], "seven_day": week}}
    found = streams.events(
        "claude", streams.stream({"type": "rate_limit_event", "rate_limit_info": both})
    )
    assert found == [Limit("five_hour", 1.0, RESET + 9000, rejected=True)]


@pytest.mark.parametrize(
    ("info", "limit"),
    [
        (
            {"status": "allowed_warning", "utilization": 0.92, "rateLimitType": "five_hour"},
            Limit("five_hour", 0.92),
        ),
        (
            {"status": "rejected", "resetsAt": 5, "rateLimitType": "seven_day_opus"},
            Limit("seven_day_opus", None, 5, rejected=True, model="opus"),
        ),
        (
            {"status": "rejected", "rateLimitType": "five_hour", "isUsingOverage": True},
            Limit("five_hour", None, None, rejected=True, overage=True),
        ),
        ({"status": "rejected", "isUsingOverage": False}, Limit("")),
        ({}, Limit("")),
    ],
)
def test_windows_are_read(info: dict[str, Any], limit: Limit) -> None:
    data = streams.stream({"type": "rate_limit_event", "rate_limit_info": info})
    assert streams.events("claude", data) == [limit]


@pytest.mark.parametrize(
    ("name", "status", "text", "expected"),
    [
        ("rate_limit", 429, "API Error: Request rejected (429) · slowly", Kind.TRANSIENT),
        ("overloaded", None, "API Error: Repeated 529 Overloaded errors", Kind.TRANSIENT),
        ("server_error", 500, "API Error: 500 Internal server error.", Kind.TRANSIENT),
        ("authentication_failed", 401, "Invalid API key", Kind.NEEDS_PERSON),
        ("account_on_hold", None, "On hold", Kind.NEEDS_PERSON),
        ("billing_error", 400, "Credit balance is too low", Kind.NEEDS_PERSON),
        ("invalid_request", 400, "Credit balance is too low", Kind.NEEDS_PERSON),
        ("unknown", 503, "No idea", Kind.TRANSIENT),
        ("unknown", 403, "No idea", Kind.NEEDS_PERSON),
        ("model_not_found", 404, "There's an issue with the model", Kind.NEEDS_PERSON),
    ],
)
def test_an_error_of_the_api_is_known(
    name: str, status: int | None, text: str, expected: Kind
) -> None:
    lines = error(name, text, api_error_status=status), failed(text, api_error_status=status)
    assert kind(*lines) is expected
    assert kind(lines[0]) is expected


def test_a_success_that_is_an_error_is_none() -> None:
    assert kind(failed("So it is.", terminal_reason="completed"), status=0) is Kind.UNFINISHED


def test_an_error_that_it_got_over_is_forgotten() -> None:
    trouble = error("overloaded", "API Error: Overloaded")
    assert (
        kind(trouble, streams.claude_answer("m1"), streams.claude_result(1000, 20, 0.1), status=0)
        is Kind.DONE
    )
    capped = streams.claude_result(1000, 20, 0.1, subtype="error_max_turns", is_error=True)
    assert kind(trouble, streams.claude_answer("m1"), capped) is Kind.CAPPED


def test_a_retry_tells_against_what() -> None:
    retry = {
        "type": "system",
        "subtype": "api_retry",
        "attempt": 3,
        "error_status": 401,
        "error": "authentication_failed",
    }
    assert streams.events("claude", streams.stream(retry)) == [
        Retrying("authentication_failed 401, attempt 3", Kind.NEEDS_PERSON)
    ]
    assert kind({**retry, "error_status": None, "error": "overloaded"}) is Kind.TRANSIENT


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({"subtype": "error_max_turns", "is_error": True}, Kind.CAPPED),
        ({"subtype": "error_max_budget_usd", "is_error": True}, Kind.CAPPED),
        ({"terminal_reason": "budget_exhausted"}, Kind.CAPPED),
        (
            {"subtype": "error_during_execution", "is_error": True, "result": None,
             "terminal_reason": "aborted_streaming", "errors": ["[x]"]},
            Kind.UNFINISHED,
        ),
        ({"stop_reason": "tool_use"}, Kind.UNFINISHED),
        ({"stop_reason": "tool_use", "structured_output": {"ok": 1}}, Kind.DONE),
        ({"num_turns": 0}, Kind.UNFINISHED),
        ({"terminal_reason": "background_requested"}, Kind.UNFINISHED),
        ({"terminal_reason": "something_new"}, Kind.DONE),
        ({"terminal_reason": None, "stop_reason": None, "num_turns": None}, Kind.DONE),
    ],
)  # fmt: skip
def test_a_result_is_looked_at_from_all_sides(more: dict[str, Any], expected: Kind) -> None:
    assert kind(streams.claude_result(1000, 20, 0.1, **more), status=0) is expected


def test_an_interrupted_run_says_so() -> None:
    result = streams.claude_result(
        *(0, 0, 0.0), subtype="error_during_execution", is_error=True, result=None,
        terminal_reason="aborted_streaming", errors=["[ede_diagnostic] x"],
    )  # fmt: skip
    tally = streams.tally_of("claude", streams.stream(result))
    assert streams.adapter("claude").verdict(tally, RunEnding(0)).why == "it was interrupted"


def test_a_refused_tool_is_told_once() -> None:
    refusal = {"tool_name": "Bash", "tool_use_id": "u1"}
    data = streams.stream(
        {"type": "system", "subtype": "permission_denied", **refusal},
        streams.claude_result(
            0, 0, 0.0, permission_denials=[refusal, {**refusal, "tool_use_id": "u2"}]
        ),
    )
    assert streams.tally_of("claude", data).denied == {"Bash": 2}


def test_a_tool_that_is_denied_by_a_rule_is_one_that_there_is_not() -> None:
    no_tool = "<tool_use_error>Error: No such tool available: bash"
    for text in (f"{no_tool}</tool_use_error>", f"{no_tool}. bash is disabled for this session."):
        result = {"type": "tool_result", "content": text, "is_error": True}
        data = streams.stream({"type": "user", "message": {"content": [result]}})
        assert streams.events("claude", data) == [Denied("bash")]


@pytest.mark.parametrize(
    "line",
    [
        "Error: Session ID 0-1 is already in use.",
        streams.claude_result(
            *(0, 0, 0.0), subtype="error_during_execution", is_error=True, result=None,
            terminal_reason=None, errors=["No conversation found with session ID: 0-1"],
        ),
    ],
)  # fmt: skip
def test_a_session_that_is_lost_is_said(line: dict[str, Any] | str) -> None:
    verdict = streams.adapter("claude").verdict(
        streams.tally_of("claude", streams.stream(line)), RunEnding(1)
    )
    assert (verdict.kind, verdict.session_lost) == (Kind.UNFINISHED, True)


def test_words_of_sub_agents_are_no_answer_but_cost_the_same() -> None:
    below = streams.claude_answer(
        "m9", {"type": "text", "text": "Found."}, streams.TOOL, parent_tool_use_id="u1"
    )
    assert streams.events("claude", streams.stream(below)) == [
        Usage("opus-1", 1000, 20, 5),
        Doing("editing", "/repo/shop/cart.py"),
    ]


def test_a_killed_run_and_the_one_that_resumes_it_are_counted_once() -> None:
    """Started, killed, resumed: the total of the session has not the part that was killed."""
    first = streams.adapter("claude").parser()
    first.feed(
        streams.stream(
            streams.CLAUDE_INIT, streams.claude_answer("m1"), streams.claude_result(1000, 20, 0.002)
        )
    )
    killed = streams.adapter("claude").parser(last=first.totals())
    assert killed.feed(
        streams.stream(streams.CLAUDE_INIT, streams.claude_answer("m2", tokens=700))
    )[1:] == [Usage("opus-1", 700, 20, 5)]
    for total in (1300, 300):
        third = streams.adapter("claude").parser(last=killed.totals())
        found = third.feed(
            streams.stream(
                streams.CLAUDE_INIT,
                streams.claude_answer("m3", tokens=300),
                streams.claude_answer("m3", tokens=300),
                streams.claude_result(total, 20, 0.006),
            )
        )
        counted = [each for each in found if isinstance(each, Usage)]
        assert sum(each.input for each in counted) == 300


def test_a_budget_that_is_used_up_has_its_usage_by_model() -> None:
    """There ``usage`` is all zero; ``modelUsage`` is right."""
    data = streams.stream(
        streams.CLAUDE_INIT,
        streams.claude_result(
            *(9000, 90, 1.0), subtype="error_max_budget_usd", is_error=True,
            usage={"input_tokens": 0},
        ),
    )  # fmt: skip
    assert streams.tally_of("claude", data).usage == {
        "opus-1": Usage("opus-1", 9000, 90, 5, money=1.0)
    }


def test_without_models_the_total_is_that_of_the_main_loop() -> None:
    result = streams.claude_result(0, 0, 0.5, modelUsage={}, usage={"input_tokens": 7})
    data = streams.stream(streams.CLAUDE_INIT, result)
    assert streams.tally_of("claude", data).usage == {"opus-1": Usage("opus-1", 7, money=0.5)}
    last = Totals("s1", {"opus-1": Usage("opus-1", 5, money=0.25)})
    assert streams.tally_of("claude", data, last).money() == 0.25


def test_its_failure_is_the_one_of_its_result() -> None:
    found = streams.events(
        "claude", streams.stream(failed("Credit balance is too low", api_error_status=400))
    )
    assert found[0] == RunFailure(Kind.NEEDS_PERSON, "Credit balance is too low")


# --- questions ------------------------------------------------------------------------------------

KEY = {
    "question": "Which key?",
    "header": "Key",
    "multiSelect": False,
    "options": [{"label": "FOO", "description": "as it was"}, {"label": "BAR"}],
}
COLOUR = {"question": "Which colours?", "multiSelect": True, "options": [{"label": "red"}]}
SHOWN = "Which key?\n  1. FOO: as it was\n  2. BAR"


def deferred(*questions: dict[str, Any], name: str = "AskUserQuestion") -> dict[str, Any]:
    """The result of a run that ended at this call."""
    call = {"id": "t-1", "name": name, "input": {"questions": list(questions)}}
    reason = {"stop_reason": "tool_deferred", "terminal_reason": "tool_deferred"}
    return streams.claude_result(9, 9, 0.1, result="", deferred_tool_use=call, **reason)


def test_a_run_that_ends_at_a_question_is_one_with_its_choices() -> None:
    data = streams.stream(streams.CLAUDE_INIT, deferred(KEY))
    tally = streams.tally_of("claude", data)
    for changed in (True, False):
        found = streams.adapter("claude").verdict(tally, RunEnding(0, changed=changed))
        assert (found.kind, found.why) == (Kind.QUESTION, "Which key?")
        assert (found.question, found.call) == (SHOWN, "t-1")
    assert tally.result is not None and shown(tally.result)[0] == "asks: Which key?"


def test_questions_of_one_call_are_numbered() -> None:
    tally = streams.tally_of("claude", streams.stream(deferred(KEY, COLOUR)))
    assert tally.result is not None
    assert tally.result.question.splitlines() == [
        "1/2: Which key?",
        "  1. FOO: as it was",
        "  2. BAR",
        "2/2: Which colours? (several may be chosen, divided by commas)",
        "  1. red",
        "Answer each on a line of its own, or divide the answers by ';'.",
    ]


def test_a_question_that_a_prompt_has_overtaken_is_none() -> None:
    done = streams.claude_result(9, 9, 0.2, result="Done.")
    lines = streams.CLAUDE_INIT, deferred(KEY), streams.CLAUDE_INIT, done
    assert kind(*lines, status=0) is Kind.DONE


def test_another_tool_that_somebody_defers_is_no_question() -> None:
    assert kind(deferred(KEY, name="Bash"), status=0) is Kind.UNFINISHED


def test_a_question_that_was_refused_is_one_without_an_answer() -> None:
    refused = {"tool_name": "AskUserQuestion", "tool_use_id": "u1"}
    refused["tool_input"] = {"questions": [KEY]}  # type: ignore[assignment]
    result = streams.claude_result(9, 9, 0.1, result="I stop here.", permission_denials=[refused])
    parsed = streams.events("claude", streams.stream(result))
    assert OpenQuestion(SHOWN) in parsed and Denied("AskUserQuestion") not in parsed


def off(folder: Path, *arguments: str) -> str:
    """What switches hooks off for an agent in ``folder/worktree``."""
    folders = [str(folder / "worktree"), str(folder / "checkout")]
    environment = {"HOME": str(folder / "home")}
    return streams.adapter("claude").hooks_off(arguments, environment, folders, read_settings)


@pytest.mark.parametrize(
    ("file", "holds"),
    [
        ("home/.claude/settings.json", True),
        ("worktree/.claude/settings.json", True),
        ("worktree/.claude/settings.local.json", True),
        ("checkout/.claude/settings.local.json", True),
        ("checkout/.claude/settings.json", False),
    ],
)
def test_hooks_are_off_where_settings_say_so(tmp_path: Path, file: str, holds: bool) -> None:
    assert off(tmp_path) == ""
    path = tmp_path / file
    path.parent.mkdir(parents=True)
    path.write_text('{"disableAllHooks": true}')
    assert off(tmp_path) == (f"disableAllHooks in {path}" if holds else "")
    path.write_text('{"disableAllHooks": tr')
    assert off(tmp_path) == ""


def test_the_settings_nearest_to_the_agent_decide(tmp_path: Path) -> None:
    for name, value in (("home", "true"), ("worktree", "false")):
        (tmp_path / name / ".claude").mkdir(parents=True)
        text = f'{{"disableAllHooks": {value}}}'
        (tmp_path / name / ".claude/settings.json").write_text(text)
    assert off(tmp_path) == ""


@pytest.mark.parametrize("argument", ["--settings", "--bare", "--permission-prompt-tool"])
def test_an_argument_of_the_user_takes_the_place_of_ours(tmp_path: Path, argument: str) -> None:
    assert off(tmp_path, "--model", "opus") == ""
    assert off(tmp_path, f"{argument}=x") == off(tmp_path, argument, "x") == argument
