"""The reader of prose: what it stops at, and what it passes over."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import prose

LONG = " ".join(["word"] * 36)

BAD = [
    ("What is done lands: it is merged.", "relative"),
    ("What an agent that is killed had used is counted.", "relative"),
    ("Whatever comes, the process lives.", "relative"),
    ("Whoever asks gets an answer.", "relative"),
    ("Who leaves has its requests ended.", "relative"),
    ("Whose comments are in it says an option.", "relative"),
    ("Which of them runs it.", "relative"),
    ("Those that answer are asked.", "relative"),
    ("Those of earlier runs are settled first.", "relative"),
    ("One that is still there is killed.", "relative"),
    ("**What follows.** A record is made.", "relative"),
    ("Where it fails already, `start` says so.", "where"),
    ("Where none is set, four are proposed.", "where"),
    ("It is closed; where that fails, it is tried again.", "where"),
    ("It is closed: where that fails, it is tried again.", "where"),
    ("It goes on, and where it cannot, it says why.", "where"),
    ("It goes on, or where it cannot, it says why.", "where"),
    (f"{LONG}.", "36 words"),
    ("It ends (at once (or later)).", "parentheses"),
    ("It ends (at once, see (1)).", "parentheses"),
]
GOOD = [
    "The fleet merges finished branches.",
    "Tokens of a killed agent are counted.",
    "If it already fails, `start` stops.",
    "What is a lease?",
    "What does the fleet do with it?",
    "Where is the log?",
    "Where does the log lie, and who may read it?",
    "The folder where the log lies is private.",
    "It says where the log lies.",
    "The log lies in the folder, where nobody else can read it.",
    "A worker that answers is asked.",
    "The ones that answer are asked.",
    "Each of those that answer is asked.",
    "It ends (at once) or later (see 1).",
    "`(a (b))` is code, and one word.",
    "See [the rules (of landing)](LANDING.md#rules).",
    f"{' '.join(['word'] * 35)}.",
    f"One sentence. {' '.join(['Word'] * 30)}. Another one.",
    "Somewhere else it is killed.",
    "Whose turn is it now?",
]


@pytest.mark.parametrize(("sentence", "kind"), BAD)
def test_a_sentence_that_stumbles_is_found(sentence: str, kind: str) -> None:
    assert [why for why in prose.faults(sentence) if kind in why.replace('"', "")]


@pytest.mark.parametrize("sentence", GOOD)
def test_a_plain_one_is_passed_over(sentence: str) -> None:
    assert [why for each in prose.sentences(sentence) for why in prose.faults(each)] == []


def test_a_document_is_read_without_its_code_and_with_its_lines(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# What is done\n\nWell.\n\n```\nWhat is code\n```\n\n- fine\n- What is done lands.\n"
        "\n| a | b |\n|---|---|\n| fine | Where it fails, it ends. |\n"
    )
    places = [each.place.rpartition(":")[2] for each in prose.of_markdown(page)]
    assert places == ["10", "14"]


def test_messages_are_read_and_docstrings_are_not(tmp_path: Path) -> None:
    module = prose.ROOT / "tests" / "prose.py"
    assert not [each for each in prose.of_messages(module) if "Those of" in each.sentence]
