"""Some seeds in every run of the suite, and planted bugs that must be found."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.simulation.mutants import MUTANTS
from tests.simulation.seeds import PUSHES, run_seed, shrink
from tests.simulation.world import Options

CAS = "no-compare-and-swap"
SEEDS = range(12)
SEEDS_MAX = 120
"""In so many worlds every planted bug shows itself; most do in the first."""


def _holds(options: Options, *kind: str) -> None:
    """Run a world; ``kind``: the words of ``scripts/simulate`` for its options."""
    outcome = run_seed(options)
    again = " ".join(("scripts/simulate", *kind, "--seed", str(options.seed), "--verbose"))
    assert not outcome.violation, f"{again}\n{outcome.violation}"
    assert outcome.faults.total() > 50 and outcome.closed > 5, "a world in which little happens"


@pytest.mark.share(6)
@pytest.mark.parametrize("seed", SEEDS)
def test_all_invariants_hold_whatever_goes_wrong(seed: int) -> None:
    _holds(Options(seed))


@pytest.mark.share(6)
@pytest.mark.parametrize("seed", range(6 if PUSHES else 0))
def test_whoever_sends_work_gets_one_answer_whatever_goes_wrong(seed: int) -> None:
    _holds(Options(seed, push=True), "--push")


@pytest.mark.share(6)
@pytest.mark.parametrize("seed", range(6))
def test_agents_are_left_alone_whatever_goes_wrong(seed: int) -> None:
    _holds(Options(seed, agents=True), "--agents")


@pytest.mark.share(6)
@pytest.mark.parametrize("seed", range(6))
def test_closed_means_landed_whatever_goes_wrong(seed: int) -> None:
    _holds(Options(seed, landing=True), "--landing")


@pytest.mark.share(6)
@pytest.mark.parametrize("seed", range(6))
def test_no_two_attempts_live_at_once_whatever_goes_wrong(seed: int) -> None:
    _holds(Options(seed, away=True), "--away")


@pytest.mark.share(6)
@pytest.mark.parametrize("name", [n for n, m in MUTANTS.items() if PUSHES or not m.push])
def test_a_planted_bug_is_caught(name: str) -> None:
    seeds = (MUTANTS[name].seed, *range(SEEDS_MAX))
    worlds = (run_seed(Options(seed), name) for seed in seeds)
    caught = next(outcome for outcome in worlds if outcome.violation)
    assert caught.number in MUTANTS[name].caught_by, caught.violation


def test_a_seed_is_the_same_world_every_time() -> None:
    once, again = (run_seed(Options(3, verbose=True)) for _ in range(2))
    assert once == again and len(once.log) > 100


def test_a_broken_seed_is_broken_with_fewer_faults_too() -> None:
    options = next(o for s in range(SEEDS_MAX) if run_seed(o := Options(s), CAS).violation)
    whole = run_seed(options, CAS)
    first = shrink(options, CAS, whole)
    assert 0 < first <= whole.faults.total()
    assert run_seed(replace(options, faults_max=first), CAS).violation
