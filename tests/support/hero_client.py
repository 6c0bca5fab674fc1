"""A client and a project for Hero's queues: the client knows the protocol's text, and redis-cli."""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tests.support.fleet import until
from tests.support.peers import Redis

TIME = "2026-01-02T03:04:05Z"
WORKER = "w1"


class TextbookClient:
    """Does what the text says, call by call; ``worker``: whose queue it uses."""

    def __init__(self, redis: Redis, worker: str = WORKER) -> None:
        self.redis = redis
        self._worker = worker

    def create(self, job_id: str, script: str, **fields: str) -> None:
        """``HSET hero:job:ID``, every field that a job begins with."""
        job = {
            "id": job_id,
            "caller_id": "client",
            "worker_id": self._worker,
            "context_id": "shell",
            "script": script,
            "timeout": "60",
            "retries": "0",
            "concurrent": "true",
            "created_at": TIME,
            "updated_at": TIME,
            "status": "dispatched",
            **fields,
        }
        words = [word for pair in job.items() for word in pair]
        self.redis.command("HSET", f"hero:job:{job_id}", *words)

    def queue(self, *job_ids: str) -> None:
        """``LPUSH hero:work_queue:WORKER``."""
        for job_id in job_ids:
            self.redis.command("LPUSH", f"hero:work_queue:{self._worker}", job_id)

    def submit(self, job_id: str, script: str, **fields: str) -> None:
        """Both."""
        self.create(job_id, script, **fields)
        self.queue(job_id)

    def submit_many(self, jobs: dict[str, str], **fields: str) -> None:
        """Many, through one pipe."""
        lines = []
        for job_id, script in jobs.items():
            job = {"id": job_id, "script": script, "status": "dispatched", "context_id": "shell"}
            job |= {"worker_id": self._worker, "concurrent": "true", **fields}
            words = " ".join(f"{name} {_quoted(value)}" for name, value in job.items())
            lines.append(f"HSET hero:job:{job_id} {words}")
            lines.append(f"LPUSH hero:work_queue:{self._worker} {job_id}")
        self.pipe(lines)

    def stop(self, job_id: str) -> None:
        """``LPUSH hero:stop_queue:WORKER``."""
        self.redis.command("LPUSH", f"hero:stop_queue:{self._worker}", job_id)

    def reply(self, job_id: str, seconds: int = 60) -> str:
        """``BLPOP hero:reply:ID``."""
        said = self.redis.command("BLPOP", f"hero:reply:{job_id}", str(seconds))
        key, _, value = said.removesuffix("\n").partition("\n")
        assert key == f"hero:reply:{job_id}", f"no reply to {job_id}: {said!r}"
        return value

    def field(self, job_id: str, name: str) -> str:
        """``HGET``: one field of a job."""
        return self.redis.command("HGET", f"hero:job:{job_id}", name).removesuffix("\n")

    def ended(self, job_ids: Sequence[str]) -> dict[str, str]:
        """Wait until all are at their end; the status of each."""

        def all_over() -> dict[str, str] | None:
            asked = (("HGET", f"hero:job:{job_id}", "status") for job_id in job_ids)
            said = (text.removesuffix("\n") for text in self.redis.answers(*asked))
            found = dict(zip(job_ids, said, strict=True))
            over = all(status in ("finished", "error") for status in found.values())
            return found if over else None

        return until(all_over, what="some never came to an end")

    def pipe(self, lines: Sequence[str]) -> list[str]:
        """Many calls through one redis-cli, which prints a line for each."""
        done = subprocess.run(
            ["redis-cli", "-p", str(self.redis.port)],
            input="\n".join(lines) + "\n",
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout.splitlines()

    def replies(self, job_id: str) -> int:
        """How many there are."""
        return int(self.redis.command("LLEN", f"hero:reply:{job_id}"))

    def left(self) -> dict[str, int]:
        """What is left where nothing should be, once all is over."""
        own = f"hero:beads_workers:{self._worker}:"
        keys = self.redis.command("KEYS", own + "*").split()
        lists = [f"hero:work_queue:{self._worker}", *(k for k in keys if ":processing:" in k)]
        found = {key: int(self.redis.command("LLEN", key)) for key in lists}
        for name in ("attempts", "holders", "contexts"):
            found[name] = int(self.redis.command("HLEN", own + name))
        return {name: count for name, count in found.items() if count}


class HeroPlace:
    """A folder that scripts run in, and how a fleet is told of the queue."""

    def __init__(self, folder: Path, redis: Redis, *, worker: str = WORKER) -> None:
        self.folder = folder / "project"
        self.folder.mkdir(parents=True)
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("BW_", "BEADS_"))}
        self.environment = kept | {"NO_COLOR": "1"}
        self.source = f"{redis.url}?worker={worker}"

    def arguments(self, *options: str, lease: str = "15s") -> tuple[str, ...]:
        """Of ``start``: all scripts are run by ``sh``."""
        return ("--source", f"{self.source}&lease={lease}", *options, "--", "sh")

    def ran(self, what: str) -> list[str]:
        """The lines of a file that scripts have written to."""
        file = self.folder / what
        return file.read_text().split() if file.exists() else []

    def read_all(self) -> dict[str, tuple[str, str]]:
        """There is no tracker."""
        return {}


def _quoted(value: str) -> str:
    return shlex.quote(value) if "'" not in value else '"' + value.replace('"', '\\"') + '"'
