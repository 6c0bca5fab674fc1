"""The source: what is over is on file before anybody hears of it, and comes back never."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from beads_workers.core.base.model import Call, IssueId, Outcome, OutcomeKind
from beads_workers.core.base.source import Action, CrashedRun, Settlement
from beads_workers.integrations.dispatcherd.queue import TaskQueue
from beads_workers.integrations.dispatcherd.source import TIMEOUT_SECONDS_MIN, DispatcherdSource
from beads_workers.integrations.dispatcherd.spool import read_spool
from beads_workers.integrations.dispatcherd.wire import TaskCall

A, B, C = (IssueId(name) for name in "abc")
DONE = Outcome(OutcomeKind.SUCCESS)
FAILED = Outcome(OutcomeKind.ERROR, "no")
CANCELLED = Outcome(OutcomeKind.CANCELLED, "the fleet ends")


class Place:
    """A spool, and sources on it, one after the other."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "spool.jsonl"
        self.now = 0.0

    def source(self, **options: Any) -> DispatcherdSource:
        options = {"calls_functions": True, **options}
        source = DispatcherdSource(
            TaskQueue(),
            self.path,
            actor="us",
            place="here",
            clock=lambda: self.now,
            wall_clock=lambda: 1000.0 + self.now,
            **options,
        )
        source.open()
        return source

    def left(self) -> list[str]:
        return [e.issue_id for e in read_spool(self.path.read_bytes()).entries.values()]


def send(source: DispatcherdSource, *uuids: str, **fields: Any) -> None:
    made = [source.queue.make(TaskCall("a.b", uuid=u, **fields), "ch", 1000.0, 1) for u in uuids]
    assert source.spool is not None
    source.spool.append(made)
    for entry in made:
        source.queue.enter(entry, 0.0, 1000.0)


def taken(source: DispatcherdSource, limit: int = 9) -> list[str]:
    return [job.issue_id for job in source.take(limit, ()).jobs]


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_a_task_is_a_call_with_its_message(place: Place) -> None:
    source = place.source()
    send(source, "a", args=(1,), kwargs={"b": 2}, timeout=3.0)
    (job,) = source.take(9, ()).jobs
    rest = {"uuid": "a", "timeout": 3.0, "channel": "ch"}
    assert (job.call, job.timeout_seconds) == (Call("a.b", (1,), {"b": 2}, rest), 3.0)
    assert job.original == {
        "uuid": "a",
        "task": "a.b",
        "args": [1],
        "kwargs": {"b": 2},
        "timeout": 3.0,
        "channel": "ch",
    }


def test_a_negative_timeout_is_over_at_once(place: Place) -> None:
    source = place.source()
    send(source, "a", timeout=-5.0)
    (job,) = source.take(9, ()).jobs
    assert job.timeout_seconds == TIMEOUT_SECONDS_MIN and job.original["timeout"] == -5.0


def test_for_a_command_the_message_is_an_issue(place: Place) -> None:
    source = place.source(calls_functions=False)
    send(source, "a", args=(1,))
    (job,) = source.take(9, ()).jobs
    assert job.call is None and job.named is not None
    assert (job.named.path, job.named.args) == ("a.b", (1,))
    assert (job.original["id"], job.original["title"]) == ("a", "a.b")


def test_it_says_how_many_wait_exactly_where_it_matters(place: Place) -> None:
    source = place.source()
    assert source.take(1, ()).waiting == 0
    send(source, "a", "b", "c")
    send(source, "d", delay=5.0)
    first = source.take(1, ())
    assert (first.waiting, first.later) == (2, 1)
    assert source.take(1, ()).waiting == 2, "for now"
    place.now += 1.0
    assert source.take(0, ()).waiting == 1
    assert source.take(9, ()).waiting == 0


