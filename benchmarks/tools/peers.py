"""What people use instead of us for many small jobs, each at its best setting."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path
from typing import ClassVar, Protocol

from benchmarks.tools.fetching import debian
from benchmarks.tools.fleets import PATIENCE_SECONDS


class Peer(Protocol):
    """A queue of jobs. Made with a folder of its own, and how many run at a time."""

    name: ClassVar[str]
    tasks: ClassVar[int]
    """So many are enough for its rate."""

    def __init__(self, folder: Path, workers: int) -> None: ...

    def seconds(self, tasks: int) -> float:
        """How long so many times ``true`` take."""
        ...


class Xargs:
    """``xargs -P8 -n1 true``: nothing but fork, exec and wait, in C. The limit."""

    name: ClassVar[str] = "xargs"
    tasks: ClassVar[int] = 5000

    def __init__(self, folder: Path, workers: int) -> None:
        self._folder = folder
        self._argv = ["xargs", f"-P{workers}", "-n1", "true"]

    def seconds(self, tasks: int) -> float:
        """From its start to its end."""
        return _fed(self._argv, self._folder, tasks)


class Parallel:
    """GNU parallel: no grouping of output, the smaller shell."""

    name: ClassVar[str] = "GNU parallel"
    tasks: ClassVar[int] = 1000

    def __init__(self, folder: Path, workers: int) -> None:
        self._folder = folder
        program = debian("parallel", "parallel")
        self._argv = [program, "--will-cite", "--ungroup", f"-j{workers}", "true"]

    def seconds(self, tasks: int) -> float:
        """From its start to its end."""
        return _fed(self._argv, self._folder, tasks)


def environment(folder: Path) -> dict[str, str]:
    """Few variables, for everybody: GNU parallel is the slower the more there are."""
    return {"PATH": os.environ["PATH"], "HOME": str(folder), "SHELL": "/bin/sh", "LC_ALL": "C"}


def _fed(argv: list[str], folder: Path, tasks: int) -> float:
    numbers = folder / "numbers"
    numbers.write_text("".join(f"{number}\n" for number in range(tasks)))
    began = time.perf_counter()
    with numbers.open() as file:
        subprocess.run(
            argv,
            stdin=file,
            stdout=subprocess.DEVNULL,
            env=environment(folder),
            check=True,
            timeout=PATIENCE_SECONDS,
        )
    return time.perf_counter() - began
