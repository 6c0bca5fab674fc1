"""Each token counts once, however often and as which total a command line says it."""

from __future__ import annotations

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from beads_workers.agents.events import Usage
from beads_workers.agents.totals import (
    MESSAGES_MAX,
    PARTS_MAX,
    Increments,
    Totals,
    from_object,
)

COUNTS = st.integers(1, 10**6)


def used(tokens: int, money: float | None = None, model: str = "m") -> Usage:
    """A usage of so many tokens of input, and a tenth of output."""
    return Usage(model, tokens, tokens // 10, money=money)


def tokens_and_money(increments: list[Usage]) -> tuple[int, float]:
    """Tokens and dollars of them."""
    return sum(u.tokens for u in increments), sum(u.money or 0.0 for u in increments)


class Process:
    """A run of a command line that resumes a session, as claude and codex do it.

    ``cumulative``: its total is that of the session, as ``saved`` by the last one that could.
    """

    def __init__(self, last: Totals, saved: int, *, cumulative: bool) -> None:
        self.usage = Increments(last)
        self.usage.begin("s")
        self.count, self.saved = 0, saved if cumulative else 0
        self.increments: list[Usage] = []

    def answer(self, number: int, tokens: int) -> None:
        """An answer, which the stream repeats in a second line."""
        self.count += tokens
        for _ in range(2):
            self.increments += self.usage.answer(f"m{number}", Usage("m", tokens))

    def result(self) -> int:
        """The total at the end; returns what is saved."""
        total = self.saved + self.count
        self.increments += self.usage.total([Usage("m", total, money=total / 1000)])
        return total


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(st.lists(COUNTS, min_size=1, max_size=4), st.sampled_from(["ends", "dies"])),
        min_size=1,
        max_size=6,
    ),
    st.booleans(),
)
def test_processes_of_one_session_are_counted_once(
    runs: list[tuple[list[int], str]], cumulative: bool
) -> None:
    """A process that is killed says no total, and the session does not save its part."""
    last, saved, counted, expected = Totals(), 0, 0, 0
    for answers, end in runs:
        process = Process(last, saved, cumulative=cumulative)
        for number, tokens in enumerate(answers):
            process.answer(number, tokens)
        if end == "ends":
            saved = process.result()
        expected += sum(answers)
        counted += tokens_and_money(process.increments)[0]
        last = from_object(json.loads(json.dumps(process.usage.totals().to_object())))
    assert counted == expected


def test_a_total_of_the_session_after_a_resume_counts_what_is_new() -> None:
    first = Increments()
    first.begin("s")
    first.answer("m1", used(1000))
    assert tokens_and_money(first.total([used(1000, 0.00225)])) == (0, 0.00225)
    second = Increments(first.totals())
    second.begin("s")
    second.answer("m1", used(1000))
    tokens, money = tokens_and_money(second.total([used(2000, 0.0045)]))
    assert (tokens, round(money, 6)) == (0, 0.00225)


def test_a_total_of_the_process_after_a_resume_counts_whole() -> None:
    second = Increments(Totals("s", {"m": used(1000, 0.00225)}))
    second.begin("s")
    second.answer("m1", used(1000))
    assert tokens_and_money(second.total([used(1000, 0.00225)])) == (0, 0.00225)


def test_the_total_saved_by_a_process_that_was_ended_is_known_by_what_was_heard() -> None:
    """After TERM the session has the part that this one was only heard to use; after KILL not."""
    died = Increments(Totals("s", {"m": used(1000, 1.0)}))
    died.begin("s")
    assert tokens_and_money(died.answer("m1", used(500))) == (550, 0.0)
    for saved in (1500, 1000, 0):
        third = Increments(died.totals())
        third.begin("s")
        third.answer("m1", used(300))
        assert tokens_and_money(third.total([used(saved + 300)])) == (0, 0.0)


def test_a_thread_that_says_only_its_total_counts_the_difference() -> None:
    again = Increments(Totals("s", {"m": used(1000)}))
    again.begin("s")
    assert tokens_and_money(again.total([used(2000)])) == (1100, 0.0)


