"""The life of one command issue, from ``start`` to its exit: which functions of ours are executed,
in all processes.

``tracer/sitecustomize`` sees every Python process: the interpreter imports it at its start, since
``PYTHONPATH`` is inherited by all that we start (``-P`` keeps it). Only the hook of claude is run
with ``-I``, which a command has none of.
"""

from __future__ import annotations

import json
import os
import re
import select
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
TRACER = Path(__file__).parent / "tracer"
PATIENCE_SECONDS = 60.0
RUNS = 3
START = (
    *("start", "-n", "1", "--until-empty", "--worktree", "--verify", "true"),
    *("--", "sh", "-c", "echo a > a"),
)
INHERITED = (
    *("PATH", "LANG", "LC_ALL", "TMPDIR"),
    *("PYTHONPYCACHEPREFIX", "PYTHONDONTWRITEBYTECODE"),
)
"""Variables of the caller that the run sees: none that would let it do something else."""
SOMETIMES = frozenset(
    {
        "landing/gate.py:GateProcess.end",
        "landing/gate.py:_told_to_end",
        "landing/queue.py:Queue.stopped",
    }
)
"""Not counted: executed only if the run ends while its second gate, which nothing needs, runs."""


@dataclass(frozen=True, slots=True)
class Process:
    """One process of the run; ``kind`` says which program it is, or which function forked it."""

    pid: int
    kind: str
    functions: frozenset[str]


@dataclass(frozen=True, slots=True)
class Life:
    """What all processes of a run have executed, as ``file:line:name``."""

    processes: tuple[Process, ...]

    @property
    def functions(self) -> frozenset[str]:
        """Different ones, of all processes."""
        return frozenset().union(*(process.functions for process in self.processes))

    def kinds(self) -> dict[str, tuple[int, int]]:
        """How many processes there were of each kind, and how many functions those executed."""
        found: dict[str, tuple[int, frozenset[str]]] = {}
        for process in self.processes:
            number, functions = found.get(process.kind, (0, frozenset()))
            found[process.kind] = number + 1, functions | process.functions
        return {kind: (number, len(functions)) for kind, (number, functions) in found.items()}


def executed(most: int) -> frozenset[str]:
    """Return the functions that every run executes: of one run, or of up to ``RUNS`` while there
    are more than ``most``, since a race adds functions and takes none away."""
    found = live().functions
    for _ in range(RUNS - 1):
        if len(found) > most:
            found &= live().functions
    return found


def live() -> Life:
    """Run ``start`` in a fresh repository with one issue; the issue is closed at its end."""
    with tempfile.TemporaryDirectory(prefix="bw-shape-") as name:
        folder, notes = Path(name) / "project", Path(name) / "notes"
        folder.mkdir()
        notes.mkdir()
        environment = _environment(Path(name))
        _repository(folder, environment)
        traced = environment | {
            "PYTHONPATH": f"{TRACER}{os.pathsep}{ROOT}",
            "SHAPE_TRACE": str(notes),
        }
        _ours(folder, traced, *START)
        _all_ended(notes)
        shown = json.loads(_ours(folder, environment, "list", "--all", "--json"))
        assert [issue["status"] for issue in shown] == ["closed"], shown
        landed = _git(folder, environment, "show", "bw-landing/main:a")
        assert landed == "a\n", landed
        return Life(tuple(_processes(notes)))


def _environment(home: Path) -> dict[str, str]:
    kept = {name: os.environ[name] for name in INHERITED if name in os.environ}
    git = {"GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull}
    who = {
        f"GIT_{role}_{what}": text
        for role in ("AUTHOR", "COMMITTER")
        for what, text in (("NAME", "shape"), ("EMAIL", "shape@localhost"))
    }
    return {**kept, **git, **who, "HOME": str(home), "PYTHONPATH": str(ROOT), "NO_COLOR": "1"}


def _repository(folder: Path, environment: Mapping[str, str]) -> None:
    _git(folder, environment, "init", "-q", "-b", "main")
    _git(folder, environment, "commit", "-q", "--allow-empty", "-m", "begin")
    _ours(folder, environment, "init")
    _ours(folder, environment, "add", "write a")


def _git(folder: Path, environment: Mapping[str, str], *arguments: str) -> str:
    return _called(["git", *arguments], folder, environment)


def _ours(folder: Path, environment: Mapping[str, str], *arguments: str) -> str:
    return _called([sys.executable, "-m", "beads_workers", *arguments], folder, environment)


def _called(argv: list[str], folder: Path, environment: Mapping[str, str]) -> str:
    done = subprocess.run(
        argv, cwd=folder, env=environment, capture_output=True, text=True, check=False,
        timeout=PATIENCE_SECONDS, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert done.returncode == 0, (argv, done.stdout, done.stderr)
    return done.stdout


def _all_ended(notes: Path) -> None:
    """Wait for the processes that live a little longer than ``start``: they still note."""
    for file in notes.iterdir():
        with suppress(ProcessLookupError):
            fd = os.pidfd_open(int(file.name))
            ended = select.select([fd], [], [], PATIENCE_SECONDS)[0]
            os.close(fd)
            assert ended, f"process {file.name} has not ended"


def _processes(notes: Path) -> Iterator[Process]:
    for file in sorted(notes.iterdir(), key=lambda file: int(file.name)):
        kind, functions = "", set()
        for line in file.read_text(encoding="utf-8").splitlines():
            if line.startswith(("exec ", "fork ")):
                kind = _kind(line)
            elif re.sub(r":\d+:", ":", line) not in SOMETIMES:
                functions.add(line)
        if functions:
            yield Process(int(file.name), kind, frozenset(functions))


def _kind(line: str) -> str:
    """The module that runs, or the function that forked this process."""
    how, _, what = line.partition(" ")
    if how == "fork":
        file, _, name = what.split()[1].split(":")
        return f"forked by {file}:{name}"
    words = what.split()
    module = words.index("-m") + 1 if "-m" in words else 0
    return " ".join(words[module : module + 1 + (words[module : module + 1] == ["beads_workers"])])
