"""The figures of a real fleet: printed, and served over HTTP while it works."""

from __future__ import annotations

import json
import re
import socket
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families as read

from beads_workers import __version__
from tests.end_to_end.conftest import Ran, StartFleet
from tests.end_to_end.test_rrq_executor import Folder
from tests.support.embedded import EmbeddedProject
from tests.support.fleet import Fleet, until
from tests.support.rrq_client import Client, request

Figures = dict[tuple[str, frozenset[tuple[str, str]]], float]

BURN = "import time\nwhile time.process_time() < 0.4: pass"


def figures(text: str) -> Figures:
    """What Prometheus makes of a text."""
    return {
        (sample.name.removeprefix("beads_workers_"), frozenset(sample.labels.items())): sample.value
        for family in read(text)
        for sample in family.samples
    }


def url_of(fleet: Fleet) -> str:
    found = re.search(r"ok metrics +(http://127\.0\.0\.1:\d+/metrics)\n", fleet.started().errors)
    assert found is not None, fleet.said()
    return found[1]


def scrape(url: str) -> Figures:
    with urllib.request.urlopen(url, timeout=30) as answer:
        assert answer.status == 200
        assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        return figures(answer.read().decode())


def value(found: Figures, name: str, **labels: str) -> float | None:
    return found.get((name, frozenset(labels.items())))


def test_a_fleet_is_scraped_while_it_works_and_says_the_same_when_asked(
    embedded: EmbeddedProject, start: StartFleet, ran: Ran
) -> None:
    embedded.create_many([{"priority": 1}, {"priority": 1}, {"priority": 3}])
    burn = f"python3 -c '{BURN}'"
    gate = f'{burn}; while ! [ -e "$RAN.gate" ]; do sleep 0.2; done; [ $BW_ISSUE_ID != bw-2 ]'
    fleet = start(
        embedded,
        *("-n", "2", "--metrics", "0", "--max-attempts", "1", "--", *ran.command(gate)),
        environment=ran.environment,
    )
    url = url_of(fleet)

    def burnt() -> Figures | None:
        found = scrape(url)
        used = [value(found, "worker_cpu_seconds_total", worker=w) or 0 for w in ("W1", "W2")]
        return found if min(used) >= 0.4 else None

    busy = until(burnt)
    assert busy is not None
    assert value(busy, "workers", state="busy") == 2
    assert value(busy, "jobs", state="running") == 2
    assert value(busy, "attempts_started_total") == 2
    assert (value(busy, "worker_processes", worker="W1") or 0) >= 2
    assert (value(busy, "worker_resident_memory_bytes", worker="W1") or 0) > 1 << 20
    assert (value(busy, "orchestrator_resident_memory_bytes") or 0) > 1 << 20
    Path(f"{ran.file}.gate").touch()
    until(lambda: value(scrape(url), "jobs_done_total") == 2)
    printed = fleet.call("metrics")
    assert printed.returncode == 0, printed.stderr
    served, asked = scrape(url), figures(printed.stdout)
    assert served.keys() == asked.keys()
    for found in (served, asked):
        assert value(found, "attempts_total", outcome="success", verdict="finish") == 2
        assert value(found, "attempts_total", outcome="error", verdict="quarantined") == 1
        assert (value(found, "attempt_duration_seconds_sum", outcome="success") or 0) > 0.4
        assert value(found, "jobs", state="quarantined") == 1
        assert (value(found, "source_round_trips_total", kind="settle") or 0) >= 1
        # What a task has used stays counted when it is gone.
        assert (value(found, "worker_cpu_seconds_total", worker="W1") or 0) >= 0.4
    told = json.loads(fleet.call("metrics", "--json").stdout)["metrics"]
    assert {each["name"] for each in told} >= {"beads_workers_jobs_done_total"}
    assert fleet.call("stop").returncode == 0
    fleet.leaves_nothing()
    with pytest.raises(OSError, match="refused"):
        urllib.request.urlopen(url, timeout=30)


def test_visitors_who_never_speak_do_not_keep_a_fleet_from_its_work(
    embedded: EmbeddedProject, start: StartFleet
) -> None:
    embedded.create_many([{} for _ in range(20)])
    fleet = start(embedded, "-n", "2", "--metrics", "0", "--until-empty", "--", "sleep", "0.1")
    port = int(url_of(fleet).split(":")[2].split("/")[0])
    visitors: list[Any] = [socket.create_connection(("127.0.0.1", port), 30) for _ in range(60)]
    assert fleet.wait() == 0, fleet.said()
    fleet.leaves_nothing()
    assert {status for status, _ in embedded.read_all().values()} == {"closed"}
    for visitor in visitors:
        visitor.close()


def test_a_port_that_is_taken_is_an_error_and_nothing_has_started(
    embedded: EmbeddedProject, start: StartFleet
) -> None:
    embedded.create_many([{}])
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        fleet = start(embedded, "--metrics", f"127.0.0.1:{port}", "--", "true")
        assert fleet.wait() == 1
    assert f"error: metrics cannot be served on 127.0.0.1:{port}" in fleet.errors
    assert "hint: " in fleet.errors
    runs = embedded.folder / ".beads-workers" / "runs"
    assert not runs.exists() or not list(runs.iterdir())


def test_an_rrq_executor_has_the_same_figures(tmp_path: Path, start: StartFleet) -> None:
    place = Folder(tmp_path)
    allowed = ("--allow-module", "work", "--prefix", "work")
    state = ("--state-dir", str(place.folder / ".beads-workers" / "rrq" / "1"))
    fleet = start(place, *state, "-n", "1", "--metrics", "0", *allowed, verb="rrq-executor")
    url = url_of(fleet)
    with Client(place.socket) as client:
        assert client.ask(request("add", a=1, b=2)).result == 3
    until(lambda: value(scrape(url), "attempts_total", outcome="success", verdict="finish") == 1)
    found = scrape(url)
    assert value(found, "info", version=__version__, source="rrq") == 1
    assert value(found, "jobs_taken_total") == 1


@pytest.mark.parametrize("port", ["0.0.0.0:9464", "65536", "-1", "localhost:1"])
def test_only_ports_of_the_loopback_interface_are_accepted(
    embedded: EmbeddedProject, start: StartFleet, port: str
) -> None:
    fleet = start(embedded, f"--metrics={port}", "--", "true")
    assert fleet.wait() == 2
    assert "a port of this machine" in fleet.errors
