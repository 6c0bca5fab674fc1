"""Spans of real fleets, as a real collector gets them: whose child each of them is."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from beads_workers.integrations.rrq.wire import V1, V2
from tests.end_to_end.conftest import StartFleet
from tests.support.collector import Collector, Seen, collecting
from tests.support.embedded import EmbeddedProject
from tests.support.fleet import Fleet, call, until
from tests.support.peers import HANDLERS_FOLDER, OLD, rrq_of
from tests.support.rrq_client import Client, request

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
MADE = {"traceparent": f"00-{TRACE}-{SPAN}-01", "tracestate": "vendor=x"}
QUICK = ("--trace", "-n", "1", "--retry-delay", "0.05s", "--poll", "0.2s", "--max-attempts", "2")
TASKS = """
import os
from beads_workers.executors.retry import Retry, trace_context

def given(): return trace_context()
def in_environment(): return {k: v for k, v in os.environ.items() if k.startswith("TRACE")}
def fails(): raise ValueError(trace_context()["traceparent"])
def rests():
    import time
    time.sleep(3600)
"""


@pytest.fixture
def collector() -> Iterator[Collector]:
    with collecting() as found:
        yield found


@pytest.fixture
def project(embedded: EmbeddedProject, collector: Collector) -> EmbeddedProject:
    """With functions, and the collector's address."""
    (embedded.folder / "tasks.py").write_text(TASKS)
    kept = {k: v for k, v in embedded.environment.items() if not k.startswith(("OTEL_", "TRACE"))}
    embedded.environment = kept | {
        "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url,
        "OTEL_BSP_SCHEDULE_DELAY": "100",
    }
    return embedded


def header(span: Seen) -> str:
    """Its context, as whoever runs under it gets it."""
    return f"00-{span.trace}-{span.span}-01"


def result(project: Any, issue_id: str) -> Any:
    """What a function returned."""
    return json.loads(call(project, "show", issue_id, "--json").stdout)["result"]


def test_every_attempt_is_a_span_and_what_runs_knows_it(
    project: EmbeddedProject, start: StartFleet, collector: Collector
) -> None:
    shown = 'printf "%s %s" "$TRACEPARENT" "${TRACESTATE-none}" >"$BW_ISSUE_ID"'
    project.create_many(
        [
            {"id": "i-made", "job_path": "tasks.given", "trace_context": MADE},
            {"id": "i-own", "job_path": "tasks.in_environment"},
            {"id": "i-fails", "job_path": "tasks.fails"},
            {"id": "i-command"},
        ]
    )
    fleet = start(
        project, *QUICK, "--until-empty", "--allow-module", "tasks", "--", "sh", "-c", shown
    )
    assert fleet.wait() == 7, fleet.said()
    assert f"spans to {collector.url}/v1/traces" in fleet.errors
    (made,), (own,), (command,) = (collector.of(f"i-{name}") for name in ("made", "own", "command"))
    # Of whoever sent it.
    assert (made.trace, made.parent, made.state) == (TRACE, SPAN, "vendor=x")
    assert result(project, "i-made") == {"traceparent": header(made), "tracestate": "vendor=x"}
    # A trace of its own, and nothing of the call before it in the same process.
    assert own.parent == "" and own.trace not in (TRACE, command.trace)
    assert result(project, "i-own") == {"TRACEPARENT": header(own)}
    assert (project.folder / "i-command").read_text() == f"{header(command)} none"
    assert (own.name, own.kind) == ("beads_workers.attempt", "SPAN_KIND_CONSUMER")
    assert own.status == "STATUS_CODE_UNSET" and own.resource["service.name"] == "beads-workers"
    # Retries stand in the trace of the first attempt.
    first, second = collector.of("i-fails")
    assert (first.parent, second.parent, second.trace) == ("", first.span, first.trace)
    assert second.status == "STATUS_CODE_ERROR"
    assert second.message == f"ValueError: {header(second)}"
    assert first.ended <= second.began < second.ended
    assert len(collector.spans) == 5
    assert "tracing: 5 spans exported\n" in (fleet.run_folder / "orchestrator.log").read_text()
    fleet.leaves_nothing()


def test_a_trace_goes_on_in_the_next_run(
    project: EmbeddedProject, start: StartFleet, collector: Collector
) -> None:
    project.environment["OTEL_SERVICE_NAME"] = "night shift"
    project.create_many([{"id": "i-1", "job_path": "tasks.fails"}])
    options = (*QUICK, "--retry-delay", "2s", "--max-attempts", "4", "--allow-module", "tasks")
    fleet = start(project, *options)
    fleet.wait_for("finished")
    os.kill(fleet.pid, signal.SIGKILL)
    fleet.wait()
    another = start(project, *options)
    another.wait_for("finished")
    assert call(project, "stop").returncode == 0
    another.wait()
    first, *others = until(lambda: len(found := collector.of("i-1")) > 1 and found)
    assert {(span.trace, span.parent) for span in others} == {(first.trace, first.span)}
    assert len({span.attributes["beads.run.id"] for span in (first, *others)}) == 2
    assert first.resource["service.name"] == "night shift"


