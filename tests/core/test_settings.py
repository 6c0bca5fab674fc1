"""Settings survive their way through JSON to another process."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from beads_workers.core.model import Filters
from beads_workers.core.plain import from_plain, to_plain
from beads_workers.core.policy import Policy
from beads_workers.core.scripts import Context, LogRoot, ResourceLimits
from beads_workers.core.settings import (
    Agent,
    FleetSettings,
    Work,
    WorkerSettings,
    Worktrees,
)

TEXT = st.text(max_size=20)
WORDS = st.lists(TEXT, max_size=4).map(tuple)
SECONDS = st.floats(0, 1e6)
AGENTS = st.builds(Agent, name=TEXT, argv=WORDS, prompt=TEXT)
WORKTREES = st.builds(
    Worktrees,
    **dict.fromkeys(("checkout", "prefix", "common", "folder", "state_directory", "base"), TEXT),
    base_name=TEXT,
    setup=st.none() | TEXT,
    copy=WORDS,
    disk_floor_bytes=st.integers(0, 1 << 62),
    beads=st.none() | TEXT,
    pool=st.integers(0, 64),
    setup_reads=WORDS,
)
COUNTS = st.none() | st.integers(1, 1 << 40)
CONTEXTS = st.builds(
    Context,
    name=TEXT,
    command=WORDS,
    sandbox=WORDS,
    validator=WORDS,
    limits=st.builds(ResourceLimits, COUNTS, COUNTS, COUNTS),
    script_bytes_max=st.integers(1, 1 << 40),
)
WORKS = st.builds(
    Work,
    command=st.none() | WORDS,
    agents=st.lists(AGENTS, max_size=3).map(tuple),
    review=st.none() | AGENTS,
    verify=st.none() | TEXT,
    timeout_seconds=st.none() | SECONDS,
    term_grace_seconds=SECONDS,
    bd_argv=st.none() | WORDS,
    worktrees=st.none() | WORKTREES,
    contexts=st.lists(CONTEXTS, max_size=2).map(tuple),
    hidden_variables=WORDS,
    log_root=st.none() | st.builds(LogRoot, TEXT),
)
FILTERS = st.builds(
    Filters,
    labels=WORDS,
    labels_any=WORDS,
    exclude_labels=WORDS,
    types=WORDS,
    priorities=st.lists(st.integers(0, 4)).map(tuple),
    parent=st.none() | TEXT,
    only=WORDS,
)
FLEETS = st.builds(
    FleetSettings,
    workers=st.integers(0, 1000),
    source=TEXT,
    tracker=TEXT,
    project=TEXT,
    state_directory=TEXT,
    work=WORKS,
    filters=FILTERS,
    policy=st.builds(Policy, attempts_max=st.integers(1, 9), retry_delay_seconds=SECONDS),
    until_empty=st.booleans(),
    issues_max=st.none() | st.integers(1, 9),
)
WORKERS = st.builds(
    WorkerSettings,
    worker_id=TEXT,
    socket_path=TEXT,
    orchestrator_pid=st.integers(1, 99999),
    project=TEXT,
    run_id=TEXT,
    run_directory=TEXT,
    actor=TEXT,
    work=WORKS,
)


def over_the_wire(settings: FleetSettings | WorkerSettings | Work) -> dict[str, Any]:
    """What the other process gets: written as JSON text and read again."""
    fields: dict[str, Any] = json.loads(json.dumps(to_plain(settings)))
    return fields


@given(work=WORKS)
def test_work_comes_back_as_it_was(work: Work) -> None:
    assert from_plain(Work, over_the_wire(work)) == work


@given(fleet=FLEETS)
def test_a_fleet_comes_back_as_it_was(fleet: FleetSettings) -> None:
    assert from_plain(FleetSettings, over_the_wire(fleet)) == fleet


@given(worker=WORKERS)
def test_a_worker_comes_back_as_it_was(worker: WorkerSettings) -> None:
    assert from_plain(WorkerSettings, over_the_wire(worker)) == worker


def test_what_comes_back_can_be_hashed_so_no_list_is_left_in_it() -> None:
    fleet = FleetSettings(
        workers=2,
        source="bd",
        tracker=".beads",
        project="/p",
        state_directory="/p/.beads-workers",
        work=Work(
            command=("a",),
            agents=(Agent("x", ("x", "-p"), "do {id}", prices={"m": (1.0, 2.0)}),),
            bd_argv=("bd",),
        ),
        filters=Filters(labels=("a",), only=("b",), priorities=(0, 1)),
    )
    assert hash(from_plain(FleetSettings, over_the_wire(fleet))) == hash(fleet)


def test_no_command_and_an_empty_command_stay_different() -> None:
    assert from_plain(Work, over_the_wire(Work(command=None))).command is None
    assert from_plain(Work, over_the_wire(Work(command=()))).command == ()
