"""A program that dies: first on PATH, it counts the calls of all processes, and breaks one."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from beads_workers.worktrees.overrides import OPTIONS

BOUND = {"BEADS_WORKERS_GIT_SECONDS": "1.5"}
"""What a call may take, for a git that hangs; one that lives takes milliseconds."""
HANGS_SECONDS = 45

DEATHS = {
    "fails": "echo 'fatal: it was made to fail' >&2; exit 128",
    "says no": "exit 1",
    "is killed": "kill -KILL $$",
    "is killed late": '"$real" "$@"; kill -KILL $$',
    "hangs": f"exec sleep {HANGS_SECONDS}",
}
"""How a call breaks. ``is killed late``: it has done its work, and nobody hears of it."""

SCRIPT = """#!/bin/sh
# Whoever appends knows by the place where its byte ends the how-manieth call this is.
real="{real}"
read -r at test how <'{folder}/at'
if [ "$at" != off ]; then
    exec 9>>'{folder}/count'
    printf x >&9
    read -r _ n </proc/self/fdinfo/9
    exec 9>&-
    if [ "$at" -eq 0 ]; then printf '%s %s\\0' "$n" "$*" >>'{folder}/calls'; fi
    if [ "$at" -gt 0 ] && [ "$n" "$test" "$at" ]; then
        case "$how" in
{deaths}
        esac
    fi
fi
exec "$real" "$@"
"""


class MortalProgram:
    """``folder``: of its own; nothing is counted until it is told so.

    ``real``: the program, as a shell reads it; ``deaths``: how a call of it breaks."""

    bound: ClassVar[dict[str, str]] = {}
    """What makes a call that hangs short."""
    always: ClassVar[str] = ""
    """Words with which each call begins."""

    def __init__(self, folder: Path, name: str, real: str, deaths: Mapping[str, str]) -> None:
        self.real, self.folder = real, folder
        self.path = folder / "bin"
        self.path.mkdir(parents=True)
        cases = "\n".join(f"        '{how}') {does} ;;" for how, does in deaths.items())
        text = SCRIPT.format(real=real, folder=folder, deaths=cases)
        self.rests()
        (self.path / name).write_text(text)
        (self.path / name).chmod(0o755)

    def variables(self) -> dict[str, str]:
        """What makes it the first on PATH, and a call that hangs short."""
        return {"PATH": f"{self.path}{os.pathsep}{os.environ['PATH']}", **self.bound}

    def rests(self) -> None:
        """From here on it is git."""
        self._at("off - -")

    def counts(self) -> None:
        """From here on it counts, and notes what it is called with."""
        self._anew("0 - -")

    def dies(self, position: int, how: str, *, from_then_on: bool = False) -> None:
        """The call at this position breaks, and all that follow if ``from_then_on``."""
        self._anew(f"{position} {'-ge' if from_then_on else '-eq'} {how}")

    @property
    def calls(self) -> int:
        """How many there were."""
        return (self.folder / "count").stat().st_size

    def named(self) -> list[str]:
        """The calls that were counted, in order, without the options that all have."""
        rows = (self.folder / "calls").read_text(errors="replace").split("\0")
        numbered = (row.partition(" ") for row in rows if row)
        return [text.removeprefix(self.always) for _, _, text in sorted(numbered, key=_number)]

    def _anew(self, state: str) -> None:
        for name in ("count", "calls"):
            (self.folder / name).write_bytes(b"")
        self._at(state)

    def _at(self, state: str) -> None:
        fresh = self.folder / "at.new"
        fresh.write_text(f"{state}\n")
        fresh.rename(self.folder / "at")


class MortalGit(MortalProgram):
    """``git``."""

    bound = BOUND
    always = f"{' '.join(OPTIONS)} "

    def __init__(self, folder: Path) -> None:
        real = shutil.which("git")
        assert real is not None
        super().__init__(folder, "git", real, DEATHS)


def _number(row: tuple[str, str, str]) -> int:
    return int(row[0])
