"""A git that is killed: nothing may take that for an answer."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest


def kill_git(monkeypatch: pytest.MonkeyPatch, folder: Path, word: str) -> None:
    """From now on, git on PATH is killed if it is called with this word."""
    program = folder / "git"
    program.write_text(
        f'#!/bin/sh\nfor each; do [ "$each" = "{word}" ] && kill -KILL $$; done\n'
        f'exec "{shutil.which("git")}" "$@"\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=os.pathsep)
