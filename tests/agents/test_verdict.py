"""What became of a run: the first that holds, in the order of ``Kind``."""

from __future__ import annotations

import pytest

from beads_workers.agents import verdict
from beads_workers.agents.events import (
    Denied,
    Event,
    FinalResult,
    Kind,
    OpenQuestion,
    Printed,
    Retrying,
    RunFailure,
    Tally,
    Words,
)
from tests.agents.streams import NOW

WELL = verdict.RunEnding(0, changed=True, at=NOW)
GOOD = FinalResult("All is there.", True)
LIMIT = "You've hit your 5-hour limit · resets 10:22am (UTC)"


def judged(*events: Event, ending: verdict.RunEnding = WELL) -> verdict.Verdict:
    """The verdict on a run that said this."""
    tally = Tally()
    tally.apply(events)
    return verdict.judge(tally, ending)


def kind(*events: Event, ending: verdict.RunEnding = WELL) -> Kind:
    """Its kind."""
    return judged(*events, ending=ending).kind


def test_a_good_result_with_a_change_is_done() -> None:
    assert judged(GOOD) == verdict.Verdict(Kind.DONE, text="All is there.")


def test_exit_status_0_alone_is_never_done() -> None:
    assert kind() is Kind.UNFINISHED
    assert judged(Words("Nearly.")).why == "it ended without a result"


def test_a_result_is_not_believed_where_the_process_ended_otherwise() -> None:
    found = judged(GOOD, ending=verdict.RunEnding(1, changed=False))
    assert (found.kind, found.why) == (Kind.UNFINISHED, "it exited with status 1")
    assert (
        judged(GOOD, ending=verdict.RunEnding(None, 9, changed=True)).why
        == "it was ended by signal 9"
    )
    assert (
        kind(GOOD, ending=verdict.RunEnding(143, clock="timeout", changed=True)) is Kind.UNFINISHED
    )


def test_a_process_that_lingers_after_its_result_has_ended_well() -> None:
    assert kind(GOOD, ending=verdict.RunEnding(None, 15, clock="result", changed=True)) is Kind.DONE


def test_nothing_changed_is_not_done() -> None:
    assert kind(GOOD, ending=verdict.RunEnding(0, changed=False)) is Kind.NO_CHANGE
    assert kind(GOOD, ending=verdict.RunEnding(0, changed=None)) is Kind.DONE


def test_refused_tools_are_nothing_where_there_is_a_change() -> None:
    assert kind(Denied("Bash"), GOOD) is Kind.DONE
    refused = judged(Denied("Bash"), GOOD, ending=verdict.RunEnding(0, changed=False))
    assert refused.kind is Kind.UNFINISHED
    assert refused.why == "refused: Bash; nothing changed"
    assert kind(Denied("Bash"), GOOD, ending=verdict.RunEnding(0)) is Kind.UNFINISHED


@pytest.mark.parametrize("which", [k for k in Kind if k not in (Kind.NO_CHANGE, Kind.DONE)])
def test_what_the_agent_says_of_its_failure_holds(which: Kind) -> None:
    failure = RunFailure(which, "So it went. And more.")
    found = judged(failure, FinalResult("", False), ending=verdict.RunEnding(1))
    assert (found.kind, found.why) == (which, "So it went.")
    assert kind(failure, ending=verdict.RunEnding(None, 9)) is which
    assert kind(failure, GOOD) is Kind.DONE


def test_the_reset_of_a_limit_is_that_of_the_event_or_of_the_text() -> None:
    assert judged(RunFailure(Kind.LIMITED, LIMIT, NOW + 60)).until == NOW + 60
    from_text = judged(
        RunFailure(Kind.LIMITED, LIMIT),
        FinalResult(LIMIT, False),
        ending=verdict.RunEnding(1, at=NOW),
    )
    assert from_text.until == 1_795_342_920.0
    assert judged(RunFailure(Kind.LIMITED, LIMIT, NOW + 1e12)).until is None
    assert judged(RunFailure(Kind.LIMITED, "five_hour", NOW)).why == "5-hour limit"


def test_a_text_is_the_fallback() -> None:
    assert kind(FinalResult(LIMIT, False), ending=verdict.RunEnding(1)) is Kind.LIMITED
    assert kind(Printed(LIMIT), Printed("bye"), ending=verdict.RunEnding(1)) is Kind.LIMITED
    assert kind(Printed("Not logged in"), ending=verdict.RunEnding(1)) is Kind.NEEDS_PERSON
    assert (
        kind(FinalResult("It broke.", False), Printed(LIMIT), ending=verdict.RunEnding(1))
        is Kind.UNFINISHED
    )
    assert kind(Printed(LIMIT), GOOD) is Kind.DONE


