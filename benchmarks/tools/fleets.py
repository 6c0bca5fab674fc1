"""Making projects and running fleets on them, as a user would: by the command line."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

PATIENCE_SECONDS = 600.0


class Broken(Exception):
    """Something did not work, or is not installed; ``str()`` says what, and what to do."""


def need(program: str, package: str) -> str:
    """The path of a program; raises ``Broken`` with the apt command where it is missing."""
    path = shutil.which(program)
    if path is None:
        raise Broken(f"{program} is not installed: sudo apt-get install {package}")
    return path


def ours() -> str:
    """The installed command, next to this Python."""
    program = Path(sys.executable).parent / "beads-workers"
    if not program.exists():
        raise Broken(f"{program} is missing: run this by scripts/bench")
    return str(program)


class Project:
    """A folder with a tracker in it. ``environment`` is what its commands run under."""

    def __init__(self, folder: Path, environment: dict[str, str] | None = None) -> None:
        self.folder = folder
        self.environment = environment if environment is not None else dict(os.environ)
        folder.mkdir(parents=True, exist_ok=True)

    def run(self, *arguments: str, codes: Sequence[int] = (0,)) -> str:
        """One of our commands; returns its stdout. Raises ``Broken`` for another exit code."""
        return run([ours(), *arguments], self.folder, self.environment, codes)

    def timed_start(self, *arguments: str) -> float:
        """Seconds of a whole ``start``, from the shell's view."""
        began = time.perf_counter()
        self.run("start", *arguments)
        return time.perf_counter() - began

    def wait_for_end(self) -> None:
        """Of a fleet in the background; costs it nothing."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not list(self.folder.glob(".beads-workers/runs/*/ended.json")):
            if time.monotonic() > deadline:
                raise Broken(f"the fleet in {self.folder} did not end")
            time.sleep(0.05)

    def journal(self) -> Path:
        """That of the only run that there has been."""
        (found,) = self.folder.glob(".beads-workers/runs/*/journal.jsonl")
        return found

    def journal_bytes(self) -> int:
        """What is kept of all journals; a long one lies in segments, and the oldest may go."""
        total = 0
        for segment in self.folder.glob(".beads-workers/runs/*/journal*.jsonl"):
            with suppress(FileNotFoundError):
                total += segment.stat().st_size
        return total

    def status(self) -> dict[str, Any]:
        """``status --json``, with or without a fleet."""
        shown: dict[str, Any] = json.loads(self.run("status", "--json", codes=(0, 3)))
        return shown

    def closed(self) -> int:
        """How many issues the last run closed."""
        return int(self.status()["last_run"]["closed"])


def embedded(folder: Path, issues: int, environment: dict[str, str] | None = None) -> Project:
    """A project on the embedded tracker with that many open issues, imported in one go."""
    project = Project(folder, environment)
    project.run("init")
    if issues:
        fill(project, 1, issues)
    return project


def fill(project: Project, first: int, issues: int) -> None:
    """So many more open issues, numbered from ``first``."""
    rows = [
        {"id": f"bench-{number}", "title": f"number {number}", "status": "open", "priority": 2}
        for number in range(first, first + issues)
    ]
    file = project.folder / "import.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    project.run("import", str(file))


def run(
    argv: Sequence[str], folder: Path, environment: dict[str, str], codes: Sequence[int] = (0,)
) -> str:
    """Run a program to its end; returns its stdout, and raises ``Broken`` for a failure."""
    done = subprocess.run(
        argv,
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    if done.returncode not in codes:
        told = f"{done.stdout[-500:]}\n{done.stderr[-500:]}".strip()
        raise Broken(f"{' '.join(argv[:6])} exited {done.returncode}:\n{told}")
    return done.stdout
