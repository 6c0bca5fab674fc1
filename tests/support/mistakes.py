"""A command that was mistyped: one line says what is wrong, another what to type instead.

All of it runs in this process, in a folder with nothing in it.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from beads_workers.cli.app import main

Mistake = Callable[[str, str, str, int], None]
"""What is typed, words of the error, words of the hint (empty: there is none), exit code."""


@pytest.fixture
def mistake(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Mistake]:
    """Types it, and asserts that this is what becomes of it.

    ``start`` begins with the orchestrator's process, which would wait for the end of this one.
    """
    others = _children()

    def typed(words: str, message: str, remedy: str, code: int) -> None:
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(sys, "argv", ["beads-workers", *words.split()])
        with pytest.raises(SystemExit) as end:
            main()
        said = capsys.readouterr()
        error, *hint = said.err.splitlines()
        assert (end.value.code, said.out) == (code, "")
        assert error.startswith("error: ") and message in error
        assert len(hint) == bool(remedy)
        assert not hint or (hint[0].startswith("hint: ") and remedy in hint[0])

    yield typed
    for pid in _children() - others:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def _children() -> set[int]:
    found: set[int] = set()
    for task in Path("/proc/self/task").glob("*/children"):
        with suppress(OSError):  # A thread may end meanwhile.
            found |= {int(pid) for pid in task.read_text().split()}
    return found