def test_a_run_that_was_ended_while_it_tried_again_is_what_it_tried_against() -> None:
    stalled = verdict.RunEnding(None, 15, clock="stall")
    assert kind(Retrying("overloaded"), ending=stalled) is Kind.TRANSIENT
    assert kind(Retrying("401", Kind.NEEDS_PERSON), ending=stalled) is Kind.NEEDS_PERSON
    assert judged(ending=stalled).why == "it said nothing for too long"
    assert judged(ending=verdict.RunEnding(143, clock="timeout")).why == "it ran into its time-out"


def test_a_session_that_is_lost_is_said() -> None:
    found = judged(Printed("thread/resume failed: no rollout found for thread id x"))
    assert (found.kind, found.session_lost) == (Kind.UNFINISHED, True)


@pytest.mark.parametrize(
    ("text", "outcome"),
    [
        ("Did it.\n\nOutcome: done", ("done", "")),
        ("**Outcome:** blocked: no such file.", ("blocked", "no such file.")),
        ("- outcome: No change needed - it is there", ("no change needed", "it is there")),
        ("Outcome: question: FOO or BAR?", ("question", "FOO or BAR?")),
        ("Outcome: done\nAnd more.", ("", "")),
        ("The outcome: done well", ("", "")),
        ("", ("", "")),
    ],
)
def test_the_outcome_stands_in_the_last_line(text: str, outcome: tuple[str, str]) -> None:
    assert verdict.said_outcome(text) == outcome


@pytest.mark.parametrize(
    ("text", "question"),
    [
        ("Did it.\n\n**Should I commit this?**", "**Should I commit this?**"),
        ("Should it be euros?\n\nOutcome: done", "Should it be euros?"),
        ("Should it be euros? I took euros.\nOutcome: done", ""),
        ("Outcome: done", ""),
        ("", ""),
    ],
)
def test_a_question_at_the_end_of_an_answer_is_known(text: str, question: str) -> None:
    assert verdict.last_question(text) == question


@pytest.mark.parametrize(
    "text",
    [
        "Which currency should the cart use?",
        "Should it be FOO or BAR? Please tell me which one you want.",
        "Which of these do you prefer?\n\n1. FOO: as the library calls it\n2. BAR",
        "Which key?\n- FOO\n- BAR\n\nI have not changed anything yet.",
        "I need to know which key to use before I can proceed. Let me know.",
        "I can't proceed without your decision on the name of the key.",
        "Before I start: euros or dollars? Once I know, I'll implement it.",
        "**Question:** should the cart use euros or dollars?\n\nI'll go on once you've answered.",
        "Do you want A or B? If you prefer A, I will also need the path.",
        "通貨は何ですか？",
        "Please confirm that I may delete the table.",
        "Would you like me to go ahead with option B? (It deletes data.)",
        "It does not say which currency. I need your input on that before changing anything.",
        "Which one should I take? Is there anything else I should know?",
        "Which currency should the cart use?\n\nA) euros\nB) dollars\n\nReply with A or B.",
    ],
)
def test_an_agent_that_changed_nothing_and_asks_in_plain_words_waits_for_a_person(
    text: str,
) -> None:
    nothing = verdict.RunEnding(0, changed=False)
    found = judged(FinalResult(text, True), ending=nothing)
    assert (found.kind, bool(found.why)) == (Kind.QUESTION, True)
    assert kind(FinalResult(f"{text}\nOutcome: done", True), ending=nothing) is Kind.NO_CHANGE
    assert kind(FinalResult(text, True)) is Kind.DONE


@pytest.mark.parametrize(
    "text",
    [
        "Done.",
        "I have written it and all tests pass. Is there anything else you would like me to do?",
        "Everything was done already. Let me know if you need anything else.",
        "Why did it fail? Because the file was there already. Nothing to do.",
        'The issue says "Why does it fail?" It no longer does.',
        "It does not work.",
        "I cannot help with this.",
        "",
        "All tests pass already. Do you have any questions?",
        "What did I check?\n\n- a.py is right\n- b.py is right\n\nAll of it is there already.",
        "The function validates its input already. Please let me know if this is wrong.",
        "What should I work on next?",
        "I looked at everything. I found nothing wrong.",
    ],
)
def test_an_offer_or_an_answered_question_asks_nobody(text: str) -> None:
    nothing = verdict.RunEnding(0, changed=False)
    assert kind(FinalResult(text, True), ending=nothing) is Kind.NO_CHANGE
    assert verdict.last_question(text) == ""


