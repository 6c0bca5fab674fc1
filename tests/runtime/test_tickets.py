"""Answers find whoever waits for them."""

from __future__ import annotations

from beads_workers.core.schedule.commands import Answer
from beads_workers.runtime.control_socket import Tickets


def test_an_answer_goes_to_its_own_question_once() -> None:
    tickets, answers = Tickets(), list[Answer]()
    first, second = tickets.issue(), tickets.issue()
    tickets.wait(second, answers.append)
    tickets.answer(Answer(first, "nobody waits"))
    tickets.answer(Answer(second, "this"))
    tickets.answer(Answer(second, "again"))
    assert answers == [Answer(second, "this")]
