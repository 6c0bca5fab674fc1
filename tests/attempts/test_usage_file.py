"""Usage on disk as it is heard: the same sum for the attempt, and for who finds it after a kill."""

from __future__ import annotations

from pathlib import Path

import pytest

from beads_workers.agents.events import Usage
from beads_workers.attempts.assignment import AgentSpec
from beads_workers.attempts.usage_file import UsageFile, read_usage

PRICED = AgentSpec("codex", "codex", model="gpt", prices={"gpt*": (1.0, 10.0, 0.1)})


def test_what_is_found_is_what_was_heard(tmp_path: Path) -> None:
    path = tmp_path / "usage" / "i-1.jsonl"
    file = UsageFile(str(path))
    file.begin(PRICED)
    file.session("s-1")
    file.add([Usage("gpt-5", input=1_000_000, output=100_000), Usage("gpt-5", input=5)])
    file.begin(AgentSpec("claude", "claude"))
    file.session("s-2")
    file.add([Usage("opus", input=7, output=1, money=0.5)])
    usage, money = file.spent()
    assert money == pytest.approx(1.0 + 1.0 + 0.000005 + 0.5)
    found = read_usage(path)
    assert found is not None
    assert (found.usage, found.money) == (usage, money)
    # The first one works; a reviewer comes behind it.
    assert (found.agent, found.model, found.session) == ("codex", "gpt", "s-1")


def test_a_line_that_was_cut_by_a_kill_costs_only_itself(tmp_path: Path) -> None:
    path = tmp_path / "u.jsonl"
    file = UsageFile(str(path))
    file.begin(PRICED)
    file.add([Usage("gpt-5", input=10)])
    whole = path.read_bytes()
    path.write_bytes(whole + whole.splitlines(keepends=True)[-1][:-9])
    found = read_usage(path)
    assert found is not None and found.tokens.input == 10


@pytest.mark.parametrize(
    "line",
    [b"[]", b"null", b'{"of": "m", "used": [1]}', b'{"of": "m", "used": [-1,0,0,0,0]}', b"\xff"],
)
def test_garbage_counts_nothing(tmp_path: Path, line: bytes) -> None:
    path = tmp_path / "u.jsonl"
    UsageFile(str(path)).begin(PRICED)
    with path.open("ab") as file:
        file.write(line + b"\n")
    found = read_usage(path)
    assert found is not None and found.tokens.total == 0


def test_tokens_without_a_price_make_the_money_unknown(tmp_path: Path) -> None:
    file = UsageFile(str(tmp_path / "u.jsonl"))
    file.begin(AgentSpec("codex", "codex"))
    file.add([Usage("gpt-5", input=10)])
    assert file.spent()[1] is None


def test_nothing_is_found_where_no_agent_ran(tmp_path: Path) -> None:
    assert read_usage(tmp_path / "none") is None
    (tmp_path / "empty").write_bytes(b"")
    assert read_usage(tmp_path / "empty") is None
    (tmp_path / "link").symlink_to("/dev/zero")
    assert read_usage(tmp_path / "link") is None


def test_a_file_that_cannot_be_made_stops_nobody(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    file = UsageFile(str(tmp_path / "file" / "u.jsonl"))
    file.begin(PRICED)
    file.add([Usage("gpt-5", input=10)])
    assert file.spent()[0]["gpt-5"].input == 10
