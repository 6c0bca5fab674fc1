"""The real RRQ orchestrators of both versions, with our executor behind them."""

from __future__ import annotations

import os
import shutil
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.fleet import until
from tests.support.peers import VERSIONS, Redis, rrq_of
from tests.support.rrq_orchestrator import OUR_EXECUTOR, Orchestrator

pytestmark = pytest.mark.daily(3)

HANDLERS = Path(__file__).parents[1] / "support" / "handlers"
JOBS = 200
ONCE = {"max_retries": 1}
CROWD = 12


def orchestrator(
    version: str, redis: Redis, tmp_path: Path, *options: str, in_flight: int = 16
) -> Orchestrator:
    """One of that version, not started yet."""
    shutil.copy(HANDLERS / "work.py", tmp_path)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    return Orchestrator(
        rrq_of(version),
        redis,
        tmp_path,
        (*OUR_EXECUTOR, *options),
        port=port,
        max_in_flight=in_flight,
        base_retry_delay_seconds=0.2,
        default_poll_delay_seconds=0.05,
        worker_shutdown_grace_period_seconds=0.5,
    )


@pytest.fixture(params=VERSIONS)
def rrq(request: pytest.FixtureRequest, redis: Redis, tmp_path: Path) -> Iterator[Orchestrator]:
    """An orchestrator of each version in turn, with four workers."""
    made = orchestrator(request.param, redis, tmp_path, "-n", "4")
    yield made
    made.end()


@pytest.fixture(params=VERSIONS)
def crowd(request: pytest.FixtureRequest, redis: Redis, tmp_path: Path) -> Iterator[Orchestrator]:
    """The same with one worker, where all requests may be in one process."""
    options = ("-n", "1", "--in-flight", str(CROWD))
    made = orchestrator(request.param, redis, tmp_path, *options, in_flight=CROWD)
    yield made
    made.end()


def test_hundreds_of_jobs_are_all_completed(rrq: Orchestrator) -> None:
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


RESTS = [("rest", {"seconds": 0.8}, {"job_timeout_seconds": 4, **ONCE})] * 20


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("max_in_flight", [16, 2])
def test_jobs_that_time_out_while_they_wait_inside_are_foretold_and_mended_by_one_setting(
    version: str, max_in_flight: int, redis: Redis, tmp_path: Path
) -> None:
    rrq = orchestrator(version, redis, tmp_path, "-n", "2", in_flight=max_in_flight)
    try:
        ids = rrq.enqueue(*RESTS)
        rrq.drain()
        journals = tmp_path.glob(".beads-workers/rrq/*/runs/*/journal.jsonl")
        told = [line for each in journals for line in each.read_text().splitlines()]
        warnings = [line for line in told if "set max_in_flight in rrq.toml to 2" in line]
        dead = rrq.dead()
        assert (len(warnings), bool(dead)) == ((1, True) if max_in_flight > 2 else (0, False))
        assert rrq.states(ids)["COMPLETED"] == len(RESTS) - len(dead)
    finally:
        rrq.end()


def test_as_many_as_are_in_flight_wait_in_one_process(crowd: Orchestrator) -> None:
    crowd.start()
    ids = crowd.enqueue(*[("meet", {"many": CROWD}, {}) for _ in range(CROWD)])
    assert len({crowd.ended(job_id)["result"] for job_id in ids}) == 1
    assert crowd.states(ids) == {"COMPLETED": CROWD}
    (apart,) = crowd.enqueue(("add", {"a": 1, "b": 2}, {}))
    assert crowd.ended(apart)["result"] == "3"
    crowd.stop()


def test_a_process_that_is_killed_with_all_requests_in_it_costs_none_of_them(
    crowd: Orchestrator, tmp_path: Path
) -> None:
    began = tmp_path / "began"
    ids = crowd.enqueue(*[("doze", {"seconds": 2, "marker": str(began)}, ONCE)] * CROWD)
    crowd.start()
    until(lambda: began.exists() and len(began.read_text().split()) == CROWD)
    (shared,) = {int(pid) for pid in began.read_text().split()}
    os.kill(shared, signal.SIGKILL)
    results = {crowd.ended(job_id)["result"] for job_id in ids}
    assert crowd.states(ids) == {"COMPLETED": CROWD}, crowd.said()
    assert len(results) == CROWD and str(shared) not in results, "each in a process of its own"
    crowd.stop()


def test_who_kills_the_process_again_and_again_fails_alone(
    crowd: Orchestrator, tmp_path: Path
) -> None:
    began = tmp_path / "began"
    dozing = [("doze", {"seconds": 2, "marker": str(began)}, ONCE)] * 8
    guilty, *ids = crowd.enqueue(("poison", {}, {"max_retries": 2}), *dozing)
    crowd.start()
    assert {crowd.ended(job_id)["status"] for job_id in ids} == {"COMPLETED"}, crowd.said()
    ended = crowd.ended(guilty)
    assert (ended["status"], "exit status 3" in ended["last_error"]) == ("FAILED", True), ended
    assert crowd.dead() == {guilty}
    crowd.stop()
