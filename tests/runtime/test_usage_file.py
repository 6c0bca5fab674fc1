"""What attempts have used, as it lies on the disk: whole, cut anywhere, damaged."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from beads_workers.agents.adapters.codex import Codex
from beads_workers.agents.events import Usage
from beads_workers.agents.totals import Increments, Totals, from_object
from beads_workers.core.base.model import IssueId
from beads_workers.core.records.receipts import Tokens
from beads_workers.core.schedule.commands import ReadUsage
from beads_workers.executors.files import usage_file
from beads_workers.runtime.usage_file import (
    SessionFile,
    UsageFile,
    prices_of,
    read_usage,
    usage_read,
)

PRICES = {"opus*": (5.0, 25.0, 0.5)}
PRICED: tuple[str, str, dict[str, tuple[float, ...]]] = ("codex", "gpt", {"gpt*": (1.0, 10.0, 0.1)})
ANSWER = Usage("opus-5", 1000, 100, 0, 0)


def write(path: Path, *, prices: dict[str, tuple[float, ...]] = PRICES) -> UsageFile:
    """A run of one agent: two answers, and no end."""
    file = UsageFile(str(path))
    file.begin("claude", "opus", prices)
    counts = Increments()
    counts.begin("s-1")
    file.session("s-1", counts.totals())
    for number in range(2):
        file.add(counts.answer(f"m{number}", ANSWER), counts.totals(prices_of(prices)))
    return file


def test_tokens_without_dollars_are_priced_by_the_table(tmp_path: Path) -> None:
    write(tmp_path / "u")
    found = read_usage(tmp_path / "u")
    assert found is not None
    assert (found.agent, found.model, found.session) == ("claude", "opus", "s-1")
    assert found.usage == {"opus-5": Tokens(2000, 200)}
    assert found.money == pytest.approx(0.015)
    assert found.verdict == "unfinished" and not found.refusal


def test_tokens_without_a_price_make_no_dollars(tmp_path: Path) -> None:
    write(tmp_path / "u", prices={})
    found = read_usage(tmp_path / "u")
    assert found is not None
    assert (found.tokens.total, found.money) == (2200, None)


def test_it_may_be_cut_anywhere(tmp_path: Path) -> None:
    write(tmp_path / "u")
    data = (tmp_path / "u").read_bytes()
    counts = set()
    for length in range(len(data)):
        (tmp_path / "cut").write_bytes(data[:length])
        found = read_usage(tmp_path / "cut")
        counts.add(found.tokens.total if found else 0)
    assert counts == {0, 1100, 2200}


def test_a_reviewer_costs_and_its_session_is_nobodys(tmp_path: Path) -> None:
    file = write(tmp_path / "u")
    file.begin("codex", "gpt", {}, works=False)
    file.session("s-2", Totals("s-2"))
    file.add([Usage("gpt", 10, 1, money=0.5)], Totals("s-2", {"gpt": Usage("gpt", 10, 1)}))
    found = read_usage(tmp_path / "u")
    assert found is not None
    assert (found.agent, found.session, found.totals["session"]) == ("claude", "s-1", "s-1")
    assert found.money == pytest.approx(0.515)


def test_a_session_that_began_anew_is_the_one_to_go_on_with(tmp_path: Path) -> None:
    file = UsageFile(str(tmp_path / "u"))
    for session in ("lost", "new"):
        file.begin("claude", "", {})
        file.session(session, Totals(session))
    found = read_usage(tmp_path / "u")
    assert found is not None and found.session == "new"


@pytest.mark.parametrize("saved", [2000, 0])
def test_the_next_process_of_its_session_does_not_count_it_again(
    tmp_path: Path, saved: int
) -> None:
    """``saved``: what the session says of the killed process; after KILL nothing."""
    write(tmp_path / "u")
    found = read_usage(tmp_path / "u")
    assert found is not None and found.money is not None
    again = Increments(from_object(dict(found.totals)))
    again.begin("s-1")
    events = again.answer("m9", ANSWER)
    money = (saved + 1000) * 7.5e-6  # As 1,000 of input and 100 of output cost.
    events += again.total([Usage("opus-5", saved + 1000, (saved + 1000) // 10, money=money)])
    assert sum(u.tokens for u in events) == 1100
    assert found.money + sum(u.money or 0.0 for u in events) == pytest.approx(0.0225)


def test_where_no_agent_ran_there_is_nothing(tmp_path: Path) -> None:
    asked = ReadUsage(IssueId("a"), 1, "run.1")
    assert usage_read(tmp_path, asked) is None
    path = Path(usage_file(str(tmp_path), "run.1"))
    write(path)
    found = usage_read(tmp_path, asked)
    assert found is not None
    assert (found.issue_id, found.attempt, found.request_id) == ("a", 1, "run.1")
    receipt = found.receipt
    assert receipt is not None and receipt.tokens.total == 2200


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    write(tmp_path / "u")
    (tmp_path / "link").symlink_to(tmp_path / "u")
    assert read_usage(tmp_path / "link") is None


def test_what_is_found_is_what_was_heard(tmp_path: Path) -> None:
    path = tmp_path / "usage" / "i-1.jsonl"
    file = UsageFile(str(path))
    file.begin(*PRICED)
    file.session("s-1", Totals("s-1"))
    file.add([Usage("gpt-5", input=1_000_000, output=100_000), Usage("gpt-5", input=5)], Totals())
    file.begin("claude", "", {}, works=False)
    file.session("s-2", Totals("s-2"))
    file.add([Usage("opus", input=7, output=1, money=0.5)], Totals())
    usage, money, unpriced = file.spent()
    assert money == pytest.approx(1.0 + 1.0 + 0.000005 + 0.5)
    found = read_usage(path)
    assert found is not None
    assert (found.usage, found.money, found.unpriced) == (usage, money, unpriced)
    # The first one works; a reviewer comes behind it.
    assert (found.agent, found.model, found.session) == ("codex", "gpt", "s-1")


def test_a_line_that_was_cut_by_a_kill_costs_only_itself(tmp_path: Path) -> None:
    path = tmp_path / "u.jsonl"
    file = UsageFile(str(path))
    file.begin(*PRICED)
    file.add([Usage("gpt-5", input=10)], Totals())
    whole = path.read_bytes()
    path.write_bytes(whole + whole.splitlines(keepends=True)[-1][:-9])
    found = read_usage(path)
    assert found is not None and found.tokens.input == 10


@pytest.mark.parametrize(
    "line",
    [
        b"[]",
        b"null",
        b"\xff",
        b'{"of": "m", "used": [1]}',
        b'{"of": "m", "used": [-1,0,0,0,0]}',
        b'{"of": "m", "used": [1%s,0,0,0,0]}' % (b"0" * 400),
        b'{"agent": "", "prices": {"m": [-1, 1%s]}}' % (b"0" * 400),
    ],
)
def test_garbage_counts_nothing(tmp_path: Path, line: bytes) -> None:
    path = tmp_path / "u.jsonl"
    UsageFile(str(path)).begin(*PRICED)
    with path.open("ab") as file:
        file.write(line + b"\n")
    found = read_usage(path)
    assert found is not None and found.tokens.total == 0


@pytest.mark.parametrize("money", [b"-1", b"NaN", b"1" + b"0" * 400, b"true"])
def test_money_that_is_none_is_not_believed(tmp_path: Path, money: bytes) -> None:
    path = tmp_path / "u.jsonl"
    UsageFile(str(path)).begin(*PRICED)
    with path.open("ab") as file:
        file.write(b'{"of": "m", "used": [1,0,0,0,%s]}\n' % money)
    found = read_usage(path)
    assert found is not None and (found.tokens.total, found.money) == (1, None)


def test_tokens_without_a_price_make_the_money_unknown(tmp_path: Path) -> None:
    file = UsageFile(str(tmp_path / "u.jsonl"))
    file.begin("codex", "", {})
    file.add([Usage("gpt-5", input=10)], Totals())
    assert file.spent()[1:] == (None, 10)


def test_what_the_runs_before_have_cost_counts_while_the_next_says_no_dollars(
    tmp_path: Path,
) -> None:
    """claude says them at its end: until then, or for ever where it is killed, they are unknown."""
    path = tmp_path / "u.jsonl"
    file = UsageFile(str(path))
    for money in (0.1, None):
        file.begin("claude", "", {})
        file.session("s-1", Totals("s-1"))
        file.add([Usage("opus", input=7, output=1, money=money)], Totals())
        assert file.spent()[1] == 0.1
    assert file.spent()[2] == 8
    found = read_usage(path)
    assert found is not None
    assert (found.tokens.total, found.money, found.unpriced) == (16, 0.1, 8)


def answered(number: int) -> str:
    """How codex keeps an answer in the file of a session."""
    usage = {"input_tokens": 100 * number, "cached_input_tokens": 0, "output_tokens": 1}
    payload = {"response_id": f"r{number}", "usage": usage}
    return json.dumps({"type": "token_usage_record", "payload": payload}) + "\n"


@pytest.mark.parametrize("known", [True, False])
def test_what_an_agent_kept_by_itself_after_its_worker_was_killed_counts_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, known: bool
) -> None:
    session = "01a2051e-2551-7ff1-8343-c033fdf6c90f"
    kept = tmp_path / "sessions" / "2026" / "11" / "22" / f"rollout-x-{session}.jsonl"
    kept.parent.mkdir(parents=True)
    monkeypatch.setenv("CODEX_HOME", str(tmp_path))
    file = UsageFile(str(tmp_path / "u"))
    file.begin("mine", "gpt", {}, adapter="codex")
    file.session(session, Totals(session))
    if known:
        kept.write_text(answered(1))
        found = SessionFile(Codex(), {"CODEX_HOME": str(tmp_path)})
        assert found.begin(session) and found.path == str(kept)
        file.session_file(found.path, found.at)
        counts = Increments()
        counts.begin(session)
        ((_, at),) = found.read()
        file.add(counts.answer("r1", Usage("gpt", 100, 1)), counts.totals(), at)
    kept.write_text(answered(1) + answered(2) + answered(3)[:-1])
    receipt = read_usage(tmp_path / "u")
    assert receipt is not None and receipt.usage == {"gpt": Tokens(300, 2)}
    totals = from_object(dict(receipt.totals))
    assert (totals.session, totals.tokens) == (session, 302), "for whoever goes on with it"
    # Whoever goes on is told of what comes from now on only.
    again = SessionFile(Codex(), {"CODEX_HOME": str(tmp_path)})
    kept.write_text(answered(1) + answered(2) + answered(3))
    assert again.begin(session, at=None)
    with kept.open("a") as more:
        more.write(answered(4))
    assert [line for line, _ in again.read()] == [answered(4)]


def test_nothing_is_found_where_no_agent_ran(tmp_path: Path) -> None:
    assert read_usage(tmp_path / "none") is None
    (tmp_path / "empty").write_bytes(b"")
    assert read_usage(tmp_path / "empty") is None
    (tmp_path / "link").symlink_to("/dev/zero")
    assert read_usage(tmp_path / "link") is None


def test_a_file_that_cannot_be_made_stops_nobody(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    file = UsageFile(str(tmp_path / "file" / "u.jsonl"))
    file.begin(*PRICED)
    file.add([Usage("gpt-5", input=10)], Totals())
    assert file.spent()[0]["gpt-5"].input == 10


SESSION = "0197a3b0-1111-4222-8333-444455556666"


def said(number: int, output: int) -> str:
    """How claude keeps an answer in the file of a session."""
    usage = {"input_tokens": 1000, "output_tokens": output}
    message = {"id": f"m{number}", "model": "opus-5", "usage": usage}
    return json.dumps({"type": "assistant", "message": message}) + "\n"


@pytest.mark.parametrize("ends", [False, True])
def test_the_output_that_a_killed_claude_had_not_told_is_read_from_its_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ends: bool
) -> None:
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "home"))
    beside = tmp_path / "home" / "projects" / "-work" / f"{SESSION}.jsonl"
    beside.parent.mkdir(parents=True)
    earlier = said(7, 900)
    beside.write_text(earlier + said(0, 500) + said(0, 500) + said(1, 400) + said(2, 300))
    file = UsageFile(str(tmp_path / "u"))
    file.begin("claude", "opus", PRICES, adapter="claude")
    counts = Increments()
    counts.begin(SESSION)
    file.session(SESSION, counts.totals())
    file.session_file(str(beside), len(earlier))
    for number in range(2):  # The stream tells what the output was when the answer began.
        file.add(counts.answer(f"m{number}", Usage("opus-5", 1000, 1)), counts.totals())
    if ends:
        file.add(counts.total([Usage("opus-5", 3000, 1200, money=0.5)]), counts.totals())
    found = read_usage(tmp_path / "u")
    assert found is not None
    assert found.usage == {"opus-5": Tokens(3000, 1200)}
    assert found.money == (0.5 if ends else pytest.approx((3000 * 5 + 1200 * 25) / 1e6))
    assert from_object(dict(found.totals)).tokens == 4200


def test_dollars_of_output_that_was_read_from_the_session_are_not_paid_again_by_its_total(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "home"))
    beside = tmp_path / "home" / "projects" / "-work" / f"{SESSION}.jsonl"
    beside.parent.mkdir(parents=True)
    beside.write_text(said(0, 500))
    file = UsageFile(str(tmp_path / "u"))
    file.begin("claude", "opus", PRICES, adapter="claude")
    killed = Increments()
    killed.begin(SESSION)
    file.session(SESSION, killed.totals())
    file.session_file(str(beside), 0)
    file.add(killed.answer("m0", Usage("opus-5", 1000, 1)), killed.totals(prices_of(PRICES)))
    found = read_usage(tmp_path / "u")
    assert found is not None and found.money is not None
    resumed = Increments(from_object(dict(found.totals)))
    resumed.begin(SESSION)
    (rest,) = resumed.total([Usage("opus-5", 2000, 600, money=0.025)])
    assert (rest.input, rest.output) == (1000, 100)
    assert found.money + (rest.money or 0.0) == pytest.approx(0.025)
