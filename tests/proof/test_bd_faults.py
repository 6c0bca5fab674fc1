"""A ``bd`` that breaks: a sample of what ``scripts/faults bd`` tries for real."""

from __future__ import annotations

import os
import random
from pathlib import Path

from tests.proof.bd_faults import SUITE
from tests.proof.git_faults import Bench, cases_of
from tests.support.bd import OLD

SEED = int(os.environ.get("BD_FAULTS_SEED") or random.randrange(1_000_000))
POSITIONS = 20
"""Of the quicker ``bd``: so many calls has each of its runs."""


def test_a_call_of_bd_that_breaks_strands_nothing(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "of", SUITE)
    quick = [c for c in cases_of(f"bd {OLD}", POSITIONS, SUITE) if "hangs" not in c.how]
    case = random.Random(SEED).choice(quick)
    try:
        why = bench.try_it(case)
    finally:
        bench.close()
    assert not why, f"BD_FAULTS_SEED={SEED}, {case}: {why}"
