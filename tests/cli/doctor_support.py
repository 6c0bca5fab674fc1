"""Running ``doctor`` as a person would, and typing what it says."""

from __future__ import annotations

import atexit
import contextlib
import functools
import io
import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from beads_workers.cli.application import build
from tests.support import warm
from tests.support.trust import TRUSTED

FOREIGN = ("BEADS_", "BD_", "BW_", "ORCHESTRATOR_", "ANTHROPIC_", "CLAUDE_", "CODEX_")


PROGRAM = "beads-workers"
SPECIAL = set("$`\\;&|<>()*?[]{}~#!\n")
"""What means something to a shell beside quotes and spaces."""
SOCKETS = "in /tmp of orchestrators"
"""Part of what is said of dead sockets."""


@dataclass
class Patient:
    """A folder that ``doctor`` looks at, with an environment and a home of its own.

    ``beads-workers`` is on its PATH, as where it is installed; ``bin`` is in front of everything.
    """

    folder: Path
    environment: dict[str, str]

    @property
    def bin(self) -> Path:
        """Programs put here are found first."""
        return self.folder.parent / "bin"

    def put(self, name: str, text: str, mode: int = 0o755) -> Path:
        """A program in ``bin``."""
        return write(self.bin / name, text, mode)

    def doctor(self, *arguments: str, before: str = "", within: Sequence[str] = ()) -> Diagnosis:
        """Run it; ``before``: shell commands in whose wake it runs (``ulimit -n 32``).

        ``within``: a program that runs all of it (``unshare -m``). Without either it runs in this
        process, which saves the start of another one.
        """
        if not before and not within:
            return self._doctor_here(arguments)
        script = f'{before or ":"}\nexec "$@"'
        call = [sys.executable, "-m", "beads_workers", "doctor", "--json", *arguments]
        done = self._run([*within, "bash", "-c", script, "doctor", *call])
        assert done.stdout, done.stderr
        return Diagnosis(done.returncode, json.loads(done.stdout))

    def _doctor_here(self, arguments: Sequence[str]) -> Diagnosis:
        argv = ["doctor", "--json", *arguments]
        outside = dict(os.environ)
        said = io.StringIO()
        try:
            os.environ.clear()
            os.environ.update(self.environment)
            with contextlib.chdir(self.folder), contextlib.redirect_stdout(said):
                status = build(argv)(args=argv, standalone_mode=False)
        finally:
            os.environ.clear()
            os.environ.update(outside)
        return Diagnosis(status or 0, json.loads(said.getvalue()))

    def type(self, line: str) -> subprocess.CompletedProcess[str]:
        """Paste a line into a shell; one that only calls us is called as a shell would do it."""
        if line.startswith(f"{PROGRAM} ") and not set(line) & SPECIAL:
            arguments = shlex.split(line)[1:]
            return warm.run(arguments, self.folder, self.environment, timeout=60)
        return self._run(["bash", "-c", line])

    def _run(self, argv: list[str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            argv,
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )


@dataclass
class Diagnosis:
    """``shown``: the JSON object; ``status``: the exit code."""

    status: int
    shown: dict[str, Any]

    def all(self, name: str) -> list[dict[str, str]]:
        """Every line of that name, but for dead sockets, which may be anybody's."""
        checks = [check for check in self.shown["checks"] if check["name"] == name]
        return [check for check in checks if SOCKETS not in check["text"]]

    def one(self, name: str) -> dict[str, str]:
        """The one line of that name, or the one that is not ok."""
        found = self.all(name)
        found = [check for check in found if check["status"] != "ok"] or found
        assert len(found) == 1, found
        return found[0]

    def problems(self) -> set[str]:
        """Names of whatever is not ok, but for dead sockets, which may be anybody's."""
        wrong = [c for c in self.shown["checks"] if c["status"] != "ok"]
        return {c["name"] for c in wrong if SOCKETS not in c["text"]}


def patient(scratch: Path, extra: Mapping[str, str] | None = None) -> Patient:
    """An empty folder in ``scratch``, outside of any repository and any project."""
    folder, home, programs = (scratch / name for name in ("project", "home", "bin"))
    for each in (folder, home, programs):
        each.mkdir(exist_ok=True)
    write(programs / "beads-workers", f'#!/bin/sh\nexec "{sys.executable}" -m beads_workers "$@"\n')
    kept = {k: v for k, v in os.environ.items() if not k.startswith(FOREIGN)}
    own = {"HOME": str(home), "NO_COLOR": "1", "GIT_CEILING_DIRECTORIES": str(scratch)}
    own["PATH"] = f"{programs}:/usr/local/bin:/usr/bin:/bin"
    return Patient(folder, kept | own | TRUSTED | dict(extra or {}))


def initialised(scratch: Path) -> Patient:
    """A project with a built-in tracker and nothing in it."""
    found = patient(scratch)
    shutil.copytree(_template(), found.folder, dirs_exist_ok=True)
    return found


@functools.cache
def _template() -> Path:
    """Made once a session: copying is faster than making."""
    scratch = Path(tempfile.mkdtemp(prefix="beads-workers-tests-"))
    atexit.register(shutil.rmtree, scratch, ignore_errors=True)
    made = patient(scratch)
    assert made.type("beads-workers init").returncode == 0
    return made.folder


def write(path: Path, text: str, mode: int = 0o755) -> Path:
    """A file with these permissions."""
    path.write_text(text)
    path.chmod(mode)
    return path
