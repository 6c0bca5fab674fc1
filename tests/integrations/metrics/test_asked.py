"""Figures that a client asks the control socket for."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.runtime.test_control_server import Served


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    """A control socket, and clients of it."""
    made = Served(tmp_path)
    yield made
    made.server.close({})
    made.selector.close()


def test_figures_are_told_with_the_processes_whose_use_the_client_reads(served: Served) -> None:
    client = served.client()
    served.ask(client, "bw.metrics")
    told = json.loads(client.makefile("rb").readline())
    assert {each["name"] for each in told["families"]} >= {"beads_workers_uptime_seconds"}
    assert (told["orchestrator"], told["workers"], told["own"]) == (0, [], [])
    client.close()
