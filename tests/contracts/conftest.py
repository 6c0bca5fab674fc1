"""A fresh tracker of each kind, and sources on it; see ``trackers``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from beads_workers.core.base.model import Filters, IssueId
from beads_workers.core.base.source import Source
from tests.contracts.pull_sources import US, MakeSource, taken
from tests.contracts.trackers import CAPABILITIES, TRACKERS, Tracker


@pytest.fixture(params=sorted(TRACKERS))
def tracker(request: pytest.FixtureRequest, tmp_path: Path) -> Tracker:
    for needed in (name for mark in request.node.iter_markers("needs") for name in mark.args[0]):
        if not getattr(CAPABILITIES[request.param], needed):
            pytest.skip(f"{request.param} promises no {needed}")
    make: Callable[[Path], Tracker] = TRACKERS[request.param]
    return make(tmp_path)


@pytest.fixture
def source_of(tracker: Tracker) -> Iterator[MakeSource]:
    made: list[Source] = []

    def make(actor: str = US, filters: Filters | None = None, listed_max: int = 200) -> Source:
        made.append(tracker.source(actor, filters or Filters(), listed_max))
        return made[-1]

    yield make
    for source in made:
        source.close()


@pytest.fixture
def source(source_of: MakeSource) -> Source:
    return source_of()


@pytest.fixture
def held(tracker: Tracker, source: Source) -> IssueId:
    """One issue that the source has taken."""
    key = tracker.create("held")
    assert taken(source) == [key]
    return key
