"""A real RRQ orchestrator over a Redis of its own, with our executor, or its own, behind it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from tests.support.fleet import until
from tests.support.peers import OLD, Redis, Rrq

_ENQUEUE = """
import asyncio, json, sys
from rrq.client import RRQClient
dsn, old, jobs = sys.argv[1], sys.argv[2] == "old", json.load(sys.stdin)
async def main():
    if old:
        from rrq.settings import RRQSettings
        client = RRQClient(settings=RRQSettings(redis_dsn=dsn))
    else:
        client = RRQClient(config={"redis_dsn": dsn})
    ids = []
    for name, arguments, options in jobs:
        if old:
            named = {f"_{key}": value for key, value in options.items()}
            ids.append((await client.enqueue(name, **arguments, **named)).id)
        else:
            ids.append(await client.enqueue(name, {"params": arguments, **options}))
    print(json.dumps(ids))
    await client.close()
asyncio.run(main())
"""

Wanted = tuple[str, dict[str, object], dict[str, object]]
"""A function's name, its arguments, and RRQ's options for the job."""

OUR_EXECUTOR = (
    sys.executable,
    "-m",
    "beads_workers",
    "rrq-executor",
    "--allow-module",
    "work",
    "--prefix",
    "work",
)


class Orchestrator:
    """``rrq worker run`` of one version; ``command`` starts its executor, in ``folder``."""

    def __init__(
        self,
        rrq: Rrq,
        redis: Redis,
        folder: Path,
        command: Sequence[str],
        *,
        port: int,
        environment: dict[str, str] | None = None,
        max_in_flight: int = 16,
        **settings: float,
    ) -> None:
        self._rrq, self._redis = rrq, redis
        self._log = folder / "orchestrator.log"
        self._config = folder / "rrq.toml"
        self._environment = {**rrq.environment, "RUST_LOG": "error", **(environment or {})}
        kind = "executor" if rrq.version == OLD else "runner"
        lines = ["[rrq]", f'redis_dsn = "{redis.url}"', f'default_{kind}_name = "ours"']
        lines += [f"{name} = {value}" for name, value in settings.items()]
        lines += [f"[rrq.{kind}s.ours]", 'type = "socket"', f"cmd = {json.dumps(list(command))}"]
        lines += ["pool_size = 1", f"max_in_flight = {max_in_flight}", f'cwd = "{folder}"']
        lines += [] if rrq.version == OLD else [f"tcp_port = {port}"]
        self._config.write_text("\n".join(lines) + "\n")
        self._process: subprocess.Popen[bytes] | None = None

    def enqueue(self, *jobs: Wanted) -> list[str]:
        """Their ids, in the same order."""
        which = "old" if self._rrq.version == OLD else "new"
        done = subprocess.run(
            [self._rrq.python, "-c", _ENQUEUE, self._redis.url, which],
            env=self._environment,
            input=json.dumps(jobs),
            capture_output=True,
            text=True,
            check=True,
        )
        ids: list[str] = json.loads(done.stdout)
        return ids

    def start(self, *options: str) -> None:
        """Let it work."""
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [self._rrq.orchestrator, "worker", "run", "--config", self._config, *options],
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def drain(self) -> None:
        """Until nothing is queued that is due."""
        self.start("--burst")
        self.wait()

    def stop(self) -> None:
        """Ask it to end, and wait for that."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        self.wait()

    def wait(self, seconds: float = 60.0) -> None:
        """Until it has ended."""
        assert self._process is not None
        self._process.wait(seconds)

    def executors(self) -> list[int]:
        """The processes of ours that it has started."""
        assert self._process is not None
        tasks = Path(f"/proc/{self._process.pid}/task").iterdir()
        pids = [int(pid) for task in tasks for pid in (task / "children").read_text().split()]
        return [p for p in pids if b"rrq-executor" in Path(f"/proc/{p}/cmdline").read_bytes()]

    def kill(self) -> None:
        """As ``kill -9`` does."""
        assert self._process is not None
        self._process.kill()
        self.wait()

    def end(self) -> None:
        """Whatever a failed test has left of it."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()

    def job(self, job_id: str) -> dict[str, str]:
        """What RRQ knows of a job."""
        words = self._redis.command("hgetall", f"rrq:job:{job_id}").split("\n")
        return dict(zip(words[::2], words[1::2], strict=False))

    def ended(self, job_id: str) -> dict[str, str]:
        """The same, when it has come to an end: COMPLETED or FAILED."""
        until(lambda: self.job(job_id).get("status") in ("COMPLETED", "FAILED"), what=self.said())
        return self.job(job_id)

    def states(self, job_ids: Sequence[str]) -> Counter[str]:
        """How many jobs are in which state."""
        script = (
            "local found = {} for _, id in ipairs(ARGV) do"
            " table.insert(found, redis.call('hget', 'rrq:job:' .. id, 'status') or 'GONE') end"
            " return found"
        )
        return Counter(self._redis.command("eval", script, "0", *job_ids).split())

    def dead(self) -> set[str]:
        """The jobs in the dead letter queue."""
        return set(self._redis.command("lrange", "rrq:dlq:default", "0", "-1").split())

    def said(self) -> str:
        """For a failure."""
        return self._log.read_text()[-4000:] if self._log.exists() else ""
