"""A git that dies: the harness breaks what it is told to, and a sample of it for real."""

from __future__ import annotations

import os
import random
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.proof.git_faults import Account, Bench, Case, cases_of, sampled, table
from tests.support.mortal_git import MortalGit

SEED = int(os.environ.get("GIT_FAULTS_SEED") or random.randrange(1_000_000))
SAMPLE = {
    "attempt": 2,
    "worktree": 1,
    "landing in conflict": 2,
    "landing with a culprit": 1,
    "clean": 1,
    "land": 1,
    "delivery": 1,
}
"""How many calls of a scenario break here; ``scripts/faults git`` has all, and more scenarios."""


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    """Shared by all scenarios."""
    bench = Bench(tmp_path_factory.mktemp("bench") / "of")
    yield bench
    bench.close()


@pytest.mark.share(2)
@pytest.mark.parametrize("name", SAMPLE)
def test_a_call_of_git_that_breaks_costs_nothing_but_time(bench: Bench, name: str) -> None:
    calls = bench.calls(name)
    drawn = random.Random(f"{SEED} {name}")
    for case in drawn.sample(list(cases_of(name, len(calls))), SAMPLE[name]):
        why = bench.try_it(case)
        assert not why, f"GIT_FAULTS_SEED={SEED}, {case} ({calls[case.position - 1]}): {why}"


def test_calls_of_many_processes_are_counted_and_one_of_them_breaks(tmp_path: Path) -> None:
    mortal = MortalGit(tmp_path / "git")

    def call(number: int) -> int:
        words = [str(mortal.path / "git"), "version", str(number)]
        return subprocess.run(words, capture_output=True, check=False).returncode

    with ThreadPoolExecutor(4) as pool:
        mortal.counts()
        list(pool.map(call, range(20)))
        assert mortal.calls == 20 and len(mortal.named()) == 20
        mortal.dies(7, "fails")
        assert sorted(pool.map(call, range(20)))[-2:] == [0, 128]
    for how, code in {"is killed": -9, "is killed late": -9, "says no": 1}.items():
        mortal.dies(2, how)
        assert [call(0) for _ in range(3)] == [0, code, 0]
    mortal.dies(2, "fails", from_then_on=True)
    assert [call(0) for _ in range(3)] == [0, 128, 128]
    mortal.rests()
    assert call(0) == 0 and mortal.calls == 3


def test_cases_are_read_as_they_are_named_and_a_sample_is_of_all_scenarios() -> None:
    cases = [*cases_of("landing with main", 3), *cases_of("attempt", 2)]
    assert [Case.read(str(case)) for case in cases] == cases
    assert {case.scenario for case in sampled(cases, 2, 1)} == {"landing with main", "attempt"}
    account = Account(cases=2, violations=["attempt: 1 fails (): it is lost"])
    account.tried["attempt"] = 2
    assert "attempt" in table(account) and "it is lost" in table(account)
