"""What attempts have used, as it lies on the disk: whole, cut anywhere, damaged."""

from __future__ import annotations

from pathlib import Path

import pytest

from beads_workers.agents.events import Usage
from beads_workers.agents.totals import Increments, Totals, from_object
from beads_workers.core.commands import ReadUsage
from beads_workers.core.model import IssueId
from beads_workers.core.receipts import Tokens, receipt_from_text
from beads_workers.executors.files import usage_file
from beads_workers.runtime.usage_file import UsageFile, prices_of, read_usage, usage_read

PRICES = {"opus*": (5.0, 25.0, 0.5)}
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
    told = again.answer("m9", ANSWER)
    money = (saved + 1000) * 7.5e-6  # As 1,000 of input and 100 of output cost.
    told += again.total([Usage("opus-5", saved + 1000, (saved + 1000) // 10, money=money)])
    assert sum(u.tokens for u in told) == 1100
    assert found.money + sum(u.money or 0.0 for u in told) == pytest.approx(0.0225)


def test_where_no_agent_ran_there_is_nothing(tmp_path: Path) -> None:
    asked = ReadUsage(IssueId("a"), 1, "run.1")
    assert usage_read(tmp_path, asked) is None
    path = Path(usage_file(str(tmp_path), "run.1"))
    write(path)
    told = usage_read(tmp_path, asked)
    assert told is not None
    assert (told.issue_id, told.attempt, told.request_id) == ("a", 1, "run.1")
    receipt = receipt_from_text(told.receipt)
    assert receipt is not None and receipt.tokens.total == 2200


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    write(tmp_path / "u")
    (tmp_path / "link").symlink_to(tmp_path / "u")
    assert read_usage(tmp_path / "link") is None
