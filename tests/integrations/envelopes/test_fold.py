"""Jobs as envelopes: one for every transition, along the allowed ways, to the run's own account."""

from __future__ import annotations

import json
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import pytest

from beads_workers.core.base import limits
from beads_workers.core.base.model import Arguments, Call, IssueId, OutcomeKind
from beads_workers.core.base.policy import Policy
from beads_workers.core.base.source import PAST_DEADLINE, Result
from beads_workers.core.records import journal as rec
from beads_workers.core.records.journal import Entry, decode, encode
from beads_workers.core.requests.release import ReleaseAskedFor
from beads_workers.core.requests.retry import RetryAskedFor
from beads_workers.core.schedule import events as ev
from beads_workers.core.schedule.events import Ticket
from beads_workers.integrations.envelopes.fold import Envelopes, call_path, envelope, job_path
from beads_workers.integrations.envelopes.wire import Envelope, JobState, from_fields, to_fields
from tests.core.playbook import EPOCH, Play, cancelled, done, failed, job, lost, ready
from tests.simulation.mutants import Mutant
from tests.simulation.world import Options, World
from tests.support.journals import night

PUT = EPOCH - 100.75
"""When the job was put into its source: not a whole second."""

HELLO = Call("jobs.mail.hello", ("you",), {"loud": True})

WAYS = {
    ("enqueued", "running"),
    ("running", "done"),
    ("running", "error"),
    ("running", "enqueued"),
    ("enqueued", "enqueued"),  # Another attempt number, or another time for it.
    ("enqueued", "error"),  # A person released it.
    ("error", "enqueued"),  # A person asked for another try.
    ("enqueued", "done"),  # Somebody else closed it.
    ("error", "done"),
    ("done", "enqueued"),  # Somebody opened it again.
}


def envelopes_of(entries: Iterable[Entry]) -> list[Envelope]:
    """Every envelope, from the journal as it is read back."""
    fold = Envelopes()
    read = (decode(encode(entry)) for entry in entries)
    return [e for entry in read if entry and (e := fold.apply(entry)) is not None]


def states(entries: Iterable[Entry]) -> list[str]:
    return [each.state.value for each in envelopes_of(entries)]


def working(call: Call | None = HELLO, **others: Any) -> Play:
    """Worker 1 has issue a."""
    play = Play(**others)
    play.join(1)
    play.answer(job("a", call=call, enqueued_at=PUT))
    return play


def test_a_call_is_enqueued_running_and_done_with_what_it_returned() -> None:
    play = working()
    play.wait(3.9)
    play.do(done(1, "a", result={"sent": 1}))
    play.answer()
    before, at_work, over = envelopes_of(play.entries)
    assert to_fields(before) == {
        "job_id": "a",
        "job_path": "jobs.mail.hello",
        "args": ["you"],
        "kwargs": {"loud": True},
        "state": "enqueued",
        "ts_enqueued": int(EPOCH) - 101,
    }
    running = to_fields(before) | {"state": "running", "ts_started": int(EPOCH), "attempt": 1}
    assert to_fields(at_work) == running
    assert to_fields(over) == running | {
        "state": "done",
        "ts_finished": int(EPOCH) + 3,
        "result": {"sent": 1},
    }


def test_an_issue_that_names_no_function_is_a_beads_issue() -> None:
    assert {e.job_path for e in envelopes_of(working(None).entries)} == {"beads.issue"}


@pytest.mark.parametrize(
    ("call", "path"), [("jobs.mail.hello", "jobs.mail.hello"), ("web#render", "rrq.web.render")]
)
def test_the_path_of_a_call_leads_back_to_it(call: str, path: str) -> None:
    assert job_path(call) == path
    assert call_path(path) == call


def test_a_job_of_a_queue_is_an_envelope_before_anybody_has_it() -> None:
    waiting = envelope(Call("web#render", (1,)), "a", PUT)
    assert waiting == Envelope("a", "rrq.web.render", JobState.ENQUEUED, int(EPOCH) - 101, (1,))
    assert envelope(None, "a", PUT, "hero").job_path == "hero.script"


