"""The worker kit: our workers pass, and each mutant of the reference worker is caught by name."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from beads_workers.conformance.bench import Timing
from beads_workers.conformance.report import LATE, Judgement, Report
from beads_workers.conformance.requirements import WORKER
from beads_workers.conformance.worker_suite import try_worker
from tests.support.shares import share

ROOT = Path(__file__).parent.parent.parent
REFERENCE = str(Path(__file__).with_name("reference_worker.py"))
TASK = ("--", "bw-task", "{id}")
GENEROUS = Timing(patience=30.0)
QUICK = Timing(patience=2.0, quiet=0.5)

TRIES = 5
"""On a machine that is too busy to tell."""

ALL = "grouped,cancel,heartbeat,status,pause,priority,batch,x-again"
ONLY_WITHOUT_GROUPED = {"W-9.3-2", "W-9.3-3"}
FEATURES: dict[str, str] = {
    "W-3-5": "1.1",
    "W-9.1-1": "1.1",
    "W-9.1-2": "1.1",
    "W-9.1-3": "1.1",
    "W-9.1-4": "grouped",
    "W-9.2-1": "1.1",
    "W-9.2-2": "1.1",
    "W-9.2-3": "1.1",
    "W-9.3-1": "grouped",
    "W-9.3-2": "1.1",
    "W-9.3-3": "1.1",
    "W-9.4-1": "cancel",
    "W-9.4-2": "cancel",
    "W-9.4-3": "cancel",
    "W-9.5-1": "prefetch",
    "W-9.5-2": "prefetch",
    "W-9.5-3": "prefetch",
    "W-9.5-4": "prefetch",
    "W-9.6-1": "1.1",
    "W-9.8-1": "heartbeat",
    "W-9.9-1": "status",
    "W-9.10-1": "pause",
    "W-9.10-2": "pause",
    "W-9.10-3": "pause",
    "W-9.12-1": "batch",
    "W-9.12-2": "batch",
}
"""What a worker must have said in READY for a requirement to be asked of it: a version or a
feature; ``prefetch`` is a ``prefetch_count``."""

WRONG = (
    "W-4.6-1 twice as long",
    "W-5.1-1 after the fourth task",
    "W-9.2-3 in a file",
    "W-9.4-1 said too early",
    "W-9.12-1 the last before its time",
)
"""More mutants: a requirement, and how it is broken."""
WITH_PREFETCH = {"W-9.5-1", "W-9.5-2", "W-9.5-3", "W-9.5-4", "W-9.10-1"}


def reference(broken: str = "", features: str = "", prefetch: int = 0) -> list[str]:
    """The command of a reference worker, or of one of its mutants."""
    options = {"--features": features, "--prefetch": str(prefetch) if prefetch else ""}
    options["--break"] = broken
    said = [word for name, value in options.items() if value for word in (name, value)]
    return [sys.executable, "-S", "-E", REFERENCE, *said, "--", "bw-task"]


def verdicts(report: Report, verdict: Judgement) -> set[str]:
    """The requirements that have it."""
    return {each.requirement for each in report.findings if each.verdict is verdict}


def passed(report: Report) -> set[str]:
    """Those that pass, of a report without a failure."""
    assert report.is_conformant, "\n".join(report.lines())
    assert verdicts(report, Judgement.NOT_REACHED) == set()
    return verdicts(report, Judgement.PASS)


def test_the_reference_worker_of_version_1_passes() -> None:
    assert passed(try_worker(reference(), GENEROUS)) == WORKER.keys() - FEATURES.keys() - {"W-7-4"}


def test_the_reference_worker_of_all_features_passes() -> None:
    left = WORKER.keys() - ONLY_WITHOUT_GROUPED - {"W-5.2-2"}
    assert passed(try_worker(reference(features=ALL, prefetch=2), GENEROUS)) == left


def test_our_worker_passes() -> None:
    command = [sys.executable, "-m", "beads_workers", "worker", "--", "bw-task", "{id}"]
    found = passed(try_worker(command, GENEROUS))
    due = {name for name in WORKER if FEATURES.get(name, "1.1") in ("1.1", "grouped", "cancel")}
    due |= {"W-9.9-1", "W-9.10-2", "W-9.10-3"}
    assert found >= due - ONLY_WITHOUT_GROUPED - {"W-5.2-2", "W-7-4"}


BASH = str(ROOT / "bin/bw-worker.sh")


DUE_OF_BASH = sorted(
    {name for name, feature in FEATURES.items() if feature == "1.1"} - {"W-9.6-1"}
    | WORKER.keys() - FEATURES.keys() - {"W-7-4"}
)


def test_the_bash_worker_passes(every_version: bool) -> None:
    """A third of what is asked of it: each answer of jq is a process."""
    asked = DUE_OF_BASH if every_version else sorted(share(DUE_OF_BASH, 3))
    assert passed(try_worker([BASH, "bw-task", "{id}"], GENEROUS, asked)) >= {*asked}


def test_the_bash_worker_passes_where_it_is_set_to_claim_by_itself() -> None:
    """It speaks version 1 then: what it says at first, and whether it calls the tracker."""
    first, claims = {"W-4.1-1", "W-4.1-2"}, {"W-4.3-1", "W-4.3-3", "W-4.3-4", "W-4.3-5"}
    due = first | claims | {"W-4.7-3", "W-7-3"}
    command = ["env", "BW_CLAIMS=worker", BASH, "bw-task", "{id}"]
    assert passed(try_worker(command, GENEROUS, sorted(due))) >= due


def test_a_worker_whose_command_is_its_own_is_not_judged_by_its_tasks() -> None:
    asked = ["W-4.3-1", "W-4.3-2", "W-4.5-1", "W-4.7-1", "W-4.7-2", "W-9.2-2", "W-9.2-3"]
    command = [*reference(features="1.1")[:-1], "true"]
    report = try_worker(command, QUICK, asked)
    assert verdicts(report, Judgement.PASS) == {"W-4.3-2", "W-4.7-1", "W-9.2-3"}
    assert verdicts(report, Judgement.NOT_CLAIMED) == {*asked} - verdicts(report, Judgement.PASS)


def test_an_interval_beyond_the_patience_for_heartbeats_is_not_claimed() -> None:
    quick = Timing(patience=2.0, quiet=0.5, heartbeat=0.1)
    report = try_worker(reference(features="heartbeat"), quick, ["W-9.8-1"])
    assert verdicts(report, Judgement.NOT_CLAIMED) == {"W-9.8-1"}, "\n".join(report.lines())


@pytest.mark.share(12)
@pytest.mark.parametrize("broken", [*WORKER, *WRONG])
def test_a_worker_that_breaks_a_requirement_is_caught_by_its_name(broken: str) -> None:
    requirement = broken.partition(" ")[0]
    feature = FEATURES.get(requirement, "")
    alone = "1.1" if requirement in ONLY_WITHOUT_GROUPED or feature == "prefetch" else feature
    features = f"{alone},cancel" if requirement in WITH_PREFETCH else alone
    command = reference(broken, features, 2 if requirement in WITH_PREFETCH else 0)
    for _ in range(TRIES):
        report = try_worker(command, QUICK, [requirement])
        [finding] = [each for each in report.findings if each.requirement == requirement]
        if LATE not in finding.why:
            break
    assert finding.verdict is Judgement.FAIL, "\n".join(report.lines())
    assert finding.transcript or requirement in ("W-2.2-1", "W-2.2-2", "W-2.3-2", "W-2.3-3")
