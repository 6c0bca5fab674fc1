"""Questions of agents: what parks an issue, what opens it again, and that no answer is lost."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from beads_workers.core.base import limits
from beads_workers.core.base.framing import ProtocolError
from beads_workers.core.base.model import IssueId, OutcomeKind
from beads_workers.core.base.policy import Policy
from beads_workers.core.base.source import (
    Action,
    Conversation,
    Remark,
    Reply,
    Result,
    Settlement,
    answers,
    read_replies,
)
from beads_workers.core.records import journal as rec
from beads_workers.core.records.issues import Standing
from beads_workers.core.requests.answer import AnsweredInTracker, no_such_choice
from beads_workers.core.requests.retry import RetryAskedFor
from beads_workers.core.schedule import events as ev
from beads_workers.core.schedule.commands import Answer, Command
from beads_workers.core.views.recovery import recovery_state
from beads_workers.core.views.status import status
from beads_workers.trackers import settlement_rules
from beads_workers.trackers.settlement_rules import Ownership
from tests.core import playbook
from tests.core.playbook import EPOCH, Play

ASKS = Policy(questions_max=3)
T = ev.Ticket(1)
OPEN = Ownership("open", "")
QUESTION = {"verdict": "question", "question": "FOO or BAR?\nOr none?", "session": "s-1"}


def asks(
    play: Play, number: int = 1, issue_id: str = "a", question: str = "FOO or BAR?"
) -> list[Command]:
    """The worker's agent ends with a question."""
    outcome = OutcomeKind.QUESTION
    return play.do(playbook.failed(number, issue_id, question, outcome=outcome))


def waiting(question: str = "FOO or BAR?") -> Play:
    """A fleet whose one issue waits for an answer, as the tracker knows."""
    play = Play(policy=ASKS)
    play.working("a")
    asks(play, question=question)
    play.answer()
    return play


def comment(play: Play, text: str = "FOO", after: float = 2.0) -> Reply:
    """A comment that a person writes so many seconds from now."""
    return Reply("ann", text, EPOCH + play.now - playbook.BEGAN + after)


def listens(play: Play, *replies: Reply, status: str = "blocked") -> list[Command]:
    """The next round trip that reads comments brings these."""
    for _ in range(10):
        if play.round_trip is not None and play.round_trip.listen:
            break
        play.quiet()
        play.wait(limits.LISTEN_SECONDS)
    assert play.round_trip is not None and play.round_trip.listen == ("a",)
    return play.answer(conversations=(Conversation(IssueId("a"), status, replies),))


def settles(play: Play) -> Settlement:
    """The next write; the tracker has done it."""
    for _ in range(50):
        if play.round_trip is not None and play.round_trip.settlements:
            found = play.settlement()
            play.answer()
            return found
        play.quiet()
        play.wait(0.5)
    raise AssertionError("nothing is written")


def goes_on(play: Play) -> None:
    """The worker asks for work, and gets the issue again."""
    play.do(playbook.ready(1))
    for _ in range(50):
        if play.round_trip is not None and play.round_trip.take:
            play.answer("a")
            return
        play.quiet()
        play.wait(1.0)
    raise AssertionError("nothing is taken")


def test_a_question_blocks_the_issue_with_its_note_and_charges_nothing() -> None:
    play = Play(policy=ASKS)
    play.working("a")
    (ended,) = playbook.records(asks(play), rec.Finished)
    assert (ended.verdict, ended.charged, ended.questions) == ("asked", 0, 1)
    settlement = play.settlement()
    assert settlement.action is Action.ASK and "FOO or BAR?" in settlement.note
    play.answer()
    (shown,) = status(play.board, 1.0)["questions"]
    assert (shown["issue_id"], shown["question"]) == ("a", "FOO or BAR?")
    assert status(play.board, 1.0)["queue"]["quarantined"] == 0
    assert [n["remedy"] for n in status(play.board, 1.0)["needs"]] == ["answer a"]


def test_a_comment_that_is_newer_opens_the_issue_and_it_goes_on() -> None:
    play = waiting()
    assert playbook.records(listens(play, comment(play)), rec.Answered)
    assert play.settlement().action is Action.REOPEN
    play.answer()
    assert status(play.board, 1.0)["questions"] == []
    goes_on(play)
    past = play.core.issues.known["a"].retry_entry
    assert past is not None and (past.question, past.questions) == ("FOO or BAR?", 1)


def test_a_comment_of_before_the_question_answers_nothing() -> None:
    play = waiting()
    old = comment(play, after=-100.0)
    assert not playbook.records(listens(play, old), rec.Answered)
    assert play.core.issues.known["a"].standing is Standing.ASKED


def test_comments_are_read_every_half_minute() -> None:
    play = waiting()
    listens(play)
    play.quiet()
    play.wait(limits.LISTEN_SECONDS / 2)
    assert play.round_trip is None or not play.round_trip.listen