def test_a_retry_goes_back_to_enqueued_with_its_number_and_its_time() -> None:
    play = working()
    play.do(failed(1, "a", "boom"))
    back = envelopes_of(play.entries)[-1]
    assert (back.state, back.attempt, back.error) == (JobState.ENQUEUED, 2, None)
    assert back.ts_started is None and back.ts_finished is None
    assert back.next_retry_at is not None and 0 < back.next_retry_at - EPOCH <= 10
    play.answer()
    play.do(ready(1))
    while play.round_trip is None or "a" in play.round_trip.skip:
        play.quiet()
        play.wait(1)
    play.answer(job("a", call=HELLO, enqueued_at=PUT))
    play.do(ready(1))
    assert states(play.entries) == ["enqueued", "running", "enqueued", "running"]
    again = envelopes_of(play.entries)[-1]
    assert (again.attempt, again.next_retry_at) == (2, None)


@pytest.mark.parametrize(
    ("message", "reason", "error"),
    [
        (failed(1, "a", "boom"), None, "boom"),
        (failed(1, "a", "too long", outcome=OutcomeKind.TIMEOUT), "timeout", "too long"),
        (failed(1, "a", "no such thing", outcome=OutcomeKind.NOT_FOUND), "not_found", "no such"),
    ],
)
def test_what_is_quarantined_is_an_error_with_its_reason(
    message: ev.Received, reason: str | None, error: str
) -> None:
    play = working(policy=Policy(attempts_max=1))
    play.wait(2)
    play.do(message)
    last = envelopes_of(play.entries)[-1]
    assert (last.state, last.reason) == (JobState.ERROR, reason)
    assert last.error is not None and last.error.startswith(error)
    assert (last.ts_started, last.ts_finished) == (int(EPOCH), int(EPOCH) + 2)


def test_a_worker_that_dies_is_lost() -> None:
    play = Play(1, policy=Policy(attempts_max=1))
    play.own(1)
    play.answer(job("a", enqueued_at=PUT))
    play.do(lost(1))
    play.reap(1, 137)
    last = envelopes_of(play.entries)[-1]
    assert (last.state, last.reason, last.attempt) == (JobState.ERROR, "lost", 1)


def test_what_a_person_takes_away_is_cancelled_and_a_retry_enqueues_it() -> None:
    play = working()
    play.do(ReleaseAskedFor(Ticket(1), (IssueId("a"),)))
    play.do(cancelled(1, "a"))
    play.answer()
    assert states(play.entries) == ["enqueued", "running", "enqueued", "error"]
    last = envelopes_of(play.entries)[-1]
    assert (last.reason, last.error) == ("cancelled", "released by a person")
    play.do(RetryAskedFor(Ticket(2), (IssueId("a"),)))
    assert states(play.entries)[-1] == "enqueued"


def test_what_a_stop_requeues_waits_with_the_same_number() -> None:
    play = working()
    play.do(ev.StopAsked())
    play.do(cancelled(1, "a"))
    last = envelopes_of(play.entries)[-1]
    assert (last.state, last.attempt, last.next_retry_at) == (JobState.ENQUEUED, 1, None)


def test_what_somebody_else_closed_is_done_and_what_is_not_ours_is_forgotten() -> None:
    play = working()
    play.do(failed(1, "a"))
    play.answer(results={"a": Result.FOUND_CLOSED})
    assert states(play.entries)[-1] == "done"
    play = working()
    play.do(failed(1, "a"))
    play.answer(results={"a": Result.NOT_OURS})
    fold = Envelopes()
    for entry in play.entries:
        fold.apply(entry)
    assert not fold.jobs