def test_an_executor_of_rrq_is_given_the_context_of_the_attempt(
    project: EmbeddedProject, start: StartFleet, collector: Collector
) -> None:
    project.create_many([{"id": "i-1", "job_path": "trace", "trace_context": MADE}])
    executor = f"rrq:{shlex.join(rrq_of(OLD).serve())}"
    handlers = {"PYTHONPATH": str(HANDLERS_FOLDER)}
    fleet = start(
        project, *QUICK, "--until-empty", "--executor", executor, environment=handlers
    )  # fmt: skip
    assert fleet.wait() == 0, fleet.said()
    (span,) = collector.of("i-1")
    assert (span.trace, span.parent) == (TRACE, SPAN)
    assert result(project, "i-1") == {"traceparent": header(span), "tracestate": "vendor=x"}


@pytest.mark.parametrize("version", [V1, V2])
def test_as_an_executor_of_rrq_we_continue_the_trace_of_the_producer(
    project: EmbeddedProject, start: StartFleet, collector: Collector, version: str
) -> None:
    place = project.folder.parent / "rrq.sock"
    shutil.copy(HANDLERS_FOLDER / "work.py", project.folder)
    options = ("--trace", "-n", "1", "--allow-module", "tasks", "--state-dir")
    fleet = start(
        project, *options, str(project.folder / "rrq"), "--socket", str(place), verb="rrq-executor"
    ).started()  # fmt: skip
    with Client(place) as client:
        answer = client.ask(request("tasks.given", version=version, trace_context=MADE))
        client.ask(request("tasks.fails", version=version))
    until(lambda: len(collector.spans) == 2)
    done, failed = collector.spans
    assert (done.name, done.trace, done.parent) == ("rrq.executor", TRACE, SPAN)
    assert answer.result == {"traceparent": header(done), "tracestate": "vendor=x"}
    assert done.attributes["rrq.function"] == "tasks.given"
    assert (failed.parent, failed.status) == ("", "STATUS_CODE_ERROR")
    fleet.process.terminate()
    fleet.wait()
    fleet.leaves_nothing()


def test_a_collector_that_never_answers_holds_nothing_up(
    project: EmbeddedProject, start: StartFleet, collector: Collector
) -> None:
    collector.answers.clear()
    project.environment["OTEL_BSP_MAX_QUEUE_SIZE"] = "10"
    project.create_many([{"id": "i-0"}])
    fleet = start(project, *QUICK, "--", "true")
    until(lambda: collector.requests == 1, what="nothing was exported")
    project.create_many([{"id": f"i-{n}"} for n in range(1, 25)])
    until(lambda: len(fleet.journal("finished")) == 25)
    assert call(project, "stop").returncode == 0
    assert fleet.wait() == 0, fleet.said()
    log = (fleet.run_folder / "orchestrator.log").read_text()
    assert "tracing: 0 spans exported, 25 dropped: the run has ended" in log
    assert collector.requests == 1 and not collector.spans
    fleet.leaves_nothing()


def test_the_spans_of_a_run_that_is_killed_are_not_lost(
    project: EmbeddedProject, start: StartFleet, collector: Collector
) -> None:
    project.create_many([{"id": "i-1", "job_path": "tasks.rests"}])
    project.environment["OTEL_BSP_SCHEDULE_DELAY"] = "3600000"
    fleet: Fleet = start(project, *QUICK, "--allow-module", "tasks")
    fleet.wait_for("started")
    os.kill(fleet.pid, signal.SIGKILL)
    until(lambda: collector.spans)
    (span,) = collector.of("i-1")
    assert (span.status, span.message) == ("STATUS_CODE_ERROR", "the orchestrator died")
    assert span.attributes["beads.outcome"] == "lost"


def test_without_tracing_nothing_is_made_and_what_came_is_passed_on(
    project: EmbeddedProject, start: StartFleet, collector: Collector
) -> None:
    project.create_many([{"id": "i-1", "job_path": "tasks.given", "trace_context": MADE}])
    fleet = start(project, *QUICK[1:], "--until-empty", "--allow-module", "tasks")
    assert fleet.wait() == 0, fleet.said()
    assert collector.requests == 0
    assert result(project, "i-1") == MADE
    assert "traceparent" not in fleet.journal("started")[0]


def test_the_standard_variables_turn_it_on_and_off(
    project: EmbeddedProject, start: StartFleet, collector: Collector
) -> None:
    project.create_many([{"id": "i-1"}])
    on = {"OTEL_TRACES_EXPORTER": "otlp", "OTEL_TRACES_SAMPLER": "always_on"}
    fleet = start(project, *QUICK[1:], "--until-empty", "--", "true", environment=on)
    assert fleet.wait() == 0, fleet.said()
    assert len(collector.spans) == 1
    for environment, said in (
        ({"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, "spans are sent as http/protobuf"),
        ({"OTEL_TRACES_SAMPLER": "sometimes"}, "no such OTEL_TRACES_SAMPLER: 'sometimes'"),
    ):
        refused = start(project, *QUICK, "--", "true", environment=environment)
        assert refused.wait() == 2 and said in refused.errors
    off = start(
        project, *QUICK, "--until-empty", "--", "true", environment={"OTEL_SDK_DISABLED": "true"}
    )  # fmt: skip
    assert off.wait() == 0 and "trace" not in off.errors
    assert len(collector.spans) == 1
