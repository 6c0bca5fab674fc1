"""Nodes of a Slurm cluster: each attempt's guard runs in the script of a job, which is its room.

The line to a node is a step of any job of ours there. So the job of an attempt lasts until home's
``bye`` has removed the attempt's folder: its files can be read even if the cluster is full. If
Slurm ends the job before, another one without a guard follows it to the node.

What Slurm says of a job never ends an attempt, and the guard lets no attempt begin twice.
"""

from __future__ import annotations

import asyncio
import shlex
import time
from contextlib import suppress
from functools import partial
from subprocess import TimeoutExpired, run

from beads_workers.core.base.model import value
from beads_workers.core.base.settings import PlaceSettings
from beads_workers.places.line import SOURCE, Unreached

CALL_SECONDS = 10.0
"""Time in which a program of Slurm must have answered."""
POLL_SECONDS = 1.0
"""Time between two lists of our jobs while attempts wait for a node."""
FOLLOW_SECONDS = 10.0
"""Time between two looks at the jobs of attempts that were placed."""
FOLDER = "~/.cache/beads-workers/away/*/attempts/{}"
"""The folder of an attempt as a word of a shell, whatever its fleet."""
LIVE = ("PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "RUNNING", "STOPPED", "SUSPENDED")
"""States of jobs that run, or will do so."""

# After the guard, home has ten minutes to read the attempt's files. The job has failed if the guard
# has made no folder.
SCRIPT = """#!/bin/sh
{serve}for i in $(seq 600); do [ -e {folder} ] || exit $((i < 2)); sleep 1; done
"""
SERVE = "python3 -IS - serve ~/{0}/attempts/{1} {2} {1} <<'END OF GUARD'\n{3}\nEND OF GUARD\n"
SERVED = "for i in $(seq 80); do [ -S {}/s ] && echo yes && break; sleep 0.1; done"
# For a script, --export=NONE means the environment of a login; for a step it means none. What a
# login prints is not part of what the command prints.
STEP = """exec srun --jobid="$1" --overlap -N1 -n1 --mem=0 --quiet --export=NONE --chdir=/ \
  /bin/sh -c 'eval "export HOME=~$(id -un)"; exec /bin/bash -lc "exec >&3 3>&-; $0" 3>&1 >&2' "$2"
"""
LINE = rf"""jobs=$(squeue --me -h -t RUNNING -w "$1" -o "%i %j") || exit
job=$(echo "$jobs" | sed -n 's/ bw\..*//p' | tail -n 1)
[ "$job" ] || {{ echo "no job of ours runs there" >&2; exit 1; }}
set -- "$job" "$2"
{STEP}"""


@value
class SlurmJob:
    """A job as ``squeue`` shows it."""

    id: str
    state: str
    # The node of a job that runs; of another one the reason, in parentheses.
    where: str


class Slurm:
    """``Engine`` of one partition; an attempt's host is the name of its node."""

    def __init__(self, place: PlaceSettings, remote: str) -> None:
        self._place, self._remote = place, remote
        self.waiting: dict[str, str] = {}
        """Why attempts wait for a node, by nonce, in Slurm's words."""
        self._following: dict[str, asyncio.Task[None]] = {}
        self._listing: asyncio.Task[dict[str, SlurmJob]] | None = None

    def known_hosts(self) -> list[str]:
        """Return none: lines lead to nodes where attempts are."""
        return []

    def argv(self, host: str) -> list[str]:
        """Return the command of the line to a node; each time it finds a job of ours there."""
        return ["sh", "-c", LINE, "sh", host, self._remote]

    async def place(self, issue_id: str, nonce: str, base: str) -> str:
        """Return the node of the attempt's job, once the guard is there; raises ``Unreached``."""
        below_home = shlex.quote(base.removeprefix("~/"))
        serve = SERVE.format(below_home, nonce, shlex.quote(issue_id[:200]), SOURCE)
        room = (f"--{name}={amount:.15g}" for name, amount in self._place.resources.items())
        try:
            await self._submit(nonce, serve, *room)
            job = await self._running(nonce)
        finally:
            self.waiting.pop(nonce, None)
        if not await _step(job.id, SERVED.format(FOLDER.format(nonce))):
            raise Unreached(f"no guard started in job {job.id}")
        return await self.find(job.where, nonce)

    async def drop(self, nonce: str) -> None:
        """Cancel the job of an attempt that has not begun; another one ends with ``bye``."""
        self._following.pop(nonce, None)
        job = (await _jobs(f"--name=bw.{nonce}")).get(nonce)
        with suppress(Unreached):
            begun = f"[ ! -e {FOLDER.format(nonce)}/begun ] || echo yes"
            if job is None or (job.state == "RUNNING" and await _step(job.id, begun)):
                return
        await _call("scancel", f"--name=bw.{nonce}")

    async def find(self, host: str, nonce: str) -> str:
        """Return the node, where the attempt's files are; have it reached until ``drop``."""
        self._following[nonce] = asyncio.create_task(self._follow(nonce, host))
        return host

    async def _submit(self, nonce: str, serve: str, *room: str) -> None:
        script = SCRIPT.format(serve=serve, folder=FOLDER.format(nonce))
        partition = [f"--partition={self._place.address}"] if self._place.address else []
        once = ("--parsable", "--no-requeue", "-N1", "-n1", f"--job-name=bw.{nonce}")
        there = ("--export=NONE", "--chdir=/", "--output=/dev/null", *partition)
        await _call("sbatch", *once, *there, *room, given=script)

    async def _running(self, nonce: str) -> SlurmJob:
        """Return the job of an attempt once it runs, hours later if so; raises ``Unreached``."""
        ended = ("-t", "all", f"--name=bw.{nonce}")
        while True:
            # All look at the same moments, so that one list serves them.
            await asyncio.sleep(POLL_SECONDS - time.monotonic() % POLL_SECONDS)
            try:
                job = (await self._live()).get(nonce) or (await _jobs(*ended)).get(nonce)
            except Unreached as error:  # The job keeps its place in the queue.
                self.waiting[nonce] = str(error)
                continue
            if job is None or job.state not in LIVE:
                raise Unreached(f"its job is {job.state} {job.where}" if job else "its job is gone")
            if job.state == "RUNNING":
                return job
            self.waiting[nonce] = job.where.strip("()")

    async def _follow(self, nonce: str, node: str) -> None:
        """Whenever the job of an attempt has ended, submit one that leads to its node."""
        room = (f"--nodelist={node}", "--mem=100", "--time=20")
        while nonce in self._following:
            with suppress(Unreached):
                if nonce not in await self._live():
                    await self._submit(nonce, "sleep 20\n", *room)  # Time enough for the line.
            await asyncio.sleep(FOLLOW_SECONDS - time.monotonic() % FOLLOW_SECONDS)

    async def _live(self) -> dict[str, SlurmJob]:
        """Return the jobs that run or wait, by nonce; callers of one moment share a list."""
        if self._listing is None or self._listing.done():
            self._listing = asyncio.create_task(_jobs())
        return await asyncio.shield(self._listing)


async def _jobs(*options: str) -> dict[str, SlurmJob]:
    said = await _call("squeue", "--me", "-h", "-o", "%i %j %T %R", *options)
    found = (line.split(" ", 3) for line in said.splitlines())
    return {name[3:]: SlurmJob(job, state, where) for job, name, state, where in found}


async def _step(job: str, command: str) -> str:
    return await _call("sh", "-c", STEP, "sh", job, command)


async def _call(*argv: str, given: str = "") -> str:
    """Return what a program of Slurm prints. Raises ``Unreached``."""
    # Not a subprocess of asyncio: if it is cancelled while it starts, Python 3.11 may wait forever.
    call = partial(run, argv, input=given, encoding="utf-8", errors="replace")
    try:
        done = await asyncio.to_thread(call, capture_output=True, timeout=CALL_SECONDS)
    except TimeoutExpired:
        raise Unreached(f"{argv[0]}: no answer for {CALL_SECONDS:g} s") from None
    except OSError as error:
        raise Unreached(f"{argv[0]}: {error.strerror}") from None
    if done.returncode:
        lines = done.stderr.strip().split("\n")
        raise Unreached(lines[-1] or f"{argv[0]} has failed")
    return done.stdout


ENGINE = Slurm
