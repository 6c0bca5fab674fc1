"""Workers that are not ours, lost and living on: docs/SEMANTICS.md, "Connection loss"."""

from __future__ import annotations

from dataclasses import replace

import pytest

from beads_workers.core.base import limits
from beads_workers.core.base.model import IssueId
from beads_workers.core.base.source import Action
from beads_workers.core.records import journal as rec
from beads_workers.core.requests.release import ReleaseAskedFor
from beads_workers.core.requests.retry import RetryAskedFor
from beads_workers.core.schedule import events as ev
from beads_workers.core.schedule.commands import Answer, Command, End, WatchOwner
from beads_workers.core.schedule.events import ConnId, Ticket
from beads_workers.core.views.recovery import recovery_state
from tests.core import playbook

GRACE = limits.ORPHAN_GRACE_SECONDS
INHERITED = rec.Inherited("a", "run-0", "W7", 907, 77, "title of a", 1)


def ended(commands: list[Command]) -> list[str]:
    """The outcomes of the attempts that ended."""
    return [finished.outcome for finished in playbook.records(commands, rec.Finished)]


def inheriting(*inherited: rec.Inherited, **others: object) -> playbook.Play:
    """A run that has found these with the workers of an earlier one."""
    play = playbook.Play(recovering=True, **others)  # type: ignore[arg-type]
    play.do(ev.RecoveryEnded(inherited=inherited or (INHERITED,)))
    return play


def of_one_process(*connections: int, pid: int = 950) -> playbook.Play:
    """So many connections of one process, each with an issue: i1, i2..."""
    play = playbook.Play()
    for number in connections:
        play.connect(number, pid=pid)
        play.do(playbook.ready(number))
        assert playbook.task_of(play.answer(f"i{number}"), number)
    return play


# --- the grace ------------------------------------------------------------------------------------


def test_a_process_that_lives_on_keeps_its_issue_for_the_grace_and_no_longer() -> None:
    play = playbook.Play()
    play.working("a")
    (owner_lost,) = playbook.records(play.do(playbook.lost(1)), rec.OwnerLost)
    assert owner_lost == rec.OwnerLost("a", "W1", 901, grace_seconds=GRACE)
    assert ended(play.wait(GRACE - 0.1)) == []
    (finished,) = playbook.records(play.wait(0.2), rec.Finished)
    assert (finished.outcome, finished.charged) == ("lost", 1)
    assert "lives on" in finished.error
    play.quiet()
    assert playbook.records(play.do(ev.OwnerGone(901)), rec.Finished) == [], "it is over"


def test_a_death_within_the_grace_ends_it_at_once_and_once() -> None:
    play = playbook.Play()
    play.working("a")
    play.do(playbook.lost(1))
    assert ended(play.do(ev.OwnerGone(901))) == ["lost"]
    assert ended(play.wait(2 * GRACE)) == []


def test_our_own_worker_has_no_grace_but_its_death() -> None:
    play = playbook.Play(1)
    play.own(1)
    play.answer("a")
    (owner_lost,) = playbook.records(play.do(playbook.lost(1)), rec.OwnerLost)
    assert (owner_lost.grace_seconds, owner_lost.several) == (0.0, False)
    assert ended(play.wait(3600.0)) == []


@pytest.mark.parametrize("event", [ReleaseAskedFor, RetryAskedFor])
def test_a_person_gives_it_back_knowingly(
    event: type[ReleaseAskedFor] | type[RetryAskedFor],
) -> None:
    play = playbook.Play(orphan_grace_seconds=None)
    play.working("a")
    play.do(playbook.lost(1))
    play.quiet()
    commands = play.do(event(Ticket(1), (IssueId("a"),)))
    (answer,) = playbook.of(commands, Answer)
    assert "a" in answer.text and not answer.error
    assert ended(commands) == ["cancelled"]
    assert bool(playbook.records(commands, rec.PutOnHold)) is (event is ReleaseAskedFor)
    assert play.pending() == [(Action.RELEASE, "a")]
    assert play.settlement().read_first


def test_nobody_gives_back_what_a_living_worker_of_ours_has_lost() -> None:
    play = playbook.Play(1)
    play.own(1)
    play.answer("a")
    play.do(playbook.lost(1))
    commands = play.do(ReleaseAskedFor(Ticket(1), (IssueId("a"),)))
    assert playbook.of(commands, Answer)[0].not_found and ended(commands) == []


# --- several connections of one process -----------------------------------------------------------


