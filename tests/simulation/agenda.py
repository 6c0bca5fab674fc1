"""Simulated time: one heap of what happens when, and processes whose steps it runs."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Any

Thread = Generator[Any, Any, Any]
"""A thread of a process: yields seconds to sleep (float), or a ``Promise`` to wait for."""


class Died(Exception):
    """The process that runs this step has just died; ``power``: and the whole machine with it."""

    def __init__(self, power: bool = False) -> None:
        super().__init__()
        self.power = power


class Agenda:
    """``now`` is the monotonic clock of the machine."""

    def __init__(self) -> None:
        self.now = 1000.0
        self._heap: list[tuple[float, int, Callable[[], object]]] = []
        self._pushed = 0
        self.steps = 0

    def after(self, seconds: float, do: Callable[[], object]) -> None:
        """Call ``do`` so many seconds from now; what is due at the same time keeps its order."""
        self._pushed += 1
        heapq.heappush(self._heap, (self.now + seconds, self._pushed, do))

    def pending(self) -> int:
        """How much is still due."""
        return len(self._heap)

    def step(self) -> bool:
        """Let the next thing happen; False when nothing is left."""
        if not self._heap:
            return False
        self.now, _, do = heapq.heappop(self._heap)
        self.steps += 1
        do()
        return True


class Promise:
    """An answer that comes later; the first one counts."""

    def __init__(self) -> None:
        self.kept = False
        self.value: Any = None
        self._then: list[Callable[[], object]] = []

    def keep(self, value: Any = None) -> None:
        """Give the answer to whoever waits."""
        if not self.kept:
            self.kept, self.value = True, value
            for call in self._then:
                call()

    def then(self, call: Callable[[], object]) -> None:
        """Call when it is kept, at once if it is."""
        if self.kept:
            call()
        else:
            self._then.append(call)


@dataclass(slots=True, eq=False)
class Process:
    """``kind``: orchestrator, worker, foreign, extended, task, bd. ``token``: its run.

    ``holds_alive``: it keeps the ``alive`` lock of its run. Steps of a stopped process wait.
    """

    agenda: Agenda
    pid: int
    kind: str
    token: str = ""
    holds_alive: bool = False
    alive: bool = True
    stopped: bool = False
    waiting: list[Callable[[], object]] = field(default_factory=list)
    at_death: list[Callable[[], object]] = field(default_factory=list)
    crashed: Callable[[Died], object] | None = None

    def later(self, seconds: float, do: Callable[[], object]) -> None:
        """One step of this process, if it lives then."""
        self.agenda.after(seconds, lambda: self._run(do))

    def start(self, thread: Thread) -> None:
        """Run a thread to its end."""

        def step(value: Any = None) -> None:
            try:
                wish = thread.send(value)
            except StopIteration:
                return
            if isinstance(wish, Promise):
                wish.then(lambda: self.later(0.0, lambda: step(wish.value)))
            else:
                self.later(wish, step)

        self.later(0.0, step)

    def die(self) -> None:
        """KILL: nothing of it happens any more."""
        if self.alive:
            self.alive = False
            self.waiting.clear()
            for call in self.at_death:
                call()

    def stop(self) -> None:
        """SIGSTOP."""
        self.stopped = True

    def resume(self) -> None:
        """SIGCONT: what came meanwhile is done now, in its order."""
        self.stopped = False
        waiting, self.waiting = self.waiting, []
        for do in waiting:
            self.later(0.0, do)

    def _run(self, do: Callable[[], object]) -> None:
        if not self.alive:
            return
        if self.stopped:
            self.waiting.append(do)
            return
        try:
            do()
        except Died as died:
            assert self.crashed is not None, "only an orchestrator has points"
            self.crashed(died)
