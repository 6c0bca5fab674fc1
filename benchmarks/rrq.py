"""Jobs a second through the real ``rrq-executor`` of RRQ 0.9.8: driven by us, and by RRQ.

The same executor with the same handler, and as many requests at once; the handler itself keeps when
the first and the last call came, so that no side's start or end counts. RRQ has its jobs in a Redis
of its own that keeps nothing on disk; ours are issues of the embedded tracker, which are
journalled and closed on disk all the while.
"""

from __future__ import annotations

import json
import os
import shlex
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.tools.fetching import Missing, cache, debian
from benchmarks.tools.figures import Figure, Goal, in_turn
from benchmarks.tools.fleets import Broken, Project, run

VERSION = "0.9.8"
IN_FLIGHT = 8
RATIO_GOAL = 1.3
SETUP = Path(__file__).parent.parent / "scripts" / "setup-peers"
HANDLERS = Path(__file__).parent / "handlers"
START_SECONDS = 20.0


def measure(rounds: int, quick: bool, folder: Path) -> list[Figure]:
    """Jobs a second, paired: one side's round follows the other's at once."""
    run([str(SETUP)], Path.cwd(), dict(os.environ))
    programs = cache() / f"rrq-{VERSION}" / "bin"
    jobs, turns = 1000 if quick else 4000, iter(range(1_000_000))

    def ours() -> float:
        return _ours(folder / f"ours-{next(turns)}", programs, jobs)

    def peer() -> float:
        return _peer(folder / f"rrq-{next(turns)}", programs, jobs)

    title = f"rrq: {IN_FLIGHT} requests at once in one executor"
    rates = in_turn(title, rounds, ours, peer)
    return [Figure(f"{title} / RRQ", "jobs/s", *rates, RATIO_GOAL, Goal.AT_LEAST, paired=True)]


def _ours(where: Path, programs: Path, jobs: int) -> float:
    project = Project(where, environment_of(where))
    project.run("init")
    file = where / "import.jsonl"
    with file.open("w") as rows:
        for number in range(jobs):
            row = {"id": f"b-{number}", "title": f"number {number}", "status": "open"}
            called = {"job_path": "stamp", "args": [], "kwargs": {"number": number}}
            rows.write(json.dumps(row | {"priority": 2} | called) + "\n")
    project.run("import", str(file))
    executor = f"rrq:{shlex.join(real_executor(programs))}"
    options = ("-n", "1", "--in-flight", str(IN_FLIGHT), "--until-empty", "--executor", executor)
    # Neither side prints a line for each job.
    project.run("start", "--detach", *options)
    project.run("wait", codes=(0, 3))
    if project.closed() != jobs:
        raise Broken(f"ours closed {project.closed()} of {jobs}")
    return _rate(where, jobs)


def _peer(where: Path, programs: Path, jobs: int) -> float:
    where.mkdir()
    environment = environment_of(where)
    with redis_server(where) as url:
        settings = where / "rrq.toml"
        command = json.dumps(real_executor(programs))
        settings.write_text(
            f'[rrq]\nredis_dsn = "{url}"\ndefault_executor_name = "python"\n'
            "default_poll_delay_seconds = 0.01\n"
            f'[rrq.executors.python]\ntype = "socket"\ncmd = {command}\n'
            f"pool_size = 1\nmax_in_flight = {IN_FLIGHT}\n"
        )
        enqueue = [str(programs / "python"), str(HANDLERS / "bench_enqueue.py"), url, str(jobs)]
        run(enqueue, where, environment)
        orchestrator = [str(programs / "rrq"), "worker", "run", "--burst", "--config"]
        run([*orchestrator, str(settings)], where, environment)
    return _rate(where, jobs)


def real_executor(programs: Path) -> list[str]:
    """How it is started."""
    return [str(programs / "rrq-executor"), "--settings", "bench_handlers.settings"]


def environment_of(where: Path) -> dict[str, str]:
    """In which it, and ours, find their handlers."""
    added = {"PYTHONPATH": str(HANDLERS), "BENCH_STAMPS": str(where / "stamps"), "RUST_LOG": "warn"}
    return {**os.environ, **added}


def _rate(where: Path, jobs: int) -> float:
    calls, first, last = (where / "stamps").read_text().split()
    if int(calls) != jobs:
        raise Broken(f"{calls} calls for {jobs} jobs")
    return (jobs - 1) / (float(last) - float(first))


@contextmanager
def redis_server(where: Path) -> Iterator[str]:
    """One that keeps nothing; its URL."""
    try:
        program = debian("redis-server", "redis-server")
    except Missing as missing:
        raise Broken(str(missing)) from None
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    options = ["--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", str(where)]
    with (where / "redis.log").open("wb") as log:
        server = subprocess.Popen([program, "--port", str(port), *options], stdout=log, stderr=log)
    try:
        began = time.monotonic()
        while b"Ready to accept" not in (where / "redis.log").read_bytes():
            if server.poll() is not None or time.monotonic() - began > START_SECONDS:
                raise Broken("redis-server did not start")
            time.sleep(0.01)
        yield f"redis://127.0.0.1:{port}/0"
    finally:
        server.kill()
        server.wait()
