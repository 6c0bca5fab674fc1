"""The language of scripts, without any program."""

from __future__ import annotations

import pytest

from tests.agents_api import script

ISSUE = """Make a cart. [[stub: write cart.py "a; b"; commit "Add it"]]
[[stub when "AssertionError": run "make fix"; say "Mended."]]"""


def test_a_script_is_its_turns_and_a_last_word() -> None:
    first, second, last = script.parse(
        'write cart.py "a; b\\nc"; commit "Add it"; say "Well done"'
    ).turns
    assert first.action == script.Action("write", ("cart.py", "a; b\nc"))
    assert second.action == script.Action("commit", ("Add it",))
    assert (last.action, last.text, last.stop) == (None, "Well done", "end_turn")


def test_without_an_end_it_says_done() -> None:
    assert [turn.text for turn in script.parse("").turns] == ["Done."]


def test_faults_come_before_the_turn_that_follows_them() -> None:
    first, last = script.parse("overload x3; busy always; run ls; limit seven_day 3d").turns
    assert first.faults[0] == script.Fault("overload", (), 3)
    assert first.faults[1].times > 1000
    assert last.faults == (script.Fault("limit", ("seven_day", "3d")),)


def test_tokens_hold_from_there_on() -> None:
    turns = script.parse("run a; tokens 7 8 9; run b; run c").turns
    assert [turn.tokens for turn in turns] == [script.Tokens(), *[script.Tokens(7, 8, 9)] * 3]


def test_an_edit_reads_first() -> None:
    read, edit, _ = script.parse("edit a.py old new").turns
    assert read.action == script.Action("read", ("a.py",))
    assert edit.action == script.Action("edit", ("a.py", "old", "new"))


@pytest.mark.parametrize("text", ["dance", "write only-a-path", 'say "open', "wait"])
def test_what_cannot_be_understood_is_said(text: str) -> None:
    with pytest.raises(script.ScriptError):
        script.parse(text)


def test_the_next_turn_follows_the_tool_calls_so_far() -> None:
    for turns, verb in ((0, "write"), (1, "commit")):
        _, turn = script.choose([script.Prompt(ISSUE, turns)])
        assert turn.action is not None
        assert turn.action.verb == verb
    assert script.choose([script.Prompt(ISSUE, 9)])[1].action is None


def test_a_prompt_without_a_script_goes_on_with_the_one_before() -> None:
    _, turn = script.choose([script.Prompt(ISSUE, 1), script.Prompt("Go on.", 0)])
    assert turn.action == script.Action("commit", ("Add it",))


def test_a_condition_is_asked_of_the_newest_prompt_alone() -> None:
    verify = script.Prompt("verify says: AssertionError in cart.py")
    assert script.choose([script.Prompt(ISSUE, 2), verify])[1].action == script.Action(
        "run", ("make fix",)
    )
    assert (
        script.choose([script.Prompt(ISSUE, 2), verify, script.Prompt("Thanks.")])[1].text
        == "Done."
    )


def test_the_words_of_a_condition_do_not_meet_it() -> None:
    assert script.choose([script.Prompt(ISSUE)])[1].action == script.Action(
        "write", ("cart.py", "a; b")
    )


def test_a_conversation_without_a_script_has_the_server_s() -> None:
    assert script.choose([script.Prompt("Hello", 1)], "run ls; commit")[1].action == script.Action(
        "commit", ()
    )


def test_times_have_a_unit() -> None:
    assert [script.seconds(text) for text in ("20s", "1.5m", "2h", "3d")] == [20, 90, 7200, 259200]
    with pytest.raises(script.ScriptError):
        script.seconds("2")


def test_questions_are_calls_and_each_has_its_choices() -> None:
    turn = script.parse('question "A?" x y + "B?" ++ "C?" z').turns[0]
    assert turn.action is not None
    found = script.questions(turn.action.words)
    assert found == [[("A?", ["x", "y"]), ("B?", [])], [("C?", ["z"])]]
