"""Projects of every tracker, fleets that are ended with the test, and a record of what ran."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.agents_api import ModelApi
from tests.support.bd import OLD, VERSIONS, BdProject
from tests.support.browser import Browser
from tests.support.embedded import EmbeddedProject
from tests.support.fleet import Fleet
from tests.support.real_agents import AgentHome
from tests.support.versions import ANY, EITHER

StartFleet = Callable[..., Fleet]


@pytest.fixture
def start() -> Iterator[StartFleet]:
    """Starts fleets: ``start(project, *arguments)``; what is left of them ends with the test."""
    fleets: list[Fleet] = []

    def begin(project: Any, *arguments: str, **options: Any) -> Fleet:
        fleets.append(Fleet(project, *arguments, **options))
        return fleets[-1]

    yield begin
    for fleet in fleets:
        fleet.end()


@pytest.fixture
def embedded(tmp_path: Path) -> EmbeddedProject:
    """A fresh embedded tracker."""
    return EmbeddedProject(tmp_path)


@pytest.fixture
def any_project(request: pytest.FixtureRequest, tmp_path: Path) -> EmbeddedProject | BdProject:
    """A fresh project of each kind of tracker in turn: what claims, closes, recovers or dies."""
    return _project(request.param, tmp_path)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """The kinds of ``any_project`` and ``bd_project``, unless the test names its own."""
    named = str([mark.args[0] for mark in metafunc.definition.iter_markers("parametrize")])
    for name, kinds, ids in (
        ("any_project", ("embedded", *VERSIONS), ANY),
        ("bd_project", VERSIONS, VERSIONS),
    ):
        if name in metafunc.fixturenames and name not in named:
            metafunc.parametrize(name, kinds, ids=ids, indirect=True)


def _project(kind: str, folder: Path) -> EmbeddedProject | BdProject:
    return EmbeddedProject(folder) if kind == "embedded" else BdProject(folder, kind)


@pytest.fixture(params=["embedded", OLD], ids=EITHER)
def either_project(request: pytest.FixtureRequest, tmp_path: Path) -> EmbeddedProject | BdProject:
    """A fresh project of the built-in tracker or of a ``bd``: for tests that are not about them."""
    return _project(request.param, tmp_path)


@pytest.fixture
def bd_project(request: pytest.FixtureRequest, tmp_path: Path) -> BdProject:
    """A fresh project of each generation of ``bd`` in turn."""
    return BdProject(tmp_path, request.param)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """One for all tests of a file."""
    opened = Browser(tmp_path_factory.mktemp("browser"))
    yield opened
    opened.close()


@pytest.fixture
def api() -> Iterator[ModelApi]:
    """A stub of the model APIs, which ends with the test."""
    with ModelApi() as stub:
        yield stub


@pytest.fixture
def home(api: ModelApi) -> Iterator[AgentHome]:
    """A home whose agents have a subscription."""
    made = AgentHome(api)
    yield made
    made.close()


class Ran:
    """What commands wrote when they began and ended, one atomic line each, in order."""

    def __init__(self, file: Path) -> None:
        self.file = file
        file.touch()

    def command(self, between: str = "") -> tuple[str, ...]:
        """A command that writes down its begin and its end; ``between`` runs in the middle."""
        line = 'printf "%s %s\\n" {word} "$BW_ISSUE_ID" >>"$RAN"'
        begin, end = (line.replace("{word}", word) for word in ("begin", "end"))
        return ("sh", "-c", f"{begin}; {between or ':'} || exit; {end}")

    @property
    def environment(self) -> dict[str, str]:
        """For the fleet, whose tasks inherit it."""
        return {"RAN": str(self.file)}

    def lines(self) -> list[tuple[str, str]]:
        """(begin or end, issue id) in the order in which they happened."""
        words = [line.split() for line in self.file.read_text().splitlines()]
        return [(word, issue_id) for word, issue_id in words]

    def begun(self) -> list[str]:
        """Issue ids in the order in which their commands began."""
        return [issue_id for word, issue_id in self.lines() if word == "begin"]

    def ended(self) -> list[str]:
        """Issue ids in the order in which their commands ended."""
        return [issue_id for word, issue_id in self.lines() if word == "end"]

    def each_once(self, issue_ids: list[Any]) -> None:
        """Every command ran exactly once, from begin to end."""
        assert Counter(self.begun()) == Counter(issue_ids)
        assert Counter(self.ended()) == Counter(issue_ids)


@pytest.fixture
def ran(tmp_path: Path) -> Ran:
    """An empty record."""
    return Ran(tmp_path / "ran.txt")
