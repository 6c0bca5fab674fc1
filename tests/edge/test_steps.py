"""Where a step's output goes: docs/PROTOCOL.md, "The run directory"."""

from __future__ import annotations

from tests.edge import test_worker
from tests.edge.test_worker import Bench

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
