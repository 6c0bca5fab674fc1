"""Tasks for the real dispatcherd: what its users write, a kind of each."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from dispatcherd.publish import task
from dispatcherd.worker.exceptions import DispatcherExit


@task()
def nothing() -> None:
    """The cheapest."""


@task()
def echo(*args: Any, **kwargs: Any) -> dict[str, Any]:
    """What came."""
    return {"args": list(args), "kwargs": kwargs}


@task()
def write_down(file: str, line: str = "ran") -> None:
    """Leaves a trace, one line in one write."""
    with Path(file).open("a") as trace:
        trace.write(f"{line}\n")


@task()
def publish(file: str) -> None:
    """Has another task run."""
    write_down.delay(file, "from a task")


@task()
class Adder:
    """A class with a ``run``."""

    def run(self, file: str, a: int, b: int) -> int:
        """Adds, and leaves the sum."""
        write_down(file, str(a + b))
        return a + b


@task()
def sleep(seconds: float, file: str = "", line: str = "slept") -> None:
    """Takes its time, and leaves a trace when it got to its end."""
    time.sleep(seconds)
    if file:
        write_down(file, line)


@task(timeout=1)
def too_long(seconds: float = 60) -> None:
    """Is cancelled by its own timeout."""
    time.sleep(seconds)


@task()
def fail(message: str = "no") -> None:
    """An error like any other."""
    raise ValueError(message)


@task()
def leave() -> None:
    """Wants its worker to end."""
    raise DispatcherExit


@task(bind=True)
def ask(dispatcher: Any, file: str, command: str = "alive") -> None:
    """Puts a control command to the main process, and leaves the answer."""
    write_down(file, repr(dispatcher.control(command)))


@task(queue=lambda: "test_channel")
def somewhere(file: str) -> None:
    """Its queue is said by a function."""
    write_down(file, "somewhere")


@task(on_duplicate="serial")
def one_by_one(seconds: float, file: str, line: str = "") -> None:
    """Never two of the same at a time."""
    write_down(file, "begin" + line)
    time.sleep(seconds)
    write_down(file, "end" + line)
