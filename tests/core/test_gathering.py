"""What the scheduler says of itself and of issues: ``bw.why``, as playbooks."""

from __future__ import annotations

import json
from dataclasses import asdict

from beads_workers.core.base import limits
from beads_workers.core.base.facts import Facts, IssueFacts
from beads_workers.core.base.model import Filters, IssueId
from beads_workers.core.base.plain import from_plain
from beads_workers.core.base.policy import Policy
from beads_workers.core.base.source import Result
from beads_workers.core.records.journal import Checkpointed
from beads_workers.core.requests.release import ReleaseAskedFor
from beads_workers.core.requests.why import WhyAsked
from beads_workers.core.schedule import events as ev
from beads_workers.core.schedule.commands import Answer, RoundTrip
from tests.core.playbook import Play, done, failed, job, lost, of

T = ev.Ticket(7)
A = IssueId("a")


def facts(play: Play, *issue_ids: str) -> Facts:
    """The answer, and nothing else: whoever asks why changes nothing."""
    commands = play.do(WhyAsked(T, tuple(map(IssueId, issue_ids))))
    (answer,) = of(commands, Answer)
    assert [c for c in commands if not isinstance(c, Answer | RoundTrip)] == []
    assert answer.ticket == T and answer.facts is not None
    return answer.facts


def about(play: Play, issue_id: str = "a") -> IssueFacts:
    """What is said of one issue."""
    (only,) = facts(play, issue_id).issues
    return only


def test_an_unknown_issue_has_no_facts_but_its_id() -> None:
    assert about(Play(), "x") == IssueFacts("x")


def test_what_runs_is_with_its_worker_since_so_long() -> None:
    play = Play()
    play.working("a")
    play.now += 12.0
    found = about(play)
    assert (found.in_flight, found.worker_id, found.attempt) == ("running", "W1", 1)
    assert found.running_seconds == 12.0


def test_what_is_claimed_has_its_place_in_the_queue() -> None:
    play = Play(workers=3)
    play.answer(job("a", 3), job("b", 0), job("c", 1))
    assert [about(play, each).position for each in ("b", "c", "a")] == [1, 2, 3]
    assert facts(play).unsent == 3
    play.own(1)
    assert [about(play, each).position for each in ("b", "c", "a")] == [0, 1, 2]


def test_a_lost_worker_is_named_until_it_is_known_to_be_dead() -> None:
    play = Play()
    play.working("a")
    play.do(lost(1))
    found = about(play)
    assert (found.in_flight, found.worker_id, found.owner_pid) == ("orphaned", "W1", 901)


def test_a_failed_issue_cools_down_with_its_error_and_next_attempt() -> None:
    play = Play()
    play.working("a")
    play.do(failed(1, "a", "boom"))
    play.answer()
    found = about(play)
    assert (found.in_flight, found.standing, found.attempt, found.charged) == ("", "cooling", 2, 1)
    assert found.error == "boom"
    assert found.again_seconds is not None
    assert 0 < found.again_seconds <= limits.RETRY_DELAY_SECONDS


def test_a_quarantined_issue_says_after_how_many_attempts() -> None:
    play = Play(policy=Policy(attempts_max=1))
    play.working("a")
    play.do(failed(1, "a", "boom"))
    assert (about(play).in_flight, about(play).pending) == ("quarantining", "quarantined")
    play.answer()
    found = about(play)
    assert (found.in_flight, found.standing, found.charged, found.error) == (
        "",
        "quarantined",
        1,
        "boom",
    )


def test_a_close_that_is_refused_is_counted() -> None:
    play = Play()
    play.working("a")
    play.do(done(1, "a"))
    play.answer(results={"a": Result.FAILED})
    found = about(play)
    assert (found.in_flight, found.pending, found.pending_tries) == ("closing", "close", 1)


def test_a_person_s_release_is_remembered() -> None:
    play = Play(checkpointed=[Checkpointed("a", charged=1, not_before=1_700_000_060.0)])
    assert about(play).standing == "cooling"
    play.do(ReleaseAskedFor(T, (A,)))
    assert about(play).standing == "on_hold"


def test_without_ids_all_that_is_in_flight_or_remembered_is_told() -> None:
    play = Play(
        checkpointed=[
            Checkpointed("x", charged=3, quarantined=True),
            Checkpointed("y", claimed_by="actor"),
        ]
    )
    play.quiet()
    play.working("a")
    assert {each.issue_id for each in facts(play).issues} == {"a", "x", "y"}


def test_the_fleet_tells_its_state_its_filters_and_when_it_looks_again() -> None:
    play = Play(filters=Filters(labels=("x",)), issues_max=9)
    play.working("a")
    play.connect(2)
    found = facts(play, "a")
    assert (found.state, found.run_id, found.source) == ("running", "run-1", "memory")
    assert (found.filters, found.issues_max) == (Filters(labels=("x",)), 9)
    assert (found.slots, found.busy, found.trouble) == (1, 1, None)
    play.do(ev.PauseAsked(T))
    assert facts(play, "a").state == "paused"


def test_an_idle_fleet_says_when_the_tracker_is_asked_again() -> None:
    play = Play()
    play.join(1)
    play.quiet()
    assert facts(play).look_seconds == limits.POLL_SECONDS


def test_a_failing_tracker_is_told_with_its_error_and_the_next_try() -> None:
    play = Play()
    play.join(1)
    play.answer(take_error="locked", hint="wait")
    play.wait(1.5)
    trouble = facts(play).trouble
    assert trouble is not None
    assert (trouble.error, trouble.hint, trouble.failures) == ("locked", "wait", 1)
    play.answer(take_error="locked")
    trouble = facts(play).trouble
    assert trouble is not None
    assert (trouble.failures, trouble.since_seconds, trouble.again_seconds) == (2, 1.5, 2.0)
    play.wait(2.0)
    play.answer()
    assert facts(play).trouble is None


def test_facts_survive_their_journey_as_json() -> None:
    play = Play(filters=Filters(labels=("x",), priorities=(0, 1)))
    play.working("a")
    play.do(failed(1, "a", "boom"))
    play.answer(settle_error="locked")
    found = facts(play)
    travelled = json.loads(json.dumps(asdict(found) | {"new": 1}))
    assert from_plain(Facts, travelled) == found