def test_who_has_written_the_comment_says_so_and_the_issue_is_opened_by_the_next_round_trip() -> (
    None
):
    play = waiting()
    listens(play)
    play.quiet()
    commands = play.do(AnsweredInTracker(T, (IssueId("a"),)))
    assert playbook.of(commands, Answer) == [Answer(T, "answered: a")]
    assert settles(play).action is Action.REOPEN
    goes_on(play)


def test_an_answer_before_the_question_is_in_the_tracker_opens_the_issue_after_that() -> None:
    play = Play(policy=ASKS)
    play.working("a")
    asks(play)
    assert play.settlement().action is Action.ASK
    (said,) = playbook.of(play.do(AnsweredInTracker(T, (IssueId("a"),))), Answer)
    assert said.error == ""
    play.answer()
    assert (opens := settles(play)).action is Action.REOPEN and opens.taken_back
    goes_on(play)


REMARK = Remark(IssueId("a"), "FOO", "ann")


def test_an_answer_with_a_text_is_written_by_the_fleet_and_read_in_the_same_round_trip() -> None:
    play = waiting()
    listens(play)
    play.quiet()
    play.wait(2.0)
    asked = AnsweredInTracker.read({"issue_ids": ["a"], "text": " FOO ", "author": "ann"}, T)
    assert not playbook.of([*play.do(asked), *play.do(replace(asked, ticket=ev.Ticket(2)))], Answer)
    play.quiet() if play.round_trip and not play.round_trip.remarks else None
    assert play.round_trip is not None
    assert (play.round_trip.remarks, play.round_trip.listen) == ((REMARK,), ("a",))
    read = Conversation(IssueId("a"), "blocked", (comment(play),))
    commands = play.answer(conversations=(read,), remarks=((REMARK, ""),))
    assert playbook.of(commands, Answer) == [
        Answer(T, "answered: a"), Answer(ev.Ticket(2), "answered: a")
    ]  # fmt: skip
    goes_on(play)


def test_an_answer_waits_until_the_second_of_the_question_is_over() -> None:
    play = waiting()
    play.do(AnsweredInTracker(T, (IssueId("a"),), "FOO", "ann"))
    play.quiet()
    assert play.round_trip is None or not play.round_trip.remarks
    play.wait(1.1)
    play.quiet() if play.round_trip and not play.round_trip.remarks else None
    assert play.round_trip is not None and play.round_trip.remarks == (REMARK,)


def test_an_answer_that_could_not_be_written_is_told_and_leaves_the_question_open() -> None:
    play = waiting()
    play.wait(2.0)
    play.do(AnsweredInTracker(T, (IssueId("a"),), "FOO", "ann"))
    play.quiet() if play.round_trip and not play.round_trip.remarks else None
    (said,) = playbook.of(play.answer(remarks=((REMARK, "no disk"),)), Answer)
    assert said.error == "no disk"
    assert play.core.issues.known["a"].standing is Standing.ASKED


@pytest.mark.parametrize(
    ("data", "why"),
    [
        ({"issue_ids": ["a"], "text": 1}, "must be texts"),
        ({"issue_ids": ["a"], "text": "FOO"}, "name of its author"),
        ({"issue_ids": ["a", "b"], "text": "FOO", "author": "ann"}, "for one issue"),
    ],
)
def test_an_answer_without_its_author_is_refused(data: dict[str, Any], why: str) -> None:
    with pytest.raises(ProtocolError, match=why):
        AnsweredInTracker.read(data, T)


@pytest.mark.parametrize(
    ("answer", "wrong"),
    [
        ("7", "there is no choice 7: 1 to 2"),
        ("1, 3", "3"),
        ("0", "0"),
        ("2", ""),
        ("BAR", ""),
        ("1;2", ""),
    ],
)
def test_a_choice_that_does_not_exist_is_refused(answer: str, wrong: str) -> None:
    question = "Which key?\n  1. FOO: as it was\n  2. BAR"
    said = no_such_choice(question, answer)
    assert wrong in said and bool(wrong) is bool(said)
    assert not no_such_choice("How many?", answer)


def test_the_fleet_writes_no_answer_that_chooses_nothing() -> None:
    play = waiting("Which key?\n  1. FOO\n  2. BAR")
    play.wait(2.0)
    (said,) = playbook.of(play.do(AnsweredInTracker(T, (IssueId("a"),), "7", "ann")), Answer)
    assert said.error == "there is no choice 7: 1 to 2"
    assert play.core.issues.known["a"].standing is Standing.ASKED


def test_an_answer_to_an_issue_that_asked_nothing_is_refused() -> None:
    play = waiting()
    (said,) = playbook.of(play.do(AnsweredInTracker(T, (IssueId("b"),))), Answer)
    assert "no question is open" in said.error


def test_an_issue_that_was_opened_by_hand_goes_on_without_an_answer() -> None:
    play = waiting()
    listens(play, status="open")
    assert play.settlement().action is Action.REOPEN