def test_what_earlier_runs_left_is_known_with_its_call() -> None:
    arguments = Arguments(("you",))
    cooling = rec.Checkpointed(
        "a", "t", 1, not_before=EPOCH + 9.5, path="m.f", arguments=arguments, enqueued_at=PUT
    )
    quarantined = rec.Checkpointed("b", "t", 3, quarantined=True, error="boom", outcome="timeout")
    pending = rec.Checkpointed("c", claimed_by="actor/run-0")
    waits, failed_before = envelopes_of(Play(checkpointed=[cooling, quarantined, pending]).entries)
    assert (waits.state, waits.attempt, waits.next_retry_at) == (JobState.ENQUEUED, 2, EPOCH + 9)
    assert (waits.job_path, waits.args, waits.ts_enqueued) == ("m.f", ("you",), int(EPOCH) - 101)
    assert (failed_before.state, failed_before.error) == (JobState.ERROR, "boom")
    assert (failed_before.attempt, failed_before.reason) == (3, "timeout")


def test_arguments_that_are_too_long_are_named_instead() -> None:
    long = "x" * limits.ARGUMENTS_CHARS_MAX
    for args, kwargs, kept in (
        ((long,), {}, ((), {}, ("args",))),
        ((long,), {"a": 1}, ((), {"a": 1}, ("args",))),
        ((1,), {"a": long}, ((1,), {}, ("kwargs",))),
        ((long,), {"a": long}, ((), {}, ("args", "kwargs"))),
    ):
        play = working(Call("m.f", args, kwargs))
        play.do(done(1, "a"))
        for each in envelopes_of(play.entries):
            assert (each.args, each.kwargs, each.omitted) == kept
    assert max(len(encode(entry)) for entry in play.entries) < 1000


def test_a_long_result_is_where_its_file_says() -> None:
    play = working()
    play.do(done(1, "a", result_file="/run/results/a.1.json"))
    assert to_fields(envelopes_of(play.entries)[-1])["result_file"] == "/run/results/a.1.json"


def test_a_note_that_a_function_returns_is_its_result() -> None:
    play = working()
    play.do(done(1, "a", result={"note": "merged"}))
    assert envelopes_of(play.entries)[-1].result == {"note": "merged"}


def sent(*records: rec.Record) -> list[Envelope]:
    """Of a job that another orchestrator has sent to us."""
    run = rec.RunStarted("run-1", 1, "actor/run-1", "rrq", "/project")
    claimed = rec.Claimed("a", "render", 2, "default#render", Arguments((1,)), PUT)
    return envelopes_of(
        Entry(record, EPOCH + n, n) for n, record in enumerate((run, claimed, *records))
    )


@pytest.mark.parametrize(
    ("outcome", "state", "reason"),
    [
        ("error", JobState.ERROR, None),
        ("timeout", JobState.ERROR, "timeout"),
        ("cancelled", JobState.ERROR, "cancelled"),
        ("retry", JobState.ENQUEUED, None),
    ],
)
def test_what_is_handed_back_to_its_sender_is_over_for_us_unless_it_is_a_retry(
    outcome: str, state: JobState, reason: str | None
) -> None:
    ended = rec.Finished("a", "W1", 2, "r", outcome, "hand_back", "boom")
    requeued = rec.SettledRecord("a", "release", "applied")
    *_, last = sent(rec.Started("a", "W1", 2, "r"), ended, requeued)
    assert (last.job_path, last.state, last.reason) == ("rrq.default.render", state, reason)


def test_what_its_sender_takes_back_before_it_is_begun_is_cancelled() -> None:
    *_, last = sent(rec.SettledRecord("a", "release", "applied"))
    assert (last.state, last.reason, last.ts_started) == (JobState.ERROR, "cancelled", None)


def test_one_whose_deadline_passed_before_it_began_has_timed_out() -> None:
    *_, last = sent(rec.SettledRecord("a", "release", "applied", PAST_DEADLINE))
    assert (last.state, last.reason, last.error) == (JobState.ERROR, "timeout", PAST_DEADLINE)


