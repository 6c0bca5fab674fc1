"""What ``doctor`` says of brokers of dispatcherd: a socket, PostgreSQL, and what names them."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from beads_workers.runtime.run_directory import RunDirectory, RunInfo
from tests.cli.doctor_support import Diagnosis, Patient, patient
from tests.support.dispatcherd import configuration, write
from tests.support.postgres import Postgres


@pytest.fixture
def project(tmp_path: Path) -> Patient:
    """A project whose tasks are in ``deeds`` and come over a socket."""
    found = patient(tmp_path)
    (found.folder / "deeds.py").touch()
    write(configuration(socket=place(found)), found.folder)
    return found


def place(project: Patient) -> Path:
    return project.folder / "d.sock"


def looked(project: Patient, *more: str) -> Diagnosis:
    return project.doctor(
        "--source", "dispatcherd:dispatcherd.yml", "--allow-module", "deeds", *more
    )


@pytest.fixture
def listening(project: Patient) -> Iterator[Path]:
    """Somebody, this process, is there already."""
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(place(project)))
        server.listen()
        yield place(project)


def test_sound_brokers_are_described_and_nothing_is_made(
    project: Patient, postgres: Postgres
) -> None:
    both = configuration(socket=place(project), postgres=postgres, channels=["tasks", 'Ünd "mehr'])
    write(both, project.folder)
    before = sorted(project.folder.iterdir())
    found = looked(project)
    assert (found.status, found.problems() & {"broker", "command"}) == (0, set()), found.shown
    free, served = (check["text"] for check in found.all("broker"))
    assert free.startswith(f"{place(project)} is free")
    assert 'PostgreSQL (tasks, Ünd "mehr)' in served and f"/{postgres.name} as " in served
    assert "brings a notification in " in served
    assert found.one("command")["text"] == "functions of deeds, which are there"
    assert sorted(project.folder.iterdir()) == before


def test_as_many_workers_are_reckoned_with_as_the_configuration_asks_for(project: Patient) -> None:
    write(configuration(socket=place(project), workers=23), project.folder)
    assert "; 23 workers need " in looked(project).one("files")["text"]
    assert "; 2 workers need " in looked(project, "-n", "2").one("files")["text"]


def test_short_urls_are_looked_at_like_files(project: Patient, postgres: Postgres) -> None:
    url = f"{postgres.url}?channel=tasks"
    assert "PostgreSQL (tasks)" in project.doctor("--source", url).one("broker")["text"]
    url = f"dispatcherd+unix://{place(project)}"
    assert "is free" in project.doctor("--source", url).one("broker")["text"]


def test_a_postgres_that_is_away_is_the_tracker_in_trouble(
    project: Patient, lonely_postgres: Postgres
) -> None:
    write(configuration(postgres=lonely_postgres), project.folder)
    lonely_postgres.server.stop()
    found = looked(project)
    assert found.status == 6
    assert found.one("broker")["status"] == "fail"
    assert found.one("broker")["text"].startswith("PostgreSQL (test_channel): connection ")
    assert found.one("broker")["remedy"] == "${EDITOR:-vi} dispatcherd.yml"
    lonely_postgres.server.start()
    assert "broker" not in looked(project).problems()


def test_a_database_that_there_is_not_is_named(project: Patient, postgres: Postgres) -> None:
    url = f"{postgres.url}_missing?channel=tasks"
    broker = project.doctor("--source", url).one("broker")
    assert '_missing" does not exist' in broker["text"]
    postgres.sql(f'create database "{postgres.name}_missing"')
    assert broker["remedy"].startswith("psql ")
    assert project.type(broker["remedy"]).returncode == 0


def test_a_socket_on_which_somebody_listens_names_whom(project: Patient, listening: Path) -> None:
    broker = looked(project).one("broker")
    assert broker["status"] == "fail"
    assert f"somebody listens there already (pid {os.getpid()})" in broker["text"]
    assert str(os.getpid()) in project.type(broker["remedy"]).stdout


def test_the_socket_of_the_fleet_that_runs_here_is_in_nobodys_way(
    project: Patient, listening: Path
) -> None:
    directory = RunDirectory(project.folder / ".beads-workers")
    directory.create()
    directory.write_info(RunInfo(os.getpid(), 1, "run", "s", "c", "p", "dispatcherd"))
    found = looked(project).one("broker")
    assert (found["status"], "the fleet that runs here" in found["text"]) == ("ok", True)


def test_a_dead_socket_is_left_for_the_start_to_remove(project: Patient) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(place(project)))
    found = looked(project).one("broker")
    assert found["status"] == "ok" and found["text"].endswith("a dead socket there is removed")
    assert place(project).is_socket()


def test_what_is_no_socket_is_in_the_way(project: Patient) -> None:
    place(project).write_text("precious")
    found = looked(project).one("broker")
    assert found["status"] == "fail" and found["text"].endswith("is there, and is no socket")
    assert project.type(found["remedy"]).returncode == 0


def test_a_socket_below_a_file_cannot_be_made(project: Patient) -> None:
    (project.folder / "file").touch()
    write(configuration(socket=project.folder / "file" / "d.sock"), project.folder)
    assert "is no folder" in looked(project).one("broker")["text"]


@pytest.mark.parametrize("text", [None, "version: 1", "{", "version: 2\nbrokers: {rabbit: {}}"])
def test_a_configuration_that_is_none_leads_to_it(project: Patient, text: str | None) -> None:
    file = project.folder / "dispatcherd.yml"
    file.unlink() if text is None else file.write_text(text)
    found = looked(project)
    assert found.status == 6
    assert found.one("broker")["text"].startswith("--source: ")
    assert found.one("broker")["remedy"] == "${EDITOR:-vi} dispatcherd.yml"


def test_a_module_that_is_not_there_could_not_be_called(project: Patient) -> None:
    (project.folder / "deeds.py").unlink()
    found = looked(project)
    assert found.status == 1
    assert "there is no such module" in found.one("command")["text"]