def test_an_exit_that_nothing_explains_after_the_result_is_for_the_caller_to_prove() -> None:
    failed = verdict.RunEnding(1, changed=True)
    for told in ([GOOD], [FinalResult("Did it.", False)], []):
        found = judged(*told, ending=failed)
        assert (found.kind, found.why) == (Kind.DONE, "it exited with status 1")
    for told in ([Words("Did it.")], [Printed("Error: x")], [RunFailure(Kind.UNFINISHED, "x")]):
        assert kind(*told, ending=failed) is Kind.UNFINISHED
    for ending in (
        verdict.RunEnding(1, changed=False),
        verdict.RunEnding(None, 9, changed=True),
        verdict.RunEnding(143, clock="timeout", changed=True),
    ):
        assert kind(FinalResult("Did it.", False), ending=ending) is Kind.UNFINISHED
    blocked = FinalResult("Outcome: blocked: no key", False)
    assert kind(blocked, ending=failed) is Kind.QUESTION


def test_what_the_agent_says_of_the_outcome_is_heard_but_not_believed() -> None:
    for word in ("blocked", "question"):
        blocked = judged(FinalResult(f"Outcome: {word}: no key", True))
        assert (blocked.kind, blocked.why) == (Kind.QUESTION, "no key")
    unneeded = FinalResult("Outcome: no change needed: it is there", True)
    assert judged(unneeded, ending=verdict.RunEnding(0)).why == "it is there"
    assert kind(unneeded, ending=verdict.RunEnding(0)) is Kind.NO_CHANGE
    assert kind(unneeded) is Kind.DONE
    assert (
        kind(FinalResult("Outcome: done", True), ending=verdict.RunEnding(0, changed=False))
        is Kind.NO_CHANGE
    )


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        *((401, Kind.NEEDS_PERSON), (403, Kind.NEEDS_PERSON), (429, Kind.TRANSIENT)),
        *((500, Kind.TRANSIENT), (529, Kind.TRANSIENT), (400, Kind.UNFINISHED)),
        (0, Kind.UNFINISHED),
    ],
)
def test_an_http_status_is_known(status: int, expected: Kind) -> None:
    assert verdict.of_status(status, "").kind is expected
    assert verdict.of_status(status, LIMIT).kind is Kind.LIMITED


@pytest.mark.parametrize(
    ("text", "question"),
    [
        ("Outcome: question: FOO or BAR?", "FOO or BAR?"),
        (
            "Two names fit:\n- FOO\n- BAR\nOutcome: blocked: which one?",
            "Two names fit:\n- FOO\n- BAR\nwhich one?",
        ),
        ("Should it be euros?", "Should it be euros?"),
        ("x" * 3000, "x" * 2000),
    ],
)
def test_a_question_is_shown_with_the_choices_before_it(text: str, question: str) -> None:
    assert verdict.question_of(text) == question


def test_a_question_at_the_end_is_one_only_if_nothing_has_changed() -> None:
    asked = FinalResult("Should it be euros?", True)
    assert kind(asked, ending=verdict.RunEnding(0, changed=False)) is Kind.QUESTION
    assert kind(asked, ending=verdict.RunEnding(0, changed=True)) is Kind.DONE
    done = FinalResult("Should it be euros?\nOutcome: done", True)
    assert kind(done, ending=verdict.RunEnding(0, changed=False)) is Kind.NO_CHANGE


def test_a_question_with_which_it_went_on_is_one_only_if_nothing_has_changed() -> None:
    asked, went_on = OpenQuestion("FOO or BAR?"), FinalResult("I wait.", True)
    nothing = verdict.RunEnding(0, changed=False)
    found = judged(asked, asked, went_on, ending=nothing)
    assert (found.kind, found.question, found.call) == (Kind.QUESTION, "FOO or BAR?", "")
    assert kind(asked, went_on) is Kind.DONE
    unneeded = FinalResult("Outcome: no change needed: it is there", True)
    assert kind(asked, unneeded, ending=nothing) is Kind.NO_CHANGE


def test_a_run_that_ended_at_a_question_is_one_whatever_has_changed() -> None:
    at = FinalResult("", True, "FOO or BAR?", "t-1")
    assert kind(at) is kind(at, ending=verdict.RunEnding(0, changed=False)) is Kind.QUESTION