def test_another_session_begins_at_nothing() -> None:
    other = Increments(Totals("s", {"m": used(1000)}))
    other.begin("t")
    assert tokens_and_money(other.total([used(1000)])) == (1100, 0.0)
    assert other.totals().session == "t"


def test_several_totals_of_one_process_are_not_added() -> None:
    usage = Increments()
    assert tokens_and_money(usage.total([used(1000, 1.0)])) == (1100, 1.0)
    assert tokens_and_money(usage.total([used(1500, 1.5)])) == (550, 0.5)


def test_of_a_repeated_answer_only_what_is_more_counts() -> None:
    usage = Increments()
    assert tokens_and_money(usage.answer("m1", Usage("m", 1000, 1))) == (1001, 0.0)
    assert tokens_and_money(usage.answer("m1", Usage("m", 1000, 20))) == (19, 0.0)
    assert usage.answer("m1", Usage("m", 1000, 20)) == []


def test_answers_without_an_id_are_all_counted_and_ids_are_forgotten_at_last() -> None:
    usage = Increments()
    assert tokens_and_money(usage.answer("", used(10)) + usage.answer("", used(10))) == (22, 0.0)
    for number in range(3 * MESSAGES_MAX):
        usage.answer(f"m{number}", used(10))
    assert len(usage._messages) == MESSAGES_MAX


def test_what_is_no_total_counts_as_nothing() -> None:
    for junk in (None, 7, {}, {"session": 1}, {"session": "s", "reported": {"m": [1, 2]}}):
        assert from_object(junk).reported == {}
    kept = {"session": "s", "reported": {"m": [1, -2, 3, 4, None], 5: []}, "unreported": []}
    assert from_object(kept) == Totals("s")


@settings(deadline=None)
@given(st.lists(st.tuples(COUNTS, st.booleans()), min_size=1, max_size=4), COUNTS, st.booleans())
def test_a_total_after_several_kills_counts_only_its_own_process(
    killed: list[tuple[int, bool]], own: int, cumulative: bool
) -> None:
    """A process that was ended has saved its part of the session or, killed hard, has not."""
    last, saved = Totals(), 0
    for number, (tokens, saves) in enumerate(killed):
        process = Process(last, saved, cumulative=cumulative)
        process.answer(number, tokens)
        saved += tokens if saves else 0
        last = from_object(json.loads(json.dumps(process.usage.totals().to_object())))
    process = Process(last, saved, cumulative=cumulative)
    process.answer(99, own)
    process.result()
    assert tokens_and_money(process.increments)[0] == own


@settings(deadline=None)
@given(st.lists(st.lists(COUNTS, min_size=1, max_size=4), min_size=1, max_size=3), COUNTS)
def test_a_killed_process_has_saved_all_but_the_answer_in_which_it_was_killed(
    killed: list[list[int]], own: int
) -> None:
    last, saved = Totals(), 0
    for answers in killed:
        process = Process(last, saved, cumulative=True)
        for number, tokens in enumerate(answers):
            process.answer(number, tokens)
        saved += sum(answers[:-1])
        last = from_object(json.loads(json.dumps(process.usage.totals().to_object())))
    limited = Process(last, saved, cumulative=True)
    saved = limited.result()
    assert tokens_and_money(limited.increments)[0] == 0
    process = Process(limited.usage.totals(), saved, cumulative=True)
    process.answer(99, own)
    process.result()
    assert tokens_and_money(process.increments)[0] == own


def test_more_killed_processes_than_are_told_apart_are_summed() -> None:
    last = Totals()
    for number in range(2 * PARTS_MAX):
        usage = Increments(last)
        usage.begin("s")
        usage.answer(f"m{number}", used(100))
        last = usage.totals()
    assert len(last.unreported) == PARTS_MAX
    assert last.tokens == 2 * PARTS_MAX * 110


def test_totals_of_an_earlier_version_are_those_of_one_process() -> None:
    kept = {"session": "s", "reported": {}, "unreported": {"m": [100, 10, 0, 0, None]}}
    assert from_object(kept).unreported == ({"m": used(100)},)
