"""Where a step's output goes: docs/OPERATIONS.md, "The run directory"."""

from __future__ import annotations

from pathlib import Path

import pytest

from beads_workers.core.base.plans import Plan, Step, StepKind
from beads_workers.runtime.steps import CannotStart, start_step
from tests.runtime import test_worker
from tests.runtime.test_worker import Bench

bench = test_worker.bench


def test_a_step_that_prints_nothing_leaves_no_log(bench: Bench) -> None:
    bench.sh("true")
    bench.result("DONE")
    assert not list((bench.run / "logs").glob("*.log"))


def test_a_free_retry_adds_to_the_log_of_its_attempt(bench: Bench) -> None:
    bench.sh("echo again; exit 75")
    bench.result("FAILED")
    bench.result("FAILED")
    assert bench.log() == "again\nagain\n"


def test_what_a_killed_worker_of_that_name_had_printed_is_kept(bench: Bench) -> None:
    left = bench.run / "logs" / ".W1.out"
    left.parent.mkdir(parents=True)
    left.write_text("last words")
    bench.sh("echo mine")
    bench.result("DONE")
    assert bench.log() == "mine\n"
    (lost,) = (bench.run / "logs").glob("lost.W1.out.*.log")
    assert lost.read_text() == "last words"


@pytest.mark.parametrize("written", ["", "{", "[]", '{"folder": 7}', '{"folder": "/", "x": 1}'])
def test_a_damaged_word_about_the_place_is_an_error_of_that_step_and_of_nothing_else(
    written: str, tmp_path: Path
) -> None:
    place = tmp_path / "place.json"
    place.write_text(written)
    step = Step(StepKind.RUN, ("true",), place_file=str(place))
    files = (str(tmp_path / name) for name in ("issue", "log", "output"))
    plan = Plan((step,), next(files), "{}", next(files), next(files))
    here = Path.cwd()
    with pytest.raises(CannotStart):
        start_step(plan, step, {})
    assert Path.cwd() == here
