"""Killed at the very moments at which a tracker and a journal can disagree, on both ``bd``."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.end_to_end.conftest import Ran, StartFleet
from tests.support.bd import BdProject
from tests.support.fleet import Fleet
from tests.support.wrapped_bd import KILL_ORCHESTRATOR, MortalBd

pytestmark = pytest.mark.daily(2)

CLOSING = "*' batch '*|*' close '*"
CLAIMING = "*' --claim '*"

HALF = """
  first=''; others=''; ids=''; count=0
  for word; do
    if [ "$ids" ]; then
      count=$((count + 1)); [ $count -gt 4 ] || first="$first $word"
    else
      [ "$word" = -- ] && ids=1; others="$others $word"
    fi
  done
  [ $count -eq 8 ] || { echo "$count ids" >"$0.wrong"; exit 1; }
  "$BD" $others $first >/dev/null"""
"""Claims four of the eight that it is asked for, as one that dies in the middle of a group."""


@pytest.fixture
def mortal(bd_project: BdProject, tmp_path: Path) -> MortalBd:
    return MortalBd(bd_project, tmp_path)


def drained_by_the_next(project: BdProject, start: StartFleet, ran: Ran, first: Fleet) -> Fleet:
    """The orchestrator of ``first`` dies; what the next start makes of it."""
    assert first.wait() == 1, first.said()
    assert "the next start settles what it left" in first.errors
    second: Fleet = start(
        project, "-n", "4", "--until-empty", "--", *ran.command(), environment=ran.environment
    )
    assert second.wait(100) == 0, second.said()
    assert {state for state, _ in project.read_all().values()} == {"closed"}
    second.leaves_nothing()
    return second


def successes(*fleets: Fleet) -> Counter[str]:
    """How often each issue is journalled as done."""
    return Counter(
        r["issue_id"] for f in fleets for r in f.journal("finished") if r["verdict"] == "finish"
    )


@pytest.mark.timeout(240)
def test_what_is_done_is_closed_by_the_next_start_and_never_run_again(
    bd_project: BdProject, mortal: MortalBd, start: StartFleet, ran: Ran, tmp_path: Path
) -> None:
    """It dies between the close and its journal line, and the next one between DONE and the close;
    the tasks of that one wait until it has settled what the first has left."""
    ids = bd_project.create_many([{} for _ in range(8)])
    settled = tmp_path / "settled"
    waits = f'[ -z "$WAITS" ] || until [ -e "{settled}" ]; do sleep 0.1; done'
    arguments = ("-n", "4", "--until-empty", "--", *ran.command(waits))
    mortal.at(CLOSING, f'"$BD" "$@" >/dev/null; {KILL_ORCHESTRATOR}')
    first: Fleet = start(bd_project, *arguments, environment=ran.environment | {"WAITS": ""})
    assert first.wait() == 1, first.said()
    assert mortal.struck
    second: Fleet = start(bd_project, *arguments, environment=ran.environment | {"WAITS": "1"})
    second.started().wait_for("started")
    mortal.at(CLOSING, KILL_ORCHESTRATOR)
    settled.touch()
    third = drained_by_the_next(bd_project, start, ran, second)
    assert mortal.struck
    assert first.journal("settled") == []
    for done in (set(successes(first)), set(successes(second))):
        assert done, "nothing was done when it died"
        assert {i for i in done if ran.begun().count(i) > 1} == set(), "a success was run again"
    assert successes(first, second, third) == Counter(ids)


@pytest.mark.timeout(180)
def test_a_group_claim_that_dies_with_the_orchestrator_strands_nothing(
    bd_project: BdProject, mortal: MortalBd, start: StartFleet, ran: Ran
) -> None:
    ids = bd_project.create_many([{} for _ in range(8)])
    mortal.at(CLAIMING, f"{HALF}; {KILL_ORCHESTRATOR}")
    first: Fleet = start(
        bd_project, "-n", "8", "--until-empty", "--", *ran.command(), environment=ran.environment
    )
    first.wait()
    held = [a for s, a in bd_project.read_all().values() if s == "in_progress"]
    assert (len(held), len(set(held))) == (4, 1), "the claim did not die in the middle"
    drained_by_the_next(bd_project, start, ran, first)
    ran.each_once(ids)


@pytest.mark.timeout(180)
def test_a_claim_that_outlives_the_orchestrator_is_waited_for_and_requeued(
    bd_project: BdProject, mortal: MortalBd, start: StartFleet, ran: Ran, tmp_path: Path
) -> None:
    ids = bd_project.create_many([{} for _ in range(4)])
    go = tmp_path / "go"
    sleeps = f'until [ -e "{go}" ]; do sleep 0.1; done'
    mortal.at(CLAIMING, f'{KILL_ORCHESTRATOR}; {sleeps}; "$BD" "$@" >/dev/null')
    arguments = ("-n", "4", "--until-empty", "--", *ran.command())
    first: Fleet = start(bd_project, *arguments, environment=ran.environment)
    first.wait()
    second: Fleet = start(bd_project, *arguments, environment=ran.environment).started()
    second.wait_for("checkpoint_ended")
    assert {state for state, _ in bd_project.read_all().values()} == {"open"}
    go.touch()
    assert second.wait(100) == 0, second.said()
    # The late claim was really made, and the next start gave all four back.
    assert {r["issue_id"] for r in second.journal("settled") if r["action"] == "release"} == set(
        ids
    )
    ran.each_once(ids)
    second.leaves_nothing()


@pytest.mark.timeout(180)
def test_a_group_claim_and_a_close_that_die_alone_strand_nothing_in_the_same_run(
    bd_project: BdProject, mortal: MortalBd, start: StartFleet, ran: Ran
) -> None:
    """The close dies after its work: that counts as done."""
    ids = bd_project.create_many([{} for _ in range(8)])
    mortal.at(CLAIMING, f"{HALF}; kill -9 $$")
    mortal.at(CLOSING, '"$BD" "$@" >/dev/null; kill -9 $$')
    fleet: Fleet = start(
        bd_project, "-n", "8", "--until-empty", "--", *ran.command(), environment=ran.environment
    )
    assert fleet.wait(100) == 0, fleet.said()
    assert mortal.struck
    ran.each_once(ids)
    assert successes(fleet) == Counter(ids)
    assert {state for state, _ in bd_project.read_all().values()} == {"closed"}
    fleet.leaves_nothing()