def test_a_ready_of_one_connection_says_nothing_of_what_another_lost() -> None:
    play = of_one_process(1, 2, 3)
    (owner_lost,) = playbook.records(play.do(playbook.lost(1)), rec.OwnerLost)
    assert owner_lost.several
    play.connect(4, pid=950)
    assert ended(play.do(playbook.ready(4))) == [], "which of them it is, nobody can tell"
    assert ended(play.wait(GRACE + 0.1)) == ["lost"]


def test_nor_where_all_of_them_were_lost() -> None:
    play = of_one_process(1, 2, 3)
    play.do(playbook.lost(1), playbook.lost(2), playbook.lost(3))
    play.connect(4, pid=950)
    assert ended(play.do(playbook.ready(4))) == []
    assert ended(play.do(ev.OwnerGone(950))) == ["lost", "lost", "lost"]


def test_a_process_that_only_tries_another_connection_has_one() -> None:
    play = playbook.Play()
    play.working("a")
    play.connect(2, pid=901)  # The end of the first one is heard after that.
    play.do(playbook.lost(1))
    assert ended(play.do(playbook.ready(2))) == ["lost"]


def test_slots_of_our_own_process_end_each_by_itself() -> None:
    play = playbook.Play(1)
    play.do(ev.WorkerSpawned("W1", 101))
    for number, called in ((1, "W1"), (2, "W1.2")):
        play.connect(number, pid=101)
        play.do(playbook.ready(number, called=called))
        play.answer(f"i{number}")
    assert ended(play.do(playbook.lost(2))) == []
    assert ended(play.do(playbook.done(1, "i1"))) == ["success"]
    assert ended(play.reap(1, 137)) == ["lost"]


# --- a stop ---------------------------------------------------------------------------------------


def stopped(seconds: float = 2.0) -> tuple[playbook.Play, list[Command]]:
    """Worker 1 was told to stop, has not left in time, and was hung up on."""
    play = playbook.Play()
    play.working("a")
    play.do(ev.StopAsked(seconds=seconds))
    play.wait(seconds)
    commands = play.do(ev.Disconnected(ConnId(1), "did not leave in time"))
    play.quiet()
    return play, commands


def test_who_does_not_leave_is_named_and_keeps_its_issue() -> None:
    play, commands = stopped()
    assert playbook.records(commands, rec.OwnerLost)[0].told_to_stop
    end = play.wait(limits.LAST_LOOK_SECONDS + 0.1)
    assert "W1 (pid 901) has not left, and keeps a" in playbook.notes(end, "error")
    assert playbook.of(end, End) == [End(1, (), settled=False)]
    assert ended(end) == [] and play.board.orphaned[0].lost_pid == 901


def test_who_leaves_when_hung_up_on_leaves_nothing_behind() -> None:
    play, _ = stopped()
    assert ended(play.do(ev.OwnerGone(901))) == ["cancelled"]
    play.quiet()
    assert play.ended == 0


def test_who_was_lost_before_the_stop_keeps_what_is_left_of_its_grace() -> None:
    play = playbook.Play()
    play.working("a")
    play.do(playbook.lost(1), ev.StopAsked(seconds=2.0))
    play.wait(4.0)
    assert play.ended == 1
    left = recovery_state(play.entries)
    assert not left.issues.known["a"].orphaned.told_to_stop  # type: ignore[union-attr]


# --- inherited ------------------------------------------------------------------------------------


def test_what_an_earlier_run_left_is_told_to_the_next_one() -> None:
    play = playbook.Play()
    for number in (1, 2):
        play.do(ev.Connected(ConnId(number), 907, 77), playbook.ready(number))
        play.answer(f"i{number}")
    left = recovery_state(play.entries)
    assert set(left.owners) == {"i1", "i2"}
    one, two = left.inherited(["i2", "i1"])
    assert (one.issue_id, two.issue_id) == ("i1", "i2"), "as the journal has them, whoever asks"
    assert (one.run_id, one.pid, one.start_time) == ("run-1", 907, 77)
    assert one.title == "title of i1" and one.several and two.several
    play.do(ev.StopAsked(seconds=0.0))
    play.do(playbook.lost(1))
    (one,) = recovery_state(play.entries).inherited(["i1"])
    assert one.lost_at == pytest.approx(playbook.EPOCH)


def test_it_holds_up_nothing_else() -> None:
    play = inheriting(issues_max=1)
    play.join(1)
    assert play.asked() >= 1 and "a" in play.round_trip.skip  # type: ignore[union-attr]
    assert playbook.task_of(play.answer("b"), 1) == "b"
    play.do(playbook.done(1, "b"))
    play.answer()
    play.do(playbook.lost(1))
    assert play.ended == 1, "it is named, and left to the next start"


