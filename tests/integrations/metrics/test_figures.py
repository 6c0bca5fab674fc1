"""The figures of a fleet: what each means, and that the page about them names them all."""

from __future__ import annotations

import re
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families as read

from beads_workers.core.base.policy import Policy
from beads_workers.core.records import journal as rec
from beads_workers.core.records.journal import Entry
from beads_workers.core.records.receipts import Receipt, Tokens
from beads_workers.core.views.snapshot import Board
from beads_workers.integrations.metrics import figures
from beads_workers.integrations.metrics import figures as usage
from beads_workers.integrations.metrics.figures import Family, to_text
from tests.core.playbook import BEGAN, Play, done, failed
from tests.support.landings import night
from tests.support.mistakes import Mistake

PAGE = Path(__file__).parents[3] / "docs" / "METRICS.md"

Found = dict[tuple[str, frozenset[tuple[str, str]]], float]


def scraped(play: Play) -> Found:
    """What Prometheus makes of it: values by name and labels."""
    text = to_text(figures.families(play.board, play.now - BEGAN))
    return {
        (sample.name.removeprefix("beads_workers_"), frozenset(sample.labels.items())): sample.value
        for family in read(text)
        for sample in family.samples
    }


def value(found: Found, name: str, **labels: str) -> float:
    """One figure."""
    return found[name, frozenset(labels.items())]


def test_a_busy_fleet_is_told_in_numbers() -> None:
    play = Play(policy=Policy(attempts_max=2))
    play.working("a", "b", "c")
    play.do(done(1, "a", duration_ms=250), failed(2, "b", duration_ms=40))
    play.answer(listed=("d", "e"))
    found = scraped(play)
    assert value(found, "jobs_taken_total") == 3
    assert value(found, "attempts_started_total") == 3
    assert value(found, "attempts_total", outcome="success", verdict="finish") == 1
    assert value(found, "attempts_total", outcome="error", verdict="requeue") == 1
    assert value(found, "attempt_duration_seconds_sum", outcome="success") == 0.25
    assert value(found, "attempt_duration_seconds_bucket", outcome="success", le="0.1") == 0
    assert value(found, "attempt_duration_seconds_bucket", outcome="success", le="0.5") == 1
    assert value(found, "attempt_duration_seconds_bucket", outcome="success", le="+Inf") == 1
    assert value(found, "workers", state="busy") == 1
    assert value(found, "worker_busy", worker="W3") == 1
    assert value(found, "worker_attempts_total", worker="W2", result="failed") == 1
    assert value(found, "queue_depth", priority="2") == 2
    assert value(found, "jobs", state="running") == 1
    assert value(found, "jobs", state="retrying") == 1
    assert value(found, "state", state="running") == 1
    assert value(found, "source_trouble") == 0


def test_a_tracker_in_trouble_shows() -> None:
    play = Play()
    play.join(1)
    play.answer(take_error="locked")
    found = scraped(play)
    assert value(found, "source_trouble") == 1
    assert value(found, "source_failures_total", kind="take") == 1


def test_what_was_counted_never_gets_less() -> None:
    play = Play(policy=Policy(attempts_max=1))
    before: Found = {}
    play.working("a", "b", "c")
    for event in (failed(1, "a"), done(2, "b"), failed(3, "c")):
        play.do(event)
        play.quiet()
        play.wait(1)
        now = scraped(play)
        counted = [key for key in before if key[0].endswith(("_total", "_bucket", "_count"))]
        assert counted or not before
        assert all(now[key] >= before[key] for key in counted)
        before = now


def test_no_issue_is_named() -> None:
    play = Play()
    play.working("secret-issue")
    assert "secret" not in to_text(figures.families(play.board, 1.0))


def all_families() -> list[Family]:
    """One of each."""
    return [*figures.families(Board(), 0.0), *usage.usage_families(usage.WatchedProcesses(1), [])]


def test_every_name_is_as_prometheus_wants_it() -> None:
    for family in all_families():
        assert re.fullmatch(r"beads_workers_[a-z_]+", family.name)
        assert family.name.endswith("_total") == (family.kind == "counter"), family.name
        assert family.help.endswith(".")


def test_the_page_names_every_figure_with_its_kind_and_no_other() -> None:
    rows = re.findall(r"^\| `(beads_workers_\w+)` \| (\w+) \|", PAGE.read_text(), re.MULTILINE)
    assert rows == [(family.name, family.kind) for family in all_families()]


def test_agents_are_told_by_the_state_of_their_accounts_and_by_what_they_cost() -> None:
    play = Play()
    receipt = Receipt("done", usage={"m": Tokens(1000, 20)}, money=0.5)
    records = (
        rec.AccountClosed("c", "claude", "needs_person"),
        rec.Started("a", "W1", 1, "r", agent="claude"),
        rec.Finished("a", "W1", 1, "r", "success", "finish", receipt=receipt),
    )
    for record in records:
        play.board.apply(Entry(record, BEGAN, 0.0))
    found = scraped(play)
    assert value(found, "agent_accounts", state="needs_person") == 1
    assert value(found, "agent_accounts", state="available") == 0
    assert value(found, "agent_tokens_total", kind="input") == 1000
    assert value(found, "agent_dollars_total", verdict="done") == 0.5


def test_what_lands_and_what_its_gates_cost_is_counted() -> None:
    board = Board()
    for number, record in enumerate(night()):
        board.apply(Entry(record, 1_700_000_000.0 + number, float(number)))
    told = {
        (sample.name.removeprefix("beads_workers_"), *sample.labels.values()): sample.value
        for family in read(to_text(figures.families(board, 100.0)))
        for sample in family.samples
    }
    assert (told["landed_total", "passed"], told["landed_total", "none"]) == (2, 1)
    assert (
        told["landing_refused_total", "quarantined"] == told["landing_refused_total", "mend"] == 1
    )
    assert (told["landing_conflicts_total",], told["landing_culprits_total",]) == (2, 0)
    assert (told["gate_runs_total", "green"], told["gate_runs_total", "red"]) == (2, 1)
    assert told["gate_runs_total", "kept"] == 1 and told["gate_seconds_total",] == 7.0
    assert told["gates_flaky_total",] == told["gates_running",] == 1
    assert told["gate_oldest_seconds",] == 100.0 - (len(night()) - 1)
    assert told["jobs", "unlanded"] == 1


def test_a_mistake_is_one_line_and_a_remedy(mistake: Mistake) -> None:
    mistake("metrics", "no fleet is running here", "beads-workers start", 3)
    mistake(
        "start --metrics 99999 -- true",
        "Invalid value for '--metrics': it must be a port of this machine: 9464,",
        "'beads-workers start --help'",
        2,
    )
