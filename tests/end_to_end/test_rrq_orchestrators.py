"""The real RRQ orchestrators of both versions, with our executor behind them."""

from __future__ import annotations

import shutil
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.fleet import until
from tests.support.peers import VERSIONS, Redis, rrq_of
from tests.support.rrq_orchestrator import OUR_EXECUTOR, Orchestrator

HANDLERS = Path(__file__).parents[1] / "support" / "handlers"
JOBS = 1000
ONCE = {"max_retries": 1}


@pytest.fixture(params=VERSIONS)
def rrq(request: pytest.FixtureRequest, redis: Redis, tmp_path: Path) -> Iterator[Orchestrator]:
    """An orchestrator of each version in turn, not started yet."""
    shutil.copy(HANDLERS / "work.py", tmp_path)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    made = Orchestrator(
        rrq_of(request.param),
        redis,
        tmp_path,
        (*OUR_EXECUTOR, "-n", "4"),
        port=port,
        base_retry_delay_seconds=0.2,
        default_poll_delay_seconds=0.05,
        worker_shutdown_grace_period_seconds=0.5,
    )
    yield made
    made.end()


def test_a_thousand_jobs_are_all_completed(rrq: Orchestrator) -> None:
    ids = rrq.enqueue(*[("add", {"a": n, "b": 1}, {}) for n in range(JOBS)])
    rrq.drain()
    assert rrq.states(ids) == {"COMPLETED": JOBS}, rrq.said()
    assert [rrq.job(ids[n])["result"] for n in (0, JOBS - 1)] == ["1", str(JOBS)]


def test_each_outcome_ends_where_rrq_has_it_end(rrq: Orchestrator, tmp_path: Path) -> None:
    tried, killed = str(tmp_path / "tried"), str(tmp_path / "killed")
    added, failing, later, late, missing, unwritable, dying = rrq.enqueue(
        ("add", {"a": 1, "b": 2}, {}),
        ("fail", {"message": "boom"}, {"max_retries": 2}),
        ("again", {"seconds": 0.3, "marker": tried}, {}),
        ("late", {}, {}),
        ("missing", {}, {}),
        ("unwritable", {}, ONCE),
        ("once", {"marker": killed}, {}),
    )
    rrq.start()
    assert rrq.ended(added)["result"] == "3"
    assert rrq.ended(later)["result"] == '"the second time"'
    assert rrq.ended(dying)["result"] == '"survived"'
    reasons = {
        failing: "ValueError: boom",
        late: "TimeoutError: took too long",
        missing: "there is no 'missing' in work",
        unwritable: "its result is not JSON",
    }
    for job_id, reason in reasons.items():
        ended = rrq.ended(job_id)
        assert (ended["status"], reason in ended["last_error"]) == ("FAILED", True), ended
    assert rrq.dead() == set(reasons)
    rrq.stop()


def test_what_runs_over_its_time_is_ended_and_so_is_what_a_stop_finds(
    rrq: Orchestrator, tmp_path: Path
) -> None:
    over, stopped = (tmp_path / name for name in ("over", "stopped"))
    timed_out, resting = rrq.enqueue(
        ("rest", {"marker": str(over)}, {"job_timeout_seconds": 1}),
        ("rest", {"marker": str(stopped)}, {}),
    )
    rrq.start()
    pids = [int(until(lambda marker=marker: marker.exists() and marker.read_text()))
            for marker in (over, stopped)]  # fmt: skip
    assert rrq.ended(timed_out)["status"] == "FAILED"
    assert timed_out in rrq.dead()
    until(lambda: not Path(f"/proc/{pids[0]}").exists(), what="it runs over its time")
    rrq.stop()
    assert rrq.job(resting)["status"] in ("PENDING", "RETRYING")
    until(lambda: not Path(f"/proc/{pids[1]}").exists(), what="it survived the stop")


def test_an_orchestrator_that_is_killed_leaves_neither_our_executor_nor_its_port(
    rrq: Orchestrator,
) -> None:
    rrq.start()
    (job_id,) = rrq.enqueue(("add", {"a": 1, "b": 2}, {}))
    assert rrq.ended(job_id)["result"] == "3"
    (executor,) = rrq.executors()
    rrq.kill()
    until(lambda: not Path(f"/proc/{executor}").exists(), seconds=20.0)
    rrq.start()
    (again,) = rrq.enqueue(("add", {"a": 3, "b": 4}, {}))
    assert rrq.ended(again)["result"] == "7"
    rrq.stop()
