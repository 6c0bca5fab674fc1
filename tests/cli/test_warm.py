"""``tests.support.warm``: what it forks is what ``python -m beads_workers`` is."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.support import warm
from tests.support.embedded import EmbeddedProject
from tests.support.fleet import until
from tests.support.peer import descriptors

TASK = (
    'pwd; umask; env | sort | grep -vE "^(BW_|_=|SHLVL|ORCHESTRATOR)"; ls -l /proc/self/fd | wc -l'
)


@pytest.fixture
def project(tmp_path: Path) -> EmbeddedProject:
    return EmbeddedProject(tmp_path)


def real(
    arguments: tuple[str, ...], folder: Path, environment: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "beads_workers", *arguments]
    return subprocess.run(
        command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, capture_output=True,
        text=True, check=False,
    )  # fmt: skip


@pytest.mark.parametrize(
    "arguments",
    [
        *((), ("--help",), ("--version",), ("start", "--help"), ("nosuch",), ("scale", "x")),
        *(("list", "--json"), ("show", "nosuch"), ("status", "--json"), ("config", "show")),
        ("start", "--until-empty"),
    ],
    ids=" ".join,
)
def test_it_says_and_ends_as_the_real_one(
    project: EmbeddedProject, arguments: tuple[str, ...]
) -> None:
    project.create_many([{"title": "é"}])
    environment = {**project.environment, "COLUMNS": "70"}
    asked = (arguments, project.folder, environment)
    forked, started = warm.run(*asked, timeout=60), real(*asked)
    assert (forked.stdout, forked.stderr) == (started.stdout, started.stderr)
    assert forked.returncode == started.returncode


def test_what_it_starts_finds_the_same(project: EmbeddedProject, tmp_path: Path) -> None:
    environment = {**project.environment, "MINE": "1"}
    told = []
    before = os.umask(0o027)
    try:
        for run in (lambda *asked: warm.run(*asked, timeout=60), real):
            (issue,) = project.create_many([{"id": f"bw-{len(told)}"}])
            command = ("start", issue, "-n", "1", "--until-empty", "--", "sh", "-c", TASK)
            assert run(command, project.folder, environment).returncode == 0
            said = run(("logs", issue), project.folder, environment).stdout
            told.append(re.sub(r"\d{8}-\d{6}\.\d{3}-\w{6}", "RUN", said).replace(issue, "ISSUE"))
    finally:
        os.umask(before)
    assert told[0] == told[1]
    assert "MINE=1" in told[0] and str(project.folder) in told[0]


def test_it_is_a_process_of_its_own_that_ends_by_signals(
    project: EmbeddedProject, tmp_path: Path
) -> None:
    with (tmp_path / "out").open("wb") as out:
        asked = (("wait", "--timeout", "50"), project.folder, project.environment)
        fleet = warm.run(("start", "-d", "--", "true"), *asked[1:], timeout=60)
        assert fleet.returncode == 0, fleet.stderr
        processes = [warm.start(*asked, out.fileno(), out.fileno()) for _ in range(3)]
    assert len({process.pid for process in processes} - {os.getpid()}) == 3
    until(lambda: all(_has_begun(process.pid) for process in processes))
    signals = (signal.SIGINT, signal.SIGTERM, signal.SIGKILL)
    for process, number in zip(processes, signals, strict=True):
        assert process.poll() is None
        process.send_signal(number)
    assert [process.wait(20) for process in processes] == [130, -15, -9]
    assert warm.run(("stop",), *asked[1:], timeout=60).returncode == 0


def test_its_orchestrator_is_the_same_process_to_whoever_looks(project: EmbeddedProject) -> None:
    seen, there = [], (project.folder, project.environment)
    for run in (lambda *asked: warm.run(*asked, timeout=60), real):
        told = run(("start", "-d", "--json", "-n", "1", "--", "true"), *there)
        assert told.returncode == 0, told.stderr
        pid = json.loads(told.stdout)["pid"]
        place = Path("/proc", str(pid))
        command = re.sub(rb"\d+\0$", b"FD", (place / "cmdline").read_bytes().rstrip(b"\0") + b"\0")
        own, name, _, _, group, session = (place / "stat").read_text().split()[:6]
        standard = [(place / "fd" / number).readlink().name for number in "012"]
        seen.append((command, name, (place / "cwd").readlink(), standard))
        assert own == group == session == str(pid)
        assert run(("stop",), *there).returncode == 0
    assert seen[0] == seen[1]


def _has_begun(pid: int) -> bool:
    """Whether it is connected to the fleet: its only socket that the warm process has not."""
    return bool(_sockets(pid) - _sockets(warm._started()[1].pid))


def _sockets(pid: int) -> set[str]:
    return {name for name in descriptors(pid).values() if name.startswith("socket:")}


def test_where_python_itself_would_begin_differently_it_is_started_anew(
    project: EmbeddedProject, tmp_path: Path
) -> None:
    (tmp_path / "sitecustomize.py").write_text("print('of another path')\n")
    other = {**project.environment, "PYTHONPATH": str(tmp_path)}
    said = warm.run(("--version",), project.folder, other, timeout=60)
    assert said.stdout.startswith("of another path\n")
