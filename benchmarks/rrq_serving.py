"""Jobs a second under the real orchestrator of RRQ 0.9.8: run by our executor, and by its own.

The same jobs, the same orchestrator, as many requests at once; RRQ itself says when the first began
and the last was completed. Ours has as many workers as there are cores, each a process, and
journals every request; RRQ's is one process. With handlers that do nothing this shows what a job
costs on its way; with handlers that work for one and for three milliseconds, what it is good for.
"""

from __future__ import annotations

import json
import os
import subprocess
from datetime import datetime
from pathlib import Path

from benchmarks.rrq import SETUP, VERSION, environment_of, real_executor, redis_server
from benchmarks.tools.fetching import cache
from benchmarks.tools.figures import Figure, Goal, in_turn
from benchmarks.tools.fleets import Broken, ours, run

IN_FLIGHT = 32
HANDLERS = Path(__file__).parent / "handlers"
GOAL = 1.0
JOBS = {"noop": 4000, "brief": 3000, "spin": 1500}
WHAT = {"noop": "that do nothing", "brief": "that work for 1 ms", "spin": "that work for 3 ms"}


def measure(rounds: int, quick: bool, folder: Path) -> list[Figure]:
    """Jobs a second for both kinds of handlers, paired."""
    run([str(SETUP)], Path.cwd(), dict(os.environ))
    programs, turns = cache() / f"rrq-{VERSION}" / "bin", iter(range(1_000_000))
    figures = []
    for handler, jobs in JOBS.items():
        count = jobs // 4 if quick else jobs

        def rate(command: list[str], handler: str = handler, count: int = count) -> float:
            return _rate(folder / f"turn-{next(turns)}", programs, command, handler, count)

        title = f"rrq: our executor under RRQ's orchestrator, handlers {WHAT[handler]}"
        real = real_executor(programs)
        rates = in_turn(
            title, rounds, lambda r=rate: r(_our_executor()), lambda r=rate, e=real: r(e)
        )
        name = f"{title} / RRQ's executor"
        figures.append(Figure(name, "jobs/s", *rates, GOAL, Goal.AT_LEAST, paired=True))
    return figures


def _our_executor() -> list[str]:
    workers = str(os.cpu_count() or 1)
    functions = ["--allow-module", "bench_work", "--prefix", "bench_work"]
    return [ours(), "rrq-executor", "-n", workers, *functions]


def _rate(where: Path, programs: Path, command: list[str], handler: str, jobs: int) -> float:
    where.mkdir()
    environment = environment_of(where)
    with redis_server(where) as url:
        settings = where / "rrq.toml"
        settings.write_text(
            f'[rrq]\nredis_dsn = "{url}"\ndefault_executor_name = "one"\n'
            "default_poll_delay_seconds = 0.01\n"
            f'[rrq.executors.one]\ntype = "socket"\ncmd = {json.dumps(command)}\n'
            f'pool_size = 1\nmax_in_flight = {IN_FLIGHT}\ncwd = "{where}"\n'
        )
        enqueue = [str(programs / "python"), str(HANDLERS / "bench_enqueue.py"), url, str(jobs)]
        run([*enqueue, handler], where, environment)
        orchestrator = [str(programs / "rrq"), "worker", "run", "--burst", "--config"]
        run([*orchestrator, str(settings)], where, environment)
        return _completed(url, jobs)


_TIMES = """
local first, last, count = nil, nil, 0
for _, key in ipairs(redis.call("keys", "rrq:job:*")) do
  local found = redis.call("hmget", key, "status", "start_time", "completion_time")
  if found[1] == "COMPLETED" then
    count = count + 1
    if not first or found[2] < first then first = found[2] end
    if not last or found[3] > last then last = found[3] end
  end
end
return {tostring(count), first, last}
"""


def _completed(url: str, jobs: int) -> float:
    """The rate, by what RRQ has written down of each job."""
    done = subprocess.run(
        ["redis-cli", "-u", url, "eval", _TIMES, "0"], capture_output=True, text=True, check=True
    )
    count, first, last = done.stdout.split()
    if int(count) != jobs:
        raise Broken(f"{count} of {jobs} jobs were completed")
    return jobs / (_seconds(last) - _seconds(first))


def _seconds(text: str) -> float:
    """To the microsecond; RRQ writes nine digits, or none, and the offset of UTC."""
    moment, _, fraction = text.partition("+")[0].rstrip("Z").partition(".")
    return datetime.fromisoformat(moment).timestamp() + float(f"0.{fraction or 0}")
