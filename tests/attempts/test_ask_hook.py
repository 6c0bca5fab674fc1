"""The hook for questions: which call it answers, and what an answer chooses."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from beads_workers.attempts.ask_hook import answered, chosen, split
from beads_workers.attempts.guards import write_answers, write_settings


def question(text: str, *labels: str, several: bool = False) -> dict[str, Any]:
    options = [{"label": label, "description": ""} for label in labels]
    return {"question": text, "multiSelect": several, "options": options}


KEY, COLOUR = question("Which key?", "FOO", "BAR"), question("Which colour?", "red", "blue")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("FOO", "FOO"),
        ("bar", "BAR"),
        ("2", "BAR"),
        ("2.", "BAR"),
        ("3", "3"),
        ("0", "0"),
        ("FOO, but in lower case", "FOO, but in lower case"),
    ],
)
def test_a_choice_is_named_by_its_label_or_its_number(text: str, expected: str) -> None:
    assert chosen(KEY, text) == expected


def test_a_label_that_is_a_number_is_a_label() -> None:
    assert chosen(question("How many?", "3", "1", "2"), "1") == "1"


def test_several_choices_are_divided_by_commas() -> None:
    asked = question("Which?", "red", "green", "blue", several=True)
    assert chosen(asked, "1, blue") == "red, blue"
    assert chosen(asked, "1, and something else") == "1, and something else"


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("FOO\nred", ["FOO", "red"]),
        ("FOO; red", ["FOO", "red"]),
        ("1: FOO\n\n2: red", ["FOO", "red"]),
        ("1/2: FOO\n2/2: red", ["FOO", "red"]),
        ("2 1", ["2", "1"]),
        ("2,1", ["2", "1"]),
        ("As you like", ["As you like"] * 2),
        ("One\ntwo\nthree", ["One\ntwo\nthree"] * 2),
    ],
)
def test_an_answer_to_two_questions_has_two_parts_or_is_for_both(
    text: str, parts: list[str]
) -> None:
    assert split(text, 2) == parts


def test_the_only_question_gets_the_whole_answer() -> None:
    assert split("one; two\nthree", 1) == ["one; two\nthree"]


def test_answers_of_several_people_are_given_together() -> None:
    found = answered([KEY, COLOUR], ["1 2", "FOO; blue as the sky"])
    assert found == {"Which key?": "FOO", "Which colour?": "blue\nblue as the sky"}


@given(st.text(), st.booleans())
def test_no_answer_breaks_it(text: str, several: bool) -> None:
    asked = [question("A?", "x", "y", several=several), KEY]
    assert set(answered(asked, [text])) == {"A?", "Which key?"}


def called(folder: Path, stdin: str) -> dict[str, Any]:
    """The hook as claude calls it, what it prints; nothing: {}."""
    settings = json.loads((folder / "settings.json").read_text())
    hooks = {entry["matcher"]: entry["hooks"] for entry in settings["hooks"]["PreToolUse"]}
    (hook,) = hooks["AskUserQuestion"]
    done = subprocess.run(
        ["sh", "-c", hook["command"]], cwd="/", input=stdin, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")
    return json.loads(done.stdout)["hookSpecificOutput"] if done.stdout else {}


def test_it_answers_the_one_call_that_has_an_answer_and_defers_all_others(tmp_path: Path) -> None:
    folder = tmp_path / "it's here"
    write_settings("i-1", folder)
    call = {"tool_use_id": "t-1", "tool_input": {"questions": [KEY]}}
    assert called(folder, json.dumps(call))["permissionDecision"] == "defer"
    write_answers(folder, "t-1", ["2"])
    told = called(folder, json.dumps(call))
    given = {"questions": [KEY], "answers": {"Which key?": "BAR"}}
    assert (told["permissionDecision"], told["updatedInput"]) == ("allow", given)
    other = called(folder, json.dumps({**call, "tool_use_id": "t-2"}))
    assert other["permissionDecision"] == "defer"


def test_an_answer_of_an_earlier_attempt_is_gone(tmp_path: Path) -> None:
    write_answers(tmp_path, "t-1", ["2"])
    write_settings("i-1", tmp_path)
    call = json.dumps({"tool_use_id": "t-1", "tool_input": {"questions": [KEY]}})
    assert called(tmp_path, call)["permissionDecision"] == "defer"


@pytest.mark.parametrize("stdin", ["no JSON", "[]", "{}", '{"tool_use_id": "t-1"}'])
def test_what_it_cannot_read_it_does_not_decide(tmp_path: Path, stdin: str) -> None:
    write_settings("i-1", tmp_path)
    write_answers(tmp_path, "t-1", ["2"])
    assert called(tmp_path, stdin) == {}
