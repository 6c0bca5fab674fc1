"""The corpus itself: what adapters are tested with has to be whole and true."""

from __future__ import annotations

import json
import re

import pytest

from tests.agents.endings import VERDICTS, RunEnding, read_corpus
from tests.agents.record import CALLS
from tests.agents.scenarios import scenarios

CORPUS = read_corpus()
PROGRAMS = sorted({(ending.agent, ending.version) for ending in CORPUS})


@pytest.fixture(params=PROGRAMS, ids="-".join)
def endings(request: pytest.FixtureRequest) -> list[RunEnding]:
    """All that were recorded of one version of an agent."""
    return [ending for ending in CORPUS if (ending.agent, ending.version) == request.param]


def named(ending: RunEnding) -> str:
    return f"{ending.agent}-{ending.version}/{ending.name}"


def test_it_is_large_enough_to_mean_something() -> None:
    streams = [ending for ending in CORPUS if ending.form == "stream-json"]
    assert len(streams) >= 150
    assert {ending.label.verdict for ending in streams} == set(VERDICTS)


@pytest.mark.parametrize("agent", ["claude", "codex"])
def test_every_scenario_is_recorded(agent: str) -> None:
    wanted = {scenario.name for scenario in scenarios(agent)}
    for version in {ending.version for ending in read_corpus(agent)}:
        names = {ending.name for ending in read_corpus(agent) if ending.version == version}
        assert names == wanted, f"{agent}-{version}: record it again"


def test_their_facts_agree(endings: list[RunEnding]) -> None:
    for ending in endings:
        (scenario,) = (s for s in scenarios(ending.agent) if s.name == ending.name)
        label, changed = ending.label, ending.git.changed or ending.git.commits > 0
        said = (label.verdict, ending.scenario)
        assert said == (scenario.verdict, scenario.script), named(ending)
        assert (ending.status is None) != (ending.signal is None), named(ending)
        assert changed or label.verdict != "done", named(ending)
        assert not changed or label.verdict != "no_change", named(ending)
        assert label.until is None or label.verdict == "limited", named(ending)
        assert (label.until or 0) % 60 == 0, named(ending)
        assert ending.agent in CALLS


def test_nothing_of_the_machine_is_in_them(endings: list[RunEnding]) -> None:
    for ending in endings:
        for text in (ending.stdout.decode(), ending.stderr):
            assert "/root" not in text, named(ending)
            assert "/home/" not in text.replace("/corpus/home/", ""), named(ending)
            assert not re.search(r"corpus-(?!work|home|agents)", text), named(ending)


def test_whole_lines_of_a_stream_are_json(endings: list[RunEnding]) -> None:
    for ending in (
        each for each in endings if each.form == "stream-json" and each.agent != "aider"
    ):
        for line in ending.stdout.splitlines(keepends=True):
            if line.startswith(b"{") and line.endswith(b"\n"):
                json.loads(line)
