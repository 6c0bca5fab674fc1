"""A step of ours that is forked begins as one that Python starts anew."""

from __future__ import annotations

import json
import os
import signal
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from beads_workers.runtime import warm_steps
from beads_workers.runtime.processes import spawn_in_group

SAYS = """\
import json, os, signal, sys

def main():
    numbers = sorted({*signal.valid_signals()} - {signal.SIGKILL, signal.SIGSTOP})
    print(json.dumps({
        "signals": {int(n): str(signal.getsignal(n)) for n in numbers},
        "blocked": sorted(map(int, signal.pthread_sigmask(signal.SIG_BLOCK, ()))),
        "wakes": signal.set_wakeup_fd(-1),
        "open": {n: os.readlink(f"/proc/self/fd/{n}") for n in map(int, os.listdir("/proc/self/fd"))
                 if os.path.exists(f"/proc/self/fd/{n}")},
        "leads": os.getpgid(0) == os.getpid(),
        "session": os.getsid(0),
        "environment": dict(os.environ),
        "folder": os.getcwd(),
        "given": sys.stdin.read(),
        "encodings": [s.encoding for s in (sys.stdin, sys.stdout, sys.stderr)],
    }), flush=True)
    sys.stderr.write("to the log\\n")
    if os.environ.get("FAILS") == "exit":
        sys.exit(3)
    if os.environ.get("FAILS"):
        raise ValueError("a bug")
    return 0

if __name__ == "__main__":
    sys.exit(main())
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    (tmp_path / "says_it.py").write_text(textwrap.dedent(SAYS))
    monkeypatch.syspath_prepend(str(tmp_path))
    yield "says_it"
    sys.modules.pop("says_it", None)
    warm_steps._loaded.discard("says_it")


def started(module: str, tmp_path: Path, *, warm: bool, **variables: str) -> tuple[int, Any, str]:
    """The exit status of the step, what it said, and its log. ``warm``: it is forked."""
    argv = [*warm_steps.OURS, module]
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(tmp_path), "LC_ALL": "C.UTF-8"}
    environment |= variables
    files = [tmp_path / name for name in ("in", "out", "log")]
    files[0].write_text("line\nü\n")
    flags = (os.O_RDONLY, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, os.O_WRONLY | os.O_CREAT)
    standard = [
        os.open(f, flag | os.O_CLOEXEC, 0o600) for f, flag in zip(files, flags, strict=True)
    ]
    raw = {os.fsencode(k): os.fsencode(v) for k, v in environment.items()}
    try:
        if warm:
            found = warm_steps.loaded(argv)
            assert found is not None
            pid = warm_steps.fork_in_group(found, raw, (standard[0], standard[1], standard[2]))
        else:
            moves = [(os.POSIX_SPAWN_DUP2, each, number) for number, each in enumerate(standard)]
            pid = spawn_in_group([each.encode() for each in argv], raw, moves)
    finally:
        for each in standard:
            os.close(each)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    said = files[1].read_text()
    return status, json.loads(said) if said else None, files[2].read_text()


def without_locks(found: dict[str, str]) -> dict[str, str]:
    """The descriptors but the locks of runs: the tests' own process may hold others."""
    return {number: path for number, path in found.items() if not path.endswith("/alive")}


def test_a_fork_begins_as_a_new_program_does(module: str, tmp_path: Path) -> None:
    warm_steps.load([module])
    wake, _ = os.pipe2(os.O_NONBLOCK)
    held = os.open(tmp_path, os.O_RDONLY | os.O_CLOEXEC)
    before = signal.signal(signal.SIGTERM, lambda *_: None)
    told = os.pipe2(os.O_NONBLOCK)[1]
    signal.set_wakeup_fd(told)
    try:
        warm = started(module, tmp_path, warm=True)
    finally:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGTERM, before)
    cold = started(module, tmp_path, warm=False)
    assert set(without_locks(warm[1].pop("open"))) == {"0", "1", "2"}
    del cold[1]["open"]  # The tests' own process lets programs inherit pipes.
    different = {each for each in cold[1] if warm[1][each] != cold[1][each]}
    assert not different
    assert (warm[0], warm[2]) == (cold[0], cold[2])
    assert warm[0] == 0
    assert warm[1]["given"] == "line\nü\n"
    for descriptor in (wake, held, told):
        os.close(descriptor)


@pytest.mark.parametrize(("fails", "status"), [("exit", 3), ("bug", 1)])
def test_a_fork_that_fails_ends_as_a_program_that_fails(
    module: str, tmp_path: Path, fails: str, status: int
) -> None:
    warm_steps.load([module])
    ended, _, log = started(module, tmp_path, warm=True, FAILS=fails)
    assert ended == status
    assert ("ValueError: a bug" in log) is (fails == "bug")


def test_only_the_lock_of_the_run_stays_open_in_a_fork(module: str, tmp_path: Path) -> None:
    """By it the process is found, as its worker is; no program that it starts has it."""
    warm_steps.load([module])
    lock = os.open(tmp_path / "alive", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)
    _, said, _ = started(module, tmp_path, warm=True)
    assert said["open"][str(lock)] == str(tmp_path / "alive")
    assert set(without_locks(said["open"])) == {"0", "1", "2"}
    os.close(lock)


def test_only_modules_that_were_loaded_ahead_are_forked(module: str) -> None:
    argv = [*warm_steps.OURS, module]
    assert warm_steps.loaded(argv) is None
    warm_steps.load([module])
    assert warm_steps.loaded(argv) is sys.modules[module]
    assert warm_steps.loaded([*argv, "more"]) is None
    assert warm_steps.loaded(["python", "-m", module]) is None
