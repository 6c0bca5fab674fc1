"""The orchestrator kit: the reference passes, and each of its mutants is caught by name."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from beads_workers.conformance.bench import Timing
from beads_workers.conformance.orchestrator_suite import try_orchestrator
from beads_workers.conformance.report import Judgement
from beads_workers.conformance.requirements import ORCHESTRATOR

REFERENCE = str(Path(__file__).with_name("reference_orchestrator.py"))
QUICK = Timing(patience=2.0, quiet=0.4, hold=1.0)


@contextmanager
def reference(folder: Path, broken: str = "") -> Iterator[tuple[str, Sequence[str]]]:
    """The socket of a reference orchestrator, or of one of its mutants, and what stops it."""
    path = str(folder / "o.sock")
    options = ["--break", broken] if broken else []
    command = [sys.executable, "-S", "-E", REFERENCE, path, *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"listens\n"
        yield path, ("kill", "-TERM", str(child.pid))
        child.kill()


def test_the_reference_orchestrator_passes(tmp_path: Path) -> None:
    with reference(tmp_path) as (path, stop):
        report = try_orchestrator(path, Timing(patience=20.0), stop=stop)
    assert report.count(Judgement.PASS) == len(ORCHESTRATOR), "\n".join(report.lines())


@pytest.mark.share(4)
@pytest.mark.parametrize("requirement", ORCHESTRATOR)
def test_an_orchestrator_that_breaks_a_requirement_is_caught_by_its_name(
    requirement: str, tmp_path: Path
) -> None:
    with reference(tmp_path, requirement) as (path, stop):
        report = try_orchestrator(path, QUICK, [requirement], stop)
    [finding] = [each for each in report.findings if each.requirement == requirement]
    assert finding.verdict is Judgement.FAIL, "\n".join(report.lines())
