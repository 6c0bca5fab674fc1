"""The state tables: total, and no stranger's word can bring about a bug of ours."""

from __future__ import annotations

from enum import Enum

import pytest

from beads_workers.core.base.states import (
    CONNECTION,
    ISSUE,
    RUN,
    WORKER,
    ConnReaction,
    ConnState,
    ConnStimulus,
    ImpossibleMove,
    IssueReaction,
    IssueState,
    IssueStimulus,
    RunReaction,
    RunState,
    RunStimulus,
    Table,
    WorkerReaction,
    WorkerState,
    WorkerStimulus,
    step,
)

TABLES = [
    (CONNECTION, ConnState, ConnStimulus, ConnReaction),
    (ISSUE, IssueState, IssueStimulus, IssueReaction),
    (RUN, RunState, RunStimulus, RunReaction),
    (WORKER, WorkerState, WorkerStimulus, WorkerReaction),
]
NAMES = ["connection", "job", "run", "worker"]


@pytest.mark.parametrize(("table", "states", "stimuli", "reactions"), TABLES, ids=NAMES)
def test_every_pair_is_decided(
    table: Table[Enum, Enum, Enum], states: type[Enum], stimuli: type[Enum], reactions: type[Enum]
) -> None:
    assert set(table) == {(state, stimulus) for state in states for stimulus in stimuli}


@pytest.mark.parametrize(("table", "states", "stimuli", "reactions"), TABLES, ids=NAMES)
def test_every_reaction_is_used_and_every_state_but_the_first_can_be_reached(
    table: Table[Enum, Enum, Enum], states: type[Enum], stimuli: type[Enum], reactions: type[Enum]
) -> None:
    decided = [m for m in table.values() if m.reaction.name != "BUG"]
    assert {m.reaction for m in decided} >= {r for r in reactions if r.name != "BUG"}
    first = next(iter(states))
    reached = {first}
    while (
        more := {
            move.to
            for (state, _), move in table.items()
            if state in reached and move.reaction.name != "BUG"
        }
        - reached
    ):
        reached |= more
    assert reached == set(states)


@pytest.mark.parametrize("state", ConnState)
@pytest.mark.parametrize("stimulus", [ConnStimulus.SAID_READY, ConnStimulus.STRAY])
def test_whatever_a_worker_says_in_whatever_state_is_no_bug_of_ours(
    state: ConnState, stimulus: ConnStimulus
) -> None:
    assert step(CONNECTION, state, stimulus).reaction is not ConnReaction.BUG


@pytest.mark.parametrize("state", RunState)
@pytest.mark.parametrize(
    "stimulus", [RunStimulus.PAUSE, RunStimulus.RESUME, RunStimulus.DRAIN, RunStimulus.STOP]
)
def test_whatever_a_person_asks_in_whatever_state_is_no_bug_of_ours(
    state: RunState, stimulus: RunStimulus
) -> None:
    assert step(RUN, state, stimulus).reaction is not RunReaction.BUG


def test_a_bug_of_ours_ends_the_process() -> None:
    with pytest.raises(ImpossibleMove):
        step(ISSUE, IssueState.CLOSED, IssueStimulus.SENT)


def test_no_finished_job_comes_back_but_by_a_persons_retry() -> None:
    left = {
        s: [t for t in IssueStimulus if ISSUE[s, t].reaction is not IssueReaction.BUG]
        for s in (IssueState.CLOSED, IssueState.FOREIGN, IssueState.QUARANTINED)
    }
    assert left == {
        IssueState.CLOSED: [],
        IssueState.FOREIGN: [],
        # Or because its branch has landed after all, which closes it.
        IssueState.QUARANTINED: [IssueStimulus.LANDED, IssueStimulus.REQUEUED],
    }
