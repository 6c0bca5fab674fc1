"""The kit as a command, and our own orchestrator in it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from beads_workers.conformance.requirements import ORCHESTRATOR
from tests.conformance.test_worker_kit import reference
from tests.end_to_end.conftest import StartFleet
from tests.support.embedded import EmbeddedProject
from tests.support.fleet import PROGRAM

pytestmark = pytest.mark.daily(3)

ISSUES = 200


def test_our_orchestrator_passes(embedded: EmbeddedProject, start: StartFleet) -> None:
    embedded.create_many([{}] * ISSUES)
    fleet = start(embedded, "-n", "0", "--retry-delay", "1s", "--", "true").started()
    words = ["conformance", "orchestrator", "--socket", str(fleet.socket), "--json"]
    words += ["--stop", f"kill -TERM {fleet.pid}"]
    told = subprocess.run([*PROGRAM, *words], capture_output=True, text=True, check=False)
    report = json.loads(told.stdout)
    wrong = [each for each in report["requirements"] if each["verdict"] != "pass"]
    assert (wrong, told.returncode) == ([], 0), json.dumps(wrong, indent=1)
    assert [each["id"] for each in report["requirements"]] == [*ORCHESTRATOR]


def test_a_failure_exits_1_and_stands_in_every_report_with_its_transcript(tmp_path: Path) -> None:
    junit = tmp_path / "junit.xml"
    words = ["conformance", "worker", "--only", "W-4.5-1", "--patience", "5"]
    command = ["--", *reference("W-4.5-1")]
    told = subprocess.run(
        [*PROGRAM, *words, "--junit", str(junit), *command],
        capture_output=True,
        text=True,
        check=False,
    )
    assert told.returncode == 1, told.stderr
    assert told.stdout.startswith("fail         W-4.5-1    says FAILED after a failure, and why")
    assert '"issue_id": "fail-1"' in told.stdout
    suite = ElementTree.parse(junit).getroot()
    assert suite.get("failures") == "1"
    failure = suite.find("testcase/failure")
    assert failure is not None and '"issue_id": "fail-1"' in (failure.text or "")


def test_what_does_not_exist_is_a_usage_error(tmp_path: Path) -> None:
    for words in (
        ["worker", "--", str(tmp_path / "none")],
        ["worker", "--only", "W-0-0", "--", sys.executable],
        ["orchestrator", "--socket", str(tmp_path / "none.sock")],
    ):
        told = subprocess.run(
            [*PROGRAM, "conformance", *words], capture_output=True, text=True, check=False
        )
        assert (told.returncode, told.stdout) == (2, ""), told.stderr
        assert told.stderr.startswith("error: ")