def test_a_close_with_a_comment_is_an_answer_and_one_without_ends_the_issue() -> None:
    play = waiting()
    listens(play, comment(play), status="closed")
    settlement = play.settlement()
    assert (settlement.action, settlement.taken_back) == (Action.REOPEN, True)
    play = waiting()
    listens(play, status="closed")
    assert (play.settlement().action, play.settlement().mark) == (Action.CONFIRM, "")
    refused = {"a": Result.NOT_OURS}
    (settled,) = playbook.records(play.answer(results=refused), rec.SettledRecord)
    assert settled.result == Result.NOT_OURS.value
    assert "a" not in play.core.issues.known


@pytest.mark.parametrize("status", ["blocked", "closed"])
def test_a_kill_before_an_answered_issue_was_opened_loses_no_answer(status: str) -> None:
    """``bd human respond`` comments and then closes: before the answer was read, or after it."""
    play = waiting()
    listens(play, comment(play), status=status)
    assert play.settlement().taken_back
    (dead,) = recovery_state(play.entries).unsettled_runs()
    (back,) = settlement_rules.pending(dead, [])
    assert settlement_rules.rule(back, Ownership("closed", ""), dead.actor).write == OPEN


def test_what_was_opened_by_hand_and_closed_before_a_kill_stays_closed() -> None:
    play = waiting()
    listens(play, status="open")
    (dead,) = recovery_state(play.entries).unsettled_runs()
    (back,) = settlement_rules.pending(dead, [])
    assert settlement_rules.rule(back, Ownership("closed", ""), dead.actor).write is None


def test_a_second_question_is_one_and_one_too_many_is_quarantined() -> None:
    play = Play(policy=replace(ASKS, questions_max=2))
    play.working("a")
    for _ in range(2):
        asks(play)
        assert settles(play).action is Action.ASK
        listens(play, comment(play))
        assert settles(play).action is Action.REOPEN
        goes_on(play)
    (ended,) = playbook.records(asks(play), rec.Finished)
    assert (ended.verdict, ended.charged) == ("quarantined", 0)
    assert "it asked 2 questions, and one more" in settles(play).note


def test_where_nobody_answers_a_question_is_a_failure() -> None:
    play = Play(policy=Policy(questions_max=0))
    play.working("a")
    (ended,) = playbook.records(asks(play), rec.Finished)
    assert (ended.verdict, ended.charged) == ("requeue", 1)


def test_a_retry_forgets_the_question() -> None:
    play = waiting()
    play.do(RetryAskedFor(T, (IssueId("a"),)))
    assert settles(play).action is Action.REOPEN
    assert "a" not in play.core.issues.known


def test_a_retry_opens_an_issue_that_was_answered_by_a_close() -> None:
    play = waiting()
    play.do(RetryAskedFor(T, (IssueId("a"),)))
    (dead,) = recovery_state(play.entries).unsettled_runs()
    assert dead.answered == dead.reopened == ("a",), "a next run opens it as well"
    assert settles(play).taken_back, "'bd human respond' answers, and closes"


def test_a_lost_attempt_after_the_answer_is_given_it_again() -> None:
    play = waiting()
    listens(play, comment(play))
    settles(play)
    goes_on(play)
    play.do(playbook.failed(1, "a", "boom"))
    past = play.core.issues.known["a"].retry_entry
    assert past is not None and (past.question, past.charged) == ("FOO or BAR?", 1)


def test_the_next_run_waits_for_the_answer_as_well() -> None:
    play = waiting()
    kept = recovery_state(play.entries).checkpoint()
    later = Play(policy=ASKS, checkpointed=kept)
    assert later.core.issues.known["a"].standing is Standing.ASKED
    assert playbook.records(listens(later, comment(later, after=100.0)), rec.Answered)


def test_a_run_that_was_killed_before_the_tracker_knew_leaves_the_question_to_the_next() -> None:
    play = Play(policy=ASKS)
    play.working("a")
    asks(play)
    (dead,) = recovery_state(play.entries).unsettled_runs()
    back = dead.back(IssueId("a"))
    assert back.action is Action.ASK and "FOO or BAR?" in back.note


def test_a_run_until_empty_with_an_open_question_ends_with_7() -> None:
    play = Play(policy=ASKS, until_empty=True)
    play.answer(listed=["a"])
    play.join(1)
    play.answer("a")
    asks(play)
    settles(play)
    play.do(playbook.lost(1))
    for _ in range(100):
        play.quiet()
        play.wait(10.0)
    assert play.ended == 7


@pytest.mark.parametrize(
    ("fields", "texts"),
    [
        ({}, []),
        ({"comments": [{"author": "a", "text": "x", "created_at": "1970-01-01T00:00:09Z"}]}, []),
        ({"comments": [{"text": "b", "created_at": "1970-01-01T00:00:12Z"},
                       {"text": "a", "created_at": "1970-01-01T00:00:11+00:00"}]}, ["a", "b"]),
        ({"comments": [{"text": "x", "created_at": "soon"}, 3, {"text": "y"}]}, []),
        ({"comments": [{"text": "same second", "created_at": "1970-01-01T00:00:10Z"}]}, []),
    ],
)  # fmt: skip
def test_comments_are_read_from_the_tracker_s_json(
    fields: dict[str, object], texts: list[str]
) -> None:
    assert [each.text for each in answers(read_replies(fields), 10.7)] == texts