def test_one_that_ran_when_its_deadline_passed_has_timed_out() -> None:
    ended = rec.Finished("a", "W1", 2, "r", "cancelled", "hand_back", "cancelled")
    past = rec.SettledRecord("a", "release", "applied", PAST_DEADLINE)
    *_, last = sent(rec.Started("a", "W1", 2, "r"), ended, past)
    assert (last.state, last.reason, last.error) == (JobState.ERROR, "timeout", PAST_DEADLINE)
    assert last.ts_started is not None


def test_done_ones_need_not_be_remembered() -> None:
    play = working()
    play.do(done(1, "a"))
    fold = Envelopes(keep_done=False)
    last = [e for entry in play.entries if (e := fold.apply(entry)) is not None][-1]
    assert last.state is JobState.DONE and not fold.jobs


@pytest.mark.parametrize("line", ['["a"]', "[1,2]", "no JSON", "[[], {}, 1]", "null", "[" * 9999])
def test_damaged_arguments_are_omitted_ones(line: str) -> None:
    row = {"v": 1, "e": "claimed", "t": EPOCH, "m": 0.0, "issue_id": "a", "arguments": line}
    claimed = decode(json.dumps(row).encode())
    assert claimed is not None
    finished = Entry(rec.Finished("a", "W1", 1, "r", "success", "finish", result="{"), EPOCH, 0.0)
    first, last = envelopes_of([claimed, finished])
    assert first.omitted == ("args", "kwargs")
    assert last.omitted == ("args", "kwargs") and last.result is None


def _hold(runs: Iterable[Iterable[Entry]]) -> tuple[int, dict[str, Envelope]]:
    """What holds for every journal; returns how many envelopes there were, and the last ones."""
    count = 0
    fold = Envelopes()
    seen: dict[str, list[Envelope]] = {}
    for run in runs:
        for entry in run:
            changed = fold.apply(entry)
            if isinstance(entry.record, rec.SettledRecord) and entry.record.result == "not_ours":
                seen.pop(entry.record.issue_id, None)  # Should it become ours again, it is new.
            if changed is None:
                continue
            count += 1
            assert from_fields(json.loads(json.dumps(to_fields(changed)))) == changed
            seen.setdefault(changed.job_id, []).append(changed)
            assert fold.jobs[changed.job_id] == changed
    for envelopes in seen.values():
        for before, after in pairwise(envelopes):
            assert (before.state.value, after.state.value) in WAYS, (before, after)
            assert before.ts_enqueued == after.ts_enqueued
    return count, fold.jobs


def test_a_night_with_everything_that_goes_wrong_is_told_in_envelopes() -> None:
    script = night(300, 8)
    assert _hold([sorted(script.entries, key=lambda e: e.elapsed)])[0] > 800


@pytest.mark.parametrize("seed", range(3))
def test_whatever_goes_wrong_every_job_moves_along_the_allowed_ways(seed: int) -> None:
    world = World(Options(seed), Mutant())
    assert not world.run().violation
    envelopes_of = world.check.accounts.told
    count, jobs = _hold([e for _, e in envelopes_of[run_id]] for run_id in sorted(envelopes_of))
    assert count > 50
    shown = {i for i, e in jobs.items() if e.state is JobState.ERROR and e.reason != "cancelled"}
    accounts = world.check.accounts
    assert shown == {issue_id for issue_id in jobs if accounts.is_quarantined(issue_id)}
    assert all(jobs[i].state is JobState.DONE for i in jobs if accounts.is_unclosed(i))


def test_what_was_done_by_word_that_its_worker_left_is_done_once_it_is_closed() -> None:
    play = working()
    heard = rec.Checkpointed("a", claimed_by="actor/run-1")
    later = [*play.entries, *Play(recovering=True).entries]
    at = later[-1].at
    later += [Entry(heard, at, 1.0), Entry(rec.SettledRecord("a", "close", "applied"), at, 1.0)]
    assert states(later)[-2:] == ["running", "done"]