@pytest.mark.parametrize(
    ("settlement", "left"),
    [
        (Settlement(Action.CLOSE, A, outcome=DONE), []),
        (Settlement(Action.RELEASE, A, outcome=FAILED), []),
        (Settlement(Action.RELEASE, A, outcome=CANCELLED), []),
        (Settlement(Action.RELEASE, A), ["a"]),
    ],
)
def test_how_it_ended_is_on_file_when_it_is_settled(
    place: Place, settlement: Settlement, left: list[str]
) -> None:
    source = place.source()
    send(source, "a")
    taken(source)
    source.settle([settlement])
    assert place.left() == left
    assert taken(source) == left


def test_what_a_stop_interrupts_is_kept_only_where_another_try_is_allowed(place: Place) -> None:
    for again in (False, True):
        source = place.source(retries_interrupted=again)
        send(source, "a")
        taken(source)
        source.is_ending = True
        source.settle([Settlement(Action.RELEASE, A, outcome=CANCELLED)])
        assert place.left() == (["a"] if again else [])


def test_a_start_takes_up_what_was_left_but_for_what_had_ended_or_begun(place: Place) -> None:
    dead = place.source()
    send(dead, "done", "failed", "begun", "queued")
    living = place.source()
    assert "4 tasks left by an earlier run" in living.describe()
    answers = living.recover(
        CrashedRun(
            "dead",
            unclosed=(IssueId("done"), IssueId("long gone")),
            handed_back=(IssueId("failed"),),
            begun=(IssueId("begun"), IssueId("forgotten")),
        )
    )
    assert {a.settlement.action for a in answers} == {Action.CLOSE}
    assert taken(living) == ["queued"]
    assert len(living.troubles) == 1 and living.troubles[0].startswith("begun: ")
    living.note_over()
    assert place.left() == ["queued"]


def test_where_another_try_is_allowed_what_had_begun_runs_again(place: Place) -> None:
    send(place.source(retries_interrupted=True), "a", "b")
    living = place.source(retries_interrupted=True)
    (answer,) = living.recover(CrashedRun("dead", begun=(A,)))
    assert answer.settlement.action is Action.RELEASE
    assert (taken(living), living.troubles) == (["a", "b"], [])


def test_what_comes_during_the_recovery_is_not_mistaken_for_what_was_left(place: Place) -> None:
    living = place.source()
    send(living, "a")
    living.recover(CrashedRun("dead", unclosed=(A,), begun=(B,)))
    send(living, "b")
    assert taken(living) == ["a", "b"]


def test_whoever_only_looks_sees_what_waits_and_touches_nothing(place: Place) -> None:
    send(place.source(), "a", "b")
    send(place.source(), "c", delay=50.0)
    before = place.path.read_bytes()
    looking = DispatcherdSource(
        TaskQueue(),
        place.path,
        actor="us",
        place="here",
        calls_functions=True,
        wall_clock=lambda: 1000.0,
    )
    found = looking.take(0, ())
    assert [row.issue_id for row in found.listed] == ["a", "b"]
    assert (found.jobs, found.blocked) == ((), 1)
    looking.sync()
    looking.close()
    assert place.path.read_bytes() == before


def test_whoever_looks_sees_why_each_waits(place: Place) -> None:
    source = place.source()
    send(source, "a", "b", on_duplicate="serial")
    send(source, "c", delay=50.0)
    looking = DispatcherdSource(
        TaskQueue(),
        place.path,
        actor="us",
        place="here",
        calls_functions=True,
        wall_clock=lambda: 1000.0,
    )
    first, second, third = looking.unfinished(9)
    assert (first.issue_id, first.status, first.waits_for) == ("a", "open", ())
    assert (second.issue_id, second.waits_for) == ("b", ("a",))
    assert third.deferred_until == "1970-01-01T00:17:30Z"
    assert looking.ready() == {"a"}
    assert looking.look([B, IssueId("strange")]) == {"b": second}


def test_whoever_only_looks_makes_no_file(place: Place) -> None:
    looking = DispatcherdSource(
        TaskQueue(), place.path, actor="us", place="here", calls_functions=True
    )
    assert looking.take(0, ()).listed == ()
    assert not place.path.exists()


def test_a_damaged_file_is_told(place: Place) -> None:
    place.path.write_bytes(b"nonsense\n")
    assert "1 lines of" in place.source().troubles[0]
