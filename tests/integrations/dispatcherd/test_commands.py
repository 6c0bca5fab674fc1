"""The settings that let ``dispatcherctl`` find a fleet."""

from __future__ import annotations

import json
from pathlib import Path

from beads_workers.runtime.run_directory import RunDirectory
from tests.support.embedded import EmbeddedProject
from tests.support.fleet import call
from tests.support.mistakes import Mistake


def test_they_name_the_control_socket_of_the_project_from_any_folder_of_it(tmp_path: Path) -> None:
    project = EmbeddedProject(tmp_path)
    (project.folder / "below").mkdir()
    done = call(project, "dispatcherd-config", "--json", folder=project.folder / "below")
    assert done.returncode == 0, done.stderr
    shown = json.loads(done.stdout)
    path = RunDirectory(project.folder / ".beads-workers").control_socket
    assert shown["brokers"] == {"socket": {"socket_path": str(path)}}
    assert shown["version"] == 2
    assert "no fleet is running here" in done.stderr


def test_they_are_written_to_a_file_or_the_reason_why_not_is_said(tmp_path: Path) -> None:
    project = EmbeddedProject(tmp_path)
    done = call(project, "dispatcherd-config", "--write", "dispatcher.yml")
    assert (done.returncode, done.stdout) == (0, "")
    assert json.loads((project.folder / "dispatcher.yml").read_text())["version"] == 2
    refused = call(project, "dispatcherd-config", "--write", "missing/dispatcher.yml")
    assert refused.returncode == 1
    assert "cannot write missing/dispatcher.yml" in refused.stderr


def test_a_mistake_is_one_line_and_a_remedy(mistake: Mistake) -> None:
    mistake(
        "dispatcherd-config --boo",
        "No such option: --boo",
        "'beads-workers dispatcherd-config --help'",
        2,
    )
