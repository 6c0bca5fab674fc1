"""A ``bd`` waits at its gate until its caller has journalled it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from beads_workers.core.base.source import Calls, SourceError
from beads_workers.trackers.bd.calls import BdCalls
from tests.support.bd import BdProject
from tests.support.fleet import until

US = "beads-workers/host/run-1"

DYING = """
import os, signal, sys
from pathlib import Path
from beads_workers.core.base.source import Calls
from beads_workers.trackers.bd.calls import BdCalls

class Dying:
    def started(self, pid, start_time, argv):
        Path(sys.argv[1]).write_text(str(pid))
        os.kill(os.getpid(), signal.SIGKILL)

BdCalls(sys.argv[2], Path.cwd(), sys.argv[3], Calls(), Dying()).run(sys.argv[4:])
"""
"""A caller that is killed before it has written down which process it has started."""


def test_a_claim_whose_caller_died_before_it_was_journalled_is_never_made(
    project: BdProject, tmp_path: Path
) -> None:
    (key,) = project.create_many([{}])
    note, bd = tmp_path / "pid", str(project.directory / "bd")
    claim = ["update", "--json", "--claim", "--", key]
    died = subprocess.run(
        [sys.executable, "-c", DYING, str(note), bd, US, *claim],
        cwd=project.folder,
        env={**project.environment, "PYTHONPATH": str(Path(__file__).parents[3])},
        check=False,
    )
    assert died.returncode == -9
    until(lambda: not Path("/proc", note.read_text()).exists(), what="it outlives its caller")
    assert project.read(key) == ("open", "")
    # The very same call does claim where its caller lives.
    BdCalls(bd, project.folder, US, Calls(), environment=project.environment).run(claim)
    assert project.read(key) == ("in_progress", US)


class Watcher:
    """A ``CallLog`` that looks whether a call has done anything when it is told of it."""

    def __init__(self, mark: Path) -> None:
        self._mark = mark
        self.too_early = False

    def started(self, pid: int, start_time: int, argv: Sequence[str]) -> None:
        self.too_early = self._mark.exists()
        assert os.getpgid(pid) == pid

    def ended(self, pid: int) -> None:
        assert self._mark.exists()


def script(path: Path, text: str) -> str:
    """An executable file; returns its path."""
    path.write_text(text)
    path.chmod(0o755)
    return str(path)


def calls_of(program: str, folder: Path, log: Watcher | Vanishing | None = None) -> BdCalls:
    """Calls of ``program``, by a run."""
    return BdCalls(program, folder, US, Calls(), log)


def test_a_call_is_journalled_before_it_acts_and_gets_its_input_whole(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    program = script(tmp_path / "bd", f'#!/bin/sh\ncat >"{mark}"\necho "$@"\nexit 3\n')
    watcher, text = Watcher(mark), "close bw-1\n" * 20_000
    answer = calls_of(program, tmp_path, watcher).run(["batch", "--json", "a b"], text=text)
    assert not watcher.too_early
    assert mark.read_text() == text
    assert (answer.status, answer.stdout) == (3, b"batch --json a b\n")


class Vanishing:
    """A ``CallLog`` during whose line the program goes."""

    def __init__(self, program: Path) -> None:
        self._program = program

    def started(self, pid: int, start_time: int, argv: Sequence[str]) -> None:
        self._program.unlink()

    def ended(self, pid: int) -> None:
        assert not self._program.exists()


def test_a_program_that_vanishes_while_its_call_is_journalled_is_an_error(tmp_path: Path) -> None:
    program = tmp_path / "bd"
    calls = calls_of(script(program, "#!/bin/sh\n"), tmp_path, Vanishing(program))
    with pytest.raises(SourceError, match=r"bd cannot begin: .*not found"):
        calls.run(["ready"])


def test_a_program_that_may_not_be_run_is_named(tmp_path: Path) -> None:
    program = tmp_path / "bd"
    program.write_text("#!/bin/sh\n")
    with pytest.raises(SourceError, match=r"bd cannot be run: .*not executable"):
        calls_of(str(program), tmp_path).run(["ready"])
    with pytest.raises(SourceError, match="no-such/bd not found"):
        calls_of("no-such/bd", tmp_path).run(["ready"])