def test_it_goes_back_in_the_name_of_the_run_that_holds_it_after_the_grace() -> None:
    play = inheriting()
    play.quiet()
    play.wait(GRACE - 0.1)
    assert play.round_trip is None or not play.round_trip.settlements
    play.quiet()
    play.wait(0.2)
    assert play.settlement().run_id == "run-0" and play.settlement().read_first
    play.answer()
    assert "a" not in play.core._parts.tasks.in_flight


def test_the_grace_began_when_it_was_lost() -> None:
    play = inheriting(replace(INHERITED, lost_at=playbook.EPOCH - GRACE + 5.0))
    play.quiet()
    commands = play.wait(5.1)
    assert playbook.records(commands, rec.Requeued) == [rec.Requeued("a")]


def test_who_was_told_to_stop_keeps_it_until_it_is_gone() -> None:
    play = inheriting(replace(INHERITED, told_to_stop=True, lost_at=playbook.EPOCH))
    play.quiet()
    assert playbook.records(play.wait(3600.0), rec.Requeued) == []
    assert playbook.records(play.do(ev.OwnerGone(907)), rec.Requeued) == [rec.Requeued("a")]


@pytest.mark.parametrize("start_time, freed", [(77, 1), (78, 0)])
def test_a_ready_of_the_same_process_settles_it(start_time: int, freed: int) -> None:
    play = inheriting()
    play.quiet()
    play.do(ev.Connected(ConnId(1), 907, start_time))
    assert len(playbook.records(play.do(playbook.ready(1)), rec.Requeued)) == freed


def test_also_one_that_was_said_before_the_earlier_run_was_settled() -> None:
    play = playbook.Play(recovering=True)
    play.do(ev.Connected(ConnId(1), 907, 77), playbook.ready(1))
    commands = play.do(ev.RecoveryEnded(inherited=(INHERITED,)))
    assert playbook.records(commands, rec.Requeued) == [rec.Requeued("a")]


def test_but_none_of_a_process_that_had_several_connections() -> None:
    play = inheriting(replace(INHERITED, several=True))
    play.quiet()
    play.do(ev.Connected(ConnId(1), 907, 77))
    assert playbook.records(play.do(playbook.ready(1)), rec.Requeued) == []


def test_it_is_watched_by_pid_and_start_time() -> None:
    play = playbook.Play(recovering=True)
    commands = play.do(ev.RecoveryEnded(inherited=(INHERITED,)))
    assert playbook.of(commands, WatchOwner) == [WatchOwner(907, 77, "a")]


def test_until_empty_waits_for_it_and_then_takes_it() -> None:
    play = inheriting(until_empty=True)
    play.join(1)
    play.answer()
    play.wait(20.0)
    assert play.ended is None
    play.do(ev.OwnerGone(907))
    play.answer()
    play.quiet()
    play.do(playbook.ready(1))
    assert playbook.task_of(play.answer("a"), 1) == "a"


def test_a_drain_and_a_stop_leave_it_to_the_next_start_and_name_it() -> None:
    play = inheriting(orphan_grace_seconds=None)
    play.quiet()
    commands = play.do(ev.StopAsked(drain=True))
    assert "W7 (pid 907) has not left, and keeps a" in playbook.notes(commands, "error")
    assert playbook.of(commands, End) == [End(1, ())], "what it holds is the earlier run's"


@pytest.mark.parametrize("event", [ReleaseAskedFor, RetryAskedFor])
def test_a_person_gives_back_what_was_inherited(
    event: type[ReleaseAskedFor] | type[RetryAskedFor],
) -> None:
    play = inheriting(replace(INHERITED, told_to_stop=True))
    play.quiet()
    commands = play.do(event(Ticket(1), (IssueId("a"),)))
    assert not playbook.of(commands, Answer)[0].error
    assert play.settlement().run_id == "run-0"
    play.answer()
    on_hold = IssueId("a") in play.core._parts.retry_state.not_to_take()
    assert on_hold is (event is ReleaseAskedFor)


def test_the_next_start_is_not_told_of_what_this_one_has_given_back() -> None:
    play = inheriting()
    play.join(1)
    play.answer("b")
    play.do(ev.OwnerGone(907))
    play.quiet()
    left = recovery_state(play.entries)
    assert "a" in left.replayed and left.unsettled_runs()[-1].begun == ("b",)
