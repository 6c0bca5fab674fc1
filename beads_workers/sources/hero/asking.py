"""Asking about one queue, in the name of one run: keys and times are put in here."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from beads_workers.protocols.times import write_time
from beads_workers.sources.hero.calling import Evaluation, Link
from beads_workers.sources.hero.queue import Queue


class Asker:
    """``run``: the id of ours, under which everything is held; ``link``: of the thread."""

    def __init__(
        self,
        queue: Queue,
        run: str,
        *,
        link: Link | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.queue = queue
        self.run = run
        self._clock = clock
        self._link = link or Link(queue.address)
        self._call = self._link.call

    def close(self) -> None:
        """End the connection."""
        self._link.close()

    def _now(self) -> str:
        return write_time(self._clock())

    def _own(self, name: str) -> str:
        return self.queue.keys.own_key(self.queue.worker, name)

    def _keys(self, run: str) -> list[str]:
        keys, worker = self.queue.keys, self.queue.worker
        own = (f"processing:{run}", "attempts", "holders", "contexts", "fleet", f"lease:{run}")
        return [keys.work_key(worker), keys.stop_key(worker), *map(self._own, own)]

    def _of_job(
        self, text: str, job_id: str, *arguments: str | int, run: str = "", key_of: str = ""
    ) -> Evaluation:
        run, keys = run or self.run, self.queue.keys
        whose = key_of or job_id
        names = [*self._keys(run), keys.job_key(whose), keys.reply_key(whose)]
        return Evaluation(text, names, (run, job_id, *arguments))

    def _atom(self, text: str, run: str, *arguments: str | int, of_run: str = "") -> Any:
        call = Evaluation(text, self._keys(of_run or self.run), (run, *arguments))
        return self._link.evaluate([call])[0]

    def _atoms(self, calls: Sequence[Evaluation]) -> list[Any]:
        """All of them in one round trip."""
        return self._link.evaluate(calls) if calls else []


def text_of(value: Any) -> str:
    """What Redis said, as a text. An id that is not UTF-8 goes back as it came."""
    return value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else str(value)
