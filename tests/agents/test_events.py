"""The sum of a run: usage by model, money that pays for it, what holds until it goes on."""

from __future__ import annotations

from beads_workers.agents.events import (
    DENIED_MAX,
    MODELS_MAX,
    PRINTED_LINES_MAX,
    Denied,
    Doing,
    Event,
    FinalResult,
    Kind,
    Limit,
    Price,
    Printed,
    Retrying,
    RunFailure,
    Session,
    Tally,
    Usage,
    Words,
    price_of,
)

PRICES = {"*": Price(1.0, 1.0), "gpt-5*": Price(2.0, 10.0, 0.5), "gpt-5-mini": Price(0.2, 1.0)}


def tally(*events: Event) -> Tally:
    """The sum of these."""
    found = Tally()
    found.apply(events)
    return found


def test_usage_is_summed_by_model() -> None:
    found = tally(Usage("a", 10, 1, 2, 3), Usage("b", 5), Usage("a", 1, 1, money=0.5))
    assert found.usage == {"a": Usage("a", 11, 2, 2, 3, 0.5), "b": Usage("b", 5)}
    assert found.tokens == 23


def test_money_that_comes_later_pays_for_the_tokens_before_it() -> None:
    assert tally(Usage("a", 10), Usage("a", 0, 2, money=0.5)).money() == 0.5
    assert tally(Usage("a", 10, money=0.25), Usage("a", 10, money=0.5)).money() == 0.75


def test_money_is_unknown_while_tokens_are_without_a_price() -> None:
    assert tally().money() is None
    assert tally(Usage("a", 10)).money() is None
    assert tally(Usage("a", 10), Usage("b", 10, money=0.5)).money() is None
    assert tally(Usage("a", money=0.5), Usage("a", 10)).money({"b*": Price(1, 1)}) is None


def test_prices_of_the_user_are_for_what_the_agent_does_not_say() -> None:
    found = tally(Usage("gpt-5.1", 1_000_000, 100_000, 400_000, 500_000), Usage("x", 7, money=1.5))
    assert found.money(PRICES) == 2.0 + 1.0 + 0.2 + 1.0 + 1.5
    assert Price(4.0, 1.0).of(Usage("a", cached_read=500_000)) == 2.0


def test_of_several_prices_the_most_exact_one_holds() -> None:
    assert price_of("gpt-5-mini", PRICES) == PRICES["gpt-5-mini"]
    assert price_of("gpt-5-nano", PRICES) == PRICES["gpt-5*"]
    assert price_of("", PRICES) == PRICES["*"]
    assert price_of("claude", {"gpt*": Price(1, 1)}) is None


def test_a_failure_holds_until_it_goes_on() -> None:
    failure = RunFailure(Kind.TRANSIENT, "overloaded")
    assert tally(failure).failure == failure
    assert tally(failure, Doing("running", "ls")).failure is None
    assert tally(failure, Words("Now.")).failure is None
    assert tally(failure, FinalResult("", True)).failure is None
    assert tally(failure, FinalResult("", False), Printed("x"), Usage("a", 1)).failure == failure
    assert tally(Retrying("529"), Usage("a", 1)).retrying == Retrying("529")
    assert tally(Retrying("529"), Words("Now.")).retrying is None


def test_a_window_that_is_full_is_a_failure_but_where_more_is_paid_for() -> None:
    full = Limit("five_hour", 1.0, 1000.0, rejected=True)
    assert tally(full).failure == RunFailure(Kind.LIMITED, "five_hour", 1000.0)
    assert tally(Limit("five_hour", 0.92, 1000.0)).failure is None
    assert tally(Limit("five_hour", 1.0, rejected=True, overage=True)).failure is None
    assert tally(Limit("five_hour", 0.5), full).limits == {"five_hour": full}


def test_the_last_words_are_the_answer_where_the_result_has_none() -> None:
    assert tally(Words("One."), Words("Two."), FinalResult("", True)).text == "Two."
    assert tally(Words("One."), FinalResult("Three.", True)).text == "Three."
    assert tally(Session("s"), Doing("editing", "x.py")).activity == "editing x.py"


def test_its_size_is_bounded() -> None:
    found = tally(
        *(Usage(f"m{n}", 1) for n in range(3 * MODELS_MAX)),
        *(Denied(f"t{n}") for n in range(3 * DENIED_MAX)),
        *(Limit(f"w{n}") for n in range(3 * MODELS_MAX)),
        *(Printed(f"l{n}") for n in range(3 * PRINTED_LINES_MAX)),
    )
    assert len(found.usage) == MODELS_MAX + 1 and found.tokens == 3 * MODELS_MAX
    assert (len(found.denied), len(found.limits)) == (DENIED_MAX, MODELS_MAX)
    assert len(found.printed) == PRINTED_LINES_MAX
