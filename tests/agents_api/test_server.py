"""The stub itself, asked over HTTP as programs ask it, and its door for other processes."""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.agents_api import ModelApi, Tokens

SUBSCRIPTION = "sk-ant-oat01-a"
OPENAI_PATH, ANTHROPIC_PATH = "/v1/responses", "/v1/messages"


@pytest.fixture
def api() -> Iterator[ModelApi]:
    with ModelApi() as stub:
        yield stub


def ask(
    url: str, prompt: str, *, path: str = ANTHROPIC_PATH, key: str = SUBSCRIPTION
) -> tuple[int, dict[str, str], bytes]:
    """One request of a program; status 0: the connection ended before the answer did."""
    said = {"role": "user", "content": prompt}
    tool = {"type": "custom", "name": "Bash"}
    body = {"model": "claude-sonnet-5-5", "stream": True, "tools": [tool]}
    body |= (
        {"input": [{"type": "message", **said}]} if path == OPENAI_PATH else {"messages": [said]}
    )
    headers = {"authorization": f"Bearer {key}", "x-claude-code-session-id": "s1"}
    connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=20)
    try:
        connection.request("POST", path, json.dumps(body), headers | {"thread-id": "s1"})
        response = connection.getresponse()
        return response.status, dict(response.headers), response.read()
    except (http.client.HTTPException, ConnectionError):
        return 0, {}, b""
    finally:
        connection.close()


def control(url: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
    connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=20)
    method = "GET" if body is None else "POST"
    connection.request(method, path, None if body is None else json.dumps(body))
    answer: dict[str, Any] = json.loads(connection.getresponse().read())
    connection.close()
    return answer


@pytest.mark.parametrize("path", [ANTHROPIC_PATH, OPENAI_PATH])
@pytest.mark.parametrize(
    ("script", "anthropic", "openai"),
    [
        ("say hi", 200, 200),
        ("limit five_hour 2h", 429, 429),
        ("login", 401, 401),
        ("credit", 400, 429),
        ("overload", 529, 503),
        ("error", 500, 500),
        ("error 502", 502, 502),
        ("busy", 429, 429),
        ("cut", 0, 0),
        ("drop", 0, 0),
    ],
)
def test_faults_are_what_the_api_would_say(
    api: ModelApi, path: str, script: str, anthropic: int, openai: int
) -> None:
    status, _, _ = ask(api.url, f"[[stub: {script}]]", path=path)
    assert status == (anthropic if path == ANTHROPIC_PATH else openai)


def test_a_fault_happens_as_often_as_it_says(api: ModelApi) -> None:
    prompt = "[[stub: overload x2; error; say hi]]"
    assert [ask(api.url, prompt)[0] for _ in range(5)] == [529, 529, 500, 200, 200]


def test_a_limit_closes_the_account_for_everybody_until_it_opens(api: ModelApi) -> None:
    _, headers, _ = ask(api.url, "[[stub: limit seven_day 3d]]")
    account = api.account(SUBSCRIPTION)
    assert headers["anthropic-ratelimit-unified-7d-reset"] == str(account.until)
    assert headers["anthropic-ratelimit-unified-representative-claim"] == "seven_day"
    assert ask(api.url, "Hello")[0] == 429
    assert ask(api.url, "Hello", key="sk-ant-oat01-b")[0] == 200
    assert account.refused == {"limit": 2}
    account.open()
    assert ask(api.url, "Hello")[0] == 200


def test_a_scaled_limit_opens_by_itself_and_late_where_it_is_told_so() -> None:
    with ModelApi(scale=1 / 3600) as api:
        assert ask(api.url, "[[stub: limit five_hour 1h]]")[0] == 429
        account = api.account(SUBSCRIPTION)
        assert account.until is not None
        deadline = time.monotonic() + 10
        while ask(api.url, "Hello")[0] == 429:
            assert time.monotonic() < deadline
        assert time.time() >= account.until
        account.close("five_hour", 0, late=60)
        assert account.until is not None
        assert account.until <= time.time() + 1
        assert ask(api.url, "Hello")[0] == 429


def test_a_window_of_one_model_closes_that_one_alone(api: ModelApi) -> None:
    account = api.account(SUBSCRIPTION)
    account.close_model("opus", "seven_day_opus", 60)
    assert account.refusal("claude-sonnet-5-5") is None
    limit = account.refusal("claude-opus-5-5")
    assert limit is not None
    assert (limit.why, limit.window) == ("limit", "seven_day_opus")
    assert account.refused == {"limit": 1}
    account.open()
    assert account.refusal("claude-opus-5-5") is None


def test_a_warning_is_in_the_headers_of_what_succeeds(api: ModelApi) -> None:
    status, headers, _ = ask(api.url, "[[stub: warn 0.92; say hi]]")
    assert status == 200
    assert headers["anthropic-ratelimit-unified-status"] == "allowed_warning"
    assert headers["anthropic-ratelimit-unified-5h-utilization"] == "0.92"


def test_the_meter_charges_what_was_said_and_marks_what_was_cut(api: ModelApi) -> None:
    ask(api.url, "[[stub: tokens 100 10 1 2; cut; say hi]]")
    ask(api.url, "[[stub: tokens 100 10 1 2; cut; say hi]]")
    assert [charge.complete for charge in api.accounts.charges] == [False, True]
    total = api.accounts.total(account=SUBSCRIPTION, session="s1")
    assert total.tokens == Tokens(200, 20, 2, 4)
    assert total.dollars == pytest.approx(200 * 2e-6 + 20 * 1e-5 + 2 * 1e-7 + 4 * 2.5e-6)


def test_a_script_with_a_mistake_is_an_error_that_says_so(api: ModelApi) -> None:
    status, _, body = ask(api.url, "[[stub: dance]]")
    assert (status, b"unknown verb" in body) == (400, True)


def test_other_processes_have_a_door() -> None:
    argv = [sys.executable, "-m", "tests.agents_api", "--script", "say hello"]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as stub:
        assert stub.stdout is not None
        url = stub.stdout.readline().strip()
        assert b"text_delta" in ask(url, "Hi")[2]
        control(url, f"/stub/accounts/{SUBSCRIPTION}", {"close": {"window": "x", "seconds": 60}})
        assert ask(url, "Hi")[0] == 429
        control(url, f"/stub/accounts/{SUBSCRIPTION}", {"open": True, "login": False})
        assert ask(url, "Hi")[0] == 401
        control(url, f"/stub/accounts/{SUBSCRIPTION}", {"login": True})
        control(url, "/stub/script", {"script": "overload always"})
        assert ask(url, "Hi")[0] == 529
        state = control(url, "/stub/state")
        outcomes = [request["outcome"] for request in state["requests"]]
        assert outcomes == ["answered", "limit", "login", "overload"]
        assert state["total"]["tokens"]["output"] == 20
        stub.communicate()
