"""What ``doctor`` says of executors."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.doctor_support import Patient, initialised


@pytest.fixture
def project(tmp_path: Path) -> Patient:
    """A project with a built-in tracker."""
    return initialised(tmp_path)


def test_the_program_of_each_executor_is_looked_for(project: Patient) -> None:
    settings = project.folder / "beads-workers.toml"
    settings.write_text('executor = ["a=rrq:sh -c true", "b=rrq2:no-such-program --settings x"]\n')
    found = project.doctor()
    assert [check["status"] for check in found.all("executor")] == ["ok", "fail"]
    assert "no-such-program" in found.all("executor")[1]["text"]
