"""The conformance kit has nothing to say against a worker of ``workers/``."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.support.fleet import REPOSITORY
from tests.support.versions import WORKERS
from tests.support.workers import worker_programs

CLAIMED = {"W-4.3-1", "W-9.1-4", "W-9.2-2", "W-9.3-1", "W-9.4-1", "W-9.6-1", "W-9.8-1"}
"""What is asked only of who announces it or does it: of each feature one requirement."""


@pytest.mark.timeout(180)
@pytest.mark.parametrize("language", ["go", "node", "rust"], ids=WORKERS)
def test_the_worker_keeps_to_the_protocol(language: str) -> None:
    words = ["conformance", "worker", "--json", "--", str(worker_programs()[language]), "bw-task"]
    done = subprocess.run(
        [sys.executable, "-m", "beads_workers", *words, "{id}"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    verdicts = {row["id"]: row["verdict"] for row in json.loads(done.stdout)["requirements"]}
    assert {name for name, verdict in verdicts.items() if verdict == "pass"} >= CLAIMED
