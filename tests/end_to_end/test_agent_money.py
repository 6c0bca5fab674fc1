"""What agents cost is known to the token, whoever is killed: real claude on the stub."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from beads_workers.core.records.receipts import Receipt, read_receipt
from beads_workers.runtime.usage_file import read_usage
from tests.end_to_end.test_agent_fleets import AgentProject
from tests.support.fleet import Fleet, until
from tests.support.real_agents import AgentHome
from tests.support.worktrees import in_worktrees

WORK = 'tokens 5000 500; write a.py "a"; run "touch began"; stall 60s; write b.py "b"'
WHOLE = 10_000
"""Tokens of input of the two answers before the one that stalls."""
PRICES = '[agents.claude.prices]\n"claude-*" = [5.0, 25.0, 0.5]\n'


@pytest.fixture
def project(tmp_path: Path, home: AgentHome) -> AgentProject:
    return AgentProject(tmp_path, home)


def working(fleet: Fleet, project: AgentProject) -> dict[str, Any]:
    """Its agent has spoken, and the worker has heard of it; gives the record of its begin."""
    until(lambda: in_worktrees(project, "began"))
    return fleet.journal("started")[0]


def found(fleet: Fleet) -> list[Receipt]:
    """The receipts that were found on the disk."""
    rows = [read_receipt(row["receipt"]) for row in fleet.journal("usage_found")]
    return [row for row in rows if row is not None]


def spent(fleet: Fleet) -> dict[str, Any]:
    """The money of its status."""
    money: dict[str, Any] = json.loads(fleet.call("status", "--json").stdout)["money"]
    return money


def test_a_worker_that_is_killed_has_its_tokens_counted(start: Any, project: AgentProject) -> None:
    (project.folder / "beads-workers.toml").write_text(PRICES)
    project.issues(WORK)
    fleet: Fleet = start(
        project, "-n", "1", "--agent", "claude", "--no-land", "--retry-delay", "60"
    )
    began = working(fleet, project)
    os.kill(fleet.worker_pid(began["worker_id"]), signal.SIGKILL)
    fleet.wait_for("usage_found")
    (receipt,) = found(fleet)
    assert (receipt.tokens.input, receipt.agent) == (WHOLE, "claude")
    assert receipt.session and receipt.totals["unreported"]
    tokens = receipt.tokens
    dollars = 5.0 * (tokens.input + tokens.cached_write) + 25.0 * tokens.output
    assert receipt.money == pytest.approx((dollars + 0.5 * tokens.cached_read) / 1e6)
    money = spent(fleet)
    assert money["spent_usd"] == pytest.approx(receipt.money)
    assert money["tokens"]["total"] == receipt.tokens.total


def heard(kept: Path) -> int:
    """Tokens of input of which an attempt has written by now."""
    receipt = read_usage(kept)
    return receipt.tokens.input if receipt is not None else 0


def test_after_kill_9_of_everything_the_next_run_knows_what_was_used(
    start: Any, project: AgentProject
) -> None:
    project.issues(WORK)
    first: Fleet = start(project, "-n", "1", "--agent", "claude", "--no-land")
    working(first, project)
    (kept,) = (first.run_folder / "usage").glob("*.jsonl")
    until(lambda: heard(kept) == WHOLE)
    os.kill(first.pid, signal.SIGKILL)
    first.process.wait()
    # The second one is killed as soon as it knows; the third must not count it again.
    second: Fleet = start(project, "-n", "0", "--agent", "claude", "--no-land")
    second.wait_for("usage_found")
    (receipt,) = found(second)
    assert (receipt.tokens.input, receipt.money) == (WHOLE, None)
    money = spent(second)
    assert (money["tokens"]["total"], money["night"]["tokens"]) == (0, receipt.tokens.total)
    assert money["night"]["cut_attempts"] == 1
    os.kill(second.pid, signal.SIGKILL)
    second.process.wait()
    third: Fleet = start(project, "-n", "0", "--agent", "claude", "--no-land")
    third.wait_for("run_changed", state="running")
    assert not found(third)
    (entry,) = third.journal("checkpointed")
    assert entry["tokens"] == receipt.tokens.total
    night = spent(third)["night"]
    assert (night["runs"], night["tokens"]) == (3, receipt.tokens.total)
