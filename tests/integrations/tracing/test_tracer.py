"""The orchestrator's end of the process that exports spans."""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from beads_workers.core.schedule.events import Event, Warned
from beads_workers.integrations.tracing.tracer import Tracer, start_tracer
from tests.support.fleet import until

LOADED = """
import sys
import beads_workers.integrations.tracing.options
import beads_workers.runtime.fleet, beads_workers.runtime.worker
import beads_workers.integrations.tracing.tracer, beads_workers.executors.retry
print([name for name in sys.modules if name.startswith("opentelemetry")])
"""


def test_nobody_but_the_exporting_process_loads_opentelemetry() -> None:
    loaded = subprocess.run([sys.executable, "-c", LOADED], capture_output=True, check=True)
    assert loaded.stdout == b"[]\n"


def test_a_process_that_dies_is_a_warning_and_the_run_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
    events: list[Event] = []
    with selectors.DefaultSelector() as selector:
        tracer = start_tracer(tmp_path / "journal.jsonl", selector, events.append)
        assert isinstance(tracer, Tracer)
        os.kill(tracer.pid, signal.SIGKILL)

        def has_events() -> bool:
            for key, mask in selector.select(0.1):
                key.data(mask)
            return bool(events)

        until(has_events)
        assert not selector.get_map(), "nothing of it is watched any more"
    tracer.finish()
    assert (
        events == [Warned("spans are not exported any more: the process for that has died")]
        and tracer.account.exported == 0
    )
