"""The corpus itself: what adapters are tested with has to be whole and true."""

from __future__ import annotations

import json
import re

import pytest

from tests.agents.endings import VERDICTS, RunEnding, read_corpus
from tests.agents.record import CALLS
from tests.agents.scenarios import scenarios

CORPUS = read_corpus()


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


@pytest.mark.parametrize("ending", CORPUS, ids=named)
def test_its_facts_agree(ending: RunEnding) -> None:
    (scenario,) = (s for s in scenarios(ending.agent) if s.name == ending.name)
    label, changed = ending.label, ending.git.changed or ending.git.commits > 0
    assert (label.verdict, ending.scenario) == (scenario.verdict, scenario.script)
    assert (ending.status is None) != (ending.signal is None)
    assert changed or label.verdict != "done"
    assert not changed or label.verdict != "no_change"
    assert label.until is None or label.verdict == "limited"
    assert (label.until or 0) % 60 == 0
    assert ending.agent in CALLS


@pytest.mark.parametrize("ending", CORPUS, ids=named)
def test_nothing_of_the_machine_is_in_it(ending: RunEnding) -> None:
    for text in (ending.stdout.decode(), ending.stderr):
        assert "/root" not in text
        assert "/home/" not in text.replace("/corpus/home/", "")
        assert not re.search(r"corpus-(?!work|home|agents)", text)


@pytest.mark.parametrize("ending", CORPUS, ids=named)
def test_whole_lines_of_a_stream_are_json(ending: RunEnding) -> None:
    lines = ending.stdout.splitlines(keepends=True) if ending.form == "stream-json" else []
    for line in lines:
        if line.startswith(b"{") and line.endswith(b"\n"):
            json.loads(line)
