"""People in a folder: found by where their processes stand, and told apart from attempts."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from beads_workers.runtime.occupants import Departures, described, occupants, staying

RUN = "20261127-064555.000-48c90b"
TOKEN = {"BW_RUN_ID": RUN, "BW_WORKER_ID": "W1"}
MOVES = "import os\nprint(flush=True)\nwhile True:\n    os.chdir(input())\n    print(flush=True)"


class Person:
    """A process that goes where it is told."""

    def __init__(self, folder: Path, variables: Mapping[str, str]) -> None:
        self.process = subprocess.Popen(
            (sys.executable, "-c", MOVES),
            cwd=folder,
            env={**variables},
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        self.pid = self.process.pid
        self._done()

    def go(self, folder: Path) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{folder}\n")
        self.process.stdin.flush()
        self._done()

    def _done(self) -> None:
        assert self.process.stdout is not None
        self.process.stdout.readline()


@contextmanager
def person(folder: Path, **variables: str) -> Iterator[Person]:
    found = Person(folder, variables)
    try:
        yield found
    finally:
        found.process.kill()
        found.process.communicate()


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A worktree with a folder in it, beside another one whose name begins alike."""
    for name in ("a.1/src", "a.10", "state/runs/" + RUN):
        (tmp_path / name).mkdir(parents=True)
    return tmp_path / "a.1"


def pids(place: Path) -> list[int]:
    return [each.pid for each in occupants(str(place), place.parent / "state")]


def test_whoever_stands_in_a_folder_or_below_it_is_found_the_oldest_first(place: Path) -> None:
    assert not pids(place)
    with person(place) as first, person(place / "src") as second, person(place.parent / "a.10"):
        assert pids(place) == [first.pid, second.pid]
        first.go(place / "src")
        assert pids(place) == [first.pid, second.pid]
        first.go(place.parent)
        assert pids(place) == [second.pid]
    assert not pids(place)


def test_a_folder_is_found_by_any_of_its_names(place: Path) -> None:
    (place.parent / "link").symlink_to(place)
    with person(place) as one:
        assert pids(place.parent / "link") == [one.pid]


def test_a_process_of_an_attempt_is_no_person_but_one_of_another_project_is(place: Path) -> None:
    with person(place, **TOKEN), person(place, **TOKEN | {"BW_RUN_ID": "another"}) as other:
        assert pids(place) == [other.pid]


def test_this_process_is_none(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place)
    assert os.getpid() not in pids(place)


def test_the_first_is_named_and_the_others_are_counted(place: Path) -> None:
    with person(place) as first, person(place):
        found = staying(str(place), place.parent / "state")
        name = Path(f"/proc/{found[0].pid}/comm").read_text().strip()
    assert described(found) == f"pid {first.pid}, {name}, and 1 more"
    assert described(found[:1]) == f"pid {first.pid}, {name}"


def test_the_departure_is_told_once_when_the_last_has_left_however_they_leave(place: Path) -> None:
    left: list[str] = []
    departures = Departures(place.parent / "state")
    with person(place) as one, person(place) as two:
        departures.watch("a", str(place), lambda: left.append("a"))
        departures.tick()
        one.process.kill()
        one.process.wait()
        departures.tick()
        with person(place / "src") as late:
            two.go(place.parent)
            departures.tick()
            assert not left, "somebody came meanwhile"
            late.go(Path("/"))
            departures.tick()
            assert left == ["a"]
    departures.tick()
    assert left == ["a"]


def test_nobody_there_is_told_at_the_next_look_even_if_the_folder_is_gone(place: Path) -> None:
    left: list[str] = []
    departures = Departures(place.parent / "state")
    departures.watch("a", str(place / "gone"), lambda: left.append("a"))
    assert not left
    departures.tick()
    assert left == ["a"]
