"""Jobs a second under the real orchestrator of RRQ 0.9.8: run by our executor, and by its own.

The same jobs, the same orchestrator, as many requests at once; RRQ itself says when the first began
and the last was completed. Ours has as many workers as there are cores, each a process, and
journals every request; RRQ's is one process. Handlers do nothing, work for one and for three
milliseconds, and only wait; ours once as any function, in a process to itself, and once declared
concurrent. Beside the rate stands the CPU time for each job of all processes of either side, the
orchestrator and Redis included, and what a start costs left out.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from datetime import datetime
from functools import partial
from itertools import count
from pathlib import Path

from benchmarks.rrq import SETUP, VERSION, environment_of, real_executor, redis_server
from benchmarks.tools.fetching import cache
from benchmarks.tools.figures import Figure, Goal, in_turn
from benchmarks.tools.fleets import Broken, ours, run

IN_FLIGHT = 32
HANDLERS = Path(__file__).parent / "handlers"
START_JOBS = 40
"""Of a run that is little more than a start."""
ROWS = {
    "noop": ("that do nothing", 4000, 0, 1.0),
    "brief": ("that work for 1 ms", 3000, 0, 1.2),
    "spin": ("that work for 3 ms", 1500, 0, 1.4),
    "noop_beside": ("declared concurrent that do nothing", 4000, 1, 1.0),
    "brief_beside": ("declared concurrent that work for 1 ms", 3000, 2, 1.2),
    "spin_beside": ("declared concurrent that work for 3 ms", 1500, 2, 1.4),
    "pause": ("declared concurrent that wait for 50 ms", 4000, 1, 1.0),
}
"""By handler: what is said of it, how many jobs, among how many processes they are shared (0: each
has one to itself), and the goal."""


class Side:
    """One executor: a run of it gives the rate, and keeps what it has cost."""

    def __init__(self, folder: Path, name: str, command: list[str]) -> None:
        self._folder, self._name, self._command = folder, name, command
        self._programs, self._turns = cache() / f"rrq-{VERSION}" / "bin", count()
        self._start = 0.0
        self.milliseconds: list[float] = []
        """CPU time for each job, by run."""

    def rate(self, handler: str, jobs: int) -> float:
        """Jobs a second."""
        if not self._start:
            _, self._start = self._run(handler, START_JOBS)
        rate, seconds = self._run(handler, jobs)
        self.milliseconds.append(1000 * (seconds - self._start) / (jobs - START_JOBS))
        return rate

    def _run(self, handler: str, jobs: int) -> tuple[float, float]:
        where = self._folder / f"{self._name}-{next(self._turns)}"
        return _run(where, self._programs, self._command, handler, jobs)


def measure(rounds: int, quick: bool, folder: Path) -> list[Figure]:
    """Jobs a second for all kinds of handlers, paired, and CPU time for each job."""
    run([str(SETUP)], Path.cwd(), dict(os.environ))
    real = real_executor(cache() / f"rrq-{VERSION}" / "bin")
    figures = []
    for handler, (what, jobs, processes, goal) in ROWS.items():
        number = jobs // 4 if quick else jobs
        mine = Side(folder, f"ours-{handler}", _our_executor(processes))
        peer = Side(folder, f"rrq-{handler}", real)
        title = f"rrq: our executor under RRQ's orchestrator, handlers {what}"
        rates = in_turn(
            title,
            rounds,
            partial(mine.rate, handler, number),
            partial(peer.rate, handler, number),
        )
        name = f"{title} / RRQ's executor"
        figures.append(Figure(name, "jobs/s", *rates, goal, Goal.AT_LEAST, paired=True))
        spent = tuple(mine.milliseconds), tuple(peer.milliseconds)
        figures.append(Figure(f"{name}, CPU of all processes", "ms/job", *spent, paired=True))
    return figures


def _our_executor(processes: int) -> list[str]:
    workers = processes or os.cpu_count() or 1
    shared = ["--in-flight", str(IN_FLIGHT // processes)] if processes else []
    functions = ["--allow-module", "bench_work", "--prefix", "bench_work"]
    return [ours(), "rrq-executor", "-n", str(workers), *shared, *functions]


def _run(
    where: Path, programs: Path, command: list[str], handler: str, jobs: int
) -> tuple[float, float]:
    """Jobs a second, and the CPU seconds of everything."""
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
        before = _redis_seconds(url)
        orchestrator = [str(programs / "rrq"), "worker", "run", "--burst", "--config"]
        family = [sys.executable, "-m", "benchmarks.tools.family"]
        path = f"{HANDLERS.parent.parent}:{environment['PYTHONPATH']}"
        told = run(
            [*family, *orchestrator, str(settings)], where, environment | {"PYTHONPATH": path}
        )
        seconds = float(told.split()[-1]) + _redis_seconds(url) - before
        return _completed(url, jobs), seconds


def _redis_seconds(url: str) -> float:
    """CPU time of the server so far."""
    told = subprocess.run(
        ["redis-cli", "-u", url, "info", "cpu"], capture_output=True, text=True, check=True
    )
    rows = dict(line.split(":") for line in told.stdout.split() if ":" in line)
    return float(rows["used_cpu_sys"]) + float(rows["used_cpu_user"])


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
