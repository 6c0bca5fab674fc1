"""Which runs are one night, and what they leave to the next start."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from beads_workers.agents.events import Usage
from beads_workers.agents.totals import Totals
from beads_workers.checks.night import spent
from beads_workers.core.base.budget import Budget
from beads_workers.core.base.model import IssueId
from beads_workers.core.base.night import NightSoFar
from beads_workers.core.base.wire import Done
from beads_workers.core.records import journal as rec
from beads_workers.core.records.receipts import Receipt, Tokens, to_json
from beads_workers.executors.files import usage_file
from beads_workers.runtime.night import night_so_far, runs_of_night, unread
from beads_workers.runtime.result_spool import spool_result
from beads_workers.runtime.retention import Keep, disposable
from beads_workers.runtime.run_directory import RunDirectory, host_name
from beads_workers.runtime.usage_file import UsageFile
from tests.support.journals import BEGAN_AT, RUN_ID, Script, started

GAP = 3600.0
NOW = BEGAN_AT + 100.0
USED = Receipt("done", agent="claude", usage={"m": Tokens(90, 10)}, money=0.5)


def write(root: Path, run_id: str, night: NightSoFar, *more: rec.Record) -> None:
    """A run that was killed after one attempt for half a dollar."""
    script = Script()
    actor = f"beads-workers/{host_name()}/{run_id}"
    began = replace(started(1), run_id=run_id, actor=actor, night=night)
    script.add(0.0, began, rec.CheckpointEnded())
    script.attempt("W1", "a", 1.0, 9.0, agent="claude", receipt=USED)
    script.add(10.0, *more)
    folder = script.write(root, run_id)
    (folder / "settled").touch()


def unmerged(landing: Mapping[str, Any]) -> bool:
    """Nobody has merged anything."""
    return False


def so_far(root: Path, now: float = NOW, is_merged: Any = unmerged) -> NightSoFar:
    """What a start finds there."""
    return night_so_far(RunDirectory(root), GAP, now, is_merged)


def test_without_a_run_a_night_begins(tmp_path: Path) -> None:
    assert so_far(tmp_path) == NightSoFar()


def test_a_start_goes_on_with_the_runs_before_it_and_their_money(tmp_path: Path) -> None:
    write(tmp_path, "r1", NightSoFar())
    first = so_far(tmp_path)
    assert first == NightSoFar("r1", 1, BEGAN_AT, 0.5, 100, closed=1)
    write(tmp_path, "r2", first)
    assert so_far(tmp_path) == NightSoFar("r1", 2, BEGAN_AT, 1.0, 200, closed=2)
    (tmp_path / "runs" / "r3").mkdir()  # It was refused.
    assert so_far(tmp_path).runs == 2
    assert runs_of_night(RunDirectory(tmp_path), "r2") == ["r1", "r2"]


def test_it_is_over_after_a_gap_or_once_somebody_was_told(tmp_path: Path) -> None:
    write(tmp_path, "r1", NightSoFar())
    assert so_far(tmp_path, NOW + GAP) == NightSoFar()
    RunDirectory(tmp_path).mark_told("r1")
    assert so_far(tmp_path) == NightSoFar()


@pytest.mark.parametrize(("merged", "runs"), [(True, 0), (False, 2)])
def test_it_is_over_once_what_it_landed_last_is_merged(
    tmp_path: Path, merged: bool, runs: int
) -> None:
    landed = rec.LandingTip("c" * 40, "bw-landing/main"), rec.BranchLanded("b", 1, "c" * 40)
    write(tmp_path, "r1", NightSoFar(), *landed)
    write(tmp_path, "r2", NightSoFar("r1", 1))
    assert so_far(tmp_path, is_merged=lambda landing: merged).runs == runs


def test_keep_runs_removes_no_run_of_the_night(tmp_path: Path) -> None:
    directory = RunDirectory(tmp_path)
    for number in range(3):
        write(tmp_path, f"r{number}", NightSoFar())
    night = NightSoFar()
    for number in range(3, 8):
        write(tmp_path, f"r{number}", night)
        night = so_far(tmp_path)
    gone = [folder.name for folder in disposable(directory, Keep(2, None))]
    assert gone == ["r0", "r1", "r2"]
    assert len(disposable(directory, Keep(2, None, night=False))) == 6, "a person asks for it"
    assert so_far(tmp_path).money == 2.5


def killed(root: Path, run_id: str, night: NightSoFar) -> Path:
    """A run that was killed: one result is spooled, one agent was cut, and it has told neither."""
    script = Script()
    actor = f"beads-workers/{host_name()}/{run_id}"
    began = replace(started(2), run_id=run_id, actor=actor, night=night)
    script.add(0.0, began, rec.CheckpointEnded())
    for issue_id in ("left", "cut"):
        script.attempt("W1", issue_id, 1.0, None, agent="claude")
    folder = script.write(root, run_id)
    answer = Done(IssueId("left"), "W1", 9, receipt=to_json(USED), request_id=f"{RUN_ID}.1")
    spool_result(str(folder), answer)
    usage = Path(usage_file(str(folder), f"{RUN_ID}.2"))
    usage.parent.mkdir(exist_ok=True)
    file = UsageFile(str(usage))
    file.begin("claude", "opus", {"opus*": (5.0, 25.0, 0.5)})
    file.session("s-1", Totals("s-1"))
    file.add([Usage("opus-5", 1000, 200, money=0.25)], Totals("s-1"))
    return folder


def test_what_a_killed_run_has_not_read_counts_for_the_start_once(tmp_path: Path) -> None:
    directory = RunDirectory(tmp_path)
    write(tmp_path, "r1", NightSoFar())
    night = so_far(tmp_path)
    assert unread(directory, night) == (0.0, 0)
    folder = killed(tmp_path, "r2", night)
    night = so_far(tmp_path)
    assert (night.runs, night.money, night.tokens) == (2, 0.5, 100), "its recovery counts the rest"
    assert unread(directory, night) == (0.75, 1300)
    assert unread(directory, replace(night, first="r3")) == (0.0, 0), "of another night"

    assert spent(tmp_path, Budget(dollars=1.5), night) is None
    assert spent(tmp_path, Budget(dollars=1.0, per_run=True), night) is None
    refused = spent(tmp_path, Budget(dollars=1.0), night)
    assert refused is not None and refused.text.startswith("$1.25 of $1 is spent, by 2 runs")
    (folder / "settled").touch()
    assert spent(tmp_path, Budget(dollars=1.0), night) is None
