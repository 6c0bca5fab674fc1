"""Tasks of a running fleet: found with their messages, and cancelled."""

from __future__ import annotations

from typing import Any

from beads_workers.core.base import limits
from beads_workers.core.base.model import Arguments, Call, IssueId, Job, OutcomeKind
from beads_workers.core.base.policy import Policy
from beads_workers.core.base.source import Action
from beads_workers.core.base.wire import Cancel
from beads_workers.core.records.issues import Standing
from beads_workers.core.records.journal import Checkpointed, PutOnHold
from beads_workers.core.schedule import events as ev
from beads_workers.core.schedule.commands import Answer, FoundTasks
from beads_workers.core.schedule.events import TaskFilter
from beads_workers.core.schedule.queries import message_of
from tests.core.playbook import (
    EPOCH,
    Play,
    cancelled,
    failed,
    job,
    lost,
    of,
    ready,
    records,
    sent_messages,
)

T = ev.Ticket(5)


def asked(play: Play, cancel: bool = False, **wanted: Any) -> FoundTasks:
    """What is found for these fields."""
    (answer,) = of(play.do(ev.TasksAsked(T, TaskFilter(wanted), cancel)), Answer)
    assert answer.ticket == T and answer.found is not None
    return answer.found


def places(found: FoundTasks) -> dict[str, str]:
    """Where each task is."""
    return {task.key: task.place for task in found.tasks}


def three_places() -> Play:
    """One runs, one is claimed and unsent, one cools down."""
    play = Play(checkpointed=[Checkpointed("cools", not_before=EPOCH + 600)])
    for number in (1, 2):
        play.join(number)
        play.quiet()
    play.do(ready(1), ready(2))
    play.wait(limits.POLL_SECONDS)
    play.do(lost(2))
    play.answer(job("runs", call=Call("shop.add", (1,), {"b": 2})), "waits")
    play.do(ready(1))
    return play


def test_running_waiting_and_cooling_tasks_are_found_with_their_places() -> None:
    found = asked(three_places())
    assert places(found) == {"runs": "worker", "waits": "queued", "cools": "delayed"}
    assert [task.worker_id for task in found.tasks] == ["W1", "", ""]


def test_a_function_is_found_by_its_path_and_arguments_and_an_issue_by_its_id() -> None:
    play = three_places()
    assert places(asked(play, task="shop.add")) == {"runs": "worker"}
    assert places(asked(play, args=[1], kwargs={"b": 2})) == {"runs": "worker"}
    assert places(asked(play, uuid="waits")) == {"waits": "queued"}
    assert places(asked(play, uuid="wait")) == {}


def test_cancelling_takes_away_from_the_worker_from_the_queue_and_from_the_retries() -> None:
    play = three_places()
    commands = play.do(ev.TasksAsked(T, TaskFilter(), cancel=True))
    assert [type(m) for m in sent_messages(commands, 1)] == [Cancel]
    assert {r.issue_id for r in records(commands, PutOnHold)} == {"waits", "cools"}
    assert asked(play).cancelling == {"W1"}
    assert play.pending() == [(Action.RELEASE, "waits")]
    on_hold = records(play.do(cancelled(1, "runs")), PutOnHold)
    assert [r.issue_id for r in on_hold] == ["runs"]


def test_cancelling_what_nobody_has_changes_nothing() -> None:
    play = three_places()
    commands = play.do(ev.TasksAsked(T, TaskFilter({"uuid": "x"}), cancel=True))
    assert commands == [Answer(T, found=FoundTasks())]


def test_a_source_that_sends_gets_a_cancelled_task_back_and_nothing_is_remembered() -> None:
    play = Play(2, push=True, policy=Policy(hand_back=True), poll_seconds=3600.0)
    play.own(1)
    play.quiet()
    play.do(ev.Arrived())
    play.answer("runs")
    commands = play.do(ev.TasksAsked(T, TaskFilter(), cancel=True))
    assert [type(m) for m in sent_messages(commands, 1)] == [Cancel]
    play.do(cancelled(1, "runs"))
    assert play.settlement().action is Action.RELEASE and play.settlement().unwanted
    play.answer()
    assert asked(play) == FoundTasks()


def test_what_was_claimed_ahead_from_such_a_source_is_over_and_not_put_back() -> None:
    play = Play(2, push=True, policy=Policy(hand_back=True), poll_seconds=3600.0)
    play.own(1)
    play.own(2)
    play.quiet()
    play.do(ev.Arrived())
    play.do(lost(2))
    play.answer("runs", "ahead")
    assert places(asked(play, uuid="ahead")) == {"ahead": "queued"}
    play.quiet()
    asked(play, cancel=True, uuid="ahead")
    settlement = play.settlement()
    assert settlement.action is Action.RELEASE and settlement.unwanted
    assert settlement.outcome is not None and settlement.outcome.kind is OutcomeKind.CANCELLED


def test_what_waits_with_its_sender_for_another_try_is_forgotten() -> None:
    policy = Policy(hand_back=True, hand_back_after=3)
    play = Play(1, push=True, policy=policy, poll_seconds=3600.0)
    play.own(1)
    play.quiet()
    play.do(ev.Arrived())
    play.answer("fails")
    play.do(failed(1, "fails"))
    play.answer()
    assert places(asked(play)) == {"fails": "delayed"}
    asked(play, cancel=True)
    assert places(asked(play)) == {}
    assert not play.board.retrying and not play.board.issues.standing(Standing.ON_HOLD)


def test_a_retry_of_an_earlier_run_is_found_with_the_function_that_it_names() -> None:
    checkpointed = Checkpointed(
        "old",
        "old one",
        1,
        not_before=EPOCH + 60,
        path="shop.add",
        arguments=Arguments((1,), {"b": 2}),
    )
    (task,) = asked(Play(checkpointed=[checkpointed])).tasks
    assert task.message == {
        "uuid": "old",
        "task": "shop.add",
        "args": [1],
        "kwargs": {"b": 2},
        "channel": "memory",
    }


def test_arguments_that_were_too_long_to_keep_are_left_out() -> None:
    checkpointed = Checkpointed(
        "old", not_before=EPOCH + 60, path="shop.add", arguments=Arguments(None, None)
    )
    (task,) = asked(Play(checkpointed=[checkpointed])).tasks
    assert task.message == {"uuid": "old", "task": "shop.add", "channel": "memory"}


def test_an_issue_without_a_function_shows_its_title_and_when_it_came() -> None:
    made = Job("bd", IssueId("a-1"), "a title", enqueued_at=7.0, timeout_seconds=5.0)
    assert message_of(made, "bd") == {
        "uuid": "a-1",
        "task": "beads.issue",
        "title": "a title",
        "timeout": 5.0,
        "time_pub": 7.0,
        "channel": "bd",
    }


def test_a_task_of_dispatcherd_is_shown_as_it_came() -> None:
    original = {"uuid": "u", "task": "shop.add", "args": [1], "guid": "g", "channel": "here"}
    made = Job("dispatcherd", IssueId("u#2"), "shop.add", original=original)
    assert message_of(made, "dispatcherd") == original
    assert message_of(made, "dispatcherd") is not original
