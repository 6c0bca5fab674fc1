"""The real claude and codex against the stub of their APIs: what tests of fleets stand on."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from tests.agents_api import ModelApi, Tokens
from tests.support.real_agents import AgentHome, git, new_session, repository

pytestmark = pytest.mark.daily(3)

WORK = """\
Make a cart. [[stub: tokens 1200 80 5000 300; write shop/cart.py "total = 1"; commit "Add a cart"]]
"""
CLAUDE_KEY = "sk-ant-oat01-test"


@pytest.fixture
def work(tmp_path: Path) -> Path:
    return repository(tmp_path / "work")


def test_claude_writes_and_commits_and_its_account_is_the_meter_s(
    api: ModelApi, home: AgentHome, work: Path
) -> None:
    ran = home.claude(WORK, work)
    assert ran.returncode == 0, ran
    assert (work / "shop" / "cart.py").read_text() == "total = 1\n"
    assert git(work, "log", "-1", "--format=%s") == "Add a cart"
    (used,) = ran.result["modelUsage"].values()
    charged = api.accounts.total(session=ran.result["session_id"])
    assert charged.tokens == Tokens(
        used["inputTokens"],
        used["outputTokens"],
        used["cacheReadInputTokens"],
        used["cacheCreationInputTokens"],
    )
    assert charged.tokens == Tokens(3600, 240, 15000, 900)
    assert ran.result["total_cost_usd"] == pytest.approx(charged.dollars)


def test_a_limit_of_claude_names_its_reset_and_the_session_goes_on_after_it(
    api: ModelApi, home: AgentHome, work: Path
) -> None:
    session = new_session()
    prompt = 'Do it. [[stub: write a.txt "one"; limit five_hour 2h; write b.txt "two"; commit]]'
    ran = home.claude(prompt, work, "--session-id", session)
    account = api.account(CLAUDE_KEY)
    (limit,) = (
        event["rate_limit_info"]
        for event in ran.events
        if event["type"] == "rate_limit_event" and event["rate_limit_info"]["status"] == "rejected"
    )
    assert (ran.returncode, limit["resetsAt"]) == (1, account.until)
    assert ran.result["is_error"] is True
    assert (work / "a.txt").exists()

    assert home.claude("Again. [[stub: write c.txt x]]", work).returncode == 1
    assert not (work / "c.txt").exists()
    assert account.refused == {"limit": 2}

    account.open()
    ran = home.claude("Go on.", work, "--resume", session)
    assert (ran.returncode, ran.result["session_id"]) == (0, session)
    assert git(work, "ls-files").split() == ["README", "a.txt", "b.txt"]


def test_claude_hears_what_verify_said_and_mends_it(
    api: ModelApi, home: AgentHome, work: Path
) -> None:
    session = new_session()
    prompt = """Do it. [[stub: write cart.py "total = 1"; commit]]
        [[stub when "AssertionError": edit cart.py "total = 1" "total = 2"; commit "Mend it"]]"""
    home.claude(prompt, work, "--session-id", session)
    ran = home.claude("verify failed: AssertionError: 1 != 2", work, "--resume", session)
    assert ran.returncode == 0, ran
    assert (work / "cart.py").read_text() == "total = 2\n"
    assert git(work, "log", "-1", "--format=%s") == "Mend it"
    assert api.accounts.total(session=session).tokens.output == 20 * len(api.accounts.charges)


def test_a_login_that_was_lost_ends_claude_until_it_is_mended(
    api: ModelApi, home: AgentHome, work: Path
) -> None:
    api.account(CLAUDE_KEY).lose_login()
    ran = home.claude(WORK, work)
    errors = {event["error"] for event in ran.events if event["type"] == "assistant"}
    assert (ran.returncode, errors) == (1, {"authentication_failed"})
    api.account(CLAUDE_KEY).open()
    assert home.claude(WORK, work).returncode == 0


def test_codex_writes_and_commits_and_its_tokens_are_the_meter_s(
    api: ModelApi, home: AgentHome, work: Path
) -> None:
    ran = home.codex(WORK, work)
    assert ran.returncode == 0, ran
    assert (work / "shop" / "cart.py").read_text() == "total = 1\n"
    assert git(work, "log", "-1", "--format=%s") == "Add a cart"
    tokens = api.accounts.total(session=ran.events[0]["thread_id"]).tokens
    used = ran.result["usage"]
    assert used["input_tokens"] == tokens.input + tokens.cache_read + tokens.cache_write
    assert (used["cached_input_tokens"], used["output_tokens"]) == (15000, tokens.output)


def test_a_limit_of_codex_names_the_minute_and_the_thread_goes_on_after_it(
    api: ModelApi, home: AgentHome, work: Path
) -> None:
    prompt = 'Do it. [[stub: write a.txt "one"; limit five_hour 3d; write b.txt "two"; commit]]'
    ran = home.codex(prompt, work)
    account = api.account(CLAUDE_KEY)
    assert account.until is not None
    minute = time.strftime("%-I:%M %p", time.gmtime(account.until))
    assert ran.returncode == 1
    assert "hit your usage limit" in ran.result["error"]["message"]
    assert f"{minute}." in ran.result["error"]["message"]

    account.open()
    ran = home.codex("Go on.", work, "resume", ran.events[0]["thread_id"])
    assert ran.returncode == 0, ran
    assert git(work, "ls-files").split() == ["README", "a.txt", "b.txt"]


def test_nobody_but_the_stub_is_asked(api: ModelApi, home: AgentHome, work: Path) -> None:
    # It is also their proxy, and writes down who wanted to talk to another server.
    home.claude("[[stub: run ls]]", work)
    home.codex("[[stub: run ls]]", work)
    assert [request.outcome for request in api.requests] == ["answered"] * 4


def test_four_agents_at_once_are_charged_each_for_itself(
    api: ModelApi, home: AgentHome, tmp_path: Path
) -> None:
    ended: dict[int, int] = {}

    def run(number: int) -> None:
        folder = repository(tmp_path / f"work-{number}")
        script = f"tokens {number} 1; write {number}.txt x; run ls; commit"
        ended[number] = home.codex(f"Do it. [[stub: {script}]]", folder).returncode

    threads = [threading.Thread(target=run, args=(number,)) for number in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert ended == dict.fromkeys(range(1, 5), 0)
    sessions = {charge.session for charge in api.accounts.charges}
    inputs = sorted(api.accounts.total(session=session).tokens.input for session in sessions)
    assert inputs == [4 * number for number in range(1, 5)]
